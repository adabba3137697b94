"""Checkpoints: their intervals, how many are written together, and that they delay no other request."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from ottla.broker.clock import ManualClock
from ottla.protocol.messages.records.delete_records import DeleteRecordsRequest
from ottla_testing.broker.harness import Broker, only, produce, records, running
from ottla_testing.broker.held_syncs import FailingFiles, begun
from ottla_testing.patience import PATIENCE_S

T0 = 1_700_000_000_000
POINTS, STARTS, WATERMARKS = (
    f"{name}-checkpoint" for name in ("recovery-point-offset", "log-start-offset", "replication-offset")
)
CONFIGS = {
    POINTS: "log.flush.offset.checkpoint.interval.ms",
    STARTS: "log.flush.start.offset.checkpoint.interval.ms",
    WATERMARKS: "replica.high.watermark.checkpoint.interval.ms",
}
DEFAULT_MS = {POINTS: 60_000, STARTS: 60_000, WATERMARKS: 5_000}
# After the writes: the log start offset is that of the first segment and needs no entry.
WRITTEN = {POINTS: "t 0 3", STARTS: "", WATERMARKS: "t 0 3"}


def found(folder: Path) -> dict[str, str]:
    """The entries of topic t in each checkpoint."""
    texts = {name: (folder / name).read_text() if (folder / name).exists() else "" for name in CONFIGS}
    return {name: "".join(line for line in text.splitlines() if line[0] == "t") for name, text in texts.items()}


async def prepare(broker: Broker) -> None:
    """A log with moved end, recovery point and start, whose old segments are deleted."""
    await broker.topic("t", configs={"segment.ms": "1"})
    log = broker.log("t")
    for number in range(3):
        log.append(records(b"v", timestamp=T0 + 2 * number), now_ms=T0)
    log.flush()
    log.delete_records_before(2)
    removed = log.retain(T0)
    assert removed is not None and log.first_segment_offset == 2
    await broker.state.durability.idle()


@pytest.mark.parametrize("written", CONFIGS)
@pytest.mark.parametrize("interval_ms", [1000, None])
async def test_each_checkpoint_has_its_interval(written: str, interval_ms: int | None, tmp_path: Path) -> None:
    """The others are never written here: their interval is 0."""
    overrides = {config: "0" for name, config in CONFIGS.items() if name != written}
    if interval_ms is not None:
        overrides[CONFIGS[written]] = str(interval_ms)
    async with running(tmp_path, overrides=overrides) as broker:
        await prepare(broker)
        before = found(tmp_path)
        assert before == {POINTS: "", STARTS: "t 0 2", WATERMARKS: ""}
        broker.clock.advance((interval_ms or DEFAULT_MS[written]) - 1)
        await broker.state.durability.idle()
        assert found(tmp_path) == before
        broker.clock.advance(1)
        await broker.state.durability.idle()
        assert found(tmp_path) == {**before, written: WRITTEN[written]}
        at = (tmp_path / written).stat().st_mtime_ns
        broker.clock.advance(10 * DEFAULT_MS[written])
        await broker.state.durability.idle()
        assert (tmp_path / written).stat().st_mtime_ns == at  # nothing has changed
    assert found(tmp_path) == WRITTEN


async def test_slow_checkpoint_delays_no_request(tmp_path: Path) -> None:
    """The next write starts after this one has ended. A new topic waits: it must not inherit an old one's entry."""
    files = FailingFiles()
    may_end, syncs = threading.Event(), []

    def held(operation: str, path: str) -> int:
        if operation == "sync" and WATERMARKS in path:
            syncs.append(path)
            assert may_end.wait(PATIENCE_S)
        return 0

    async with running(tmp_path, files=files) as broker:
        await broker.topic("t")
        client = await broker.client()
        files.fails = held
        try:
            broker.clock.advance(5_000)
            for _ in range(3):
                assert only(await client.call(produce(records(b"v")), 9)).error_code == 0
                await broker.settle()
                broker.clock.advance(5_000)
            async with asyncio.timeout(PATIENCE_S):
                while not syncs:  # another thread gets to it
                    await asyncio.sleep(0.001)
            assert len(syncs) == 1
            stopping = begun(broker.state.durability.idle())
            await broker.settle()
            assert not stopping.done()
        finally:
            may_end.set()
        await stopping
        broker.clock.advance(5_000)
        await broker.state.durability.idle()
        assert len(syncs) == 2 and found(tmp_path)[WATERMARKS] == "t 0 3"


