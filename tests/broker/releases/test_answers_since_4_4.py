"""What Kafka 4.4 does differently from 4.3, from the classes of both and from runs of 4.4.0."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.handlers.records.list_offsets import MAX_TIMESTAMP
from ottla.broker.security.acls import Acl
from ottla.protocol.messages.cluster.api_versions import ApiVersionsRequest
from ottla.protocol.messages.cluster.unregister_controller import UnregisterControllerRequest
from ottla.protocol.messages.configs.alter_client_quotas import AlterClientQuotasRequest
from ottla.protocol.messages.groups.delete_groups import DeleteGroupsRequest
from ottla.protocol.messages.records.list_offsets import ListOffsetsRequest
from ottla.protocol.messages.security.create_acls import CreateAclsRequest
from ottla.protocol.messages.topics.create_partitions import CreatePartitionsRequest
from ottla.protocol.records.compression import Codec
from ottla_testing.broker.configuring import GROUP, SET, TOPIC, change, shown
from ottla_testing.broker.harness import only, produce, records, running
from ottla_testing.broker.transacting import Owner
from ottla_testing.each import each

BOTH = ("4.3", "4.4")


# ---- ApiVersions v5 (KIP-1242)


async def test_api_versions_for_another_node_or_cluster_requires_a_bootstrap(tmp_path: Path) -> None:
    async with running(tmp_path / "data", brokers=2) as broker:
        cluster, client = broker.state.cluster_id, await broker.client(1)
        cases: list[tuple[str | None, int, int]] = [
            (None, -1, 0),
            (cluster, 2, 0),
            (cluster, 1, 129),
            ("another", 2, 129),
            (cluster, -1, 42),
            (None, 2, 42),
        ]
        for cluster_id, node_id, code in cases:
            request = ApiVersionsRequest(
                client_software_name="a", client_software_version="1", cluster_id=cluster_id, node_id=node_id
            )
            response = await client.call(request, 5)
            assert (response.error_code, bool(response.api_keys)) == (code, code == 0), (cluster_id, node_id)


# ---- TxnOffsetCommit v6 (KIP-1319), DeleteGroups v3


async def test_transactional_offsets_by_topic_id(tmp_path: Path) -> None:
    async with running(tmp_path / "data") as broker:
        topic_id = await broker.topic("t", 1)
        client = Owner(await broker.client())
        assert await client.init() == 0
        assert await client.commit_offset(5, version=6, partition=(topic_id, 0)) == 0
        assert await client.commit_offset(5, version=6, partition=(topic_id, 1)) == 3
        assert await client.commit_offset(5, version=6, partition=(bytes(range(16)), 0)) == 100
        assert await client.commit_offset(5, version=6, partition=(bytes(16), 0)) == 100
        member: dict[str, Any] = {"generation_id_or_member_epoch": 1, "member_id": "m"}
        unknown = await client.commit_offset(5, version=6, group="none", partition=(topic_id, 0), **member)
        assert unknown == 69
        assert await client.commit_offset(5, version=5, group="none", **member) == 22
        assert await client.end(True, version=5) == 0
        ((partition, committed),) = broker.state.groups.offsets("g").items()
        assert (partition, committed.offset) == (("t", 0), 5)


async def test_deleted_groups_have_no_error_message(tmp_path: Path) -> None:
    async with running(tmp_path / "data") as broker:
        client = await broker.client()
        (result,) = (await client.call(DeleteGroupsRequest(groups_names=["none"]), 3)).results
        assert (result.error_code, result.error_message) == (69, None)


# ---- CreatePartitions


@each("release", BOTH)
async def test_too_many_added_partitions_fail_the_request(release: str, tmp_path: Path) -> None:
    topic = CreatePartitionsRequest.CreatePartitionsTopic
    text = "Excessively large number of additional partitions per request."
    async with running(tmp_path / "data", release=release) as broker:
        await broker.topic("t", 1)
        await broker.topic("u", 1)
        client = await broker.client()
        requested = [topic(name=name, count=count, assignments=None) for name, count in (("t", 2), ("u", 10_001))]
        request = CreatePartitionsRequest(topics=requested, timeout_ms=1000, validate_only=False)
        found = [(one.name, one.error_code, one.error_message) for one in (await client.call(request, 3)).results]
        sizes = [len(broker.state.topics.named(name).partitions) for name in "tu"]
        if release == "4.4":
            assert (found, sizes) == ([("t", 44, text), ("u", 44, text)], [1, 1])
        else:
            assert ([code for _, code, _ in found], sizes) == ([0, 44], [2, 1])
        requested = [
            topic(name="t", count=sizes[0] + 1, assignments=None),
            topic(name="no", count=1 << 30, assignments=None),
        ]
        request = CreatePartitionsRequest(topics=requested, timeout_ms=1000, validate_only=True)
        assert [one.error_code for one in (await client.call(request, 3)).results] == [0, 3]


# ---- access control


def creation(host: str) -> CreateAclsRequest.AclCreation:
    return CreateAclsRequest.AclCreation(
        resource_type=2,
        resource_name="t",
        resource_pattern_type=3,
        principal="User:a",
        host=host,
        operation=3,
        permission_type=3,
    )


HOSTS = [
    ("", "Host pattern cannot be null or empty"),
    ("10.0.0.0/8", None),
    ("fe80::/10", None),
    ("[fe80::1%1]/10", None),
    ("nowhere", None),
    ("10.0.0/8", "Invalid CIDR notation '10.0.0/8': Could not parse [10.0.0/8]"),
    ("1.2.3.4/33", "Invalid CIDR notation '1.2.3.4/33': Value [33] not in range [0,32]"),
    ("1.2.3.400/3", "Invalid CIDR notation '1.2.3.400/3': Value [400] not in range [0,255]"),
    ("::1/x", "Invalid CIDR notation '::1/x': Could not parse [::1/x] - invalid prefix length"),
    ("::1/129", "Invalid CIDR notation '::1/129': Could not parse [::1/129] - prefix length must be between 0 and 128"),
    ("::x/9", "Invalid CIDR notation '::x/9': Could not parse [::x]"),
    (
        "::ffff:1.2.3.4/99",
        "Invalid CIDR notation '::ffff:1.2.3.4/99': Could not parse [::ffff:1.2.3.4] - not an IPv6 address",
    ),
]


@each("release", BOTH)
async def test_hosts_of_access_control_entries(release: str, tmp_path: Path) -> None:
    overrides = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    async with running(tmp_path / "data", release=release, overrides=overrides) as broker:
        client = await broker.client()
        requested = [creation(host) for host, _ in HOSTS]
        results = (await client.call(CreateAclsRequest(creations=requested), 3)).results
        for (host, text), result in zip(HOSTS, results, strict=True):
            expected = (42, text) if text is not None and release == "4.4" else (0, "")
            assert (result.error_code, result.error_message) == expected, host


@pytest.mark.parametrize(
    ("host", "address", "inside"),
    [
        ("127.0.0.0/8", "127.0.0.1", True),
        ("127.0.0.9/8", "127.0.0.1", True),
        ("10.0.0.0/8", "127.0.0.1", False),
        ("127.0.0.1/32", "127.0.0.1", True),
        ("0.0.0.0/0", "127.0.0.1", True),
        ("0.0.0.0/0", "0.0.0.0", False),
        ("::/0", "127.0.0.1", False),
        ("::/127", "::1", True),
        ("0:0:0:0:0:0:0:0/127", "::2", False),
        ("127.0.0.1/99", "127.0.0.1", False),
        ("0.0.0.0/0", "nonsense", False),
    ],
)
async def test_blocks_of_addresses_allow_and_deny(host: str, address: str, inside: bool, tmp_path: Path) -> None:
    overrides = {"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"}
    for release in BOTH:
        async with running(tmp_path / release / "data", release=release, overrides=overrides) as broker:
            authorizer, acls = broker.state.authorizer, broker.state.acls
            assert authorizer is not None
            acls.add([Acl(2, "t", 3, "User:a", host, 3, 3)], 0)
            expected = inside and release == "4.4"
            assert authorizer.allows("User:a", address, 3, 2, "t") is expected  # type: ignore[arg-type]
            assert authorizer.allows_any("User:a", address, 3, 2) is expected  # type: ignore[arg-type]
            acls.add([Acl(2, "t", 3, "User:a", "*", 3, 3), Acl(2, "t", 3, "User:a", host, 3, 2)], 0)
            assert authorizer.allows("User:a", address, 3, 2, "t") is not expected  # type: ignore[arg-type]


async def test_an_older_metadata_version_lacks_new_records(tmp_path: Path) -> None:
    overrides = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
        "ottla.features": "metadata.version=31",
    }
    async with running(tmp_path / "data", release="4.4", overrides=overrides) as broker:
        client = await broker.client()
        response = await client.call(UnregisterControllerRequest(controller_id=7), 0)
        text = "The current MetadataVersion is too old to support controller unregistration."
        assert (response.error_code, response.error_message) == (35, text)
        (result,) = (await client.call(CreateAclsRequest(creations=[creation("10.0.0.0/8")]), 3)).results
        text = "CIDR-based ACL host patterns require metadata version 4.4-IV1 or higher."
        assert (result.error_code, result.error_message) == (35, text)


# ---- quotas


@each("release", BOTH)
async def test_quotas_are_finite(release: str, tmp_path: Path) -> None:
    entry = AlterClientQuotasRequest.EntryData
    async with running(tmp_path / "data", release=release) as broker:
        client = await broker.client()
        for value in (math.inf, math.nan, -math.inf):
            op = entry.OpData(key="request_percentage", value=value, remove=False)
            one = entry(entity=[entry.EntityData(entity_type="user", entity_name="a")], ops=[op])
            request = AlterClientQuotasRequest(entries=[one], validate_only=True)
            (result,) = (await client.call(request, 1)).entries
            text = "must be a finite number" if release == "4.4" else "must be greater than 0"
            expected = (42, f"Quota request_percentage {text}") if release == "4.4" or value < 0 else (0, None)
            assert (result.error_code, result.error_message) == expected, value


# ---- group configs


RANGES = [
    (
        {"consumer.session.timeout.ms": "1"},
        "consumer.session.timeout.ms must be in the range 45000 to 60000 inclusive.",
    ),
    ({"streams.num.standby.replicas": "9"}, "streams.num.standby.replicas must be less than or equal to 2"),
    (
        {"streams.task.offset.interval.ms": "9"},
        "streams.task.offset.interval.ms must be greater than or equal to 15000",
    ),
    ({"streams.num.warmup.replicas": "99"}, "streams.num.warmup.replicas must be less than or equal to 20"),
    (
        {"streams.assignor.name": "x"},
        "streams.assignor.name 'x' is not a registered task assignor. Registered assignors are: [sticky].",
    ),
    (
        {"streams.rack.aware.assignment.tags": "a, a"},
        "streams.rack.aware.assignment.tags must not contain duplicate tag keys.",
    ),
    (
        {"errors.deadletterqueue.topic.name": "__x"},
        "errors.deadletterqueue.topic.name: DLQ topic name must not start with '__'",
    ),
    ({"streams.assignor.name": "sticky", "streams.rack.aware.assignment.tags": "a,b"}, None),
]


@each(("configs", "text"), RANGES)
async def test_group_configs_are_checked_against_limits(
    configs: dict[str, str], text: str | None, tmp_path: Path
) -> None:
    async with running(tmp_path / "data", release="4.4") as broker:
        client = await broker.client()
        changes = [(name, SET, value) for name, value in configs.items()]
        expected = (0, None) if text is None else (40, text)
        assert await change(client, GROUP, "g", *changes) == expected


async def test_only_the_group_configs_that_are_set_are_checked(tmp_path: Path) -> None:
    overrides = {"group.consumer.min.session.timeout.ms": "50000", "group.consumer.session.timeout.ms": "50000"}
    for release, code in zip(BOTH, (40, 0), strict=True):
        async with running(tmp_path / release / "data", release=release, overrides=overrides) as broker:
            client = await broker.client()
            found = await change(client, GROUP, "g", ("consumer.heartbeat.interval.ms", SET, "6000"))
            assert found[0] == code, (release, found)


async def test_internal_group_configs_are_described_if_set(tmp_path: Path) -> None:
    async with running(tmp_path / "data", release="4.4") as broker:
        client = await broker.client()
        name = "streams.num.warmup.replicas"
        before = await shown(client, GROUP, "g")
        assert name not in before and before["streams.assignor.name"][0] == "sticky"
        assert await change(client, GROUP, "g", (name, SET, "3")) == (0, None)
        assert (await shown(client, GROUP, "g"))[name][0] == "3"


# ---- max.decompressed.message.bytes


@each("codec", [Codec.GZIP, Codec.ZSTD, Codec.NONE])
async def test_records_of_compressed_batches_are_limited(codec: Codec, tmp_path: Path) -> None:
    """The limit is that of the bytes of a record after its size: 5 more than a short value without a key."""
    async with running(tmp_path / "data", release="4.4") as broker:
        client = await broker.client()
        configs = {"max.decompressed.message.bytes": "105"}
        await broker.topic("t", 1, configs=configs)
        for size, refused in ((100, True), (90, False)):
            data = records(b"a", bytes(size), codec=codec)
            result = only(await client.call(produce(data), 12))
            assert (result.error_code, result.error_message) == ((87, None) if refused and codec else (0, None))


@each("codec", [Codec.GZIP, Codec.NONE])
async def test_offsets_by_time_are_limited_too(codec: Codec, tmp_path: Path) -> None:
    """After the limit was lowered, batches that precede it cannot be searched."""
    async with running(tmp_path / "data", release="4.4") as broker:
        client = await broker.client()
        await broker.topic("t", 1)
        await client.call(produce(records(b"a", bytes(100), codec=codec)), 12)
        assert await change(client, TOPIC, "t", ("max.decompressed.message.bytes", SET, "105")) == (0, None)
        for timestamp in (0, MAX_TIMESTAMP):
            wanted = ListOffsetsRequest.ListOffsetsTopic.ListOffsetsPartition(partition_index=0, timestamp=timestamp)
            topic = ListOffsetsRequest.ListOffsetsTopic(name="t", partitions=[wanted])
            result = only(await client.call(ListOffsetsRequest(replica_id=-1, topics=[topic]), 10))
            assert (result.error_code, result.offset) == ((87, -1) if codec else (0, 0))
