"""`ottla formats`: the counts, the statements about Kafka 4.0, and directories of all kinds."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest

from ottla.protocol.internal_records.metadata_records import ConfigRecord, RemoveTopicRecord, TopicRecord
from ottla.protocol.internal_records.metadata_values import encode
from ottla.protocol.records import batch, legacy
from ottla.protocol.records.batch import Record
from ottla.storage.log_dir import readiness
from ottla.storage.log_dir.readiness import Amount
from ottla.tools.disk.formats import NOTES_MAX, formats
from ottla_testing import GOLDEN
from ottla_testing.broker.harness import only, produce, records, running

NOW = 1_700_000_000_000


def entry(magic: int, codec: int, offset: int, count: int) -> bytes:
    records = [Record(offset + n, NOW, b"k", b"value") for n in range(count)]
    if magic == 2:
        return bytes(batch.build(records, base_offset=offset, codec=codec))
    return bytes(legacy.build(records, magic=magic, codec=codec))


def partition(directory: Path, name: str, *entries: bytes, base_offset: int = 0) -> Path:
    path = directory / name / f"{base_offset:020d}.log"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(entries))
    return path


def metadata(directory: Path, *records: Any, name: str = "00000000000000000000.log", offset: int = 0) -> int:
    """Writes a segment or snapshot of metadata records; returns its bytes."""
    path = directory / "__cluster_metadata-0" / name
    path.parent.mkdir(exist_ok=True)
    made = [Record(offset + n, NOW, None, encode(record)) for n, record in enumerate(records)]
    return path.write_bytes(batch.build(made, base_offset=offset))


def text(directory: Path, capsys: pytest.CaptureFixture[str]) -> str:
    capsys.readouterr()
    assert formats([str(directory)]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    return captured.out


def report(directory: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    capsys.readouterr()
    assert formats([str(directory), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def config(name: str, value: str | None, topic: str = "orders", kind: int = 2) -> ConfigRecord:
    return ConfigRecord(resource_type=kind, resource_name=topic, name=name, value=value)


# --- counting


def test_whole_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sets = entry(0, 3, 0, 4), entry(1, 0, 4, 2), entry(2, 4, 6, 3)
    partition(tmp_path, "orders-0", *sets[:2])
    partition(tmp_path, "orders-0", sets[2], base_offset=6)
    partition(tmp_path, "orders-1", entry(1, 0, 0, 1))
    partition(tmp_path, "new-0", entry(2, 0, 0, 2))
    partition(tmp_path, "empty-0")
    size = metadata(tmp_path, config("cleanup.policy", "compact,delete"), config("message.format.version", "0.10.2"))
    sizes = len(sets[0]), len(sets[1]) + len(entry(1, 0, 0, 1)), len(sets[2])
    assert text(tmp_path, capsys) == (
        "__cluster_metadata (1 partition, 1 segment)\n"
        "  FORMAT  CODEC  RECORDS  BYTES\n"
        f"  v2      none         2  {size:>5}\n"
        "  > All in v2: returned as stored, to Fetch v4 and later only.\n"
        "\n"
        "empty (1 partition, 1 segment)\n"
        "  no records\n"
        "\n"
        "new (1 partition, 1 segment)\n"
        "  FORMAT  CODEC  RECORDS  BYTES\n"
        f"  v2      none         2  {len(entry(2, 0, 0, 2)):>5}\n"
        "  > All in v2: returned as stored, to Fetch v4 and later only.\n"
        "\n"
        "orders (2 partitions, 3 segments)\n"
        "  FORMAT  CODEC  RECORDS  BYTES\n"
        f"  v0      lz4          4  {sizes[0]:>5}\n"
        f"  v1      none         3  {sizes[1]:>5}\n"
        f"  v2      zstd         3  {sizes[2]:>5}\n"
        "  > 7 records in v0 and v1: returned as stored, to Fetch v4 and later only; nothing is converted.\n"
        "  > The topic is compacted: its cleaner rewrites as v2 what it keeps of them.\n"
        "  > lz4 in v0 has the wrong header checksum of KIP-57; it is returned with it.\n"
        "  > zstd is returned to every Fetch version, to v4-v9 as well, whose clients may not know it.\n"
        "  > message.format.version=0.10.2: not known any more; it has no effect, and setting it is refused.\n"
        "\n"
        "On Kafka 4.0, for all formats:\n"
        "  > Fetch v0-v3 closes the connection: clients that know no later version (before Kafka 0.11) are cut off.\n"
        "  > Produce v0-v2 closes the connection; v0 and v1 in a later version are refused with INVALID_RECORD (87).\n"
        "  > Not known any more in server.properties: log.message.format.version, log.message.downconversion.enable, "
        "log.message.timestamp.difference.max.ms.\n"
        f"  > `ottla pipeline upgrade {tmp_path}`"
        " rewrites the old formats as v2 while no broker runs (extra: pipeline);"
        " `ottla serve --override log.record.version.force.upgrade=2` does so at its start.\n"
    )


def test_json_equals_the_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    partition(tmp_path, "orders-0", entry(0, 1, 0, 4), entry(2, 0, 4, 1))
    found = report(tmp_path, capsys)
    assert set(found) == {"directory", "old_formats", "topic_configs_known", "topics", "on_4_0"}
    assert (found["directory"], found["old_formats"], found["topic_configs_known"]) == (str(tmp_path), True, False)
    (topic,) = found["topics"]
    assert topic["formats"] == [
        {"format": "v0", "codec": "gzip", "records": 4, "bytes": len(entry(0, 1, 0, 4))},
        {"format": "v2", "codec": "none", "records": 1, "bytes": len(entry(2, 0, 4, 1))},
    ]
    assert (topic["topic"], topic["partitions"], topic["segments"], topic["configs"]) == ("orders", 1, 1, None)
    assert topic["not_counted"] == [] and len(topic["on_4_0"]) == 2
    assert any("Topic configs are not in this directory" in sentence for sentence in found["on_4_0"])


def test_directory_of_kafka_is_counted(capsys: pytest.CaptureFixture[str]) -> None:
    """A directory of real Kafka brokers: as many records as a consumer got, in the formats of the topic names."""
    topics = json.loads((GOLDEN / "topics.json").read_text())
    found = {topic["topic"]: topic for topic in report(GOLDEN / "logs", capsys)["topics"]}
    for name, topic in topics.items():
        if name in found and name != "transactions":
            assert sum(one["records"] for one in found[name]["formats"]) == len(topic["records"]), name
    assert [(one["format"], one["codec"]) for one in found["v0-lz4"]["formats"]] == [("v0", "lz4")]
    assert all(topic["not_counted"] == [] for topic in found.values())
    assert {one["format"] for one in found["mixed"]["formats"]} == {"v0", "v1", "v2"}


def test_unreadable_files_are_reported_and_the_rest_is_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one = entry(2, 0, 0, 2)
    partition(tmp_path, "orders-0", one, one[:30])
    partition(tmp_path, "orders-1", one, b"\xff" * 99)
    wrapper = bytearray(entry(1, 1, 0, 3))
    wrapper[50] ^= 0xFF
    partition(tmp_path, "orders-2", bytes(wrapper), one)
    (topic,) = report(tmp_path, capsys)["topics"]
    name = "00000000000000000000.log"
    assert [note.split(": ")[0:2] for note in topic["not_counted"]] == [
        [f"orders-0/{name} at byte {len(one)}", "incomplete end, maybe being written; 30 bytes are not counted"],
        [f"orders-1/{name} at byte {len(one)}", "damaged; 99 bytes are not counted"],
        [f"orders-2/{name} at byte 0", "not decompressed, not counted"],
    ]
    assert topic["formats"] == [
        {"format": "v1", "codec": "gzip", "records": 0, "bytes": len(wrapper)},
        {"format": "v2", "codec": "none", "records": 6, "bytes": 3 * len(one)},
    ]
    assert f"  ! orders-0/{name} at byte {len(one)}: incomplete end" in text(tmp_path, capsys)


def test_only_the_newest_segment_may_have_an_incomplete_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = entry(2, 0, 0, 2)
    partition(tmp_path, "orders-0", one, one[:30])
    partition(tmp_path, "orders-0", entry(2, 0, 2, 1), base_offset=2)
    (topic,) = report(tmp_path, capsys)["topics"]
    (note,) = topic["not_counted"]
    assert f"at byte {len(one)}: incomplete end; 30 bytes are not counted: " in note


def test_notes_are_limited(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wrapper = bytearray(entry(1, 1, 0, 3))
    wrapper[50] ^= 0xFF
    partition(tmp_path, "orders-0", *[bytes(wrapper)] * (NOTES_MAX + 7))
    (topic,) = report(tmp_path, capsys)["topics"]
    assert len(topic["not_counted"]) == NOTES_MAX + 1 and topic["not_counted"][-1] == "and 7 more"


# --- topic configs


def configs_of(directory: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    return {topic["topic"]: topic["configs"] for topic in report(directory, capsys)["topics"]}


def test_configs_are_the_current_ones(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    partition(tmp_path, "orders-0", entry(2, 0, 0, 1))
    partition(tmp_path, "gone-0", entry(2, 0, 0, 1))
    metadata(
        tmp_path,
        config("a", "1"),
        config("a", "2"),
        config("b", "1"),
        config("b", None),
        config("c", "1", "1", kind=4),
        TopicRecord(name="gone", topic_id=bytes(range(16))),
        config("d", "1", "gone"),
        RemoveTopicRecord(topic_id=bytes(range(16))),
    )
    assert configs_of(tmp_path, capsys) == {"__cluster_metadata": {}, "orders": {"a": "2"}, "gone": {}}


def test_snapshot_replaces_the_log_before_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    partition(tmp_path, "orders-0", entry(2, 0, 0, 1))
    metadata(tmp_path, config("a", "old"), config("b", "old"))
    metadata(tmp_path, config("b", "new"), config("c", "1"), name="00000000000000000002.log", offset=2)
    metadata(tmp_path, config("a", "snapshot"), name="00000000000000000002-0000000001.checkpoint")
    metadata(tmp_path, config("z", "1"), name="00000000000000000001-0000000001.checkpoint")
    assert configs_of(tmp_path, capsys)["orders"] == {"a": "snapshot", "b": "new", "c": "1"}


def test_foreign_metadata_is_skipped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "__cluster_metadata-0" / "00000000000000000000.log"
    path.parent.mkdir()
    values = [b"", b"\x01", b"\x01\x04\x00\xff\xff", b"\x01\x14\x00\x00", encode(config("a", "1")), b"\x02\x04\x00"]
    records = [Record(n, NOW, None, value) for n, value in enumerate(values)]
    bad = bytearray(batch.build([Record(6, NOW, None, b"x" * 40)], base_offset=6))
    struct.pack_into(">i", bad, 57, 9)
    path.write_bytes(batch.build(records) + bad + b"\xff" * 70)
    partition(tmp_path, "orders-0", entry(2, 0, 0, 1))
    assert configs_of(tmp_path, capsys)["orders"] == {"a": "1"}


# --- sentences


def sentences_of(*amounts: Amount, **configs: str) -> list[str]:
    return readiness.of_topic(amounts, {name.replace("_", "."): value for name, value in configs.items()})


def test_sentences_of_a_topic() -> None:
    old, new = Amount(1, 1, 1, 70), Amount(2, 0, 5, 500)
    assert sentences_of() == [] and sentences_of(Amount(2, 0, 0, 0)) == []
    assert sentences_of(new) == ["All in v2: returned as stored, to Fetch v4 and later only."]
    assert sentences_of(old, new) == [
        "1 record in v1: returned as stored, to Fetch v4 and later only; nothing is converted.",
        "If log.cleanup.policy is compact, the cleaner rewrites them as v2; else they stay until they are deleted.",
    ]
    assert sentences_of(old, cleanup_policy="delete")[1].startswith(
        "They stay as they are until retention deletes them"
    )
    assert sentences_of(old, cleanup_policy="compact")[1].startswith("The topic is compacted")
    assert readiness.of_topic([old], None)[1].startswith("If the topic is compacted")
    assert not any("lz4" in one for one in sentences_of(Amount(1, 3, 1, 9), Amount(2, 3, 1, 9)))
    assert sentences_of(new, message_downconversion_enable="false")[1:] == [
        "message.downconversion.enable=false: not known any more; it has no effect, and setting it is refused."
    ]


def test_sentences_about_all_topics() -> None:
    assert len(readiness.of_all((), configs_known=True)) == 3
    upgrades = readiness.of_all(["a", "with blank"], configs_known=True)[-1]
    assert "force.upgrade=2" in upgrades and "`ottla pipeline upgrade a 'with blank'`" in upgrades
    removed = readiness.of_all((), configs_known=False)[-1]
    assert all(name in removed for name in ("message.format.version", "message.timestamp.difference.max.ms"))


# --- directories


@pytest.mark.parametrize("name", ["missing", "a-file", "empty"])
def test_path_that_is_not_a_data_directory_is_refused(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a-file").write_bytes(b"")
    (tmp_path / "empty").mkdir()
    assert formats([str(tmp_path / name)]) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err.startswith("ottla formats: ") and captured.err.count("\n") == 1


def test_wrong_arguments_are_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        formats([])
    assert caught.value.code == 2
    assert capsys.readouterr().err == "ottla formats: the following arguments are required: DIR\n"


def test_directory_of_a_new_broker(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "meta.properties").write_text("version=1\n")
    assert text(tmp_path, capsys).startswith("On Kafka 4.0, for all formats:\n")


async def test_formats_of_a_running_broker(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing is locked, and the broker's own topic configs are found."""
    async with running(tmp_path / "data") as broker:
        await broker.topic("orders", configs={"cleanup.policy": "compact"})
        client = await broker.client()
        for count in (1, 2):
            response = only(await client.call(produce(records(*[b"v"] * count, key=b"k"), "orders"), 9))
            assert response.error_code == 0
            found = {topic["topic"]: topic for topic in report(tmp_path / "data", capsys)["topics"]}
            assert sum(one["records"] for one in found["orders"]["formats"]) == 2 * count - 1
        assert found["orders"]["configs"] == {"cleanup.policy": "compact"}
        await client.call(produce(records(b"v", key=b"k"), "orders"), 9)
