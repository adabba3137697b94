"""Records of `__share_group_state` and the combination of state, compared with Apache Kafka 4.3.1's own classes.

The bytes were written by `ShareCoordinatorRecordSerde`; `golden/combined.txt` has inputs and outputs of
`PersisterStateBatchCombiner`: older batches, newer ones, the start offset, and the result, a batch as
`first-last:state:count`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.broker.groups.records import partition_for
from ottla.broker.groups.share.state import SharePartitionKey
from ottla.broker.share import records
from ottla.broker.share.records import ShareState
from ottla.broker.share.state_coordinator import combined, coordinator_key, parsed_key
from ottla.broker.share.values import StateBatch
from ottla.protocol.errors import MalformedMessage
from ottla_testing.each import each

TOPIC_ID = bytes.fromhex("00000000000000010000000000000002")
KEY = SharePartitionKey("group-1", TOPIC_ID, 6)
STATE = ShareState(
    3, 4, 5, 100, 7, (StateBatch(100, 104, 2, 1), StateBatch(105, 110, 0, 3)), 1_700_000_000_000, 1_700_000_000_001
)
UPDATE = ShareState(3, 0, 5, -1, -1, (StateBatch(105, 110, 4, 5),))
GOLDEN = [
    (
        KEY,
        True,
        STATE,
        "0000000767726f75702d310000000000000001000000000000000200000006",
        "000000000003000000040000000500000000000000640000018bcfe568000000018bcfe568010300000000000000640000000000000068020001000000000000000069000000000000006e0000030001000400000007",
    ),
    (
        KEY,
        False,
        UPDATE,
        "0001000767726f75702d310000000000000001000000000000000200000006",
        "00000000000300000005ffffffffffffffff020000000000000069000000000000006e0400050000",
    ),
    (
        SharePartitionKey("ü", TOPIC_ID, 0),
        False,
        STATE._replace(state_epoch=0, created_ms=0, written_ms=0),
        "00010002c3bc0000000000000001000000000000000200000000",
        "0000000000030000000500000000000000640300000000000000640000000000000068020001000000000000000069000000000000006e0000030001000400000007",
    ),
    (KEY, True, None, "0000000767726f75702d310000000000000001000000000000000200000006", None),
]


@each("row", GOLDEN)
def test_records_have_kafkas_bytes(
    row: tuple[SharePartitionKey, bool, ShareState | None, str, str | None],
) -> None:
    key, is_snapshot, state, key_hex, value_hex = row
    if state is None:
        made = records.tombstone(key)
    else:
        made = (records.snapshot_record if is_snapshot else records.update_record)(key, state)
    value = None if value_hex is None else bytes.fromhex(value_hex)
    assert made == (bytes.fromhex(key_hex), value)
    assert records.decode(*made) == (key, is_snapshot, state)


def test_unknown_key_types_are_skipped() -> None:
    assert records.decode(b"\0\x02" + GOLDEN_KEY[2:], b"\0\0") is None
    assert records.decode(b"\0\x01" + GOLDEN_KEY[2:], None) is None


GOLDEN_KEY = bytes.fromhex(GOLDEN[0][3])  # type: ignore[arg-type]


@each(
    ("key", "value"),
    [(b"", b""), (b"\0", b""), (GOLDEN_KEY, b"\0"), (GOLDEN_KEY, b"\0\x01"), (GOLDEN_KEY[:-1], b"\0\0")],
)
def test_malformed_records_are_refused(key: bytes, value: bytes) -> None:
    with pytest.raises(MalformedMessage):
        records.decode(key, value)


def batches(text: str) -> list[StateBatch]:
    found: list[StateBatch] = []
    for part in text.split():
        ends, state, count = part.split(":")
        first, last = ends.split("-")
        found.append(StateBatch(int(first), int(last), int(state), int(count)))
    return found


def test_state_is_combined_as_by_kafka() -> None:
    lines = Path(__file__).with_name("golden").joinpath("combined.txt").read_text().splitlines()
    assert len(lines) == 60
    for line in lines:
        older, newer, start, expected = line.split("|")
        assert combined(batches(older), batches(newer), int(start)) == batches(expected), line


@each(("key", "partition"), [("g:{}:0", 31), ("group-1:{}:12", 30), ("ü:{}:3", 31)])
def test_partition_of_a_share_partition(key: str, partition: int) -> None:
    assert partition_for(key.format("AAAAAAAAAAEAAAAAAAAAAg"), 50) == partition


def test_keys_of_share_partitions() -> None:
    assert coordinator_key(KEY) == "group-1:AAAAAAAAAAEAAAAAAAAAAg:6"
    assert parsed_key(coordinator_key(KEY)) == KEY
    assert parsed_key("a:b:AAAAAAAAAAEAAAAAAAAAAg:12") == SharePartitionKey("a:b", TOPIC_ID, 12)
    for malformed in (
        "",
        "g",
        "g:AAAAAAAAAAEAAAAAAAAAAg",
        ":AAAAAAAAAAEAAAAAAAAAAg:0",
        "g:AAAA:0",
        "g:AAAAAAAAAAEAAAAAAAAAAg:x",
    ):
        assert parsed_key(malformed) is None
