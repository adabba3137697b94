"""What waits to be written when a recording's broker is busy: how much, how long, what becomes of what is too much, and
of a disk that has no room for it."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import struct
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from harness import Broker, fetch, ping
from test_recording import FORMATS, Sink, calls, memory, settled, spooled, writer

from ottla.broker.config.record_options import RecordOptions
from ottla.broker.recording import recorder as recorder_module
from ottla.broker.recording.exchange import Ending
from ottla.broker.recording.files import read_recording
from ottla.broker.recording.recorder import SPOOL_BYTES
from ottla.broker.recording.spool import LENGTH, SpoolWriter


def waiting_of(broker: Broker) -> int:
    state = broker.running.recorder.state
    assert state is not None
    return state.waiting_bytes


@pytest.mark.parametrize("size", [10, 100_000])
async def test_a_disk_that_has_no_room_for_what_waits(
    size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "spool.jsonl"

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    async with memory() as broker:
        await broker.topic("t")
        recorder = broker.running.recorder
        recorder.start(broker.running, RecordOptions(str(path)))
        await calls(broker, 2, size)
        await settled(lambda: len(read_recording(path).exchanges) == 2)
        with monkeypatch.context() as patched:
            patched.setattr(SpoolWriter, "put", full)
            await calls(broker, 2, size)
            await settled(lambda: not recorder.is_running)
        assert recorder.state is not None and recorder.state.ended == "No space left on device"
        await settled(lambda: waiting_of(broker) == 0)
        await calls(broker, 2, size)
        await recorder.stop()
        recorder.start(broker.running, RecordOptions(str(tmp_path / "again.jsonl")))
        await calls(broker, 1, size)
    found = read_recording(path)
    assert not found.damage and len(found.exchanges) == 2
    assert len(read_recording(tmp_path / "again.jsonl").exchanges) == 1


async def test_a_busy_broker_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What comes in without a pause waits, until there is so much of it, it is so old, or the file must be full."""
    monkeypatch.setattr(recorder_module, "QUIET_BYTES", -1)
    monkeypatch.setattr(recorder_module, "TELL_BYTES", 500_000)
    async with memory() as broker:
        await broker.topic("t")
        recorder = broker.running.recorder
        recorder.start(broker.running, RecordOptions(str(tmp_path / "x.jsonl")))
        await calls(broker, 3, 100_000)
        await asyncio.sleep(3 * recorder_module.GATHER_S)
        assert waiting_of(broker) > 300_000
        await calls(broker, 3, 100_000)
        await settled(lambda: waiting_of(broker) < 300_000)
        with monkeypatch.context() as patched:
            patched.setattr(recorder_module, "TELL_S", 0.0)
            await settled(lambda: waiting_of(broker) == 0)
        await recorder.stop()
        recorder.start(broker.running, RecordOptions(str(tmp_path / "y.jsonl"), max_bytes=200_000))
        await calls(broker, 3, 100_000)
        await settled(lambda: not recorder.is_running)
        assert recorder.state is not None and recorder.state.ended == "it has reached its size"
    assert len(read_recording(tmp_path / "x.jsonl").exchanges) == 6


class Told:
    """How far the writer was told to read."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.positions: list[int] = []
        monkeypatch.setattr(recorder_module, "_POSITION", self)

    def pack(self, position: int) -> bytes:
        self.positions.append(position)
        return struct.pack("=Q", position)


@pytest.mark.parametrize("has_pause", [False, True])
async def test_what_waits_is_written_by_and_by(
    has_pause: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seconds of work at once would slow a broker that has no pause, or whose pause ends. The writer stands still
    first, so that it is seen of how much it is told."""
    monkeypatch.setattr(recorder_module, "QUIET_BYTES", -1)
    monkeypatch.setattr(recorder_module, "LITTLE_BYTES", 125_000)
    monkeypatch.setattr(recorder_module, "PORTION_BYTES", 250_000)
    told = Told(monkeypatch)
    async with memory() as broker:
        await broker.topic("t")
        recorder = broker.running.recorder
        recorder.start(broker.running, RecordOptions(str(tmp_path / "x.jsonl")))
        child = await writer()
        os.kill(child, signal.SIGSTOP)
        await calls(broker, 12, 100_000)
        with monkeypatch.context() as patched:
            if has_pause:
                patched.setattr(recorder_module, "QUIET_BYTES", 0)
            else:
                patched.setattr(recorder_module, "TELL_S", 0.0)
                patched.setattr(recorder_module, "OLD_BYTES", 250_000)
            await settled(lambda: bool(told.positions))
            await asyncio.sleep(3 * recorder_module.GATHER_S)
            assert told.positions == [250_000] and waiting_of(broker) > 1_200_000
            os.kill(child, signal.SIGCONT)
            await settled(lambda: waiting_of(broker) == 0)
        steps = [after - before for before, after in pairwise(told.positions)]
        assert len(steps) > 2 and max(steps) < 250_000 + 2 * 101_000  # it reads what begins before that
    assert len(read_recording(tmp_path / "x.jsonl").exchanges) == 12


