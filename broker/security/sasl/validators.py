"""The validators of tokens of all listeners, with the keys of signed tokens, which outlive a reset of the broker."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ...config.security.oauthbearer import SignedSettings, UnsecuredSettings
from ...errors import ConfigError
from .oauthbearer import TokenValidator, UnsecuredValidator

if TYPE_CHECKING:
    from ...clock import Clock
    from .key_sets import KeySource


class Validators:
    """Makes the validator of a connection. Listeners with the same settings have the same keys."""

    def __init__(self) -> None:
        self._sources: dict[SignedSettings, KeySource] = {}

    async def load(self, wanted: Iterable[tuple[str, SignedSettings]]) -> None:
        """Reads the keys of listeners, by their names. Raises ConfigError."""
        for listener, settings in wanted:
            if settings in self._sources:
                continue
            from .key_sets import source_of  # only signed tokens need it

            source = self._sources[settings] = source_of(settings)
            try:
                await source.load()
            except ValueError as error:
                raise ConfigError(f"listener {listener}: sasl.oauthbearer.jwks.endpoint.url: {error}") from None

    def attach(self, clock: Clock | None) -> None:
        """Refreshes the keys by this clock from now on; with None, no longer."""
        for source in self._sources.values():
            source.attach(clock)

    def of(self, settings: UnsecuredSettings | SignedSettings) -> TokenValidator:
        """Returns a validator; of signed tokens, with keys that were loaded."""
        if isinstance(settings, UnsecuredSettings):
            return UnsecuredValidator(settings)
        from .signed_tokens import SignedValidator

        return SignedValidator(settings, self._sources[settings])
