"""What the transaction coordinator needs of the configuration."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TransactionSettings:
    """Kafka's defaults. Times in milliseconds.

    `server_version` is the finalised feature `transaction.version`: from 1 on records are written in version 1, from 2
    on the coordinator's own aborts bump the epoch as a client's of that version do (KIP-890).
    """

    max_timeout_ms: int = 900_000
    expiration_ms: int = 604_800_000
    server_version: int = 2

    @property
    def record_version(self) -> int:
        """The version in which values of `__transaction_state` are written."""
        return min(self.server_version, 1)
