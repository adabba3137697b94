"""A transaction coordinator with its log and markers in memory, and a stopped clock.

Writes can fail, or wait for a sync that the test completes.
"""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

from ottla.broker.clock import ManualClock
from ottla.broker.errors import Refused
from ottla.broker.transactions.coordinator import MarkerWriter, TransactionCoordinator
from ottla.broker.transactions.records import decode
from ottla.broker.transactions.settings import TransactionSettings
from ottla.broker.transactions.state import Partition, Response, Transaction, WriteMarkers
from ottla.protocol.errors import ErrorCode

TIMEOUT_MS = 60_000
NONE = ErrorCode.NONE


class Disk:
    """`log` has the records appended to `__transaction_state` by partition, `markers` those of other partitions;
    `order` has both. `fails` has the error that a write to a partition raises; a topic in `slow` waits for its syncs.
    """

    def __init__(self) -> None:
        self.log: dict[int, list[tuple[bytes, bytes | None]]] = {}
        self.markers: dict[Partition, list[tuple[int, int, bool]]] = {}
        self.order: list[str] = []
        self.fails: dict[str, ErrorCode] = {}
        self.slow: set[str] = set()
        self.syncs: list[tuple[str, asyncio.Future[Any]]] = []

    def append(self, partition_index: int, records: list[tuple[bytes, bytes | None]], now_ms: int) -> Any:
        (record,) = records
        return self._write("log", lambda: self._appended(partition_index, record))

    def _appended(self, partition_index: int, record: tuple[bytes, bytes | None]) -> None:
        self.log.setdefault(partition_index, []).append(record)
        entry = decode(*record)
        assert entry is not None
        self.order.append(entry.transaction.state.value if entry.transaction else "tombstone")

    def write_marker(self, partition: Partition, markers: WriteMarkers, now_ms: int) -> Any:
        return self._write(partition[0], lambda: self._marker(partition, markers))

    def _marker(self, partition: Partition, markers: WriteMarkers) -> None:
        written = markers.producer_id, markers.producer_epoch, markers.committed
        self.markers.setdefault(partition, []).append(written)
        self.order.append(f"{'commit' if markers.committed else 'abort'} {partition[0]}-{partition[1]}")

    def _write(self, topic: str, write: Any) -> Any:
        if (code := self.fails.get(topic)) is not None:
            raise Refused(code)
        write()
        if topic not in self.slow:
            return object()
        future = asyncio.get_running_loop().create_future()
        self.syncs.append((topic, future))
        return future

    async def sync(self, error: Exception | None = None) -> str:
        """Completes the oldest pending sync and runs what depends on it; returns its topic."""
        topic, future = self.syncs.pop(0)
        if error is None:
            future.set_result(object())
        else:
            future.set_exception(error)
        await asyncio.sleep(0)
        return topic


class World:
    """A coordinator, and the disk that outlives it."""

    def __init__(self, settings: TransactionSettings | None = None, partitions: int = 3) -> None:
        self.settings = settings or TransactionSettings()
        self.partitions = partitions
        self.clock = ManualClock()
        self.disk = Disk()
        self.producer_ids = itertools.count(1000)
        self.no_ids: ErrorCode | None = None
        self.ended: list[tuple[Partition, int, bool]] = []
        self.coordinator = self.make()

    def make(self) -> TransactionCoordinator:
        made = TransactionCoordinator(
            append=self.disk.append,
            markers=MarkerWriter(self.disk.write_marker, self._ended),
            allocate=self._allocate,
            offsets_partition=lambda group_id: ("__consumer_offsets", len(group_id)),
            partitions=self.partitions,
            clock=self.clock,
            settings=self.settings,
        )
        made.start()
        return made

    def _ended(self, partition: Partition, markers: WriteMarkers) -> None:
        self.ended.append((partition, markers.producer_id, markers.committed))

    def _allocate(self, now_ms: int) -> int:
        assert now_ms == self.clock.now_ms()
        if self.no_ids is not None:
            raise Refused(self.no_ids)
        return next(self.producer_ids)

    def restart(self) -> TransactionCoordinator:
        """Creates a new coordinator on the same log, and stops the timers of the old one."""
        self.coordinator.close()
        self.coordinator = self.make()
        for partition, records in self.disk.log.items():
            assert self.coordinator.load(partition, list(records)) is NONE
        return self.coordinator

    def transaction(self, name: str = "tx") -> Transaction:
        error, found = self.coordinator.describe(name)
        assert error is NONE
        assert found is not None
        return found

    def state(self, name: str = "tx") -> str:
        return self.transaction(name).state.value

    # Client actions; each fails unless it succeeds at once.

    def init(self, name: str = "tx", **more: Any) -> tuple[int, int]:
        response = now(self.coordinator.init_producer_id(name, **{"timeout_ms": TIMEOUT_MS, **more}))
        assert response.error is NONE
        return response.producer_id, response.producer_epoch

    def add(self, owner: tuple[int, int], *partitions: Partition, name: str = "tx", version: int = 2) -> None:
        assert now(self.coordinator.add_partitions(name, *owner, partitions, client_version=version)).error is NONE

    def end(self, owner: tuple[int, int], committed: bool = True, *, name: str = "tx", version: int = 2) -> Response:
        response = now(self.coordinator.end(name, *owner, committed=committed, client_version=version))
        assert response.error is NONE
        return response


def now(response: Any) -> Response:
    """Returns the response, which must be immediate."""
    assert isinstance(response, Response)
    return response
