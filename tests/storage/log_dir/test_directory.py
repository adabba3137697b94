"""A data directory: lock, identity, marker, checkpoints, new and deleted partitions."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ottla.protocol.records.validate import Rules
from ottla.storage import errors
from ottla.storage.format import checkpoint
from ottla.storage.io.files import DiskFiles, Files
from ottla.storage.log_dir.directory import DataDirectory
from ottla.storage.partition_log import LogConfig, PartitionLog
from ottla_testing.each import each
from ottla_testing.storage.batches import TOPIC_ID, make, values
from ottla_testing.storage.simulated_files import Killed, SimulatedFiles

DATA = "/data"


@pytest.fixture
def files() -> SimulatedFiles:
    return SimulatedFiles()


def open_directory(files: Files, path: str = DATA, **more) -> DataDirectory:
    return DataDirectory.open(files, path, node_id=1, make_id=lambda: TOPIC_ID, **more)


def open_partition(directory: DataDirectory, topic: str = "orders", partition: int = 0, **config) -> PartitionLog:
    return directory.open_partition(topic, partition, config=LogConfig(**config), now_ms=0)


def test_files_of_a_new_directory_after_a_clean_close(files: SimulatedFiles):
    directory = open_directory(files)
    assert directory.is_new and not directory.was_clean and directory.partitions() == []
    log = directory.open_partition("orders", 3, topic_id=TOPIC_ID, config=LogConfig(), now_ms=0)
    for _ in range(3):
        log.append(make(b"a"), now_ms=0)
    log.delete_records_before(2)
    directory.close()
    content = {name: bytes(files.contents[name].live) for name in files.contents if "/0000" not in name}
    assert content == {
        "/data/meta.properties": (
            b"#\nversion=1\nnode.id=1\ncluster.id=AAECAwQFBgcICQoLDA0ODw\ndirectory.id=AAECAwQFBgcICQoLDA0ODw\n"
        ),
        "/data/.kafka_cleanshutdown": b'{"version":0,"brokerEpoch":-1}',
        "/data/.ottla-closed": b"0\n1\norders 3 2 3 0:207:0\ncrc32c 95dc11e9\n",
        "/data/recovery-point-offset-checkpoint": b"0\n1\norders 3 3\n",
        "/data/log-start-offset-checkpoint": b"0\n1\norders 3 2\n",
        "/data/replication-offset-checkpoint": b"0\n1\norders 3 3\n",
        "/data/orders-3/partition.metadata": b"version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw",
        "/data/orders-3/leader-epoch-checkpoint": b"0\n1\n0 2\n",
    }
    assert all(content.live == content.durable for content in files.contents.values())


def test_clean_directory_is_reopened_and_its_marker_removed_at_once(files: SimulatedFiles):
    directory = open_directory(files)
    log = open_partition(directory)
    log.append(make(b"a", b"b"), now_ms=0)
    log.delete_records_before(1)
    directory.close()
    directory.close()
    directory = open_directory(files)
    assert directory.was_clean and not directory.is_new and directory.cluster_id == "AAECAwQFBgcICQoLDA0ODw"
    assert "/data/.kafka_cleanshutdown" not in files.contents
    assert directory.partitions() == [("orders", 0)]
    log = open_partition(directory)
    assert (log.log_start_offset, log.log_end_offset, log.recovery_point) == (1, 2, 2)


def test_open_after_a_kill_uses_log_start_and_recovery_point(files: SimulatedFiles):
    directory = open_directory(files)
    log = open_partition(directory, segment_bytes=200)
    for _ in range(9):
        log.append(make(b"a"), now_ms=0)
    log.flush()
    directory.write_checkpoints()
    log.append(make(b"b"), now_ms=0)
    log.delete_records_before(4)
    files.restart()
    directory = open_directory(files)
    assert not directory.was_clean
    # damage in a segment below the recovery point is not detected, as in Kafka
    files.contents["/data/orders-0/00000000000000000000.log"].live[20] ^= 1
    log = open_partition(directory, segment_bytes=200)
    assert (log.log_start_offset, log.log_end_offset, log.cut_bytes) == (4, 10, 0)
    assert values(log) == [b"a"] * 5 + [b"b"]


@each("step", range(60), strided=True)
def test_directory_killed_at_any_step_opens_again(step: int):
    files, acknowledged = SimulatedFiles(), []
    files.fail_at, files.killing = step, True
    start = 0
    try:
        directory = open_directory(files)
        log = open_partition(directory)
        other = open_partition(directory, "other")
        for number in range(4):
            log.append(make(b"%d" % number), now_ms=0)
            acknowledged.append(b"%d" % number)
        start = log.delete_records_before(2)
        directory.write_checkpoints()
        other.append(make(b"x"), now_ms=0)
        remove = directory.delete_partition("other", 0)
        remove()
        directory.close()
    except Killed:
        pass
    files.restart()
    directory = open_directory(files)
    log = open_partition(directory)
    found = values(log)
    assert log.log_start_offset in (start, 2)
    assert found == acknowledged[log.log_start_offset :] or found[:-1] == acknowledged[log.log_start_offset :]
    assert not any("-delete" in name for name in files.list(DATA))
    for topic, partition in directory.partitions():
        if topic != "orders":
            open_partition(directory, topic, partition)
    directory.close()
    assert open_directory(files).was_clean


def test_second_open_is_refused(files: SimulatedFiles):
    directory = open_directory(files)
    with pytest.raises(errors.DirectoryLocked, match="/data is in use by another broker"):
        open_directory(files)
    directory.close()
    open_directory(files).abandon()
    open_directory(files)


def test_second_open_is_refused_on_a_real_disk(tmp_path: Path):
    directory = open_directory(DiskFiles(), str(tmp_path / "d"))
    with pytest.raises(errors.DirectoryLocked):
        open_directory(DiskFiles(), str(tmp_path / "d"))
    program = (
        "import sys; from ottla.storage.log_dir.directory import DataDirectory\n"
        "from ottla.storage.io.files import DiskFiles\n"
        "try: DataDirectory.open(DiskFiles(), sys.argv[1], node_id=1)\n"
        "except Exception as error: print(type(error).__name__)\n"
        "else: print('opened')"
    )

    def from_another_process() -> str:
        command = [sys.executable, "-c", program, str(tmp_path / "d")]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    assert from_another_process() == "DirectoryLocked"
    directory.close()
    assert from_another_process() == "opened"


@pytest.mark.parametrize("bad", [{"node_id": -1}, {"node_id": 2**31}, {"cluster_id": "a\nb"}, {"cluster_id": ""}])
def test_open_with_invalid_arguments_changes_nothing(files: SimulatedFiles, bad: dict[str, Any]):
    with pytest.raises(errors.StorageError):
        DataDirectory.open(files, DATA, **{"node_id": 1, **bad})
    assert files.steps == 0 and files.locked == set()


def test_directory_of_another_node_or_cluster_is_refused_and_unlocked(files: SimulatedFiles):
    open_directory(files, cluster_id="mine").close()
    before = dict(files.contents)
    attempts: list[dict[str, Any]] = [{"node_id": 2}, {"node_id": 1, "cluster_id": "yours"}]
    for bad in attempts:
        with pytest.raises(errors.StorageError, match="belongs to"):
            DataDirectory.open(files, DATA, **bad)
        assert files.contents == before and files.locked == set()
    assert DataDirectory.open(files, DATA, node_id=1, cluster_id="mine").was_clean


def test_old_meta_properties_is_converted(files: SimulatedFiles):
    files.make_directory(DATA)
    old = b"#Tue Jan 07 2020\nversion=0\nbroker.id=1\ncluster.id=abcdefghijklmnopqrstuv\n"
    files.open(f"{DATA}/meta.properties", create=True).write(0, old)
    directory = open_directory(files)
    assert directory.cluster_id == "abcdefghijklmnopqrstuv"
    assert files.read_bytes(f"{DATA}/meta.properties").splitlines()[1:4] == [
        b"version=1",
        b"node.id=1",
        b"cluster.id=abcdefghijklmnopqrstuv",
    ]


def test_malformed_meta_properties_raises_and_malformed_checkpoint_warns(files: SimulatedFiles):
    directory = open_directory(files)
    open_partition(directory).append(make(b"a"), now_ms=0)
    directory.close()
    files.contents[f"{DATA}/recovery-point-offset-checkpoint"].live[:] = b"0\n2\norders 0 1\n"
    directory = open_directory(files)
    assert len(directory.warnings) == 1 and "2 entries announced, 1 found" in directory.warnings[0]
    assert values(open_partition(directory)) == [b"a"]
    directory.close()
    for bad in (b"version=7\n", b"version\n", b"\xff\n"):
        files.contents[f"{DATA}/meta.properties"].live[:] = bad
        with pytest.raises(errors.StorageError):
            open_directory(files)
        assert files.locked == set()


def test_partition_created_after_a_deletion_is_empty(files: SimulatedFiles):
    directory = open_directory(files)
    log = open_partition(directory)
    for _ in range(5):
        log.append(make(b"old"), now_ms=0)
    log.delete_records_before(4)
    directory.write_checkpoints()
    remove = directory.delete_partition("orders", 0)
    assert directory.partitions() == []
    with pytest.raises(errors.StorageError):
        log.append(make(b"old"), now_ms=0)
    log = open_partition(directory)
    log.append(make(b"new"), now_ms=0)
    files.restart()  # killed before the files were removed
    directory = open_directory(files)
    assert not any(name.endswith("-delete") for name in files.list(DATA))
    assert values(open_partition(directory)) == [b"new"]
    remove()


def test_torn_topic_id_raises_only_after_a_clean_shutdown(files: SimulatedFiles):
    directory = open_directory(files)
    directory.open_partition("orders", 0, topic_id=TOPIC_ID, config=LogConfig(), now_ms=0)
    assert directory.topic_id("orders", 0) == TOPIC_ID and directory.topic_id("other", 0) == bytes(16)
    files.restart()
    directory = open_directory(files)
    del files.contents[f"{DATA}/orders-0/partition.metadata"].live[20:]
    assert directory.topic_id("orders", 0) == bytes(16)
    log = directory.open_partition("orders", 0, topic_id=TOPIC_ID, config=LogConfig(), now_ms=0)
    assert log.topic_id == directory.topic_id("orders", 0) == TOPIC_ID
    directory.close()
    directory = open_directory(files)
    del files.contents[f"{DATA}/orders-0/partition.metadata"].live[20:]
    with pytest.raises(errors.StorageError, match="malformed"):
        directory.topic_id("orders", 0)


def test_deleted_folder_of_a_long_topic_name_fits(files: SimulatedFiles):
    directory = open_directory(files)
    topic = "t" * 249
    open_partition(directory, topic, 12)
    remove = directory.delete_partition(topic, 12)
    (name,) = [name for name in files.list(DATA) if name.endswith("-delete")]
    assert len(name) == 255 and name.startswith("ttt")
    remove()
    assert not any(name.endswith("-delete") for name in files.list(DATA))


def test_set_aside_folder_is_renamed_as_stray(files: SimulatedFiles):
    directory = open_directory(files)
    open_partition(directory).append(make(b"a"), now_ms=0)
    with pytest.raises(errors.StorageError):
        directory.set_aside("orders", 0)
    directory.close()
    directory = open_directory(files)
    path = directory.set_aside("orders", 0)
    assert path.endswith("-stray") and directory.partitions() == [] and files.list(path)


@pytest.mark.parametrize("topic", ["", ".", "..", "a/b", "../x", "a b", "x" * 250, "a\0"])
def test_invalid_topic_name_changes_no_file(files: SimulatedFiles, topic: str):
    directory = open_directory(files)
    steps = files.steps
    for attempt in (
        lambda: open_partition(directory, topic),
        lambda: directory.delete_partition(topic, 0),
        lambda: directory.set_aside(topic, 0),
        lambda: directory.topic_id(topic, 0),
        lambda: open_partition(directory, "fine", -1),
    ):
        with pytest.raises(errors.StorageError):
            attempt()
    assert files.steps == steps


def test_other_folders_are_ignored(files: SimulatedFiles):
    for name in ("orders-0", "orders-00", "orders", "-1", "orders-99999999999", "a-b-7", "orders-0.x-stray"):
        files.make_directory(f"{DATA}/{name}")
    assert open_directory(files).partitions() == [("a-b", 7), ("orders", 0)]


def test_no_clean_marker_while_a_partition_needs_recovery(files: SimulatedFiles):
    directory = open_directory(files)
    open_partition(directory).append(make(b"a"), now_ms=0)
    open_partition(directory, "other")
    files.restart()
    directory = open_directory(files)
    open_partition(directory)
    directory.close()
    directory = open_directory(files)
    assert not directory.was_clean
    open_partition(directory)
    open_partition(directory, "other")
    directory.close()
    assert open_directory(files).was_clean


def test_no_clean_marker_after_a_failed_close_of_a_log(files: SimulatedFiles):
    directory = open_directory(files)
    open_partition(directory).append(make(b"a"), now_ms=0)
    files.failing = lambda operation, path: operation == "sync" and path.endswith(".log")
    with pytest.raises(errors.StorageError):
        directory.close()
    files.failing = lambda operation, path: False
    directory = open_directory(files)
    assert not directory.was_clean and values(open_partition(directory)) == [b"a"]


def test_unopened_partitions_keep_their_checkpoints(files: SimulatedFiles):
    directory = open_directory(files)
    log = open_partition(directory)
    for _ in range(3):
        log.append(make(b"a"), now_ms=0)
    log.delete_records_before(1)
    directory.close()
    directory = open_directory(files)
    open_partition(directory, "other")
    directory.close()
    assert files.read_bytes(f"{DATA}/recovery-point-offset-checkpoint") == b"0\n2\norders 0 3\nother 0 0\n"
    assert files.read_bytes(f"{DATA}/log-start-offset-checkpoint") == b"0\n1\norders 0 1\n"
    assert files.read_bytes(f"{DATA}/replication-offset-checkpoint") == b"0\n2\norders 0 3\nother 0 0\n"


def test_unchanged_checkpoints_are_not_rewritten(files: SimulatedFiles):
    """They are due each minute; an idle directory must not write then."""
    directory = open_directory(files)
    log = open_partition(directory)
    log.append(make(b"a"), now_ms=0)
    directory.write_checkpoints()
    steps = files.steps
    directory.write_checkpoints()
    assert files.steps == steps
    log.append(make(b"b"), now_ms=0)
    directory.write_checkpoints()
    assert files.read_bytes("/data/replication-offset-checkpoint") == b"0\n1\norders 0 2\n"
    log.flush()
    directory.write_checkpoints()
    assert files.read_bytes("/data/recovery-point-offset-checkpoint") == b"0\n1\norders 0 2\n"


def test_cleaner_offset_is_durable_and_deleted_with_the_partition(files: SimulatedFiles):
    directory = DataDirectory.open(files, "/data", node_id=1)
    for index in (0, 1):
        directory.open_partition("t", index, config=LogConfig(), now_ms=0)
    assert directory.cleaner_offset("t", 0) is None
    directory.write_cleaner_offset("t", 0, 17)
    directory.write_cleaner_offset("t", 1, 4)
    files.lose_power(lambda path, durable, live: durable)
    assert files.read_bytes("/data/cleaner-offset-checkpoint") == b"0\n2\nt 0 17\nt 1 4\n"
    directory = DataDirectory.open(files, "/data", node_id=1)
    assert (directory.cleaner_offset("t", 0), directory.cleaner_offset("t", 1)) == (17, 4)
    for index in (0, 1):
        directory.open_partition("t", index, config=LogConfig(), now_ms=0)
    directory.delete_partition("t", 0)
    assert directory.cleaner_offset("t", 0) is None
    assert files.read_bytes("/data/cleaner-offset-checkpoint") == b"0\n1\nt 1 4\n"
    directory.write_cleaner_offset("t", 1, None)
    directory.close()
    assert files.read_bytes("/data/cleaner-offset-checkpoint") == b"0\n0\n"


@pytest.mark.parametrize("cleaned", [True, False])
def test_missing_offsets_below_the_cleaner_checkpoint_are_accepted(files: SimulatedFiles, cleaned: bool):
    """Also if the topic is no longer compacted; in other logs the end of the first segment was lost."""
    directory = DataDirectory.open(files, "/data", node_id=1)
    log = directory.open_partition("t", 0, config=LogConfig(segment_bytes=100), now_ms=0)
    for number in range(4):
        log.append(make(b"%d" % number), now_ms=0)
    log.flush()
    if cleaned:
        directory.write_cleaner_offset("t", 0, 3)
    directory.abandon()
    path = f"/data/t-0/{1:020d}"
    for suffix in (".log", ".index", ".timeindex", ".snapshot"):
        if files.exists(path + suffix):
            files.remove(path + suffix)
    log = DataDirectory.open(files, "/data", node_id=1).open_partition("t", 0, config=LogConfig(), now_ms=0)
    assert log.log_end_offset == (4 if cleaned else 1)


def test_gap_after_a_power_loss_in_a_compacted_log_stays_accepted(files: SimulatedFiles) -> None:
    """The end of a segment was lost and the next one was not: this was accepted, and stays so when the topic is no
    longer compacted and the next start is unclean."""
    directory = open_directory(files)
    log = open_partition(directory, segment_bytes=100)
    for number in range(4):
        log.append(make(b"%d" % number), now_ms=0)
    log.flush()
    directory.abandon()
    files.contents[f"/data/orders-0/{1:020d}.log"].live.clear()
    compacted = LogConfig(rules=Rules(compacted=True))
    directory = open_directory(files)
    assert directory.open_partition("orders", 0, config=compacted, now_ms=0).log_end_offset == 4
    directory.abandon()
    log = open_partition(open_directory(files))
    assert log.log_end_offset == 4 and values(log) == [b"0", b"2", b"3"]


def test_stored_log_start_survives_a_crash_and_applies_to_its_log_only(files: SimulatedFiles) -> None:
    """It is durable before it is adopted; the adoption writes nothing more."""
    directory = open_directory(files)
    log = open_partition(directory)
    other = open_partition(directory, "other")
    for of in (log, other):
        for value in (b"a", b"b", b"c"):
            of.append(make(value), now_ms=0)
        of.flush()
    directory.note_log_starts({log: 2, other: 1})
    assert (log.log_start_offset, other.log_start_offset) == (0, 0)
    written = len(files.log)
    assert log.delete_records_before(2) == 2
    directory.write_checkpoints(checkpoint.LOG_START_OFFSET)
    assert not [step for step in files.log[written:] if "log-start" in step or step.startswith("sync")]
    directory.delete_partition("other", 0)()
    made = open_partition(directory, "other")
    directory.write_checkpoints()
    made.append(make(b"d"), now_ms=0)
    directory.abandon()
    files.restart()
    directory = open_directory(files)
    assert open_partition(directory).log_start_offset == 2
    assert open_partition(directory, "other").log_start_offset == 0


class MetFiles(DiskFiles):
    """Runs a callback while a file or folder is renamed."""

    def __init__(self) -> None:
        self.meet: Callable[[str], None] = lambda path: None

    def replace(self, source: str, target: str) -> None:
        super().replace(source, target)
        self.meet(target)


@pytest.mark.parametrize("met", ["log-start-offset-checkpoint", "orders-0"])
def test_log_start_is_kept_while_another_thread_writes_checkpoints(met: str, tmp_path: Path):
    files = MetFiles()
    source = open_directory(files, str(tmp_path / "source"))
    directory = open_directory(files, str(tmp_path / "data"))
    other = open_partition(directory, "other")
    for log in (other, open_partition(source)):
        for _ in range(4):
            log.append(make(b"a"), now_ms=0)
    other.delete_records_before(1)
    source.close()
    (tmp_path / "source" / "orders-0").rename(tmp_path / "data" / "prepared")
    writers: list[threading.Thread] = []

    def meet(path: str) -> None:
        if Path(path).name == met and not writers:
            writers.append(threading.Thread(target=directory.note_log_starts, args=({other: 3},)))
            writers[0].start()
            writers[0].join(0.2)  # it may have to wait

    files.meet = meet
    directory.put_in_place(str(tmp_path / "data" / "prepared"), "orders", 0, end_offset=4, log_start_offset=2)
    (writer,) = writers
    writer.join()
    assert open_partition(directory).log_start_offset == 2
    directory.abandon()  # only the files count now
    directory = open_directory(DiskFiles(), str(tmp_path / "data"))
    assert (open_partition(directory).log_start_offset, open_partition(directory, "other").log_start_offset) == (2, 3)
    directory.close()
