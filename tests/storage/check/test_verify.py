"""Verification: sound directories have no faults, and every damaged byte is found or harmless."""

from __future__ import annotations

import itertools
import shutil
import struct
from bisect import bisect_left
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.protocol.records import batch
from ottla.storage import inspect
from ottla.storage.check.directory import Finding, Verification
from ottla.storage.check.partition import Circumstances, Walk
from ottla.storage.errors import StorageError
from ottla.storage.format import checkpoint, clean_close
from ottla.storage.format.partition_metadata import read_topic_id
from ottla.storage.io.files import DiskFiles
from ottla.storage.log_dir.directory import CLEAN_SHUTDOWN, DataDirectory
from ottla.storage.partition_log import LogConfig
from ottla_testing import GOLDEN
from ottla_testing.each import each
from ottla_testing.storage.batches import make, old, sequenced, storing

RELEASES = ("2.8.2", "3.9.1", "4.3.1")
CONFIG = LogConfig(segment_bytes=2000, index_interval_bytes=200)
TOPIC_ID = bytes(range(16))
HARMLESS = {".lock", CLEAN_SHUTDOWN}  # only their names matter
HARMLESS.add(clean_close.FILE_NAME)  # a damaged one is ignored


def fill(root: Path) -> None:
    """Makes a closed directory: two partitions, all formats, producers, several segments, deleted records; and one of
    Apache Kafka's with aborted transactions."""
    shutil.copytree(GOLDEN / "logs" / "transactions-0", root / "transactions-0")
    directory = DataDirectory.open(DiskFiles(), root, node_id=1)
    log = directory.open_partition("orders", 0, topic_id=TOPIC_ID, config=CONFIG, now_ms=0)
    for number in range(30):
        log.append(sequenced(number * 3, 3, timestamp=1000 + number), now_ms=0)
        log.append(make(b"x" * 50, b"y" * 50, timestamp=1000 + number, codec=1), now_ms=0)
    log.delete_records_before(4)
    log = directory.open_partition("orders", 1, topic_id=TOPIC_ID, config=storing(1), now_ms=0)
    for number in range(20):
        log.append(old(1, b"a" * 30, b"b", timestamp=2000 + number), now_ms=0, produce_version=2)
    directory.open_partition("transactions", 0, config=CONFIG, now_ms=0)
    directory.close()


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("sound") / "data"
    fill(root)
    return root


@pytest.fixture(scope="module")
def changed(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path, str, bytes], Path]:
    root = tmp_path_factory.mktemp("changed") / "data"

    def change(source: Path, name: str, data: bytes) -> Path:
        shutil.rmtree(root, ignore_errors=True)
        shutil.copytree(source, root)
        (root / name).write_bytes(data)
        return root

    return change


def wrong(root: Path, *, gaps: bool = False, deep: bool = False) -> list[Finding]:
    looked = Verification(root, may_have_gaps=lambda topic: gaps, deep=deep)
    return [finding for finding in looked.findings() if finding.wrong]


def notes(root: Path) -> list[Finding]:
    return [finding for finding in Verification(root).findings() if not finding.wrong]


def files(root: Path) -> list[str]:
    return sorted(p.relative_to(root).as_posix() for p in root.rglob("*") if p.is_file() and p.name not in HARMLESS)


# -- sound


@pytest.mark.parametrize("deep", [False, True])
def test_closed_directory_has_no_finding_and_is_fully_read(sound: Path, deep: bool) -> None:
    looked = Verification(sound, may_have_gaps=lambda topic: False, deep=deep)
    assert list(looked.findings()) == []
    assert looked.report.clean
    assert looked.report.partitions == 3
    assert looked.report.segments == len(list(sound.rglob("*.log")))
    assert looked.report.bytes == sum(path.stat().st_size for path in sound.rglob("*.log"))


def golden() -> Iterator[inspect.PartitionFolder]:
    for name in ("logs", "producers/2.8.2", "producers/3.9.1"):
        yield from inspect.partitions(GOLDEN / name)


