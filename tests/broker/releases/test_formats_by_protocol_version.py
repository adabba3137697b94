"""inter.broker.protocol.version and message.format.version, over the wire and in the files.

The formats that 2.8, 3.0, 3.9 and Ottla's own profile write into topics and into __consumer_offsets, their warnings and
errors (KIP-724), also after dynamic changes and after restarts with another version or release.
"""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from ottla.broker.errors import ConfigError
from ottla.broker.logs import get_logger
from ottla.protocol.messages.configs.alter_configs import AlterConfigsRequest
from ottla.protocol.messages.configs.incremental_alter_configs import IncrementalAlterConfigsRequest
from ottla.protocol.messages.groups.delete_groups import DeleteGroupsRequest
from ottla.protocol.messages.groups.describe_groups import DescribeGroupsRequest
from ottla.protocol.messages.groups.join_group import JoinGroupRequest
from ottla.protocol.messages.groups.offset_commit import OffsetCommitRequest
from ottla.protocol.messages.groups.offset_fetch import OffsetFetchRequest
from ottla.protocol.messages.groups.sync_group import SyncGroupRequest
from ottla.protocol.records import formats
from ottla_testing.broker.harness import Broker, Client, only, options, produce, records, running
from ottla_testing.broker.stored_logs import T0, fetch_partition, offsets, plain, rows
from ottla_testing.each import each

PROTOCOL = "inter.broker.protocol.version"
BROKER_FORMAT = "log.message.format.version"
TOPIC_FORMAT = "message.format.version"
ONE = {"offsets.topic.num.partitions": "1"}

RELEASES = ["2.8", "3.0", "3.9", "ottla"]
NEWEST = {"2.8": "2.8-IV1", "3.0": "3.0-IV1", "3.9": "3.9-IV0", "ottla": "3.9-IV0"}
PROTOCOLS = [None, "0.10.0", "2.8", "3.0", "newest"]
FORMATS = [None, "0.9.0", "0.10.2", "2.8"]

# Protocol version ("3.0" means that or later) and the topic's format -> written format, and why the topic's is ignored.
WRITTEN = {
    ("0.10.0", None): (1, None),
    ("0.10.0", "0.9.0"): (0, None),
    ("0.10.0", "0.10.2"): (1, "above"),
    ("0.10.0", "2.8"): (1, "above"),
    ("2.8", None): (2, None),
    ("2.8", "0.9.0"): (0, None),
    ("2.8", "0.10.2"): (1, None),
    ("2.8", "2.8"): (2, None),
    ("3.0", None): (2, None),
    ("3.0", "0.9.0"): (2, "is"),
    ("3.0", "0.10.2"): (2, "is"),
    ("3.0", "2.8"): (2, None),
}


def magics(folder: Path) -> list[int]:
    """Returns the format of every entry in a partition's files."""
    return [h.magic for path in sorted(folder.glob("*.log")) for _, h in formats.headers(path.read_bytes())]


def commit(offset: int, group: str = "g") -> OffsetCommitRequest:
    topic = OffsetCommitRequest.OffsetCommitRequestTopic
    requested = topic.OffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="m")
    return OffsetCommitRequest(group_id=group, topics=[topic(name="t", partitions=[requested])])


async def committed(broker: Broker, group: str = "g") -> int:
    topic = OffsetFetchRequest.OffsetFetchRequestTopic
    request = OffsetFetchRequest(group_id=group, topics=[topic(name="t", partition_indexes=[0])])
    return only(await (await broker.client()).call(request, 1)).committed_offset


