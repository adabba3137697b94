"""Facts of Apache's JSON definitions of messages: names, types, versions, defaults and tags."""

from __future__ import annotations

APIS = [
    "Produce", "Fetch", "ListOffsets", "Metadata", "OffsetCommit", "OffsetFetch", "FindCoordinator",
    "JoinGroup", "Heartbeat", "LeaveGroup", "SyncGroup", "DescribeGroups", "ListGroups", "ApiVersions",
    "CreateTopics", "DeleteTopics", "DeleteRecords", "InitProducerId", "OffsetForLeaderEpoch",
    "DescribeConfigs", "AlterConfigs", "DescribeLogDirs", "CreatePartitions", "DeleteGroups",
    "IncrementalAlterConfigs", "OffsetDelete", "DescribeCluster", "DescribeProducers", "DescribeTopicPartitions",
    "AddPartitionsToTxn", "AddOffsetsToTxn", "EndTxn", "TxnOffsetCommit", "DescribeTransactions", "ListTransactions",
    "ListConfigResources", "WriteTxnMarkers",
    "AlterReplicaLogDirs", "ElectLeaders", "AlterPartitionReassignments", "ListPartitionReassignments",
    "DescribeClientQuotas", "AlterClientQuotas",
    "CreateDelegationToken", "RenewDelegationToken", "ExpireDelegationToken", "DescribeDelegationToken",
    "DescribeUserScramCredentials", "AlterUserScramCredentials", "DescribeQuorum", "UpdateFeatures", "UnregisterBroker",
    "GetTelemetrySubscriptions", "PushTelemetry", "AddRaftVoter", "RemoveRaftVoter", "UnregisterController",
    "SaslHandshake", "SaslAuthenticate",
    "DescribeAcls", "CreateAcls", "DeleteAcls", "ConsumerGroupHeartbeat", "ConsumerGroupDescribe",
    "ShareFetch", "ShareAcknowledge", "InitializeShareGroupState", "ReadShareGroupState", "WriteShareGroupState",
    "DeleteShareGroupState", "ReadShareGroupStateSummary", "ShareGroupHeartbeat", "ShareGroupDescribe",
    "DescribeShareGroupOffsets", "AlterShareGroupOffsets", "DeleteShareGroupOffsets",
    "StreamsGroupHeartbeat", "StreamsGroupDescribe", "StreamsGroupTopologyDescriptionUpdate",
]  # fmt: skip
RECORDS = [
    "ConsumerGroupMetadataKey", "ConsumerGroupMetadataValue", "ConsumerGroupPartitionMetadataKey",
    "ConsumerGroupPartitionMetadataValue", "ConsumerGroupMemberMetadataKey", "ConsumerGroupMemberMetadataValue",
    "ConsumerGroupTargetAssignmentMetadataKey", "ConsumerGroupTargetAssignmentMetadataValue",
    "ConsumerGroupTargetAssignmentMemberKey", "ConsumerGroupTargetAssignmentMemberValue",
    "ConsumerGroupCurrentMemberAssignmentKey", "ConsumerGroupCurrentMemberAssignmentValue",
    "ConsumerGroupRegularExpressionKey", "ConsumerGroupRegularExpressionValue",
    "OffsetCommitKey", "OffsetCommitValue", "GroupMetadataKey", "GroupMetadataValue", "TopicRecord",
    "PartitionRecord", "PartitionChangeRecord", "ConfigRecord", "RemoveTopicRecord", "ProducerIdsRecord",
    "FeatureLevelRecord", "ClientQuotaRecord", "UserScramCredentialRecord", "RemoveUserScramCredentialRecord",
    "DelegationTokenRecord", "RemoveDelegationTokenRecord",
    "TransactionLogKey", "TransactionLogValue", "AccessControlEntryRecord", "RemoveAccessControlEntryRecord",
    "ShareSnapshotKey", "ShareSnapshotValue", "ShareUpdateKey", "ShareUpdateValue",
    "ShareGroupMemberMetadataKey", "ShareGroupMemberMetadataValue",
    "ShareGroupMetadataKey", "ShareGroupMetadataValue",
    "ShareGroupTargetAssignmentMetadataKey", "ShareGroupTargetAssignmentMetadataValue",
    "ShareGroupTargetAssignmentMemberKey", "ShareGroupTargetAssignmentMemberValue",
    "ShareGroupCurrentMemberAssignmentKey", "ShareGroupCurrentMemberAssignmentValue",
    "ShareGroupStatePartitionMetadataKey", "ShareGroupStatePartitionMetadataValue",
    "StreamsGroupMetadataKey", "StreamsGroupMetadataValue",
    "StreamsGroupMemberMetadataKey", "StreamsGroupMemberMetadataValue",
    "StreamsGroupTargetAssignmentMetadataKey", "StreamsGroupTargetAssignmentMetadataValue",
    "StreamsGroupTargetAssignmentMemberKey", "StreamsGroupTargetAssignmentMemberValue",
    "StreamsGroupCurrentMemberAssignmentKey", "StreamsGroupCurrentMemberAssignmentValue",
    "StreamsGroupTopologyKey", "StreamsGroupTopologyValue",
    "RemoteLogSegmentMetadataRecord", "RemoteLogSegmentMetadataUpdateRecord",
]  # fmt: skip
KRAFT_RECORDS = [
    "AbortTransactionRecord", "BeginTransactionRecord", "BrokerRegistrationChangeRecord", "ClearElrRecord",
    "EndTransactionRecord", "FenceBrokerRecord", "KRaftVersionRecord", "LeaderChangeMessage",
    "NoOpRecord", "RegisterBrokerRecord", "RegisterControllerRecord", "SnapshotFooterRecord",
    "SnapshotHeaderRecord", "UnfenceBrokerRecord", "UnregisterBrokerRecord",
    "UnregisterControllerRecord", "VotersRecord", "ZkMigrationStateRecord",
]  # fmt: skip
"""Records of the metadata log that Ottla reads and does not write."""


def facts(fields: list[dict], structs: dict[str, list[dict]]) -> list[dict]:
    out = []
    for declared in fields:
        # The versions are left out if it was never an untagged field.
        field: dict = {"versions": declared.get("taggedVersions")} | declared
        kind = field["type"].removeprefix("[]")
        inner = field.get("fields") or structs.get(kind)
        fact = {key: field[key] for key in ("name", "type", "versions", "default", "tag") if key in field}
        if field.get("nullableVersions", "none") != "none":
            fact["nullable"] = field["nullableVersions"]
        if "taggedVersions" in field:
            fact["tagged"] = field["taggedVersions"]
        if str(field.get("ignorable", "false")).lower() == "true":
            fact["ignorable"] = True
        if inner is not None:
            fact["fields"] = facts(inner, structs)
        out.append(fact)
    return out


def structs_of(fields: list[dict]) -> dict[str, list[dict]]:
    """Returns the structs that are declared inside one field and used by name in another."""
    found: dict[str, list[dict]] = {}
    for field in fields:
        if field.get("fields"):
            found.setdefault(field["type"].removeprefix("[]"), field["fields"])
            found |= structs_of(field["fields"])
    return found


def definition(source: dict) -> dict:
    fields = source.get("fields", [])
    structs = structs_of(fields) | {s["name"]: s["fields"] for s in source.get("commonStructs", [])}
    return {
        "key": source.get("apiKey"),
        "versions": source["validVersions"],
        "flexible": source.get("flexibleVersions", "none"),
        "unstable": source.get("latestVersionUnstable", False),
        "fields": facts(fields, structs),
    }
