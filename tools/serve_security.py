"""The flag `--security` of `ottla serve`: what an earlier start has left in the data directory, and what this one adds.

Apart from `serve.py`, since most brokers have no security and need not import this.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ..broker.config.serve_options import StartupError
from ..broker.errors import ConfigError
from ..broker.testing.client_settings import client_settings, properties
from ..broker.testing.security import ADMIN, CLIENT_FILE, STATE, Security, made

if TYPE_CHECKING:
    from ..broker.config.values import Config
    from ..broker.network.server import Running

LOCALHOST = "localhost"


def read(word: str, config: Config) -> Security:
    """Returns the security that a word names, as an earlier start has left it in the data directory. Raises
    ConfigError."""
    state = None
    if config.is_set("log.dirs"):
        try:
            state = Path(config["log.dirs"][0], STATE).read_bytes()
        except FileNotFoundError:
            pass
        except OSError as error:
            raise ConfigError(f"--security: {error.filename}: {error.strerror}") from error
    return made(word, state)


def write(security: Security, running: Running) -> None:
    """Writes what clients need into the first data directory. Raises StartupError."""
    folder = running.state.options.data_dirs[0]
    try:
        security.write(str(folder), with_state=True)
        for user in security.known or (None,):
            settings = client_settings("java", running.bootstrap(0, LOCALHOST), security, user)
            name = CLIENT_FILE if user in (ADMIN, None) else f"security-{user}.properties"
            security.add(name, properties(settings).encode())
    except OSError as error:
        raise StartupError(f"--security: {error.filename}: {error.strerror}") from error


def announce(security: Security) -> None:
    """Prints where the settings of clients are."""
    print(f"ottla security {security.word}, settings of clients in {security.path(CLIENT_FILE)}", flush=True)
