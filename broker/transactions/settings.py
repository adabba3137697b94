"""What the transaction coordinator needs of the configuration."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class TransactionSettings:
    """Kafka's defaults. Times in milliseconds.

    `server_version` is the finalised feature `transaction.version`: from 1 on records are written in version 1, from 2
    on the coordinator's own aborts bump the epoch as a client's of that version do (KIP-890). The two intervals are
    those of the sweeps for transactions that are open for too long and for ids that nobody uses.
    """

    max_timeout_ms: int = 900_000
    expiration_ms: int = 604_800_000
    server_version: int = 2
    time_out_interval_ms: int = 10_000
    expiration_interval_ms: int = 3_600_000

    @classmethod
    def from_config(cls, config: Any, server_version: int) -> TransactionSettings:
        """Reads Kafka's own names out of anything that answers `config[name]`."""
        return cls(
            max_timeout_ms=config["transaction.max.timeout.ms"],
            expiration_ms=config["transactional.id.expiration.ms"],
            server_version=server_version,
            time_out_interval_ms=config["transaction.abort.timed.out.transaction.cleanup.interval.ms"],
            expiration_interval_ms=config["transaction.remove.expired.transaction.cleanup.interval.ms"],
        )

    @property
    def record_version(self) -> int:
        """The version in which values of `__transaction_state` are written."""
        return min(self.server_version, 1)
