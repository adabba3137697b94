"""Byte for byte comparison with independent codecs: which codec covers which version, and where a codec is wrong."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import pytest

from ottla.protocol import schema
from ottla.protocol.compiler import build, parse
from ottla_testing.protocol.independent import CODECS, Codec, KafkaPython2, neutral
from ottla_testing.protocol.messages import MESSAGES
from ottla_testing.protocol.values import random_value

# The versions covered by kafka-python 3, by the hand-written classes that it still contains, and by 2.0.2.
COVERAGE = {
    "AddOffsetsToTxnRequest": ("0-4", "0-2", ""),
    "AddOffsetsToTxnResponse": ("0-4", "0-2", ""),
    "AddPartitionsToTxnRequest": ("0-5", "0-2", ""),
    "AddPartitionsToTxnResponse": ("0-5", "0-2", ""),
    "AddRaftVoterRequest": ("", "", ""),
    "AddRaftVoterResponse": ("", "", ""),
    "AlterClientQuotasRequest": ("0-1", "", ""),
    "AlterClientQuotasResponse": ("0-1", "", ""),
    "AlterConfigsRequest": ("0-2", "0-1", "0-1"),
    "AlterConfigsResponse": ("0-2", "0-1", "0-1"),
    "AlterPartitionReassignmentsRequest": ("0-1", "", ""),
    "AlterPartitionReassignmentsResponse": ("0-1", "", ""),
    "AlterReplicaLogDirsRequest": ("1-2", "", ""),
    "AlterReplicaLogDirsResponse": ("1-2", "", ""),
    "AlterShareGroupOffsetsRequest": ("", "", ""),
    "AlterShareGroupOffsetsResponse": ("", "", ""),
    "AlterUserScramCredentialsRequest": ("0", "", ""),
    "AlterUserScramCredentialsResponse": ("0", "", ""),
    "ApiVersionsRequest": ("0-4", "0-2", "0-2"),
    "ApiVersionsResponse": ("0-4", "0-2", "0-2"),
    "CreateAclsRequest": ("1-3", "0-1", "0-1"),
    "CreateAclsResponse": ("1-3", "0-1", "0-1"),
    "CreateDelegationTokenRequest": ("", "", ""),
    "CreateDelegationTokenResponse": ("", "", ""),
    "CreatePartitionsRequest": ("0-3", "", ""),
    "CreatePartitionsResponse": ("0-3", "0-1", "0-1"),
    "CreateTopicsRequest": ("2-7", "0-3", "0-3"),
    "CreateTopicsResponse": ("2-7", "0-3", "0-3"),
    "DeleteAclsRequest": ("1-3", "0-1", "0-1"),
    "DeleteAclsResponse": ("1-3", "0-1", "0-1"),
    "ConsumerGroupDescribeRequest": ("", "", ""),
    "ConsumerGroupDescribeResponse": ("", "", ""),
    "ConsumerGroupHeartbeatRequest": ("", "", ""),
    "ConsumerGroupHeartbeatResponse": ("", "", ""),
    "DeleteGroupsRequest": ("0-2", "0-1", "0-1"),
    "DeleteGroupsResponse": ("0-2", "0-1", "0-1"),
    "DeleteRecordsRequest": ("0-2", "0", ""),
    "DeleteRecordsResponse": ("0-2", "0", ""),
    "DeleteShareGroupOffsetsRequest": ("", "", ""),
    "DeleteShareGroupOffsetsResponse": ("", "", ""),
    "DeleteShareGroupStateRequest": ("", "", ""),
    "DeleteShareGroupStateResponse": ("", "", ""),
    "DeleteTopicsRequest": ("1-6", "0-3", "0-3"),
    "DeleteTopicsResponse": ("1-6", "0-3", "0-3"),
    "DescribeAclsRequest": ("1-3", "0-1", "0-1"),
    "DescribeAclsResponse": ("1-3", "0-1", "0-1"),
    "DescribeClientQuotasRequest": ("0-1", "0", ""),
    "DescribeClientQuotasResponse": ("0-1", "0", ""),
    "DescribeClusterRequest": ("0-2", "", ""),
    "DescribeClusterResponse": ("0-2", "", ""),
    "DescribeConfigsRequest": ("1-4", "0-2", "0-2"),
    "DescribeConfigsResponse": ("1-4", "0-2", "0,2"),
    "DescribeDelegationTokenRequest": ("", "", ""),
    "DescribeDelegationTokenResponse": ("", "", ""),
    "DescribeGroupsRequest": ("0-6", "0-3", "0-3"),
    "DescribeGroupsResponse": ("0-6", "0-2", "0-2"),
    "DescribeLogDirsRequest": ("1-5", "", ""),
    "DescribeLogDirsResponse": ("1-5", "0", ""),
    "DescribeProducersRequest": ("0", "", ""),
    "DescribeProducersResponse": ("0", "", ""),
    "DescribeQuorumRequest": ("0-2", "", ""),
    "DescribeQuorumResponse": ("0-2", "", ""),
    "DescribeShareGroupOffsetsRequest": ("", "", ""),
    "DescribeShareGroupOffsetsResponse": ("", "", ""),
    "DescribeTopicPartitionsRequest": ("0", "", ""),
    "DescribeTopicPartitionsResponse": ("0", "", ""),
    "DescribeTransactionsRequest": ("0", "", ""),
    "DescribeTransactionsResponse": ("0", "", ""),
    "DescribeUserScramCredentialsRequest": ("0", "", ""),
    "DescribeUserScramCredentialsResponse": ("0", "", ""),
    "ElectLeadersRequest": ("0-2", "0-1", ""),
    "ElectLeadersResponse": ("0-2", "0-1", ""),
    "EndTxnRequest": ("0-5", "0-2", ""),
    "EndTxnResponse": ("0-5", "0-2", ""),
    "ExpireDelegationTokenRequest": ("", "", ""),
    "ExpireDelegationTokenResponse": ("", "", ""),
    "FetchRequest": ("4-18", "0-11", "0-6"),
    "FetchResponse": ("4-18", "0-11", "0-11"),
    "FindCoordinatorRequest": ("0-6", "0-2", "0-1"),
    "FindCoordinatorResponse": ("0-6", "0-2", "0"),
    "GetTelemetrySubscriptionsRequest": ("", "", ""),
    "GetTelemetrySubscriptionsResponse": ("", "", ""),
    "HeartbeatRequest": ("0-4", "0-3", "0-1"),
    "HeartbeatResponse": ("0-4", "0-3", "0-1"),
    "IncrementalAlterConfigsRequest": ("0-1", "", ""),
    "IncrementalAlterConfigsResponse": ("0-1", "", ""),
    "InitProducerIdRequest": ("0-6", "0-1", ""),
    "InitProducerIdResponse": ("0-6", "0-1", ""),
    "InitializeShareGroupStateRequest": ("", "", ""),
    "InitializeShareGroupStateResponse": ("", "", ""),
    "JoinGroupRequest": ("0-9", "0-5", "0-2"),
    "JoinGroupResponse": ("0-9", "0-5", "0-2"),
    "LeaveGroupRequest": ("0-5", "0-3", "0-1"),
    "LeaveGroupResponse": ("0-5", "0-3", "0-1"),
    "ListConfigResourcesRequest": ("0-1", "", ""),
    "ListConfigResourcesResponse": ("0-1", "", ""),
    "ListGroupsRequest": ("0-5", "0-2", "0-2"),
    "ListGroupsResponse": ("0-5", "0-2", "0-2"),
    "ListOffsetsRequest": ("1-11", "0-5", "0-3"),
    "ListOffsetsResponse": ("1-11", "0-5", "0-5"),
    "ListPartitionReassignmentsRequest": ("0", "", ""),
    "ListPartitionReassignmentsResponse": ("0", "", ""),
    "ListTransactionsRequest": ("0-2", "", ""),
    "ListTransactionsResponse": ("0-2", "", ""),
    "MetadataRequest": ("0-13", "0-8", "0-5"),
    "MetadataResponse": ("0-13", "0-7", "0-5"),
    "OffsetCommitRequest": ("2-10", "0-7", "0-3"),
    "OffsetCommitResponse": ("2-10", "0-7", "0-3"),
    "OffsetDeleteRequest": ("0", "", ""),
    "OffsetDeleteResponse": ("0", "", ""),
    "OffsetFetchRequest": ("1-10", "0-5", "0-3"),
    "OffsetFetchResponse": ("1-10", "0-5", "0-3"),
    "OffsetForLeaderEpochRequest": ("2-4", "0-3", ""),
    "OffsetForLeaderEpochResponse": ("2-4", "0-3", ""),
    "ProduceRequest": ("3-13", "0-8", "0-8"),
    "ProduceResponse": ("3-13", "0-8", "0-7"),
    "PushTelemetryRequest": ("", "", ""),
    "PushTelemetryResponse": ("", "", ""),
    "ReadShareGroupStateRequest": ("", "", ""),
    "ReadShareGroupStateResponse": ("", "", ""),
    "ReadShareGroupStateSummaryRequest": ("", "", ""),
    "ReadShareGroupStateSummaryResponse": ("", "", ""),
    "RemoveRaftVoterRequest": ("", "", ""),
    "RemoveRaftVoterResponse": ("", "", ""),
    "RenewDelegationTokenRequest": ("", "", ""),
    "RenewDelegationTokenResponse": ("", "", ""),
    "SaslAuthenticateRequest": ("0-2", "0-1", "0-1"),
    "SaslAuthenticateResponse": ("0-2", "0-1", "0-1"),
    "SaslHandshakeRequest": ("0-1", "0-1", "0-1"),
    "SaslHandshakeResponse": ("0-1", "0-1", "0-1"),
    "ShareAcknowledgeRequest": ("", "", ""),
    "ShareAcknowledgeResponse": ("", "", ""),
    "ShareFetchRequest": ("", "", ""),
    "ShareFetchResponse": ("", "", ""),
    "ShareGroupDescribeRequest": ("", "", ""),
    "ShareGroupDescribeResponse": ("", "", ""),
    "ShareGroupHeartbeatRequest": ("", "", ""),
    "ShareGroupHeartbeatResponse": ("", "", ""),
    "StreamsGroupDescribeRequest": ("", "", ""),
    "StreamsGroupDescribeResponse": ("", "", ""),
    "StreamsGroupHeartbeatRequest": ("", "", ""),
    "StreamsGroupHeartbeatResponse": ("", "", ""),
    "StreamsGroupTopologyDescriptionUpdateRequest": ("", "", ""),
    "StreamsGroupTopologyDescriptionUpdateResponse": ("", "", ""),
    "SyncGroupRequest": ("0-5", "0-3", "0-1"),
    "SyncGroupResponse": ("0-5", "0-3", "0-1"),
    "TxnOffsetCommitRequest": ("0-5", "0-2", ""),
    "TxnOffsetCommitResponse": ("0-5", "0-2", ""),
    "UnregisterBrokerRequest": ("", "", ""),
    "UnregisterBrokerResponse": ("", "", ""),
    "UnregisterControllerRequest": ("", "", ""),
    "UnregisterControllerResponse": ("", "", ""),
    "UpdateFeaturesRequest": ("0-2", "", ""),
    "UpdateFeaturesResponse": ("0-2", "", ""),
    "WriteShareGroupStateRequest": ("", "", ""),
    "WriteShareGroupStateResponse": ("", "", ""),
    "WriteTxnMarkersRequest": ("1-2", "", ""),
    "WriteTxnMarkersResponse": ("1-2", "", ""),
}

# Versions that no independent codec covers, and the tests that cover them instead.
UNCOVERED = (
    {
        ("AlterReplicaLogDirsRequest", "0"): "kafka-python begins with v1, whose bytes are the same",
        ("AlterReplicaLogDirsResponse", "0"): "kafka-python begins with v1, whose bytes are the same",
        ("WriteTxnMarkersRequest", "0"): "kafka-python begins with v1; in `make interop` Apache's own class",
        ("WriteTxnMarkersResponse", "0"): "kafka-python begins with v1; in `make interop` Apache's own class",
        ("DescribeLogDirsRequest", "0"): "kafka-python's class is wrong (below); in `make interop` Apache's own class",
    }
    | {
        (api + kind, versions): "no client in Python speaks it; in `make interop` Apache's own class"
        for kind in ("Request", "Response")
        for api, versions in {
            "AddRaftVoter": "0-1",
            "AlterShareGroupOffsets": "0",
            "ConsumerGroupDescribe": "0-1",
            "ConsumerGroupHeartbeat": "0-1",
            "CreateDelegationToken": "0-3",
            "DeleteShareGroupOffsets": "0",
            "DeleteShareGroupState": "0",
            "DescribeDelegationToken": "0-3",
            "DescribeShareGroupOffsets": "0-1",
            "ExpireDelegationToken": "0-2",
            "GetTelemetrySubscriptions": "0",
            "InitializeShareGroupState": "0",
            "PushTelemetry": "0",
            "ReadShareGroupState": "0",
            "ReadShareGroupStateSummary": "0-1",
            "RemoveRaftVoter": "0",
            "RenewDelegationToken": "0-2",
            "ShareAcknowledge": "1-2",
            "ShareFetch": "1-2",
            "ShareGroupDescribe": "1",
            "ShareGroupHeartbeat": "1",
            "StreamsGroupDescribe": "0-1",
            "StreamsGroupHeartbeat": "0-1",
            "StreamsGroupTopologyDescriptionUpdate": "0",
            "UnregisterBroker": "0",
            "WriteShareGroupState": "0-1",
            "UnregisterController": "0",
        }.items()
    }
    | {
        (api + kind, versions): "Apache Kafka alone has it, from 4.4 on; in `make interop` Apache's own class"
        for kind in ("Request", "Response")
        for api, versions in {"ApiVersions": "5", "DeleteGroups": "3", "TxnOffsetCommit": "6"}.items()
    }
    | {
        (record, versions): "a record of Kafka's logs; no client has it; in `make interop` Apache's own class"
        for record, versions in {
            "ClientQuotaRecord": "0",
            "ConsumerGroupCurrentMemberAssignmentKey": "0",
            "ConsumerGroupCurrentMemberAssignmentValue": "0",
            "ConsumerGroupMemberMetadataKey": "0",
            "ConsumerGroupMemberMetadataValue": "0",
            "ConsumerGroupMetadataKey": "0",
            "ConsumerGroupMetadataValue": "0",
            "ConsumerGroupPartitionMetadataKey": "0",
            "ConsumerGroupPartitionMetadataValue": "0",
            "ConsumerGroupRegularExpressionKey": "0",
            "ConsumerGroupRegularExpressionValue": "0",
            "ConsumerGroupTargetAssignmentMemberKey": "0",
            "ConsumerGroupTargetAssignmentMemberValue": "0",
            "ConsumerGroupTargetAssignmentMetadataKey": "0",
            "ConsumerGroupTargetAssignmentMetadataValue": "0",
            "RemoveUserScramCredentialRecord": "0",
            "DelegationTokenRecord": "0",
            "RemoveDelegationTokenRecord": "0",
            "UserScramCredentialRecord": "0",
            "AccessControlEntryRecord": "0",
            "ConfigRecord": "0",
            "FeatureLevelRecord": "0",
            "GroupMetadataKey": "0",
            "GroupMetadataValue": "0-4",
            "OffsetCommitKey": "0",
            "OffsetCommitValue": "0-4",
            "PartitionRecord": "0-2",
            "PartitionChangeRecord": "0-2",
            "ProducerIdsRecord": "0",
            "RemoteLogSegmentMetadataRecord": "0",
            "RemoteLogSegmentMetadataUpdateRecord": "0",
            "RemoveAccessControlEntryRecord": "0",
            "RemoveTopicRecord": "0",
            "ShareGroupCurrentMemberAssignmentKey": "0",
            "ShareGroupCurrentMemberAssignmentValue": "0",
            "ShareGroupMemberMetadataKey": "0",
            "ShareGroupMemberMetadataValue": "0",
            "ShareGroupMetadataKey": "0",
            "ShareGroupMetadataValue": "0",
            "ShareGroupStatePartitionMetadataKey": "0",
            "ShareGroupStatePartitionMetadataValue": "0",
            "ShareGroupTargetAssignmentMemberKey": "0",
            "ShareGroupTargetAssignmentMemberValue": "0",
            "ShareGroupTargetAssignmentMetadataKey": "0",
            "ShareGroupTargetAssignmentMetadataValue": "0",
            "ShareSnapshotKey": "0",
            "ShareSnapshotValue": "0",
            "ShareUpdateKey": "0",
            "ShareUpdateValue": "0",
            "StreamsGroupCurrentMemberAssignmentKey": "0",
            "StreamsGroupCurrentMemberAssignmentValue": "0",
            "StreamsGroupMemberMetadataKey": "0",
            "StreamsGroupMemberMetadataValue": "0",
            "StreamsGroupMetadataKey": "0",
            "StreamsGroupMetadataValue": "0",
            "StreamsGroupTargetAssignmentMemberKey": "0",
            "StreamsGroupTargetAssignmentMemberValue": "0",
            "StreamsGroupTargetAssignmentMetadataKey": "0",
            "StreamsGroupTargetAssignmentMetadataValue": "0",
            "StreamsGroupTopologyKey": "0",
            "StreamsGroupTopologyValue": "0",
            "TopicRecord": "0",
            "TransactionLogKey": "0",
            "TransactionLogValue": "0-1",
        }.items()
    }
)

# Where a codec differs from Apache's definition (or from the neutral form), according to its source. Each is a version
# that another codec covers, except DescribeLogDirsRequest v0.
OLD, SECOND = "kafka-python 3, old", "2.0.2"
DEVIATIONS = {
    (OLD, "CreatePartitionsRequest", "0-1"): "same bytes, but count and assignments are a struct of their own",
    (OLD, "DescribeGroupsResponse", "3"): "same bytes, but authorized_operations is read as a set of bits",
    (OLD, "DescribeLogDirsRequest", "0"): "partitions is declared as one int32 instead of an array of int32",
    (OLD, "MetadataResponse", "8"): "same bytes, but both authorized_operations are read as sets of bits",
    (SECOND, "CreatePartitionsRequest", "0-1"): "same bytes, but count and assignments are a struct of their own",
    (SECOND, "DescribeConfigsResponse", "1"): "config_source (int8) is declared as the boolean is_default of v0",
    (SECOND, "DescribeGroupsResponse", "3"): "a bracket too early: authorized_operations falls out of the group",
    (SECOND, "FetchRequest", "7-11"): "forgotten topics' name is the class String, not an instance: cannot be coded",
    (SECOND, "FindCoordinatorResponse", "1"): "throttle_time_ms is missing",
    (SECOND, "ListOffsetsRequest", "4-5"): "current_leader_epoch is declared as int64 instead of int32",
    (SECOND, "ProduceResponse", "8"): "a bracket too early: record_errors and error_message fall out of the partition",
}


def versions_in(text: str) -> set[int]:
    """Returns the versions in `"0-2,5"`; none for `""`."""
    return {version for part in text.split(",") if part for version in schema.Versions.of(part).range()}


def deviating(codec: str, name: str) -> set[int]:
    return {v for at in DEVIATIONS if at[:2] == (codec, name) for v in versions_in(at[2])}


def usable(label: str, codec: Codec, name: str) -> set[int]:
    """Returns the versions that both sides have; the hand-written classes have no tagged fields, so no flexible
    versions."""
    declared = schema.spec(MESSAGES[name])
    both = codec.versions.get(name, set()) & set(declared.versions.range())
    return {v for v in both if not (codec.flat and v in declared.flexible)} - deviating(label, name)


@pytest.fixture(scope="module")
def codec() -> Iterator[Callable[[str], Codec]]:
    """Returns a codec by name; each is made once."""
    made: dict[str, Codec] = {}

    def get(label: str) -> Codec:
        if label not in made:
            made[label] = CODECS[label]()
        return made[label]

    yield get
    for one in made.values():
        if isinstance(one, KafkaPython2):
            one.close()


@pytest.mark.clients
def test_coverage_table_is_complete_and_correct(codec: Callable[[str], Codec]) -> None:
    assert set(COVERAGE) == {name for name in MESSAGES if not name.endswith(("Record", "Key", "Value"))}
    for name, row in COVERAGE.items():
        for label, text in zip(CODECS, row, strict=True):
            found = usable(label, codec(label), name)
            assert found == versions_in(text), f"{label} proves {sorted(found)} of {name}, the table has {text!r}"
    for name, cls in MESSAGES.items():
        proved = set().union(*(versions_in(text) for text in COVERAGE.get(name, ())))
        named = set().union(*(versions_in(versions) for one, versions in UNCOVERED if one == name))
        assert proved | named == set(schema.spec(cls).versions.range()), name
        assert not proved & named, name


# The codec of 2.0.2 runs in an environment of its own.
SECOND_ALONE = pytest.param(SECOND, marks=pytest.mark.clients)
LABELS = [SECOND_ALONE if label == SECOND else label for label in CODECS]


@pytest.mark.parametrize("label", LABELS)
def test_bytes_and_values_equal_an_independent_codecs(
    label: str, codec: Callable[[str], Codec], scaled: Callable[[int], int]
) -> None:
    other = codec(label)
    for name, version in [(one, version) for one in COVERAGE for version in sorted(usable(label, other, one))]:
        cls = MESSAGES[name]
        layout = schema.group_of(cls, version)
        source = random.Random(f"{name} {version}")
        for _ in range(scaled(6)):
            value = random_value(layout, source, extensions=False)
            raw = build(value, version)
            plain = neutral(layout, value, other.flat)
            assert other.read(name, version, raw) == (plain, raw), (name, version, raw.hex())
            written = other.write(name, version, plain)
            assert written == raw, (name, version, raw.hex(), written.hex())
            assert parse(cls, version, written) == value, (name, version)


@pytest.mark.parametrize("label", [OLD, SECOND_ALONE])
def test_listed_deviations_still_occur(label: str, codec: Callable[[str], Codec]) -> None:
    other = codec(label)
    for name, versions in [(name, versions) for one, name, versions in DEVIATIONS if one == label]:
        for version in sorted(versions_in(versions)):
            layout = schema.group_of(MESSAGES[name], version)
            source = random.Random(f"{name} {version}")
            assert any(deviates(other, name, version, layout, source) for _ in range(30)), (name, version)


def deviates(other: Codec, name: str, version: int, layout: schema.Group, source: random.Random) -> bool:
    value = random_value(layout, source, extensions=False)
    raw = build(value, version)
    try:
        return other.read(name, version, raw) != (neutral(layout, value, other.flat), raw)
    except Exception:  # any exception of another codec where it is wrong
        return True