@each("folder", list(golden()))
@each("deep", [False, True])
def test_kafkas_partitions_have_no_finding(folder: inspect.PartitionFolder, deep: bool) -> None:
    names = [path.name for path in Path(folder.path).iterdir()]
    circumstances = Circumstances(gaps=folder.topic.startswith("gaps"), deep=deep)
    assert list(Walk(folder, names, circumstances).findings()) == []


KAFKA_PROPERTIES = b"""#
#Sat Nov 21 12:00:00 UTC 2026
cluster.id=MkU3OEVBNTcwNTJENDM2Qg
directory.id=IxZv5bBlQ5u5Ckq8pYt8Zg
node.id=1
version=1
"""


def kafkas_directory(root: Path) -> dict[tuple[str, int], int]:
    """Makes a whole directory as a KRaft broker leaves it: partitions written by Kafka, and the files beside and in
    them. Returns the log end offsets."""
    ends = {("__cluster_metadata", 0): 3}
    for folder in inspect.partitions(GOLDEN / "logs"):
        shutil.copytree(folder.path, root / Path(folder.path).name)
        last = [b for b in inspect.segment(folder.segments[-1].path) if isinstance(b, inspect.BatchFacts)][-1]
        ends[folder.topic, folder.partition] = last.header.next_offset
    metadata = root / "__cluster_metadata-0"
    metadata.mkdir()
    log = b"".join(bytes(batch.build([batch.Record(at, 1, None, b"v")], base_offset=at)) for at in range(3))
    (metadata / "00000000000000000000.log").write_bytes(log)
    (metadata / "00000000000000000003-0000000001.checkpoint").write_bytes(log)
    (metadata / "00000000000000000002-0000000001.checkpoint.part").write_bytes(log[:9])
    (metadata / "quorum-state").write_text('{"leaderId":1,"leaderEpoch":1,"votedId":-1,"data_version":1}')
    (metadata / "partition.metadata").write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ")
    (root / "bootstrap.checkpoint").write_bytes(log)
    (root / ".lock").touch()
    (root / "meta.properties").write_bytes(KAFKA_PROPERTIES)
    (root / CLEAN_SHUTDOWN).write_bytes(b'{"version":0,"brokerEpoch":4}')
    of_topics = {key: end for key, end in ends.items() if key[0] != "__cluster_metadata"}
    for name in (checkpoint.RECOVERY_POINT, checkpoint.REPLICATION_OFFSET):
        checkpoint.write_offsets(DiskFiles(), str(root / name), of_topics)
    checkpoint.write_offsets(DiskFiles(), str(root / checkpoint.LOG_START_OFFSET), {})
    checkpoint.write_offsets(DiskFiles(), str(root / checkpoint.CLEANER_OFFSET), {("gaps-v2-none", 0): 1})
    return ends


def test_kafkas_whole_directory_has_no_finding(tmp_path: Path) -> None:
    ends = kafkas_directory(tmp_path)
    looked = Verification(tmp_path, may_have_gaps=lambda topic: topic.startswith("gaps"), deep=True)
    assert [finding for finding in looked.findings() if finding.wrong] == []
    assert looked.report.partitions == len(ends)
    by_version_0 = KAFKA_PROPERTIES.replace(b"node.id", b"broker.id").replace(b"version=1", b"version=0")
    (tmp_path / "meta.properties").write_bytes(by_version_0)
    assert wrong(tmp_path, gaps=True) == []


@pytest.mark.parametrize("name", [*RELEASES, *(f"{release}-killed" for release in RELEASES)])
@pytest.mark.parametrize("deep", [False, True])
def test_kafkas_directories_have_no_finding(name: str, deep: bool) -> None:
    looked = Verification(GOLDEN / "directories" / name, deep=deep)
    assert [finding for finding in looked.findings() if finding.wrong] == []
    assert looked.report.clean != name.endswith("-killed")
    assert looked.report.partitions > 0


