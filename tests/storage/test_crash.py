"""Kills, power losses, full disks, damaged bytes: acknowledged records are there again, or cut from the end."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import random
from collections.abc import Callable, Sequence
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.protocol.records import batch
from ottla.storage import errors
from ottla.storage.partition_log import LogConfig, PartitionLog
from ottla.storage.segments.segment import Segment
from ottla_testing.each import each, taken
from ottla_testing.storage.batches import FOLDER, GZIP, make, old, open_log, sequenced, values
from ottla_testing.storage.simulated_files import Killed, SimulatedFile, SimulatedFiles

CONFIG = LogConfig(segment_bytes=600, index_interval_bytes=150)


def work(files: SimulatedFiles, acknowledged: list[bytes], flushed: list[int]) -> None:
    """Opens, appends over several segments, flushes now and then, closes."""
    log = open_log(files, config=CONFIG)
    for number in range(16):
        value = b"%02d" % number * (1 + number % 7 * 8)
        log.append(make(value, timestamp=number, producer_id=9, producer_epoch=0, base_sequence=number), now_ms=0)
        acknowledged.append(value)
        if number % 5 == 4:
            log.flush()
            flushed.append(len(acknowledged))
    log.close()


def work_mixed(files: SimulatedFiles, acknowledged: list[bytes], flushed: list[int]) -> None:
    """Does the same with sets of all formats, two or three records each, each kind after each other one."""
    log = open_log(files, config=CONFIG)
    for number in range(16):
        many = [b"%d-%d" % (number, n) * 4 for n in range(2 + number % 2)]
        sets = [
            old(0, *many),
            make(*many, timestamp=number),
            old(1, *many, codec=GZIP, timestamp=number),
            old(1, *many, timestamp=number),
            old(0, *many, codec=GZIP),
        ]
        append(log, sets[number * (1 + number // 5) % 5])
        acknowledged += many
        if number % 5 == 4:
            log.flush()
            flushed.append(len(acknowledged))
    log.close()


def append(log: PartitionLog, data: bytearray) -> None:
    """Appends a set of any format, in its own format."""
    magic = data[16]
    log.configure(dataclasses.replace(CONFIG, rules=dataclasses.replace(CONFIG.rules, target_magic=magic)))
    log.append(data, now_ms=0, produce_version=(1, 2, 13)[magic])


Work = Callable[[SimulatedFiles, list[bytes], list[int]], None]


def cases(first: int = 0, by: int = 1) -> list[tuple[Work, int]]:
    """Yields each kind of work with the steps at which it may be interrupted."""
    found: list[tuple[Work, int]] = []
    for kind in (work, work_mixed):
        files = SimulatedFiles()
        kind(files, [], [])
        found += [(kind, step) for step in range(first, files.steps, by)]
    return found


def is_beginning(found: Sequence[bytes | None], kind: Work, acknowledged: list[bytes]) -> bool:
    """Returns whether all acknowledged records are there, and of the interrupted append none, a beginning, or all."""
    everything: list[bytes] = []
    kind(SimulatedFiles(), everything, [])
    more = len(found) - len(acknowledged)
    return found == everything[: len(found)] and 0 <= more <= (1 if kind is work else 3)


def indexes(log: PartitionLog) -> list[tuple[list[int], ...]]:
    """Returns the entries of each segment's indexes, with the last time entry, which a roll or a close adds."""
    result = []
    for segment in log._segments:
        segment.load()
        offsets, times = segment._offset_index, segment._time_index
        stamps, stamp_offsets = list(times.timestamps), list(times.offsets)
        if segment.max_timestamp_ms > max(stamps, default=-1):
            stamps.append(segment.max_timestamp_ms)
            stamp_offsets.append(segment.max_timestamp_offset - segment.base_offset)
        result.append((list(offsets.offsets), list(offsets.positions), stamps, stamp_offsets))
    return result


def assert_continues(files: SimulatedFiles, log: PartitionLog) -> None:
    """Asserts that the log takes records, its indexes match its bytes, and a clean reopening finds the same."""
    found = values(log)
    known = sorted(indexes(log))
    for segment in log._segments:
        segment.rebuild()
    assert sorted(indexes(log)) == known
    log.append(make(b"new", timestamp=10**6), now_ms=0)
    producer = log._known_producers().get(9)
    if producer is not None:
        again = producer.batches[-1]
        assert log.append(sequenced(again.first_sequence), now_ms=0).base_offset == again.base_offset
        assert not log.append(sequenced(again.last_sequence + 1), now_ms=0).duplicate
        found = [*found, b"new", b"%d" % (again.last_sequence + 1)]
    else:
        found = [*found, b"new"]
    assert values(log) == found
    log.close()
    log = open_log(files, config=CONFIG)
    assert values(log) == found and log.find_timestamp(10**6) is not None
    log.close()


