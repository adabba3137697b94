"""`ottla dump` with damaged, hostile and random input: the readable part, one error line, exit code 1."""

from __future__ import annotations

import random
import re
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from ottla.protocol import schema
from ottla.protocol.messages.groups.heartbeat import HeartbeatRequest
from ottla.protocol.records import batch
from ottla.protocol.records.batch import Header, Record
from ottla_testing.broker.dumping import (
    CASES,
    MESSAGES,
    NOW,
    Run,
    random_value,
    request,
    response,
    runner,
    segment_of,
    snapshot,
    transactional,
)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs the command; returns (exit code, stdout, stderr)."""
    return runner(capsys)


def test_readable_part_comes_first(run: Run) -> None:
    data = request(HeartbeatRequest(group_id="g", generation_id=3, member_id="member"), 4)
    code, out, err = run(data[:-4].hex())
    assert code == 1 and err.count("\n") == 1 and "at byte 23: member_id: 6 bytes announced, 4 left" in err
    assert out.endswith("    19      generation_id: 3\n")


def test_bytes_left_over_after_a_message_are_shown(run: Run) -> None:
    """A broker ignores them: the frame is not damaged."""
    data = request(HeartbeatRequest(group_id="g", generation_id=3, member_id="member"), 4)
    code, out, err = run((data[4:] + b"more").hex())
    assert (code, err) == (0, "")
    assert out.endswith(f"{len(data) - 4:>6}    4 bytes left over, which a broker ignores: 6d6f7265\n")
    code, out, err = run((data[4:] + bytes(1024)).hex())
    assert (code, err) == (0, "") and f"1024 bytes left over, which a broker ignores: {'00' * 64}...\n" in out


def test_cut_segment_is_reported(run: Run, tmp_path: Path) -> None:
    data = bytes(transactional())
    path = segment_of(tmp_path, data, data[:-1])
    code, out, err = run(path)
    assert code == 1 and err.startswith(f"ottla dump: {path}: at byte {len(data)}: ") and out.count("batch v2") == 1


def test_wrong_crc_does_not_end_the_dump(run: Run, tmp_path: Path) -> None:
    data = bytes(transactional())
    bad = data[:-3] + b"\x55" + data[-2:]
    code, out, err = run(segment_of(tmp_path, bad, data))
    assert code == 1 and "at byte 17: the CRC does not match these bytes" in err
    assert out.count("batch v2") == 2


def test_decompression_bomb_is_reported_and_not_decompressed(run: Run, tmp_path: Path) -> None:
    squeezed = zlib.compress(bytes(65 << 20), 9, 31)
    head = batch.read_header(transactional())._replace(attributes=1, batch_length=49 + len(squeezed))
    body = bytearray(struct.pack(">qiibIhiqqqhii", *head) + squeezed)
    batch.reseal(body, attributes=1, max_timestamp=NOW)
    code, out, err = run("--records", segment_of(tmp_path, body))
    assert code == 1 and "more than 67108864 bytes" in err and len(out) < 2000


def damaged(data: bytes, source: random.Random) -> bytes:
    out = bytearray(data)
    for _ in range(source.randint(0, 4)):
        out[source.randrange(len(out))] = source.randrange(256)
    if source.random() < 0.4:
        del out[source.randrange(len(out)) :]
    if source.random() < 0.2:
        out += source.randbytes(5)
    return bytes(out)


def check(outcome: tuple[int, str, str], size: int) -> None:
    code, out, err = outcome
    assert code in (0, 1) and err.count("\n") == code, outcome
    assert not code or re.match(r"ottla dump: .*: at byte \+?\d+: .+\n", err), err
    assert len(out) <= 3000 + 1500 * size


def test_damaged_frames_never_raise(run: Run, scaled: Callable[[int], int]) -> None:
    source = random.Random(11)
    cases = [case for case in CASES if case[0].endswith(("Request", "Response"))]
    for _ in range(scaled(250)):
        name, version = source.choice(cases)
        value = random_value(schema.group_of(MESSAGES[name], version), source)
        sized = source.random() < 0.5
        frame = request if name.endswith("Request") else response
        data = damaged(frame(value, version, sized=sized), source) or b"\0"
        more = [] if name.endswith("Request") else ["--response", f"{name[:-8]}:{version}"]
        check(run(*more, *source.choice([[], ["--records"]]), data.hex()), len(data))


def sample_segment(source: random.Random) -> bytes:
    parts = []
    for _ in range(source.randint(1, 3)):
        key = source.choice([None, b"k", bytes.fromhex("0001 0001 67 0001 74 00000003"), bytes.fromhex("00000001")])
        value = source.choice([None, b"v" * 50, bytes.fromhex("0003"), b"\x01\x04\x00\x02\x02t\x02a\x00\x00"])
        records = [Record(n, NOW, key, value, (Header("h", b"1"),)) for n in range(source.randint(1, 3))]
        parts.append(
            bytes(
                batch.build(
                    records, batch.BatchFields(control=source.random() < 0.2), codec=source.choice([0, 1, 2, 3, 4])
                )
            )
        )
    return b"".join(parts)


def resealed(data: bytes) -> bytes:
    """Damage under a correct CRC, as long as there is a batch."""
    out = bytearray(data)
    try:
        head = batch.read_header(out)
        batch.reseal(out, attributes=head.attributes, max_timestamp=head.max_timestamp)
    except (batch.CorruptRecords, struct.error):
        return data
    return bytes(out)


def test_damaged_files_never_raise(run: Run, tmp_path: Path, scaled: Callable[[int], int]) -> None:
    source = random.Random(12)
    small = {
        "x.index": struct.pack(">iiii", 5, 4200, 9, 8400),
        "x.timeindex": struct.pack(">qi", NOW, 5),
        "x.txnindex": struct.pack(">hqqqq", 0, 9, 1001, 1005, 1006),
        "x.snapshot": snapshot((9, 1, 5, 1005, 2, NOW, -1, -1)),
        "leader-epoch-checkpoint": b"0\n1\n3 17\n",
        "replication-offset-checkpoint": b"0\n1\norders 0 17\n",
        "partition.metadata": b"version: 0\ntopic_id: jGFxU0_9Tj-cKjjYIZuPSQ",
        "meta.properties": b"#\nversion=1\n",
        "unnamed": b"\0\0\0\x05hello",
    }
    for name, good in small.items():
        path = tmp_path / name
        for _ in range(scaled(15)):
            data = damaged(good, source)
            path.write_bytes(data)
            check(run(*source.choice([[], ["--records"]]), path), len(data))
    for topic in ("orders", "__consumer_offsets", "__cluster_metadata", "__transaction_state"):
        for _ in range(scaled(40)):
            data = resealed(damaged(sample_segment(source), source))
            check(run("--records", segment_of(tmp_path, data, topic=topic)), 40 * len(data))


def test_random_bytes_never_raise(run: Run, tmp_path: Path, scaled: Callable[[int], int]) -> None:
    source = random.Random(13)
    for _ in range(scaled(100)):
        data = source.randbytes(source.randint(1, 200))
        if source.random() < 0.5:  # resembles a header, so that more than the first check runs
            data = struct.pack(">ihh", len(data) + 4, source.randrange(80), source.randrange(15)) + data
        check(run(data.hex()), len(data))
        check(run("--records", segment_of(tmp_path, data)), len(data))
