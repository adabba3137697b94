"""The response of each release to a numbered batch, over the wire: every cell of the tables, live and after restarts.

The rows are KIP-192's with the changes of later releases; the columns are the first, the last and all changed releases.
"copy" is a success without an append, with the offset of the first one and its largest timestamp.
"""

from __future__ import annotations

import struct
from pathlib import Path

from ottla.protocol.messages.records.delete_records import DeleteRecordsRequest
from ottla.protocol.records import batch
from ottla.protocol.records.batch import Record
from ottla_testing.broker.harness import only
from ottla_testing.broker.idempotence import (
    MAX,
    T0,
    Sent,
    Writer,
    batch_time,
    numbered,
    produce_versions,
    restarted,
    writing,
)
from ottla_testing.broker.stored_logs import put_log
from ottla_testing.each import each

COLUMNS = ("0.11", "1.0.1", "1.0", "2.0.0", "2.0", "2.4", "2.5", "2.6", "2.7", "2.8", "3.9", "4.0", "4.3", "ottla")
TABLE = """
    older epoch, next in sequence           47 47 47 47 47 47 47 47 47 47 47 47 47 47
    older epoch, copy                       47 47 47 47 47 47 47 47 47 47 47 47 47 47
    nothing known, from 0                   ok ok ok ok ok ok ok ok ok ok ok ok ok ok
    nothing known, from later               45 59 59 59 59 59 ok ok ok ok ok ok ok 59
    newer epoch, from 0                     ok ok ok ok ok ok ok ok ok ok ok ok ok ok
    newer epoch, next in sequence           45 45 45 45 45 45 45 45 45 45 45 45 45 45
    marker only, from 0                     ok ok ok ok ok ok ok ok ok ok ok ok ok ok
    marker only, from later                 45 45 45 45 59 59 45 45 45 45 45 45 45 45
    marker only, older epoch                47 47 47 47 47 47 47 47 47 47 47 47 47 47
    next in sequence                        ok ok ok ok ok ok ok ok ok ok ok ok ok ok
    after the largest sequence              ok ok ok ok ok ok ok ok ok ok ok ok ok ok
    copy of the newest                      copy copy copy copy copy copy copy copy copy copy copy copy copy copy
    copy of the fifth newest                45 copy copy copy copy copy copy copy copy copy copy copy copy copy
    copy of the sixth newest                45 46 45 45 45 45 45 45 45 45 45 45 45 copy
    below the five, no copy                 45 46 45 45 45 45 45 45 45 45 45 45 45 46
    among the five, no copy                 45 45 45 45 45 45 45 45 45 45 45 45 45 45
    begins at the last, ends above          45 45 45 45 45 45 45 45 45 45 45 45 45 45
    begins below, ends above                45 45 45 45 45 45 45 45 45 45 45 45 45 45
    gap                                     45 45 45 45 45 45 45 45 45 45 45 45 45 45
"""
# A snapshot has one batch of each producer: after a clean restart a release has no more. Our own profile scans the log.
AFTER_CLOSE = {"copy of the fifth newest": "45 46 45 45 45 45 45 45 45 45 45 45 45 copy".split()}

SIX = [(2 * number, 2) for number in range(6)]  # two records each, sequences 0 to 11; the first is not cached
# The batch of each row: first sequence, count, epoch; the producer's epoch is 1, the topic "t" unless given.
BATCHES: dict[str, tuple[int, int, int]] = {
    "older epoch, next in sequence": (12, 2, 0),
    "older epoch, copy": (10, 2, 0),
    "nothing known, from 0": (0, 2, 0),
    "nothing known, from later": (1, 2, 0),
    "newer epoch, from 0": (0, 2, 2),
    "newer epoch, next in sequence": (12, 2, 2),
    "marker only, from 0": (0, 1, 1),
    "marker only, from later": (1, 1, 1),
    "marker only, older epoch": (0, 1, 0),
    "next in sequence": (12, 3, 1),
    "after the largest sequence": (0, 2, 1),
    "copy of the newest": (10, 2, 1),
    "copy of the fifth newest": (2, 2, 1),
    "copy of the sixth newest": (0, 2, 1),
    "below the five, no copy": (0, 1, 1),
    "among the five, no copy": (9, 2, 1),
    "begins at the last, ends above": (11, 2, 1),
    "begins below, ends above": (8, 6, 1),
    "gap": (13, 1, 1),
}
LOG_START = 2
HOWS = ("running", "closed", "killed")
MORE_HOWS = (
    "closed, no snapshots",
    "closed, damaged snapshots",
    "closed, no indexes",
    "killed, no snapshots",
    "killed, damaged snapshots",
)


