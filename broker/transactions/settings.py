"""Configuration of the transaction coordinator."""

from __future__ import annotations

from typing import Any

from ...protocol.frozen import frozen


@frozen
class TransactionSettings:
    """Settings of the coordinator, with Kafka's defaults. Times in milliseconds.

    `server_version` is the finalized feature `transaction.version`: from 1 on, records are written in version 1; from 2
    on, aborts by the coordinator bump the epoch like those of a version 2 client (KIP-890). The two intervals are those
    of the checks for timed-out transactions and for expired transactional ids. `two_phase` allows two-phase commit
    (KIP-939).
    """

    max_timeout_ms: int = 900_000
    expiration_ms: int = 604_800_000
    server_version: int = 2
    time_out_interval_ms: int = 10_000
    expiration_interval_ms: int = 3_600_000
    two_phase: bool = False

    @classmethod
    def from_config(cls, config: Any, server_version: int) -> TransactionSettings:
        """Reads Kafka's config names from `config`."""
        return cls(
            max_timeout_ms=config["transaction.max.timeout.ms"],
            expiration_ms=config["transactional.id.expiration.ms"],
            server_version=server_version,
            time_out_interval_ms=config["transaction.abort.timed.out.transaction.cleanup.interval.ms"],
            expiration_interval_ms=config["transaction.remove.expired.transaction.cleanup.interval.ms"],
            two_phase=config.get("transaction.two.phase.commit.enable", False),
        )

    @property
    def record_version(self) -> int:
        """Version of the values written to `__transaction_state`."""
        return min(self.server_version, 1)
