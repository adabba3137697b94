"""The forced upgrade of a partition: after any interruption no record is lost or duplicated, and it can be finished."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.protocol.records import formats
from ottla.storage.errors import StorageError
from ottla.storage.io.files import DiskFiles
from ottla.storage.log.upgrade import UpgradeProgress
from ottla.storage.partition_log import LogConfig, PartitionLog
from ottla_testing.each import each
from ottla_testing.storage.batches import FOLDER, make, open_log
from ottla_testing.storage.old_messages import Piece, Row, lay_down, logs_of, magics_of, message, piece, rows_of
from ottla_testing.storage.simulated_files import Killed, SimulatedFiles

# Indexes of four entries: the converted entries do not fit into one segment.
SPLITTING = LogConfig(index_interval_bytes=60, segment_index_bytes=36)
PLAIN = LogConfig(index_interval_bytes=150)

Segments = Sequence[tuple[int, Sequence[Piece]]]

MIXED: Segments = [
    (0, [piece(0, 0, 0, (1, 1, 3), (0,)), piece(0, 1, 6, (1, 2), (0,)), piece(1, 0, 10, (1,), (30, 20))]),
    (12, [piece(2, 0, 12, (1, 1), (40,)), piece(2, 1, 15, (1,), (41,))]),
    (
        17,
        [piece(1, 2, 17, (1, 1, 1), (50, 49)), piece(2, 3, 21, (1,), (60,)), piece(1, 0, 23, (), (1,), append_time=70)],
    ),
    (24, [piece(2, 0, 24, (1,), (80,)), piece(0, 0, 26, (1,), (0,))]),
]
SMALL: Segments = [
    (5, [piece(0, 0, 5, (1, 1, 1, 1, 1), (0,))]),
    (11, [piece(2, 0, 11, (1,), (9,)), piece(1, 1, 13, (1,), (9, 8))]),
]


def upgrade(files: SimulatedFiles, config: LogConfig, *, clean: bool = False, **more: Any) -> list[UpgradeProgress]:
    """Opens the log with the upgrade and returns the reported progress."""
    seen: list[UpgradeProgress] = []
    log = open_log(files, config=config, clean=clean, upgrade=seen.append, **more)
    log.abandon()
    return seen


def assert_upgraded(files: SimulatedFiles, rows: list[Row]) -> None:
    assert rows_of(files) == rows
    assert magics_of(files) == {2}
    assert not [name for name in files.list(FOLDER) if name.endswith((".cleaned", ".swap", ".deleted"))]


def served(log: PartitionLog) -> list[Row]:
    """Returns the records as a consumer gets them."""
    found: list[Row] = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        data = bytes(log.read(offset, 300).records)
        for position, header in formats.headers(data):
            assert formats.crc_matches(data, position, header)
            records = list(formats.records(data, position))
            found += [(r.offset, r.key, r.value, r.timestamp) for r in records if r.offset >= log.log_start_offset]
            offset = header.next_offset
    return found


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("config", [PLAIN, SPLITTING])
def test_upgraded_segments_are_v2_with_the_same_records(config: LogConfig, clean: bool):
    files = SimulatedFiles()
    rows = lay_down(files, MIXED)
    bases = logs_of(files)
    untouched = files.contents[f"{FOLDER}/{bases[1]}"]
    untouched_bytes = bytes(untouched.live)
    log = open_log(files, config=config, clean=clean, upgrade=lambda progress: None)
    assert_upgraded(files, rows)
    assert set(bases) <= set(logs_of(files)) and (len(logs_of(files)) > len(bases)) == (config is SPLITTING)
    assert files.contents[f"{FOLDER}/{bases[1]}"] is untouched and untouched.live == untouched_bytes
    # The opened log has the new segments.
    assert served(log) == rows and log.log_end_offset == 28
    assert log.size_bytes == sum(files.size(f"{FOLDER}/{name}") for name in logs_of(files))
    for offset in range(28):
        assert formats.read_header(log.read(offset, 1).records).last_offset >= offset
    assert log.find_timestamp(41) == (41, 15, 0)
    assert log.max_timestamp() == (80, 24, 0)
    log.append(make(b"new", timestamp=90), now_ms=0)
    assert log.log_end_offset == 29 and served(log)[:-1] == rows
    log.close()
    log = open_log(files, config=config)
    assert served(log)[-1] == (28, None, b"new", 90) and served(log)[:-1] == rows


def test_second_upgrade_reads_headers_only():
    files = SimulatedFiles()
    rows = lay_down(files, MIXED)
    upgrade(files, SPLITTING)
    before = {path: bytes(content.live) for path, content in files.contents.items()}
    files.restart()
    assert upgrade(files, SPLITTING, clean=True) == []
    assert files.log == []
    assert {path: bytes(content.live) for path, content in files.contents.items()} == before
    assert rows_of(files) == rows


def test_progress_counts_old_segments_and_converted_records():
    files = SimulatedFiles()
    lay_down(files, MIXED)
    old = [0, 17, 24]
    sizes = [files.size(f"{FOLDER}/{base:020d}.log") for base in old]
    seen = upgrade(files, PLAIN)
    written = sum(files.size(f"{FOLDER}/{base:020d}.log") for base in old)
    assert seen[-1] == UpgradeProgress(sum(sizes), sum(sizes), 9 + 5 + 2, 3, written, True)
    assert [progress.done for progress in seen] == [False, False, False, True]
    assert [progress.read_bytes for progress in seen[:-1]] == [sum(sizes[: n + 1]) for n in range(3)]
    assert [progress.segments for progress in seen] == [0, 1, 2, 3]


def test_records_below_the_log_start_are_converted_too():
    files = SimulatedFiles()
    rows = lay_down(files, SMALL)
    log = open_log(files, config=PLAIN, log_start_offset=7, upgrade=lambda progress: None)
    assert log.log_start_offset == 7
    assert served(log) == [row for row in rows if row[0] >= 7]
    assert_upgraded(files, rows)


def test_torn_tail_is_cut_before_the_upgrade():
    files = SimulatedFiles()
    rows = lay_down(files, SMALL)
    live = files.contents[f"{FOLDER}/{11:020d}.log"].live
    live += message(1, 15, b"k", b"value", 5)[:-1]
    upgrade(files, PLAIN)
    assert_upgraded(files, rows)


def test_transaction_indexes_and_other_files_are_kept():
    files = SimulatedFiles()
    lay_down(files, SMALL)
    for name, data in (
        (f"{5:020d}.txnindex", bytes(34)),
        (f"{11:020d}.snapshot", b"snap"),
        ("partition.metadata", b""),
    ):
        file = files.open(f"{FOLDER}/{name}", create=True)
        file.write(0, data)
        file.sync()
    upgrade(files, PLAIN, clean=True)
    assert files.read_bytes(f"{FOLDER}/{5:020d}.txnindex") == bytes(34)
    assert files.read_bytes(f"{FOLDER}/{11:020d}.snapshot") == b"snap"


def test_file_time_of_a_segment_without_timestamps_is_kept():
    """Retention uses it."""
    files = SimulatedFiles()
    lay_down(files, SMALL)
    files.contents[f"{FOLDER}/{5:020d}.log"].modified_ns = 123
    upgrade(files, SPLITTING)
    first, second = logs_of(files)[:2]
    assert files.modified_ns(f"{FOLDER}/{first}") == files.modified_ns(f"{FOLDER}/{second}") == 123


# -- crashes


KEEPS: dict[str, Callable[[random.Random], Callable[[str, int, int], int]]] = {
    "nothing": lambda rng: lambda path, durable, live: durable,
    "part": lambda rng: lambda path, durable, live: rng.randint(min(durable, live), max(durable, live)),
    "one file all, another nothing": lambda rng: lambda path, durable, live: rng.choice((durable, live)),
}


def interrupt(files: SimulatedFiles, step: int, action: Callable[[], object], portion: float = 0.5) -> bool:
    """Runs up to the step; returns whether it was reached."""
    files.restart()
    files.fail_at, files.killing, files.portion = step, True, portion
    try:
        action()
    except Killed:
        return True
    finally:
        files.fail_at, files.killing = None, False
    return False


def lose(files: SimulatedFiles, loss: str, rng: random.Random) -> None:
    if loss == "kill":
        files.restart()
    else:
        files.lose_power(KEEPS[loss](rng), rng.choice((b"", bytes(500), rng.randbytes(500))))


def laid_down(segments: Segments) -> tuple[SimulatedFiles, list[Row], int]:
    """Makes a log whose recovery point is its end: as after a clean shutdown whose marker the next start removed."""
    files = SimulatedFiles()
    rows = lay_down(files, segments)
    return files, rows, rows[-1][0] + 1


def recovered_rows(files: SimulatedFiles, config: LogConfig, recovery_point: int) -> list[Row]:
    log = open_log(files, config=config, clean=False, recovery_point=recovery_point)
    assert log.cut_bytes == 0
    found = served(log)
    log.abandon()
    return found


@each("loss", ["kill", *KEEPS], strided=True)
@pytest.mark.parametrize("config", [PLAIN, SPLITTING], ids=["plain", "splitting"])
def test_upgrade_interrupted_at_any_step_keeps_records_once_and_can_be_finished(
    config: LogConfig, loss: str, stride: int
):
    rng = random.Random(7)
    step = 0
    for step in count(random.randrange(stride), stride):
        files, rows, end = laid_down(MIXED)
        if not interrupt(files, step, lambda files=files: upgrade(files, config, recovery_point=0), rng.random()):
            break
        lose(files, loss, rng)
        for recovery_point in (0, end):
            assert recovered_rows(files, config, recovery_point) == rows
            assert rows_of(files) == rows
        upgrade(files, config, recovery_point=rng.choice((0, end)))
        assert_upgraded(files, rows)
    assert step > 60


@each("loss", ["kill", *KEEPS], strided=True)
@pytest.mark.parametrize("again", ["recover", "upgrade"])
def test_upgrade_interrupted_twice_keeps_records_once(loss: str, again: str, stride: int, scaled: Callable[[int], int]):
    rng = random.Random(11)
    config, seconds = SPLITTING, 0
    apart = stride if scaled(1) > 1 else max(stride, 4)  # each pair of steps only in `make soak`
    for first in count(random.randrange(apart), apart):
        second = random.randrange(stride)
        while True:
            files, rows, end = laid_down(SMALL)
            if not interrupt(files, first, lambda files=files: upgrade(files, config)):
                assert first > 40 and seconds > 200 / stride**2 / apart
                return
            lose(files, loss, rng)

            def reopen(files: SimulatedFiles = files, end: int = end) -> None:
                if again == "upgrade":
                    upgrade(files, config, recovery_point=end)
                else:
                    recovered_rows(files, config, end)

            if not interrupt(files, second, reopen):
                break
            lose(files, loss, rng)
            assert recovered_rows(files, config, end) == rows_of(files) == rows
            upgrade(files, config, recovery_point=end)
            assert_upgraded(files, rows)
            second += stride**2 if again == "recover" else stride**2 + rng.randrange(5)
            seconds += 1


@pytest.mark.parametrize("config", [PLAIN, SPLITTING], ids=["plain", "splitting"])
def test_disk_error_at_any_step_of_an_upgrade_loses_nothing(config: LogConfig, stride: int):
    step = 0
    for step in count(random.randrange(stride), stride):
        files, rows, _ = laid_down(SMALL)
        files.restart()
        files.fail_at = step
        try:
            upgrade(files, config)
            break
        except StorageError as error:
            assert "\n" not in str(error)
        files.fail_at = None
        assert recovered_rows(files, config, 0) == rows
        upgrade(files, config)
        assert_upgraded(files, rows)
    assert step > 40


def test_full_disk_leaves_segments_unchanged_and_no_other_files():
    files, rows, _ = laid_down(SMALL)
    open_log(files, config=PLAIN).close()  # creates the files that an upgrade does not create
    names = sorted(files.list(FOLDER))
    upgrade_needs = None
    for room in range(0, 2000, 40):
        files.capacity = files.used() + room
        try:
            upgrade(files, PLAIN, clean=True)
            upgrade_needs = room
            break
        except StorageError as error:
            assert str(error).startswith(f"cannot upgrade {FOLDER} to message format v2: cannot rewrite {FOLDER}/")
            assert "no space" in str(error)
        assert sorted(files.list(FOLDER)) == names and rows_of(files) == rows
    assert upgrade_needs
    assert_upgraded(files, rows)


def test_damaged_old_entry_ends_the_upgrade_and_stays_unchanged():
    files, rows, _ = laid_down(MIXED)
    path = f"{FOLDER}/{0:020d}.log"
    files.contents[path].live[20] ^= 1
    before = bytes(files.contents[path].live)
    with pytest.raises(StorageError, match=f"cannot upgrade {FOLDER} .*{path} at byte 0: "):
        upgrade(files, PLAIN, clean=True)
    assert files.read_bytes(path) == before
    files.contents[path].live[20] ^= 1
    upgrade(files, PLAIN, clean=True)
    assert_upgraded(files, rows)


def test_offset_of_another_segment_is_damage():
    """The offset lies outside the checksum."""
    files, rows, _ = laid_down(MIXED)
    path = f"{FOLDER}/{0:020d}.log"
    sound = bytes(files.contents[path].live)
    last = len(sound) - len(message(1, 11, None, b"value 11 " * 4, 20)) - 2
    assert sound[last : last + 8] == (11).to_bytes(8, "big")
    files.contents[path].live[last + 7] = 12
    with pytest.raises(StorageError, match=f"{path} at byte {last}: offset 12 where 12 is the end"):
        upgrade(files, PLAIN, clean=True)
    files.contents[path].live[:] = sound
    upgrade(files, PLAIN, clean=True)
    assert_upgraded(files, rows)


# -- any folder


@st.composite
def folders(draw: st.DrawFn) -> list[tuple[int, list[Piece]]]:
    """Yields segments of pieces in any format and codec, with gaps between offsets anywhere."""
    result: list[tuple[int, list[Piece]]] = []
    offset = draw(st.integers(0, 5))
    for _ in range(draw(st.integers(1, 4))):
        base, pieces = offset, []
        for _ in range(draw(st.integers(1, 4))):
            magic = draw(st.sampled_from((0, 1, 2)))
            codec = draw(st.sampled_from((0, 0, 1, 2, 3) if magic < 2 else (0, 1, 4)))
            first = offset + draw(st.sampled_from((0, 0, 0, 1, 7)))
            steps = draw(st.lists(st.sampled_from((1, 1, 1, 2, 30)), max_size=4))
            times = draw(st.lists(st.integers(-1, 2**40), min_size=1, max_size=5))
            append_time = draw(st.none() | st.integers(0, 2**40))
            pieces.append(piece(magic, codec, first, steps, times, append_time=append_time))
            offset = pieces[-1].rows[-1][0] + 1
        result.append((base, pieces))
    return result


@settings(max_examples=settings().max_examples * 2 // 3)
@given(segments=folders(), data=st.data())
def test_any_folder_is_upgraded_or_interrupted_without_loss(segments: Segments, data: st.DataObject):
    config = LogConfig(
        index_interval_bytes=data.draw(st.sampled_from((0, 100, 4096))),
        segment_index_bytes=data.draw(st.sampled_from((36, 10**6))),
    )
    rng = random.Random(data.draw(st.integers(0, 99)))
    files, rows, end = laid_down(segments)
    log_start = data.draw(st.integers(segments[0][0], end))
    if interrupt(files, data.draw(st.integers(0, 120)), lambda: upgrade(files, config, recovery_point=end)):
        lose(files, data.draw(st.sampled_from(("kill", *KEEPS))), rng)
        assert recovered_rows(files, config, end) == rows
        upgrade(files, config, recovery_point=data.draw(st.sampled_from((0, end))))
    files.restart()
    assert_upgraded(files, rows)
    log = open_log(files, config=config, log_start_offset=log_start)
    assert served(log) == [row for row in rows if row[0] >= log_start]
    log.append(make(b"new"), now_ms=0)
    assert served(log)[-1][0] == end
    log.close()


def test_upgrade_on_a_real_disk(tmp_path: Path):
    simulated = SimulatedFiles()
    rows = lay_down(simulated, MIXED)
    for path, content in simulated.contents.items():
        (tmp_path / Path(path).name).write_bytes(content.live)
    seen: list[UpgradeProgress] = []
    log = open_log(DiskFiles(), tmp_path, config=SPLITTING, clean=False, upgrade=seen.append)
    assert served(log) == rows and seen[-1].done
    log.append(make(b"new"), now_ms=0)
    log.close()
    assert not list(tmp_path.glob("*.cleaned")) + list(tmp_path.glob("*.swap"))
    found = [header.magic for path in tmp_path.glob("*.log") for _, header in formats.headers(path.read_bytes())]
    assert set(found) == {2}