@each(("kind", "step"), cases(), strided=True)
def test_kill_at_any_step_keeps_every_acknowledged_batch(kind: Work, step: int):
    for portion in taken((0.0, 0.3, 0.7, 0.99, 1.0)):
        files, acknowledged = SimulatedFiles(), []
        files.fail_at, files.killing, files.portion = step, True, portion
        with pytest.raises(Killed):
            kind(files, acknowledged, [])
        files.restart()
        log = open_log(files, config=CONFIG, clean=False)
        # One more batch may be whole on the disk than was acknowledged, or a part of a set.
        assert is_beginning(values(log), kind, acknowledged)
        assert_continues(files, log)


@each(("kind", "step"), cases(), strided=True)
def test_kill_during_recovery_keeps_every_acknowledged_batch(kind: Work, step: int):
    files, acknowledged = SimulatedFiles(), []
    files.fail_at, files.killing = step, True
    with pytest.raises(Killed):
        kind(files, acknowledged, [])
    recovery_step = 0
    while True:
        files.restart()
        files.fail_at, files.killing = recovery_step, True
        try:
            open_log(files, config=CONFIG, clean=False)
            break
        except Killed:
            recovery_step += 1
    files.restart()
    log = open_log(files, config=CONFIG, clean=False)
    assert is_beginning(values(log), kind, acknowledged)
    assert_continues(files, log)


def test_kill_during_deletion_of_newer_segments_leaves_no_gap():
    kills = 0
    while True:
        files, acknowledged = SimulatedFiles(), []
        work(files, acknowledged, [])
        second = sorted(name for name in files.list(FOLDER) if name.endswith(".log"))[1]
        files.contents[f"{FOLDER}/{second}"].live[-1] ^= 1
        files.restart()
        files.fail_at, files.killing = kills, True
        try:
            open_log(files, config=CONFIG, clean=False)
            break
        except Killed:
            kills += 1
        # Regardless of the deletions before the kill, the bad batch is still there and ends the log again.
        files.restart()
        found = values(open_log(files, config=CONFIG, clean=False))
        assert found == acknowledged[: len(found)] and 0 < len(found) < len(acknowledged)
    assert kills > 6


def test_indexes_of_a_rolled_segment_are_durable_before_the_next_segment():
    files = SimulatedFiles()
    log = open_log(files, config=CONFIG)
    while len(log._segments) < 2:
        log.append(make(b"x" * 40, timestamp=log.log_end_offset), now_ms=0)
    names = [f"{FOLDER}/{0:020d}{suffix}" for suffix in (".index", ".timeindex")]
    written = [files.read_bytes(name) for name in names]
    assert all(written)
    log.flush()
    assert [files.contents[name].durable for name in names] == written
    for name in names:
        assert files.log.index(f"create {name}") < files.log.index(
            f"create {FOLDER}/{log._active.base_offset:020d}.log"
        )


KEEPS: dict[str, Callable[[random.Random], Callable[[str, int, int], int]]] = {
    "nothing": lambda rng: lambda path, durable, live: durable,
    "part": lambda rng: lambda path, durable, live: rng.randint(min(durable, live), max(durable, live)),
    "one file all, another nothing": lambda rng: lambda path, durable, live: rng.choice((durable, live)),
}


@pytest.mark.parametrize("keep", KEEPS)
@each(("kind", "step"), cases(2, 3), strided=True)
def test_power_loss_at_any_step_leaves_a_prefix_with_all_flushed_batches(kind: Work, step: int, keep: str):
    rng = random.Random(step)
    for garbage in (b"", bytes(2000), rng.randbytes(2000)):
        files, acknowledged, flushed = SimulatedFiles(), [], [0]
        files.fail_at, files.killing, files.portion = step, True, 0.5
        with pytest.raises(Killed):
            kind(files, acknowledged, flushed)
        written: list[bytes] = []
        kind(SimulatedFiles(), written, [])
        files.lose_power(KEEPS[keep](rng), garbage)
        log = open_log(files, config=CONFIG, clean=False, recovery_point=flushed[-1])
        found = values(log)
        assert found == written[: len(found)] and len(found) >= flushed[-1]
        assert_continues(files, log)


