"""`ottla dump`: the printed lines of every kind of input, the positions in them, and every kind of damage."""

from __future__ import annotations

import io
import random
import re
import struct
import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from crc32c import crc32c

from ottla.broker.trace import frames
from ottla.protocol import schema
from ottla.protocol.compiler import build
from ottla.protocol.internal_records import group_records, metadata_records
from ottla.protocol.internal_records.layouts import LAYOUTS
from ottla.protocol.messages.groups.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.protocol.messages.records.fetch import FetchResponse
from ottla.protocol.messages.records.produce import ProduceRequest
from ottla.protocol.primitives import Array, Fixed, Nullable
from ottla.protocol.records import batch
from ottla.protocol.records.batch import Record
from ottla.protocol.schema import Group, empty_value, spec
from ottla_testing.broker.dumping import (
    MESSAGES,
    NOW,
    RECORDS,
    Run,
    random_value,
    request,
    response,
    runner,
    segment_of,
    snapshot,
    transactional,
)
from ottla_testing.each import each, naming
from ottla_testing.patience import PATIENCE_S


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs the command; returns (exit code, stdout, stderr)."""
    return runner(capsys)


# --- frames


def test_request_is_printed_line_by_line(run: Run) -> None:
    value = HeartbeatRequest(group_id="g", generation_id=3, member_id="mé", group_instance_id=None)
    code, out, err = run(request(value, 4).hex())
    assert (code, err) == (0, "")
    assert out == (
        "     0  Heartbeat request v4, 26 bytes\n"
        "     0    size: 26\n"
        "     4    header\n"
        "     4      request_api_key: 12 (Heartbeat)\n"
        "     6      request_api_version: 4\n"
        "     8      correlation_id: 5\n"
        '    12      client_id: "me"\n'
        "    17    HeartbeatRequest\n"
        '    17      group_id: "g"\n'
        "    19      generation_id: 3\n"
        '    23      member_id: "mé"\n'
        "    27      group_instance_id: null\n"
    ).replace("v4, 26", f"v4, {len(request(value, 4)) - 4}").replace("size: 26", f"size: {len(request(value, 4)) - 4}")


def test_schema_of_a_request(run: Run) -> None:
    value = HeartbeatRequest(group_id="g", generation_id=3, member_id="m")
    code, out, _ = run("--schema", request(value, 4).hex())
    assert code == 0
    assert out == (
        "Heartbeat request v4 (versions 0-4, flexible 4+)\n"
        "  header\n"
        "    request_api_key: int16\n"
        "    request_api_version: int16\n"
        "    correlation_id: int32\n"
        "    client_id: text, length int16, nullable\n"
        "    tagged fields\n"
        "  HeartbeatRequest\n"
        "    group_id: text, compact length, versions 0+\n"
        "    generation_id: int32, versions 0+\n"
        "    member_id: text, compact length, versions 0+\n"
        "    group_instance_id: text, compact length, nullable, versions 3+\n"
    )


def test_schema_has_tags(run: Run) -> None:
    value = FetchResponse(throttle_time_ms=0, responses=[])
    _, out, _ = run("--schema", "--response", "fetch:16", response(value, 16).hex())
    assert "    node_endpoints: array of struct, compact length, versions 16+, tag 0\n      node_id: int32" in out
    assert "        records: records, compact length, nullable, versions 0+\n" in out


@pytest.mark.parametrize("sized", [True, False])
@pytest.mark.parametrize("api", ["12:0", "Heartbeat:0", "heartbeat:0"])
def test_response_is_chosen_by_api_number_or_name(run: Run, api: str, sized: bool) -> None:
    # Two bytes after the correlation id 2: the same number with and without a size.
    data = response(HeartbeatResponse(error_code=25), 0, sized=sized, correlation_id=2)
    code, out, err = run("--response", api, data.hex())
    assert (code, err) == (0, "")
    start = 4 if sized else 0
    assert out.splitlines()[-3:] == [
        f"{start:6}      correlation_id: 2",
        f"{start + 4:6}    HeartbeatResponse",
        f"{start + 4:6}      error_code: 25 (UNKNOWN_MEMBER_ID)",
    ]


def test_api_versions_response_has_header_v0(run: Run) -> None:
    cls = MESSAGES["ApiVersionsResponse"]
    data = response(cls(error_code=0, api_keys=[]), 3)
    code, out, _ = run("--response", "ApiVersions:3", data.hex())
    assert code == 0 and "     4    ApiVersionsResponse\n" in out


def test_several_requests_in_sequence_are_printed(run: Run) -> None:
    one = HeartbeatRequest(group_id="g", generation_id=3, member_id="m")
    data = request(one, 4) + request(ProduceRequest(acks=1, timeout_ms=2, topic_data=[]), 3)
    code, out, _ = run(data.hex())
    assert code == 0
    assert re.findall(r"^ *(\d+)  (\w+) request v(\d+)", out, re.M) == [
        ("0", "Heartbeat", "4"),
        (str(len(request(one, 4))), "Produce", "3"),
    ]
    code, out, err = run((data + b"\0\0").hex())
    assert code == 1 and f"at byte {len(data)}: 2 bytes" in err


def fixed_names(codec: Any) -> dict[str, set[str]]:
    """Returns the formats of the fixed-size numbers in a message, by field name."""
    found: dict[str, set[str]] = {}
    if isinstance(codec, Array):
        return fixed_names(codec.item)
    if isinstance(codec, Nullable):
        return fixed_names(codec.inner)
    if isinstance(codec, Group):
        for name, inner in [*codec.plan, *(codec.tags or {}).values()]:
            if isinstance(inner, Fixed):
                found.setdefault(name, set()).add(inner.fmt)
            for more, formats in fixed_names(inner).items():
                found.setdefault(more, set()).update(formats)
    return found


@pytest.mark.parametrize("name", [name for name in MESSAGES if name.endswith(("Request", "Response"))])
def test_printed_positions_are_those_of_the_values(name: str, run: Run, stride: int) -> None:
    """Every message and version (in a small run, some): each number is read again at the position in its line."""
    versions = schema.spec(MESSAGES[name]).versions.range()
    for version in versions[random.randrange(min(stride, len(versions))) :: stride]:
        with naming(f"v{version}"):
            assert_positions_point_at_what_is_printed(name, version, run)


def assert_positions_point_at_what_is_printed(name: str, version: int, run: Run) -> None:
    cls = MESSAGES[name]
    layout = schema.group_of(cls, version)
    value = random_value(layout, random.Random(f"{name} {version}"))
    frame, more = (request, []) if name.endswith("Request") else (response, ["--response", f"{name[:-8]}:{version}"])
    data = frame(value, version, sized=True)
    code, out, err = run(*more, data.hex())
    assert code == (1 if "records: " in out and err else 0), err
    formats = {field: next(iter(found)) for field, found in fixed_names(layout).items() if len(found) == 1}
    for position, field, shown in re.findall(r"^ *(\d+) +(\w+)(?: \(tag \d+\))?: (-?\d+)(?= \(|$)", out, re.M):
        if formats.get(field, "?") in "bhiqHI":
            found = struct.unpack_from(">" + formats[field], data, int(position))[0]
            assert found == int(shown), (field, position)
    # Outside of arrays and tags, every field is printed.
    assert [field for field, _ in layout.plan if not re.search(rf"^ *\d+ {{6}}{field}(?::|$)", out, re.M)] == []


# --- record batches


GOLDEN_BATCH = """\
     0    batch v2: offsets 7-8, 2 records, 82 bytes
     0      base_offset: 7
     8      batch_length: 70
    12      partition_leader_epoch: 4
    16      magic: 2
    17      crc: CRC
    21      attributes: 0x0010 (codec none, transactional)
    23      last_offset_delta: 1
    27      base_timestamp: 1700000000000 (2023-11-14T22:13:20.000Z)
    35      max_timestamp: 1700000000007 (2023-11-14T22:13:20.007Z)
    43      producer_id: 9
    51      producer_epoch: 1
    53      base_sequence: 5
    57      record_count: 2
    61      records: 21 bytes
    61        record: offset 7, timestamp 1700000000000 (2023-11-14T22:13:20.000Z)
    61          length: 12
    62          attributes: 0
    63          timestamp_delta: 0
    64          offset_delta: 0
    65          key: "k"
    67          value: "v"
    69          headers: 1 item
    70            [0]
    70              key: "h"
    72              value: "x"
    74        record: offset 8, timestamp 1700000000007 (2023-11-14T22:13:20.007Z)
    74          length: 8
    75          attributes: 0
    76          timestamp_delta: 7
    77          offset_delta: 1
    78          key: null
    79          value: 0x00ff
    82          headers: 0 items
