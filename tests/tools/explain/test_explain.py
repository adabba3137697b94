"""`ottla explain`: the history of a partition's producers, the responses to them, and the reasons."""

from __future__ import annotations

import json
import random
import struct
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ottla.protocol.records import batch, legacy
from ottla.protocol.records.batch import Record
from ottla.tools.explain.command import explain
from ottla_testing.broker.harness import produce, records, running
from ottla_testing.broker.producer_logs import NOW, Log, Run, contents, report, requested, runner, seven

LAST = 2**31 - 1


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    return runner(explain, capsys)


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log(tmp_path)


def history(run: Run, log: Log, *more: object) -> list[tuple[Any, ...]]:
    """Returns (kind, odd, offsets, sequences, batches) of every line."""
    return [
        (
            line["kind"],
            line["odd"],
            (line["first_offset"], line["last_offset"]),
            (line["first_sequence"], line["last_sequence"]),
            line["batches"],
        )
        for line in report(run, *requested(log, *more))["history"]
    ]


def texts(run: Run, log: Log, *more: object) -> list[str]:
    return [line["text"] for line in report(run, *requested(log, *more))["history"]]


# --- the history


def mixed(log: Log) -> Log:
    for sequence in (0, 2, 4):
        log.batch(7, 0, sequence, 2)
    log.batch(9, 3, 0, transactional=True)
    log.batch(7, 0, 6, 2)
    log.batch(7, 0, 6, 2)
    log.batch(7, 0, 8)
    log.marker(9, 3)
    log.plain(4)
    log.batch(7, 1, 0)
    return log


PAGE = """\
t-0, log start offset 0

OFFSETS            PRODUCER  EPOCH  SEQUENCES          BATCHES  RECORDS   TIMESTAMPS (UTC)
0-8                7         0      0-7                4        8         2023-11-14 22:13:21.000 - 22:13:25.001
  its first batch
9-10               7         0      6-7                1        2         2023-11-14 22:13:26.000 - 22:13:26.001
  ! a duplicate: these sequences are at offsets 7-8 too
6                  9         3      0                  1        1         2023-11-14 22:13:24.000
  transactional, its first batch
12                 9         3      -                  1        1         2023-11-14 22:13:28.000
  transactional, COMMIT marker of coordinator epoch 5
11                 7         0      8                  1        1         2023-11-14 22:13:27.000
17                 7         1      0                  1        1         2023-11-14 22:13:30.000
  epoch 0 -> 1

log end offset 18
  4 records in 1 batch without a producer id, not shown
  transactions: 1 committed, none open

Producer state under the rules of ottla:
PRODUCER ID  EPOCH  LAST SEQUENCE  LAST OFFSET  LAST TIMESTAMP (UTC)     NEXT SEQUENCE
7            1      0              17           2023-11-14 22:13:30.000  1
9            3      0              6            2023-11-14 22:13:28.000  1

--producer-id N shows the responses to its next batch and to others, with reasons.
"""


def test_whole_page(run: Run, log: Log) -> None:
    code, out, err = run(*requested(mixed(log)))
    assert (code, err) == (0, "")
    assert out == PAGE


