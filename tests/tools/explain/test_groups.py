"""`ottla explain --group`: why a member has no partitions, why a record was delivered again."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from ottla.client.admin.admin import (
    CLASSIC,
    CONSUMER,
    SHARE,
    STREAMS,
    GroupDescription,
    MemberDescription,
    MemberTasks,
)
from ottla.protocol.consumer_protocol import ConsumerProtocolSubscription, subscription_bytes
from ottla.tools.explain.command import explain
from ottla.tools.explain.groups_command import reasons
from ottla_testing.broker.beating import QUICK, altering_share_offset, consumer_beat, share_beat, share_joined
from ottla_testing.broker.controlling import controlled
from ottla_testing.broker.harness import Broker, produce, records, running
from ottla_testing.broker.producer_logs import Run, report, runner
from ottla_testing.broker.sharing import ACCEPT, REJECT, RELEASE, Member

ACTIVE, STANDBY = MemberTasks({"0": (0, 1)}, {}, {}), MemberTasks({}, {"0": (0,)}, {})


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    return runner(explain, capsys)


def member(name: str, held: str = "", target: str | None = None, *topics: str, **more: Any) -> MemberDescription:
    """`held` and `target` are partition indexes of topic t, such as `01`."""
    places = tuple(("t", int(index)) for index in held)
    wanted = None if target is None else tuple(("t", int(index)) for index in target)
    fields: dict[str, Any] = {"assignment": b"", "metadata": b"", "epoch": 3, "target": wanted, "topics": topics} | more
    return MemberDescription(name, None, "c", "/h", places, **fields)


def group(
    *members: MemberDescription, type: str = CONSUMER, state: str = "Stable", epochs: tuple[int, int] = (3, 3)
) -> GroupDescription:
    protocol_type = CONSUMER if type == CLASSIC else type
    return GroupDescription("g", state, protocol_type, "uniform", 1, members, type, *epochs)


@pytest.mark.parametrize(
    ("described", "expected"),
    [
        pytest.param(group(member("m", "0", "0", "t")), [], id="has some"),
        pytest.param(
            group(member("m", "", "", "t"), epochs=(4, 3), state="Assigning"),
            ["the group is in state Assigning: its assignment is that of epoch 3, and the one of epoch 4 is computed "
             "with a next heartbeat"], id="assigning"),
        pytest.param(
            group(member("m", "", "01", "t"), member("o", "01", "", "t", epoch=2)),
            ["its target has t-0, t-1: it waits until member o, at epoch 2 of 3, has revoked them"], id="revocation"),
        pytest.param(
            group(member("m", "", "01", "t"), member("o", "1", "", "t", epoch=2)),
            ["its target has t-1: it waits until member o, at epoch 2 of 3, has revoked it",
             "its target has t-0, which no member holds: its next heartbeat returns them"], id="revocation of one"),
        pytest.param(group(member("m", "", "")), ["it subscribes to no topic"], id="no subscription"),
        pytest.param(
            group(member("m", "", "", regex="x.*")),
            ["no topic matches the regular expression x.*, or other members have their partitions"], id="regex"),
        pytest.param(
            group(member("m", "", "", "u", "v")),
            ["none of its topics exists, or it is not authorized to describe them: u, v"], id="no topic"),
        pytest.param(
            group(member("m", "", "", "t"), member("n", "0", "0", "t"), member("o", "1", "1", "t")),
            ["3 members subscribe to its topics, which have 2 partitions in all: a partition has one member at most"],
            id="too many members"),
        pytest.param(
            group(member("m", "", None, "t"), type=SHARE),
            ["the state of its share partitions is not initialized yet: a next heartbeat returns the assignment"],
            id="share group"),
        pytest.param(
            group(member("m"), type=CLASSIC, state="PreparingRebalance"),
            ["the group is rebalancing: it waits for its members to join again, or for their time-out"], id="classic"),
        pytest.param(
            group(member("m", metadata=subscription_bytes(ConsumerProtocolSubscription(topics=["u"]))), type=CLASSIC),
            ["none of its topics exists, or it is not authorized to describe them: u"], id="classic without topics"),
        pytest.param(
            group(*(member(name, held, metadata=subscription_bytes(ConsumerProtocolSubscription(topics=["t"])))
                    for name, held in (("m", ""), ("n", "0"), ("o", "1"))), type=CLASSIC),
            ["3 members subscribe to its topics, which have 2 partitions in all: a partition has one member at most"],
            id="classic, too many members"),
        pytest.param(
            group(member("m", "", "", "t"), member("n", "01", "01", "t")),
            ["the assignor uniform has given the partitions of its topics to 1 other members"], id="uneven"),
        pytest.param(
            group(member("m", "", ""), type=STREAMS, state="NotReady"),
            ["topics of the topology are missing or incorrectly partitioned: heartbeats have the status"],
            id="streams group without topics"),
        pytest.param(
            group(member("m", "", "", tasks=STANDBY), member("o", "01", "01", target_tasks=ACTIVE), type=STREAMS),
            ["the 2 active tasks of the group are those of other members", "it has standby tasks"], id="streams group"),
        pytest.param(
            group(member("m", "", "1"), member("o", "01", "0", epoch=2), type=STREAMS),
            ["its target has t-1: it waits until member o, at epoch 2 of 3, has revoked it"], id="streams revocation"),
    ],
)  # fmt: skip
def test_reasons_of_a_member_without_partitions(described: GroupDescription, expected: list[str]):
    assert reasons(described, described.members[0], {"t": 2}) == expected


def at(broker: Broker) -> list[str]:
    return ["--bootstrap-server", f"127.0.0.1:{broker.ports[0]}"]


async def explained(run: Run, *arguments: object) -> Any:
    """Runs in a thread: the broker is in this one."""
    return await asyncio.to_thread(run, *arguments)


async def test_members_of_a_consumer_group_are_explained(tmp_path: Path, run: Run) -> None:
    async with running(tmp_path, overrides=QUICK) as broker:
        await broker.topic("t", 2)
        client = await broker.client()
        await consumer_beat(client, "a", ["t"])
        await consumer_beat(client, "b", ["t"])
        code, out, err = await explained(run, "--group", "g", *at(broker))
        assert (code, err) == (0, "")
        assert out.splitlines()[0] == "consumer group g: Reconciling, epoch 3, assignment of 3, members: 2"
        assert out.splitlines()[2:] == [  # in the order of the response
            "b (test at /127.0.0.1): no partitions",
            "  its target has t-1: it waits until member a, at epoch 2 of 3, has revoked it",
            "",
            "a (test at /127.0.0.1): t-0, t-1",
        ]
        found = await asyncio.to_thread(report, run, "--group", "g", "--member", "b", *at(broker))
        (one,) = found["members"]
        assert (one["epoch"], one["partitions"], one["target"]) == (3, [], [{"topic": "t", "partition": 1}])
        assert len(one["reasons"]) == 1
        code, out, err = await explained(run, "--group", "g", "--member", "x", *at(broker))
        assert (code, out) == (2, "") and "group g has no member x: it has left, was fenced" in err
        code, _, err = await explained(run, "--group", "none", *at(broker))
        assert (code, err) == (2, "ottla explain: GROUP_ID_NOT_FOUND (69): Group none not found.\n")


async def test_deliveries_of_a_record_are_explained(tmp_path: Path, run: Run) -> None:
    async with controlled(tmp_path, overrides=QUICK) as (broker, api):
        topic_id = await broker.topic("t")
        client = await broker.client()
        await share_joined(client, "a", "t")
        await share_beat(client, "a", epoch=-1)
        assert (await client.call(altering_share_offset("s", "t", 0, 0), 0)).error_code == 0
        await client.call(produce(records(*[b"%d" % n for n in range(6)])), 9)
        place = (topic_id, 0)
        a, b = await Member.join(broker, "a", "s"), await Member.join(broker, "b", "s")
        of_record = ("--topic", "t", "--partition", "0", "--control", api.url, "--offset")

        async def of(offset: int) -> list[str]:
            code, out, err = await explained(run, "--group", "s", *of_record, offset)
            assert (code, err) == (0, "")
            assert out.splitlines()[0] == f"share group s, t-0 offset {offset}"
            return [line.strip() for line in out.splitlines()[1:]]

        assert await of(0) == ["no member fetches from this share partition now: only its stored state exists"]
        await a.fetch(place, max_records=4, batch_size=1)
        first = await of(0)
        assert first[0] == "delivery 1 of at most 5"
        assert first[1].startswith("member a has acquired it; its lock expires at")
        assert await of(99) == ["it is not in flight: it has not been delivered yet"]
        await a.acknowledge({place: [(0, 0, [ACCEPT]), (1, 1, [RELEASE]), (2, 2, [REJECT])]})
        assert await of(0) == ["it is done: the start offset is 1. It is not delivered again"]
        assert await of(1) == ["delivery 1 of at most 5", "it will be delivered again because of delivery 1: released"]
        assert (await of(2))[1] == "it is archived, and not delivered again: rejected"
        clock: Any = broker.clock
        await clock.advance(30_000)
        assert (await of(3))[1] == "it will be delivered again because of delivery 1: its lock expired"
        await b.fetch(place)
        assert (await of(3))[2] == "it was delivered again because of delivery 1: its lock expired"
        assert (await of(1))[2] == "it was delivered again because of delivery 1: released"
        await b.acknowledge({}, epoch=-1)
        await a.fetch(place)
        assert (await of(3))[2] == "it was delivered again because of delivery 2: the share session of its member ended"
        found = await asyncio.to_thread(report, run, "--group", "s", *of_record, 3)
        assert (found["start_offset"], found["delivery_limit"], found["record"]["deliveries"]) == (1, 5, 3)
        code, _, err = await explained(run, "--group", "g", *of_record, 3)
        assert (code, err) == (2, "ottla explain: there is no share group g\n")


MISTAKES = """
--group g|--group needs --bootstrap-server
--group g --bootstrap-server a:1 --control b|--group needs --bootstrap-server
--group g --bootstrap-server a:1 --topic t|expected --topic, --partition and --offset
--group g --topic t --partition 0 --offset 1|--offset needs --control
--group g --bootstrap-server a:1 --batches|--group can only be combined with
--group g --transactions --bootstrap-server a:1|--group can only be combined with
--group g --bootstrap-server a:1 dir|--group can only be combined with
--member m --topic t --partition 0 dir|--member, --offset and --control need --group
"""


@pytest.mark.parametrize("case", MISTAKES.strip().splitlines())
def test_mistake_in_the_flags_is_reported(case: str, run: Run):
    given, expected = case.split("|")
    code, _, err = run(*given.split())
    assert code == 2 and expected in err