async def test_stopping_waits_as_long_as_something_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A writer that reads nothing for so long is given up. This one stands still, but seems to read, for five looks."""
    monkeypatch.setattr(recorder_module, "STOP_S", 0.05)
    looks = 0

    def less_and_less(_: SpoolWriter) -> int:
        nonlocal looks
        looks += 1
        if looks == 5:
            os.kill(child, signal.SIGCONT)
        return 1_000_000 - looks

    path = tmp_path / "slow.jsonl"
    async with memory() as broker:
        await broker.topic("t")
        recorder = broker.running.recorder
        recorder.start(broker.running, RecordOptions(str(path)))
        child = await writer()
        os.kill(child, signal.SIGSTOP)
        await calls(broker, 3, 1000)
        with monkeypatch.context() as patched:
            patched.setattr(SpoolWriter, "waiting_bytes", property(less_and_less))
            patched.setattr(SpoolWriter, "free_bytes", SPOOL_BYTES)
            await recorder.stop()
        assert looks >= 5 and recorder.state is not None and recorder.state.ended == "stopped"
        recorder.start(broker.running, RecordOptions(str(tmp_path / "stuck.jsonl")))
        child = await writer()
        await calls(broker, 3, 1000)
        os.kill(child, signal.SIGSTOP)
        await recorder.stop()  # and does not wait for ever
    assert len(read_recording(path).exchanges) == 3


async def test_what_comes_too_fast_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The writer stands still, so that nothing is read."""
    path = tmp_path / "slow.jsonl"
    monkeypatch.setattr(recorder_module, "SPOOL_BYTES", 200_000)
    async with memory() as broker:
        await broker.topic("t")
        recorder = broker.running.recorder
        recorder.start(broker.running, RecordOptions(str(path)))
        child = await writer()
        os.kill(child, signal.SIGSTOP)
        await calls(broker, 40, 100_000)
        os.kill(child, signal.SIGCONT)
        dropped = recorder.state.dropped if recorder.state else 0
        assert 10 < dropped < 40
        await asyncio.sleep(0)
    found = read_recording(path)
    assert not found.damage
    assert found.dropped == dropped and len(found.exchanges) == 40 - dropped


@pytest.mark.slow
async def test_clients_that_come_and_go_while_nothing_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory stays bounded; what had begun has its end, those of whom there was no room to tell are counted."""
    path = tmp_path / "crowd.jsonl"
    monkeypatch.setattr(recorder_module, "SPOOL_BYTES", 50_000)
    async with memory() as broker:
        recorder = broker.running.recorder
        await broker.topic("t")
        recorder.start(broker.running, RecordOptions(str(path)))
        child = await writer()
        waits = await broker.client()
        await waits.send(fetch(("t", 0, 0), max_wait_ms=600_000), 11)
        await settled(lambda: waiting_of(broker) == 0)
        os.kill(child, signal.SIGSTOP)
        for _ in range(300):
            client = await broker.client()
            await client.call(ping(), 0)
            client.close()
        state = recorder.state
        assert state is not None and recorder.is_running and state.waiting_bytes < 50_000 and 100 < state.dropped < 300
        waits.close()  # its wait ends without a response
        await settled(lambda: not broker.running.connections.open)
        os.kill(child, signal.SIGCONT)
        await settled(lambda: waiting_of(broker) == 0)
        dropped = recorder.state.dropped if recorder.state else 0
        await calls(broker, 2, 10)
    found = read_recording(path)
    assert not found.damage and found.dropped == dropped
    assert len(found.exchanges) == 1 + 300 + 2 - dropped
    assert [one.ending for one in found.exchanges if one.api_key == 1] == [Ending.CLOSED]
    assert [one.ending for one in found.exchanges if one.api_key == 0] == [Ending.ANSWERED] * 2


@pytest.mark.parametrize("kind", FORMATS)
async def test_a_small_spool_is_gone_around_often(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / f"round.{kind}"
    monkeypatch.setattr(recorder_module, "SPOOL_BYTES", 100_003)
    monkeypatch.setattr(recorder_module, "TELL_BYTES", 20_000)
    sink = Sink()
    async with memory() as broker:
        await broker.topic("t")
        recorder = broker.running.recorder
        recorder.start(broker.running, RecordOptions(str(path)))
        broker.running.connections.listen(sink)
        for size in (10, 3000, 17_000, 40_000, 70_000, 1, 16_000) * 8:
            await calls(broker, 1, size)
            await settled(lambda: waiting_of(broker) < 10_000)
        assert recorder.state is not None and recorder.state.dropped == 0
    found = read_recording(path)
    assert not found.damage
    assert [one.request for one in found.exchanges] == [one.request for one in sink.exchanges]
    assert [one.response for one in found.exchanges] == [one.response for one in sink.exchanges]


async def test_notes_are_put_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even where a note's head is what makes all that has gathered enough."""
    monkeypatch.setattr(recorder_module, "GATHER_BYTES", 1)
    put = spooled(monkeypatch)
    async with memory() as broker:
        await broker.topic("t")
        broker.running.recorder.start(broker.running, RecordOptions(str(tmp_path / "x.jsonl")))
        for size in (10, 20_000, 10, 100_000):
            await calls(broker, 1, size)
    assert sum(len(one) > 20_000 for one in put) == 2
    for one in put:
        at = 0
        while at < len(one):
            at += LENGTH.size + LENGTH.unpack_from(one, at)[0]
        assert at == len(one)
