"""Events that wait to be written or decoded while the broker is busy: their bounds, dropped events, and full, slow or
hanging disks."""

from __future__ import annotations

import errno
import json
import os
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from ottla.broker.config.record_options import LEAST_BYTES, RecordError, RecordOptions
from ottla.broker.recording import files as files_module
from ottla.broker.recording import raw
from ottla.broker.recording import recorder as recorder_module
from ottla.broker.recording.exchange import Ending
from ottla.broker.recording.files import claim, read_recording
from ottla.broker.recording.raw import RawFiles
from ottla_testing.broker.harness import Broker, fetch, ping, produce, records
from ottla_testing.broker.recorders import FORMATS, SECRET, Sink, calls, facts, memory, settled


def waiting_of(broker: Broker) -> int:
    state = broker.running.recorder.state
    assert state is not None
    return state.waiting_bytes


async def written(broker: Broker) -> None:
    """Waits until all events that were queued are in raw files."""
    recording = broker.running.recorder._last
    assert recording is not None
    await settled(lambda: recording._writer.queued_bytes == 0)


@pytest.fixture
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """Defers all decoding to the end of the recording."""
    monkeypatch.setattr(recorder_module, "QUIET_BYTES", -1)
    monkeypatch.setattr(recorder_module, "WRITE_S", 0.0)


class Disk:
    """A disk of raw files that hangs until it is released."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.moves = threading.Event()
        self.moves.set()
        write = RawFiles.write

        def wait_and_write(files: RawFiles, data: bytes) -> None:
            self.moves.wait()
            write(files, data)

        monkeypatch.setattr(RawFiles, "write", wait_and_write)


@pytest.mark.parametrize("size", [10, 100_000])
async def test_raw_file_on_full_disk_ends_the_recording(
    size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "full.jsonl"

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    async with memory() as broker:
        await broker.topic("t")
        recorder = broker.running.recorder
        recorder.start(broker.running, RecordOptions(str(path)))
        await calls(broker, 2, size)
        await settled(lambda: len(read_recording(path).exchanges) == 2)
        with monkeypatch.context() as patched:
            patched.setattr(RawFiles, "write", full)
            await calls(broker, 2, size)
            await settled(lambda: not recorder.is_running)
        assert recorder.state is not None and recorder.state.ended == "No space left on device"
        assert waiting_of(broker) == 0
        await calls(broker, 2, size)
        await recorder.stop()
        recorder.start(broker.running, RecordOptions(str(tmp_path / "again.jsonl")))
        await calls(broker, 1, size)
    found = read_recording(path)
    assert not found.damage and len(found.exchanges) == 2
    assert len(read_recording(tmp_path / "again.jsonl").exchanges) == 1
    assert not list(tmp_path.glob("*.raw"))


@pytest.mark.usefixtures("no_pause")
async def test_recording_of_a_busy_broker_is_decoded_at_its_end(tmp_path: Path) -> None:
    path, small = tmp_path / "x.jsonl", tmp_path / "small.jsonl"
    async with memory() as broker:
        await broker.topic("t")
        recorder = broker.running.recorder
        recorder.start(broker.running, RecordOptions(str(path)))
        await calls(broker, 6, 100_000)
        await written(broker)
        assert waiting_of(broker) > 600_000 and not read_recording(path).exchanges
        await recorder.stop()
        assert waiting_of(broker) == 0 and len(read_recording(path).exchanges) == 6
        recorder.start(broker.running, RecordOptions(str(small), max_bytes=200_000))
        await calls(broker, 3, 100_000)
        await settled(lambda: not recorder.is_running)
        assert recorder.state is not None and recorder.state.ended == "it has reached its size"
    assert small.stat().st_size <= 200_000


async def test_decoding_uses_pauses_in_portions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Decoding stops when clients are active again, and resumes in the next pause."""
    monkeypatch.setattr(recorder_module, "QUIET_BYTES", -1)
    portions: list[int] = []
    convert = recorder_module._Writer._convert

    def noted(self: Any, deadline: float | None) -> bool:
        before = self._raw.converted_bytes
        more = convert(self, 0.0 if deadline is not None else None)  # the pause is over after one event
        portions.append(self._raw.converted_bytes - before)
        return more

    monkeypatch.setattr(recorder_module._Writer, "_convert", noted)
    async with memory() as broker:
        await broker.topic("t")
        broker.running.recorder.start(broker.running, RecordOptions(str(tmp_path / "x.jsonl")))
        await calls(broker, 5, 100_000)
        monkeypatch.setattr(recorder_module, "QUIET_BYTES", 1 << 20)
        await settled(lambda: waiting_of(broker) == 0)
    assert len(portions) > 10 and max(portions) < 101_000


