"""`ottla dump` with files and responses of real Kafka brokers, and with old messages, intact and damaged."""

from __future__ import annotations

import base64
import json
import re
import struct
import zlib
from pathlib import Path
from typing import Any

import pytest

from ottla.protocol.messages.records.fetch import FetchResponse
from ottla.protocol.records import legacy
from ottla.protocol.records.batch import Record
from ottla.protocol.records.compression import compress
from ottla_testing import GOLDEN
from ottla_testing.broker.dumping import NOW, Run, response, runner, segment_of
from ottla_testing.broker.harness import only, produce, records, running

TOPICS: dict[str, Any] = json.loads((GOLDEN / "topics.json").read_text())
RECORDS = [Record(5, NOW, b"k", b"v"), Record(7, NOW + 3, None, b"w")]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs the command; returns (exit code, stdout, stderr)."""
    return runner(capsys)


# --- real Kafka brokers


def test_every_file_of_kafka_is_read_completely(run: Run) -> None:
    files = [path for path in sorted((GOLDEN / "logs").rglob("*")) if path.is_file()]
    assert {path.suffix for path in files} >= {".log", ".index", ".timeindex", ".txnindex", ".snapshot", ".metadata"}
    for path in files:
        for options in ([], ["--records"]):
            code, out, err = run(*options, path)
            assert (code, err) == (0, ""), path
            assert out.startswith("     0  ") and f", {path.stat().st_size} bytes\n" in out


def shown_offsets(out: str) -> list[int]:
    """Returns the offsets of all records: of v2 batches, of plain messages, and of those inside of wrappers."""
    found = re.findall(r"^ *\+?\d+ +(?:record|message v[01]): offset (\d+),", out, re.M)
    return [int(offset) for offset in found]


def test_offsets_equal_those_of_a_consumer(run: Run) -> None:
    checked = 0
    for topic, result in TOPICS.items():
        folder = GOLDEN / "logs" / f"{topic}-0"
        if folder.exists() and topic != "transactions":  # which has markers, too
            found: list[int] = []
            for path in sorted(folder.glob("*.log")):
                found += shown_offsets(run("--records", path)[1])
            assert found == [record[0] for record in result["records"]], topic
            checked += 1
    assert checked > 10


def test_transactions_of_kafka_are_printed(run: Run) -> None:
    folder = GOLDEN / "logs" / "transactions-0"
    out = "".join(run(path)[1] for path in sorted(folder.glob("*.log")))
    assert {"control record: commit", "control record: abort"} == set(re.findall(r"control record: \w+", out))


@pytest.mark.parametrize("release", ["2.8.2", "3.9.1", "4.3.1"])
def test_transaction_states_of_kafka_are_printed_by_name(run: Run, release: str) -> None:
    path = GOLDEN / "directories" / release / "__transaction_state-0" / f"{0:020d}.log"
    code, out, err = run("--records", path)
    assert (code, err) == (0, "")
    states = re.findall(r"transaction_status: (\d \(\w+\))", out)
    assert len(states) == 32
    assert set(states) == {
        "0 (Empty)",
        "1 (Ongoing)",
        "2 (PrepareCommit)",
        "3 (PrepareAbort)",
        "4 (CompleteCommit)",
        "5 (CompleteAbort)",
    }


def test_responses_of_kafka_to_old_fetches_are_read(run: Run) -> None:
    """Converted record sets with their filler, which is an entry that is cut."""
    topic = FetchResponse.FetchableTopicResponse
    checked = 0
    for line in (GOLDEN / "answers.jsonl").read_text().splitlines():
        result = json.loads(line)
        if isinstance(result["records"], str) and result["records"]:
            records = base64.b64decode(result["records"])
            partition = topic.PartitionData(partition_index=0, error_code=0, high_watermark=0, records=records)
            data = response(
                FetchResponse(responses=[topic(topic="t", partitions=[partition])]), result["fetch_version"]
            )
            code, _, err = run("--records", "--response", f"1:{result['fetch_version']}", data.hex())
            assert (code, err) == (0, ""), line
            checked += 1
    assert checked > 20


# --- old messages


def test_plain_message_is_printed(run: Run, tmp_path: Path) -> None:
    data = bytes(legacy.build(RECORDS[:1], magic=1, log_append_time=True))
    head = legacy.read_header(data)
    path = segment_of(tmp_path, data)
    lines = [
        "     0  segment 00000000000000000000.log, 36 bytes",
        "     0    message v1: offset 5, 36 bytes",
        "     0      offset: 5",
        "     8      size: 24",
        f"    12      crc: {head.crc}",
        "    16      magic: 1",
        "    17      attributes: 0x08 (codec none, log_append_time)",
        f"    18      timestamp: {NOW} (2023-11-14T22:13:20.000Z)",
    ]
    assert run("--records", path)[1].splitlines() == [*lines, '    26      key: "k"', '    31      value: "v"']
    assert run(path)[1].splitlines() == [*lines, "    26      key: 1 bytes", "    31      value: 1 bytes"]


@pytest.mark.parametrize("codec", [1, 2, 3])
@pytest.mark.parametrize("magic", [0, 1])
def test_wrapper_is_printed(magic: int, codec: int, run: Run, tmp_path: Path) -> None:
    """Inner offsets are relative in v1 and absolute in v0; the stored and the absolute ones are both shown."""
    data = bytes(legacy.build(RECORDS, magic=magic, codec=codec))
    code, out, err = run("--records", segment_of(tmp_path, data))
    name = {1: "gzip", 2: "snappy", 3: "lz4"}[codec]
    assert (code, err) == (0, "")
    assert out.splitlines()[1] == f"     0    message v{magic} ({name} wrapper): last offset 7, {len(data)} bytes"
    size = (28, 36)[magic]
    inside = [line for line in out.splitlines() if line.lstrip().startswith("+")]
    assert [line for line in inside if "message" in line or " offset:" in line] == [
        f"    +0        message v{magic}: offset 5, {size} bytes",
        f"    +0          offset: {(5, 0)[magic]}",
        f"{f'+{size}':>6}        message v{magic}: offset 7, {size - 1} bytes",
        f"{f'+{size}':>6}          offset: {(7, 2)[magic]}",
    ]
    assert f"{f'+{size - 5}':>6}" + '          value: "v"' in inside
    headers_only = run(segment_of(tmp_path, data))[1]
    assert (
        "+" not in headers_only and headers_only.splitlines()[-1].split(": ")[1] == f"{data_bytes(data, magic)} bytes"
    )


def data_bytes(wrapper: bytes, magic: int) -> int:
    return len(wrapper) - (26, 34)[magic]


def wrapper(value: bytes | None, *, magic: int = 1, codec: int = 1, offset: int = 9) -> bytes:
    out = bytearray()
    legacy.put_message(out, offset, magic, codec, NOW, None, value)
    return bytes(out)


def inside(data: bytes) -> bytes:
    return wrapper(compress(1, data))


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (wrapper(None), "at byte 34: a wrapper without a value"),
        (inside(b""), "at byte +0: a wrapper without messages"),
        (wrapper(b"not gzip"), "damaged gzip data"),
        (wrapper(b"x", codec=4), "zstd"),
        (inside(bytes(legacy.build(RECORDS[:1], magic=0))), "at byte +16: magic 0 inside a wrapper of magic 1"),
        (inside(bytes(legacy.build(RECORDS[:1], magic=1))[:-1]), "at byte +0: a message of 36 bytes where 35 are left"),
        (inside(bytes(20)), "at byte +0: 20 bytes where a message begins"),
        (inside(bytes(legacy.build(RECORDS[:1], magic=1))[:-1] + b"x"), "at byte +12: the CRC"),
        (wrapper(zlib.compress(bytes(65 << 20), 9, 31)), "more than 67108864 bytes"),
    ],
)
def test_damaged_wrappers_are_reported_and_the_next_is_read(data: bytes, reason: str, run: Run, tmp_path: Path) -> None:
    path = segment_of(tmp_path, data, bytes(legacy.build(RECORDS[:1], magic=0)))
    code, out, err = run("--records", path)
    assert code == 1 and err.count("\n") == 1 and reason in err, err
    assert "message v0: offset 5, 28 bytes" in out


def test_message_with_bytes_left_over_is_reported(run: Run, tmp_path: Path) -> None:
    body = struct.pack(">bbii", 0, 0, -1, 1) + b"vmore"
    data = struct.pack(">qiI", 3, len(body) + 4, zlib.crc32(body)) + body
    code, out, err = run("--records", segment_of(tmp_path, data, data))
    assert code == 1 and "at byte 27: 4 bytes left over (and 1 more)" in err and out.count("message v0") == 2
    body = struct.pack(">bbii", 0, 0, -1, 99) + b"v"
    data = struct.pack(">qiI", 3, len(body) + 4, zlib.crc32(body)) + body
    code, out, err = run("--records", segment_of(tmp_path, data, data))
    assert code == 1 and "at byte 22: value: 99 bytes announced, 1 left (and 1 more)" in err
    assert out.count("message v0") == 2


async def test_every_file_of_a_broker_is_recognized(tmp_path: Path, run: Run) -> None:
    async with running(tmp_path) as broker:
        await broker.topic("t")
        client = await broker.client()
        assert only(await client.call(produce(records(b"a"), "t"), 9)).error_code == 0
    found = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {"ottla-clients.json", "meta.properties", ".kafka_cleanshutdown"} <= {path.name for path in found}
    for path in found:
        for options in ([], ["--records"], ["--schema"]):
            code, out, err = run(path, *options)
            assert (code, err) == (0, "") and out, path
    result = run(tmp_path / "ottla-clients.json")[1]
    assert result.startswith("     0  text ottla-clients.json, ") and "client_id" in result
