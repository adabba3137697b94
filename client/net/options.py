"""The options of all clients, by Kafka's names: types, bounds, defaults, and parsing; also of the properties file that
`--command-config` names, as Kafka's tools read it.

A client with more options derives a frozen dataclass from `ClientOptions`; `read_options` fills it from Kafka's dotted
names (`{"linger.ms": "5"}`) or from the field names.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from ...protocol.limits import INT16_MAX, INT32_MAX
from ...protocol.names import meant, near
from ...protocol.properties import parse_properties
from .errors import ConfigError
from .security import ALIASES as SECURITY_ALIASES
from .security import SecurityOptions, Settings, is_security, is_without_effect

T = TypeVar("T")
DEFAULT_PORT = 9092
FILE_BYTES_MAX = 1 << 20
_PREFIXES = ("security.", "sasl.", "ssl.", "enable.ssl.")

# Kafka's and librdkafka's names of options that have another field name.
ALIASES = {
    **SECURITY_ALIASES,
    "bootstrap_servers": "bootstrap",
    "metadata_broker_list": "bootstrap",
    "receive_message_max_bytes": "response_bytes_max",
}


def ranged(default: int, low: int, high: int = INT32_MAX) -> Any:
    """Returns the field of an option that is an integer from `low` to `high`, inclusive."""
    return dataclasses.field(default=default, metadata={"range": (low, high)})


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientOptions(SecurityOptions):
    """The options of connections and metadata, besides those of security. Raises ConfigError for a value out of range.

    `bootstrap` is `"host:port,host:port"` or a sequence of such texts; IPv6 addresses are in brackets.
    """

    bootstrap: str | Iterable[str] = "127.0.0.1:9092"
    client_id: str = "ottla"
    request_timeout_ms: int = ranged(30_000, 1)
    connect_timeout_ms: int = ranged(10_000, 1)  # socket.connection.setup.timeout.ms
    default_api_timeout_ms: int = ranged(60_000, 1)
    metadata_max_age_ms: int = ranged(300_000, 1)
    reconnect_backoff_ms: int = ranged(50, 0)
    reconnect_backoff_max_ms: int = ranged(1_000, 0)
    retry_backoff_ms: int = ranged(100, 0)
    retry_backoff_max_ms: int = ranged(1_000, 0)
    allow_auto_create_topics: bool = True
    metadata_cluster_check_enable: bool = True  # whether brokers refuse connections for other nodes (KIP-1242)
    old_brokers: bool = True  # whether a broker that closes on ApiVersions may be one of 0.8.2 or 0.9
    response_bytes_max: int = ranged(100 << 20, 1024)

    def __post_init__(self) -> None:
        SecurityOptions.__post_init__(self)
        self.addresses()
        try:
            fits = len(self.client_id.encode()) <= INT16_MAX
        except (AttributeError, UnicodeEncodeError):
            fits = False
        if not fits:
            raise ConfigError(f"client.id must be a text of at most {INT16_MAX} bytes, not {self.client_id!r:.100}")
        for option in dataclasses.fields(self):
            if "range" in option.metadata:
                check_range(option.name, getattr(self, option.name), *option.metadata["range"])

    def addresses(self) -> list[tuple[str, int]]:
        """Returns (host, port) of each bootstrap address. Raises ConfigError."""
        return parse_addresses(self.bootstrap)


def parse_addresses(bootstrap: str | Iterable[str]) -> list[tuple[str, int]]:
    """Parses `"a:9092,[::1]:9093"`, or a sequence of such texts, to (host, port)s. Raises ConfigError."""
    if isinstance(bootstrap, str):
        parts = bootstrap.split(",")
    else:
        parts = [part for text in bootstrap for part in str(text).split(",")]
    addresses = [_address(part.strip()) for part in parts if part.strip()]
    if not addresses:
        raise ConfigError("bootstrap.servers is empty: expected host:port")
    return list(dict.fromkeys(addresses))


def _address(text: str) -> tuple[str, int]:
    if "://" in text:
        raise ConfigError(f"{text!r} is not an address: expected host:port, without {text.partition('://')[0]}://")
    if text.isascii() and text.removeprefix(":").isdigit():  # a number alone is an IPv4 address to the resolver
        raise ConfigError(f"{text!r} is not an address: the host is missing, as in 127.0.0.1:{text.removeprefix(':')}")
    host, colon, port_text = text.rpartition(":")
    if text.startswith("["):
        host, _, rest = text[1:].partition("]")
        colon, port_text = rest[:1], rest[1:]
        if rest and colon != ":":
            raise ConfigError(f"{text!r} is not an address: expected an IPv6 address in brackets, as in [::1]:9092")
    elif text.count(":") > 1:
        raise ConfigError(f"{text!r} is not an address: expected an IPv6 address in brackets, as in [::1]:9092")
    elif not colon:
        host, port_text = text, ""
    if not host or (colon and not (port_text.isascii() and port_text.isdigit())):
        raise ConfigError(f"{text!r} is not an address: expected host:port")
    port = int(port_text[:6]) if port_text else DEFAULT_PORT
    if not 1 <= port <= 65535:
        raise ConfigError(f"{text!r} has no port between 1 and 65535")
    return host, port


def dotted(name: str) -> str:
    """Returns Kafka's name of an option, for messages."""
    return "bootstrap.servers" if name == "bootstrap" else name.replace("_", ".")