def test_damage_outside_partitions_of_kafkas_directory_is_found(tmp_path: Path) -> None:
    ends = kafkas_directory(tmp_path)
    key = ("transactions", 0)
    for name in checkpoint.OF_DIRECTORY:
        was = (tmp_path / name).read_bytes()
        for offset in (-1, ends[key] + 1):
            known = checkpoint.read_offsets(DiskFiles(), str(tmp_path / name))
            checkpoint.write_offsets(DiskFiles(), str(tmp_path / name), {**known, key: offset})
            assert [(f.file, f.offset) for f in wrong(tmp_path, gaps=True)] == [(name, offset)]
        for damaged in (was[:-1], b"1" + was[1:], was + b"x\n"):
            (tmp_path / name).write_bytes(damaged)
            assert [f.file for f in wrong(tmp_path, gaps=True)] == [name]
        (tmp_path / name).write_bytes(was)
    for damaged in (b"", b"node.id", KAFKA_PROPERTIES.replace(b"=1\n", b"=x\n"), b"\xff", b"version=1\nnode.id=1\n"):
        (tmp_path / "meta.properties").write_bytes(damaged)
        assert [(f.file, f.part) for f in wrong(tmp_path, gaps=True)] == [("meta.properties", "identity")]


def test_abort_missing_in_the_transaction_index_is_found(sound: Path, changed) -> None:
    name = "transactions-0/00000000000000000003.txnindex"
    root = changed(sound, name, (sound / name).read_bytes()[34:])
    assert [(f.file, f.part) for f in wrong(root)] == [(name, "transactions")]
    assert wrong(root)[0].what.endswith("is missing")


def test_missing_offsets_of_an_uncompacted_log_are_found(tmp_path: Path) -> None:
    made = [bytes(batch.build([batch.Record(at, 1000, None, b"v")], base_offset=at)) for at in (0, 1, 5)]
    (tmp_path / "orders-0").mkdir()
    (tmp_path / "orders-0" / "00000000000000000000.log").write_bytes(b"".join(made))
    assert [f.what for f in wrong(tmp_path)] == ["offsets 2-4 are missing before it"]
    assert wrong(tmp_path, gaps=True) == []


def test_preallocated_indexes_of_killed_kafka_have_no_finding(sound: Path, changed) -> None:
    last = sorted((sound / "orders-0").glob("*.index"))[-1]
    name = last.relative_to(sound).as_posix()
    root = changed(sound, name, last.read_bytes() + bytes(800))
    assert [finding.file for finding in wrong(root)] == [name]
    (root / CLEAN_SHUTDOWN).unlink()
    assert wrong(root) == []


def test_preallocated_indexes_of_the_metadata_have_no_finding(sound: Path, tmp_path: Path) -> None:
    """Kafka 4.4.0 leaves them so when it is stopped, and closes all other logs."""
    (root := tmp_path / "data").mkdir()
    (root / CLEAN_SHUTDOWN).write_bytes((sound / CLEAN_SHUTDOWN).read_bytes())
    shutil.copytree(sound / "orders-0", root / "__cluster_metadata-0")
    for suffix, size in ((".index", 8), (".timeindex", 12)):
        last = sorted((root / "__cluster_metadata-0").glob(f"*{suffix}"))[-1]
        last.write_bytes(last.read_bytes() + bytes(100 * size))
    assert [finding for finding in wrong(root) if finding.part == "index"] == []
    (root / "__cluster_metadata-0").rename(root / "orders-0")
    assert len([finding for finding in wrong(root) if finding.part == "index"]) == 2


def test_incomplete_last_entry_is_found_only_in_a_closed_directory(sound: Path, changed) -> None:
    last = sorted((sound / "orders-0").glob("*.log"))[-1]
    name = last.relative_to(sound).as_posix()
    root = changed(sound, name, last.read_bytes() + bytes(make(b"more"))[:40])
    assert [(f.file, f.byte) for f in wrong(root)] == [(name, last.stat().st_size)]
    (root / CLEAN_SHUTDOWN).unlink()
    assert wrong(root) == []
    assert [f.byte for f in notes(root)] == [last.stat().st_size]


