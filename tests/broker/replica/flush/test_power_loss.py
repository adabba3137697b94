"""Power losses at any moment with `flush.messages` = 1: everything acknowledged is there afterwards.

The disk is simulated, and shared by the event loop and the threads that sync. A sync takes a while before and after it
makes its bytes durable, so it does not cover records that arrive meanwhile. The power is cut right after a response: a
premature one is lost then or never.
"""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from ottla.broker.metadata.topics import GROUP_OFFSETS_TOPIC
from ottla.broker.replica.flush import LogSync
from ottla.protocol.messages.groups.offset_commit import OffsetCommitRequest
from ottla.protocol.messages.groups.offset_fetch import OffsetFetchRequest
from ottla.protocol.records import batch, formats
from ottla.storage.partition_log import Appended
from ottla_testing.broker.harness import Broker, Client, Closed, fetch, only, produce, records, running, values
from ottla_testing.each import each
from ottla_testing.storage.simulated_files import SimulatedFile, SimulatedFiles

FOLDER = Path("/data")
OVERRIDES = {"log.flush.interval.messages": "1", "offsets.topic.num.partitions": "1", "log.roll.ms": "3"}
PARTITIONS = 3
WRITERS = 6
CUTS_MAX = 40
T0 = 1_700_000_000_000


class SharedFile:
    """A file whose operations are serialised."""

    def __init__(self, disk: SharedDisk, file: SimulatedFile) -> None:
        self._disk, self._file = disk, file
        self.path = file._path

    def __getattr__(self, name: str) -> Any:
        return self._disk.guarded(getattr(self._file, name))

    def sync(self) -> None:
        # A sync is slow, without waiting for a clock.
        time.sleep(random.random() * 0.002)
        with self._disk.turn:
            self._file.sync()
        time.sleep(random.random() * 0.002)


class SharedDisk(SimulatedFiles):
    """A disk whose operations are serialised; `cut` copies its state at one moment."""

    def __init__(self) -> None:
        super().__init__()
        self.turn = threading.RLock()
        for name in (
            "read_bytes size exists modified_ns set_modified_ns list make_directory replace remove remove_directory"
            " sync_directory"
        ).split():
            setattr(self, name, self.guarded(getattr(self, name)))

    def guarded(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def one_at_a_time(*args: Any, **kwargs: Any) -> Any:
            with self.turn:
                return call(*args, **kwargs)

        return one_at_a_time

    def open(self, path: str, *, create: bool = False) -> SimulatedFile:
        with self.turn:
            return cast(SimulatedFile, SharedFile(self, super().open(path, create=create)))

    def cut(self) -> SimulatedFiles:
        """The state of the disk at this moment."""
        with self.turn:
            return self.fork()


class Acknowledged:
    """All acknowledged records so far, and copies of the disk at some of these moments."""

    def __init__(self, disk: SharedDisk, rng: random.Random, chance: float) -> None:
        self.cuts: list[tuple[SimulatedFiles, dict[tuple[int, int], bytes], int]] = []
        self._disk, self._rng, self._chance = disk, rng, chance
        self.stored: dict[tuple[int, int], bytes] = {}  # (partition, offset) -> value: acknowledged, or read
        self.committed = 0
        self.sent = 0

    def maybe_cut(self) -> None:
        """Called after a response: may cut the power."""
        if self._rng.random() < self._chance and len(self.cuts) < CUTS_MAX:
            self.cuts.append((self._disk.cut(), dict(self.stored), self.committed))


def committing(offset: int) -> OffsetCommitRequest:
    topic = OffsetCommitRequest.OffsetCommitRequestTopic
    requested = topic.OffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="")
    return OffsetCommitRequest(group_id="g", topics=[topic(name="t", partitions=[requested])])


async def committed(client: Client) -> int:
    requested = OffsetFetchRequest.OffsetFetchRequestTopic(name="t", partition_indexes=[0])
    (topic,) = (await client.call(OffsetFetchRequest(group_id="g", topics=[requested]), 5)).topics
    return topic.partitions[0].committed_offset


async def write(client: Client, number: int, reported: Acknowledged, rng: random.Random) -> None:
    """An idempotent producer, one of WRITERS, with several batches in flight on its connection."""
    sequences = [0] * PARTITIONS
    waiting: list[tuple[int, list[bytes]]] = []

    async def responded() -> None:
        partition, sent = waiting.pop(0)
        response = only((await client.receive())[1])
        assert response.error_code == 0
        for position, value in enumerate(sent):
            reported.stored[partition, response.base_offset + position] = value
        reported.maybe_cut()

    for _ in range(12):
        partition = rng.randrange(PARTITIONS)
        sent = [b"%d-%d-%d" % (number, partition, sequences[partition] + n) for n in range(rng.randrange(1, 4))]
        data = records(
            *sent,
            timestamp=T0 + rng.randrange(40),
            producer_id=number,
            producer_epoch=0,
            base_sequence=sequences[partition],
        )
        sequences[partition] += len(sent)
        await client.send(produce(data, partition=partition, acks=rng.choice((-1, 1))), 9)
        waiting.append((partition, sent))
        while len(waiting) > rng.randrange(4):
            await responded()
    while waiting:
        await responded()


