"""Groups and offsets in Kafka's record format: golden bytes, all versions, and restarts."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.broker.groups import records
from ottla.broker.groups.classic.state import Group, GroupState, Member
from ottla.broker.groups.coordinator import TopicLookup
from ottla.broker.groups.offsets import CommittedOffset
from ottla.broker.groups.records import GroupEntry, OffsetEntry
from ottla.protocol.compiler import build
from ottla.protocol.errors import ErrorCode, MalformedMessage
from ottla.protocol.internal_records.group_records import GroupMetadataValue, MemberMetadata, OffsetCommitValue

KEY = bytes.fromhex("00010002676700017400000003")
# Version 3: offset 258, leader epoch 5, metadata "m", committed at 1.7e12 ms.
VALUE_V3 = bytes.fromhex("000300000000000001020000000500016d0000018bcfe56800")
# Version 1: no leader epoch, and an expiry 1 s after the commit.
VALUE_V1 = bytes.fromhex("0001000000000000010200016d0000018bcfe568000000018bcfe56be8")

GROUP_KEY = bytes.fromhex("0002000167")
GROUP_VALUE_V3 = bytes.fromhex(
    "0003"
    "0008" "636f6e73756d6572"  # protocol type consumer
    "00000007"  # generation
    "0005" "72616e6765"  # protocol range
    "0003" "632d31"  # leader c-1
    "0000018bcfe56800"  # time of the state
    "00000001"  # members
    "0003" "632d31"
    "0001" "69"  # instance i
    "0001" "63"  # client c
    "0002" "2f68"  # host /h
    "0000ea60" "00002710"  # rebalance 60000, session 10000
    "00000002" "5355"  # subscription
    "00000001" "41"  # assignment
)  # fmt: skip
NOW = 1_700_000_000_000

MEMBER = Member("c-1", "i", "c", "/h", 60_000, 10_000, (("range", b"SU"),), b"A")
GROUP = Group("g", GroupState.STABLE, 7, "consumer", "range", "c-1", {"c-1": MEMBER}, state_changed_ms=NOW)


def test_golden_offset_commit() -> None:
    committed = CommittedOffset(258, 5, "m", NOW)
    assert records.offset_record("gg", ("t", 3), committed) == (KEY, VALUE_V3)
    assert records.decode(KEY, VALUE_V3) == OffsetEntry("gg", ("t", 3), committed)
    assert records.decode(b"\0\0" + KEY[2:], VALUE_V3) == OffsetEntry("gg", ("t", 3), committed), "key type 0"


def test_golden_offset_commit_with_an_expiry() -> None:
    committed = CommittedOffset(258, -1, "m", NOW, NOW + 1000)
    assert records.offset_record("gg", ("t", 3), committed) == (KEY, VALUE_V1)
    assert records.decode(KEY, VALUE_V1) == OffsetEntry("gg", ("t", 3), committed)


def test_golden_group() -> None:
    two_protocols = replace(MEMBER, protocols=(("sticky", b"?"), ("range", b"SU")))
    assert records.group_record(replace(GROUP, members={"c-1": two_protocols})) == (GROUP_KEY, GROUP_VALUE_V3)
    assert records.decode(GROUP_KEY, GROUP_VALUE_V3) == GroupEntry("g", GROUP)


def test_golden_empty_group() -> None:
    empty = Group("g", GroupState.EMPTY, 8, "consumer", state_changed_ms=NOW)
    value = bytes.fromhex("00030008636f6e73756d657200000008ffffffff0000018bcfe5680000000000")
    assert records.group_record(empty) == (GROUP_KEY, value)
    assert records.decode(GROUP_KEY, value) == GroupEntry("g", empty)


def test_tombstones() -> None:
    assert records.offset_record("gg", ("t", 3), None) == (KEY, None)
    assert records.decode(KEY, None) == OffsetEntry("gg", ("t", 3), None)
    assert records.group_tombstone("g") == (GROUP_KEY, None)
    assert records.decode(GROUP_KEY, None) == GroupEntry("g", None)


@pytest.mark.parametrize("version", range(5))
def test_every_value_version_is_decoded(version: int) -> None:
    value = OffsetCommitValue(offset=1, leader_epoch=2, metadata="m", commit_timestamp=3, expire_timestamp=4)
    read = records.decode(KEY, version.to_bytes(2, "big") + build(value, version))
    epoch, expiry = (2 if version >= 3 else -1), (4 if version == 1 else None)
    assert read == OffsetEntry("gg", ("t", 3), CommittedOffset(1, epoch, "m", 3, expiry))
    member = MemberMetadata(
        member_id="m", group_instance_id="i", client_id="c", client_host="h", rebalance_timeout=9000,
        session_timeout=6000, subscription=b"s", assignment=b"a",
    )  # fmt: skip
    group = GroupMetadataValue(
        protocol_type="x", generation=2, protocol="p", leader="m", current_state_timestamp=5, members=[member]
    )
    read = records.decode(GROUP_KEY, version.to_bytes(2, "big") + build(group, version))
    assert isinstance(read, GroupEntry)
    assert read.group is not None
    assert read.group.state_changed_ms == (5 if version >= 2 else -1)
    assert read.group.members["m"].rebalance_timeout_ms == (9000 if version >= 1 else 6000)
    assert read.group.members["m"].instance_id == ("i" if version >= 3 else None)


@pytest.mark.parametrize("key_type", [9, 18, 300, -1])
def test_records_of_other_group_types_are_ignored(key_type: int) -> None:
    assert records.decode(key_type.to_bytes(2, "big", signed=True) + b"\0\x01g", b"\0\0") is None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"", None),
        (b"\0", None),
        (KEY[:-1], None),
        (KEY, b""),
        (KEY, b"\0\5"),
        (KEY, b"\xff\xff"),
        (KEY, VALUE_V3[:-1]),
    ],
)
def test_malformed_record_raises(key: bytes, value: bytes | None) -> None:
    with pytest.raises(MalformedMessage):
        records.decode(key, value)


@given(st.binary(max_size=40), st.none() | st.binary(max_size=60), st.sampled_from([b"\0\0", b"\0\1", b"\0\2", b""]))
def test_random_bytes_are_decoded_or_refused(key: bytes, value: bytes | None, start: bytes) -> None:
    with contextlib.suppress(MalformedMessage):
        records.decode(start + key, value)


offsets = st.builds(
    CommittedOffset,
    st.integers(-1, 2**63 - 1),
    st.just(-1),
    st.text(max_size=20),
    st.integers(0, 2**62),
    st.none() | st.integers(0, 2**62),
)


@given(st.text(max_size=20), st.text(max_size=20), st.integers(0, 2**31 - 1), offsets)
def test_offset_record_round_trip(group: str, topic: str, index: int, committed: CommittedOffset) -> None:
    written = records.offset_record(group, (topic, index), committed)
    assert records.decode(*written) == OffsetEntry(group, (topic, index), committed)


@pytest.mark.parametrize(
    ("key", "partition"),
    # From Java: Math.abs("...".hashCode()) % 50; the hash of the last one is -2^31, whose absolute value counts as 0.
    [("", 0), ("a", 47), ("test", 48), ("my-group", 12), ("console-consumer-1", 24), ("\u00e4\U0001f600", 7),
     ("polygenelubricants", 0)],
)  # fmt: skip
def test_partition_of_a_group_matches_java(key: str, partition: int) -> None:
    assert records.partition_for(key, 50) == partition


async def test_group_is_restored_after_a_restart(h: Any, soon: Any) -> None:
    a, b = await h.stable(2, instance_id="i")
    assert h.commit(7, a, 1) is ErrorCode.NONE
    before, written = h.group(), h.coordinator.offsets("g")
    h.restart()
    after = h.group()
    assert replace(after, pending_sync=frozenset()) == replace(before, pending_sync=frozenset())
    assert h.coordinator.offsets("g") == written
    assert h.heartbeat(a, 1, "i0") is ErrorCode.NONE
    assert (await soon(h.sync(b, 1, instance_id="i1"))).assignment == b.encode()
    await h.advance(9_999)
    assert len(h.group().members) == 2, "sessions restart with the broker"
    await h.advance(1)
    assert h.group().state is GroupState.EMPTY


async def test_sessions_run_after_a_restart(h: Any) -> None:
    a, b = await h.stable(2)
    h.restart()
    await h.advance(5000)
    assert h.heartbeat(a, 1) is ErrorCode.NONE
    await h.advance(5000)
    assert list(h.group().members) == [a]
    assert h.heartbeat(b, 1) is ErrorCode.UNKNOWN_MEMBER_ID


async def test_emptied_group_keeps_its_generation_after_a_restart(h: Any, soon: Any) -> None:
    (a,) = await h.stable(1)
    assert h.leave((a, None)).error is ErrorCode.NONE
    before = h.group()
    h.restart()
    assert h.group() == before
    join = h.join()
    await h.advance(3000)
    assert (await soon(join)).generation_id == 3


async def test_deleted_groups_and_offsets_stay_deleted(h: Any) -> None:
    (a,) = await h.stable(1)
    h.commit(1, a, 1)
    h.leave((a, None))
    h.commit(5, group_id="simple")
    assert h.coordinator.delete("g") is ErrorCode.NONE
    h.restart()
    assert h.coordinator.group("g") is None
    assert [one.group_id for one in h.coordinator.list_groups()[1]] == ["simple"]
    assert h.coordinator.delete("simple") is ErrorCode.NONE
    h.restart()
    assert h.coordinator.list_groups()[1] == []


async def test_unreadable_log_partition_makes_only_its_groups_unavailable(h: Any) -> None:
    h.coordinator = type(h.coordinator)(
        append=h.append,
        partitions=50,
        clock=h.clock,
        topics=TopicLookup(lambda topic, index: True, lambda topic_id: None, lambda topic: None),
    )
    broken = h.coordinator.partition_of("g")
    assert h.coordinator.load(broken, [(KEY, b"\0\x63")]) is ErrorCode.INVALID_REQUEST
    assert h.commit(1) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert h.coordinator.partition_of("other") != broken
    assert h.commit(1, group_id="other") is ErrorCode.NONE