def test_incomplete_last_entry_of_an_older_segment_is_found(sound: Path, changed) -> None:
    first = sorted((sound / "orders-0").glob("*.log"))[0]
    name = first.relative_to(sound).as_posix()
    root = changed(sound, name, first.read_bytes()[:-5])
    (root / CLEAN_SHUTDOWN).unlink()
    assert name in [finding.file for finding in wrong(root)]


def test_leftover_files_are_listed_as_harmless(sound: Path, changed) -> None:
    root = changed(sound, "orders-0/00000000000000000000.log.deleted", b"")
    for name in ("orders-0/00000000000000000000.log.cleaned", "orders-0/00000000000000000000.log.swap", "x.tmp"):
        (root / name).write_bytes(b"")
    (root / f"old-0.{'0' * 32}-delete").mkdir()
    assert wrong(root) == []
    assert len([f for f in notes(root) if f.part == "leftover"]) == 5


def test_verify_of_a_directory_in_use(tmp_path: Path) -> None:
    directory = DataDirectory.open(DiskFiles(), tmp_path, node_id=1)
    log = directory.open_partition("orders", 0, topic_id=TOPIC_ID, config=CONFIG, now_ms=0)
    for number in range(40):
        log.append(sequenced(number), now_ms=0)
        assert wrong(tmp_path) == []
    directory.close()
    assert wrong(tmp_path) == []


def test_folder_that_is_not_a_data_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StorageError):
        Verification(tmp_path)
    with pytest.raises(StorageError):
        Verification(tmp_path / "missing")


# -- damage


def is_valid_index(log: Path, data: bytes) -> bool:
    """Whether each entry has the position of a batch and the end of it or of a later one, as Kafka up to 3.8 writes
    them for batches that were appended together. A search then begins at an earlier batch than it has to.
    """
    batches = [b for b in inspect.segment(log) if isinstance(b, inspect.BatchFacts)]
    ends = {b.position: b.last_offset - int(log.stem) for b in batches}
    entries = list(struct.iter_unpack(">ii", data))
    rising = all(a[0] < b[0] and a[1] < b[1] for a, b in itertools.pairwise(entries))
    return rising and all(at in ends and ends[at] <= offset and offset in ends.values() for offset, at in entries)


def is_harmless(name: str, was: bytes, now: bytes, data_directory: Path, before: Path) -> bool:
    """Returns whether damage is undetectable and does not change what is read."""
    if was == now:
        return True
    if name.endswith(".index"):
        if was.startswith(now) and len(now) % 8 == 0:  # missing entries at the end cost only time
            return True
        return len(was) == len(now) and is_valid_index((before / name).with_suffix(".log"), now)
    if name.endswith(".timeindex") and len(was) == len(now):  # other offsets of the same batches
        log = (before / name).with_suffix(".log")
        ends = [b.last_offset - int(log.stem) for b in inspect.segment(log) if isinstance(b, inspect.BatchFacts)]
        pairs = zip(struct.iter_unpack(">qi", was), struct.iter_unpack(">qi", now), strict=True)
        return all(a == c and bisect_left(ends, b) == bisect_left(ends, d) for (a, b), (c, d) in pairs)
    if name == "meta.properties":  # no other file of the directory has the ids
        return True
    if name.endswith("partition.metadata"):
        return not now or read_topic_id(DiskFiles(), str((data_directory / name).parent)) == TOPIC_ID
    if name == checkpoint.LOG_START_OFFSET and values_of(data_directory / name):
        return True  # records up to any offset of the log may have been deleted
    if name == f"orders-0/{checkpoint.LEADER_EPOCH}" and values_of(data_directory / name) in [
        [(0, start)] for start in range(4)
    ]:
        return True  # it began at 0: any offset up to the log start may be recorded
    if name.endswith("-checkpoint"):
        return not now or values_of(before / name) == values_of(data_directory / name)
    return False


def values_of(path: Path) -> object:
    read = checkpoint.read_epochs if path.name == checkpoint.LEADER_EPOCH else checkpoint.read_offsets
    return read(DiskFiles(), str(path))


