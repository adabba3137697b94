"""A start after a clean stop: what it reads, how long it takes, and its log lines if it takes long."""

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
from ottla_testing.broker.adopting import OWN, CountingFiles, begin, finish, topic_facts
from ottla_testing.broker.harness import Broker, fetch, only, produce, records, running, values


class TickingClock(ManualClock):
    """A clock that advances by `tick_ms` at each read."""

    tick_ms = 0

    def now_ms(self) -> int:
        self._now_ms += self.tick_ms
        return self._now_ms


async def fill(broker: Broker) -> None:
    """Topics of several segments with all kinds of records."""
    client = await broker.client()
    configs = {"segment.ms": "2500", "index.interval.bytes": "100"}
    for topic in ("plain", "numbered", "empty"):
        await broker.topic(topic, 2, configs)
    for number in range(12):
        sent = records(b"x" * 90, b"y", timestamp=1_700_000_000_000 + 1000 * number)
        assert only(await client.call(produce(sent, "plain", number % 2), 9)).error_code == 0
        sent = records(b"z" * 90, producer_id=7, producer_epoch=0, base_sequence=number)
        assert only(await client.call(produce(sent, "numbered"), 9)).error_code == 0


async def test_clean_start_reads_no_segment(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        await fill(broker)
        wanted = topic_facts(broker.state)
    files = CountingFiles()
    state = begin(files, str(tmp_path))
    assert topic_facts(state) == wanted and wanted["plain"][2][0][1] == 12
    assert files.of_segments(files.read) == files.of_segments(files.opened) == {}
    finish(state)
    assert files.of_segments(files.read) == {}  # neither does a stop without changes
    assert (tmp_path / ".kafka_cleanshutdown").exists()
    # The count works: after a kill everything above the recovery point is read.
    (tmp_path / ".kafka_cleanshutdown").unlink()
    (tmp_path / "recovery-point-offset-checkpoint").unlink()
    files = CountingFiles()
    state = begin(files, str(tmp_path))
    assert topic_facts(state) == wanted
    sizes = {str(path): path.stat().st_size for path in tmp_path.glob("*/*.log") if path.stat().st_size}
    assert {path: count for path, count in files.of_segments(files.read).items() if path.endswith(".log")} == {
        path: size for path, size in sizes.items() if not any(own in path for own in OWN)
    }
    finish(state)


async def test_clean_start_serves_all_records(tmp_path: Path) -> None:
    """Appends and fetches work as if the log had been read: offsets, duplicates, indexes."""
    async with running(tmp_path) as broker:
        await fill(broker)
    for round in range(2):
        async with running(tmp_path) as broker:
            client = await broker.client()
            copy = records(b"z" * 90, producer_id=7, producer_epoch=0, base_sequence=11)
            assert only(await client.call(produce(copy, "numbered"), 9)).base_offset == 11
            response = only(await client.call(produce(records(b"new"), "plain"), 9))
            assert (response.error_code, response.base_offset) == (0, 12 + round)
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
    """The start compares the sizes with those at the close, and reports lost records."""
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
    logged = [
        (event["log_level"], event["event"], event.get("lost_offsets")) for event in events if "partition" in event
    ]
    gone = ("error", "records at the end of a log are gone", "1..1")
    wanted = {"torn": [("warning", "a torn tail was cut", None)], "longer": []}
    assert logged == wanted.get(change, [gone])


@pytest.mark.parametrize("change", ["cut", "torn", "longer", "shorter by a batch"])
async def test_log_changed_after_a_close_by_another_program_is_recovered(tmp_path: Path, change: str) -> None:
    """Its end is compared when it is first used: then it refuses appends and reads, and the next start recovers it."""
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
        refused = {"cut": 2, "torn": 2}.get(change, 56)  # a batch whose header is not whole is damaged
        assert only(await client.call(fetch(("t", 0, 0)), 11)).error_code == refused
        with pytest.raises(Exception, match="does not end where it was closed"):
            await broker.stop()
    assert not (tmp_path / ".kafka_cleanshutdown").exists()
    async with running(tmp_path) as broker:
        client = await broker.client()
        assert only(await client.call(produce(records(b"c")), 9)).error_code == 0
        found = values(only(await client.call(fetch(("t", 0, 0)), 11)).records)
        assert found == {"torn": [b"a", b"b", b"c"], "longer": [b"a", b"b", b"b", b"c"]}.get(change, [b"a", b"c"])


# Log lines of a start


def test_quick_start_logs_no_progress() -> None:
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


def test_long_start_logs_each_second_after_two() -> None:
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


async def test_long_recovery_logs_its_progress(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
    progress = [event for event in events if event["event"] == "opening partitions"]
    assert len(progress) > 2 and all(event["of"] == 6 for event in progress)
    checked = [event["checked_bytes"] for event in progress]
    assert checked == sorted(checked) and 0 < checked[0] < sum(sizes)
    assert any("recovering" in event for event in progress)
    (total,) = (event for event in events if event["event"] == "opened all partitions")
    assert (total["opened"], total["checked_bytes"]) == (6, sum(sizes))
