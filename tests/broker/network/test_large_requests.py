"""Requests with many entries: bounded, and read, handled and encoded in steps between which others are served."""

from __future__ import annotations

import asyncio
import gc
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from ottla.broker.context import STEP_ENTRIES
from ottla.broker.cooperative import CooperativeScheduler, FewerCollections
from ottla.broker.groups.offsets import CommittedOffset
from ottla.broker.handlers.groups.commits import COMMITS_AT_ONCE, commit
from ottla.broker.metadata.log import STEP_ENTRIES as WRITTEN_AT_ONCE
from ottla.broker.metadata.topics import PLACED_AT_ONCE, STEP_PARTITIONS
from ottla.protocol.compiler import STEP_ITEMS, Shared, build, build_steps
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.cluster.api_versions import ApiVersionsRequest
from ottla.protocol.messages.cluster.update_features import UpdateFeaturesRequest
from ottla.protocol.messages.configs.alter_client_quotas import AlterClientQuotasRequest
from ottla.protocol.messages.configs.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse
from ottla.protocol.messages.groups.describe_groups import DescribeGroupsRequest
from ottla.protocol.messages.groups.offset_commit import OffsetCommitRequest
from ottla.protocol.messages.groups.offset_fetch import OffsetFetchRequest
from ottla.protocol.messages.records.fetch import FetchRequest
from ottla.protocol.messages.records.list_offsets import ListOffsetsRequest
from ottla.protocol.messages.security.alter_user_scram_credentials import AlterUserScramCredentialsRequest
from ottla.protocol.messages.security.create_acls import CreateAclsRequest
from ottla.protocol.messages.security.delete_acls import DeleteAclsRequest
from ottla.protocol.messages.topics.create_partitions import CreatePartitionsRequest
from ottla.protocol.messages.topics.delete_topics import DeleteTopicsRequest
from ottla.protocol.messages.topics.metadata import MetadataRequest
from ottla.protocol.messages.transactions.add_partitions_to_txn import AddPartitionsToTxnRequest
from ottla.protocol.primitives import request_items_max
from ottla.protocol.records.steps import run
from ottla_testing.broker.administering_broker import AUTHORIZER
from ottla_testing.broker.harness import Closed, create_topics, frame, ping, running
from ottla_testing.broker.quota_cases import altering, entry

ENTRIES = 12_000
TOPIC = 2
QUOTA = AlterClientQuotasRequest.EntryData(entity=[], ops=[])
UPDATE = UpdateFeaturesRequest.FeatureUpdateKey(feature="a", max_version_level=1, upgrade_type=1)
TRANSACTION = AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction(
    transactional_id="a", producer_id=1, producer_epoch=0, verify_only=False, topics=[]
)


def metadata() -> Any:
    topic = MetadataRequest.MetadataRequestTopic
    return MetadataRequest(
        topics=[topic(name=f"n{index}") for index in range(ENTRIES)], allow_auto_topic_creation=False
    )


def list_offsets() -> Any:
    topic = ListOffsetsRequest.ListOffsetsTopic
    requested = [topic.ListOffsetsPartition(partition_index=index, timestamp=-1) for index in range(ENTRIES)]
    return ListOffsetsRequest(replica_id=-1, topics=[topic(name="t", partitions=requested)])


def fetch() -> Any:
    topic = FetchRequest.FetchTopic
    requested = [
        topic.FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1) for index in range(ENTRIES)
    ]
    return FetchRequest(max_wait_ms=0, min_bytes=0, session_epoch=0, topics=[topic(topic="t", partitions=requested)])


def offset_commit() -> Any:
    topic = OffsetCommitRequest.OffsetCommitRequestTopic
    one = topic.OffsetCommitRequestPartition
    requested = [one(partition_index=0, committed_offset=index, committed_metadata="") for index in range(ENTRIES)]
    return OffsetCommitRequest(
        group_id="g", generation_id_or_member_epoch=-1, member_id="", topics=[topic(name="t", partitions=requested)]
    )


def offset_fetch() -> Any:
    requested = OffsetFetchRequest.OffsetFetchRequestTopic(name="t", partition_indexes=list(range(2 * ENTRIES)))
    return OffsetFetchRequest(group_id="g", topics=[requested])


def describe_groups() -> Any:
    return DescribeGroupsRequest(groups=[f"g{index}" for index in range(ENTRIES)])


