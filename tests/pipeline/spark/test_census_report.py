"""The plan and the report of a census: directories of every kind, directories of Kafka, agreement with `ottla
formats`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ottla.pipeline.backend import ReadError
from ottla.pipeline.jobs.census import job as census_job
from ottla.pipeline.jobs.census.facts import Damaged, Facts, merge
from ottla.pipeline.jobs.census.plan import Plan, plan
from ottla.pipeline.jobs.census.report import CensusReport, damage_text, report
from ottla.pipeline.jobs.census.tasks import count
from ottla.protocol.internal_records.metadata_records import ConfigRecord
from ottla.protocol.internal_records.metadata_values import encode
from ottla.protocol.records import batch
from ottla.protocol.records.batch import Record
from ottla.storage.io.files import DiskFiles
from ottla.storage.log.recovery import LogCheckpoints
from ottla.storage.partition_log import LogConfig, PartitionLog, TopicIdPartition
from ottla.tools.disk.formats import formats
from ottla_testing import GOLDEN
from ottla_testing.pipeline.census_samples import a_log, marker, plain_facts, written
from ottla_testing.pipeline.columnar_samples import NOW, entries

DIRECTORIES = sorted(path for path in (GOLDEN / "directories").iterdir() if path.is_dir())


def log_name(base: int) -> str:
    return f"{base:020d}.log"


def of(*paths: Path, **options: Any) -> CensusReport:
    made = plan([str(path) for path in paths], **options)
    return report(made, [(piece, count(piece)) for piece in reversed(made.pieces)])


def record_set(magic: int, codec: int, offset: int, number: int) -> bytes:
    return entries([Record(offset + at, NOW, b"k", b"value") for at in range(number)], magic, codec)


# --- Kafka's directories


@pytest.mark.parametrize("directory", DIRECTORIES, ids=lambda path: path.name)
def test_census_of_kafka_directories_matches_ottla_formats(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert formats([str(directory), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    found = of(directory).to_dict()
    assert found["on_4_0"] == document["on_4_0"]
    assert (found["old_formats"], found["topic_configs_known"]) == (
        document["old_formats"],
        document["topic_configs_known"],
    )
    ours = [
        {
            "topic": topic["topic"],
            "partitions": len(topic["partitions"]),
            "formats": [
                {name: one[name] for name in ("format", "codec", "records", "bytes")} for one in topic["formats"]
            ],
            "configs": topic["configs"],
            "on_4_0": topic["on_4_0"],
        }
        for topic in found["topics"]
    ]
    theirs = [{name: topic[name] for name in ours[0]} for topic in document["topics"]]
    assert ours == theirs
    assert sum(topic["damage"]["places"] for topic in found["topics"]) == sum(
        len(topic["not_counted"]) for topic in document["topics"]
    )


def test_census_of_kafka_logs_matches_plain_decoder() -> None:
    made = plan([str(GOLDEN / "logs")])
    assert made.pieces
    for piece in made.pieces:
        assert count(piece) == plain_facts(Path(piece.path).read_bytes())


# --- the plan


def test_plan_paths_of_every_kind(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    written(one / "orders-0" / log_name(0), [record_set(2, 0, 0, 4)])
    written(one / "orders-0" / log_name(4), [record_set(2, 0, 4, 2)])
    written(one / "orders-1" / log_name(0), [])
    written(one / "users-0" / log_name(0), [record_set(2, 0, 0, 1)])
    written(two / "orders-2" / log_name(7), [record_set(2, 0, 7, 1)])
    written(two / "orders-2.deleted" / log_name(7), [record_set(2, 0, 7, 1)])

    def keys(made: Plan) -> list[str]:
        return [f"{folder.topic}-{folder.partition}" for folder in made.folders]

    both = plan([str(one), str(two)])
    assert keys(both) == ["orders-0", "orders-1", "orders-2", "users-0"]
    assert (both.segments, len(both.pieces)) == (5, 4)
    assert [piece.is_newest for piece in both.pieces] == [False, True, True, True]
    assert both.configs is None
    assert keys(plan([str(one / "orders-0"), str(one)])) == ["orders-0", "orders-1", "users-0"]
    assert keys(plan([str(one)], topics=["users"])) == ["users-0"]
    for path, problem in ((tmp_path / "no", "cannot read"), (tmp_path, "is no data directory")):
        with pytest.raises(ReadError, match=problem):
            plan([str(path)])
    with pytest.raises(ReadError, match="there is no topic nothing, unknown in"):
        plan([str(one)], topics=["users", "nothing", "unknown"])


def a_partition(folder: Path, records: int) -> Path:
    """Writes a segment with its index by the storage, and returns the path of the log."""
    config = LogConfig(index_interval_bytes=500)
    log = PartitionLog.open(
        DiskFiles(),
        folder,
        TopicIdPartition("t", 0),
        config=config,
        now_ms=NOW,
        checkpoints=LogCheckpoints(clean_shutdown=True),
    )
    for number in range(records):
        log.append_records([Record(0, NOW, b"k%d" % number, bytes(300))], now_ms=NOW)
    log.close()
    return folder / log_name(0)


@pytest.mark.parametrize("index", ["there", "gone", "lies", "zeros"])
def test_plan_splits_large_segment_at_entries(tmp_path: Path, index: str) -> None:
    path = a_partition(tmp_path / "t-0", 100)
    place = path.with_suffix(".index")
    if index == "gone":
        place.unlink()
    elif index == "lies":
        data = bytearray(place.read_bytes())
        data[7::8] = bytes((byte + 1) % 256 for byte in data[7::8])
        place.write_bytes(data)
    elif index == "zeros":
        place.write_bytes(place.read_bytes() + bytes(800))
    made = plan([str(tmp_path)], piece_bytes=4000)
    bounds = [(piece.start, piece.end) for piece in made.pieces]
    assert [start for start, _ in bounds] == [0, *(end for _, end in bounds[:-1])]
    assert bounds[-1][1] == path.stat().st_size
    assert len(bounds) >= 7
    whole = plan([str(tmp_path)])
    assert len(whole.pieces) == 1
    assert merge(count(piece) for piece in made.pieces) == count(whole.pieces[0]) == plain_facts(path.read_bytes())


def test_plan_splits_damaged_segment_before_damage(tmp_path: Path) -> None:
    path = a_partition(tmp_path / "t-0", 100)
    path.with_suffix(".index").unlink()
    data = bytearray(path.read_bytes())
    at = len(data) // 2
    data[at : at + 400] = b"\xff" * 400
    path.write_bytes(data)
    made = plan([str(tmp_path)], piece_bytes=4000)
    facts = merge(count(piece) for piece in made.pieces)
    assert 30 < facts.records <= 50
    assert facts.damaged


def test_census_file_missing_at_worker_raises(tmp_path: Path) -> None:
    path = a_partition(tmp_path / "t-0", 3)
    (piece,) = plan([str(tmp_path)]).pieces
    with pytest.raises(ReadError, match="exists here, but not at a worker"):
        list(census_job._seen(iter([(piece, Facts(gone=1))])))
    path.unlink()
    assert list(census_job._seen(iter([(piece, Facts(gone=1))]))) == [(piece, Facts(gone=1))]


# --- the report


def test_report_text(tmp_path: Path) -> None:
    sets = record_set(0, 3, 0, 4), record_set(1, 0, 4, 2), record_set(2, 4, 6, 3), marker(1, 9, 77)
    written(tmp_path / "orders-0" / log_name(0), sets[:2])
    written(tmp_path / "orders-0" / log_name(6), sets[2:])
    written(tmp_path / "empty-0" / log_name(0), [])
    made = [
        Record(0, NOW, None, encode(ConfigRecord(resource_type=2, resource_name="orders", name=name, value=value)))
        for name, value in (("cleanup.policy", "compact"), ("message.format.version", "0.10.2"))
    ]
    written(tmp_path / "__cluster_metadata-0" / log_name(0), [bytes(batch.build(made[:1]))])
    found = of(tmp_path, topics=["orders", "empty"])
    sizes = [sum(map(len, sets)), len(sets[0]), len(sets[1]), len(sets[3]), len(sets[2])]
    raw = [len(record_set(0, 0, 0, 4)), len(record_set(2, 0, 6, 3))]
    assert (
        found.to_text()
        == f"""\
