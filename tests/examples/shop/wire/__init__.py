"""The three clients under one interface, so that the shop runs on any of them.

A `Sender` and a `Receiver` are blocking and belong to one thread. Errors: SendFailed, Fenced; other errors of a client
are passed through.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

CLIENTS = ("kafka-python", "confluent-kafka", "aiokafka")
CALL_SECONDS = 20.0  # a bound for one call
Header = tuple[str, bytes]
Place = tuple[str, int]  # topic, partition


class SendFailed(Exception):
    """A record was not accepted; the message is the client's own."""


class Fenced(Exception):
    """Another producer has taken this transactional id over."""


@dataclass(frozen=True, slots=True)
class Message:
    """One record as it was received."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]
    timestamp_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Sending:
    """How a Sender sends."""

    compression: str = "none"
    acks: int = -1
    idempotent: bool = False
    transactional_id: str | None = None
    linger_ms: int = 0
    max_request_bytes: int = 1_000_000
    timeout_ms: int = 10_000
    client_id: str = "shop"


@dataclass(frozen=True, slots=True, kw_only=True)
class Receiving:
    """How a Receiver receives; without a group it needs partitions."""

    group: str | None = None
    start: str = "earliest"
    committed_only: bool = False
    instance: str | None = None
    session_ms: int = 10_000
    client_id: str = "shop"


class Sender(Protocol):
    """Sends records; in transactions if it has a transactional id."""

    def send(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        headers: Sequence[Header] = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> None:
        """Queues a record; `flush` reports its result."""
        ...

    def flush(self) -> list[int]:
        """Waits for all records queued since the last flush; returns their offsets in order. Raises SendFailed."""
        ...

    def begin(self) -> None: ...

    def commit(self, read: Mapping[Place, int] | None = None, receiver: Receiver | None = None) -> None:
        """Commits the transaction, and with it the positions of what was read by a receiver. Raises Fenced."""
        ...

    def abort(self) -> None: ...

    def close(self) -> None: ...


class Receiver(Protocol):
    """Reads records, as a member of a group or from given partitions."""

    client: Any
    group: str | None

    def subscribe(self, *topics: str) -> None: ...

    def assign(self, *places: Place) -> None: ...

    def poll(self, seconds: float = 0.05) -> list[Message]:
        """Returns the records that have arrived, perhaps none."""
        ...

    def assigned(self) -> set[Place]: ...

    def commit(self, read: Mapping[Place, int]) -> None:
        """Commits the offsets of the next records to read."""
        ...

    def committed(self, place: Place) -> int | None: ...

    def seek(self, place: Place, offset: int) -> None: ...

    def pause(self, *places: Place) -> None: ...

    def resume(self, *places: Place) -> None: ...

    def offset_at(self, place: Place, timestamp_ms: int) -> int | None:
        """Returns the first offset with this timestamp or a later one."""
        ...

    def ends(self, place: Place) -> tuple[int, int]:
        """Returns the first offset, and the one after the last record."""
        ...

    def close(self) -> None:
        """Leaves the group; commits nothing."""
        ...


class Admin(Protocol):
    """Administers topics and groups."""

    def create(self, topic: str, partitions: int = 1, configs: Mapping[str, str] | None = None) -> None: ...

    def delete(self, topic: str) -> None: ...

    def topics(self) -> set[str]: ...

    def partitions(self, topic: str) -> int: ...

    def grow(self, topic: str, partitions: int) -> None: ...

    def config(self, topic: str, name: str) -> str: ...

    def set_config(self, topic: str, name: str, value: str) -> None: ...

    def groups(self) -> set[str]: ...

    def group_offsets(self, group: str) -> dict[Place, int]: ...

    def delete_records(self, place: Place, before: int) -> None: ...

    def close(self) -> None: ...


class Wire:
    """One client's senders, receivers and admins; closing it closes all of them."""

    def __init__(self, client: str, bootstrap: str) -> None:
        self.client = client
        self.bootstrap = bootstrap
        self.module: Any = importlib.import_module(f"shop.wire.{client.replace('-', '_')}_wire")
        self.opened: list[Sender | Receiver | Admin] = []

    def sender(self, **settings: Any) -> Sender:
        self.opened.append(sender := self.module.Sender(self.bootstrap, Sending(**settings)))
        return sender

    def receiver(self, *topics: str, **settings: Any) -> Receiver:
        """Returns a member of a group if topics are named."""
        self.opened.append(receiver := self.module.Receiver(self.bootstrap, Receiving(**settings)))
        if topics:
            receiver.subscribe(*topics)
        return receiver

    def admin(self) -> Admin:
        self.opened.append(admin := self.module.Admin(self.bootstrap))
        return admin

    def close(self) -> None:
        while self.opened:
            self.opened.pop().close()