@pytest.mark.parametrize("mixed", [False, True])
@each("step", range(max(step for _, step in cases()) + 1), strided=True)
def test_disk_error_at_any_step_keeps_every_acknowledged_batch(step: int, mixed: bool):
    for portion in (0.0, 0.5, 1.0):
        files, acknowledged = SimulatedFiles(), []
        files.fail_at, files.portion = step, portion
        log = None
        while log is None:
            with contextlib.suppress(errors.StorageError):
                log = open_log(files, config=CONFIG)
        for number in range(16):
            value = b"%02d" % number * 9
            while value is not None:
                try:
                    if mixed:
                        sets = old(0, value, value), make(value, value), old(1, value, value, codec=GZIP)
                        append(log, sets[number % 3])
                        acknowledged.append(value)
                    else:
                        log.append(make(value), now_ms=0)
                    acknowledged.append(value)
                    value = None
                except errors.StorageError:
                    assert values(log) == acknowledged
        assert values(log) == acknowledged
        try:
            log.close()
            clean = True
        except errors.StorageError:
            clean = False
        files.restart()
        log = open_log(files, config=CONFIG, clean=clean)
        assert values(log) == acknowledged
        assert_continues(files, log)


def test_full_disk_leaves_no_partial_batch_and_appends_resume_with_space():
    files = SimulatedFiles()
    log = open_log(files)
    log.append(sequenced(0), now_ms=0)
    size = log.size_bytes
    files.capacity = files.used() + 30
    for _ in range(2):
        with pytest.raises(errors.StorageError, match="no space"):
            log.append(sequenced(1), now_ms=0)
        assert files.size(f"{FOLDER}/{0:020d}.log") == size == log.size_bytes
        assert values(log) == [b"0"]
    with pytest.raises(errors.OutOfOrderSequence):  # the batch that was not written is unknown
        log.append(sequenced(2), now_ms=0)
    files.capacity = 1 << 40
    assert log.append(sequenced(1), now_ms=0).base_offset == 1
    assert values(log) == [b"0", b"1"]


def test_partial_batch_is_cut_before_the_next_write_if_truncation_failed():
    files = SimulatedFiles()
    log = open_log(files)
    log.append(make(b"first"), now_ms=0)
    size = log.size_bytes
    files.capacity = files.used() + 30
    files.failing = lambda operation, path: operation == "truncate"
    with pytest.raises(errors.StorageError):
        log.append(make(b"lost" * 20), now_ms=0)
    assert files.size(f"{FOLDER}/{0:020d}.log") == size + 30
    assert values(log) == [b"first"]
    files.capacity = 1 << 40
    with pytest.raises(errors.StorageError):
        log.append(make(b"x"), now_ms=0)
    files.failing = lambda operation, path: False
    log.append(make(b"x"), now_ms=0)
    assert values(log) == [b"first", b"x"] and files.size(f"{FOLDER}/{0:020d}.log") == log.size_bytes


def test_failed_sync_takes_the_log_offline_until_reopened():
    files = SimulatedFiles()
    log = open_log(files)
    log.append(make(b"a"), now_ms=0)
    assert log.flush() == 1
    log.append(make(b"b"), now_ms=0)
    files.failing = lambda operation, path: operation == "sync"
    with pytest.raises(errors.StorageError):
        log.flush()
    files.failing = lambda operation, path: False
    for attempt in (lambda: log.append(make(b"c"), now_ms=0), log.flush):
        with pytest.raises(errors.StorageError, match="sync failed"):
            attempt()
    assert values(log) == [b"a", b"b"] and log.recovery_point == 1
    with pytest.raises(errors.StorageError):
        log.close()
    log = open_log(files, clean=False, recovery_point=1)
    assert log.append(make(b"c"), now_ms=0).base_offset == 2
    assert log.flush() == 3


def test_sync_without_a_file_descriptor_can_be_retried(monkeypatch: pytest.MonkeyPatch):
    files = SimulatedFiles()
    log = open_log(files)
    log.append(make(b"a"), now_ms=0)

    def no_descriptor(path: str, *, create: bool = False) -> SimulatedFile:
        raise OSError(errno.EMFILE, "too many open files", path)

    with monkeypatch.context() as patch:
        patch.setattr(files, "open", no_descriptor)
        with pytest.raises(errors.StorageError, match="too many open files"):
            log.flush()
    assert log.append(make(b"b"), now_ms=0).base_offset == 1
    files.log.clear()
    assert log.flush() == log.recovery_point == 2
    assert {line for line in files.log if "sync" in line} >= {
        f"sync {FOLDER}/{0:020d}.log",
        f"sync {FOLDER}/leader-epoch-checkpoint",
        f"syncdir {FOLDER}",
    }


def test_flipped_bit_of_the_last_batch_cuts_only_there():
    files = SimulatedFiles()
    log = open_log(files)
    for number in range(3):
        log.append(sequenced(number), now_ms=0)
    log.close()
    path = f"{FOLDER}/{0:020d}.log"
    sound = files.read_bytes(path)
    size = len(sound) // 3
    # Base offset and leader epoch lie outside the CRC; an offset may only rise, an epoch is not checked.
    outside = {*range(2 * size, 2 * size + 8), *range(2 * size + 12, 2 * size + 16)}
    for position in range(2 * size, 3 * size):
        for bit in range(8):
            files.contents[path].live[:] = sound
            files.contents[path].live[position] ^= 1 << bit
            log = open_log(files, clean=False)
            # An offset too far from the segment's base is invalid; so is one below the last batch.
            offset = int.from_bytes(files.contents[path].live[2 * size : 2 * size + 8], "big", signed=True)
            assert log.log_end_offset == (offset + 1 if position in outside and 2 <= offset < 2**31 else 2)
            if position not in outside:
                assert (log.log_end_offset, log.cut_bytes, files.size(path)) == (2, size, 2 * size)
                assert values(log) == [b"0", b"1"]
                assert log._known_producers()[9].batches[-1].last_sequence == 1
            log.abandon()


