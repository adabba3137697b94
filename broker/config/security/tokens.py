"""The settings of delegation tokens: `delegation.token.secret.key` and its lifetimes (KIP-48, KIP-681)."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

from ....protocol.frozen import frozen

if TYPE_CHECKING:
    from ..configured import Configured

SECRET_KEY, MASTER_KEY = "delegation.token.secret.key", "delegation.token.master.key"


@frozen
class TokenSettings:
    """The key of all secrets, the longest life of a token, and its life until it has to be renewed."""

    secret_key: bytes = field(repr=False)
    max_lifetime_ms: int
    expiry_ms: int


def token_settings(config: Configured) -> TokenSettings | None:
    """Returns the settings, or None without a key: then delegation tokens are disabled. The key of releases before 4.0
    may have its older name, which applies only where the newer one is not set."""
    key: str | None = config.get(SECRET_KEY)
    if key is None:
        key = config.get(MASTER_KEY)
    if not key:
        return None
    return TokenSettings(
        key.encode(), config["delegation.token.max.lifetime.ms"], config["delegation.token.expiry.time.ms"]
    )
