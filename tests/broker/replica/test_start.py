"""A start after a clean stop: what it reads, how long it takes, and what it says when it takes long."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from ottla.broker.clock import ManualClock
from ottla.broker.logs import get_logger
from ottla.broker.replica.start_progress import EACH_MS, QUIET_MS, Opening
from ottla.protocol.records import batch
from ottla.storage.log import recovery
from ottla_testing.broker.adopting import OWN, CountingFiles, begin, finish, told
from ottla_testing.broker.harness import Broker, fetch, only, produce, records, running, values


class TickingClock(ManualClock):
    """A clock by which each look at it takes as long as `tick_ms`."""

    tick_ms = 0

    def now_ms(self) -> int:
        self._now_ms += self.tick_ms
        return self._now_ms


async def fill(broker: Broker) -> None:
    """Topics of several segments with all that a log may hold."""
    client = await broker.client()
    configs = {"segment.ms": "2500", "index.interval.bytes": "100"}
    for topic in ("plain", "numbered", "empty"):
        await broker.topic(topic, 2, configs)
    for number in range(12):
        sent = records(b"x" * 90, b"y", timestamp=1_700_000_000_000 + 1000 * number)
        assert only(await client.call(produce(sent, "plain", number % 2), 9)).error_code == 0
        sent = records(b"z" * 90, producer_id=7, producer_epoch=0, base_sequence=number)
        assert only(await client.call(produce(sent, "numbered"), 9)).error_code == 0


async def test_a_clean_start_reads_no_segment(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        await fill(broker)
        wanted = told(broker.state)
    files = CountingFiles()
    state = begin(files, str(tmp_path))
    assert told(state) == wanted and wanted["plain"][2][0][1] == 12
    assert files.of_segments(files.read) == files.of_segments(files.opened) == {}
    finish(state)
    assert files.of_segments(files.read) == {}  # nor does a stop when nothing was done
    assert (tmp_path / ".kafka_cleanshutdown").exists()
    # The counting does count: after a kill everything behind the recovery point is read.
    (tmp_path / ".kafka_cleanshutdown").unlink()
    (tmp_path / "recovery-point-offset-checkpoint").unlink()
    files = CountingFiles()
    state = begin(files, str(tmp_path))
    assert told(state) == wanted
    sizes = {str(path): path.stat().st_size for path in tmp_path.glob("*/*.log") if path.stat().st_size}
    assert {path: count for path, count in files.of_segments(files.read).items() if path.endswith(".log")} == {
        path: size for path, size in sizes.items() if not any(own in path for own in OWN)
    }
    finish(state)


async def test_what_was_not_read_is_there(tmp_path: Path) -> None:
    """Appends and fetches go on as if the log had been read: offsets, duplicates, indexes."""
    async with running(tmp_path) as broker:
        await fill(broker)
    for round in range(2):
        async with running(tmp_path) as broker:
            client = await broker.client()
            copy = records(b"z" * 90, producer_id=7, producer_epoch=0, base_sequence=11)
            assert only(await client.call(produce(copy, "numbered"), 9)).base_offset == 11
            answer = only(await client.call(produce(records(b"new"), "plain"), 9))
            assert (answer.error_code, answer.base_offset) == (0, 12 + round)
            found: list[Any] = []
            while len(found) < 13 + round:
                found += values(only(await client.call(fetch(("plain", 0, len(found))), 11)).records)
            assert found[-1] == b"new" and found[:2] == [b"x" * 90, b"y"]


def changed_while_closed(path: Path, change: str) -> None:
    whole = path.read_bytes()
    half = len(whole) // 2
    more = bytearray(whole[half:])
    batch.assign(more, 0, base_offset=2, leader_epoch=0)
    changed = {"cut": whole[:-5], "torn": whole + whole[:9], "longer": whole + more, "shorter by a batch": whole[:half]}
    path.write_bytes(changed[change])


@pytest.mark.parametrize("change", ["cut", "torn", "longer", "shorter by a batch"])
async def test_log_that_was_changed_while_it_was_closed_is_recovered_by_the_start(tmp_path: Path, change: str) -> None:
    """The start compares the sizes with those of the close, and reports what is gone."""
    async with running(tmp_path) as broker:
        await broker.topic("t")
        client = await broker.client()
        for value in (b"a", b"b"):
            await client.call(produce(records(value)), 9)
    changed_while_closed(tmp_path / "t-0" / f"{0:020}.log", change)
    get_logger()
    with capture_logs() as events:
        async with running(tmp_path) as broker:
            client = await broker.client()
            assert only(await client.call(produce(records(b"c")), 9)).error_code == 0
            found = values(only(await client.call(fetch(("t", 0, 0)), 11)).records)
            assert found == {"torn": [b"a", b"b", b"c"], "longer": [b"a", b"b", b"b", b"c"]}.get(change, [b"a", b"c"])
    said = [(event["log_level"], event["event"], event.get("lost_offsets")) for event in events if "partition" in event]
    gone = ("error", "records at the end of a log are gone", "1..1")
    wanted = {"torn": [("warning", "a torn tail was cut", None)], "longer": []}
    assert said == wanted.get(change, [gone])


@pytest.mark.parametrize("change", ["cut", "torn", "longer", "shorter by a batch"])
async def test_a_log_that_was_changed_while_another_owner_had_closed_it(tmp_path: Path, change: str) -> None:
    """Its end is compared when it is first needed: then it takes and gives nothing, and the next start recovers it."""
    async with running(tmp_path) as broker:
        await broker.topic("t")
        client = await broker.client()
        for value in (b"a", b"b"):
            await client.call(produce(records(value)), 9)
    (tmp_path / ".ottla-closed").unlink()  # as Kafka leaves the directory
    changed_while_closed(tmp_path / "t-0" / f"{0:020}.log", change)
    async with running(tmp_path) as broker:
        client = await broker.client()
        for _ in range(2):
            assert only(await client.call(produce(records(b"c")), 9)).error_code == 56
        assert only(await client.call(fetch(("t", 0, 0)), 11)).error_code == 56
        with pytest.raises(Exception, match="does not end where it was closed"):
            await broker.stop()
    assert not (tmp_path / ".kafka_cleanshutdown").exists()
    async with running(tmp_path) as broker:
        client = await broker.client()
        assert only(await client.call(produce(records(b"c")), 9)).error_code == 0
        found = values(only(await client.call(fetch(("t", 0, 0)), 11)).records)
        assert found == {"torn": [b"a", b"b", b"c"], "longer": [b"a", b"b", b"b", b"c"]}.get(change, [b"a", b"c"])


# What is said meanwhile


def test_nothing_is_said_of_what_is_quick() -> None:
    clock = ManualClock()
    get_logger()
    with capture_logs() as events:
        opening = Opening(3, clock)
        for _ in range(3):
            clock.advance(QUIET_MS // 3)
            opening.watch("t", 0)(1 << 20)
            opening.done()
        opening.finish()
    assert events == []


def test_a_line_each_second_after_two() -> None:
    clock = ManualClock()
    get_logger()
    with capture_logs() as events:
        opening = Opening(3, clock)
        opening.done()
        on_checked = opening.watch("t", 7)
        for _ in range(45):
            clock.advance(100)
            on_checked(10)
        opening.done()
        opening.done()
        opening.finish()
    assert [(event["checked_bytes"], event["opened"]) for event in events] == [(200, 1), (300, 1), (400, 1), (450, 3)]
    assert events[0] == {
        "event": "opening partitions", "log_level": "info", "opened": 1, "of": 3, "checked_bytes": 200,
        "recovering": "t-7",
    }  # fmt: skip
    assert events[-1]["event"] == "opened all partitions" and events[-1]["milliseconds"] == 4500
    with capture_logs() as events:
        silent = Opening(3, clock, is_logged=False)
        clock.advance(10 * EACH_MS)
        silent.done()
        silent.finish()
    assert events == []


async def test_a_long_recovery_tells_how_far_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(tmp_path) as broker:
        await fill(broker)
    sizes = [path.stat().st_size for path in tmp_path.glob("*/*.log") if not any(own in str(path) for own in OWN)]
    clock = TickingClock()
    get_logger()
    with capture_logs() as events:
        async with running(tmp_path, clock=clock):
            pass
    assert [event for event in events if event["event"] == "opening partitions"] == []
    (tmp_path / ".kafka_cleanshutdown").unlink()
    (tmp_path / "recovery-point-offset-checkpoint").unlink()
    monkeypatch.setattr(recovery, "REPORT_BYTES", 400)
    clock.tick_ms = 250
    with capture_logs() as events:
        async with running(tmp_path, clock=clock):
            clock.tick_ms = 0
    told = [event for event in events if event["event"] == "opening partitions"]
    assert len(told) > 2 and all(event["of"] == 6 for event in told)
    checked = [event["checked_bytes"] for event in told]
    assert checked == sorted(checked) and 0 < checked[0] < sum(sizes)
    assert any("recovering" in event for event in told)
    (total,) = (event for event in events if event["event"] == "opened all partitions")
    assert (total["opened"], total["checked_bytes"]) == (6, sum(sizes))
