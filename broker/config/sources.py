"""Where config text comes from: Java properties files and `KAFKA_*` environment variables.

Owns the two notations, nothing of what the names mean. Sources: the format of `java.util.Properties.load`, and the rule
of Apache Kafka's own container image for names in the environment.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from .definitions import ConfigError

MAX_FILE_BYTES = 1 << 20  # a server.properties has a few kB; anything larger is the wrong file

_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_BLANK = " \t\f"

# Variables that Kafka's scripts and image read themselves; they name no config.
NOT_CONFIGS = frozenset(
    """KAFKA_VERSION KAFKA_HEAP_OPTS KAFKA_OPTS KAFKA_LOG4J_OPTS KAFKA_LOG4J_ROOT_LOGLEVEL KAFKA_LOG4J_LOGGERS
    KAFKA_TOOLS_LOG4J_LOGLEVEL KAFKA_JMX_OPTS KAFKA_JMX_HOSTNAME KAFKA_JMX_PORT KAFKA_JVM_PERFORMANCE_OPTS
    KAFKA_GC_LOG_OPTS KAFKA_HOME KAFKA_DEBUG""".split()
)


def read_properties_file(path: Path) -> dict[str, str]:
    """The pairs of a properties file. Raises ConfigError when it cannot be read or is no such file."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    if len(data) > MAX_FILE_BYTES:
        raise ConfigError(f"cannot read {path}: larger than {MAX_FILE_BYTES} bytes")
    return parse_properties(data)


def parse_properties(data: bytes) -> dict[str, str]:
    """Java properties (ISO 8859-1, as Java reads them from a stream) as a dict; a later pair wins."""
    pairs: dict[str, str] = {}
    for line in _logical_lines(data.decode("latin-1")):
        key, value = _split(line)
        pairs[_unescape(key)] = _unescape(value)
    return pairs


def _logical_lines(text: str) -> Iterator[str]:
    """Lines without comments and blanks, joined where a line ends in an odd number of backslashes."""
    pending: str | None = None
    for natural in re.split(r"\r\n|\r|\n", text):
        line = natural.lstrip(_BLANK)
        if pending is None and (not line or line[0] in "#!"):
            continue
        joined = (pending or "") + line
        if (len(joined) - len(joined.rstrip("\\"))) % 2:
            pending = joined[:-1]
            continue
        pending = None
        yield joined
    if pending:
        yield pending


def _split(line: str) -> tuple[str, str]:
    """A logical line at its first separator that no backslash guards: blanks, one `=` or `:`, blanks."""
    position = 0
    while position < len(line) and line[position] not in "=:" + _BLANK:
        position += 2 if line[position] == "\\" else 1
    rest = line[position:].lstrip(_BLANK)
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(_BLANK)
    return line[:position], rest


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text

    def replace(match: re.Match[str]) -> str:
        escaped = match[1]
        if escaped[:1] != "u":
            return _ESCAPES.get(escaped, escaped)
        if len(escaped) != 5:
            raise ConfigError(f"malformed \\uxxxx escape in {text!r}")
        return chr(int(escaped[1:], 16))

    return re.sub(r"\\(u[0-9a-fA-F]{4}|.|$)", replace, text, flags=re.DOTALL)


def from_environment(environ: Mapping[str, str], known: Mapping[str, object]) -> dict[str, tuple[str, str]]:
    """Config name -> (value, variable) for each `KAFKA_*` variable: one underscore is a dot, two are one, three a dash.

    `known` gives back the capitals of the few names that have some; the variables cannot.
    """
    spelled = {name.lower(): name for name in known if name != name.lower()}
    found: dict[str, tuple[str, str]] = {}
    for variable in sorted(environ):
        if not variable.startswith("KAFKA_") or variable in NOT_CONFIGS:
            continue
        name = variable[len("KAFKA_") :].lower()
        name = re.sub("_{1,3}", lambda match: (".", "_", "-")[len(match[0]) - 1], name)
        found[spelled.get(name, name)] = (environ[variable], variable)
    return found