def check_range(name: str, value: Any, low: int, high: int) -> None:
    """Raises ConfigError unless `value` is an int from `low` to `high`, inclusive."""
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise ConfigError(f"{dotted(name)} must be an integer from {low} to {high}, not {value!r}")


def check_name(name: str, value: Any) -> None:
    """Raises ConfigError unless `value` is a non-empty str that fits into a protocol string."""
    if not (isinstance(value, str) and 0 < len(value.encode("utf-8", "replace")) <= INT16_MAX):
        raise ConfigError(f"{dotted(name)} must be a text of 1 to {INT16_MAX} bytes, not {value!r}")


def read_options(cls: type[T], names: Mapping[str, Any], aliases: Mapping[str, str] = ALIASES) -> T:
    """Creates an options dataclass from Kafka's names or field names. Texts are parsed as the field's type.

    Raises ConfigError for an unknown name (the text has the nearest known one), a duplicate name, a malformed value.
    """
    return cls(**field_values(cls, names, aliases))


def field_values(cls: type, names: Mapping[str, Any], aliases: Mapping[str, str] = ALIASES) -> dict[str, Any]:
    """Returns the options as keyword arguments of `cls`; see `read_options`."""
    hints = typing.get_type_hints(cls)
    known = [field.name for field in dataclasses.fields(cls)]  # type: ignore[arg-type]
    values: dict[str, Any] = {}
    for name, value in names.items():
        key = str(name).replace(".", "_")
        key = aliases.get(key, key)
        if key not in known:
            raise ConfigError(f"unknown option {name}{meant([dotted(one) for one in near(key, known)])}")
        if key in values:
            raise ConfigError(f"option {name} is given twice")
        values[key] = _typed(name, value, hints[key]) if isinstance(value, str) else value
    return values


def _typed(name: str, text: str, hint: Any) -> Any:
    """Parses a text as a field's type: as the first type of a union that accepts it, unchanged if `str` is one."""
    union = typing.get_origin(hint) in (typing.Union, types.UnionType)
    kinds = typing.get_args(hint) if union else (hint,)
    if str in kinds or any(typing.get_origin(kind) is typing.Literal for kind in kinds):
        return text
    for kind in kinds:
        if kind in _READERS:
            try:
                return _READERS[kind](text.strip())
            except ValueError:
                pass
    raise ConfigError(f"{name}: invalid value {text!r}")


def _bool(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError(text)
    return text.lower() == "true"


_READERS: dict[Any, Callable[[str], Any]] = {bool: _bool, int: int, float: float}


# The file of `--command-config`


def read_settings(path: str | Path) -> Settings:
    """Returns the security options in a file by their dotted names; other options in it have no effect.

    Raises ConfigError, which names the file, if it cannot be read, for a security option that no Kafka client has, and
    for values that contradict each other. The stores of TLS are not read.
    """
    try:
        with Path(path).open("rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
    except (OSError, ValueError) as error:
        raise ConfigError(f"cannot read {path}: {error.strerror if isinstance(error, OSError) else error}") from None
    if len(data) > FILE_BYTES_MAX:
        raise ConfigError(f"cannot read {path}: larger than {FILE_BYTES_MAX} bytes")
    found = Settings()
    try:
        for name, text in parse_properties(data).items():
            if is_security(name):
                found[name] = text.strip()
            elif name.startswith(_PREFIXES) and not is_without_effect(name):
                known = [dotted(one) for one in (*SecurityOptions.__dataclass_fields__, *SECURITY_ALIASES)]
                raise ValueError(f"unknown option {name}{meant(near(name, known))}")
        SecurityOptions(**field_values(SecurityOptions, found))
    except ValueError as error:  # ConfigError is one
        raise ConfigError(f"{path}: {error}") from None
    return found


def security_values(path: str | Path | None) -> dict[str, Any]:
    """Returns the security options in a file as keyword arguments of a client; none without a file. Raises ConfigError,
    as `read_settings`."""
    return {} if path is None else field_values(SecurityOptions, read_settings(path))
