"""The security of the container image by the means of Kafka's own image: stores and passwords as files in
`/etc/kafka/secrets`, and the login configuration that `KAFKA_OPTS` names.

Sources: /etc/kafka/docker/configure of apache/kafka; JaasContext for the sections of a login configuration.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from ..protocol.security.jaas import LoginModule, format_jaas, parse_jaas_file

SECRETS = Path("/etc/kafka/secrets")
MAX_FILE_BYTES = 1 << 20
OPTIONS = "KAFKA_OPTS"
SECTION = "KafkaServer"
_LOGIN_FILE = re.compile(r"-Djava\.security\.auth\.login\.config==?(\"[^\"]*\"|\S+)")
_CLIENT_AUTH = "KAFKA_SSL_CLIENT_AUTH"
# The variable that names a file, the variable of the config, whether the config is what the file contains, and whether
# Kafka's image reads it only where clients have certificates.
FILES = (
    ("KAFKA_SSL_KEYSTORE_FILENAME", "KAFKA_SSL_KEYSTORE_LOCATION", False, False),
    ("KAFKA_SSL_KEYSTORE_CREDENTIALS", "KAFKA_SSL_KEYSTORE_PASSWORD", True, False),
    ("KAFKA_SSL_KEY_CREDENTIALS", "KAFKA_SSL_KEY_PASSWORD", True, False),
    ("KAFKA_SSL_TRUSTSTORE_FILENAME", "KAFKA_SSL_TRUSTSTORE_LOCATION", False, True),
    ("KAFKA_SSL_TRUSTSTORE_CREDENTIALS", "KAFKA_SSL_TRUSTSTORE_PASSWORD", True, True),
)
# SCRAM takes its users from the metadata, not from a login module.
MODULES = {"PLAIN": "PlainLoginModule", "GSSAPI": "Krb5LoginModule", "OAUTHBEARER": "OAuthBearerLoginModule"}


def apply(env: dict[str, str], settings: Mapping[str, str], folder: Path | None = None) -> None:
    """Puts configs in place of the variables that name files in `folder`, which is SECRETS. Raises ValueError, with one
    line for the user.

    `settings` are those of the mounted server.properties: a login that they have stays.
    """
    for variable, config, is_content, is_of_clients in FILES:
        name = env.pop(variable, "").strip()
        if not name or (is_of_clients and env.get(_CLIENT_AUTH, "").strip().lower() not in ("required", "requested")):
            continue
        path = (folder or SECRETS) / name
        env[config] = _read(variable, path).rstrip("\n") if is_content else str(path)
    named = _LOGIN_FILE.search(env.get(OPTIONS, ""))
    if named is None:
        return
    path = Path(named[1].strip('"'))
    text = _read(OPTIONS, path)
    try:
        sections = parse_jaas_file(text)
    except ValueError as error:
        raise ValueError(f"{OPTIONS}: {path}: {error}") from None
    for part in (env.get("KAFKA_LISTENERS") or settings.get("listeners", "")).split(","):
        listener, separator, _ = part.strip().partition("://")
        if separator:
            _add_logins(env, settings, listener, sections)


def _read(variable: str, path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
        if len(data) > MAX_FILE_BYTES:
            raise ValueError(f"{variable}: {path} is larger than {MAX_FILE_BYTES} bytes")
        return data.decode()
    except OSError as error:
        raise ValueError(f"{variable}: cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ValueError(f"{variable}: {path} is not UTF-8") from None


def _add_logins(
    env: dict[str, str], settings: Mapping[str, str], listener: str, sections: Mapping[str, list[LoginModule]]
) -> None:
    """Adds the login module of each mechanism, from the listener's own section or that of all."""
    own = sections.get(f"{listener.lower()}.{SECTION}")
    entries = sections.get(SECTION, []) if own is None else own
    for mechanism, module in MODULES.items():
        found = next((one for one in entries if one.name.rpartition(".")[2] == module), None)
        config = f"listener.name.{listener.lower()}.{mechanism.lower()}.sasl.jaas.config"
        variable = "KAFKA_" + config.replace("_", "__").replace("-", "___").replace(".", "_").upper()
        if found is not None and variable not in env and config not in settings:
            env[variable] = format_jaas(found)
