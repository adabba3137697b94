"""The admin client and groups, against many releases: lists, members, offsets; what older releases do not support."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ottla.client.admin.admin import GroupDescription, OffsetAndMetadata, checked
from ottla.client.net.errors import KafkaError, UnsupportedVersion
from ottla.protocol.errors import ErrorCode
from ottla_testing.broker.beating import QUICK as BEATING
from ottla_testing.broker.beating import consumer_beat, share_joined
from ottla_testing.broker.harness import running
from ottla_testing.client.administering import RELEASES, administering, since, time_going_on
from ottla_testing.client.reading import consumer_of, read, write
from ottla_testing.each import each

QUICK = {"group.initial.rebalance.delay.ms": "0"}


def code(outcome: Any) -> int:
    """Returns the code of an error, 0 for success."""
    return outcome.code if isinstance(outcome, KafkaError) else 0


@each("release", RELEASES, strided=True)
async def test_group_offsets_are_altered_listed_and_deleted(release: str, tmp_path: Path) -> None:
    async with running(tmp_path, release=release) as broker, administering(broker) as admin:
        await broker.topic("t", 3)
        wanted = {("t", 0): 5, ("t", 1): OffsetAndMetadata(7, "why", 2), ("u", 0): 1}
        done = await admin.alter_group_offsets("g", wanted)
        assert {where: code(each) for where, each in done.items()} == {("t", 0): 0, ("t", 1): 0, ("u", 0): 3}
        epoch = 2 if since(release, "2.1") else -1
        expected = {("t", 0): (5, "", -1), ("t", 1): (7, "why", epoch)}
        assert await admin.list_group_offsets("g", [*expected, ("t", 2)]) == {**expected, ("t", 2): None}
        assert await admin.list_group_offsets("other", [("t", 0)]) == {("t", 0): None}
        if since(release, "0.11"):
            assert await admin.list_group_offsets("g") == expected
            assert await admin.list_group_offsets("g", require_stable=True) == expected
        else:
            with pytest.raises(UnsupportedVersion, match="OffsetFetch v2"):
                await admin.list_group_offsets("g")
        assert await admin.alter_group_offsets("g", {}) == {} == await admin.delete_group_offsets("g", [])
        if not since(release, "2.4"):
            with pytest.raises(UnsupportedVersion, match="OffsetDelete"):
                await admin.delete_group_offsets("g", [("t", 0)])
            return
        assert await admin.delete_group_offsets("g", [("t", 0), ("t", 2)]) == {("t", 0): None, ("t", 2): None}
        assert list(await admin.list_group_offsets("g")) == [("t", 1)]
        with pytest.raises(KafkaError, match="GROUP_ID_NOT_FOUND"):
            await admin.delete_group_offsets("other", [("t", 0)])


@each("release", RELEASES, strided=True)
async def test_groups_are_listed_described_and_deleted(release: str, tmp_path: Path) -> None:
    async with running(tmp_path, release=release, overrides=QUICK) as broker, administering(broker) as admin:
        await broker.topic("t", 2)
        write(broker, b"a")
        await admin.alter_group_offsets("empty", {("t", 0): 1})
        async with time_going_on(broker), consumer_of(broker, "t", group="members", client_id="me") as consumer:
            await read(consumer, 1)
            described = await admin.describe_groups(["members", "empty", "absent"])
            listed = await admin.list_groups()
            refused = await admin.alter_group_offsets("members", {("t", 0): 0})
            kept = await admin.delete_groups(["members"])
        result = described["members"]
        assert isinstance(result, GroupDescription)
        assert result[:5] == ("members", "Stable", "consumer", "range", 1)
        (member,) = result.members
        assert (member.client_id, member.instance_id, member.partitions) == ("me", None, (("t", 0), ("t", 1)))
        assert member.member_id.startswith("me-") and member.host == "/127.0.0.1"
        assert b"\0\x01t" in member.metadata and b"\0\x01t" in member.assignment
        empty = described["empty"]
        assert isinstance(empty, GroupDescription) and (empty.state, empty.members) == ("Empty", ())
        assert code(described["absent"]) == ErrorCode.GROUP_ID_NOT_FOUND
        state, kind = since(release, "2.6"), "classic" if since(release, "3.8") else ""
        assert listed == [
            ("empty", "", "Empty" if state else "", kind),
            ("members", "consumer", "Stable" if state else "", kind),
        ]
        assert code(refused["t", 0]) == ErrorCode.UNKNOWN_MEMBER_ID
        gone = await admin.delete_groups(["empty", "absent"])
        if since(release, "1.1"):
            assert code(kept["members"]) == ErrorCode.NON_EMPTY_GROUP
            assert [code(each) for each in gone.values()] == [0, ErrorCode.GROUP_ID_NOT_FOUND]
            assert "empty" not in [group.group for group in await admin.list_groups()]
        else:
            assert all(isinstance(each, UnsupportedVersion) for each in (*kept.values(), *gone.values()))


@each("release", RELEASES, strided=True)
async def test_list_groups_filters_by_state_and_type(release: str, tmp_path: Path) -> None:
    async with running(tmp_path, release=release) as broker, administering(broker) as admin:
        await broker.topic("t")
        await admin.alter_group_offsets("g", {("t", 0): 1})
        if since(release, "2.6"):
            assert [group.group for group in await admin.list_groups(states=["Empty"])] == ["g"]
            assert await admin.list_groups(states=["Stable"]) == []
        else:
            with pytest.raises(UnsupportedVersion, match="state"):
                await admin.list_groups(states=["Empty"])
        if since(release, "3.8"):
            assert [group.group for group in await admin.list_groups(types=["classic"])] == ["g"]
            assert await admin.list_groups(types=["consumer"]) == []
        else:
            with pytest.raises(UnsupportedVersion, match="type"):
                await admin.list_groups(types=["classic"])


@each("release", ["4.0", "4.3", "ottla"], strided=True)
async def test_consumer_group_is_described_with_epochs_and_target(release: str, tmp_path: Path) -> None:
    overrides = BEATING if release != "4.0" else {}
    async with running(tmp_path, release=release, overrides=overrides) as broker, administering(broker) as admin:
        await broker.topic("t", 2)
        broker.state.internal_topic("__consumer_offsets", broker.clock.now_ms())
        client = await broker.client()
        await consumer_beat(client, "a", ["t"])
        await consumer_beat(client, "b", ["t"], instance_id="i")
        found = checked(await admin.describe_groups(["g"]))["g"]
        assert found[:2] + found[4:5] == ("g", "Reconciling", 1) and (found.type, found.protocol) == (
            "consumer",
            "uniform",
        )
        assert found.group_epoch is not None and found.group_epoch == found.assignment_epoch
        second, first = found.members  # in the order of Kafka's table
        assert (first.partitions, first.target) == ((("t", 0), ("t", 1)), (("t", 0),))
        assert (second.partitions, second.target, second.instance_id) == ((), (("t", 1),), "i")
        assert first.epoch is not None and first.epoch < found.group_epoch == second.epoch
        assert first.topics == ("t",) and (first.upgraded, second.upgraded) == (True, True)


async def test_share_group_is_described_with_its_start_offsets(tmp_path: Path) -> None:
    async with running(tmp_path, overrides=BEATING) as broker, administering(broker) as admin:
        await broker.topic("t", 2)
        client = await broker.client()
        await share_joined(client, "a", "t")
        await admin.alter_group_offsets("classic", {("t", 0): 1})
        described = checked(await admin.describe_groups(["s", "classic"]))
        found = described["s"]
        assert found[:5] == ("s", "Stable", "share", "simple", 1)
        assert (found.type, described["classic"].type) == ("share", "classic")
        (member,) = found.members
        assert (member.partitions, member.target, member.topics) == ((("t", 0), ("t", 1)), None, ("t",))
        assert member.epoch == found.group_epoch == found.assignment_epoch
        offsets = await admin.list_share_group_offsets("s")
        assert offsets == {("t", 0): None, ("t", 1): None}
        assert await admin.list_share_group_offsets("absent") == {}


async def test_delete_group_offsets_fails_for_a_subscribed_topic(tmp_path: Path) -> None:
    async with running(tmp_path, overrides=QUICK) as broker, administering(broker) as admin:
        await broker.topic("t")
        write(broker, b"a", b"b")
        await admin.alter_group_offsets("g", {("t", 0): 1})
        async with time_going_on(broker), consumer_of(broker, "t", group="g") as consumer:
            (record,) = await read(consumer, 1)
            assert record.value == b"b"
            refused = await admin.delete_group_offsets("g", [("t", 0)])
        assert code(refused["t", 0]) == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC


async def test_assignment_of_another_protocol_is_not_decoded(tmp_path: Path) -> None:
    from ottla.client.admin.described_groups import _assigned

    assert _assigned(b"\0\0\0\0\0\1\0\1t\0\0\0\1\0\0\0\5\xff\xff\xff\xff", "consumer") == (("t", 5),)
    assert _assigned(b"\0\0\0\0\0\1\0\1t\0\0\0\1\0\0\0\5\xff\xff\xff\xff", "connect") == ()
    assert _assigned(b"\0\0\0\0\0\7", "consumer") == () == _assigned(b"", "consumer")
