"""Parses `max.connections.per.ip.overrides`, the connection limits of single hosts.

Owns the notation (HOST:COUNT, comma-separated) and Kafka's error messages, for validation and new connections.
"""

from __future__ import annotations

import functools
import ipaddress
import re
import socket

from ...protocol.limits import INT32_MAX, INT32_MIN
from ..errors import ConfigError

NAME, PER_IP = "max.connections.per.ip.overrides", "max.connections.per.ip"
_HOST = re.compile(r"[0-9a-zA-Z\-%._:]*")
_COUNT = re.compile(r"[+-]?[0-9]{1,10}")  # as Java reads an int


@functools.lru_cache(maxsize=8)
def counts_of(text: str) -> dict[str, int]:
    """Returns the limits by host as written; a negative limit allows no connection. Raises ConfigError with the
    messages of Java's parsers, like Kafka.
    """
    found: dict[str, int] = {}
    for pair in text.strip().rstrip(", ").split(",") if text.strip() else ():
        host, colon, count = (part.strip() for part in pair.strip().rpartition(":"))
        if not colon:
            problem = f"begin 0, end -1, length {len(pair.strip())}"
            raise ConfigError(f"Error parsing configuration property '{NAME}': {problem}")
        if not _COUNT.fullmatch(count) or not INT32_MIN <= int(count) <= INT32_MAX:
            raise ConfigError(f'For input string: "{count}"')
        found[host] = int(count)
    return found


def check_limits(per_ip: int, text: str) -> None:
    """Checks the limit per address together with those of single hosts. Raises ConfigError."""
    counts = counts_of(text)
    if per_ip == 0 and not counts:
        raise ConfigError(f"requirement failed: {PER_IP} can be set to zero only if {NAME} property is set.")
    if wrong := [host for host in counts if not _HOST.fullmatch(host)]:
        raise ConfigError(f"{NAME} contains invalid addresses : {','.join(wrong)}")


@functools.lru_cache(maxsize=8)
def host_limits(text: str) -> dict[str, int]:
    """Returns the limits by address; host names are resolved once per text. Raises ConfigError."""
    return {_address(host): count for host, count in counts_of(text).items()}


def _address(host: str) -> str:
    """Returns the address as connections report it; an unresolvable name is returned as it is."""
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        try:
            return socket.gethostbyname(host)
        except (OSError, ValueError):  # ValueError for a name that is too long to resolve
            return host