@given(data=st.data())
def test_any_damage_of_a_file_is_found_or_harmless(data: st.DataObject, sound: Path, changed) -> None:
    name = data.draw(st.sampled_from([name for name in files(sound) if (sound / name).stat().st_size]))
    was = (sound / name).read_bytes()
    at = data.draw(st.integers(0, len(was) - 1))
    how = data.draw(st.sampled_from(["flip", "cut", "extend"]))
    byte = data.draw(st.integers(1, 255))
    now = {
        "flip": was[:at] + bytes([was[at] ^ byte]) + was[at + 1 :],
        "cut": was[:at],
        "extend": was + bytes([byte]),
    }[how]
    root = changed(sound, name, now)
    found = wrong(root)
    assert found or is_harmless(name, was, now, root, sound), (name, how, at, byte)


def test_finding_has_the_position_of_the_damage(sound: Path, changed) -> None:
    log = sound / "orders-0" / "00000000000000000000.log"
    was = bytearray(log.read_bytes())
    second = batch.read_header(was).size_bytes
    was[second + 70] ^= 1
    root = changed(sound, "orders-0/00000000000000000000.log", bytes(was))
    found = wrong(root)[0]
    assert (found.file, found.byte, found.offset) == ("orders-0/00000000000000000000.log", second, 3)
    assert found.what.startswith("CRC ")


def test_records_that_contradict_their_header_are_found_with_decompression(sound: Path, changed) -> None:
    records = [batch.Record(n, 1000, None, b"v") for n in range(4)]
    made = batch.build(records)
    lie = batch.read_header(made)
    liar = bytearray(made)
    liar[35:43] = (lie.max_timestamp + 5).to_bytes(8, "big")
    batch.reseal(liar, attributes=lie.attributes, max_timestamp=lie.max_timestamp + 5)
    root = changed(sound, "orders-0/00000000000000000000.log", bytes(liar))
    for path in (root / "orders-0").iterdir():
        if path.name != "00000000000000000000.log":
            path.unlink()
    (root / checkpoint.RECOVERY_POINT).unlink()
    (root / checkpoint.REPLICATION_OFFSET).unlink()
    shutil.rmtree(root / "orders-1")
    assert wrong(root) == []
    assert [finding.what for finding in wrong(root, deep=True)] == [
        "its latest record is of 1000, by its header of 1005"
    ]


def test_partition_with_another_topic_id_is_found(sound: Path, changed) -> None:
    root = changed(sound, "orders-1/partition.metadata", b"version: 0\ntopic_id: " + b"A" * 21 + b"Q")
    assert [(f.part, f.file.split("/")[1]) for f in wrong(root)] == [("identity", "partition.metadata")]


def test_missing_offsets_below_the_cleaner_checkpoint_have_no_finding(sound: Path, changed) -> None:
    root = changed(sound, checkpoint.CLEANER_OFFSET, b"0\n1\norders 0 100000\n")
    assert [finding.file for finding in wrong(root)] == [checkpoint.CLEANER_OFFSET]


def test_directory_upgraded_between_v2_batches_has_no_finding(tmp_path: Path):
    """Its epochs are those that were known while the messages had the old format."""
    directory = DataDirectory.open(DiskFiles(), tmp_path, node_id=1)
    log = directory.open_partition("orders", 0, topic_id=TOPIC_ID, config=storing(1), now_ms=0)
    for magic in (2, 1, 2):
        log.configure(storing(magic))
        data = old(1, b"x") if magic == 1 else make(b"x")
        log.append(data, now_ms=0, produce_version=2 if magic == 1 else 13)
    directory.close()
    directory = DataDirectory.open(DiskFiles(), tmp_path, node_id=1)
    config = LogConfig()
    directory.open_partition("orders", 0, topic_id=TOPIC_ID, config=config, now_ms=0, upgrade=lambda progress: None)
    directory.close()
    assert checkpoint.read_epochs(DiskFiles(), str(tmp_path / "orders-0" / checkpoint.LEADER_EPOCH)) == [(0, 2)]
    assert [found for found in Verification(tmp_path).findings() if found.wrong] == []