LARGE = {
    "Metadata": (metadata, 9),
    "ListOffsets": (list_offsets, 6),
    "Fetch": (fetch, 12),
    "OffsetCommit": (offset_commit, 8),
    "OffsetFetch": (offset_fetch, 6),
    "DescribeGroups": (describe_groups, 5),
}


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Has one entry for each cooperative step."""
    begun: list[int] = []
    step = CooperativeScheduler.step

    async def counted(self: CooperativeScheduler) -> None:
        begun.append(len(begun))
        await step(self)

    monkeypatch.setattr(CooperativeScheduler, "step", counted)
    return begun


@pytest.mark.parametrize("name", LARGE)
async def test_large_request_is_handled_in_steps_and_others_in_between(
    name: str, steps: list[int], tmp_path: Path
) -> None:
    make, version = LARGE[name]
    async with running(tmp_path / "data") as broker:
        await broker.topic("t")
        large, small = await broker.client(), await broker.client()
        sent = frame(make(), version, 1)
        under_way = asyncio.ensure_future(large.receive_bytes())
        await large.send_bytes(sent)
        while not steps:
            await asyncio.sleep(0)
        await small.call(ApiVersionsRequest(), 0)
        assert not under_way.done()
        payload = await under_way
        # It is read, handled and encoded in steps of their sizes.
        assert len(steps) >= ENTRIES // STEP_ITEMS + ENTRIES // STEP_ENTRIES + ENTRIES // STEP_ITEMS - 3
        assert struct.unpack_from(">i", payload) == (1,) and len(payload) >= 4 * ENTRIES
        assert (await large.call(ping(), 0)).error_code == 0


@pytest.mark.parametrize("name", LARGE)
async def test_large_request_has_the_results_of_many_small_ones(name: str, tmp_path: Path) -> None:
    """Each entry has the same result as in a small request."""
    make, version = LARGE[name]
    async with running(tmp_path / "data") as broker:
        await broker.topic("t", 2)
        client = await broker.client()
        request = make()
        whole = await client.call(request, version)
        entries = _entries(whole)
        assert len(entries) == len(_entries(request))
        few = make()
        _cut(few, 3)
        # All except the duplicates of OffsetCommit name a partition once.
        assert entries[:3] == _entries(await client.call(few, version))[:3]


def _entries(message: Any) -> list[Any]:
    """The longest list in a message."""
    lists = [getattr(message, name) for name in message._fields if isinstance(getattr(message, name), list)]
    below = [found for items in lists for item in items[:1] if hasattr(item, "_fields") for found in [_entries(item)]]
    return max([*lists, *below], key=len, default=[])


def _cut(message: Any, count: int) -> None:
    entries = _entries(message)
    del entries[count:]


async def test_request_with_more_items_than_its_size_allows_closes_the_connection(tmp_path: Path) -> None:
    async with running(tmp_path / "data") as broker:
        client, other = await broker.client(), await broker.client()
        size = 200_000
        count = request_items_max(size) + 1
        names = b"\x02a\x00" * count  # a topic of Metadata v9: a name of one letter, and no tags
        body = struct.pack(">hhih", 3, 9, 1, 0) + b"\0" + _varint(count + 1) + names + b"\0\0\0\0"
        assert len(body) < size
        await client.send_bytes(struct.pack(">i", len(body)) + body)
        with pytest.raises(Closed):
            await client.receive_bytes()
        assert (await other.call(ping(), 0)).error_code == 0


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


async def test_malformed_large_request_closes_the_connection(tmp_path: Path) -> None:
    async with running(tmp_path / "data") as broker:
        client = await broker.client()
        whole = frame(metadata(), 9, 1)[4:-300]
        await client.send_bytes(struct.pack(">i", len(whole)) + whole)
        with pytest.raises(Closed):
            await client.receive_bytes()


async def test_configs_of_equal_resources_are_built_once(tmp_path: Path) -> None:
    """As in Kafka a resource is described as often as it is named, but from one list of configs."""
    times = 600
    async with running(tmp_path / "data") as broker:
        await broker.topic("t")
        await broker.topic("u")
        client = await broker.client()
        built: list[Shared] = []

        def request(names: list[str]) -> DescribeConfigsRequest:
            resource = DescribeConfigsRequest.DescribeConfigsResource
            resources = [resource(resource_type=TOPIC, resource_name=name, configuration_keys=None) for name in names]
            return DescribeConfigsRequest(resources=resources, include_synonyms=True, include_documentation=True)

        (single,) = (await client.call(request(["t"]), 4)).results
        with pytest.MonkeyPatch.context() as patched:
            describe = sys.modules["ottla.broker.handlers.configs.describe_configs"]
            patched.setattr(describe, "Shared", lambda items: built.append(Shared(items)) or built[-1])
            results = (await client.call(request(["t", "u"] * (times // 2)), 4)).results
        assert [one.resource_name for one in results] == ["t", "u"] * (times // 2)
        assert all(one.configs == single.configs for one in results)
        assert len(built) == 1


def test_shared_items_are_built_once_and_repeated() -> None:
    result = DescribeConfigsResponse.DescribeConfigsResult
    entry = result.DescribeConfigsResourceResult
    configs = Shared(
        entry(name=f"name.{index}", value="x" * 20, read_only=False, config_source=1, is_sensitive=False)
        for index in range(100)
    )

    def response(configs: list[Any], version: int) -> DescribeConfigsResponse:
        one = result(error_code=0, error_message="", resource_type=2, resource_name="t", configs=configs)
        return DescribeConfigsResponse(results=[one] * 50)

    for version in (1, 4):
        configs.built = b""
        pieces = run(build_steps(response(configs, version), version))
        assert b"".join(pieces) == build(response(list(configs), version), version)
        assert len({id(piece) for piece in pieces if len(piece) > 2000}) == 1


async def test_topic_created_in_steps_appears_when_it_is_complete(steps: list[int], tmp_path: Path) -> None:
    count = 20 * STEP_PARTITIONS
    async with running(tmp_path / "data") as broker:
        client, other = await broker.client(), await broker.client()
        creating = asyncio.ensure_future(client.call(create_topics("wide", partitions=count), 5))
        while len(steps) < 3:
            await asyncio.sleep(0)
        listed = await other.call(MetadataRequest(topics=None), 9)
        assert not creating.done() and listed.topics == []
        # A second request for the same name waits, and finds the topic.
        again = asyncio.ensure_future(other.call(create_topics("wide"), 5))
        assert (await creating).topics[0].error_code == 0
        assert (await again).topics[0].error_code == ErrorCode.TOPIC_ALREADY_EXISTS
        assert len(broker.state.topics.named("wide").partitions) == count
        assert len(steps) >= count // STEP_PARTITIONS - 1


async def test_partitions_are_placed_in_steps(steps: list[int], tmp_path: Path) -> None:
    count = 3 * PLACED_AT_ONCE
    async with running(tmp_path / "data") as broker:
        client = await broker.client()
        end = broker.state.metadata_log.end_offset
        creating = asyncio.ensure_future(client.call(create_topics("wide", partitions=count), 5))
        while broker.state.metadata_log.end_offset == end:
            await asyncio.sleep(0)
        assert len(steps) >= count // PLACED_AT_ONCE + count // WRITTEN_AT_ONCE
        await creating


async def test_topic_is_created_and_deleted_after_its_client_disconnected(steps: list[int], tmp_path: Path) -> None:
    count = 10 * STEP_PARTITIONS
    async with running(tmp_path / "data") as broker:
        client, other = await broker.client(), await broker.client()
        await client.send(create_topics("wide", partitions=count), 5)
        while len(steps) < 2:
            await asyncio.sleep(0)
        client.close()
        await broker.state.settle()
        assert len(broker.state.topics.named("wide").partitions) == count
        client = await broker.client()
        begun = len(steps)
        await client.send(DeleteTopicsRequest(topic_names=["wide"], timeout_ms=1000), 5)
        while len(steps) < begun + 2:
            await asyncio.sleep(0)
        client.close()
        # The name is free for another topic once the folders of the first are deleted.
        assert (await other.call(create_topics("wide", partitions=2), 5)).topics[0].error_code == 0
        assert len(broker.state.topics.named("wide").partitions) == 2


async def test_broker_stop_completes_a_topic_created_in_steps(steps: list[int], tmp_path: Path) -> None:
    count = 10 * STEP_PARTITIONS
    async with running(tmp_path / "data") as broker:
        client = await broker.client()
        await client.send(create_topics("wide", partitions=count), 5)
        while len(steps) < 2:
            await asyncio.sleep(0)
    async with running(tmp_path / "data") as broker:
        assert [p.index for p in broker.state.topics.named("wide").partitions] == list(range(count))


async def test_added_partitions_of_a_request_are_bounded(tmp_path: Path) -> None:
    async with running(tmp_path / "data") as broker:
        await broker.topic("a")
        await broker.topic("b")
        client = await broker.client()
        topic = CreatePartitionsRequest.CreatePartitionsTopic
        requested = [topic(name=name, count=6000, assignments=None) for name in ("a", "b")]
        results = (
            await client.call(CreatePartitionsRequest(topics=requested, timeout_ms=1, validate_only=True), 2)
        ).results
        assert [one.error_code for one in results] == [ErrorCode.POLICY_VIOLATION] * 2  # as in Kafka 4.4


async def test_auto_created_partitions_of_a_request_are_bounded(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(sys.modules["ottla.broker.handlers.topics.metadata"], "CREATED_MAX", 6)
    async with running(tmp_path / "data", overrides={"num.partitions": "3"}) as broker:
        client = await broker.client()
        requested = [MetadataRequest.MetadataRequestTopic(name=name) for name in ("a", "b", "c")]
        response = await client.call(MetadataRequest(topics=requested, allow_auto_topic_creation=True), 9)
        assert [one.error_code for one in response.topics] == [0, 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        assert len(broker.state.topics) == 2
        # The client retries.
        response = await client.call(MetadataRequest(topics=requested, allow_auto_topic_creation=True), 9)
        assert [one.error_code for one in response.topics] == [0, 0, 0]


async def test_incremental_fetch_of_a_large_session_is_read_in_steps(steps: list[int], tmp_path: Path) -> None:
    async with running(tmp_path / "data") as broker:
        await broker.topic("t")
        client = await broker.client()
        made = await client.call(fetch(), 12)
        assert made.session_id and len(made.responses[0].partitions) == ENTRIES
        begun = len(steps)
        small = FetchRequest(
            max_wait_ms=0, min_bytes=0, session_id=made.session_id, session_epoch=1, topics=[], forgotten_topics_data=[]
        )
        response = await client.call(small, 12)
        assert response.error_code == 0 and response.session_id == made.session_id
        assert len(steps) - begun >= ENTRIES // STEP_ENTRIES
        again = FetchRequest(
            max_wait_ms=0, min_bytes=0, session_id=made.session_id, session_epoch=1, topics=[], forgotten_topics_data=[]
        )
        assert (await client.call(again, 12)).error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH


async def test_commit_in_steps_ends_when_the_group_refuses_a_step() -> None:
    """Between two steps the member may be replaced: its later offsets must not overwrite those of the new one."""
    requested: list[int] = []
    verdicts = iter([ErrorCode.NONE, ErrorCode.ILLEGAL_GENERATION])

    class Groups:
        def commit(self, group_id: str, *, commits: Any, **more: Any) -> ErrorCode:
            requested.append(len(commits))
            return next(verdicts)

    class Context:
        groups = Groups()
        steps = 0

        async def step(self, entries: int) -> None:
            self.steps += entries > COMMITS_AT_ONCE

    commits = [(("t", index), CommittedOffset(index)) for index in range(3 * COMMITS_AT_ONCE)]
    context = Context()
    assert await commit(cast("Any", context), "g", commits=commits) is ErrorCode.ILLEGAL_GENERATION
    assert requested == [COMMITS_AT_ONCE, COMMITS_AT_ONCE] and context.steps == 2


async def test_steps_of_several_requests_alternate() -> None:
    loop = asyncio.get_running_loop()
    scheduler = CooperativeScheduler(loop)
    order: list[str] = []
    most = running_now = 0

    async def work(name: str) -> None:
        nonlocal most, running_now
        for _ in range(5):
            await scheduler.step()
            order.append(name)
            running_now += 1
            most = max(most, running_now)

    def look() -> None:
        nonlocal running_now
        running_now = 0
        if len(order) < 15:
            loop.call_soon(look)

    loop.call_soon(look)
    await asyncio.gather(*(work(name) for name in "abc"))
    assert order == list("abc") * 5
    assert most <= 2


def test_full_collections_pause_during_a_large_request() -> None:
    before = gc.get_threshold()
    one, other = FewerCollections(), FewerCollections()
    assert gc.get_threshold()[:2] == before[:2] and gc.get_threshold()[2] > 1 << 30
    del one
    assert gc.get_threshold()[2] > 1 << 30
    del other
    assert gc.get_threshold() == before


@pytest.mark.parametrize("goes", [False, True], ids=["with a response", "client gone"])
async def test_full_collections_resume_with_the_request_in_a_reference_cycle(
    goes: bool, steps: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FewerCollections, "__del__", lambda self: None, raising=True)
    before = gc.get_threshold()
    async with running(tmp_path / "data") as broker:
        client = await broker.client()
        responded = asyncio.create_task(client.call(metadata(), 9))
        while not steps:
            await asyncio.sleep(0)
        assert gc.get_threshold() != before
        if goes:
            responded.cancel()
            client.close()
        else:
            await responded
        await (await broker.client()).call(ping(), 0)
        assert gc.get_threshold() == before


async def test_full_collections_resume_after_clients_disconnected(steps: list[int], tmp_path: Path) -> None:
    before = gc.get_threshold()
    async with running(tmp_path / "data") as broker:
        client = await broker.client()
        await client.send_bytes(frame(metadata(), 9, 1))
        while not steps:
            await asyncio.sleep(0)
        assert gc.get_threshold() != before
        client.close()
        other = await broker.client()
        await other.call(ping(), 0)
        for _ in range(100):
            await asyncio.sleep(0)
        assert gc.get_threshold() == before


@pytest.mark.parametrize(
    ("request_", "version", "passes"),
    [
        (lambda: AlterClientQuotasRequest(entries=[QUOTA] * ENTRIES, validate_only=True), 1, 1),
        (lambda: UpdateFeaturesRequest(timeout_ms=1, feature_updates=[UPDATE] * ENTRIES), 1, 1),
        (lambda: AddPartitionsToTxnRequest(transactions=[TRANSACTION] * ENTRIES), 5, 2),
    ],
    ids=["AlterClientQuotas", "UpdateFeatures", "AddPartitionsToTxn"],
)
async def test_alteration_of_many_entities_is_handled_in_steps(
    request_: Callable[[], Any], version: int, passes: int, steps: list[int], tmp_path: Path
) -> None:
    async with running(tmp_path / "data") as broker:
        client = await broker.client()
        await client.call(request_(), version)
        assert len(steps) >= passes * (ENTRIES // STEP_ITEMS + ENTRIES // STEP_ENTRIES) - 3


CHANGES = 4_000


def _scram() -> Any:
    upsertion = AlterUserScramCredentialsRequest.ScramCredentialUpsertion
    requested = [
        upsertion(name=f"u{index}", mechanism=1, iterations=4096, salt=bytes(8), salted_password=bytes(32))
        for index in range(CHANGES)
    ]
    return AlterUserScramCredentialsRequest(deletions=[], upsertions=requested)


def _quotas() -> Any:
    return altering(*(entry({"user": f"u{index}"}, {"producer_byte_rate": 1.0}) for index in range(CHANGES)))


def _acls() -> Any:
    creation = CreateAclsRequest.AclCreation
    return CreateAclsRequest(
        creations=[
            creation(
                **{"resource_type": 2, "resource_name": f"t{index}", "resource_pattern_type": 3, "principal": "User:a"},
                **{"host": "*", "operation": 3, "permission_type": 3},
            )
            for index in range(CHANGES)
        ]
    )


def _no_acls() -> Any:
    every = DeleteAclsRequest.DeleteAclsFilter(
        **{"resource_type_filter": 1, "resource_name_filter": None, "pattern_type_filter": 1, "principal_filter": None},
        **{"host_filter": None, "operation": 1, "permission_type": 1},
    )
    return DeleteAclsRequest(filters=[every])


async def test_many_metadata_records_are_written_in_steps(steps: list[int], tmp_path: Path) -> None:
    """They are written as one batch, in the last step."""
    async with running(tmp_path / "data", overrides=AUTHORIZER) as broker:
        client, other = await broker.client(), await broker.client()
        for request, version in ((_scram(), 0), (_quotas(), 1), (_acls(), 3), (_no_acls(), 3)):
            end, before = broker.state.metadata_log.end_offset, len(steps)
            pending = asyncio.ensure_future(client.call(request, version))
            while len(steps) < before + 3:
                await asyncio.sleep(0)
            assert broker.state.metadata_log.end_offset == end and not pending.done()
            assert (await other.call(ping(), 0)).error_code == 0
            await pending
            assert broker.state.metadata_log.end_offset == end + CHANGES
            assert len(steps) >= before + CHANGES // WRITTEN_AT_ONCE, type(request).__name__
