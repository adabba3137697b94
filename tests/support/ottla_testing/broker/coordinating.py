"""A transaction coordinator with its log and the markers in memory, and a clock that stands still.

What is written can be made to fail, or to wait for a sync that the test ends.
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
    """`log` is what was appended to `__transaction_state`, per partition, `markers` what was to the others; `order` has
    both. `fails` says for a partition which error writing to it raises; a topic in `slow` waits for its syncs."""

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
        said = decode(*record)
        assert said is not None
        self.order.append(said.transaction.state.value if said.transaction else "tombstone")

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
        """Ends the oldest sync that is waited for, and lets what follows from it happen; its topic."""
        topic, future = self.syncs.pop(0)
        if error is None:
            future.set_result(object())
        else:
            future.set_exception(error)
        await asyncio.sleep(0)
        return topic


class World:
    """A coordinator, and the disk that stays when it goes."""

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
        """A new coordinator on the same log; the old one's timers are stopped."""
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

    # What a client does; each fails unless the answer is there and good.

    def init(self, name: str = "tx", **more: Any) -> tuple[int, int]:
        answer = now(self.coordinator.init_producer_id(name, **{"timeout_ms": TIMEOUT_MS, **more}))
        assert answer.error is NONE
        return answer.producer_id, answer.producer_epoch

    def add(self, owner: tuple[int, int], *partitions: Partition, name: str = "tx", version: int = 2) -> None:
        assert now(self.coordinator.add_partitions(name, *owner, partitions, client_version=version)).error is NONE

    def end(self, owner: tuple[int, int], committed: bool = True, *, name: str = "tx", version: int = 2) -> Response:
        answer = now(self.coordinator.end(name, *owner, committed=committed, client_version=version))
        assert answer.error is NONE
        return answer


def now(answer: Any) -> Response:
    """The answer, which needed no wait."""
    assert isinstance(answer, Response)
    return answer
