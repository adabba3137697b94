"""The interfaces between the sender and its parts: responses, recovery queries, transactions.

The parts change each other's state: responses retry or fail batches, recovery queries read logs, transactions drop
batches. Each part depends on these interfaces only.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from ..net.cluster import Cluster
    from ..net.errors import ClientError, ProducerFailed
    from .accumulator import Accumulator, Batch, PartitionQueue
    from .idempotence import Modes
    from .options import ProducerOptions
    from .sequences import Sequences


class RecoveryQueries(Protocol):
    """Reads logs after ambiguous responses."""

    async def look_for_suspect(self, batch: Batch, base_offset: int, append_time_ms: int) -> None: ...
    async def look_for_batch(self, batch: Batch, alive_until_s: float) -> None: ...
    def bound_offset(self, queue: PartitionQueue, sequences: Sequences[Batch]) -> None: ...


class Responses(Protocol):
    """Applies responses to batches."""

    def lose(self, batch: Batch, sequences: Sequences[Batch]) -> None: ...


class Transactional(Protocol):
    """The transactions of the producer."""

    @property
    def is_failing(self) -> bool: ...
    @property
    def resends_always(self) -> bool: ...
    def covers(self, queue: PartitionQueue) -> bool: ...


class SenderState(Protocol):
    """The state of one sender, as its parts read and change it."""

    cluster: Cluster
    options: ProducerOptions
    accumulator: Accumulator
    modes: Modes
    producer_ids: set[int]
    failure: ProducerFailed | None

    @property
    def inquiries(self) -> RecoveryQueries: ...
    @property
    def outcomes(self) -> Responses: ...
    @property
    def transactions(self) -> Transactional | None: ...

    def wake(self) -> None:
        """Schedules a pass that sends the possible batches."""

    def task(self, work: Coroutine[Any, Any, object]) -> None:
        """Runs a coroutine until it ends or the sender closes."""

    def watch(self, batch: Batch) -> None:
        """Fails the batch at its deadline."""

    def resume(self, queue: PartitionQueue) -> None:
        """Sends from the queue again."""

    def want_metadata(self, topic: str) -> None:
        """Refreshes the topic's metadata, since its leader is unknown or stale."""

    def refuse_topic(self, topic: str, error: ClientError) -> None:
        """Fails all records of a topic that cannot be written with idempotence."""

    def drop(self, error: Callable[[], ClientError], *, keep_sent: bool) -> None:
        """Fails the batches not in flight; with `keep_sent` those that were sent before are kept for a retry."""

    def fail(self, error: ProducerFailed, batch: Batch | None = None) -> None:
        """Fails the producer with a fatal error."""

    def failed(self) -> ProducerFailed:
        """The error that ended the producer, as a new exception."""
        ...

    async def flush(self) -> None:
        """Returns when all records sent before the call are acknowledged or failed."""