@given(cut=st.integers(0, 10_000), garbage=st.binary(max_size=200), data=st.data())
def test_torn_tail_is_cut_at_a_batch_and_later_segments_are_removed(cut: int, garbage: bytes, data: st.DataObject):
    files, acknowledged = SimulatedFiles(), []
    work(files, acknowledged, [])
    logs = sorted(name for name in files.list(FOLDER) if name.endswith(".log"))
    torn = data.draw(st.sampled_from(logs))
    live = files.contents[f"{FOLDER}/{torn}"].live
    cut %= len(live) + 1
    live[:] = live[:cut] + garbage
    log = open_log(files, config=CONFIG, clean=False)
    found = values(log)
    assert found == acknowledged[: len(found)]
    assert_continues(files, log)


DAMAGES = ["missing", "empty", "odd", "zeros", "random", "shifted", "middle entry", "last entry", "short"]


@pytest.mark.parametrize(
    ("damage", "suffix", "clean"),
    # A time index that lost whole entries after a clean shutdown is not detected, see FORMAT.md.
    sorted({*product(DAMAGES, (".index", ".timeindex"), (True, False))} - {("short", ".timeindex", True)}),
)
def test_damaged_indexes_are_rebuilt(suffix: str, damage: str, clean: bool):
    files = SimulatedFiles()
    config = LogConfig(segment_bytes=3000, index_interval_bytes=150)
    log = open_log(files, config=config)
    stamps = [(number * 37) % 100 for number in range(90)]
    for stamp in stamps:
        log.append(make(b"v", timestamp=stamp), now_ms=0)
    log.close()
    rng = random.Random(7)
    for name in [name for name in files.list(FOLDER) if name.endswith(suffix)]:
        live = files.contents[f"{FOLDER}/{name}"].live
        before = bytes(live)
        entry = 8 if suffix == ".index" else 12
        middle = min(2 * entry, len(before))
        if damage == "missing":
            files.remove(f"{FOLDER}/{name}")
            continue
        live[:] = {
            "empty": b"",
            "odd": before[:-1],
            "zeros": before + bytes(entry * 10),
            "random": rng.randbytes(len(before)),
            "shifted": before[entry // 2 :] + bytes(entry // 2),
            "middle entry": before[: middle - 1] + bytes([before[middle - 1] ^ 1]) + before[middle:],
            "last entry": before[:-1] + bytes([before[-1] ^ 1]),
            "short": before[: -len(before) // entry // 2 * entry],
        }[damage]
    log = open_log(files, config=config, clean=clean)
    if damage == "middle entry":  # followed first by the end of a slice, then by its start
        assert all(len(log.read(offset, 500).records) % 69 == 0 for offset in range(0, 90, 20))
    for offset in range(90):
        assert batch.read_header(log.read(offset, 1).records).base_offset == offset
    for wanted in range(100):
        assert log.find_timestamp(wanted) == next(((t, o, 0) for o, t in enumerate(stamps) if t >= wanted), None)
    assert log.max_timestamp() == (max(stamps), stamps.index(max(stamps)), 0)
    log.close()
    log = open_log(files, config=config)
    assert [len(indexed[0]) for indexed in indexes(log)] == [len(indexed[0]) for indexed in rebuilt(log)]


@pytest.mark.parametrize("bit", range(11))
def test_largest_timestamp_ignores_an_invalid_index_entry(bit: int):
    files = SimulatedFiles()
    log = open_log(files, config=LogConfig(index_interval_bytes=0, segment_bytes=700))
    for number, timestamp in enumerate((14, 64, 0, 0, 0, 0)):
        log.append(make(b"x" * (400 if number == 1 else 1), timestamp=timestamp), now_ms=0)
    assert len(log._segments) == 2
    log.close()
    live = files.contents[f"{FOLDER}/{0:020d}.index"].live
    live[7 - bit // 8] ^= 1 << bit % 8  # the position of offset 1
    assert open_log(files).max_timestamp() == (64, 1, 0)


def rebuilt(log: PartitionLog) -> list[tuple[list[int], ...]]:
    for segment in log._segments:
        assert isinstance(segment, Segment)
        segment.rebuild()
    return indexes(log)
