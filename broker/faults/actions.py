"""The actions of faults: one value for each kind, with its parameters checked. Pure: nothing is done here.

`ACTIONS` lists them all. The parameters of a constructor are those of its JSON form: `delay(500, when="after")` is
`{"action": "delay", "ms": 500, "when": "after"}`. A new action needs its effect in `broker/network/fault_injection.py`,
a function in `broker/testing/faults.py` and a flag in `tools/ctl/faults.py`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ...protocol.errors import ErrorCode, error_name
from ...protocol.limits import INT16_MAX, INT16_MIN, INT32_MAX
from ...protocol.names import did_you_mean

MS_MAX = 24 * 3600 * 1000
BYTES_MAX = INT32_MAX
WHEN = ("before", "after")
ON = ("read", "write", "both")
CERTIFICATES = ("expired", "wrong_host", "untrusted")
# The scope of an action: what its rule is matched against.
REQUEST, DISK, SOCKET, HANDSHAKE = "request", "disk", "socket", "handshake"


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """The action of a rule; only the fields of its kind are set. Made by the functions below."""

    name: str
    code: int | None = None
    ms: int | None = None
    when: str | None = None
    bytes: int | None = None
    on: str | None = None
    path: str | None = None
    certificate: str | None = None

    @property
    def scope(self) -> str:
        """The scope of the action: REQUEST, DISK, SOCKET or HANDSHAKE."""
        return SCOPES.get(self.name, REQUEST)

    def to_json(self) -> dict[str, Any]:
        """Returns the name and the parameters; an error code by its name if Kafka has one."""
        found: dict[str, Any] = {"action": self.name}
        for name in PARAMETERS[self.name]:
            value = getattr(self, name)
            if value is not None:
                found[name] = error_name(value) or value if name == "code" else value
        return found


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
    """Returns an error code for the part of a request that the rule matches; the rest is handled.

    The error is placed where a broker would place it: in each matched partition, topic, group or resource, or at the
    top of the response.
    """
    if isinstance(code, str):
        if code not in ErrorCode.__members__ or code == "NONE":
            raise ValueError(f"no error code is named {code!r}{did_you_mean(code, ErrorCode.__members__, 0.5)}")
        return Action(name="error", code=int(ErrorCode[code]))
    number = _whole("code", code, INT16_MIN, INT16_MAX)
    if number == 0:
        raise ValueError("code 0 is no error: use another code or its name")
    return Action(name="error", code=number)


def delay(ms: int, when: str = "before") -> Action:
    """Waits before the request is handled, or after it and before the response is sent. Later requests of the
    connection wait too.
    """
    return Action(name="delay", ms=_whole("ms", ms, 1, MS_MAX), when=_one_of("when", when, WHEN))


def disconnect(when: str = "before") -> Action:
    """Closes the connection without a response, before the request is handled or after it."""
    return Action(name="disconnect", when=_one_of("when", when, WHEN))


def truncate(bytes: int) -> Action:
    """Handles the request, sends the first `bytes` bytes of the response after its size field, which has the full size,
    and closes the connection.
    """
    return Action(name="truncate", bytes=_whole("bytes", bytes, 0, BYTES_MAX))


def garble() -> Action:
    """Handles the request and flips bits of the response after its header; the rule's seed chooses them."""
    return Action(name="garble")


def wrong_crc() -> Action:
    """Flips a bit in the records of a Fetch response; the log stays intact. Responses with records count as matches."""
    return Action(name="wrong_crc")


def throttle(ms: int) -> Action:
    """Throttles as a quota does since Kafka 2.0: the response with the throttle time is sent at once, and later
    requests of the connection wait for that time.
    """
    return Action(name="throttle", ms=_whole("ms", ms, 1, MS_MAX))


def stall() -> Action:
    """Delays the request until the rule is removed. Later requests of the connection wait too."""
    return Action(name="stall")


def refuse() -> Action:
    """Makes the system refuse new connections, by listener and node."""
    return Action(name="refuse")


def bad_certificate(certificate: str) -> Action:
    """Shows a new connection a certificate that has expired, is for another host, or has another authority. Needs
    listeners of the security ssl, mtls, sasl_ssl or oauth_ssl.
    """
    return Action(name="bad_certificate", certificate=_one_of("certificate", certificate, CERTIFICATES))


def disk_error(on: str = "both", path: str | None = None) -> Action:
    """Fails reads, writes (all operations that change something), or both with EIO. `path` is a pattern of paths."""
    return Action(name="disk_error", on=_one_of("on", on, ON), path=_pattern("path", path))


def disk_full(path: str | None = None) -> Action:
    """Fails operations that need space with ENOSPC. `path` is a pattern of paths."""
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
    bad_certificate,
    disk_error,
    disk_full,
)
ACTIONS: dict[str, Callable[..., Action]] = {function.__name__: function for function in _CONSTRUCTORS}
PARAMETERS = {name: tuple(inspect.signature(function).parameters) for name, function in ACTIONS.items()}
SCOPES = {"refuse": SOCKET, "bad_certificate": HANDSHAKE, "disk_error": DISK, "disk_full": DISK}
