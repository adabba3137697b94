"""The admin clients of confluent-kafka, kafka-python and aiokafka, against an Apache Kafka and ours of one release.

Each public method of each admin class is called with valid and invalid arguments, in the same order on both; results
and errors must be equal. A public method without a call fails the check.
"""

from __future__ import annotations

import importlib
import inspect
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import AbstractContextManager
from enum import Enum
from typing import Any, NamedTuple, Protocol
from uuid import UUID

from difference import Difference, Run, differences
from reasons import CLIENT_REASONS
from side_by_side import FENCE_NAME, RELEASES, Fence, Pair, Side, both

from ottla.protocol.messages.topics.metadata import MetadataRequest
from ottla_testing.interop.checks import OUT, Check, Failed

RETRIED = 4  # times, for what a broker learns a moment later
SECONDS = 20.0
NAMED = {"cluster_id": "CLUSTER", "clusterId": "CLUSTER", "topic_id": "ID", "port": "PORT", "log_dir": "DIR"}
UNSTEADY = re.compile(
    r"throttle|timestamp|usable_bytes|total_bytes|latency|correlation|(start|elapsed)_time|directory_id"
)
# What is in these is an order of Kafka's hash tables.
ID_TEXT = re.compile(r"\b[A-Za-z0-9_-]{22}\b")


class Call(NamedTuple):
    """One call: its method, its arguments, and how it is sent."""

    method: str
    what: str
    make: Callable[[Any], Any]
    reads: bool = False  # changes nothing: may be repeated


class Client(Protocol):
    """A module of calls: NAME of the client, CLASS whose methods are called, CALLS and how to open one."""

    NAME: str
    CLASS: type
    CALLS: list[Call]
    NOT_CALLED: dict[str, str]  # public names -> why they are no calls to a broker

    def opened(self, address: str) -> AbstractContextManager[Any]: ...


class Plain:
    """Converts a client's results to dicts, lists, texts and numbers, without values of one broker alone."""

    def __init__(self, side: Side) -> None:
        self._side = side
        self._cluster_id = side.client.call(MetadataRequest(topics=[]), 4).cluster_id

    def of(self, value: Any, name: str = "", depth: int = 0) -> Any:
        if isinstance(value, BaseException):
            return {"raised": type(value).__name__, "text": self._text(_error_text(value))}
        if UNSTEADY.search(name) and not isinstance(value, dict | list):
            return "UNSTEADY"
        if name in NAMED and isinstance(value, str | bytes | int | UUID) and value is not None:
            return NAMED[name]
        if isinstance(value, bool | int | float) or value is None:
            return "PORT" if value == self._side.client.port else _enum(value)
        if isinstance(value, Future):
            return self.of(_resolved(value), name, depth)
        if isinstance(value, UUID):
            return "ID"
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, bytes):
            return "ID" if len(value) == 16 and any(value) else value
        if isinstance(value, Enum):
            return value.name
        if isinstance(value, dict):
            return {
                str(self.of(key, depth=depth + 1)): self.of(one, key if isinstance(key, str) else "", depth + 1)
                for key, one in value.items()
            }
        fields = getattr(value, "_asdict", None)
        if fields is not None:
            return self.of(fields(), name, depth)
        if isinstance(value, list | tuple | set | frozenset):
            found = (self.of(one, depth=depth + 1) for one in value)
            return sorted((one for one in found if FENCE_NAME not in repr(one)), key=repr)
        return "..." if depth > 12 else self._object(value, depth)

    def _object(self, value: Any, depth: int) -> Any:
        if hasattr(value, "code") and hasattr(value, "str"):  # an error of confluent-kafka
            return f"{value.name()} {value.str()}"
        names = [name for name in dir(value) if not name.startswith("_")]
        found = {name: getattr(value, name) for name in names}
        return {
            "is": type(value).__name__,
            **{name: self.of(one, name, depth + 1) for name, one in found.items() if not callable(one)},
        }

    def _text(self, text: str) -> str:
        text = text.replace(str(self._side.folder), "DIR").replace(self._side.address, "ADDRESS")
        text = text.replace(self._cluster_id, "CLUSTER").replace(str(self._side.client.port), "PORT")
        return ID_TEXT.sub("ID", text)


