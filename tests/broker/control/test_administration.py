"""Resets of offsets, configs and access control lists over the control plane and with `ottla ctl`."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from ottla.broker.admin_api import group_offsets
from ottla.protocol.messages.groups.join_group import JoinGroupRequest
from ottla_testing.broker import administering_broker
from ottla_testing.broker.administering_broker import AUTHORIZER, commit
from ottla_testing.broker.controlling import controlled
from ottla_testing.broker.ctl_runs import ctl_lines, refused


async def test_offsets_of_a_group_are_reset_in_each_scenario(tmp_path: Path) -> None:
    async with controlled(tmp_path) as (_, api):
        await administering_broker.resets(api)


async def test_a_reset_is_refused_while_the_group_has_members(tmp_path: Path) -> None:
    async with controlled(tmp_path, overrides={"group.initial.rebalance.delay.ms": "0"}) as (broker, api):
        await broker.topic("t")
        await commit(broker, "g", "t", {0: 0})
        client = await broker.client()
        protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"")
        joined = await client.call(
            JoinGroupRequest(
                group_id="g", session_timeout_ms=60_000, rebalance_timeout_ms=60_000, member_id="",
                protocol_type="consumer", protocols=[protocol],
            ),
            3,
        )  # fmt: skip
        assert joined.error_code == 0
        text = (
            "NON_EMPTY_GROUP: Assignments can only be reset if the group 'g' is inactive, but the current state is "
            "CompletingRebalance."
        )
        for dry_run in (True, False):
            body = {"to": "earliest", "dry_run": dry_run}
            assert await api.call("POST", "/groups/g/offsets", body, 409) == text
        assert await api.call("DELETE", "/groups/g", status=409) == (
            "NON_EMPTY_GROUP: group g was not deleted; it still has members"
        )
        assert await refused(api, "groups", "reset", "g", "--to-earliest") == text
        client.close()


async def test_reset_offsets_survive_a_restart(tmp_path: Path) -> None:
    async with controlled(tmp_path) as (_, api):
        await api.call("POST", "/topics", {"name": "t"})
        await api.call("POST", "/topics/t/records", {"records": [{"value": "x"}] * 3})
        ctl_lines = await api.call("POST", "/groups/new/offsets", {"to": "offset", "offset": 2, "of": [{"topic": "t"}]})
        assert ctl_lines["offsets"][0]["before"] is None
    async with controlled(tmp_path) as (_, api):
        (offset,) = (await api.call("GET", "/groups/new"))["offsets"]
        assert (offset["offset"], offset["lag"], offset["metadata"]) == (2, 1, "")


async def test_configs_are_shown_and_changed(tmp_path: Path) -> None:
    async with controlled(tmp_path) as (_, api):
        await administering_broker.configs(api)


async def test_access_control_lists_are_added_listed_and_removed(tmp_path: Path) -> None:
    async with controlled(tmp_path, overrides=AUTHORIZER) as (_, api):
        await administering_broker.acls(api)


async def test_access_control_lists_without_an_authorizer_are_refused(tmp_path: Path) -> None:
    async with controlled(tmp_path) as (_, api):
        await administering_broker.without_authorizer(api)


async def test_ctl_resets_offsets(tmp_path: Path) -> None:
    async with controlled(tmp_path) as (broker, api):
        await ctl_lines(api, "topics", "create", "t", "--partitions", "2")
        await ctl_lines(api, "records", "send", "t", "a", "b", "c", "--partition", "0")
        await commit(broker, "g", "t", {0: 1})
        assert await ctl_lines(api, "groups", "reset", "g", "--to-latest", "--dry-run") == [
            "TOPIC PARTITION BEFORE AFTER START END",
            "t 0 1 3 0 3",
            "nothing was changed (--dry-run)",
        ]
        assert (await ctl_lines(api, "groups", "reset", "g", "--shift-by", "-5"))[
            1
        ] == "t 0 1 0 0 3 offset -4 is out of range"
        assert len(await ctl_lines(api, "groups", "reset", "g", "--to-offset", "2", "--topic", "t")) == 3
        assert (await ctl_lines(api, "groups", "reset", "g", "--to-time", "1970-01-01", "--topic", "t:0"))[1:] == [
            "t 0 2 0 0 3"
        ]
        lines = await ctl_lines(api, "groups", "show", "g")
        assert lines[-3:] == ["TOPIC PARTITION OFFSET START END LAG METADATA", "t 0 0 0 3 3", "t 1 0 0 0 0"]
        assert "is not TOPIC or TOPIC:0,1" in await refused(
            api, "groups", "reset", "g", "--to-latest", "--topic", "t:x"
        )
        assert "do not exist" in await refused(api, "groups", "reset", "g", "--to-latest", "--topic", "t:7")
        assert "one of the arguments" in await refused(api, "groups", "reset", "g")
        assert await ctl_lines(api, "groups", "delete", "g") == ["removed: 1"]
        assert "GROUP_ID_NOT_FOUND" in await refused(api, "groups", "delete", "g")


async def test_ctl_changes_configs(tmp_path: Path) -> None:
    async with controlled(tmp_path) as (_, api):
        await ctl_lines(api, "topics", "create", "t")
        head = "CONFIG VALUE DEFAULT SOURCE"
        assert await ctl_lines(api, "configs", "show", "--topic", "t") == ["all configs have their defaults"]
        line = "retention.ms 1000 604800000 DYNAMIC_TOPIC_CONFIG"
        assert await ctl_lines(api, "configs", "change", "--topic", "t", "retention.ms=1000") == [head, line]
        assert len(await ctl_lines(api, "configs", "show", "--topic", "t", "--all")) > 20
        assert "INVALID_CONFIG" in await refused(api, "configs", "change", "--topic", "t", "retention.ms=x")
        gone = await ctl_lines(api, "configs", "change", "--topic", "t", "--delete", "retention.ms")
        assert gone == ["all configs have their defaults"]
        lines = await ctl_lines(api, "configs", "change", "message.max.bytes=2000000", "--for-all")
        assert "message.max.bytes 2000000 1048588 DYNAMIC_DEFAULT_BROKER_CONFIG" in lines
        assert any(line.startswith("log.dirs ") and line.endswith(" read-only") for line in lines)
        assert "no config given" in await refused(api, "configs", "change")


async def test_ctl_adds_lists_and_removes_access_control_lists(tmp_path: Path) -> None:
    async with controlled(tmp_path, overrides=AUTHORIZER) as (_, api):
        words = ("--resource-type", "topic", "--resource-name", "t", "--principal", "User:a", "--operation", "read")
        assert await ctl_lines(api, "acls", "add", *words) == ["added"]
        assert (await ctl_lines(api, "acls", "list", "--principal", "User:a"))[1:] == [
            "TOPIC t LITERAL User:a * READ ALLOW"
        ]
        assert "no filter given" in await refused(api, "acls", "remove")
        assert await ctl_lines(api, "acls", "remove", "--resource-name", "t") == ["removed: 1"]
        assert await ctl_lines(api, "acls", "list") == ["no entries"]


async def test_reset_of_many_partitions_yields_to_other_requests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_offsets, "AT_ONCE", 10)
    async with controlled(tmp_path) as (_, api):
        await api.call("POST", "/topics", {"name": "wide", "partitions": 60})
        requested = api.call("POST", "/groups/g/offsets", {"to": "time", "time_ms": 1, "of": [{"topic": "wide"}]})
        done = asyncio.ensure_future(requested)
        health = 0
        while not done.done():
            await api.call("GET", "/health")
            health += 1
        assert len((await done)["offsets"]) == 60 and health