"""


def test_segment_is_printed_line_by_line(run: Run, tmp_path: Path) -> None:
    data = transactional()
    path = segment_of(tmp_path, data, data)
    golden = GOLDEN_BATCH.replace("CRC", str(batch.read_header(data).crc)).replace("82 bytes", f"{len(data)} bytes")
    golden = golden.replace("batch_length: 70", f"batch_length: {len(data) - 12}").replace(
        "records: 21 bytes", f"records: {len(data) - 61} bytes"
    )
    code, out, err = run("--records", path)
    assert (code, err) == (0, "")
    assert out.startswith(f"     0  segment 00000000000000000000.log, {2 * len(data)} bytes\n{golden}")
    second = out[len(out) // 2 :]
    assert f"{len(data) + 57:6}      record_count: 2\n" in second
    code, headers_only, _ = run(path)
    assert code == 0 and headers_only == re.sub(r"^ *\d+ {8,}.*\n", "", out, flags=re.M)


def test_positions_in_compressed_records_are_relative_to_their_start(run: Run, tmp_path: Path) -> None:
    records = [Record(0, NOW, b"k" * 300, b"v" * 300), Record(1, NOW, None, b"x")]
    code, out, err = run("--records", segment_of(tmp_path, batch.build(records, codec=1)))
    assert (code, err) == (0, "")
    assert re.search(r"^ +61      records: \d+ bytes, gzip$", out, re.M)
    assert re.search(r'^ +\+5 +key: "k{256}"\.\.\. \(300 bytes\)$', out, re.M)
    assert f"{'+610':>6}        record: offset 1, timestamp {NOW}" in out


def test_transaction_marker_is_printed(run: Run, tmp_path: Path) -> None:
    marker = [Record(3, NOW, bytes.fromhex("00000001"), bytes.fromhex("000000000007"))]
    data = batch.build(
        marker, batch.BatchFields(producer_id=9, producer_epoch=1, transactional=True, control=True), base_offset=3
    )
    code, out, _ = run(segment_of(tmp_path, data))  # its record is shown without --records
    assert (code, out) == (0, run("--records", segment_of(tmp_path, data))[1])
    assert out.endswith(
        "    65          key: 4 bytes, control record: commit\n"
        "    66            version: 0\n"
        "    68            type: 1\n"
        "    70          value: 6 bytes, end of a transaction\n"
        "    71            version: 0\n"
        "    73            coordinator_epoch: 7\n"
        "    77          headers: 0 items\n"
    )


def decoded(run: Run, folder: Path, topic: str, key: bytes | None, value: bytes | None) -> list[str]:
    code, out, err = run("--records", segment_of(folder, batch.build([Record(0, NOW, key, value)]), topic=topic))
    assert (code, err) == (0, "")
    lines = out.splitlines()
    return [line[8:].strip() for line in lines[lines.index(next(x for x in lines if "  offset_delta:" in x)) + 1 : -1]]


def test_offsets_groups_and_transactions_are_decoded_by_their_schemas(run: Run, tmp_path: Path) -> None:
    key = struct.pack(">h", 1) + build(group_records.OffsetCommitKey(group="g", topic="t", partition=3), 0)
    commit = group_records.OffsetCommitValue(offset=42, leader_epoch=1, metadata="", commit_timestamp=NOW)
    assert decoded(run, tmp_path, "__consumer_offsets", key, struct.pack(">h", 3) + build(commit, 3)) == [
        "key: 12 bytes, OffsetCommitKey",
        "type: 1",
        'group: "g"',
        'topic: "t"',
        "partition: 3",
        "value: 24 bytes, OffsetCommitValue v3",
        "version: 3",
        "offset: 42",
        "leader_epoch: 1",
        'metadata: ""',
        f"commit_timestamp: {NOW} (2023-11-14T22:13:20.000Z)",
    ]
    key = struct.pack(">h", 2) + build(group_records.GroupMetadataKey(group="g"), 0)
    assert decoded(run, tmp_path, "__consumer_offsets", key, None)[-1] == "value: null"
    # A key and value written by Kafka's TransactionLog: id "tx", producer 5, epoch 2, one partition, ongoing (1).
    key = bytes.fromhex("0000 0002 7478")
    value = bytes.fromhex(
        "0000 0000000000000005 0002 0000ea60 01 00000001 0001 74 00000001 000000030000018bcfe56800 0000018bcfe56807"
    )
    assert decoded(run, tmp_path, "__transaction_state", key, value) == [
        "key: 6 bytes, TransactionLogKey",
        "type: 0",
        'transactional_id: "tx"',
        f"value: {len(value)} bytes, TransactionLogValue v0",
        "version: 0",
        "producer_id: 5",
        "producer_epoch: 2",
        "transaction_timeout_ms: 60000",
        "transaction_status: 1 (Ongoing)",
        "transaction_partitions: 1 item",
        "[0]",
        'topic: "t"',
        "partition_ids: 1 item: 3",
        f"transaction_last_update_timestamp_ms: {NOW} (2023-11-14T22:13:20.000Z)",
        f"transaction_start_timestamp_ms: {NOW + 7} (2023-11-14T22:13:20.007Z)",
    ]


@each("topic", LAYOUTS)
def test_every_type_of_record_of_an_internal_topic_is_decoded(topic: str, run: Run, tmp_path: Path) -> None:
    records: list[Record] = []
    titles: list[str] = []
    for kind, (key, value, _) in sorted(LAYOUTS[topic].items()):
        newest = spec(value).versions.last
        parts = (build(empty_value(key), 0), build(empty_value(value), newest))
        records.append(Record(0, NOW, struct.pack(">h", kind) + parts[0], struct.pack(">h", newest) + parts[1]))
        titles += [key.__name__, f"type: {kind}", f"{value.__name__} v{newest}"]
    code, out, err = run("--records", segment_of(tmp_path, batch.build(records), topic=topic))
    assert (code, err) == (0, "")
    lines = [line[8:].strip().rpartition("bytes, ")[2] for line in out.splitlines()]
    assert [line for line in lines if line in set(titles)] == titles


def test_newest_transaction_record_is_flexible(run: Run, tmp_path: Path) -> None:
    """Tags 0 to 3: previous and next producer id, client version, next epoch (KIP-890)."""
    value = bytes.fromhex(
        "0001 0000000000000005 0002 0000ea60 00 00 0000000000000001 0000000000000002"
        "04 00 08 0000000000000004 01 08 0000000000000006 02 02 0002 03 02 0003"
    )
    assert decoded(run, tmp_path, "__transaction_state", bytes.fromhex("0000 0002 7478"), value)[-5:] == [
        "tagged fields: 4",
        "previous_producer_id (tag 0): 4",
        "next_producer_id (tag 1): 6",
        "client_transaction_version (tag 2): 2",
        "next_producer_epoch (tag 3): 3",
    ]


def test_metadata_records_are_decoded_by_their_frame(run: Run, tmp_path: Path) -> None:
    record = metadata_records.ConfigRecord(resource_type=2, resource_name="t", name="a", value=None)
    assert decoded(run, tmp_path, "__cluster_metadata", None, b"\x01\x04\x00" + build(record, 0)) == [
        "key: null",
        "value: 10 bytes, ConfigRecord v0",
        "frame_version: 1",
        "type: 4",
        "version: 0",
        "resource_type: 2",
        'resource_name: "t"',
        'name: "a"',
        "value: null",
    ]
    unknown = decoded(run, tmp_path, "__cluster_metadata", None, b"\x01\x14\x09\x00")
    assert unknown[1:] == [
        "value: 4 bytes, NoOpRecord v9",
        "frame_version: 1",
        "type: 20",
        "version: 9",
        "fields: 0x00",
    ]


def test_undecodable_value_does_not_end_the_dump(run: Run, tmp_path: Path) -> None:
    key = bytes.fromhex("0001 0001 67 0001 74 00000003")
    records = [Record(0, NOW, key, b"\x00\x03\x00"), Record(1, NOW, None, b"after it")]
    code, out, err = run("--records", segment_of(tmp_path, batch.build(records), topic="__consumer_offsets"))
    assert code == 1 and err.count("\n") == 1 and "offset: 8 bytes announced, 1 left" in err
    assert '"after it"' in out


def test_batches_in_produce_and_fetch_are_printed(run: Run) -> None:
    data = bytes(batch.build(RECORDS, base_offset=7))
    topic = ProduceRequest.TopicProduceData
    partition = topic.PartitionProduceData(index=0, records=data)
    value = ProduceRequest(acks=1, timeout_ms=2, topic_data=[topic(name="t", partition_data=[partition])])
    frame = request(value, 9)
    code, out, err = run("--records", frame.hex())
    assert (code, err) == (0, "")
    start = frame.index(data)
    assert f"{start:6}                batch v2: offsets 7-8, 2 records, {len(data)} bytes\n" in out
    assert f"{start + 16:6}                  magic: 2\n" in out
    assert f'{start + 65:6}                      key: "k"\n' in out

    result = FetchResponse.FetchableTopicResponse
    fetched = result.PartitionData(partition_index=0, error_code=0, high_watermark=9, records=data + data[:30])
    found = response(FetchResponse(responses=[result(topic="t", partitions=[fetched])]), 4)
    code, out, err = run("--response", "1:4", found.hex())
    assert (code, err) == (0, ""), "a set that was cut is no damage"
    assert "  30 bytes of a cut entry\n" in out and "record:" not in out


def test_damaged_records_do_not_hide_later_ones(run: Run) -> None:
    topic = ProduceRequest.TopicProduceData
    partitions = [topic.PartitionProduceData(index=n, records=b"\xff" * 70) for n in (3, 4)]
    value = ProduceRequest(acks=1, timeout_ms=2, topic_data=[topic(name="t", partition_data=partitions)])
    code, out, err = run(request(value, 3).hex())
    assert code == 1 and "magic -1 where 2 is expected (and 1 more)" in err and "index: 4\n" in out


# --- small files


def test_offset_index_is_printed(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "00000000000000001000.index"
    path.write_bytes(struct.pack(">iiii", 5, 4200, 9, 8400) + bytes(16))
    assert run(path) == (
        0,
        "     0  offset index 00000000000000001000.index, 32 bytes\n"
        "     0    entry 0\n"
        "     0      relative_offset: 5 (offset 1005)\n"
        "     4      position: 4200\n"
        "     8    entry 1\n"
        "     8      relative_offset: 9 (offset 1009)\n"
        "    12      position: 8400\n"
        "    16    16 preallocated bytes, all zero\n",
        "",
    )


def test_time_index_and_transaction_index_are_printed(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "00000000000000001000.timeindex.deleted"
    path.write_bytes(struct.pack(">qi", NOW, 5))
    assert run(path)[1].splitlines()[1:] == [
        "     0    entry 0",
        f"     0      timestamp: {NOW} (2023-11-14T22:13:20.000Z)",
        "     8      relative_offset: 5 (offset 1005)",
    ]
    path = tmp_path / "00000000000000001000.txnindex"
    path.write_bytes(struct.pack(">hqqqq", 0, 9, 1001, 1005, 1006) + b"\1\2\3")
    code, out, err = run(path)
    assert code == 1 and err == f"ottla dump: {path}: at byte 34: 3 bytes where an entry takes 34\n"
    assert out.splitlines()[1:] == [
        "     0    entry 0",
        "     0      version: 0",
        "     2      producer_id: 9",
        "    10      first_offset: 1001",
        "    18      last_offset: 1005",
        "    26      last_stable_offset: 1006",
    ]


def test_producer_snapshot_is_printed(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "00000000000000001000.snapshot"
    data = snapshot((9, 1, 5, 1005, 2, NOW, -1, -1))
    path.write_bytes(data)
    assert run(path)[1].splitlines()[1:] == [
        "     0    version: 1",
        f"     2    crc: {crc32c(data[6:])}",
        "     6    entries: 1 item",
        "    10      [0]",
        "    10        producer_id: 9",
        "    18        epoch: 1",
        "    20        last_sequence: 5",
        "    24        last_offset: 1005",
        "    32        offset_delta: 2",
        f"    36        timestamp: {NOW} (2023-11-14T22:13:20.000Z)",
        "    44        coordinator_epoch: -1",
        "    48        current_transaction_first_offset: -1",
    ]
    path.write_bytes(data[:-1] + b"\0")
    code, out, err = run(path)
    assert code == 1 and "at byte 2: wrong CRC" in err and "current_transaction_first_offset: -256" in out
    path.write_bytes(data[:6] + struct.pack(">i", 2**31 - 1) + data[10:])
    code, out, err = run(path)
    assert code == 1 and "2147483647 items announced, 46 bytes left" in err


def test_checkpoints_and_other_texts_are_printed(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "recovery-point-offset-checkpoint"
    path.write_text("0\n2\norders 0 17\norders 1 4\n")
    assert run(path)[1].splitlines()[1:] == [
        "     0    version: 0",
        "     2    entries: 2",
        "     4    topic orders, partition 0, offset 17",
        "    16    topic orders, partition 1, offset 4",
    ]
    path = tmp_path / "leader-epoch-checkpoint"
    path.write_text("0\n2\n3 17\n")
    code, out, err = run(path)
    assert (
        code == 1
        and "     4    epoch 3, start_offset 17\n" in out
        and "the file has 1 entries, its second line announces 2" in err
    )
    path = tmp_path / "partition.metadata"
    path.write_text("version: 0\ntopic_id: jGFxU0_9Tj-cKjjYIZuPSQ")
    assert run(path)[1].splitlines()[1:] == ["     0    version: 0", "    11    topic_id: jGFxU0_9Tj-cKjjYIZuPSQ"]
    path.write_text("version: 0\ntopic_id: short")
    assert run(path)[0] == 1
    path = tmp_path / "meta.properties"
    path.write_text("#\nversion=1\nnode.id=1\n")
    assert run(path)[1].splitlines()[1:] == ["     2    version: 1", "    12    node.id: 1"]


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("x.index", ["offset index", "  entries until the end", "    relative_offset: int32"]),
        ("x.timeindex", ["time index", "  entries until the end", "    timestamp: int64"]),
        ("leader-epoch-checkpoint", ["checkpoint of leader epochs", "  line 1: version"]),
        ("x.snapshot", ["producer snapshot", "  version: int16", "  crc: uint32", "  entries: array of struct,"]),
        ("x.log", ["segment: entries of these formats, chosen by byte 16 of each (magic)"]),
    ],
)
def test_schemas_of_files(name: str, lines: list[str], run: Run, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(b"")
    code, out, _ = run("--schema", tmp_path / name)
    assert code == 0 and out.startswith("\n".join(lines))


def test_schema_of_a_segment_has_all_formats(run: Run, tmp_path: Path) -> None:
    _, out, _ = run("--schema", segment_of(tmp_path))
    for text in ("message v0", "message v1", "batch v2", "record of a batch v2", "delete_horizon: bit 6", "varlong"):
        assert text in out


# --- input other than a file


def test_hex_is_accepted_in_all_spellings(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = request(HeartbeatRequest(group_id="g", generation_id=3, member_id="m"), 4)
    expected = run(data.hex())
    assert expected[0] == 0
    spelled = [data.hex(" "), data.hex(":").upper(), "0x" + data.hex(), " ".join(f"0x{byte:02x}" for byte in data)]
    assert [run(text) for text in spelled] == [expected] * 4
    texts = [text.replace(" ", "\r\n").encode() + b"\n" for text in spelled]
    for content in (data, *texts):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
        assert run("-") == expected
        (tmp_path / "captured").write_bytes(content)
        assert run(tmp_path / "captured") == expected


def test_long_hex_text_takes_little_memory(run: Run, tmp_path: Path) -> None:
    data = request(HeartbeatRequest(group_id="g" * 30_000, generation_id=3, member_id="m"), 4)
    (tmp_path / "captured").write_text("\n".join(f"0x{byte:02x}" for byte in data))
    tracemalloc.start()
    assert run(tmp_path / "captured")[0] == 0
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 40 * len(data)  # the text has five letters for each byte, and is copied a few times


def test_batches_on_stdin_are_recognized(run: Run, tmp_path: Path) -> None:
    data = bytes(transactional())
    code, out, _ = run(data.hex())
    assert code == 0 and out.startswith(f"     0  record batches, {len(data)} bytes\n     0    batch v2: offsets 7-8")
    (tmp_path / "captured").write_bytes(data)
    assert run(tmp_path / "captured")[1].splitlines()[1:] == out.splitlines()[1:]


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["/no/such/file"], "/no/such/file is neither a file nor hex"),
        (["abc"], "hex with an odd number of digits"),
        ([""], " is neither a file nor hex"),
        (["/"], "/ is a directory: expected a file (`ottla formats` reads directories)"),
        (
            ["--response", "12", "00"],
            "--response: '12' is not KEY:VERSION, such as 0:9 or Produce:9",
        ),
        (["--response", "1:99999999999", "00"], "--response: Fetch has no version 99999999999; it has 0-18"),
        (["--response", "00000000012:0", "00"], "--response: no API is known as '00000000012'"),
        (["--response", "999:1", "00"], "--response: no API is known as '999'"),
        (["--response", "Heartbeat:5", "00"], "--response: Heartbeat has no version 5; it has 0-4"),
        ([], "the following arguments are required: FILE|-|HEX"),
    ],
)
def test_wrong_arguments_are_one_line_and_exit_code_2(arguments: list[str], problem: str, run: Run) -> None:
    assert run(*arguments) == (2, "", f"ottla dump: {problem}\n")


@pytest.mark.parametrize("text", ["00", "ffff", "00000000", "0012ffff00000000"])
def test_foreign_bytes_are_one_line_and_exit_code_1(text: str, run: Run) -> None:
    code, out, err = run(text)
    size = len(text) // 2
    reason = f"at byte 0: {size} bytes that are neither a known request nor record batches"
    assert (code, out, err) == (1, "", f"ottla dump: {text}: {reason}\n")


# --- the command


def test_closed_pipe_is_not_an_error(tmp_path: Path) -> None:
    """`ottla dump ... | head -1`: more than a pipe holds, and nothing on stderr."""
    path = segment_of(tmp_path, *[transactional()] * 2000)
    script = Path(sys.executable).with_name("ottla")
    with subprocess.Popen([script, "dump", path], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(PATIENCE_S) == 0


def test_letters_missing_in_the_encoding_are_escaped(tmp_path: Path) -> None:
    data = request(HeartbeatRequest(group_id='ü\n"', generation_id=3, member_id="\u2028"), 4)
    script = Path(sys.executable).with_name("ottla")
    environ = {"PYTHONIOENCODING": "ascii", "PATH": "/usr/bin"}
    done = subprocess.run([script, "dump", data.hex()], capture_output=True, text=True, env=environ, check=True)
    assert 'group_id: "\\xfc\\n\\""' in done.stdout and 'member_id: "\\u2028"' in done.stdout


def test_every_api_is_known_by_name() -> None:
    assert {api.name for api in frames.apis().values()} == {
        name.removesuffix("Request") for name in MESSAGES if name.endswith("Request")
    }
