"""ottla topics, configs, groups, records and acls with a broker: their output, as text and JSON, and their errors.

The text is compared with that of Kafka's tools in `make interop`.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import math
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.metadata.topology import REASSIGNMENT_MS
from ottla.client import Admin
from ottla.client.admin.admin import GroupDescription, MemberDescription
from ottla.client.net.errors import KafkaError
from ottla.protocol.errors import ErrorCode
from ottla.protocol.text import java_double
from ottla.tools import main as cli
from ottla.tools.kafka.acls import acls
from ottla.tools.kafka.admin_command import message, pattern_of
from ottla.tools.kafka.configs import added_of, configs
from ottla.tools.kafka.group_layouts import member_lines
from ottla.tools.kafka.group_resets import CannotDo, duration_of, moment_of, plan_of
from ottla.tools.kafka.groups import groups
from ottla.tools.kafka.records import offsets_of
from ottla.tools.kafka.records import records as records_command
from ottla.tools.kafka.topics import assignment_of, topics
from ottla_testing.broker.beating import QUICK as BEATING
from ottla_testing.broker.beating import altering_share_offset, consumer_beat, share_beat, share_joined
from ottla_testing.broker.harness import Broker, produce, records, running
from ottla_testing.broker.replica_cases import reassigning
from ottla_testing.broker.streaming import beating, joining
from ottla_testing.patience import PATIENCE_S

COMMANDS = {"topics": topics, "configs": configs, "groups": groups, "records": records_command, "acls": acls}
AUTHORIZED = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
STREAMING = BEATING | {"group.streams.initial.rebalance.delay.ms": "0", "group.streams.assignment.interval.ms": "0"}
Ottla = Callable[..., Awaitable[tuple[int, str, str]]]


@pytest.fixture
def ottla(capsys: pytest.CaptureFixture[str]) -> Ottla:
    """Runs a command with a broker; returns (exit code, stdout, stderr)."""

    async def run(broker: Broker, command: str, *arguments: str) -> tuple[int, str, str]:
        given = ["--bootstrap-server", f"127.0.0.1:{broker.ports[0]}", *arguments]
        code = await asyncio.to_thread(COMMANDS[command], given)
        out, err = capsys.readouterr()
        return code, out, err

    return run


async def parsed(ottla: Ottla, broker: Broker, *words: str) -> Any:
    """Returns the document that a command prints with --json."""
    code, out, err = await ottla(broker, *words, "--json")
    assert (code, err) == (0, "")
    return json.loads(out)


async def fill(broker: Broker, partition: int, count: int) -> None:
    client = await broker.client()
    reply = await client.call(produce(records(*([b"v"] * count)), partition=partition), 9)
    assert reply.responses[0].partition_responses[0].error_code == 0


# Topics


async def test_topics_command(tmp_path: Path, ottla: Ottla) -> None:
    async with running(tmp_path, release="4.3") as broker:
        assert await ottla(broker, "topics", "--list") == (0, "\n", "")
        made = await parsed(ottla, broker, "topics", "--create", "--topic", "a.b", "--config", "retention.ms=5")
        assert made == {"created": ["a.b"]}
        again = await parsed(ottla, broker, "topics", "--create", "--topic", "a.b", "--if-not-exists")
        assert again == {"created": []}
        (listed,) = (await parsed(ottla, broker, "topics", "--list"))["topics"]
        assert (listed["name"], listed["internal"], len(listed["id"])) == ("a.b", False, 22)
        assert await parsed(ottla, broker, "topics", "--alter", "--topic", "a.b", "--partitions", "2") == {
            "altered": ["a.b"]
        }
        (described,) = (await parsed(ottla, broker, "topics", "--describe"))["topics"]
        assert described["configs"]["retention.ms"] == "5" and described["id"] == listed["id"]
        assert described["partitions"][1] == {
            "partition": 1,
            "leader": 1,
            "leader_epoch": 0,
            "replicas": [1],
            "isr": [1],
            "offline_replicas": [],
            "adding_replicas": [],
            "removing_replicas": [],
        }
        assert await parsed(ottla, broker, "topics", "--describe", "--unavailable-partitions") == {"topics": []}
        code, out, err = await ottla(broker, "topics", "--delete", "--topic", "x")
        assert (code, out, err) == (1, "", "ottla topics: Topic 'x' does not exist as expected\n")
        assert await parsed(ottla, broker, "topics", "--delete", "--topic", "a.*") == {"deleted": ["a.b"]}


async def test_topics_command_shows_a_reassignment(tmp_path: Path, ottla: Ottla) -> None:
    async with running(tmp_path, release="4.3", brokers=3) as broker:
        broker.state.topics.create("t", 1, {}, 0, [[1, 2]])
        client = await broker.client()
        await client.call(reassigning(("t", 0, [3, 2])), 1)
        ((described,),) = [one["partitions"] for one in (await parsed(ottla, broker, "topics", "--describe"))["topics"]]
        assert (described["replicas"], described["isr"]) == ([3, 2, 1], [2, 1])
        assert (described["adding_replicas"], described["removing_replicas"]) == ([3], [1])
        code, out, err = await ottla(broker, "topics", "--describe")
        first, second = out.splitlines()
        assert (code, err) == (0, "") and "\tReplicationFactor: 2\t" in first
        assert "\tReplicas: 3,2,1\tIsr: 2,1\tAdding Replicas: 3\tRemoving Replicas: 1\tElr: " in second
        assert await parsed(ottla, broker, "topics", "--describe", "--under-replicated-partitions") == {"topics": []}
        broker.clock.advance(REASSIGNMENT_MS)
        _, out, _ = await ottla(broker, "topics", "--describe")
        assert "\tReplicas: 3,2\tIsr: 3,2\tElr: " in out


# Records


async def test_records_command(tmp_path: Path, ottla: Ottla) -> None:
    async with running(tmp_path, release="4.3") as broker:
        await broker.topic("t", 11)
        await fill(broker, 0, 3)
        await fill(broker, 10, 2)
        code, out, _ = await ottla(broker, "records", "--offsets")
        assert (code, out.split("\n")[:3]) == (0, ["t:0:3", "t:1:0", "t:10:2"])
        code, out, _ = await ottla(broker, "records", "--offsets", "--topic-partitions", "t:10-,u", "--time", "-2")
        assert (code, out) == (0, "t:10:0\n")
        assert await ottla(broker, "records", "--offsets", "--partitions", "1", "--time", "-3") == (0, "", "")
        document = await parsed(
            ottla, broker, "records", "--offsets", "--partitions", "1,10", "--time", "max-timestamp"
        )
        assert document["offsets"][0] == {"topic": "t", "partition": 1, "offset": None, "error": None}
        assert document["offsets"][1]["offset"] is not None
        gone = await ottla(broker, "records", "--delete", "--topic", "t", "--partition", "0", "--before-offset", "2")
        assert gone == (
            0,
            "Executing records delete operation\nRecords delete operation completed:\n"
            "partition: t-0\tlow_watermark: 2\n",
            "",
        )
        file = tmp_path / "offsets.json"
        file.write_text('{"partitions": [{"topic": "t", "partition": 0, "offset": 99}]}')
        code, out, err = await ottla(broker, "records", "--delete", "--offset-json-file", str(file), "--json")
        assert (code, err.count("\n")) == (1, 1) and "OFFSET_OUT_OF_RANGE" in err
        (entry,) = json.loads(out)["deleted"]
        assert (entry["log_start_offset"], entry["error"].split()[0]) == (None, "OFFSET_OUT_OF_RANGE")
        code, out, err = await ottla(broker, "records", "--offsets", "--topic", "x")
        assert (code, out, err.count("\n")) == (1, "", 1)


# Groups


async def commit(broker: Broker, group: str, offsets: dict[tuple[str, int], int]) -> None:
    async with Admin(f"127.0.0.1:{broker.ports[0]}") as admin:
        assert set((await admin.alter_group_offsets(group, offsets)).values()) == {None}


def test_groups_command_without_an_action_prints_its_help() -> None:
    assert message(KafkaError(35, "t-1")) == "UNSUPPORTED_VERSION (35): t-1"
    assert message(KafkaError(3, "t-1 does not exist")) == "t-1 does not exist"
    assert message(KafkaError(3)) == "UNKNOWN_TOPIC_OR_PARTITION (3)"


async def test_groups_are_listed_and_described(tmp_path: Path, ottla: Ottla) -> None:
    async with running(tmp_path, release="4.3") as broker:
        assert await ottla(broker, "groups", "--list") == (0, "", "")
        await broker.topic("t", 2)
        await fill(broker, 1, 4)
        await commit(broker, "g", {("t", 1): 1})
        assert await ottla(broker, "groups", "--list") == (0, "g\n", "")
        listed = await parsed(ottla, broker, "groups", "--list", "--state", "Empty")
        assert listed == {"groups": [{"group": "g", "type": "classic", "state": "Empty", "protocol_type": ""}]}
        assert await parsed(ottla, broker, "groups", "--list", "--state", "stable") == {"groups": []}
        code, out, err = await ottla(broker, "groups", "--describe", "--group", "g")
        assert (code, err) == (0, "\nConsumer group 'g' has no active members.\n")
        assert [line.split() for line in out.split("\n") if line][1] == "g t 1 1 4 3 - - -".split()
        (described,) = (await parsed(ottla, broker, "groups", "--describe", "--all-groups", "--members"))["groups"]
        assert described == {
            "group": "g",
            "type": "classic",
            "state": "Empty",
            "coordinator": {"id": 1, "host": "127.0.0.1", "port": broker.ports[0]},
            **dict.fromkeys(["assignor", "group_epoch", "assignment_epoch"]),
            "members": [],
            "offsets": [
                {
                    **{"topic": "t", "partition": 1, "leader_epoch": None, "current_offset": 1},
                    **{"log_end_offset": 4, "lag": 3, "member_id": None, "client_id": None, "host": None},
                }
            ],
        }
        code, out, err = await ottla(broker, "groups", "--describe", "--group", "x")
        assert (code, out, err) == (1, "", "ottla groups: Group x not found.\n")


def cells(text: str) -> list[list[str]]:
    """The cells of a printed table."""
    return [line.split() for line in text.split("\n") if line]


async def test_consumer_group_is_described_with_epochs_and_target(tmp_path: Path, ottla: Ottla) -> None:
    async with running(tmp_path, release="4.3", overrides=BEATING) as broker:
        await broker.topic("t", 2)
        client = await broker.client()
        await consumer_beat(client, "a", ["t"])
        await consumer_beat(client, "b", ["t"])
        describe = ("groups", "--describe", "--group", "g", "--verbose")
        code, out, err = await ottla(broker, *describe, "--members")
        assert (code, err) == (0, "\nWarning: Consumer group 'g' is rebalancing.\n")
        head, second, first = cells(out)  # in the order of Kafka's table of members
        assert head[-4:] == ["CURRENT-EPOCH", "CURRENT-ASSIGNMENT", "TARGET-EPOCH", "TARGET-ASSIGNMENT"]
        assert (first[-4:], second[-4:]) == (["2", "t:0,1", "3", "t:0"], ["3", "-", "3", "t:1"])
        _, out, _ = await ottla(broker, *describe, "--state")
        assert cells(out)[1][-5:] == ["uniform", "Reconciling", "3", "3", "2"]
        (described,) = (await parsed(ottla, broker, *describe))["groups"]
        assert [described[key] for key in ("type", "group_epoch", "assignment_epoch")] == ["consumer", 3, 3]
        member = described["members"][0]
        assert (member["member_epoch"], member["partitions"], member["upgraded"]) == (3, [], True)
        assert member["target"] == [{"topic": "t", "partition": 1}]
        _, out, _ = await ottla(broker, "groups", "--list", "--type")
        assert cells(out)[1] == ["g", "Consumer"]


async def test_members_of_a_group_that_migrates_have_the_column_upgraded(tmp_path: Path, ottla: Ottla) -> None:
    members = [
        MemberDescription(name, None, "c", "/h", (("t", 0),), b"", b"", 2, (("t", 0),), upgraded)
        for name, upgraded in (("a", True), ("b", False))
    ]
    group = GroupDescription("g", "Stable", "consumer", "range", 1, tuple(members), "consumer", 2, 2)
    head, *rows = cells("".join(member_lines(group, verbose=True)))
    assert (head[-1], [row[-1] for row in rows]) == ("UPGRADED", ["true", "false"])


async def test_share_group_is_listed_described_and_deleted(tmp_path: Path, ottla: Ottla) -> None:
    async with running(tmp_path, release="4.3", overrides=BEATING) as broker:
        await broker.topic("t", 2)
        await fill(broker, 1, 4)
        client = await broker.client()
        joined = await share_joined(client, "a", "t")
        assert await ottla(broker, "groups", "--list") == (0, "", "")
        _, out, _ = await ottla(broker, "groups", "--list", "--type", "share", "--state", "stable")
        assert cells(out) == [["GROUP", "TYPE", "STATE"], ["s", "Share", "Stable"]]
        describe = ("groups", "--describe", "--group", "s")
        _, out, _ = await ottla(broker, *describe)
        assert cells(out) == [
            ["GROUP", "TOPIC", "PARTITION", "START-OFFSET", "LAG"],
            *(["s", "t", n, "-", "-"] for n in "01"),
        ]
        _, out, _ = await ottla(broker, *describe, "--members", "--verbose")
        epoch = str(joined.member_epoch)
        assert cells(out)[1] == ["s", "a", "/127.0.0.1", "test", "2", epoch, "t:0,1"]
        _, out, _ = await ottla(broker, *describe, "--members")
        assert cells(out)[0][-2:] == ["#PARTITIONS", "ASSIGNMENT"] and cells(out)[1][-2:] == ["2", "t:0,1"]
        _, out, _ = await ottla(broker, *describe, "--state", "--verbose")
        assert cells(out)[1] == ["s", f"127.0.0.1:{broker.ports[0]}", "(1)", "Stable", epoch, epoch, "1"]
        assert (await client.call(altering_share_offset("s", "t", 1, 3), 0)).error_code == ErrorCode.NON_EMPTY_GROUP
        await share_beat(client, "a", epoch=-1)
        assert (await client.call(altering_share_offset("s", "t", 1, 3), 0)).error_code == 0
        code, out, err = await ottla(broker, *describe, "--verbose")
        assert (code, err) == (0, "\nShare group 's' has no active members.\n")
        assert cells(out)[0][3:] == ["LEADER-EPOCH", "START-OFFSET", "LAG"]
        assert cells(out)[2] == ["s", "t", "1", "0", "3", "1"]
        (described,) = (await parsed(ottla, broker, *describe))["groups"]
        assert (described["type"], described["members"]) == ("share", [])
        last = {"topic": "t", "partition": 1, "leader_epoch": 0, "start_offset": 3, "lag": 1}
        assert described["offsets"][1] == last
        await commit(broker, "g", {("t", 0): 0})
        _, out, _ = await ottla(broker, "groups", "--delete", "--group", "s", "--group", "x")
        assert out == "\nThese share groups were deleted successfully: 's'\n"
        assert await parsed(ottla, broker, "groups", "--list", "--type", "share") == {"groups": []}
        assert (await client.call(altering_share_offset("s", "t", 1, 3), 0)).error_code == 0
        _, out, _ = await ottla(broker, "groups", "--delete", "--group", "g", "--group", "s")
        assert out == "Deletion of requested groups ('g', 's') was successful.\n"


async def test_streams_group_is_listed_and_described(tmp_path: Path, ottla: Ottla) -> None:
    async with running(tmp_path, release="4.3", overrides=STREAMING) as broker:
        await broker.topic("t", 2)
        await fill(broker, 1, 4)
        client = await broker.client()
        await commit(broker, "k", {("t", 1): 1})
        joined = await client.call(joining(process_id="p"), 0)
        assert joined.error_code == 0
        _, out, _ = await ottla(broker, "groups", "--list", "--type", "streams")
        assert cells(out) == [["GROUP", "TYPE"], ["k", "Streams"]]
        describe = ("groups", "--describe", "--group", "k")
        code, out, err = await ottla(broker, *describe)
        assert (code, err) == (0, "")
        assert cells(out) == [
            ["GROUP", "TOPIC", "PARTITION", "OFFSET-LAG"],
            ["k", "t", "0", "0"],
            ["k", "t", "1", "3"],
        ]
        _, out, _ = await ottla(broker, *describe, "--verbose")
        assert cells(out)[1:] == [["k", "t", "0", "-", "-", "0", "0"], ["k", "t", "1", "1", "-", "4", "3"]]
        _, out, _ = await ottla(broker, *describe, "--members")
        assert out.splitlines()[1].split(maxsplit=4) == ["k", "a", "p", "test", "ACTIVE: 0:[0,1]; "]
        _, out, _ = await ottla(broker, *describe, "--members", "--verbose")
        epoch = str(joined.member_epoch)
        row = out.splitlines()[1].split(maxsplit=8)
        assert row == ["k", epoch, "0", "a", "streams", epoch, "p", "test", "ACTIVE: 0:[0,1]; TARGET-ACTIVE: 0:[0,1]; "]
        _, out, _ = await ottla(broker, *describe, "--state", "--verbose")
        assert cells(out)[1][-4:] == ["Stable", epoch, epoch, "1"]
        (described,) = (await parsed(ottla, broker, *describe))["groups"]
        (one,) = described["members"]
        assert (described["type"], one["tasks"]) == ("streams", {"active": {"0": [0, 1]}, "standby": {}, "warmup": {}})


async def test_share_group_is_reset_and_its_offsets_deleted(tmp_path: Path, ottla: Ottla) -> None:
    reset = ("groups", "--reset-offsets", "--group", "s", "--execute")
    delete = ("groups", "--delete-offsets", "--group", "s", "--topic", "t")
    async with running(tmp_path, release="4.3", overrides=BEATING) as broker:
        await broker.topic("t", 2)
        await fill(broker, 1, 4)
        client = await broker.client()
        await share_joined(client, "a", "t")
        code, _, err = await ottla(broker, *reset, "--topic", "t", "--to-latest")
        assert code == 1 and "s" in err and "\n" not in err.strip()
        code, _, err = await ottla(broker, *delete)
        assert code == 1 and "The group is not empty." in err
        await share_beat(client, "a", epoch=-1)

        async def starts() -> list[int | None]:
            (described,) = (await parsed(ottla, broker, "groups", "--describe", "--group", "s"))["groups"]
            return [one["start_offset"] for one in described["offsets"]]

        code, out, err = await ottla(broker, *reset, "--topic", "t", "--to-latest")
        assert (code, err) == (0, "")
        assert cells(out)[1:] == [["s", "t", "0", "0"], ["s", "t", "1", "4"]] and await starts() == [0, 4]
        for flags, offset in ((["--topic", "t:1", "--shift-by", "-1"], 3), (["--topic", "t:1", "--to-earliest"], 0)):
            assert (await ottla(broker, *reset, *flags))[0] == 0
            assert await starts() == [0, offset]
        assert (await ottla(broker, *reset, "--all-topics", "--to-offset", "2"))[0] == 0
        assert await starts() == [0, 2]
        assert (await ottla(broker, "groups", "--list")) == (0, "", "")  # no consumer group was made
        code, _, err = await ottla(broker, *delete[:-1], "t:1")
        assert code == 1 and "deleted for whole topics" in err
        code, out, _ = await ottla(broker, *delete, "--topic", "absent")
        assert code == 1 and cells(out)[2] == ["t", "Successful"]
        assert cells(out)[1][:2] == ["absent", "Error:"] and "does not host this topic-partition" in out
        assert await starts() == []


async def test_streams_group_is_reset_and_its_offsets_deleted(tmp_path: Path, ottla: Ottla) -> None:
    reset = ("groups", "--reset-offsets", "--group", "k", "--topic", "t:1", "--to-earliest", "--execute")
    delete = ("groups", "--delete-offsets", "--group", "k", "--topic", "t:1")
    async with running(tmp_path, release="4.3", overrides=STREAMING) as broker:
        await broker.topic("t", 2)
        await fill(broker, 1, 4)
        client = await broker.client()
        await commit(broker, "k", {("t", 1): 1})
        assert (await client.call(joining(process_id="p"), 0)).error_code == 0
        code, _, err = await ottla(broker, *reset)
        assert code == 1 and "k" in err
        code, out, _ = await ottla(broker, *delete)
        assert code == 1 and "GROUP_SUBSCRIBED_TO_TOPIC" in out
        assert (await client.call(beating(epoch=-1), 0)).error_code == 0
        document = await parsed(ottla, broker, *reset)
        assert document["groups"][0]["offsets"] == [{"topic": "t", "partition": 1, "offset": 0}]
        code, out, _ = await ottla(broker, *delete)
        assert code == 0 and cells(out)[-1] == ["t", "1", "Successful"]
        (described,) = (await parsed(ottla, broker, "groups", "--describe", "--group", "k"))["groups"]
        assert (described["type"], described["offsets"]) == ("streams", [])


async def test_groups_are_reset(tmp_path: Path, ottla: Ottla) -> None:
    reset = ("groups", "--reset-offsets", "--group", "g")
    async with running(tmp_path, release="4.3") as broker:
        await broker.topic("t", 2)
        await fill(broker, 1, 4)
        code, out, err = await ottla(broker, *reset, "--topic", "t:1", "--to-latest")
        assert (code, err.startswith("WARN: dry run, no offset is changed")) == (0, True)
        assert (
            out
            == "\nGROUP           TOPIC           PARTITION  NEW-OFFSET\ng               t               1          4\n"
        )
        assert await ottla(broker, "groups", "--list") == (0, "", "")
        document = await parsed(ottla, broker, *reset, "--topic", "t", "--to-latest", "--execute")
        expected = [{"topic": "t", "partition": 0, "offset": 0}, {"topic": "t", "partition": 1, "offset": 4}]
        assert document == {"groups": [{"group": "g", "executed": True, "offsets": expected}]}
        code, out, err = await ottla(broker, *reset, "--topic", "t:1", "--shift-by", "-3", "--execute", "--export")
        assert (code, out, err) == (0, "t,1,1\n\n", "")
        code, out, err = await ottla(broker, *reset, "--topic", "t:1", "--to-offset", "9", "--dry-run", "--export")
        assert (code, out, err.startswith("WARN: t-1: offset ")) == (0, "t,1,4\n\n", True)
        plan = tmp_path / "plan.csv"
        plan.write_text("t,1,2\n\nt,0,0\n")
        code, out, _ = await ottla(broker, *reset, "--from-file", str(plan), "--execute", "--export")
        assert (code, out) == (0, "t,0,0\nt,1,2\n\n")
        code, out, _ = await ottla(broker, *reset, "--all-topics", "--to-current", "--dry-run", "--export")
        assert (code, out) == (0, "t,0,0\nt,1,2\n\n")
        code, out, err = await ottla(broker, *reset, "--all-topics", "--to-datetime", "2999-01-01T00:00:00", "--export")
        assert (code, out, err.count("is empty. Falling back to latest")) == (0, "t,0,0\nt,1,4\n\n", 2)
        for more, message in (
            (("--topic", "t:7", "--to-latest"), 'The partitions "t-7" do not exist'),
            (("--topic", "x", "--to-latest"), "topic x: UNKNOWN_TOPIC_OR_PARTITION"),
            (("--topic", "t:a", "--to-latest"), "Invalid topic arg 't:a'"),
        ):
            code, out, err = await ottla(broker, *reset, "--execute", *more)
            assert (code, out, err.count("\n")) == (1, "", 1) and message in err


async def test_groups_are_deleted(tmp_path: Path, ottla: Ottla) -> None:
    async with running(tmp_path, release="4.3") as broker:
        await broker.topic("t", 2)
        for group in ("g", "h"):
            await commit(broker, group, {("t", 0): 0, ("t", 1): 0})
        document = await parsed(ottla, broker, "groups", "--delete-offsets", "--group", "g", "--topic", "t:1")
        offsets = [{"topic": "t", "partition": 1, "error": None}]
        assert document == {"groups": [{"group": "g", "error": None, "offsets": offsets}]}
        code, out, err = await ottla(
            broker, "groups", "--delete-offsets", "--group", "g", "--topic", "x", "--topic", "t"
        )
        assert (code, err.count("\n"), out.count("Successful"), out.count("Error: ")) == (1, 1, 2, 1)
        code, out, err = await ottla(broker, "groups", "--delete-offsets", "--group", "x", "--topic", "t")
        assert (code, out.count("Error: "), err.count("\n")) == (1, 2, 1)
        code, out, err = await ottla(broker, "groups", "--delete", "--group", "x", "--group", "g")
        assert (code, out) == (1, "\nThese consumer groups were deleted successfully: 'g'\n")
        assert err.startswith("ottla groups: Group 'x' could not be deleted due to: ") and err.count("\n") == 1
        assert await parsed(ottla, broker, "groups", "--delete", "--all-groups") == {
            "groups": [{"group": "h", "error": None}]
        }


def test_times_durations_and_plans_are_parsed(tmp_path: Path) -> None:
    assert moment_of("1970-01-02T00:00:00.5") == 86_400_500 == moment_of("1970-01-02T01:00:00.500+01:00")
    assert [duration_of(text) for text in ("P1D", "PT1H30M", "PT0.5S", "-PT1S", "P-1DT1H")] == [
        *(86_400_000, 5_400_000, 500),
        *(-1000, -82_800_000),
    ]
    for text in ("", "P", "PT", "P1H", "1D", "P1DT", "PT1,5S"):
        with pytest.raises(CannotDo, match="is not a duration"):
            duration_of(text)
    for text in ("2020", "2020-01-01", "yesterday", "2020-01-01T99:00"):
        with pytest.raises(CannotDo, match="is not a time"):
            moment_of(text)
    file = tmp_path / "plan"
    file.write_text('"g, 1",t,0,5\nh, t, 1, 6\n')
    assert plan_of(file, []) == plan_of(file, ["x"]) == {"g, 1": {("t", 0): 5}, "h": {("t", 1): 6}}
    for text in ("t,0,5\n", "g,t,0,-1\n", "g,t,0,5,6\n", "g,t,x,1\n"):
        file.write_text(text)
        with pytest.raises(CannotDo, match="line 1: expected group,topic,partition,offset"):
            plan_of(file, ["a", "b"])
    file.write_text("g" * 200_000)
    with pytest.raises(CannotDo, match="field larger than"):
        plan_of(file, ["a", "b"])


def test_python_errors_are_one_line(tmp_path: Path) -> None:
    file = tmp_path / "offsets"
    file.write_text("[" * 200_000)
    with pytest.raises(CannotDo, match="not a valid JSON"):
        offsets_of(file)
    for text in ("t{99999999999}", "(" * 200_000, "(:1"):
        with pytest.raises(CannotDo, match="is an invalid regex"):
            pattern_of(text)
    for text in ("9" * 5000, "1:x", "1:", "٣"):
        with pytest.raises(CannotDo, match="is not ID:ID"):
            assignment_of(text)


# Configs


async def test_configs_of_topics_and_brokers(tmp_path: Path, ottla: Ottla) -> None:
    entity = ("configs", "--entity-type", "topics", "--entity-name", "t")
    async with running(tmp_path, release="4.3") as broker:
        await broker.topic("t")
        changed = await ottla(
            broker, *entity, "--alter", "--add-config", "retention.ms=5,cleanup.policy=[compact,delete]"
        )
        assert changed == (0, "Completed updating config for topic t.\n", "")
        code, out, _ = await ottla(broker, "configs", "--topic", "t", "--describe")
        head, policy, retention, end = out.split("\n")
        assert (code, head, end) == (0, "Dynamic configs for topic t are:", "")
        assert policy.startswith(
            "  cleanup.policy=compact,delete sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:cleanup."
        )
        assert retention.startswith("  retention.ms=5 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:retention.ms=5")
        document = await parsed(ottla, broker, *entity, "--alter", "--delete-config", "retention.ms")
        altered = {"entity_type": "topics", "entity_name": "t", "set": [], "deleted": ["retention.ms"]}
        assert document == {"altered": altered}
        (described,) = (await parsed(ottla, broker, "configs", "--entity-type", "topics", "--describe"))["configs"]
        (config,) = described.pop("configs")
        assert described == {"entity_type": "topics", "entity_name": "t"}
        assert (config["name"], config["value"], config["source"]) == (
            *("cleanup.policy", "compact,delete"),
            "DYNAMIC_TOPIC_CONFIG",
        )
        code, out, _ = await ottla(broker, *entity, "--describe", "--all")
        assert (code, out.split("\n")[0], out.count("\n") > 20) == (0, "All configs for topic t are:", True)
        code, out, err = await ottla(broker, *entity, "--alter", "--add-config", "no.such=1")
        assert (code, out, err) == (1, "", "ottla configs: Unknown topic config name: no.such\n")
        absent = "The topic 'x' doesn't exist and doesn't have dynamic config.\n"
        assert await ottla(broker, "configs", "--topic", "x", "--describe") == (0, absent, "")
        changed = await ottla(broker, "configs", "--broker-defaults", "--alter", "--add-config", "log.retention.ms=7")
        assert changed == (0, "Completed updating default config for brokers in the cluster.\n", "")
        code, out, _ = await ottla(broker, "configs", "--entity-type", "brokers", "--describe")
        heads = ["Dynamic configs for broker 1 are:", "Default configs for brokers in the cluster are:"]
        assert (code, [line for line in out.split("\n") if line.endswith(":")]) == (0, heads)
        assert "\n  log.retention.ms=7 sensitive=false" in out


async def test_quotas_and_credentials(tmp_path: Path, ottla: Ottla) -> None:
    async with running(tmp_path, release="4.3") as broker:
        anna = ("configs", "--user", "anna")
        set_ = await ottla(broker, *anna, "--client", "c", "--alter", "--add-config", "producer_byte_rate=20000000")
        assert set_ == (0, "Completed updating config for client c.\n", "")
        text = "Quota configs for user-principal 'anna', client-id 'c' are producer_byte_rate=2.0E7\n"
        both = ("--entity-type", "users", "--entity-name", "anna", "--entity-type", "clients")
        assert await ottla(broker, "configs", *both, "--describe") == (0, text, "")
        document = await parsed(ottla, broker, "configs", *both, "--describe")
        entity = {"user": "anna", "client-id": "c"}
        assert document == {"quotas": [{"entity": entity, "quotas": {"producer_byte_rate": 20000000.0}}], "scram": []}
        await ottla(broker, "configs", "--ip-defaults", "--alter", "--add-config", "connection_creation_rate=7")
        limited = "Quota configs for the default ip are connection_creation_rate=7.0\n"
        assert await ottla(broker, "configs", "--entity-type", "ips", "--describe") == (0, limited, "")
        secret = "SCRAM-SHA-256=[iterations=8192,password=hunter2]"
        stored = await ottla(broker, *anna, "--alter", "--add-config", secret)
        assert stored == (0, "Completed updating config for user anna.\n", "")
        known = "SCRAM credential configs for user-principal 'anna' are SCRAM-SHA-256=iterations=8192\n"
        assert await ottla(broker, *anna, "--describe") == (0, known, "")
        document = await parsed(ottla, broker, "configs", "--entity-type", "users", "--describe")
        credentials = [{"mechanism": "SCRAM-SHA-256", "iterations": 8192}]
        assert document["scram"] == [{"user": "anna", "credentials": credentials, "error": None}]
        assert await parsed(ottla, broker, "configs", "--user", "bob", "--describe") == {"quotas": [], "scram": []}
        code, out, err = await ottla(broker, *anna, "--alter", "--delete-config", "producer_byte_rate")
        assert (code, out, err) == (1, "", "ottla configs: Invalid config(s): producer_byte_rate\n")
        code, _, err = await ottla(broker, *anna, "--alter", "--add-config", "producer_byte_rate=-1")
        assert (code, err.count("\n")) == (1, 1)
        assert (await ottla(broker, *anna, "--alter", "--delete-config", "SCRAM-SHA-256"))[0] == 0


def test_notations_of_configs() -> None:
    assert added_of("a=1, b=[x,y],c=,d=[k=v,w]") == {"a": "1", "b": "x,y", "c": "", "d": "k=v,w"}
    assert added_of(None) == {}
    for text in ("a", "a=b=c", "a=1,,b=2"):
        with pytest.raises(CannotDo, match="Invalid entity config"):
            added_of(text)
    numbers = {0.0: "0.0", 1.0: "1.0", 0.001: "0.001", 0.0001: "1.0E-4", 9999999.0: "9999999.0", 1e7: "1.0E7"}
    numbers |= {
        123456789.5: "1.234567895E8",
        -2.5e300: "-2.5E300",
        math.inf: "Infinity",
        -math.inf: "-Infinity",
    }
    assert {value: java_double(value) for value in numbers} == numbers
    assert java_double(math.nan) == "NaN"


# ACLs


async def test_acls_command(tmp_path: Path, ottla: Ottla, monkeypatch: pytest.MonkeyPatch) -> None:
    add = ("acls", "--add", "--allow-principal", "User:anna", "--topic", "t")
    pattern = "ResourcePattern(resourceType=TOPIC, name=t, patternType=LITERAL)"
    entry = "(principal=User:anna, host=*, operation=READ, permissionType=ALLOW)"
    async with running(tmp_path, release="4.3", overrides=AUTHORIZED) as broker:
        assert await ottla(broker, "acls", "--list") == (0, "", "")
        made = await ottla(broker, *add, "--operation", "Read")
        assert made == (0, f"Adding ACLs for resource `{pattern}`: \n \t{entry}\n\n", "")
        again = await ottla(broker, *add, "--operation", "read")
        assert again == (0, f"Acl (pattern={pattern}, entry={entry}) already exists.\n", "")
        listed = f"Current ACLs for resource `{pattern}`: \n \t{entry}\n\n"
        assert await ottla(broker, "acls", "--list") == (0, listed, "")
        assert await ottla(broker, "acls", "--list", "--group", "g") == (0, "", "")
        one = {
            **{"resource_type": "TOPIC", "resource_name": "t", "pattern_type": "LITERAL", "principal": "User:anna"},
            **{"host": "*", "operation": "READ", "permission": "ALLOW"},
        }
        assert await parsed(ottla, broker, "acls", "--list", "--principal", "User:anna") == {"acls": [one]}
        assert await parsed(ottla, broker, "acls", "--list", "--principal", "User:bob") == {"acls": []}
        document = await parsed(ottla, broker, *add, "--producer")
        assert (len(document["added"]), document["existing"]) == (3, [])
        remove = ("acls", "--remove", "--allow-principal", "User:anna", "--topic", "t", "--operation", "Read")
        for reply, is_left in (("n\n", True), ("", True), ("Y\n", False)):
            monkeypatch.setattr("sys.stdin", io.StringIO(reply))
            code, out, _ = await ottla(broker, *remove)
            assert (code, out.startswith("Are you sure you want to remove ACLs: ")) == (0, True)
            assert (one in (await parsed(ottla, broker, "acls", "--list"))["acls"]) == is_left
        assert len((await parsed(ottla, broker, "acls", "--remove", "--topic", "t", "--force"))["removed"]) == 3


async def test_acls_without_an_authorizer_are_refused(tmp_path: Path, ottla: Ottla) -> None:
    async with running(tmp_path, release="4.3") as broker:
        code, out, err = await ottla(broker, "acls", "--list")
        assert (code, out, err) == (1, "", "ottla acls: No Authorizer is configured on the broker\n")


# Old brokers

NEEDS = {  # the request, and the first release that has it
    "topics --list": "0.9",
    "topics --describe": "0.9",
    "topics --create --topic u --partitions 1 --replication-factor 1": "0.10.2",
    "records --offsets": "0.9",
    "records --offsets --topic t --time 1700000000000": "0.10.2",
    "records --delete --topic t --partition 0 --before-offset 0": "1.1",
    "groups --list": "0.9",
    "groups --list --state": "0.9",
    "groups --describe --group g": "1.1",
    "groups --describe --group g --state": "0.9",
    "groups --reset-offsets --group g --topic t --to-latest --execute": "0.9",
    "groups --delete-offsets --group h --topic t": "2.8",
    "groups --delete --group g": "1.1",
    "configs --topic t --describe": "1.1",
    "configs --topic t --alter --add-config retention.ms=5": "1.1",
    "configs --entity-type users --describe": "2.8",
    "configs --entity-type client-metrics --describe": "4.3",
}


@pytest.mark.parametrize("release", ("0.9", "0.10.2", "1.1", "2.8"))
async def test_requests_missing_in_an_old_broker_are_reported(release: str, tmp_path: Path, ottla: Ottla) -> None:
    order = ("0.9", "0.10.2", "1.1", "2.8", "4.3")
    async with running(tmp_path, release=release) as broker:
        await broker.topic("t")
        for group in ("g", "h"):
            await commit(broker, group, {("t", 0): 0})
        for line, first in NEEDS.items():
            code, _, err = await ottla(broker, *line.split(" "))
            lines = [text for text in err.split("\n") if text.startswith("ottla ")]
            works = order.index(release) >= order.index(first)
            assert (line, code, len(lines)) == (line, *((0, 0) if works else (1, 1))), err
            if not works:
                assert "broker" in lines[0]


# Errors


MISTAKES = """
topics|exactly one action is needed
topics --list --describe|exactly one action is needed
topics --create|--create, --alter and --delete need --topic
records|exactly one action is needed
records --delete --topic t|--partition and --before-offset together
records --delete|needs either --offset-json-file
records --delete --topic t --partition -1 --before-offset 0|expected at least 0 and
records --delete --topic t --partition 0 --before-offset -2|expected at least 0 and
records --delete --offset-json-file /no/such|cannot read /no/such
records --delete --offsets|exactly one action is needed
records --offsets --partition 1|need --delete
records --offsets --time soon|Malformed time argument soon
records --offsets --time 99999999999999999999|Malformed time argument
records --offsets --topic-partitions t:x|Invalid rule specification: t:x
records --offsets --topic-partitions (:1|is an invalid regex
records --offsets --topic t{99999999999}|is an invalid regex
records --offsets --topic-partitions t:99999999999|Invalid rule specification
records --offsets --topic-partitions t --topic t|cannot be used with
records --offsets --partitions x|numeric partition ids
groups|exactly one action is needed
groups --describe|expected --group or --all-groups
groups --list --members|need --describe
groups --list --state odd|Invalid state list 'odd'
groups --list --type odd|Invalid type list 'odd'
groups --describe --group g --members --offsets|--members, --offsets and --state cannot be combined
groups --describe --group g --state x|has no value with --describe
groups --delete --group g --topic t|it deletes whole groups
groups --delete-offsets --group g|needs one --group and at least one --topic
groups --list --to-latest|need --reset-offsets
groups --list --timeout never|'never' is not a number
groups --reset-offsets --group g --topic t|needs one of --to-offset
groups --reset-offsets --group g --to-latest|needs either --all-topics or --topic
groups --reset-offsets --group g --topic t --to-latest --execute --dry-run|--execute and --dry-run cannot be combined
groups --reset-offsets --group g --topic t --by-duration 1h|is not a duration
groups --reset-offsets --group g --from-file /no/such|cannot read /no/such
configs|exactly one action is needed
configs --describe|At least one entity type
configs --describe --entity-type odd|Invalid entity type odd
configs --describe --entity-type topics --entity-type users|Only 'users' and 'clients'
configs --describe --topic t --entity-type topics|Duplicate entity type(s) specified: topics
configs --describe --topic t --entity-name t|should not be used in conjunction
configs --describe --entity-type users --entity-name a --entity-name b|More entity names
configs --describe --entity-type topics --entity-default|must not be specified
configs --describe --entity-type broker-loggers|An entity name must be specified
configs --describe --broker x|must be a valid integer broker id
configs --describe --ip 1.2.3.4.5|must be a valid IP
configs --describe --topic t --add-config a=b|need --alter
configs --alter --topic t|--alter needs --add-config
configs --alter --entity-type topics --add-config a=b|An entity name must be specified
configs --alter --topic t --add-config a=b --add-config-file f|Only one of
configs --alter --topic t --add-config a|Invalid entity config
configs --alter --topic t --add-config a/b=c|Invalid character found for config key: a/b
configs --alter --topic t --add-config-file /no/such|cannot read /no/such
configs --alter --ip 1.2.3.4 --add-config producer_byte_rate=1|Unexpected config names: producer_byte_rate
configs --alter --client c --add-config SCRAM-SHA-256=[password=p]|Unexpected config names: SCRAM-SHA-256
configs --alter --user u --add-config producer_byte_rate=fast|Cannot parse quota configuration value
configs --alter --user u --add-config producer_byte_rate=1_000|Cannot parse quota configuration value
configs --alter --user u --add-config producer_byte_rate=nan|Cannot parse quota configuration value
configs --alter --user u --add-config SCRAM-SHA-256=p|Invalid credential property SCRAM-SHA-256
configs --alter --user u --add-config SCRAM-SHA-256=[iterations=1,password=p]|less than the minimum 4096
configs --alter --user-defaults --add-config SCRAM-SHA-256=[password=p]|is not allowed
configs --alter --user u --add-config SCRAM-SHA-256=[password=p],producer_byte_rate=1|Cannot alter both
acls|exactly one action is needed
acls --add --topic t|--allow-principal, --deny-principal
acls --add --allow-principal User:a|at least one resource
acls --add --allow-principal anna --topic t|principalType:principalName
acls --add --allow-principal User:a --topic t --operation Fly|Unknown operation Fly
acls --add --allow-principal User:a --topic t --operation ClusterAction|ResourceType TOPIC only supports
acls --add --allow-principal User:a --topic t --resource-pattern-type match|is not valid when adding
acls --add --allow-principal User:a --topic t --resource-pattern-type odd|Unknown resource-pattern-type
acls --add --allow-principal User:a --topic t --consumer|a --topic and a --group
acls --add --allow-principal User:a --group g --producer|must specify a --topic
acls --add --allow-principal User:a --topic t --idempotent|only available if --producer
acls --add --deny-principal User:a --topic t --producer|cannot be combined
acls --list --producer|--list cannot be combined
acls --add --principal User:a --topic t|only available if --list
"""


@pytest.mark.parametrize("line", MISTAKES.strip().split("\n"))
def test_wrong_arguments_are_one_line(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    words, _, message = line.partition("|")
    command, *arguments = words.split(" ")
    with pytest.raises(SystemExit) as end:
        COMMANDS[command](["--bootstrap-server", "127.0.0.1:1", *arguments])
    out, err = capsys.readouterr()
    assert (end.value.code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith(f"ottla {command}: ") and message in err


@pytest.mark.parametrize("command", COMMANDS)
async def test_unreachable_broker_is_one_line(command: str, tmp_path: Path, ottla: Ottla) -> None:
    async with running(tmp_path) as broker:
        pass
    action = {"records": ["--offsets"], "configs": ["--describe", "--entity-type", "topics"]}.get(command, ["--list"])
    code, out, err = await ottla(broker, command, *action)
    assert (code, out, err.count("\n")) == (1, "", 1) and "no broker is reachable" in err
    code, out, err = await ottla(broker, command, *action, "--bootstrap-server", "nonsense")
    assert (code, out, err.count("\n")) == (1, "", 1)


@pytest.mark.parametrize("line", ["topics --list", "acls --remove --topic t"])
def test_ctrl_c_ends_without_output(line: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent, contextlib.ExitStack() as accepted:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        main = """import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # who starts the tests in the background ignores it
from ottla.tools.main import main
sys.exit(main(sys.argv[1:]))"""
        command = [sys.executable, "-c", main, *line.split(" "), "--bootstrap-server", address]
        pipe = subprocess.PIPE
        with subprocess.Popen(command, text=True, stdin=pipe, stdout=pipe, stderr=pipe) as process:
            assert process.stdout is not None and process.stderr is not None
            if line.startswith("acls"):
                assert "(y/n)" in process.stdout.readline()  # it waits for an input
            else:
                accepted.enter_context(silent.accept()[0])  # it waits for the broker
            process.send_signal(signal.SIGINT)
            assert process.wait(PATIENCE_S) == cli.INTERRUPTED
            assert (process.stdout.read(), process.stderr.read()) == ("", "")


async def test_closed_pipe_is_not_an_error(tmp_path: Path) -> None:
    async with running(tmp_path, release="4.3") as broker:
        for n in range(9):
            await broker.topic(f"t{n}")
        main = "import sys; from ottla.tools.main import main; sys.exit(main(sys.argv[1:]))"
        address = f"127.0.0.1:{broker.ports[0]}"
        read, write = os.pipe()
        os.close(read)
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", main, "topics", "--list", "--bootstrap-server", address),
            stdout=write,
            stderr=asyncio.subprocess.PIPE,
        )
        os.close(write)
        _, err = await process.communicate()
        assert (process.returncode, err) == (0, b"")


def test_commands_are_found_by_ottla(capsys: pytest.CaptureFixture[str]) -> None:
    for command in COMMANDS:
        with pytest.raises(SystemExit) as end:
            cli.main([command, "--help"])
        out = capsys.readouterr().out
        assert (end.value.code, out.startswith(f"usage: ottla {command} ")) == (0, True)
        assert "default: 127.0.0.1:9092" in out and "--json" in out