def _enum(value: Any) -> Any:
    return value.name if isinstance(value, Enum) else value


def _error_text(error: BaseException) -> str:
    first: Any = error.args[0] if error.args else ""
    if hasattr(first, "code") and hasattr(first, "str"):  # confluent's
        return f"{first.name()} {first.str()}"
    return str(error)


def _resolved(future: Future[Any]) -> Any:
    try:
        return future.result(SECONDS)
    except Exception as error:
        return error


class Session:
    """One client at both brokers."""

    def __init__(self, client: Any, pair: Pair) -> None:
        self._client = client
        self._pair = pair
        self._plain = [Plain(side) for side in (pair.theirs, pair.ours)]
        self._fences = [Fence(pair.theirs.client)] if pair.release != "2.8" else []
        self.reasons: Counter[str] = Counter()
        self.failures: list[str] = []

    def run(self) -> None:
        with (
            self._client.opened(self._pair.theirs.address) as theirs,
            self._client.opened(self._pair.ours.address) as ours,
        ):
            for call in self._client.CALLS:
                self._compare(call, (theirs, ours))

    def _compare(self, call: Call, admins: tuple[Any, Any]) -> None:
        left: list[Difference] = []
        responses: list[Any] = []
        for _ in range(RETRIED if call.reads else 1):
            responses = [self._response(call, admin, plain) for admin, plain in zip(admins, self._plain, strict=True)]
            left = list(self._unexplained(call, *responses))
            if not left:
                break
            time.sleep(0.2)
        if not call.reads:
            for fence in self._fences:
                fence.wait()
            if not self._fences:
                time.sleep(0.3)  # ZooKeeper's watches
        if left:
            listed = "\n".join(f"    {path}: {one!r} <> {other!r}"[:600] for path, one, other in left)
            self.failures.append(f"  {call.method} ({call.what})\n{listed}")

    def _response(self, call: Call, admin: Any, plain: Plain) -> Any:
        try:
            return plain.of(call.make(admin))
        except Exception as error:
            return plain.of(error)

    def _unexplained(self, call: Call, theirs: Any, ours: Any) -> Iterator[Difference]:
        for path, one, other in differences(theirs, ours):
            reason = CLIENT_REASONS.of(self._pair.release, call.method, path, one, other)
            if reason is None:
                yield path, one, other
            else:
                self.reasons[reason] += 1


def methods(cls: type) -> set[str]:
    """Returns the public methods of a class."""
    return {name for name, _ in inspect.getmembers(cls, callable) if not name.startswith("_")}


def run(module: str, release: str) -> str:
    client = importlib.import_module(module)
    called = {call.method for call in client.CALLS}
    wanted = methods(client.CLASS) - set(client.NOT_CALLED)
    if called != wanted:
        raise Failed(f"{client.NAME}: not called {sorted(wanted - called)}, not there {sorted(called - wanted)}")
    with both(release) as pair:
        Run(pair, 0).begin()
        session = Session(client, pair)
        session.run()
    reasons = "; ".join(f"{reason} ({count})" for reason, count in sorted(session.reasons.items()))
    reported = f"{len(client.CALLS)} calls of {len(called)} methods; for a reason: {reasons or '-'}"
    if session.failures:
        where = OUT / f"{module}-{release}.txt"
        where.write_text("\n".join(session.failures) + "\n")
        raise Failed(f"{reported}; {len(session.failures)} differ, see {where}:\n" + "\n".join(session.failures)[:3000])
    return reported


CLIENTS = ("admin_confluent", "admin_kafka_python", "admin_aiokafka")
CHECKS = [
    Check(
        f"the admin client {module.removeprefix('admin_').replace('_', '-')} with Kafka {version} and with ours",
        lambda module=module, release=release: run(module, release),
    )
    for module in CLIENTS
    for release, version in RELEASES.items()
]