async def alter(client: Client, configs: dict[str, str | None], version: int | None = 1) -> int:
    """Changes single configs of topic t, or all at once in the older way if no version is given. Returns the error
    code.
    """
    if version is None:
        resource = AlterConfigsRequest.AlterConfigsResource
        entries: list[Any] = [resource.AlterableConfig(name=name, value=value) for name, value in configs.items()]
        requested: Any = resource(resource_type=2, resource_name="t", configs=entries)
        response = await client.call(AlterConfigsRequest(resources=[requested], validate_only=False), 1)
        return response.responses[0].error_code
    incremental = IncrementalAlterConfigsRequest.AlterConfigsResource
    entries = [
        incremental.AlterableConfig(name=name, config_operation=0 if value else 1, value=value)
        for name, value in configs.items()
    ]
    requested = incremental(resource_type=2, resource_name="t", configs=entries)
    response = await client.call(IncrementalAlterConfigsRequest(resources=[requested], validate_only=False), version)
    return response.responses[0].error_code


# ---- the matrix

CELLS = [
    (release, protocol)
    for release, protocol in itertools.product(RELEASES, PROTOCOLS)
    if not (release == "2.8" and protocol == "3.0")
]


@each(("release", "protocol"), CELLS, strided=True)
async def test_formats_written_and_read_by_protocol_version(release: str, protocol: str | None, tmp_path: Path) -> None:
    """Topics of each format, filled by an old and a new producer, and groups, are read by old and new consumers."""
    get_logger()
    named = NEWEST[release] if protocol == "newest" else protocol
    row = protocol if protocol in ("0.10.0", "2.8") else "2.8" if release == "2.8" else "3.0"
    overrides = {**ONE} | ({PROTOCOL: named} if named else {})
    with capture_logs() as events:
        async with running(tmp_path, overrides=overrides, release=release) as broker:
            client = await broker.client()
            await broker.topic("t")
            for version in FORMATS:
                topic = f"of-{version}"
                await broker.topic(topic, configs={TOPIC_FORMAT: version} if version else {})
                for data, api_version in ((plain(rows(2), 0), 1), (plain(rows(2), 1), 2), (records(b"a", b"b"), 7)):
                    assert only(await client.call(produce(data, topic), api_version)).error_code == 0
            assert only(await client.call(commit(5), 2)).error_code == 0
            assert await committed(broker) == 5
    broker_wide, _ = WRITTEN[row, None]
    assert set(magics(tmp_path / "__consumer_offsets-0")) == {broker_wide}
    for version in FORMATS:
        expected, _ = WRITTEN[row, version]
        found = magics(tmp_path / f"of-{version}-0")
        assert set(found) == {expected}, version
        assert len(found) == (3 if expected == 2 else 6)  # a batch for each message set, or its messages one by one
    texts = {event["topic"]: event["reason"] for event in events if "topic" in event and "reason" in event}
    wanted = {}
    for version in FORMATS:
        word = WRITTEN[row, version][1]
        shown = named or NEWEST[release]
        if word:
            wanted[f"of-{version}"] = f"above {PROTOCOL} {shown}" if word == "above" else f"{PROTOCOL} is {shown}"
    assert texts == wanted
    async with running(tmp_path, overrides=overrides, release=release) as broker:
        client = await broker.client()
        for version in FORMATS:
            for api_version in (1, 3, 4):
                response = await fetch_partition(client, api_version, f"of-{version}")
                assert offsets(response.records) == list(range(6))
                newest = min(WRITTEN[row, version][0], 0 if api_version < 2 else 1 if api_version < 4 else 2)
                assert {header.magic for _, header in formats.headers(response.records)} == {newest}
        assert await committed(broker) == 5


