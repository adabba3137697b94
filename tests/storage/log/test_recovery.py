"""Opening a folder with leftovers, holes and foreign files; and the exact bytes of the files."""

from __future__ import annotations

import pytest

from ottla.protocol.records.validate import Rules
from ottla.storage import errors
from ottla.storage.format import checkpoint
from ottla.storage.partition_log import LogConfig
from ottla_testing.storage.batches import FOLDER, make, open_log, values
from ottla_testing.storage.simulated_files import SimulatedFiles

# Two batches of one record each: key null, value "a" at 1000 ms and value "bc" at 1007 ms, leader epoch 0.
GOLDEN_LOG = bytes.fromhex(
    "0000000000000000 00000039 00000000 02 ebf1884b 0000 00000000 00000000000003e8 00000000000003e8"
    "ffffffffffffffff ffff ffffffff 00000001 0e 00 00 00 01 02 61 00"
    "0000000000000001 0000003a 00000000 02 15693a71 0000 00000000 00000000000003ef 00000000000003ef"
    "ffffffffffffffff ffff ffffffff 00000001 10 00 00 00 01 04 6263 00"
)


@pytest.fixture
def files() -> SimulatedFiles:
    return SimulatedFiles()


def put(files: SimulatedFiles, name: str, data: bytes) -> None:
    files.make_directory(FOLDER)
    file = files.open(f"{FOLDER}/{name}", create=True)
    file.truncate(0)
    file.write(0, data)


def raw(files: SimulatedFiles, base: int, suffix: str) -> bytes:
    return files.read_bytes(f"{FOLDER}/{base:020d}{suffix}")


def test_golden_bytes_of_a_segment(files: SimulatedFiles):
    log = open_log(files, config=LogConfig(index_interval_bytes=0))
    log.append(make(b"a", timestamp=1000), now_ms=0)
    log.append(make(b"bc", timestamp=1007), now_ms=0)
    log.append(make(b"d", timestamp=1003), now_ms=0)
    log.close()
    written = raw(files, 0, ".log")
    assert written[: len(GOLDEN_LOG)] == GOLDEN_LOG and len(GOLDEN_LOG) == 69 + 70
    assert raw(files, 0, ".index") == bytes.fromhex("00000001 00000045  00000002 0000008b")
    assert raw(files, 0, ".timeindex") == bytes.fromhex("00000000000003ef 00000001")


def test_golden_bytes_of_indexes_by_the_interval_rule(files: SimulatedFiles):
    """A batch gets an entry once more than the interval lies before it; the last time entry is that of the close."""
    log = open_log(files, config=LogConfig(index_interval_bytes=138))  # two batches of 69 bytes
    for number in range(8):
        log.append(make(b"a", timestamp=1000 + number), now_ms=0)
    log.close()
    assert raw(files, 0, ".index") == bytes.fromhex("00000003 000000cf  00000006 0000019e")
    assert raw(files, 0, ".timeindex") == bytes.fromhex(
        "00000000000003eb 00000003  00000000000003ee 00000006  00000000000003ef 00000007"
    )


def test_recovered_indexes_equal_written_ones_without_the_entries_of_a_close(files: SimulatedFiles):
    config = LogConfig(index_interval_bytes=138, segment_bytes=69 * 20)
    log = open_log(files, config=config)
    for number in range(70):
        log.append(make(b"a", timestamp=1000 + number * 31 % 50), now_ms=0)
    log.close()
    names = [name for name in files.list(FOLDER) if "index" in name]
    before = {name: files.read_bytes(f"{FOLDER}/{name}") for name in names}
    assert len(names) == 8
    for name in names:
        files.remove(f"{FOLDER}/{name}")
    open_log(files, config=config, clean=False).close()
    assert {name: files.read_bytes(f"{FOLDER}/{name}") for name in names} == before


# -- leftovers


def three_segments(files: SimulatedFiles, compacted: bool = False) -> LogConfig:
    config = LogConfig(segment_bytes=69 * 2, rules=Rules(compacted=compacted, walk_records=False))
    log = open_log(files, config=LogConfig(segment_bytes=69 * 2))
    for number in range(6):
        log.append(make(b"%d" % number), now_ms=0)
    log.close()
    return config


def test_deleted_and_temporary_files_and_orphaned_indexes_are_removed(files: SimulatedFiles):
    config = three_segments(files)
    for name in (f"{0:020d}.log.deleted", f"{7:020d}.index", f"{7:020d}.txnindex", "leader-epoch-checkpoint.tmp"):
        put(files, name, b"x")
    log = open_log(files, config=config)
    assert values(log) == [b"%d" % number for number in range(6)]
    left = set(files.list(FOLDER))
    assert not {name for name in left if name.endswith((".deleted", ".tmp")) or name.startswith(f"{7:020d}")}


def cleaned(files: SimulatedFiles) -> bytes:
    """Returns the first two segments cleaned into one: offsets 1 and 3 are left of 0 to 3."""
    return raw(files, 0, ".log")[69:] + raw(files, 2, ".log")[69:]