async def test_recreated_topic_inherits_no_checkpoint(tmp_path: Path) -> None:
    """Also if its predecessor's offsets are being written at that moment."""
    files = FailingFiles()
    async with running(tmp_path / "data", files=files) as broker:
        await broker.topic("t")
        for _ in range(3):
            broker.log("t").append(records(b"v"), now_ms=T0)
        broker.log("t").flush()
        is_begun, may_end = threading.Event(), threading.Event()

        def held(operation: str, path: str) -> int:
            if operation == "sync" and POINTS in path and not is_begun.is_set():
                is_begun.set()
                # The event loop waits for this, so another thread has to release it.
                threading.Timer(0.05, may_end.set).start()
                assert may_end.wait(PATIENCE_S)
            return 0

        files.fails = held
        broker.clock.advance(60_000)
        assert is_begun.wait(PATIENCE_S)
        broker.state.topics.delete(broker.state.topics.named("t"), broker.clock.now_ms())
        await broker.topic("t")
        assert found(tmp_path / "data") == {POINTS: "", STARTS: "", WATERMARKS: ""}
        await broker.state.durability.idle()
        assert found(tmp_path / "data")[POINTS] in ("", "t 0 0")


class StartsHeld:
    """The syncs of the checkpoint of log start offsets wait until they may end."""

    def __init__(self, files: FailingFiles) -> None:
        self.syncs = 0
        self.may_end = threading.Event()
        files.fails = self._step

    def _step(self, operation: str, path: str) -> int:
        if operation == "sync" and STARTS in path:
            self.syncs += 1
            assert self.may_end.wait(PATIENCE_S)
        return 0


async def filled(broker: Broker, partitions: int, **configs: str) -> None:
    """A topic with three segments of one record in each partition."""
    given = {name.replace("_", "."): value for name, value in configs.items()}
    await broker.topic("t", partitions, {"segment.ms": "1", **given})
    for partition in range(partitions):
        for number in range(3):
            broker.log("t", partition).append(records(b"v", timestamp=T0 + 2 * number), now_ms=T0)
    await broker.state.durability.idle()


async def test_delete_records_writes_one_checkpoint_for_many_partitions(tmp_path: Path) -> None:
    """Other requests do not wait for it, and refused partitions do not wait for the others."""
    files = FailingFiles()
    async with running(tmp_path, files=files) as broker:
        await filled(broker, 5)
        held = StartsHeld(files)
        client = await broker.client()
        topic = DeleteRecordsRequest.DeleteRecordsTopic
        requested = [topic.DeleteRecordsPartition(partition_index=index, offset=2) for index in range(5)]
        requested += [topic.DeleteRecordsPartition(partition_index=index, offset=9) for index in (0, 7)]
        try:
            call = begun(
                client.call(DeleteRecordsRequest(topics=[topic(name="t", partitions=requested)], timeout_ms=1), 1)
            )
            await broker.settle()
            assert not call.done() and [broker.log("t", index).log_start_offset for index in range(5)] == [0] * 5
        finally:
            held.may_end.set()
        (responses,) = [found.partitions for found in (await call).topics]
        assert [(response.error_code, response.low_watermark) for response in responses] == [(0, 2)] * 5 + [
            (1, -1),
            (3, -1),
        ]
        assert held.syncs == 1
        assert (tmp_path / STARTS).read_text().splitlines()[2:] == [f"t {index} 2" for index in range(5)]


async def test_topic_deleted_while_its_log_start_is_written(tmp_path: Path) -> None:
    """The new topic of that name begins at 0."""
    files = FailingFiles()
    async with running(tmp_path, files=files) as broker:
        await filled(broker, 1)
        held = StartsHeld(files)
        client = await broker.client()
        topic = DeleteRecordsRequest.DeleteRecordsTopic
        requested = [topic.DeleteRecordsPartition(partition_index=0, offset=2)]
        call = begun(client.call(DeleteRecordsRequest(topics=[topic(name="t", partitions=requested)], timeout_ms=1), 1))
        try:
            await broker.settle()
            threading.Timer(0.05, held.may_end.set).start()  # the deletion waits for this write
            broker.state.topics.delete(broker.state.topics.named("t"), broker.clock.now_ms())
            await broker.topic("t")
        finally:
            held.may_end.set()
        assert only(await call).error_code == 3
        assert broker.log("t").log_start_offset == 0
        assert only(await client.call(produce(records(b"v")), 9)).base_offset == 0
    assert found(tmp_path)[STARTS] == ""
    async with running(tmp_path) as broker:
        assert (broker.log("t").log_start_offset, broker.log("t").log_end_offset) == (0, 1)


async def test_retention_writes_one_checkpoint_for_many_partitions(tmp_path: Path) -> None:
    files = FailingFiles()
    clock = ManualClock(T0)
    by_retention = {CONFIGS[STARTS]: "0"}  # the periodic write falls into the same step of the clock
    async with running(tmp_path, files=files, clock=clock, overrides=by_retention) as broker:
        await filled(broker, 5, retention_ms="1000")
        held = StartsHeld(files)
        try:
            clock.advance(300_000)
            await broker.settle()
            assert [broker.log("t", index).log_start_offset for index in range(5)] == [0] * 5
        finally:
            held.may_end.set()
        await broker.state.durability.idle()
        assert [broker.log("t", index).log_start_offset for index in range(5)] == [3] * 5
        assert held.syncs == 1
    async with running(tmp_path, clock=clock) as broker:
        assert [broker.log("t", index).log_start_offset for index in range(5)] == [3] * 5
