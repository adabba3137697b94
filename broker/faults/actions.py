"""What a fault does: one value per kind, with its parameters checked. Pure: nothing here acts.

`ACTIONS` is the one list of them. The parameters of a constructor are those of its JSON form:
`delay(500, when="after")` is `{"action": "delay", "ms": 500, "when": "after"}`. A new action takes its effect in
`broker/network/fault_injection.py`, a function in `broker/testing/faults.py` and a flag in `tools/ctl/faults.py`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ...protocol.errors import ErrorCode
from ...protocol.limits import INT16_MAX, INT16_MIN, INT32_MAX
from ...protocol.names import did_you_mean

MS_MAX = 24 * 3600 * 1000
BYTES_MAX = INT32_MAX
WHEN = ("before", "after")
ON = ("read", "write", "both")
REQUEST, DISK, SOCKET = "request", "disk", "socket"  # what a rule with the action is matched against


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """One thing to do; only the fields that its kind has are set. Made by the functions below."""

    name: str
    code: int | None = None
    ms: int | None = None
    when: str | None = None
    bytes: int | None = None
    on: str | None = None
    path: str | None = None

    @property
    def scope(self) -> str:
        """REQUEST, DISK or SOCKET."""
        return SCOPES.get(self.name, REQUEST)

    def to_json(self) -> dict[str, Any]:
        """Its name and its parameters, an error code by its name where it has one."""
        found: dict[str, Any] = {"action": self.name}
        for name in PARAMETERS[self.name]:
            value = getattr(self, name)
            if value is not None:
                found[name] = code_name(value) if name == "code" else value
        return found


def code_name(code: int) -> str | int:
    """The name of an error code; the number where Kafka has none."""
    try:
        return ErrorCode(code).name
    except ValueError:
        return code


def _whole(name: str, value: Any, least: int, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"{name} must be a whole number, not {value!r}")
    if not least <= value <= most:
        raise ValueError(f"{name} must be {least} to {most}, not {value}")
    return value


def _one_of(name: str, value: Any, known: tuple[str, ...]) -> str:
    if value not in known:
        raise ValueError(f"{name} must be {' or '.join(known)}, not {value!r}")
    return value


def error(code: str | int) -> Action:
    """Answers an error code instead of doing the work, for what the rule matches; everything else is done.

    It is written where a broker would write it: into each partition, topic, group or resource that is matched, or at
    the top of the answer.
    """
    if isinstance(code, str):
        if code not in ErrorCode.__members__ or code == "NONE":
            raise ValueError(f"no error code is named {code!r}{did_you_mean(code, ErrorCode.__members__, 0.5)}")
        return Action(name="error", code=int(ErrorCode[code]))
    number = _whole("code", code, INT16_MIN, INT16_MAX)
    if number == 0:
        raise ValueError("code 0 is no error")
    return Action(name="error", code=number)


def delay(ms: int, when: str = "before") -> Action:
    """Waits before the work is done, or after it, before the answer leaves. What is behind it on the connection waits,
    too."""
    return Action(name="delay", ms=_whole("ms", ms, 1, MS_MAX), when=_one_of("when", when, WHEN))


def disconnect(when: str = "before") -> Action:
    """Closes the connection instead of answering: before anything is done, or after all is (the answer is lost)."""
    return Action(name="disconnect", when=_one_of("when", when, WHEN))


def truncate(bytes: int) -> Action:
    """Does the work, sends no more than so many bytes of the answer (its size field, which tells the whole, not
    counted), and closes the connection."""
    return Action(name="truncate", bytes=_whole("bytes", bytes, 0, BYTES_MAX))


def garble() -> Action:
    """Does the work, and flips bits of the answer behind its header; which ones is the rule's seed's."""
    return Action(name="garble")


def wrong_crc() -> Action:
    """Flips a bit in the records of Fetch answers, on their way to the client only. Counts answers with records."""
    return Action(name="wrong_crc")


def throttle(ms: int) -> Action:
    """As a quota does since Kafka 2.0: answers at once with the time, and looks at no request of the connection for so
    long."""
    return Action(name="throttle", ms=_whole("ms", ms, 1, MS_MAX))


def stall() -> Action:
    """Does nothing until the rule is removed, and then goes on. What is behind it on the connection waits, too."""
    return Action(name="stall")


def refuse() -> Action:
    """Has the system refuse new connections, by listener and node."""
    return Action(name="refuse")


def disk_error(on: str = "both", path: str | None = None) -> Action:
    """Fails reads, writes (which is all that changes something), or both with EIO; `path` is a pattern of paths."""
    return Action(name="disk_error", on=_one_of("on", on, ON), path=_pattern("path", path))


def disk_full(path: str | None = None) -> Action:
    """Fails what needs room with ENOSPC; `path` is a pattern of paths."""
    return Action(name="disk_full", path=_pattern("path", path))


def _pattern(name: str, value: Any) -> str | None:
    if value is not None and not isinstance(value, str):
        raise ValueError(f"{name} must be a text, not {value!r}")
    return value


_CONSTRUCTORS: tuple[Callable[..., Action], ...] = (
    error,
    delay,
    disconnect,
    truncate,
    garble,
    wrong_crc,
    throttle,
    stall,
    refuse,
    disk_error,
    disk_full,
)
ACTIONS: dict[str, Callable[..., Action]] = {function.__name__: function for function in _CONSTRUCTORS}
PARAMETERS = {name: tuple(inspect.signature(function).parameters) for name, function in ACTIONS.items()}
SCOPES = {"refuse": SOCKET, "disk_error": DISK, "disk_full": DISK}
