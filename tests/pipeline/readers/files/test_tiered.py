"""Logs with tiered storage (KIP-405): the records of local and remote segments, compared with what Kafka's clients
read."""

from __future__ import annotations

import json
import pickle
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from ottla.pipeline.backend import OffsetRange, ReadError, Selection, TopicPartition, Wanted
from ottla.pipeline.jobs.audit.rules import Rules, evaluated
from ottla.pipeline.jobs.audit.rules import check as check_rules
from ottla.pipeline.jobs.audit.rules import items as rule_items
from ottla.pipeline.jobs.audit.steps import Audit
from ottla.pipeline.jobs.audit.tasks import look_over
from ottla.pipeline.jobs.census import plan as census
from ottla.pipeline.jobs.census.facts import merge
from ottla.pipeline.jobs.census.tasks import count
from ottla.pipeline.objects.logs import absolute, files_of, is_missing, on_this_machine, places_of
from ottla.pipeline.objects.places import Place, StoreError
from ottla.pipeline.readers.files import FileBackend
from ottla.pipeline.readers.files.broker_lock import is_in_use
from ottla.protocol.compiler import build
from ottla.protocol.errors import MalformedMessage
from ottla.protocol.internal_records.remote_log_records import (
    TOPIC,
    RemoteLogSegmentId,
    RemoteLogSegmentMetadataRecord,
    RemoteLogSegmentMetadataUpdateRecord,
    decode,
)
from ottla.protocol.records import batch, formats
from ottla.protocol.schema import spec
from ottla.storage import inspect
from ottla.storage.format.partition_metadata import decode_id
from ottla_testing import GOLDEN
from ottla_testing.pipeline.object_server import KEYS, object_server

