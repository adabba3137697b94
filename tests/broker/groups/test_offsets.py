"""Committed offsets: authorization of commits, failed writes, transactions, deletion and expiry."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ottla.broker.config.values import Config
from ottla.broker.errors import ConfigError
from ottla.broker.groups.classic.subscription import topics_of
from ottla.broker.groups.consumer.events import Settings
from ottla.broker.groups.offsets import CommittedOffset
from ottla.broker.groups.records import TransactionalRecord, TransactionEnd, offset_record
from ottla.broker.groups.settings import CONSUMER_DEFAULTS, CoordinatorSettings
from ottla.broker.releases.behaviour import Behaviour
from ottla.protocol.errors import ErrorCode

DAY_MS = 86_400_000
WEEK_MS = 7 * DAY_MS


def fetched(h: Any, group_id: str = "g", require_stable: bool = False) -> dict[Any, Any]:
    error, found = h.coordinator.fetch(group_id, None, require_stable=require_stable)
    assert error is ErrorCode.NONE
    return {one.partition: one.committed.offset if one.committed else one.error for one in found}


async def test_a_group_that_only_stores_offsets(h: Any) -> None:
    assert h.commit(1) is ErrorCode.NONE
    assert h.commit(2) is ErrorCode.NONE
    assert fetched(h) == {("t", 0): 2}
    assert h.coordinator.list_groups()[1][0][:3] == ("g", "", "Empty")
    assert h.coordinator.fetch("g", [("t", 1)], require_stable=True)[1][0].committed is None
    assert h.coordinator.fetch("nobody", None, require_stable=True) == (ErrorCode.NONE, [])
    assert h.commit(3, group_id="") is ErrorCode.NONE, "the empty group id is valid here"


@pytest.mark.parametrize("old", [True, False])
async def test_group_without_offsets_is_removed_with_deleted_offsets_before_kip_848(
    make_harness: Any, old: bool
) -> None:
    h = make_harness(CoordinatorSettings(old_group_coordinator=old))
    left = [] if old else ["g"]

    def listed() -> list[str]:
        return [one.group_id for one in h.coordinator.list_groups()[1]]

    def committed_nothing() -> None:
        reported = h.coordinator.commit("g", member_id="", instance_id=None, generation_id=-1, commits=[])
        assert reported is ErrorCode.NONE

    committed_nothing()
    assert listed() == ["g"]
    h.coordinator.forget_topic("another")
    assert listed() == left
    committed_nothing()
    h.coordinator.delete_offsets("g", [])
    assert listed() == ["g"]
    h.coordinator.delete_offsets("g", [("t", 0)])
    assert listed() == left


async def test_commit_to_a_group_with_members_requires_membership(h: Any) -> None:
    (a,) = await h.stable(1)
    assert h.commit(1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert h.commit(1, a, 0) is ErrorCode.ILLEGAL_GENERATION
    assert h.commit(1, a, 1) is ErrorCode.NONE
    h.leave((a, None))
    assert h.commit(2, a, 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert h.commit(2) is ErrorCode.NONE


async def test_commit_restarts_the_session(h: Any) -> None:
    (a,) = await h.stable(1)
    await h.advance(9000)
    assert h.commit(1, a, 1) is ErrorCode.NONE
    await h.advance(9000)
    assert a in h.group().members


@pytest.mark.parametrize(
    ("failure", "response"),
    [(3, 15), (19, 15), (20, 15), (7, 15), (6, 16), (56, 16), (10, 28), (18, 28), (4, 28), (-1, -1)],
)
async def test_failed_commit_write_leaves_the_offset_unchanged(h: Any, failure: int, response: int) -> None:
    h.commit(1)
    h.fail_with = ErrorCode(failure)
    assert h.commit(2) is ErrorCode(response)
    assert h.commit(2, group_id="new") is ErrorCode(response)
    assert fetched(h) == {("t", 0): 1}
    assert h.coordinator.group("new") is None


def in_transaction(h: Any, offset: int, producer_id: int = 9) -> ErrorCode:
    return h.coordinator.commit(
        "g", member_id="", instance_id=None, generation_id=-1, producer=(producer_id, 2),
        commits=[(("t", 0), CommittedOffset(offset))],
    )  # fmt: skip


async def test_transactional_offsets_apply_at_commit(h: Any) -> None:
    h.commit(1)
    assert in_transaction(h, 5) is ErrorCode.NONE
    partition = h.coordinator.partition_of("g")
    assert h.transactional == [(partition, 9, 2)]
    assert fetched(h) == {("t", 0): 1}
    assert fetched(h, require_stable=True) == {("t", 0): ErrorCode.UNSTABLE_OFFSET_COMMIT}
    h.coordinator.end_transaction(partition, 9, committed=True)
    assert fetched(h, require_stable=True) == {("t", 0): 5}


async def test_offsets_of_an_aborted_transaction_are_dropped(h: Any) -> None:
    in_transaction(h, 5)
    h.coordinator.end_transaction(h.coordinator.partition_of("g"), 9, committed=False)
    assert h.coordinator.group("g") is None


async def test_later_plain_commit_overrides_an_earlier_transactional_one(h: Any) -> None:
    in_transaction(h, 5)
    h.commit(6)
    h.coordinator.end_transaction(h.coordinator.partition_of("g"), 9, committed=True)
    assert fetched(h) == {("t", 0): 6}


async def test_a_transaction_in_the_log_ends_with_its_marker(h: Any) -> None:
    key, value = offset_record("g", ("t", 0), CommittedOffset(5, commit_timestamp_ms=1))
    other = offset_record("g", ("u", 0), CommittedOffset(6, commit_timestamp_ms=1))
    partition = h.coordinator.partition_of("g")
    log = [TransactionalRecord(9, key, value), TransactionalRecord(8, *other), TransactionEnd(9, True)]
    h.coordinator.load(partition, log)
    assert fetched(h) == {("t", 0): 5}
    h.coordinator.end_transaction(partition, 8, committed=True)
    assert fetched(h) == {("t", 0): 5, ("u", 0): 6}


async def test_offset_delete_refuses_subscribed_topics(h: Any) -> None:
    (a,) = await h.stable(1)  # subscribed to t
    h.commit(1, a, 1)
    requested = [("t", 0), ("u", 0)]
    error, found = h.coordinator.delete_offsets("g", requested)
    assert (error, found) == (0, {("t", 0): ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, ("u", 0): ErrorCode.NONE})
    h.leave((a, None))
    assert h.coordinator.delete_offsets("g", requested) == (0, dict.fromkeys(requested, ErrorCode.NONE))
    assert fetched(h) == {}
    h.restart()
    assert fetched(h) == {}
    assert h.coordinator.delete_offsets("nobody", requested) == (ErrorCode.GROUP_ID_NOT_FOUND, {})


async def test_offset_delete_refuses_a_group_of_another_protocol_type(h: Any) -> None:
    await h.stable(1, protocol_type="connect")
    assert h.coordinator.delete_offsets("g", [("t", 0)]) == (ErrorCode.NON_EMPTY_GROUP, {})


async def test_topic_deletion_deletes_its_offsets(h: Any) -> None:
    h.commit(1)
    h.commit(1, group_id="other")
    h.coordinator.forget_topic("t")
    assert fetched(h) == fetched(h, "other") == {}
    h.restart()
    assert fetched(h) == {}


async def test_groups_with_members_are_not_deleted(h: Any) -> None:
    await h.stable(1)
    assert h.coordinator.delete("g") is ErrorCode.NON_EMPTY_GROUP
    assert h.coordinator.delete("nobody") is ErrorCode.GROUP_ID_NOT_FOUND
    h.commit(1, group_id="simple")
    h.fail_with = ErrorCode.KAFKA_STORAGE_ERROR
    assert h.coordinator.delete("simple") is ErrorCode.NOT_COORDINATOR
    assert fetched(h, "simple") == {("t", 0): 1}


async def test_simple_offsets_expire_a_week_after_the_commit(h: Any) -> None:
    h.coordinator.start()
    h.commit(1)
    await h.advance(DAY_MS)
    h.commit(1, group_id="later")
    await h.advance(WEEK_MS - DAY_MS - 1)
    assert fetched(h) == {("t", 0): 1}
    await h.advance(600_001)  # the next check
    assert h.coordinator.group("g") is None, "neither members nor offsets"
    assert fetched(h, "later") == {("t", 0): 1}
    h.restart()
    assert h.coordinator.group("g") is None


async def test_offsets_of_a_group_expire_a_week_after_its_last_member_left(h: Any) -> None:
    (a,) = await h.stable(1)
    h.commit(1, a, 1)
    for _ in range(10):
        await h.advance(9000)
        h.heartbeat(a, 1)
    h.leave((a, None))
    h.clock.advance(WEEK_MS - 1)
    h.coordinator.expire()
    assert fetched(h) == {("t", 0): 1}
    h.clock.advance(1)
    h.coordinator.expire()
    assert h.coordinator.group("g") is None
    key, value = h.log[h.coordinator.partition_of("g")][-1]
    assert (key, value) == (b"\0\x02\0\x01g", None), "the group has a tombstone"


async def test_offsets_of_subscribed_topics_do_not_expire(h: Any) -> None:
    (a,) = await h.stable(1, session_timeout_ms=1_800_000)
    h.commit(1, a, 1)
    other = [(("u", 0), CommittedOffset(1, commit_timestamp_ms=h.clock.now_ms()))]
    h.coordinator.commit("g", member_id=a, instance_id=None, generation_id=1, commits=other)
    for _ in range(WEEK_MS // 1_000_000 + 1):
        h.clock.advance(1_000_000)
        assert h.heartbeat(a, 1) is ErrorCode.NONE
    h.coordinator.expire()
    assert fetched(h) == {("t", 0): 1}, "u is not subscribed to"


async def test_offsets_of_a_connect_group_with_members_do_not_expire(h: Any) -> None:
    (a,) = await h.stable(1, protocol_type="connect", session_timeout_ms=1_800_000)
    h.coordinator.commit(
        "g", member_id=a, instance_id=None, generation_id=1, commits=[(("t", 0), CommittedOffset(1, -1, "", 0))]
    )
    h.coordinator.expire()
    assert fetched(h) == {("t", 0): 1}


async def test_explicit_expiry_replaces_the_retention(h: Any) -> None:
    h.commit(1, expire_timestamp_ms=h.clock.now_ms() + 5000)
    h.clock.advance(4999)
    h.coordinator.expire()
    assert fetched(h) == {("t", 0): 1}
    h.clock.advance(1)
    h.coordinator.expire()
    assert fetched(h) == {}


async def test_offsets_of_an_open_transaction_do_not_expire(h: Any) -> None:
    h.commit(1)
    in_transaction(h, 2)
    h.clock.advance(2 * WEEK_MS)
    h.coordinator.expire()
    assert fetched(h) == {("t", 0): 1}


async def test_failed_expiration_write_is_retried(make_harness: Any) -> None:
    h = make_harness(CoordinatorSettings(offsets_retention_minutes=1, offsets_retention_check_interval_ms=1000))
    h.coordinator.start()
    h.commit(1)
    h.fail_with = ErrorCode.KAFKA_STORAGE_ERROR
    await h.advance(60_000)
    assert fetched(h) == {("t", 0): 1}
    h.fail_with = None
    await h.advance(1000)
    assert h.coordinator.group("g") is None


def test_settings_have_kafkas_names() -> None:
    names = [
        "group.min.session.timeout.ms", "group.max.session.timeout.ms", "group.initial.rebalance.delay.ms",
        "group.max.size", "offset.metadata.max.bytes", "offsets.retention.minutes",
        "offsets.retention.check.interval.ms",
    ]  # fmt: skip
    made = CoordinatorSettings.from_config({name: n for n, name in enumerate(names)}, Behaviour())
    assert replace(made, consumer=CONSUMER_DEFAULTS) == CoordinatorSettings(
        min_session_timeout_ms=0,
        max_session_timeout_ms=1,
        initial_rebalance_delay_ms=2,
        max_size=3,
        offset_metadata_max_bytes=4,
        offsets_retention_minutes=5,
        offsets_retention_check_interval_ms=6,
    )


def test_settings_of_consumer_groups_have_kafkas_names() -> None:
    config = Config(
        {
            "group.consumer.min.session.timeout.ms": "1",
            "group.consumer.session.timeout.ms": "1002",
            "group.consumer.min.heartbeat.interval.ms": "1",
            "group.consumer.heartbeat.interval.ms": "1001",
            "group.consumer.max.size": "3",
            "group.consumer.assignors": "range, org.apache.kafka.coordinator.group.assignor.UniformAssignor",
            "group.consumer.assignment.interval.ms": "4",
            "group.consumer.regex.refresh.interval.ms": "10005",
            "group.consumer.migration.policy": "UPGRADE",
            "group.max.size": "6",
        }
    )
    made = CoordinatorSettings.from_config(config, Behaviour())
    assert made.consumer == Settings(1002, 1001, 3, 4, 1, ("range", "uniform"), 10_005, "upgrade", 6)
    own = {"consumer.session.timeout.ms": "7", "consumer.heartbeat.interval.ms": "8", "share.session.timeout.ms": "1"}
    changed = made.of_group("consumer", own | {"consumer.assignment.interval.ms": "9"})
    assert changed == replace(made.consumer, session_timeout_ms=7, heartbeat_interval_ms=8, assignment_interval_ms=9)


def test_an_assignor_of_a_plug_in_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"Invalid value com\.x\.Mine for configuration group\.consumer\.assignors"):
        Config({"group.consumer.assignors": "uniform,com.x.Mine"})


@pytest.mark.parametrize(
    ("metadata", "topics"),
    [
        (b"\0\0\0\0\0\0\xff\xff\xff\xff", set()),
        (b"\0\0\0\0\0\0", None),
        (b"\0\x03\0\0\0\x02\0\x01a\0\x02bc\0\0\0\4datamore", {"a", "bc"}),
        (b"", None),
        (b"\0\0\0\0\0", None),
        (b"\xff\xff\0\0\0\0", None),
        (b"\0\0\xff\xff\xff\xff", None),
        (b"\0\0\x7f\xff\xff\xff", None),
        (b"\0\0\0\0\0\x01\0\x05abc", None),
        (b"\0\0\0\0\0\x01\xff\xffabc", None),
        (b"\0\0\0\0\0\x01\0\x01\xff", None),
        (b"\0\0\0\0\0\x02\0\x02ab", None),
    ],
)
def test_topics_of_a_subscription(metadata: bytes, topics: set[str] | None) -> None:
    assert topics_of(metadata) == topics
