"""The logins of all listeners with SASL: their settings, the keys of signed tokens, and the credentials of GSSAPI."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from ...config.security.oauthbearer import SignedSettings, UnsecuredSettings
from ...config.serve_options import Listener, sasl_of
from ...errors import ConfigError
from .oauthbearer import TokenValidator, UnsecuredValidator
from .session import Credentials, SaslSession

if TYPE_CHECKING:
    from ...clock import Clock
    from ...config.security.sasl import SaslSettings
    from ...config.values import Config
    from .kerberos import KeytabAcceptor
    from .key_sets import KeySource

Login = tuple["SaslSettings", TokenValidator | None, "KeytabAcceptor | None"]
"""The settings of a listener, and what OAUTHBEARER and GSSAPI need."""


class Logins:
    """Begins the login of each connection. The keys of signed tokens outlive a reset of the broker; listeners with the
    same settings have the same keys."""

    def __init__(self) -> None:
        self._keys: dict[SignedSettings, KeySource] = {}
        self._logins: dict[tuple[int, str], Login] = {}

    async def load(self, config: Config, listeners: Iterable[tuple[int, Listener]]) -> None:
        """Reads keys and keytabs, before the data are opened. Raises ConfigError, which names the listener."""
        for node_id, listener in listeners:
            if listener.has_sasl:
                settings = sasl_of(config.of(node_id), listener)
                try:
                    if isinstance(settings.oauthbearer, SignedSettings):
                        await self._load_keys(settings.oauthbearer)
                    self._login(settings)
                except ConfigError as error:
                    raise ConfigError(f"listener {listener.name}: {error}") from None

    async def _load_keys(self, settings: SignedSettings) -> None:
        from .key_sets import source_of  # only signed tokens need it

        if settings not in self._keys:
            source = self._keys[settings] = source_of(settings)
            try:
                await source.load()
            except ValueError as error:
                raise ConfigError(f"sasl.oauthbearer.jwks.endpoint.url: {error}") from None

    def _login(self, settings: SaslSettings) -> Login:
        validator = acceptor = None
        if isinstance(settings.oauthbearer, UnsecuredSettings):
            validator = UnsecuredValidator(settings.oauthbearer)
        elif settings.oauthbearer is not None:
            from .signed_tokens import SignedValidator

            validator = SignedValidator(settings.oauthbearer, self._keys[settings.oauthbearer])
        if settings.kerberos is not None:
            from .kerberos import KeytabAcceptor  # few brokers have GSSAPI

            acceptor = KeytabAcceptor(settings.kerberos)
        return settings, validator, acceptor

    def attach(self, clock: Clock, config: Config, listeners: Iterable[tuple[int, Listener]]) -> None:
        """Begins logins by these configs from now on, and refreshes the keys by this clock. Raises ConfigError."""
        self._logins = {
            (node_id, listener.name): self._login(sasl_of(config.of(node_id), listener))
            for node_id, listener in listeners
            if listener.has_sasl
        }
        for source in self._keys.values():
            source.attach(clock)

    def detach(self) -> None:
        """Refreshes the keys no longer."""
        for source in self._keys.values():
            source.attach(None)

    def begin(self, node_id: int, listener: str, credentials: Callable[[], Credentials]) -> SaslSession | None:
        """Returns the login of a new connection; None on a listener without SASL."""
        found = self._logins.get((node_id, listener))
        if found is None:
            return None
        settings, validator, acceptor = found
        return SaslSession(settings, credentials, validator, acceptor)
