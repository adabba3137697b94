"""Reports of lost records at a start: one line for each loss, with the topic, the partition and the offsets."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from ottla.broker.logs import get_logger
from ottla.protocol.records import formats
from ottla.storage.errors import StorageError
from ottla.storage.format import checkpoint
from ottla_testing.broker.adopting import begin, finish
from ottla_testing.broker.harness import Broker, fetch, only, produce, records, running, values
from ottla_testing.storage.failing_files import FailingFiles

Event = Mapping[str, Any]
Damage = Callable[[Path], None]


async def fill(folder: Path, *, closed: bool = True) -> None:
    """Six batches of two records in three segments of t-0, one record in t-1; closed, or as a kill leaves it."""
    async with running(folder) as broker:
        client = await broker.client()
        await broker.topic("t", 2, {"segment.ms": "2500"})
        for number in range(6):
            sent = records(b"a%d" % number, b"b%d" % number, timestamp=1_700_000_000_000 + 1500 * number)
            assert only(await client.call(produce(sent, "t"), 9)).error_code == 0
        assert only(await client.call(produce(records(b"c"), "t", 1), 9)).error_code == 0
        assert broker.log("t").segment_bases()[-1][0] == 8
        if not closed:
            broker.state.logs.directories[0].write_checkpoints(checkpoint.REPLICATION_OFFSET)
            broker.state.logs.release()


async def started(folder: Path, check: Callable[[Broker], Any] | None = None) -> list[Event]:
    """The lines of a start about partitions. `check` inspects the broker; it is closed afterwards."""
    get_logger()
    with capture_logs() as events:
        async with running(folder) as broker:
            if check is not None:
                await check(broker)
    return [event for event in list[Event](events) if event["log_level"] in ("error", "warning")]


async def read(broker: Broker, index: int = 0) -> list[bytes]:
    client = await broker.client()
    found: list[Any] = []
    log = broker.log("t", index)
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        data = bytes(only(await client.call(fetch(("t", index, offset)), 11)).records)
        assert data
        found += [record.value for record in formats.records(data)]
        offset = max(header.next_offset for _, header in formats.headers(data))
        found += [value for value in values(data) if value not in found]
    return found


def segments(folder: Path) -> list[Path]:
    return sorted((folder / "t-0").glob("*.log"))


def empty_newest(folder: Path) -> None:
    segments(folder)[-1].write_bytes(b"")


def remove_newest(folder: Path) -> None:
    for path in (folder / "t-0").glob(f"{8:020}.*"):
        path.unlink()


def remove_middle(folder: Path) -> None:
    for path in (folder / "t-0").glob(f"{4:020}.*"):
        path.unlink()


def remove_oldest(folder: Path) -> None:
    for path in (folder / "t-0").glob(f"{0:020}.*"):
        path.unlink()


def remove_folder(folder: Path) -> None:
    shutil.rmtree(folder / "t-0")


CLOSED: dict[Damage, tuple[str, str, tuple[int, int]]] = {
    empty_newest: ("records at the end of a log are gone", "8..11", (0, 8)),
    remove_newest: ("records at the end of a log are gone", "8..11", (0, 8)),
    remove_middle: ("records in the middle of a log are gone", "4..7", (0, 12)),
    remove_oldest: ("records at the start of a log are gone", "0..3", (4, 12)),
    remove_folder: ("the folder of a partition is gone: the partition begins empty", "0..11", (0, 0)),
}


@pytest.mark.parametrize("damage", CLOSED, ids=lambda damage: damage.__name__)
async def test_start_after_a_clean_close_reports_lost_records_once(tmp_path: Path, damage: Damage) -> None:
    event, lost, bounds = CLOSED[damage]
    await fill(tmp_path)
    damage(tmp_path)

    async def check(broker: Broker) -> None:
        log = broker.log("t")
        assert (log.log_start_offset, log.log_end_offset) == bounds
        kept = [value for n in range(6) for value in (b"a%d" % n, b"b%d" % n)]
        first, end = (int(bound) for bound in lost.split(".."))
        assert [value for value in await read(broker) if value is not None] == kept[:first] + kept[end + 1 :]
        assert await read(broker, 1) == [b"c"]
        broker.state.logs.release()  # a kill right after it

    logged = await started(tmp_path, check)
    (line,) = [one for one in logged if "lost_offsets" in one]
    assert (line["log_level"], line["event"], line["lost_offsets"]) == ("error", event, lost)
    assert (line["topic"], line["partition"], line["log_dir"]) == ("t", 0, str(tmp_path))
    assert ("advice" in line) == (bounds[1] < 12)
    assert [one for one in await started(tmp_path) if "partition" in one] == []


async def test_start_after_a_kill_with_a_flipped_bit_counts_later_records(tmp_path: Path) -> None:
    await fill(tmp_path, closed=False)
    path = segments(tmp_path)[0]
    data = bytearray(path.read_bytes())
    second = [position for position, _ in formats.headers(bytes(data))][1]
    data[second + 70] ^= 4
    path.write_bytes(data)
    size = sum(path.stat().st_size for path in segments(tmp_path))
    logged = await started(tmp_path)
    (line,) = [one for one in logged if "partition" in one]
    assert line["event"] == "corruption in the middle of a log: everything after it was dropped"
    assert line["log_level"] == "error" and line["lost_offsets"] == "2..11"
    assert (line["batches"], line["records"], line["bytes"]) == (4, 8, size - second)
    assert (line["log_start_offset"], line["log_end_offset"]) == (0, 2) and "assigned again" in line["advice"]


async def test_start_after_a_kill_in_a_write_reports_a_torn_tail(tmp_path: Path) -> None:
    await fill(tmp_path, closed=False)
    with segments(tmp_path)[-1].open("ab") as log:
        log.write(bytes(records(b"torn"))[:-3])
    (line,) = [one for one in await started(tmp_path) if "partition" in one]
    assert (line["log_level"], line["event"], line["log_end_offset"]) == ("warning", "a torn tail was cut", 12)
    assert line["batches"] == line["records"] == 0 and "lost_offsets" not in line


async def test_start_after_a_kill_with_a_short_file_names_the_noted_end(tmp_path: Path) -> None:
    """Nothing is torn, yet acknowledged records are missing: the high watermark was checkpointed."""
    await fill(tmp_path, closed=False)
    path = segments(tmp_path)[-1]
    data = path.read_bytes()
    path.write_bytes(data[: [position for position, _ in formats.headers(data)][-1]])
    (line,) = [one for one in await started(tmp_path) if "partition" in one]
    assert (line["event"], line["lost_offsets"]) == ("records at the end of a log are gone", "10..11")


@pytest.mark.parametrize("closed", [True, False])
async def test_log_start_above_the_end_is_reported_and_keeps_closed_logs(tmp_path: Path, closed: bool) -> None:
    await fill(tmp_path, closed=closed)
    (tmp_path / "log-start-offset-checkpoint").write_text("0\n1\nt 0 40\n")
    found: list[bytes] = []

    async def check(broker: Broker) -> None:
        found.extend(await read(broker))
        assert (broker.log("t").log_start_offset, broker.log("t").log_end_offset) == ((0, 12) if closed else (40, 40))

    lines = [one for one in await started(tmp_path, check) if "partition" in one]
    if closed:
        assert lines == [] and len(found) == 12
    else:
        (line,) = lines
        assert line["event"] == "the log start lies above the end of the log: the log was emptied"
        assert (line["lost_offsets"], line["records"], line["log_start_offset"]) == ("0..39", 12, 40)


async def test_folder_with_another_topic_id_is_put_aside_with_its_partition_and_end(tmp_path: Path) -> None:
    await fill(tmp_path)
    path = tmp_path / "t-0" / "partition.metadata"
    path.write_text("version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw")
    (line,) = [one for one in await started(tmp_path) if "partition" in one]
    assert line["event"] == "folder of an unknown partition put aside"
    assert (line["topic"], line["partition"], line["log_end_offset"]) == ("t", 0, 12)
    assert "-stray" in line["folder"]


# The metadata log, which names all partitions


def metadata_log(folder: Path) -> Path:
    return sorted((folder / "__cluster_metadata-0").glob("*.log"))[-1]


async def test_start_without_the_end_of_the_metadata_log_is_refused_until_it_is_moved_away(tmp_path: Path) -> None:
    await fill(tmp_path)
    path = metadata_log(tmp_path)
    path.write_bytes(b"")
    for _ in range(2):  # a supervisor starts the broker again
        with pytest.raises(StorageError, match="has lost records from offset 1 on; its log end offset was 5") as raised:
            begin(FailingFiles(), str(tmp_path))
        assert "\n" not in str(raised.value) and "ottla repair" in str(raised.value)
        assert (tmp_path / "t-0").is_dir() and not list(tmp_path.glob("*-stray"))
    (tmp_path / "__cluster_metadata-0").rename(tmp_path / "kept")  # the topics are those of the folders then

    async def check(broker: Broker) -> None:
        assert len(await read(broker)) == 12 and await read(broker, 1) == [b"c"]

    assert not [one for one in await started(tmp_path, check) if "lost_offsets" in one]


async def test_start_with_a_damaged_metadata_log_is_refused_and_truncates_nothing(tmp_path: Path) -> None:
    await fill(tmp_path, closed=False)
    path = metadata_log(tmp_path)
    data = bytearray(path.read_bytes())
    data[70] ^= 1
    path.write_bytes(data)
    for _ in range(2):
        with pytest.raises(StorageError, match="__cluster_metadata-0 has lost records"):
            begin(FailingFiles(), str(tmp_path))
        assert path.read_bytes() == data and (tmp_path / "t-0").is_dir()


# A full disk


async def test_start_on_a_full_disk_after_a_kill_fails_with_one_line(tmp_path: Path) -> None:
    await fill(tmp_path, closed=False)
    with segments(tmp_path)[-1].open("ab") as log:
        log.write(b"torn")
    before = {path for path in tmp_path.rglob("*") if path.is_file()}
    files = FailingFiles()
    files.break_down(tmp_path, errno.ENOSPC, {"write", "create"})
    with pytest.raises(StorageError) as raised:
        begin(files, str(tmp_path))
    assert "\n" not in str(raised.value) and "No space left" in str(raised.value)
    assert {path for path in tmp_path.rglob("*") if path.is_file()} - before == set()
    files.repair()
    state = begin(files, str(tmp_path))
    assert [p.log.log_end_offset for p in state.topics.named("t").partitions] == [12, 1]
    finish(state)