@pytest.mark.parametrize("clean", [True, False])
def test_unfinished_swap_is_completed(files: SimulatedFiles, clean: bool):
    config = three_segments(files, compacted=True)
    output = cleaned(files)
    files.remove(f"{FOLDER}/{2:020d}.index")  # the swap had reached this step
    put(files, f"{0:020d}.log.swap", output)
    put(files, f"{0:020d}.index.swap", b"")
    log = open_log(files, config=config, clean=clean)
    assert values(log) == [b"1", b"3", b"4", b"5"]
    assert log.log_end_offset == 6
    assert not [name for name in files.list(FOLDER) if name.endswith(".swap")]


@pytest.mark.parametrize("clean", [True, False])
def test_incomplete_cleaning_is_discarded(files: SimulatedFiles, clean: bool):
    config = three_segments(files, compacted=True)
    output = cleaned(files)
    put(files, f"{0:020d}.log.cleaned", output)
    put(files, f"{2:020d}.log.swap", output)
    log = open_log(files, config=config, clean=clean)
    assert values(log) == [b"%d" % number for number in range(6)]
    assert not [name for name in files.list(FOLDER) if name.endswith((".swap", ".cleaned"))]


# -- holes and foreign data


def test_gap_between_segments_ends_an_uncompacted_log(files: SimulatedFiles):
    """The end of a segment never reached the disk, the next segment did."""
    config = three_segments(files)
    del files.contents[f"{FOLDER}/{0:020d}.log"].live[69:]
    log = open_log(files, config=config, clean=False)
    assert values(log) == [b"0"] and log.log_end_offset == 1
    assert [name for name in files.list(FOLDER) if name.endswith(".log")] == [f"{0:020d}.log"]


def test_gap_in_a_compacted_log_or_below_the_recovery_point_is_kept(files: SimulatedFiles):
    config = three_segments(files, compacted=True)
    del files.contents[f"{FOLDER}/{0:020d}.log"].live[69:]
    assert values(open_log(files, config=config, clean=False)) == [b"0", b"2", b"3", b"4", b"5"]
    log = open_log(files, config=LogConfig(), clean=False, recovery_point=2)
    assert values(log) == [b"0", b"2", b"3", b"4", b"5"]
    assert log.read(1, 1).records == log.read(2, 1).records  # the next existing offset


def test_log_that_ends_below_its_log_start_restarts_there(files: SimulatedFiles):
    three_segments(files)
    log = open_log(files, log_start_offset=50, clean=False)
    assert (log.log_start_offset, log.log_end_offset, values(log)) == (50, 50, [])
    assert log.append(make(b"a"), now_ms=0).base_offset == 50
    assert [name for name in files.list(FOLDER) if name.endswith(".log")] == [f"{50:020d}.log"]


def test_recovery_point_above_the_log_end_is_set_to_the_end(files: SimulatedFiles):
    config = three_segments(files)
    del files.contents[f"{FOLDER}/{4:020d}.log"].live[69:]
    log = open_log(files, config=config, clean=False, recovery_point=6)
    assert (log.log_end_offset, log.recovery_point) == (5, 5)
    assert open_log(files, config=config, clean=False, recovery_point=2).recovery_point == 2


def test_empty_newest_segment_and_zeros_after_the_log_are_recovered(files: SimulatedFiles):
    config = three_segments(files)
    put(files, f"{6:020d}.log", b"")
    log = open_log(files, config=config)
    assert (log.log_end_offset, len(values(log))) == (6, 6)
    log.abandon()
    put(files, f"{6:020d}.log", bytes(5000))
    log = open_log(files, config=config, clean=False)
    assert (log.log_end_offset, log.cut_bytes, len(values(log))) == (6, 5000, 6)
    log.abandon()
    put(files, f"{6:020d}.log", bytes(5000))
    assert open_log(files, config=config, clean=True).cut_bytes == 5000


# -- checkpoints


@pytest.mark.parametrize(
    "text",
    [
        b"1\n0\n",
        b"0\n1\n",
        b"0\n0\na 0 1\n",
        b"0\n1\na 0\n",
        b"0\n1\na x 1\n",
        b"0\n1\na 0 1",
        b"x",
        b"0\n",
        b"\xff\n",
        b"\n",
    ],
)
def test_malformed_checkpoint_raises(files: SimulatedFiles, text: bytes):
    put(files, "c", text)
    with pytest.raises(errors.StorageError, match="malformed"):
        checkpoint.read_offsets(files, f"{FOLDER}/c")


def test_written_checkpoint_is_read_back(files: SimulatedFiles):
    put(files, "empty", b"")
    assert checkpoint.read_offsets(files, f"{FOLDER}/empty") == checkpoint.read_offsets(files, f"{FOLDER}/none") == {}
    offsets = {("b-1", 0): 7, ("a", 10): 2**62, ("a", 2): 0}
    checkpoint.write_offsets(files, f"{FOLDER}/c", offsets)
    assert files.read_bytes(f"{FOLDER}/c") == b"0\n3\na 2 0\na 10 4611686018427387904\nb-1 0 7\n"
    assert checkpoint.read_offsets(files, f"{FOLDER}/c") == offsets