def expected(release: str, how: str) -> dict[str, str]:
    """Row -> the response of this release."""
    column = COLUMNS.index(release)
    found = {}
    for line in TABLE.strip().splitlines():
        *words, cells = line.strip().split("   ", 1)
        found[words[0].strip()] = cells.split()[column]
    if how in ("closed", "closed, no indexes"):
        found.update({row: cells[column] for row, cells in AFTER_CLOSE.items()})
    return found


def topic_of(row: str) -> str:
    return row.replace(" ", "-").replace(",", "")


def plain() -> bytes:
    """Two records without a producer, at the start of each log."""
    return bytes(batch.build([Record(n, T0, None, b"plain") for n in range(2)]))


async def before(writer: Writer) -> None:
    """Creates a topic for each row, whose log begins at offset 2, and the state of the row."""
    for row in BATCHES:
        topic = topic_of(row)
        log = writer.broker.log(topic)
        if log.log_end_offset == 0:
            assert (await writer.send(plain(), topic))[:2] == (0, 0)
        await delete_before(writer, topic, LOG_START)
        if not row.startswith(("nothing", "marker", "after")):
            await writer.write(*SIX, topic=topic, epoch=1)


async def delete_before(writer: Writer, topic: str, offset: int) -> None:
    requested = DeleteRecordsRequest.DeleteRecordsTopic
    one = requested.DeleteRecordsPartition(partition_index=0, offset=offset)
    request = DeleteRecordsRequest(topics=[requested(name=topic, partitions=[one])], timeout_ms=1000)
    response = only(await writer.client.call(request, 0))
    assert (response.error_code, response.low_watermark) == (0, offset)


async def placed(folder: Path, release: str) -> None:
    """Places the topics, and logs that no client of this broker can write: a lone marker, the wrap-around of
    sequences.
    """
    async with writing(folder, release) as writer:
        for row in BATCHES:
            await writer.broker.topic(topic_of(row))
    record = Record(2, T0 + 9, struct.pack(">hh", 0, 1), struct.pack(">hi", 0, 7))
    marker = batch.build(
        [record], batch.BatchFields(control=True, transactional=True, producer_id=9, producer_epoch=1), base_offset=2
    )
    largest = batch.build(
        [Record(2 + n, T0 + n, None, b"x") for n in range(2)],
        batch.BatchFields(producer_id=9, producer_epoch=1, base_sequence=MAX - 1),
        base_offset=2,
    )
    front = batch.build([Record(n, T0, None, b"plain") for n in range(2)])
    for row in BATCHES:
        if row.startswith(("marker", "after")):
            data = front + (marker if row.startswith("marker") else largest)
            put_log(folder / f"{topic_of(row)}-0", bytes(data))


async def check_rows(writer: Writer, release: str, how: str) -> None:
    outcomes = expected(release, how)
    assert list(outcomes) == list(BATCHES)
    for row, cell in outcomes.items():
        topic, (sequence, count, epoch) = topic_of(row), BATCHES[row]
        data = numbered(sequence, count, epoch=epoch)
        end = writer.end(topic)
        for version in produce_versions(release) if cell != "ok" else [writer.version]:
            log_start = LOG_START if version >= 5 else -1
            response = await writer.send(data, topic, version)
            if cell == "ok":
                assert response == Sent(0, end, -1, log_start), row
                assert writer.end(topic) == end + count
                assert await writer.send(data, topic) == Sent(0, end, batch_time(sequence, count), log_start), row
            elif cell == "copy":
                offset = LOG_START + sequence
                assert response == Sent(0, offset, batch_time(sequence, count), log_start), (row, version)
            else:
                assert response == Sent(int(cell), -1, -1, log_start), (row, version)
        if cell != "ok":
            assert writer.end(topic) == end, row
            # Refused and duplicate batches left no trace in the producer's state either.
            if not row.startswith(("nothing", "marker")):
                await writer.write((12, 1), topic=topic, epoch=1)


@each("how", HOWS)
@each("release", COLUMNS, strided=True)
async def test_every_case_in_every_release(release: str, how: str, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    await placed(folder, release)
    if how == "running":
        async with writing(folder, release) as writer:
            await before(writer)
            await check_rows(writer, release, how)
        return
    folder, clock = await restarted(folder, release, how, before)
    async with writing(folder, release, clock=clock) as writer:
        await check_rows(writer, release, how)


@each("how", MORE_HOWS)
@each("release", ["0.11", "1.0.1", "2.4", "4.3", "ottla"], strided=True)
async def test_every_case_after_a_loss_of_snapshots(release: str, how: str, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    await placed(folder, release)
    folder, clock = await restarted(folder, release, how, before)
    async with writing(folder, release, clock=clock) as writer:
        await check_rows(writer, release, how)
