"""Records of Apache Kafka's `__cluster_metadata` that Ottla neither writes nor acts on, and the control records of its
quorum.

Owns their declarations, so that the metadata log of an Apache Kafka cluster can be decoded. As of 4.4.0; a test
compares them with Apache's definitions. The records that Ottla uses are in
`ottla.protocol.internal_records.metadata_records`.
"""

from __future__ import annotations

from ...protocol.primitives import ZERO_UUID, Bool, Int8, Int16, Int32, Int64, Text, UInt16, Uuid
from ...protocol.schema import field, group, message


@group
class Endpoint:
    name: Text
    host: Text
    port: UInt16
    security_protocol: Int16


@group
class Feature:
    name: Text
    min_supported_version: Int16
    max_supported_version: Int16


@message(api_key=0, versions="0-4", flexible="0+")
class RegisterBrokerRecord:
    """A broker registered. v1 adds controlled shutdown, v2 ZooKeeper migration, v3 log directories, v4 cordoned."""

    broker_id: Int32
    is_migrating_zk_broker: Bool = field("2+", default=False)
    incarnation_id: Uuid
    broker_epoch: Int64
    end_points: list[Endpoint]
    features: list[Feature]
    rack: Text | None
    fenced: Bool = True
    in_controlled_shutdown: Bool = field("1+", default=False)
    log_dirs: list[Uuid] = field("3+", default=list, tag=0)
    cordoned_log_dirs: list[Uuid] | None = field("4+", default=None, tag=1)


@message(api_key=1, versions="0", flexible="0+")
class UnregisterBrokerRecord:
    """A broker was removed from the cluster."""

    broker_id: Int32
    broker_epoch: Int64


@message(api_key=7, versions="0", flexible="0+")
class FenceBrokerRecord:
    """A broker was fenced; replaced by BrokerRegistrationChangeRecord."""

    id: Int32
    epoch: Int64


@message(api_key=8, versions="0", flexible="0+")
class UnfenceBrokerRecord:
    """A broker was unfenced; replaced by BrokerRegistrationChangeRecord."""

    id: Int32
    epoch: Int64


@message(api_key=17, versions="0-3", flexible="0+")
class BrokerRegistrationChangeRecord:
    """A broker registration changed; fields that are 0 or empty did not change."""

    broker_id: Int32
    broker_epoch: Int64
    fenced: Int8 = field(default=0, tag=0)
    in_controlled_shutdown: Int8 = field("1+", default=0, tag=1)
    log_dirs: list[Uuid] = field("2+", default=list, tag=2)
    cordoned_log_dirs: list[Uuid] | None = field("3+", default=None, tag=3)


@message(api_key=20, versions="0", flexible="0+")
class NoOpRecord:
    """Written periodically by an idle controller."""


@message(api_key=21, versions="0", flexible="0+")
class ZkMigrationStateRecord:
    """State of a migration from ZooKeeper."""

    zk_migration_state: Int8


@message(api_key=23, versions="0", flexible="0+")
class BeginTransactionRecord:
    """Start of a metadata transaction: its records apply together at its end (KIP-868)."""

    name: Text | None = field(default=None, tag=0)


@message(api_key=24, versions="0", flexible="0+")
class EndTransactionRecord:
    """End of a metadata transaction: its records apply."""


@message(api_key=25, versions="0", flexible="0+")
class AbortTransactionRecord:
    """Abort of a metadata transaction: its records are dropped."""

    reason: Text | None = field(default=None, tag=0)


@message(api_key=27, versions="0", flexible="0+")
class RegisterControllerRecord:
    """A controller registered."""

    controller_id: Int32
    incarnation_id: Uuid
    zk_migration_ready: Bool
    end_points: list[Endpoint]
    features: list[Feature]


@message(api_key=28, versions="0", flexible="0+")
class ClearElrRecord:
    """The eligible leader replicas of a topic, or of all topics, were cleared."""

    topic_name: Text


@message(api_key=29, versions="0", flexible="0+")
class UnregisterControllerRecord:
    """A controller was removed from the cluster."""

    controller_id: Int32


@message(api_key=2, versions="0-1", flexible="0+")
class LeaderChangeMessage:
    """Control record: the leader of a quorum epoch. v1 adds directory ids."""

    @group
    class Voter:
        voter_id: Int32
        voter_directory_id: Uuid = field("1+", default=ZERO_UUID)

    version: Int16
    leader_id: Int32
    voters: list[Voter]
    granting_voters: list[Voter]


@message(api_key=3, versions="0", flexible="0+")
class SnapshotHeaderRecord:
    """Control record: the first record of a snapshot."""

    version: Int16
    last_contained_log_timestamp: Int64


@message(api_key=4, versions="0", flexible="0+")
class SnapshotFooterRecord:
    """Control record: the last record of a snapshot."""

    version: Int16


@message(api_key=5, versions="0", flexible="0+")
class KRaftVersionRecord:
    """Control record: the version of the quorum protocol (KIP-853)."""

    version: Int16
    k_raft_version: Int16


@message(api_key=6, versions="0", flexible="0+")
class VotersRecord:
    """Control record: the voters of the quorum (KIP-853)."""

    @group
    class Voter:
        @group
        class Endpoint:
            name: Text
            host: Text
            port: UInt16

        @group
        class KRaftVersionFeature:
            min_supported_version: Int16
            max_supported_version: Int16

        voter_id: Int32
        voter_directory_id: Uuid
        endpoints: list[Endpoint]
        k_raft_version_feature: KRaftVersionFeature

    version: Int16
    voters: list[Voter]