empty (1 partition, 1 segment, 0 bytes)
  no records

orders (1 partition, 2 segments, {sizes[0]} bytes)
  FORMAT  CODEC  RECORDS  BYTES  UNCOMPRESSED
  v0      lz4          4  {sizes[1]:>5}  {raw[0]:>12}
  v1      none         2  {sizes[2]:>5}             -
  v2      none         0  {sizes[3]:>5}             -
  v2      zstd         3  {sizes[4]:>5}  {raw[1]:>12}
  keys    1 byte each; none null
  values  5 bytes each; none null
  times   2023-11-14 22:13:20.000 to 2023-11-14 22:13:20.000 by the producers: 5 records
  times   none: 4 records
  markers 1 of commits, 0 of aborts
  > 6 records in v0 and v1: returned as stored, to Fetch v4 and later only; nothing is converted.
  > The topic is compacted: its cleaner rewrites as v2 what it keeps of them.
  > lz4 in v0 has the wrong header checksum of KIP-57; it is returned with it.
  > zstd is returned to every Fetch version, to v4-v9 as well, whose clients may not know it.

All: 2 topics, 2 partitions, 3 segments, {sizes[0]} bytes
  FORMAT  CODEC  RECORDS  BYTES  UNCOMPRESSED
  v0      lz4          4  {sizes[1]:>5}  {raw[0]:>12}
  v1      none         2  {sizes[2]:>5}             -
  v2      none         0  {sizes[3]:>5}             -
  v2      zstd         3  {sizes[4]:>5}  {raw[1]:>12}
  keys    1 byte each; none null
  values  5 bytes each; none null
  times   2023-11-14 22:13:20.000 to 2023-11-14 22:13:20.000 by the producers: 5 records
  times   none: 4 records
  markers 1 of commits, 0 of aborts
  > 6 records, {sizes[1] + sizes[2]} bytes in v0 and v1, in 1 topic