TIERED = GOLDEN / "tiered"
READ: dict[str, Any] = json.loads((TIERED / "records.json").read_text())
KEYS_READ = [TopicPartition("tiered", index) for index in range(2)]
FIRST_LOCAL = 140
Record = RemoteLogSegmentMetadataRecord | RemoteLogSegmentMetadataUpdateRecord


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Copies the data, to be changed."""
    return Path(shutil.copytree(TIERED, tmp_path / "tiered"))


def path_of(place: Path) -> str:
    return f"tiered:{place / 'remote'}!{place / 'local'}"


def rows(
    backend: FileBackend, key: TopicPartition, start: int, end: int, *, committed: bool = False
) -> list[list[Any]]:
    wanted = Wanted(("offset", "key", "value", "timestamp"), committed=committed)
    found: list[list[Any]] = []
    for piece in backend.pieces([OffsetRange(*key, start, end)], wanted, at_least=4):
        for one in pickle.loads(pickle.dumps(piece)).read():
            for row in one.to_pylist():
                text = [None if data is None else data.decode() for data in (row["key"], row["value"])]
                found.append([row["offset"], *text, round(row["timestamp"].timestamp() * 1000)])
    return found


def check(backend: FileBackend) -> None:
    """Compares ends and records of both partitions with those that were read from Kafka."""
    backend.partitions(Selection())
    for key in KEYS_READ:
        of_kafka = READ[str(key)]
        start, end = of_kafka["start"], of_kafka["end"]
        assert (backend.earliest([key])[key], backend.latest([key], committed=False)[key]) == (start, end)
        assert rows(backend, key, start, end) == of_kafka["read_uncommitted"]
        assert rows(backend, key, start, end, committed=True) == of_kafka["read_committed"]


def values(local: Path) -> list[bytes]:
    found: list[bytes] = []
    for folder in inspect.partitions(local):
        for segment in folder.segments if folder.topic == TOPIC else ():
            with inspect.FileSource(segment.path) as source:
                for entry in inspect.entries(source):
                    assert isinstance(entry, inspect.BatchFacts)
                    records = formats.records(source.read(entry.position, entry.size_bytes))
                    found += [bytes(record.value or b"") for record in records]
    return found


def add_records(local: Path, *records: Record) -> None:
    """Replaces what is recorded about copies by the same with these records after it."""
    old = values(local)
    new = [bytes([1, spec(type(one)).api_key, 0]) + build(one, 0) for one in records]
    made = [batch.Record(index, 0, None, value, ()) for index, value in enumerate([*old, *new])]
    for folder in inspect.partitions(local):
        for segment in folder.segments if folder.topic == TOPIC else ():
            Path(segment.path).write_bytes(b"")
    (local / f"{TOPIC}-0" / f"{0:020}.log").write_bytes(bytes(batch.build(made)))


def copies(place: Path, partition: int) -> dict[int, Path]:
    """Returns the `.log` of each remote segment by its base offset."""
    found = (place / "remote").glob(f"*/tiered-{partition}-*/*.log")
    return {int(path.name[:20]): path for path in found}


def test_records_equal_those_read_from_kafka() -> None:
    check(FileBackend([path_of(TIERED)]))
    check(FileBackend([path_of(TIERED)], part_bytes=1000, window_bytes=300))
    named = FileBackend([f"{path_of(TIERED)}/tiered-0"])
    assert named.partitions(Selection()) == KEYS_READ[:1]
    assert rows(named, KEYS_READ[0], 0, 210) == READ["tiered-0"]["read_uncommitted"]


def test_local_segments_alone_begin_later() -> None:
    backend = FileBackend([str(TIERED / "local")])
    backend.partitions(Selection())
    with pytest.raises(ReadError, match="no longer exist: the log now begins at offset 140"):
        rows(backend, KEYS_READ[0], 0, 210)
    assert rows(backend, KEYS_READ[0], FIRST_LOCAL, 210) == [
        row for row in READ["tiered-0"]["read_uncommitted"] if row[0] >= FIRST_LOCAL
    ]


def test_times_are_found_in_remote_segments() -> None:
    backend = FileBackend([path_of(TIERED)])
    backend.partitions(Selection())
    for key in KEYS_READ:
        records = READ[str(key)]["read_uncommitted"]
        for _, _, _, time_ms in records[::7]:
            index = next(number for number, row in enumerate(records) if row[3] >= time_ms)
            before = records[index - 1][0] if index else -1
            found = backend.at_times({key: time_ms})[key]
            # As in Kafka, it may be a marker of a transaction, which is no record for clients.
            assert found is not None and before < found <= records[index][0]


@pytest.mark.parametrize("local_there", [False, True])
def test_remote_segments_in_an_object_store(monkeypatch: pytest.MonkeyPatch, local_there: bool) -> None:
    with object_server() as store:
        for name, value in KEYS.items():
            monkeypatch.setenv(name, value)
        urls: list[str] = []
        for part in ("remote", "local"):
            objects = store.files(part)
            for path in sorted((TIERED / part).rglob("*")):
                if path.is_file():
                    objects.put(f"{objects.root}/{path.relative_to(TIERED / part).as_posix()}", path.read_bytes())
            urls.append(objects.root)
        path = f"tiered:{urls[0]}!{urls[1] if local_there else TIERED / 'local'}"
        check(FileBackend([path], store_conf=store.conf))
        assert on_this_machine(path) == (None if local_there else str(TIERED / "local"))


def test_unfinished_and_deleted_copies_do_not_count(place: Path) -> None:
    started = _started(place, 0, 110)
    update = RemoteLogSegmentMetadataUpdateRecord(
        remote_log_segment_id=started.remote_log_segment_id,
        broker_id=1,
        event_timestamp_ms=1,
        custom_metadata=None,
        remote_log_segment_state=1,
    )
    for update.remote_log_segment_state in (0, 2, 3):
        add_records(place / "local", update)
        with pytest.raises(ReadError, match="no segment, local or remote, has the offsets 110 to 139"):
            check(FileBackend([path_of(place)]))
    update.remote_log_segment_state = 1
    add_records(place / "local", update)
    check(FileBackend([path_of(place)]))


def _started(place: Path, partition: int, offset: int) -> RemoteLogSegmentMetadataRecord:
    """Returns the first record about a copy."""
    for record in map(decode, values(place / "local")):
        if isinstance(record, RemoteLogSegmentMetadataRecord):
            found = record.remote_log_segment_id.topic_id_partition.partition, record.start_offset
            if found == (partition, offset):
                return record
    raise AssertionError("there is no such copy")


def test_copy_that_lacks_a_file_does_not_count(place: Path) -> None:
    copies(place, 0)[110].with_suffix(".snapshot").unlink()
    with pytest.raises(ReadError, match="no segment, local or remote, has the offsets 110 to 139"):
        check(FileBackend([path_of(place)]))


def test_cut_copy_is_an_error(place: Path) -> None:
    log = copies(place, 0)[30]
    size = log.stat().st_size
    log.write_bytes(log.read_bytes()[:-10])
    with pytest.raises(ReadError, match=f"the copy of a segment has {size - 10} bytes, and had {size}"):
        check(FileBackend([path_of(place)]))


def test_without_records_whole_copies_count(place: Path) -> None:
    for partition in range(2):
        shutil.rmtree(place / "local" / f"{TOPIC}-{partition}")
    check(FileBackend([path_of(place)]))


def test_topic_without_remote_segments(place: Path) -> None:
    shutil.rmtree(place / "remote")
    (place / "remote").mkdir()
    backend = FileBackend([path_of(place)])
    backend.partitions(Selection())
    assert [row[0] for row in rows(backend, KEYS_READ[0], FIRST_LOCAL, 210)] == [
        row[0] for row in READ["tiered-0"]["read_uncommitted"] if row[0] >= FIRST_LOCAL
    ]


def test_segment_deleted_while_it_is_read_is_read_remotely(place: Path) -> None:
    backend = FileBackend([path_of(place)])
    backend.partitions(Selection())
    wanted = Wanted(("offset",))
    pieces = backend.pieces([OffsetRange("tiered", 0, 0, 210)], wanted, at_least=8)
    for path in (place / "local" / "tiered-0").glob(f"{FIRST_LOCAL:020}.*"):
        path.unlink()
    found = [offset for piece in pieces for one in piece.read() for offset in one.column("offset").to_pylist()]
    assert found == [row[0] for row in READ["tiered-0"]["read_uncommitted"]]


def test_copies_of_records_that_the_log_lost_do_not_count(place: Path) -> None:
    """Another leader had copied a segment that the log does not have; only its leader epoch differs."""
    other = _started(place, 0, 30)
    log = copies(place, 0)[30]
    name = "A" * 22
    for suffix in (".log", ".index", ".timeindex", ".leader_epoch_checkpoint", ".snapshot"):
        shutil.copy(log.with_suffix(suffix), log.with_name(f"{40:020}-{name}{suffix}"))
    of = RemoteLogSegmentId(topic_id_partition=other.remote_log_segment_id.topic_id_partition, id=decode_id(name))
    epochs = RemoteLogSegmentMetadataRecord.SegmentLeaderEpoch
    made = RemoteLogSegmentMetadataRecord(
        remote_log_segment_id=of,
        start_offset=40,
        end_offset=90,
        broker_id=2,
        max_timestamp_ms=0,
        event_timestamp_ms=0,
        segment_leader_epochs=[epochs(leader_epoch=7, offset=40)],
        segment_size_in_bytes=log.stat().st_size,
        custom_metadata=None,
        remote_log_segment_state=1,
    )
    add_records(place / "local", made)
    check(FileBackend([path_of(place)]))


def test_census_and_audit_include_remote_segments() -> None:
    path = path_of(TIERED)
    plan = census.plan([path], piece_bytes=1000)
    facts = merge([count(pickle.loads(pickle.dumps(piece))) for piece in plan.pieces])
    assert not facts.damaged

    def tasks(items: Sequence[Any]) -> Any:
        return ((item, look_over(pickle.loads(pickle.dumps(item)))) for item in items)

    report = json.loads(Audit([path]).report(tasks, now_ms=2_000_000_000_000).to_json())
    assert report["sound"]
    rules = Rules.of(["tiered: value required"])
    pieces = [one for one in rule_items(Audit([path]).places(), rules) if one.label == "tiered-0"]
    (found,) = evaluated(rules, [(one, check_rules(one)) for one in pieces]).results
    plain = merge([count(piece) for piece in plan.pieces if (piece.topic, piece.partition) == ("tiered", 0)])
    assert found.records == sum(amount.records for amount in plain.formats.values()) > 0
    remote = sum(len(copies(TIERED, index).keys() - range(FIRST_LOCAL, 210)) for index in range(2))
    assert remote == 8 and report["segments"] == len(list((TIERED / "local").glob("*/*.log"))) + remote


def test_recorded_values_are_written_as_kafka_does() -> None:
    found = values(TIERED / "local")
    assert len(found) > 20
    for value in found:
        record = decode(value)
        assert record is not None and bytes([1, spec(type(record)).api_key, 0]) + build(record, 0) == value
    assert decode(bytes([1, 2, 0])) is None
    for wrong in (b"", b"\x01\x00", bytes([1, 0, 9]), found[0][:-1]):
        with pytest.raises(MalformedMessage):
            decode(wrong)


def test_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(TIERED)
    assert absolute("tiered:remote!local") == path_of(TIERED)
    check(FileBackend(["tiered:remote!local"]))
    assert not is_in_use(path_of(TIERED))
    for wrong in ("tiered:remote", "tiered:!local", "tiered:remote!", "tiered:a!tiered:b!c"):
        with pytest.raises(StoreError, match="the path of a log with tiered storage is tiered:REMOTE!LOCAL"):
            FileBackend([wrong])
    with pytest.raises(StoreError, match="can only be read"):
        Place.of(path_of(TIERED))
    with pytest.raises(ReadError, match="cannot read"):
        FileBackend([f"tiered:remote!{tmp_path}/none"]).partitions(Selection())
    with pytest.raises(ReadError, match=r"cannot read .*/none, the place of the remote segments of"):
        FileBackend([f"tiered:{tmp_path}/none!local"]).partitions(Selection())
    places_of([path_of(TIERED)])
    assert is_missing(f"{path_of(TIERED)}/none-0") and not is_missing(f"{path_of(TIERED)}/tiered-0")
    files = files_of(path_of(TIERED))
    assert files.exists(f"{path_of(TIERED)}/meta.properties")
