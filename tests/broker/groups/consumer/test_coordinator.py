"""Groups of the consumer protocol in the coordinator: their log, restarts, lost writes, offsets and conversions."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.broker.groups.classic.state import Group as ClassicGroup
from ottla.broker.groups.common_events import HeartbeatReply, MemberLeave
from ottla.broker.groups.common_state import (
    AssignmentEpochSet,
    ClassicMember,
    CurrentSet,
    EpochSet,
    InfoSet,
    MemberState,
    TargetSet,
)
from ottla.broker.groups.consumer.events import MemberHeartbeat, Settings
from ottla.broker.groups.consumer.records import Format, decode, encode_all
from ottla.broker.groups.consumer.state import Current, Group, Info, RegexSet, Resolved, TopicsSet
from ottla.broker.groups.coordinator import GroupCoordinator
from ottla.broker.groups.settings import CoordinatorSettings
from ottla.broker.groups.topics import TopicLookup, TopicShape
from ottla.protocol.errors import ErrorCode, MalformedMessage
from ottla_testing.broker.consumer_group_world import topic_id

ALWAYS = Settings(assignment_interval_ms=0)
METADATA = b"\0\1\0\0\0\1\0\1t\xff\xff\xff\xff\0\0\0\0"


class LoggedGroups:
    """A coordinator on a log in memory, with the topic t of four partitions."""

    def __init__(self, harness: Any) -> None:
        self.h = harness
        self.h.settings = CoordinatorSettings(consumer=ALWAYS)
        self.h.make = self.make
        self.h.coordinator = self.make()
        self.left: int | None = None
        """How many more appends succeed; all with None."""

    def make(self) -> GroupCoordinator:
        def shape(name: str) -> TopicShape | None:
            return TopicShape(topic_id(name), name, 4) if name == "t" else None

        return GroupCoordinator(
            append=self.append,
            partitions=50,
            clock=self.h.clock,
            topics=TopicLookup(
                has_partition=lambda topic, index: topic == "t",
                name_of=lambda wanted: "t" if wanted == topic_id("t") else None,
                id_of=lambda name: topic_id("t") if name == "t" else None,
                shape_of=shape,
                names=lambda: ["t"],
            ),
            settings=self.h.settings,
            new_uuid=self.h.new_uuid,
            error_code=lambda error: error.args[0],
        )

    def append(self, index: int, records: list[tuple[bytes, bytes | None]], now_ms: int) -> None:
        if self.left is not None:
            if not self.left:
                raise RuntimeError(ErrorCode.KAFKA_STORAGE_ERROR)
            self.left -= 1
        self.h.append(index, records, now_ms)

    @property
    def groups(self) -> GroupCoordinator:
        return self.h.coordinator

    def beat(self, name: str, epoch: int = 0, owned: Any = None, **changes: Any) -> HeartbeatReply:
        if epoch < 0:
            return self.groups.member_heartbeat("consumer", "g", MemberLeave(name, epoch))
        fields: dict[str, Any] = {"rebalance_timeout_ms": 30_000, "topics": frozenset("t")} if epoch == 0 else {}
        owned = {} if epoch == 0 else owned
        request = MemberHeartbeat(name, epoch, owned=owned, client_id="c", client_host="/h", **(fields | changes))
        return self.groups.member_heartbeat("consumer", "g", request)

    def group(self) -> Group:
        group = self.groups.group("g")
        assert isinstance(group, Group)
        return group


@pytest.fixture
def world(h: Any) -> LoggedGroups:
    return LoggedGroups(h)


def facts(group: Any) -> Any:
    if not isinstance(group, Group):
        return group
    return group.members, group.epoch, group.assignment_epoch, group.target, group.metadata_hash, group.resolved


def life(world: LoggedGroups) -> None:
    """A life with every kind of write."""
    everything = {topic_id("t"): frozenset(range(4))}
    for request in (
        lambda: world.beat("m"),
        lambda: world.beat("n"),
        lambda: world.beat("m", 2, everything),
        lambda: world.beat("m", 2, {topic_id("t"): frozenset({0, 1})}),
        lambda: world.beat("n", 3, {}),
        lambda: world.beat("s", instance_id="i"),
        lambda: world.beat("s", -2, instance_id="i"),
        lambda: world.beat("s2", instance_id="i"),
        lambda: world.beat("r", regex="t+"),
        lambda: world.beat("m", -1),
    ):
        request()


async def test_a_restart_after_every_write_restores_the_group(world: LoggedGroups) -> None:
    life(world)
    log = [list(records) for records in world.h.log.values()]
    for cut in range(20):
        world.h.log.clear()
        world.h.coordinator = world.make()
        world.left = cut
        life(world)
        world.left = None
        before = facts(world.groups.group("g"))
        restored = facts(world.h.restart().group("g"))
        assert restored == before, f"after {cut} writes"
    assert [list(records) for records in world.h.log.values()] == log


async def test_a_failed_write_leaves_the_group_unchanged(world: LoggedGroups) -> None:
    world.beat("m")
    before = facts(world.group())
    world.left = 0
    assert world.beat("n").error is ErrorCode.NOT_COORDINATOR
    assert world.beat("m", -1).error is ErrorCode.NOT_COORDINATOR
    assert facts(world.group()) == before
    assert world.groups.delete("g") is ErrorCode.NON_EMPTY_GROUP
    world.h.clock.advance(45_000)  # the session expires, but the member cannot be removed yet
    assert facts(world.group()) == before
    world.left = None
    world.h.clock.advance(500)
    assert world.group().is_empty
    world.left = 0
    assert world.groups.delete("g") is ErrorCode.NOT_COORDINATOR
    assert world.groups.group("g") is not None


async def test_sessions_start_again_after_a_restart(world: LoggedGroups) -> None:
    world.beat("m")
    world.h.clock.advance(40_000)
    world.h.restart()
    world.h.clock.advance(44_999)
    assert list(world.group().members) == ["m"]
    world.h.clock.advance(1)
    assert world.group().is_empty


async def test_a_refused_member_creates_no_group(world: LoggedGroups) -> None:
    assert world.beat("m", regex="[").error is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert world.beat("m", 1).error is ErrorCode.GROUP_ID_NOT_FOUND
    assert world.beat("m", -1).error is ErrorCode.GROUP_ID_NOT_FOUND
    assert world.groups.group("g") is None and not world.h.log


async def test_an_unused_group_goes_with_its_last_offset(world: LoggedGroups) -> None:
    world.beat("m")
    assert world.h.commit(7, "m", 2, group_id="g") is ErrorCode.UNSUPPORTED_VERSION
    assert commit(world, 7, "m", 2) is ErrorCode.NONE
    assert world.groups.delete_offsets("g", [("t", 0)])[1] == {("t", 0): ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC}
    world.beat("m", -1)
    world.h.clock.advance(world.h.settings.offsets_retention_minutes * 60_000 - 1)
    world.groups.expire()
    assert world.groups.offsets("g")
    world.h.clock.advance(1)
    world.groups.expire()
    assert not world.groups.offsets("g") and world.groups.group("g") is None
    assert world.h.restart().group("g") is None


def commit(world: LoggedGroups, offset: int, member_id: str, epoch: int, **more: Any) -> ErrorCode:
    from ottla.broker.groups.offsets import CommittedOffset

    return world.groups.commit(
        "g",
        member_id=member_id,
        instance_id=None,
        generation_id=epoch,
        commits=[(("t", 0), CommittedOffset(offset, commit_timestamp_ms=world.h.clock.now_ms()))],
        **{"api_version": 9, **more},
    )


async def test_member_epochs_of_commits_and_fetches(world: LoggedGroups) -> None:
    world.beat("m")
    world.beat("n")
    everything = {topic_id("t"): frozenset(range(4))}
    world.beat("m", 2, everything)
    world.beat("m", 2, {topic_id("t"): frozenset({0, 1})})
    assert world.group().members["m"].current.epoch == 3
    assert commit(world, 1, "m", 3) is ErrorCode.NONE
    assert commit(world, 1, "m", 2) is ErrorCode.NONE, "partition 0 was assigned in epoch 2"
    assert commit(world, 1, "m", 1) is ErrorCode.STALE_MEMBER_EPOCH
    assert commit(world, 1, "m", 4) is ErrorCode.STALE_MEMBER_EPOCH
    assert commit(world, 1, "n", 2) is ErrorCode.STALE_MEMBER_EPOCH
    assert commit(world, 1, "x", 3) is ErrorCode.UNKNOWN_MEMBER_ID
    assert commit(world, 1, "", -1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert commit(world, 1, "m", 3, api_version=8) is ErrorCode.UNSUPPORTED_VERSION
    transaction: dict[str, Any] = {"producer": (5, 0)}
    assert commit(world, 1, "m", 1, api_version=5, **transaction) is ErrorCode.ILLEGAL_GENERATION
    assert commit(world, 1, "m", 1, api_version=6, **transaction) is ErrorCode.STALE_MEMBER_EPOCH

    def fetched(member_id: str | None, epoch: int) -> ErrorCode:
        return world.groups.fetch("g", None, require_stable=False, member_id=member_id, epoch=epoch)[0]

    assert fetched(None, -1) is ErrorCode.NONE
    assert fetched("m", 3) is ErrorCode.NONE
    assert fetched("m", 2) is ErrorCode.STALE_MEMBER_EPOCH
    assert fetched("x", 3) is ErrorCode.UNKNOWN_MEMBER_ID


async def test_a_classic_group_becomes_one_of_the_consumer_protocol_and_back(world: LoggedGroups, settle: Any) -> None:
    (member_id,) = await world.h.stable(1, protocols=[("range", METADATA)])
    assert isinstance(world.groups.group("g"), ClassicGroup)
    commit(world, 5, member_id, 1)
    # Its assignment is not one of the consumer protocol: a malformed one is refused.
    refused = world.beat("m")
    assert refused.error is ErrorCode.GROUP_ID_NOT_FOUND and "malformed" in (refused.message or "")
    world.h.restart()
    world.groups.leave("g", [(member_id, None)])
    assert world.beat("m").error is ErrorCode.NONE  # an empty group is replaced
    assert list(world.group().members) == ["m"]
    assert world.groups.offsets("g")[("t", 0)].offset == 5
    listed = world.groups.list_groups(types=["CONSUMER"])[1]
    assert [(one.group_id, one.state, one.group_type) for one in listed] == [("g", "Stable", "consumer")]
    assert facts(world.h.restart().group("g")) == facts(world.group())
    world.beat("m", -1)
    joined = await world.h.stable(1, protocols=[("range", METADATA)])
    assert isinstance(world.groups.group("g"), ClassicGroup) and joined
    world.h.restart()
    assert isinstance(world.groups.group("g"), ClassicGroup)
    assert world.groups.offsets("g")[("t", 0)].offset == 5


async def test_members_of_a_classic_group_stay_when_it_is_upgraded(world: LoggedGroups, settle: Any, soon: Any) -> None:
    from ottla.protocol.consumer_protocol import assignment_bytes, read_assignment

    join = world.h.join(protocols=[("range", METADATA)])
    await world.h.advance(3000)
    joined = await soon(join)
    given = [(joined.member_id, assignment_bytes([("t", [0, 1, 2, 3])], 1))]
    await soon(world.h.sync(joined.member_id, 1, assignments=given))
    reply = world.beat("m")
    assert (reply.error, reply.epoch, reply.assignment) == (ErrorCode.NONE, 2, {})
    member = world.group().members[joined.member_id]
    assert member.info.classic == ClassicMember(10_000, (("range", METADATA),))
    assert member.current.assigned == {topic_id("t"): dict.fromkeys(range(4), 1)}
    assert facts(world.h.restart().group("g")) == facts(world.group())
    beat = world.groups.heartbeat("g", member_id=joined.member_id, instance_id=None, generation_id=1)
    assert beat is ErrorCode.REBALANCE_IN_PROGRESS
    owned = b"\0\1\0\0\0\1\0\1t\xff\xff\xff\xff\0\0\0\1\0\1t\0\0\0\4" + b"".join(
        index.to_bytes(4, "big") for index in range(4)
    )
    again = await soon(world.h.join(joined.member_id, protocols=[("range", owned)]))
    assert again.generation_id == 1, "it has to revoke first"
    synced = await soon(world.h.sync(joined.member_id, 1))
    (kept,) = (one.partitions for one in read_assignment(synced.assignment).assigned_partitions)
    assert len(kept) == 2
    again = await soon(world.h.join(joined.member_id, protocols=[("range", METADATA)]))
    assert again.generation_id == 2
    reply = world.beat("m", 2, {})
    assert sum(map(len, (reply.assignment or {}).values())) == 2
    world.beat("m", -1)  # the last member of the consumer protocol
    group = world.groups.group("g")
    assert isinstance(group, ClassicGroup) and group.state.value == "PreparingRebalance"
    restored = world.h.restart().group("g")
    assert isinstance(restored, ClassicGroup) and list(restored.members) == [joined.member_id]


async def test_session_timeouts_of_a_group_have_its_own_configs(world: LoggedGroups) -> None:
    world.groups.configs = lambda group_id: {
        "consumer.session.timeout.ms": "50000",
        "consumer.heartbeat.interval.ms": "7000",
    }
    assert world.beat("m").heartbeat_interval_ms == 7000
    world.h.clock.advance(49_999)
    assert list(world.group().members) == ["m"]
    world.h.clock.advance(1)
    assert world.group().is_empty


async def test_members_stay_while_the_clock_moves(world: LoggedGroups) -> None:
    world.beat("m")
    now = world.h.clock.now_ms()
    world.groups.refresh_members(now + 1_000_000)
    world.h.clock.advance(1_000_000)
    world.groups.refreshed()
    assert list(world.group().members) == ["m"]
    world.h.clock.advance(45_000)
    assert world.group().is_empty


# --- records ---------------------------------------------------------------------------------------------------------

T = bytes(range(16))
GOLDEN = [
    # Made by hand from the schemas of Apache Kafka 4.3.1.
    (EpochSet(7, -2), "0003000167", "0000" "00000007" "01" "00" "08" "fffffffffffffffe"),
    (EpochSet(None), "0003000167", None),
    (AssignmentEpochSet(7, 258), "0006000167", "0000" "00000007" "01" "00" "08" "0000000000000102"),
    (AssignmentEpochSet(7), "0006000167", "0000" "00000007" "00"),
    (
        TargetSet("m", {T: frozenset({2, 1})}),
        "000700016700016d",
        "0000" "02" "000102030405060708090a0b0c0d0e0f" "03" "00000001" "00000002" "00" "00",
    ),
    (
        CurrentSet("m", Current(3, 2, MemberState.UNREVOKED, {T: {1: 2}}, {})),
        "000800016700016d",
        "0000" "00000003" "00000002" "01"
        "02" "000102030405060708090a0b0c0d0e0f" "02" "00000001" "01" "00" "05" "02" "00000002"
        "01" "00",
    ),
    (
        InfoSet("m", Info("i", None, "c", "/h", 5, topics=frozenset({"b", "a"}), regex="r")),
        "000500016700016d",
        "0000" "0269" "00" "0263" "032f68" "03" "0261" "0262" "0272" "00000005" "00" "01000100",
    ),
    (
        RegexSet("a.*", Resolved(frozenset({"ab"}), 4, 9)),
        "00100001670003612e2a",
        "0000" "02" "036162" "0000000000000004" "0000000000000009" "00",
    ),
    (TopicsSet(None), "0004000167", None),
]  # fmt: skip


@pytest.mark.parametrize(("change", "key", "value"), GOLDEN)
def test_golden_bytes_of_records(change: Any, key: str, value: str | None) -> None:
    (made,) = encode_all("g", [change])
    assert (made[0].hex(), None if made[1] is None else made[1].hex()) == (key, value)
    read = decode(int.from_bytes(made[0][:2], "big"), *made)
    assert read is not None and read.change == change


def test_member_as_kafka_writes_it_is_read() -> None:
    """Bytes of a record that Kafka 4.3.1 wrote: the metadata of a classic member are null, in a field with tag 0."""
    key = b"\0\x05\0\1g\0\x167lYVMhX8TlW3d2YDHBw6-w"
    value = "000006666972737400066f74746c610b2f3132372e302e302e3102027401000493e00001000100"
    read = decode(5, key, bytes.fromhex(value))
    assert read is not None and isinstance(read.change, InfoSet) and read.change.info is not None
    assert (read.change.info.instance_id, read.change.info.topics) == ("first", {"t"})
    assert read.change.info.classic is None


def test_records_of_releases_before_4_3_have_no_epochs_and_times() -> None:
    old = Format(assignment_epochs=False, assignment_time=False)
    (made,) = encode_all("g", [AssignmentEpochSet(7, 258)], old)
    assert made[1] == bytes.fromhex("00000000000700")
    (made,) = encode_all("g", [CurrentSet("m", Current(3, 2, assigned={T: {1: 2}}))], old)
    read = decode(8, *made)
    assert read is not None and read.change == CurrentSet("m", Current(3, 2, assigned={T: {1: 3}}))


@pytest.mark.parametrize("value", [b"", b"\0", b"\0\1\0\0\0\7\0", b"\0\0\0\0"])
def test_malformed_values_are_refused(value: bytes) -> None:
    with pytest.raises(MalformedMessage):
        decode(3, bytes.fromhex("0003000167"), value)