On Kafka 4.0, whatever the format:
"""
        + "".join(f"  > {sentence}\n" for sentence in found.on_4_0)
    )


def test_report_document(tmp_path: Path) -> None:
    made = a_log(5)
    path = written(tmp_path / "t-0" / log_name(100), made)
    document = json.loads(of(tmp_path).to_json())
    assert document == of(tmp_path).to_dict()
    facts = plain_facts(b"".join(made))
    total, (topic,) = document["total"], document["topics"]
    (partition,) = topic["partitions"]
    assert partition["offsets"] == {"first": 100, "end": facts.end_offset}
    assert (partition["folder"], partition["segments"]) == (str(path.parent), 1)
    assert partition["file_bytes"] == document["file_bytes"] == path.stat().st_size
    for one in (total, topic, partition):
        assert (one["records"], one["entries"], one["bytes"]) == (facts.records, facts.entries, path.stat().st_size)
        assert one["values"]["bytes"] == facts.values.total
        assert one["values"]["nulls"] == facts.values.nulls
        assert sum(bin["count"] for bin in one["values"]["histogram"]) == one["values"]["count"]
        assert one["times"]["create"]["last"] == facts.create.last_ms
        assert one["times"]["append"]["records"] == facts.append.records > 0
        assert one["producers"]["ids"] == len(facts.producers) > 1
        assert one["producers"]["transactional"]["records"] == facts.transactional.records > 0
        assert one["markers"] == {"commits": facts.commits, "aborts": facts.aborts, "other": facts.other_markers}
        assert one["headers"]["bytes"] == facts.header_bytes > 0
    assert [topic["configs"], document["topic_configs_known"]] == [None, False]


def test_report_topic_configs_next_to_partition(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    for root in (one, two):
        written(root / "t-3" / log_name(0), [record_set(1, 0, 0, 4)])
    config = ConfigRecord(resource_type=2, resource_name="t", name="cleanup.policy", value="delete")
    written(one / "__cluster_metadata-0" / log_name(0), [bytes(batch.build([Record(0, NOW, None, encode(config))]))])
    (topic,) = of(one / "t-3", two / "t-3").topics
    assert topic.configs == {"cleanup.policy": "delete"}
    assert topic.notes == ["partition 3 is in 2 folders, all of them counted: replicas?"]
    assert topic.facts.records == 8
    assert of(two / "t-3").topics[0].configs is None


def test_report_damage_text(tmp_path: Path) -> None:
    bad = bytearray(record_set(2, 0, 0, 2))
    bad[-1] ^= 1
    written(tmp_path / "t-0" / log_name(0), [bytes(bad)] * 30 + [record_set(2, 0, 0, 2)[:50]])
    found = of(tmp_path)
    (topic,) = found.topics
    assert topic.notes[0].startswith(f"t-0/{log_name(0)} at byte 0: damaged; {len(bad)} bytes are not counted: ")
    assert topic.notes[-1] == "and 11 more"
    assert f"  ! {30 * len(bad) + 50} bytes in 31 places are not counted\n" in found.to_text()
    cut = Damaged("/data/t-0/x.log", 5, 10, "cut", "why")
    assert damage_text(cut) == "t-0/x.log at byte 5: the end is truncated; 10 bytes are not counted: why"
    assert "the end is truncated, or being written; 10 bytes" in damage_text(cut._replace(kind="open end"))


def test_metadata_log_is_listed_and_not_in_the_totals(tmp_path: Path) -> None:
    record = bytes(batch.build([Record(0, NOW, None, b"x")]))
    written(tmp_path / "__cluster_metadata-0" / log_name(0), [record])
    written(tmp_path / "orders-0" / log_name(0), [record, record])
    found = of(tmp_path)
    assert [topic.topic for topic in found.topics] == ["__cluster_metadata", "orders"]
    assert (found.partitions, found.segments, found.bytes) == (1, 1, 2 * len(record))
    assert found.facts.formats[2, 0].bytes == 2 * len(record)
    assert f"\nAll without __cluster_metadata: 1 topic, 1 partition, 1 segment, {2 * len(record)} bytes\n" in (
        found.to_text()
    )
    assert found.to_dict()["file_bytes"] == 2 * len(record)


def test_old_formats_name_the_command_that_upgrades_them(tmp_path: Path) -> None:
    written(tmp_path / "orders-0" / log_name(0), [record_set(1, 0, 0, 2)])
    assert f"\n  > `ottla pipeline upgrade {tmp_path}` rewrites the old formats as v2" in of(tmp_path).to_text()
    made = plan([str(tmp_path)])
    counted = [(piece, count(piece)) for piece in made.pieces]
    made.paths = ["https://host/data"]
    of_url = report(made, counted).to_text()
    assert "pipeline upgrade https" not in of_url
    assert "\n  > `ottla pipeline upgrade` rewrites old formats only in directories of this machine." in of_url
