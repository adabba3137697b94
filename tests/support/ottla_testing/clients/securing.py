"""A listener with a login for tests of programs that connect: its configs, and the file of a client."""

from __future__ import annotations

from pathlib import Path

from ottla_testing.certificates import Authority, pem_configs

MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
USER, PASSWORD = "ann", 'one; "two"'
LISTENER = "SECURED://127.0.0.1:0"
_QUOTED = PASSWORD.replace('"', r"\"")


def broker_configs(protocol: str = "SASL_PLAINTEXT") -> dict[str, str]:
    """Returns the configs of a broker whose listener SECURED has the user USER with PASSWORD."""
    return {
        "listener.security.protocol.map": f"SECURED:{protocol}",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.secured.plain.sasl.jaas.config": f'{MODULE} required user_{USER}="{_QUOTED}";',
        "connection.failed.authentication.delay.ms": "0",
    }


def client_settings(protocol: str = "SASL_PLAINTEXT", password: str = _QUOTED) -> dict[str, str]:
    """Returns the client's options by Kafka's names."""
    jaas = f'{MODULE} required username="{USER}" password="{password}";'
    return {"security.protocol": protocol, "sasl.mechanism": "PLAIN", "sasl.jaas.config": jaas}


def encrypted(authority: Authority) -> tuple[dict[str, str], dict[str, str]]:
    """Returns the configs of a broker and the options of a client with both TLS and the login."""
    configs = broker_configs("SASL_SSL") | pem_configs(authority.issue("broker"))
    return configs, client_settings("SASL_SSL") | {"ssl.ca.location": str(authority.trusted)}


def client_file(folder: Path, settings: dict[str, str] | None = None, name: str = "client.properties") -> str:
    """Writes the file of `--command-config`, and returns its path."""
    path = folder / name
    pairs = client_settings() if settings is None else settings
    path.write_text("".join(f"{key}={value}\n" for key, value in pairs.items()).replace("\\", "\\\\"))
    return str(path)
