"""Sources of config texts: Java properties files and `KAFKA_*` environment variables.

Variable names follow the rule of Apache Kafka's container image.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from ...protocol.properties import parse_properties
from ..errors import ConfigError

MAX_FILE_BYTES = 1 << 20  # a server.properties has a few kB; anything larger is the wrong file

# Variables that Kafka's scripts and image read themselves; they are not configs.
NOT_CONFIGS = frozenset(
    """KAFKA_VERSION KAFKA_HEAP_OPTS KAFKA_OPTS KAFKA_LOG4J_OPTS KAFKA_LOG4J_ROOT_LOGLEVEL KAFKA_LOG4J_LOGGERS
    KAFKA_TOOLS_LOG4J_LOGLEVEL KAFKA_JMX_OPTS KAFKA_JMX_HOSTNAME KAFKA_JMX_PORT KAFKA_JVM_PERFORMANCE_OPTS
    KAFKA_GC_LOG_OPTS KAFKA_HOME KAFKA_DEBUG""".split()
)


def read_properties_file(path: Path) -> dict[str, str]:
    """Reads the pairs of a properties file. Raises ConfigError if it cannot be read or parsed."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    if len(data) > MAX_FILE_BYTES:
        raise ConfigError(f"cannot read {path}: larger than {MAX_FILE_BYTES} bytes")
    try:
        return parse_properties(data)
    except ValueError as error:
        raise ConfigError(f"cannot read {path}: {error}") from error


def from_environment(environ: Mapping[str, str], known: Mapping[str, object]) -> dict[str, tuple[str, str]]:
    """Returns config name -> (value, variable) for each `KAFKA_*` variable: `_` is a dot, `__` an underscore, `___` a
    dash.

    `known` restores the case of the few config names with capital letters.
    """
    variables = sorted(name for name in environ if name.startswith("KAFKA_") and name not in NOT_CONFIGS)
    spelled = {name.lower(): name for name in known if name != name.lower()} if variables else {}
    found: dict[str, tuple[str, str]] = {}
    for variable in variables:
        name = variable[len("KAFKA_") :].lower()
        name = re.sub("_{1,3}", lambda match: (".", "_", "-")[len(match[0]) - 1], name)
        found[spelled.get(name, name)] = (environ[variable], variable)
    return found
