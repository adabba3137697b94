"""The file of `--command-config`: client options in a properties file, as Kafka's tools read it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ...protocol.names import meant, near
from ...protocol.properties import parse_properties
from .errors import ConfigError
from .options import dotted, field_values
from .security import ALIASES, SecurityOptions, Settings, is_security, is_without_effect

FILE_BYTES_MAX = 1 << 20
_PREFIXES = ("security.", "sasl.", "ssl.", "enable.ssl.")


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
                known = [dotted(one) for one in (*SecurityOptions.__dataclass_fields__, *ALIASES)]
                raise ValueError(f"unknown option {name}{meant(near(name, known))}")
        SecurityOptions(**field_values(SecurityOptions, found))
    except ValueError as error:  # ConfigError is one
        raise ConfigError(f"{path}: {error}") from None
    return found


def security_values(path: str | Path | None) -> dict[str, Any]:
    """Returns the security options in a file as keyword arguments of a client; none without a file. Raises ConfigError,
    as `read_settings`."""
    return {} if path is None else field_values(SecurityOptions, read_settings(path))
