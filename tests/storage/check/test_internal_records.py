"""The records of internal topics in a verification: those of a broker are sound, faulty ones are found."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ottla.protocol.compiler import build
from ottla.protocol.internal_records.consumer_group_records import ConsumerGroupMetadataValue
from ottla.protocol.internal_records.group_records import GroupKey
from ottla.protocol.internal_records.layouts import LAYOUTS, problem_of
from ottla.protocol.internal_records.share_state_records import ShareStateKey, ShareUpdateValue, StateBatch
from ottla.protocol.records.batch import Record
from ottla.storage.check.directory import Verification
from ottla.storage.check.internal_records import FINDINGS_MAX, INTERNAL_TOPICS
from ottla.tools.disk.verify import verify
from ottla_testing.broker.beating import QUICK, altering_share_offset, consumer_beat, share_beat, share_joined
from ottla_testing.broker.harness import produce, records, running
from ottla_testing.broker.producer_logs import Log, report, runner
from ottla_testing.broker.sharing import ACCEPT, Member
from ottla_testing.broker.streaming import joining
from ottla_testing.protocol.batches import batch_of

OFFSETS, SHARE = "__consumer_offsets", "__share_group_state"
EPOCH_KEY = b"\0\3" + build(GroupKey(group_id="g"), 0)
EPOCH_VALUE = b"\0\0" + build(ConsumerGroupMetadataValue(epoch=1, metadata_hash=0), 0)
SHARE_KEY = b"\0\1" + build(ShareStateKey(group_id="g", topic_id=bytes(16), partition=0), 0)


def share_value(*batches: tuple[int, int, int]) -> bytes:
    value = ShareUpdateValue(
        snapshot_epoch=0,
        leader_epoch=0,
        start_offset=0,
        state_batches=[
            StateBatch(first_offset=first, last_offset=last, delivery_state=state, delivery_count=1)
            for first, last, state in batches
        ],
    )
    return b"\0\0" + build(value, 0)


def test_every_record_type_of_the_groups_is_known():
    assert sorted(LAYOUTS[OFFSETS]) == [*range(9), *range(10, 18), *range(19, 24)]
    assert LAYOUTS.keys() == INTERNAL_TOPICS
    assert sorted(LAYOUTS[SHARE]) == [0, 1] and sorted(LAYOUTS["__transaction_state"]) == [0]


@pytest.mark.parametrize(
    ("topic", "key", "value", "expected"),
    [
        (OFFSETS, EPOCH_KEY, EPOCH_VALUE, None),
        (OFFSETS, EPOCH_KEY, None, None),
        (OFFSETS, None, b"", ("a record key of 0 bytes", True)),
        (OFFSETS, b"\0", b"", ("a record key of 1 bytes", True)),
        (OFFSETS, b"\0\x63g", b"x", ("a record of the unknown type 99", False)),
        (SHARE, SHARE_KEY, share_value((0, 4, 2), (5, 5, 0), (6, 6, 3), (7, 9, 4)), None),
        (SHARE, SHARE_KEY, share_value((0, 4, 2), (4, 5, 0)),
         ("a ShareUpdate record with offsets 4 to 5 after 4", True)),
        (SHARE, SHARE_KEY, share_value((3, 2, 2)), ("a ShareUpdate record with offsets 3 to 2 after -1", True)),
        (SHARE, SHARE_KEY, share_value((3, 4, 1)),
         ("a ShareUpdate record with offsets 3 to 4 in delivery state 1", True)),
    ],
)  # fmt: skip
def test_problem_of_a_record(topic: str, key: bytes | None, value: bytes | None, expected: tuple[str, bool] | None):
    assert problem_of(topic, key, value) == expected


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        (EPOCH_KEY[:4], EPOCH_VALUE, "GroupKey.group_id"),
        (EPOCH_KEY, EPOCH_VALUE[:4], "ConsumerGroupMetadata"),
        (EPOCH_KEY, b"\0\7" + EPOCH_VALUE[2:], "value version 7, expected 0 to 0"),
        (EPOCH_KEY, b"\0", "value of 1 bytes"),
    ],
)
def test_record_that_cannot_be_decoded_is_wrong(key: bytes, value: bytes, text: str):
    problem = problem_of(OFFSETS, key, value)
    assert problem is not None and problem[1]
    assert problem[0].startswith("a ConsumerGroupMetadata record that cannot be decoded: ") and text in problem[0]


def write(log: Log, *pairs: tuple[bytes | None, bytes | None]) -> None:
    made = [Record(log.offset + n, log.time_ms, key, value) for n, (key, value) in enumerate(pairs)]
    log.raw(batch_of(made, base_offset=log.offset), len(made))


def test_faulty_records_are_listed_and_their_log_is_not_damaged(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    log = Log(tmp_path, OFFSETS)
    write(log, (EPOCH_KEY, EPOCH_VALUE), (b"\0\x63", b"x"))
    write(log, (EPOCH_KEY, EPOCH_VALUE[:4]))
    Log(tmp_path, "orders").plain(2)  # not an internal topic
    assert [one for one in Verification(tmp_path).findings() if one.part == "records"] == []
    found = [one for one in Verification(tmp_path, deep=True, check=problem_of).findings() if one.part == "records"]
    assert [(one.offset, one.wrong) for one in found] == [(1, False), (2, True)]
    assert found[1].where.startswith(f"{OFFSETS}-0/00000000000000000000.log at byte ") and found[0].byte == 0
    run = runner(verify, capsys)
    code, out, _ = run("--records", tmp_path)
    assert code == 1 and "a record of the unknown type 99" in out
    assert run("--topic", "orders", "--records", tmp_path)[0] == 0


def test_findings_of_a_segment_are_bounded(tmp_path: Path):
    log = Log(tmp_path, SHARE)
    write(log, *[(b"", None)] * (FINDINGS_MAX + 5))
    found = [
        one.what for one in Verification(tmp_path, deep=True, check=problem_of).findings() if one.part == "records"
    ]
    assert found == ["a record key of 0 bytes"] * FINDINGS_MAX + ["5 more records are faulty"]


async def test_records_of_groups_of_all_types_are_sound(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    async with running(tmp_path, overrides=QUICK) as broker:
        topic_id = await broker.topic("t", 2)
        client = await broker.client()
        await consumer_beat(client, "a", ["t"])
        await consumer_beat(client, "b", ["t"])
        await share_joined(client, "a", "t")
        await share_beat(client, "a", epoch=-1)
        assert (await client.call(altering_share_offset("s", "t", 0, 0), 0)).error_code == 0
        await client.call(produce(records(b"a", b"b", b"c")), 9)
        place, member = (topic_id, 0), await Member.join(broker, "a", "s")
        await member.fetch(place)
        await member.acknowledge({place: [(1, 1, [ACCEPT])]})
        assert (await client.call(joining(), 1)).error_code == 0
    found: Any = report(runner(verify, capsys), "--records", tmp_path)
    assert found["wrong"] == [] and found["partitions"] >= 6