@each(
    ("release", "overrides"),
    [
        ("2.8", {PROTOCOL: "3.0"}),
        ("3.0", {PROTOCOL: "3.1"}),
        ("3.9", {PROTOCOL: "4.0"}),
        ("ottla", {PROTOCOL: "4.0"}),
        *((release, {PROTOCOL: "nonsense"}) for release in RELEASES),
        *((release, {BROKER_FORMAT: "0.12"}) for release in RELEASES),
        *((release, {PROTOCOL: "0.10.0", BROKER_FORMAT: "0.11.0"}) for release in RELEASES),
        ("4.3", {PROTOCOL: "3.9"}),
        ("4.3", {BROKER_FORMAT: "2.8"}),
    ],
)
def test_contradictory_versions_end_the_start(release: str, overrides: dict[str, str], tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        options([tmp_path], overrides, release)


@each("release", RELEASES)
@each("value", ["", "0.12", "v2", "4.0", "2.8-IV9"])
async def test_unknown_format_version_of_a_topic_is_refused(release: str, value: str, tmp_path: Path) -> None:
    async with running(tmp_path, release=release) as broker:
        client = await broker.client()
        await broker.topic("t", configs={TOPIC_FORMAT: "0.10.2"})
        assert await alter(client, {TOPIC_FORMAT: value}, None) != 0
        with pytest.raises(ConfigError):
            await broker.topic("u", configs={TOPIC_FORMAT: value})
        assert broker.state.topics.named("t").config.overrides == {TOPIC_FORMAT: "0.10.2"}


# ---- while the broker runs


@pytest.mark.parametrize("way", [None, 1])
@pytest.mark.parametrize(
    ("release", "protocol", "expected", "warnings"),
    [
        ("2.8", None, [2, 0, 1, 2, 2], 0),
        ("3.9", "2.8", [2, 0, 1, 2, 2], 0),
        ("ottla", "2.8", [2, 0, 1, 2, 2], 0),
        ("2.8", "0.10.2", [1, 0, 1, 1, 1], 1),
        ("3.9", None, [2, 2, 2, 2, 2], 2),
        ("ottla", None, [2, 2, 2, 2, 2], 2),
    ],
)
async def test_the_format_changes_with_the_next_append(
    way: int | None, release: str, protocol: str | None, expected: list[int], warnings: int, tmp_path: Path
) -> None:
    """Unset, 0.9.0, 0.10.2, 2.8, unset again; earlier data stays, and every version reads all of it."""
    get_logger()
    steps: list[str | None] = [None, "0.9.0", "0.10.2", "2.8", None]
    with capture_logs() as events:
        async with running(tmp_path, overrides={PROTOCOL: protocol} if protocol else {}, release=release) as broker:
            client = await broker.client()
            await broker.topic("t")
            for number, version in enumerate(steps):
                if number:
                    change: dict[str, str | None] = {TOPIC_FORMAT: version}
                    assert await alter(client, {} if way is None and not version else change, way) == 0
                data = records(b"%d" % number, timestamp=T0 + number)
                assert only(await client.call(produce(data), 7)).base_offset == number
            for api_version, newest in ((0, 0), (1, 0), (2, 1), (3, 1), (4, 2)):
                # A topic in an older format is not converted: at the end it has the newest format again.
                response = await fetch_partition(client, api_version)
                assert offsets(response.records) == list(range(5))
                found = [header.magic for _, header in formats.headers(response.records)]
                assert found == [min(magic, newest) for magic in expected]
    assert magics(tmp_path / "t-0") == expected
    assert len([event for event in events if event.get("topic") == "t" and "reason" in event]) == warnings


async def test_idempotent_producers_need_format_v2(tmp_path: Path) -> None:
    """Error 43 while the topic has an older format; the same producer continues after the change back."""
    numbered: dict[str, Any] = {"producer_id": 7, "producer_epoch": 0}
    async with running(tmp_path, release="2.8") as broker:
        client = await broker.client()
        await broker.topic("t")
        assert only(await client.call(produce(records(b"a", base_sequence=0, **numbered)), 7)).error_code == 0
        assert await alter(client, {TOPIC_FORMAT: "0.10.2"}) == 0
        assert only(await client.call(produce(records(b"b", base_sequence=1, **numbered)), 7)).error_code == 43
        assert await alter(client, {TOPIC_FORMAT: "2.8"}) == 0
        response = only(await client.call(produce(records(b"b", base_sequence=1, **numbered)), 7))
        assert (response.error_code, response.base_offset) == (0, 1)


# ---- __consumer_offsets

STORY = [
    ("2.8", {PROTOCOL: "0.10.0"}, 1),
    ("2.8", {PROTOCOL: "2.8", BROKER_FORMAT: "0.9.0"}, 0),
    ("3.9", {PROTOCOL: "2.8", BROKER_FORMAT: "0.10.2"}, 1),
    ("ottla", {PROTOCOL: "2.8", BROKER_FORMAT: "0.9.0"}, 0),
    ("ottla", {PROTOCOL: "0.10.2"}, 1),
    ("3.9", {PROTOCOL: "2.8"}, 2),
    ("3.9", {BROKER_FORMAT: "0.9.0"}, 2),
    ("4.3", {}, 2),
    ("ottla", {}, 2),
    ("2.8", {PROTOCOL: "0.10.0"}, 1),
]


async def test_offsets_are_restored_from_every_format(tmp_path: Path) -> None:
    """Each start reads the offsets of the previous one and writes in its own format; a deleted group stays deleted."""
    expected: list[int] = []
    for number, (release, overrides, magic) in enumerate(STORY):
        async with running(tmp_path, overrides={**ONE, **overrides}, release=release) as broker:
            if number == 0:
                await broker.topic("t")
            else:
                assert await committed(broker) == number - 1
                assert await committed(broker, "gone") == -1
            client = await broker.client()
            for group in ("g", "gone"):
                assert only(await client.call(commit(number, group), 2)).error_code == 0
            request = DeleteGroupsRequest(groups_names=["gone"])
            assert (await client.call(request, 1)).results[0].error_code == 0
            assert (await committed(broker), await committed(broker, "gone")) == (number, -1)
        found = magics(tmp_path / "__consumer_offsets-0")
        written = found[len(expected) :]
        assert len(written) >= 3 and set(written) == {magic}, (release, overrides)
        expected = found


async def test_group_members_are_restored_from_old_formats(tmp_path: Path) -> None:
    """A group that is stable in v0 is stable after a start that writes v1, and continues in v2 with the next
    generation.
    """
    protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"\0subscription")
    member, generation = "", 0
    steps = [("2.8", {BROKER_FORMAT: "0.9.0"}, 0), ("3.9", {PROTOCOL: "0.10.2"}, 1), ("ottla", {}, 2), ("4.3", {}, 2)]
    for number, (release, more, magic) in enumerate(steps):
        async with running(tmp_path, overrides={**ONE, **more}, release=release) as broker:
            client = await broker.client()
            described = await client.call(DescribeGroupsRequest(groups=["g"]), 0)
            shown = described.groups[0]
            if number:
                assert (shown.group_state, shown.protocol_type, shown.protocol_data) == ("Stable", "consumer", "range")
                (found,) = shown.members
                assert (found.member_id, found.member_assignment) == (member, b"part %d\xff" % (number - 1))
                assert found.member_metadata == b"\0subscription"
            joining = JoinGroupRequest(
                group_id="g",
                session_timeout_ms=30_000,
                rebalance_timeout_ms=30_000,
                member_id=member,
                protocol_type="consumer",
                protocols=[protocol],
            )
            await client.send(joining, 2)
            await broker.settle()
            broker.clock.advance(3_000)  # group.initial.rebalance.delay.ms
            _, joined = await client.receive()
            assert (joined.error_code, joined.generation_id) == (0, generation + 1)
            member, generation = joined.member_id, joined.generation_id
            assigned = SyncGroupRequest.SyncGroupRequestAssignment(member_id=member, assignment=b"part %d\xff" % number)
            syncing = SyncGroupRequest(group_id="g", generation_id=generation, member_id=member, assignments=[assigned])
            assert (await client.call(syncing, 1)).error_code == 0
        assert magics(tmp_path / "__consumer_offsets-0")[-1] == magic