async def read(client: Client, partition: int, reported: Acknowledged) -> None:
    """A consumer: records it has read count as acknowledged."""
    offset = 0
    while True:
        data = only(await client.call(fetch(("t", partition, offset), partition_max_bytes=200), 11)).records
        for position, header in formats.headers(data):
            for record in batch.records(data, position):
                reported.stored[partition, record.offset] = record.value or b""
            offset = header.next_offset
            reported.maybe_cut()
        await asyncio.sleep(0)


async def commit(client: Client, reported: Acknowledged) -> None:
    for offset in range(1, 15):
        reported.sent = offset
        assert only(await client.call(committing(offset), 5)).error_code == 0
        reported.committed = offset
        reported.maybe_cut()


async def load(broker: Broker, reported: Acknowledged, rng: random.Random) -> None:
    await broker.topic("t", PARTITIONS)
    broker.state.internal_topic(GROUP_OFFSETS_TOPIC, broker.clock.now_ms())
    clients = [await broker.client() for _ in range(WRITERS + PARTITIONS + 1)]
    readers = [asyncio.ensure_future(read(clients.pop(), index, reported)) for index in range(PARTITIONS)]
    work = [write(clients.pop(), number, reported, rng) for number in range(WRITERS)]
    try:
        await asyncio.gather(*work, commit(clients.pop(), reported))
    finally:
        for reader in readers:
            reader.cancel()
        await asyncio.gather(*readers, return_exceptions=True)


async def check(
    disk: SimulatedFiles, stored: dict[tuple[int, int], bytes], was_committed: int, sent: int, where: str
) -> None:
    """Everything acknowledged is there at its offset, nothing is there twice, and the broker continues."""
    async with running(FOLDER, files=disk, overrides=OVERRIDES) as broker:
        client = await broker.client()
        if broker.state.topics.get("t") is None:  # the power was cut before the topic existed
            assert not stored, where
            return
        for partition in range(PARTITIONS):
            found: list[bytes | None] = []
            log = broker.log("t", partition)
            while len(found) < log.log_end_offset:
                found += values(only(await client.call(fetch(("t", partition, len(found))), 11)).records)
            lost = {
                offset: value
                for (index, offset), value in stored.items()
                if index == partition and (offset >= len(found) or found[offset] != value)
            }
            assert not lost, f"{where}: t-{partition} lost {lost}"
            assert len(set(found)) == len(found), f"{where}: t-{partition} doubled"
        if was_committed:
            assert was_committed <= await committed(client) <= sent, where
        assert only(await client.call(produce(records(b"new"), "t"), 9)).error_code == 0


async def played(seed: int, chance: float) -> None:
    rng = random.Random(seed)
    disk = SharedDisk()
    reported = Acknowledged(disk, random.Random(seed), chance)
    async with running(FOLDER, files=disk, overrides=OVERRIDES) as broker:
        await load(broker, reported, rng)
    for number, (cut, stored, was_committed) in enumerate(reported.cuts):
        cut.crash(random.Random(seed + number))
        await check(cut, stored, was_committed, reported.sent, f"seed {seed}, cut {number}")


async def test_acknowledged_records_survive_a_power_loss(scaled: Callable[[int], int]) -> None:
    first = random.randrange(1 << 32)
    for seed in range(first, first + scaled(6)):
        await played(seed, 0.15)


PLANTED = ["acknowledged before the sync", "acknowledged by the sync before", "shown before the sync", "not synced"]


@each("planted", PLANTED, strided=True)
async def test_power_loss_check_finds_planted_mistakes(planted: str) -> None:
    """Each of these bugs is found within a few power losses."""
    with pytest.MonkeyPatch.context() as patch:
        if planted == "acknowledged before the sync":

            def at_once(self: LogSync, appended: Appended) -> Appended:
                after(self, appended)
                return appended

            after = LogSync.after
            patch.setattr(LogSync, "after", at_once)
        elif planted == "acknowledged by the sync before":

            def too_early(self: LogSync, error: Exception | None) -> None:
                following = self._following
                finished(self, error)
                if following is not None:
                    following.done()

            finished = LogSync.finished
            patch.setattr(LogSync, "finished", too_early)
        elif planted == "shown before the sync":
            patch.setattr(LogSync, "_hold", LogSync.reckon)
        else:
            sync = SharedFile.sync
            patch.setattr(SharedFile, "sync", lambda self: None if "/t-" in self.path else sync(self))
        with pytest.raises((AssertionError, Closed)):
            for seed in range(30):
                await played(seed, 0.5)