def test_consecutive_batches_are_one_line_by_default(run: Run, log: Log) -> None:
    for sequence in range(0, 100, 2):
        log.batch(7, 0, sequence, 2)
        log.batch(8, 0, sequence // 2)
    assert history(run, log) == [
        ("begins", False, (0, 148), (0, 99), 50),
        ("begins", False, (2, 149), (0, 49), 50),
    ]
    each = history(run, log, "--batches")
    assert len(each) == 100
    assert sorted(each, key=lambda line: line[2])[:3] == [
        ("begins", False, (0, 1), (0, 1), 1),
        ("begins", False, (2, 2), (0, 0), 1),
        ("continues", False, (3, 4), (2, 3), 1),
    ]
    assert history(run, log, "--producer-id", 8) == [("begins", False, (2, 149), (0, 49), 50)]


def test_gap_is_odd_unless_offsets_are_missing_as_well(run: Run, log: Log) -> None:
    log.batch(7, 0, 0, 3)
    log.batch(7, 0, 5)
    log.skip(4)
    log.batch(7, 0, 10, 2)
    assert history(run, log) == [
        ("begins", False, (0, 2), (0, 2), 1),
        ("gap", True, (3, 3), (5, 5), 1),
        ("gap", False, (8, 9), (10, 11), 1),
    ]
    assert texts(run, log)[1:] == [
        "a gap: sequences 3-4 are not in the log, although no offset is missing since 2",
        "a gap: sequences 6-9 are not in the log, nor are 4 offsets since 3: removed",
    ]
    assert report(run, *requested(log))["missing_offsets"] == {"offsets": 4, "places": 1}


def test_marker_in_between_does_not_hide_missing_offsets(run: Run, log: Log) -> None:
    """As a cleaner leaves an aborted transaction: only its marker."""
    log.batch(7, 0, 0, 2, transactional=True)
    log.marker(7, 0)
    log.skip(2)
    log.marker(7, 0, kind=0)
    log.batch(7, 0, 4, 2, transactional=True)
    assert texts(run, log)[-1] == "a gap: sequences 2-3 are not in the log, nor are 2 offsets since 1: removed"
    assert [line[1] for line in history(run, log)] == [False] * 4


def test_batches_of_a_group_coordinator_have_no_sequences(run: Run, log: Log) -> None:
    """Like committed offsets in a transaction (KIP-98)."""
    for _ in range(2):
        log.batch(7, 1, -1, 2, transactional=True)
    log.batch(8, 0, 0, transactional=True)
    log.marker(7, 1)
    log.batch(7, 1, -1, transactional=True)
    log.batch(7, 0, -1, transactional=True)
    assert history(run, log) == [
        ("no sequences", False, (0, 3), (-1, -1), 2),
        ("marker", False, (5, 5), (-1, -1), 1),
        ("no sequences", False, (6, 6), (-1, -1), 1),
        ("begins", False, (4, 4), (0, 0), 1),
        ("no sequences", True, (7, 7), (-1, -1), 1),
    ]
    found = report(run, *requested(log, "--producer-id", 7))
    assert found["history"][0]["text"] == "written by a coordinator, without sequences"
    assert (found["answers"][0]["case"], found["answers"][0]["error"]) == ("the next", "NONE")


def test_duplicate_batch_is_shown_with_its_first_offset(run: Run, log: Log) -> None:
    for sequence in (0, 2, 4):
        log.batch(7, 0, sequence, 2)
    log.batch(7, 0, 4, 2)
    log.batch(7, 0, 6, 2)
    log.batch(7, 0, 3)
    log.batch(7, 0, 7, 3)
    log.batch(7, 0, 10)
    assert history(run, log) == [
        ("begins", False, (0, 5), (0, 5), 3),
        ("again", True, (6, 7), (4, 5), 1),
        ("resumes", False, (8, 9), (6, 7), 1),
        ("again", True, (10, 10), (3, 3), 1),
        ("overlap", True, (11, 14), (7, 10), 2),
    ]
    assert texts(run, log)[1] == "a duplicate: these sequences are at offsets 4-5 too"
    assert texts(run, log)[3] == "written before: sequences up to 7 were"


def test_restarted_producer_writing_the_same_again_is_one_line(run: Run, log: Log) -> None:
    for _ in range(2):
        for sequence in range(0, 20, 2):
            log.batch(7, 0, sequence, 2)
    log.batch(7, 0, 20)
    assert history(run, log) == [
        ("begins", False, (0, 19), (0, 19), 10),
        ("again", True, (20, 39), (0, 19), 10),
        ("resumes", False, (40, 40), (20, 20), 1),
    ]


def test_epochs_rise_and_do_not_fall(run: Run, log: Log) -> None:
    log.batch(7, 0, 0)
    log.batch(7, 2, 0)
    log.batch(7, 2, 1)
    log.batch(7, 3, 4)
    log.batch(7, 1, 0)
    assert history(run, log) == [
        ("begins", False, (0, 0), (0, 0), 1),
        ("epoch", False, (1, 2), (0, 1), 2),
        ("epoch", True, (3, 3), (4, 4), 1),
        ("old epoch", True, (4, 4), (0, 0), 1),
    ]
    assert texts(run, log)[1:] == ["epoch 0 -> 2", "epoch 2 -> 3, but sequence 4 instead of 0", "epoch 1 after epoch 3"]


def test_sequences_wrap_after_the_largest(run: Run, log: Log) -> None:
    log.batch(7, 0, LAST - 3, 2)
    log.batch(7, 0, LAST - 1, 3)
    log.batch(7, 0, 1)
    log.batch(8, 0, LAST)
    log.batch(8, 0, 0)
    assert history(run, log) == [
        ("late start", True, (0, 5), (LAST - 3, 1), 3),
        ("late start", True, (6, 7), (LAST, 0), 2),
    ]
    assert all(text.endswith("; after sequence 2147483647 comes 0") for text in texts(run, log))


def test_markers_end_transactions_and_may_raise_the_epoch(run: Run, log: Log) -> None:
    log.batch(7, 0, 0, 2, transactional=True)
    log.marker(7, 0, kind=0, coordinator_epoch=3)
    log.batch(7, 0, 2, transactional=True)
    log.marker(7, 1, kind=1, coordinator_epoch=4)
    log.marker(8, 0, kind=77)
    log.batch(8, 0, 0)
    assert history(run, log) == [
        ("begins", False, (0, 1), (0, 1), 1),
        ("marker", False, (2, 2), (-1, -1), 1),
        ("continues", False, (3, 3), (2, 2), 1),
        ("marker", False, (4, 4), (-1, -1), 1),
        ("marker", False, (5, 5), (-1, -1), 1),
        ("continues", False, (6, 6), (0, 0), 1),
    ]
    assert texts(run, log)[1::2] == [
        "ABORT marker of coordinator epoch 3",
        "COMMIT marker of coordinator epoch 4; epoch 0 -> 1",
        "",
    ]
    (_, other) = report(run, *requested(log))["producers"]
    assert (other["epoch"], other["last_sequence"], other["coordinator_epoch"]) == (0, 0, 5)


def test_records_below_the_log_start_have_no_line_and_explain_the_next(run: Run, log: Log) -> None:
    log.batch(7, 0, 0, 2)
    log.batch(8, 0, 0, 2)
    log.plain(3)
    log.batch(7, 0, 2, 2)
    log.batch(9, 0, 5)
    log.start_at(7)
    assert history(run, log) == [
        ("resumes", False, (7, 8), (2, 3), 1),
        ("late start", False, (9, 9), (5, 5), 1),
    ]
    assert texts(run, log) == [
        "the batches before sequence 2 are below the log start",
        "sequences before 5 are below the log start, or were never written",
    ]
    found = report(run, *requested(log))
    assert (found["log_start_offset"], found["log_end_offset"]) == (7, 10)
    assert found["without_producer"] == {"batches": 0, "records": 0}
    assert [one["producer_id"] for one in found["producers"]] == [7, 8, 9]
    found = report(run, *requested(log, "--release", "2.3"))
    assert [one["producer_id"] for one in found["producers"]] == [7, 9]  # 8 is forgotten
    assert "offsets below 7 are deleted; the files still have those from 0 on" in run(*requested(log))[1]


def test_producer_forgotten_with_the_log_start_begins_again(run: Run, log: Log) -> None:
    log.batch(7, 0, 0, 2)
    log.batch(7, 0, 2, 2)
    log.batch(7, 0, 0, 2)
    assert [line[:2] for line in history(run, log)] == [("begins", False), ("again", True)]
    log.start_at(4)
    assert history(run, log) == [("begins", False, (4, 5), (0, 1), 1)]
    assert "begins again" in texts(run, log)[0]
    (known,) = report(run, *requested(log))["producers"]
    assert [(one["first_sequence"], one["base_offset"]) for one in known["remembered"]] == [(0, 4)]


def test_deleted_segments_are_reported(run: Run, tmp_path: Path) -> None:
    log = Log(tmp_path, offset=50)
    log.batch(7, 0, 10, 10)
    log.skip(40)
    log.roll()
    log.batch(7, 0, 60)
    log.skip(3)
    log.batch(7, 0, 64)
    assert history(run, log) == [
        ("missing offsets", False, (60, 99), (-1, -1), 0),
        ("late start", False, (50, 59), (10, 19), 1),
        ("gap", False, (100, 100), (60, 60), 1),
        ("gap", False, (104, 104), (64, 64), 1),
    ]
    _, out, _ = run(*requested(log))
    assert "offsets below 50 are deleted\n" in out and "  43 offsets in no batch, in 2 places\n" in out
    assert [line[0] for line in history(run, log, "--batches")].count("missing offsets") == 2


def test_old_formats_have_no_producer(run: Run, log: Log) -> None:
    old = [Record(n, NOW, None, b"v") for n in range(3)]
    log.raw(legacy.build(old, magic=1, codec=1), 3)
    log.raw(legacy.build([Record(3, NOW, None, b"v")], magic=0), 1)
    log.batch(7, 0, 0)
    found = report(run, *requested(log))
    assert [line["kind"] for line in found["history"]] == ["begins"]
    assert (found["without_producer"]["batches"], found["missing_offsets"]["offsets"]) == (2, 0)


def test_invalid_timestamps_are_shown_as_numbers(run: Run, log: Log) -> None:
    for time_ms in (-1, 2**62, NOW):
        record = Record(log.offset, time_ms, None, b"v")
        data = batch.build(
            [record],
            batch.BatchFields(producer_id=time_ms % 7, producer_epoch=0, base_sequence=0),
            base_offset=log.offset,
        )
        log.raw(data, 1)
    _, out, _ = run(*requested(log))
    assert str(2**62) in out and "2023-11-14 22:13:20.000" in out and "Traceback" not in out


# --- damage, brokers, errors


def test_damage_ends_the_history_with_one_line(run: Run, log: Log) -> None:
    log.batch(7, 0, 0)
    size = log.path.stat().st_size
    log.raw(struct.pack(">qi4xb", 1, 49, 9) + bytes(44), 0)  # no such format
    log.batch(7, 0, 1)
    code, out, err = run(*requested(log))
    assert code == 1 and err.count("\n") == 1 and f"at byte {size}" in err
    assert "! reading ended at the damage" in out and "log end offset 1\n" in out


def test_decreasing_offsets_are_damage(run: Run, log: Log) -> None:
    log.batch(7, 0, 0, 5)
    log.offset = 3
    log.batch(7, 0, 5)
    code, _, err = run(*requested(log))
    assert code == 1 and "offset 3 comes after offset 4" in err
    log.path.write_bytes(b"")
    log.raw(batch.build([], batch.BatchFields(last_offset_delta=-2, max_timestamp=NOW), base_offset=5), 0)
    code, _, err = run(*requested(log))
    assert code == 1 and "offset 5 ends at offset 3" in err


def test_incomplete_newest_batch_is_not_damage(run: Run, log: Log) -> None:
    log.batch(7, 0, 0)
    whole = log.path.read_bytes()
    for size in (1, 20, len(whole) - 1):
        log.path.write_bytes(whole + whole[:size])
        code, out, err = run(*requested(log))
        assert (code, err) == (0, "") and "log end offset 1\n" in out
    log.offset = 9
    log.roll()
    log.batch(7, 0, 1)  # now the cut end is not that of the newest file
    assert run(*requested(log))[0] == 1


@pytest.mark.soak
def test_any_file_contents_end_without_a_traceback(run: Run, log: Log, scaled: Callable[[int], int]) -> None:
    mixed(log).roll()
    files = [(path, path.read_bytes()) for path in sorted(seven(log).folder.glob("*.log"))]
    source = random.Random("damage")
    for _ in range(scaled(40)):
        for path, data in files:
            changed = bytearray(data)
            for _ in range(source.randrange(5)):
                changed[source.randrange(len(changed))] = source.randrange(256)
            path.write_bytes(changed[: source.choice([None, None, None, source.randrange(len(changed))])])
        release = source.choice(["ottla", "1.0.1", "2.3", "4.3"])
        for more in ([], ["--batches"], ["--producer-id", 7]):
            code, out, err = run(*requested(log, *more, "--release", release, "--json"))
            assert err.count("\n") == code in (0, 1)
            json.loads(out)
            assert run(*requested(log, *more))[0] == code


async def test_explain_works_on_a_running_broker_and_changes_nothing(run: Run, tmp_path: Path) -> None:
    async with running(tmp_path, overrides={"log.segment.bytes": "1048576"}) as broker:
        await broker.topic("t")
        client = await broker.client()
        for sequence in range(3):
            data = records(b"v" * 400_000, producer_id=7, producer_epoch=0, base_sequence=sequence)
            assert (await client.call(produce(data), 8)).responses[0].partition_responses[0].error_code == 0
        before = contents(tmp_path)
        found = report(run, tmp_path, "--topic", "t", "--partition", 0)
        assert [line["last_sequence"] for line in found["history"]] == [2] and found["producers"][0]["last_offset"] == 2
        assert contents(tmp_path) == before
        assert sum(name.startswith("t-0/") and name.endswith(".log") for name in before) == 2


@pytest.mark.slow
def test_memory_does_not_grow_with_the_batches(run: Run, log: Log, scaled: Callable[[int], int]) -> None:
    one = batch.build(
        [Record(0, NOW, None, bytes(1024))], batch.BatchFields(producer_id=7, producer_epoch=0, base_sequence=0)
    )

    def peak(batches: int) -> int:
        with log.path.open("wb") as file:
            for number in range(batches):
                struct.pack_into(">q", one, 0, number)
                struct.pack_into(">i", one, 53, number)  # the sequence; checksums are not checked
                file.write(one)
        run(*requested(log))  # memory allocated from now on counts
        tracemalloc.start()
        try:
            code, out, _ = run(*requested(log))
            found = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert code == 0 and f"0-{batches - 1} " in out
        return found

    few, many = peak(3_000), peak(scaled(12_000))  # both are longer than one read
    assert many < few + 500_000, (few, many)


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ([], "--topic, --partition"),
        (["--topic", "t"], "--partition"),
        (["--topic", "t", "--partition", "1"], "t has no partition 1 in"),
        (["--topic", "u", "--partition", "0"], "no topic u in"),
        (["--topic", "t", "--partition", "-1"], "'-1'"),
        (["--topic", "t", "--partition", "x"], "argument --partition: 'x' is not a number"),
        (["--topic", "t", "--partition", "0", "--release", "9.9"], "unknown release 9.9"),
        (["--topic", "t", "--partition", "0", "--next-sequence", "5"], "--next-sequence needs --producer-id"),
        (["--topic", "t", "--partition", "0", "--producer-id", "7", "--epoch", "5"], "need --next-sequence"),
        (["--topic", "t", "--partition", "0", "--producer-id", "x"], "argument --producer-id: 'x' is not a number"),
        (
            ["--topic", "t", "--partition", "0", "--producer-id", "7", "--next-sequence", str(2**31)],
            "argument --next-sequence: '2147483648' is not a number from 0 to 2147483647",
        ),
    ],
)
def test_wrong_arguments_are_one_line(flags: list[str], words: str, run: Run, log: Log) -> None:
    seven(log)
    code, out, err = run(log.directory, *flags)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert words in err and err.startswith("ottla explain: ")


def test_path_that_is_not_a_data_directory_is_refused(run: Run, tmp_path: Path) -> None:
    for path in (tmp_path / "missing", tmp_path):
        code, out, err = run(path, "--topic", "t", "--partition", 0)
        assert (code, out, err.count("\n")) == (2, "", 1)