async def test_exchanges_beyond_the_queue_are_dropped_and_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "slow.jsonl"
    monkeypatch.setattr(recorder_module, "QUEUE_BYTES", 200_000)
    disk = Disk(monkeypatch)
    async with memory() as broker:
        await broker.topic("t")
        recorder = broker.running.recorder
        recorder.start(broker.running, RecordOptions(str(path)))
        await settled(lambda: waiting_of(broker) == 0)
        disk.moves.clear()
        await calls(broker, 40, 100_000)
        dropped = recorder.state.dropped if recorder.state else 0
        assert 30 < dropped < 40
        disk.moves.set()
        await settled(lambda: waiting_of(broker) == 0)
        await calls(broker, 1, 10)
        with capture_logs() as events:
            await recorder.stop()
    found = read_recording(path)
    assert not found.damage
    assert found.dropped == dropped and len(found.exchanges) == 41 - dropped
    assert [event["dropped"] for event in events if event["event"] == "recording lacks exchanges"] == [dropped]


@pytest.mark.slow
async def test_short_connections_on_a_slow_disk_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory stays bounded; each recorded request has its end."""
    path = tmp_path / "crowd.jsonl"
    monkeypatch.setattr(recorder_module, "QUEUE_BYTES", 50_000)
    disk = Disk(monkeypatch)
    async with memory() as broker:
        recorder = broker.running.recorder
        await broker.topic("t")
        recorder.start(broker.running, RecordOptions(str(path)))
        waits = await broker.client()
        await waits.send(fetch(("t", 0, 0), max_wait_ms=600_000), 11)
        await settled(lambda: waiting_of(broker) == 0)
        disk.moves.clear()
        for _ in range(300):
            client = await broker.client()
            await client.call(ping(), 0)
            client.close()
        state = recorder.state
        assert state is not None and recorder.is_running and state.waiting_bytes < 60_000 and 100 < state.dropped < 300
        waits.close()  # its wait ends without a response
        await settled(lambda: not broker.running.connections.open)
        disk.moves.set()
        await settled(lambda: waiting_of(broker) == 0)
        dropped = recorder.state.dropped if recorder.state else 0
        await calls(broker, 2, 10)
    found = read_recording(path)
    assert not found.damage and found.dropped == dropped
    assert len(found.exchanges) == 1 + 300 + 2 - dropped
    assert [one.ending for one in found.exchanges if one.api_key == 1] == [Ending.CLOSED]
    assert [one.ending for one in found.exchanges if one.api_key == 0] == [Ending.RESPONDED] * 2


async def test_stop_gives_up_a_hanging_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder_module, "STOP_S", 0.1)
    disk = Disk(monkeypatch)
    async with memory() as broker:
        await broker.topic("t")
        recorder = broker.running.recorder
        recorder.start(broker.running, RecordOptions(str(tmp_path / "stuck.jsonl")))
        disk.moves.clear()
        await calls(broker, 3, 1000)
        await recorder.stop()
        assert recorder.state is not None and recorder.state.ended == "its writing took too long"
        disk.moves.set()


@pytest.mark.usefixtures("no_pause")
@pytest.mark.parametrize("contents", [True, False])
@pytest.mark.parametrize("kind", FORMATS)
async def test_ring_that_is_decoded_at_its_end_keeps_the_newest(kind: str, contents: bool, tmp_path: Path) -> None:
    """The raw files of a ring alternate, too; exchanges that they lose undecoded are counted."""
    path = tmp_path / f"ring.{kind}"
    async with memory() as broker:
        await broker.topic("t")
        options = RecordOptions(str(path), LEAST_BYTES, ring=True, contents=contents)
        broker.running.recorder.start(broker.running, options)
        client = await broker.client()
        for _ in range(40):
            await client.call(ping(), 0)
            await client.call(produce(records(os.urandom(3000))), 9)
            await written(broker)
        sizes = [one.stat().st_size for one in tmp_path.glob("*.raw*")]
        assert len(sizes) == 2 * contents and all(size < LEAST_BYTES // 2 + 4000 for size in sizes)
    found = read_recording(path)
    state = broker.running.recorder.state
    assert state is not None and state.dropped > 0
    if kind == "jsonl":
        assert json.loads(path.read_text().splitlines()[-1])["dropped_in_all"] == state.dropped
    numbers = [one.number for one in found.exchanges]
    assert numbers == list(range(numbers[0], numbers[-1] + 1)) and len(numbers) > 4 and not found.damage
    if kind == "pcapng" and contents:  # which is hardly larger than its raw form
        assert sum(one.stat().st_size for one in tmp_path.iterdir()) > LEAST_BYTES * 0.45
    assert not list(tmp_path.glob("*.raw*"))


@pytest.mark.usefixtures("no_pause")
@pytest.mark.parametrize("ring", [False, True])
@pytest.mark.parametrize("kind", FORMATS)
async def test_raw_files_of_a_killed_broker_are_finished_by_reading(kind: str, ring: bool, tmp_path: Path) -> None:
    folder = tmp_path / "killed"
    path = tmp_path / f"x.{kind}"
    sink = Sink()
    async with memory() as broker:
        await broker.topic("t")
        broker.running.connections.listen(sink)
        broker.running.recorder.start(broker.running, RecordOptions(str(path), 16 * LEAST_BYTES, ring=ring))
        await calls(broker, 20, 40_000 if ring and kind == "pcapng" else 5000)
        waits = await broker.client()
        await waits.send(fetch(("t", 0, 20), max_wait_ms=600_000), 11)
        await settled(lambda: len(sink.exchanges) == 21)
        await written(broker)
        shutil.copytree(tmp_path, folder)  # as stored on the disk
    with open(folder / f"x.{kind}.raw", "ab") as file:
        file.write(raw.event_head(raw.Closed(1, 2))[:-3])  # an event that is cut
    found = read_recording(folder / f"x.{kind}")
    assert not found.damage and not found.dropped
    assert [facts(one)[:8] for one in found.exchanges] == [facts(one)[:8] for one in sink.exchanges[:20]] + [
        (*facts(sink.exchanges[20])[:7], None)
    ]
    assert found.exchanges[-1].ending is Ending.PENDING
    assert not list(folder.glob("*.raw*"))
    assert read_recording(folder / f"x.{kind}").meta == found.meta


@pytest.mark.usefixtures("no_pause")
async def test_omitted_contents_are_in_no_named_file(tmp_path: Path) -> None:
    path = tmp_path / "bare.jsonl"
    async with memory() as broker:
        await broker.topic("t")
        broker.running.recorder.start(broker.running, RecordOptions(str(path), contents=False))
        await (await broker.client()).call(produce(records(SECRET * 30)), 9)
        await written(broker)
        assert [one.name for one in tmp_path.iterdir()] == ["bare.jsonl"]
        assert waiting_of(broker) > 0
    assert SECRET not in path.read_bytes() and len(read_recording(path).exchanges) == 1


def test_other_files_beside_a_recording_are_left(tmp_path: Path) -> None:
    """A file that has the name of the raw file, but is none."""
    path = tmp_path / "x.jsonl"
    path.write_text('{"type":"recording","format":1,"part":1,"nodes":[],"time_ms":1}\n')
    other = tmp_path / "x.jsonl.raw"
    for data in (b"\1", b"what I noted", raw.event_head(raw.Closed(1, 2)), raw.event_head(raw.Head(3, True, True, {}))):
        other.write_bytes(data)
        assert read_recording(path).exchanges == []
        with pytest.raises(
            RecordError,
            match=r"x\.jsonl\.raw exists and is not a recording: it is not overwritten; choose another name",
        ):
            claim(RecordOptions(str(path)))
        os.close(claim(RecordOptions(str(path), contents=False)))
        assert other.read_bytes() == data
    other.unlink()
    for make in (os.mkdir, os.mkfifo):  # opening a pipe would wait for its other end
        for name, is_ring in (("x.jsonl.raw", False), ("x.jsonl.1", True)):
            made = tmp_path / name
            make(made)
            with pytest.raises(RecordError, match=f"{name} exists and is not a recording"):
                claim(RecordOptions(str(path), ring=is_ring))
            (os.rmdir if make is os.mkdir else os.unlink)(made)


@pytest.mark.usefixtures("no_pause")
@pytest.mark.parametrize("damage", [bytes(100), b"\5\0\0\0\0\0\0\0\x01abcd", b"\2\0\0\0\0\0\0\0\x92{"])
async def test_damaged_raw_file_is_decoded_up_to_the_damage(damage: bytes, tmp_path: Path) -> None:
    folder = tmp_path / "killed"
    async with memory() as broker:
        await broker.topic("t")
        broker.running.recorder.start(broker.running, RecordOptions(str(tmp_path / "x.jsonl")))
        await calls(broker, 3, 100)
        await written(broker)
        shutil.copytree(tmp_path, folder)
    with open(folder / "x.jsonl.raw", "ab") as file:
        file.write(damage)
    assert len(read_recording(folder / "x.jsonl").exchanges) == 3
    assert "its raw file is damaged" in (folder / "x.jsonl").read_text()


@pytest.mark.usefixtures("no_pause")
async def test_undecodable_raw_file_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "killed"
    async with memory() as broker:
        broker.running.recorder.start(broker.running, RecordOptions(str(tmp_path / "x.jsonl")))
        await (await broker.client()).call(ping(), 0)
        await written(broker)
        shutil.copytree(tmp_path, folder)

    def denied(*_: Any) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    path = folder / "x.jsonl"
    with monkeypatch.context() as patched:
        patched.setattr(files_module, "finish", denied)
        found = read_recording(path)
    assert found.damage == [f"{path}.raw: cannot be decoded into {path}: Read-only file system"]
    assert len(read_recording(path).exchanges) == 1
