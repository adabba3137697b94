"""Behaviours: differences between Kafka releases other than API versions and configs, and the releases that changed
them.

Owns the declarations and their values by release; `profiles.py` creates profiles from them. Each behaviour can be set
individually with `--override ottla.behaviour.<name>=<value>`. docs/reference/behaviours.md has the table, generated
from the sentences below.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from ...protocol.frozen import frozen

# Verdicts on a producer's batch where releases differ; the names of storage's `ProducerRules` verdicts.
ProducerVerdict = Literal["accept", "unknown", "out_of_order", "duplicate_sequence"]


@frozen
class Behaviour:
    """The behaviours of a profile. The defaults are those of Ottla's own profile."""

    unknown_producer: ProducerVerdict = "unknown"
    """Verdict on a batch that does not begin with sequence 0 if there is no state of its producer."""
    marker_only: ProducerVerdict = "out_of_order"
    """Verdict on a batch that does not begin with sequence 0 if the producer's state has its epoch but none of its
    batches.
    """
    below_cache: ProducerVerdict = "duplicate_sequence"
    """Verdict on a batch whose records were all written before those in the cached batches."""
    inside_cache: ProducerVerdict = "out_of_order"
    """Verdict on a batch whose records were all written before, some of them in cached batches, if it duplicates none
    of these.
    """
    cached_batches: int = 5
    """The number of batches of a producer that its state caches."""
    drop_below_log_start: bool = False
    """The state of a producer is removed when its last offset falls below the log start offset."""
    unknown_below_log_start: bool = True
    """A producer whose last offset is below the log start offset gets UNKNOWN_PRODUCER_ID, if its client compares the
    log start offset in the response with the last acknowledged offset (KIP-192).
    """

    invalid_record_code: Literal[2, 87] = 87
    """The error for a malformed batch: CORRUPT_MESSAGE (2), on which clients retry, or INVALID_RECORD (87), on which
    they do not.
    """
    wrong_batches: Literal["close", "corrupt", "invalid"] = "invalid"
    """The reaction to Produce v3 and later with anything but one v2 batch: the connection closes, or error 2, or error
    87.
    """
    unreadable_batches: Literal["partition", "close", "first", "any"] = "first"
    """What fails because of a malformed batch: its partition (`partition`), the connection if it is a partition's first
    batch (`close`), the whole request if it is a partition's first batch (`first`), or the whole request in any case,
    also for a batch that ends before its producer id (`any`).
    """
    record_errors: Literal["none", "first", "all"] = "all"
    """The refused records that an error response lists: none, the first, or all."""
    counted_record_errors: bool = True
    """The error message for refused records has their number and shows the first three."""
    refuse_unnumbered: bool = False
    """A compressed batch whose offsets are not 0, 1, 2, ... is refused, instead of being rebuilt."""
    unnumbered_fail: bool = True
    """A compressed v2 batch whose offsets are not 0, 1, 2, ... fails with UNKNOWN_SERVER_ERROR if its codec is kept."""
    one_magic: bool = True
    """A message set with several compressed wrappers, or with several formats, is refused, instead of being merged."""
    append_time_bit_allowed: bool = True
    """A batch with the log append time bit set by its client is accepted in a topic with create time."""
    timestamp_range: Literal["difference", "both", "before_after"] = "both"
    """The configs that limit a record's timestamp: message.timestamp.difference.max.ms, message.timestamp.before.max.ms
    and message.timestamp.after.max.ms, or both.
    """
    old_formats: bool = True
    """Producers may send message sets of formats v0 and v1."""
    newest_magic: Literal[0, 1, 2] = 2
    """The newest message format of the release."""

    down_conversion: Literal["scan", "always", "none"] = "always"
    """Down-conversion for Fetch v0 to v3: only if the records have a newer format (`scan`), always, or never."""
    nothing_left: Literal["original", "overflow"] = "overflow"
    """The response if down-conversion leaves no record: the unconverted bytes, or the header of a message that is too
    large.
    """
    sends_cut: bool = True
    """Fetch v0 to v2 with a limit below the size of the first batch returns a truncated batch, from which the client
    learns that the limit is too low, instead of nothing.
    """
    zstd_topic_needs_fetch_10: bool = False
    """Fetch before v10 from a topic with compression.type=zstd fails with UNSUPPORTED_COMPRESSION_TYPE."""
    v2_from_ibp_3: bool = True
    """With inter.broker.protocol.version 3.0 or later, v2 is written regardless of message.format.version."""

    cleaner_keeps_old_formats: bool = False
    """The log cleaner keeps formats v0 and v1, instead of writing v2 (KIP-724)."""
    delete_horizon: bool = True
    """The log cleaner counts delete.retention.ms from its first pass over a tombstone, stored in the batch
    (KIP-534).
    """
    cleaner_keeps_last_batch: Literal["none", "cleaned", "high_watermark"] = "high_watermark"
    """The batch whose header the log cleaner keeps without records: none, the last one that it cleaned, or the one that
    ends at the high watermark.
    """

    eligible_leaders: bool = False
    """A new cluster has eligible.leader.replicas.version 1: partitions with fewer replicas in sync than
    min.insync.replicas have eligible leader replicas, and their ISR may be empty (KIP-966).
    """

    transaction_version: Literal[0, 1, 2] = 2
    """The finalized level of transaction.version: 1 writes the transaction records of KIP-915, 2 gives every
    transaction its own epoch and adds partitions when they are written to (KIP-890).
    """
    shrinks_deliveries: bool = True
    """Records that were delivered several times to a share group are delivered in smaller parts, on the last attempt
    one by one.
    """
    verifies_transactions: bool = True
    """A write starts a transaction in a partition only if the coordinator's transaction includes the partition
    (KIP-890).
    """
    own_epoch_begins_at_0: bool = True
    """With transaction.version 2, a transaction of a producer without cached batches must begin with sequence 0."""
    verifies_offsets: bool = True
    """A transactional offset commit is accepted only if the coordinator's transaction includes the group (KIP-890,
    KAFKA-15449).
    """
    absent_group_code: Literal[22, 25] = 22
    """The error for a transactional offset commit of a member to an unknown group: ILLEGAL_GENERATION (22) or
    UNKNOWN_MEMBER_ID (25).
    """

    hides_topics: bool = False
    """A client without DESCRIBE on a topic gets UNKNOWN_TOPIC_OR_PARTITION, instead of TOPIC_AUTHORIZATION_FAILED."""
    offset_fetch_reads_group: bool = False
    """OffsetFetch requires READ on the group, instead of DESCRIBE."""
    creates_by_topic: bool = True
    """CREATE on a topic name allows to create the topic; otherwise only CREATE on the cluster does (KIP-277)."""
    describe_suffices: bool = True
    """ListGroups and OffsetForLeaderEpoch require DESCRIBE on each group or topic, instead of a permission on the
    cluster (KIP-231, KIP-320).
    """
    idempotence_of_cluster: bool = False
    """Idempotent producers require IDEMPOTENT_WRITE on the cluster; otherwise WRITE on any topic is enough
    (KIP-679).
    """
    cidr_hosts: bool = True
    """The host of an access control entry may be a block of addresses in CIDR notation, and may not be empty."""
    group_configs: bool = True
    """The authorized operations of a group include DESCRIBE_CONFIGS and ALTER_CONFIGS."""
    refusal_texts: Literal["none", "create", "describe", "alter"] = "alter"
    """The APIs whose authorization errors have a message: none, CreateTopics (`create`), also DescribeConfigs
    (`describe`), or also DeleteTopics and alterations of configs (`alter`).
    """

    log_dirs_of_requested_topics: bool = True
    """DescribeLogDirs for some partitions omits other topics, instead of listing them without partitions."""
    controls_as_kraft: bool = True
    """Elections and reassignments respond like a KRaft controller instead of like one with ZooKeeper: with other
    messages, all topics in the result of an election of all leaders, and leader.imbalance.per.broker.percentage
    ignored.
    """
    reassignment_awaits: Literal["target", "adding", "adding_if_not_fewer"] = "adding_if_not_fewer"
    """The replicas that must be in sync before a reassignment completes: all of the target, only those that it adds, or
    only those unless it removes more than it adds (KAFKA-15665, KAFKA-19975).
    """

    topics_as_kraft: bool = True
    """Topic changes respond like a KRaft controller instead of like one with ZooKeeper: with other messages; DELETE on
    the cluster suffices to delete; a topic without DESCRIBE is not deleted; and a duplicate name in a request gets only
    one result.
    """
    limits_added_partitions: bool = True
    """CreatePartitions fails as a whole if it would add more than 10,000 partitions to all its topics together."""
    first_offsets: bool = True
    """OffsetCommit v0 and OffsetFetch v0 are served; Kafka with ZooKeeper stores these offsets there."""
    special_timestamps: bool = True
    """ListOffsets supports special timestamps below -2, each from its API version on; before KIP-734 they are treated
    as times.
    """
    cordoned_log_dirs: bool = True
    """Error messages about too few brokers mention cordoned log directories (KIP-1066)."""
    deletes_without_policy: bool = True
    """DeleteRecords is allowed if cleanup.policy is empty; otherwise only if it includes `delete`."""
    in_sync_at_most_replicas: bool = True
    """A partition with fewer replicas than min.insync.replicas accepts writes if all of them are in sync. With fewer in
    sync than required the high watermark stays, so that records written with acks=1 are not read (KAFKA-15583).
    """

    coordinator_awaits_topic: bool = False
    """There is no coordinator until its topic exists: FindCoordinator creates the topic and returns
    COORDINATOR_NOT_AVAILABLE, other requests get NOT_COORDINATOR.
    """
    created_topic: Literal["ready", "LEADER_NOT_AVAILABLE", "UNKNOWN_TOPIC_OR_PARTITION"] = "ready"
    """The response for a topic that Metadata creates: its partitions, or the error after which a client retries."""
    removes_unsynced: bool = True
    """A member without SyncGroup within the rebalance timeout is removed (KAFKA-12890)."""
    member_checks: Literal["rebalance_first", "given", "all", "unless_empty"] = "unless_empty"
    """The checks of the member in group requests. `rebalance_first`: OffsetCommit gets REBALANCE_IN_PROGRESS until the
    assignment is known, otherwise like `given`. `given`: an unknown instance id is ignored, and TxnOffsetCommit may
    have a member or a generation alone. `all`: these are refused. `unless_empty`: like `all`, but a commit without a
    generation to an Empty group may have any member.
    """
    heartbeats_before_sync: bool = True
    """A heartbeat before the assignment is known keeps the session of the member, instead of getting
    REBALANCE_IN_PROGRESS.
    """
    first_session_at_join: bool = True
    """The session of a new member starts with the response to JoinGroup, instead of with its next request
    (KAFKA-9752).
    """
    old_group_coordinator: bool = False
    """The group coordinator is the one before KIP-848: a group without members is removed with its last offset instead
    of by the next check, a commit to an unknown group gets another error, and topics without requested partitions are
    not listed.
    """
    consumer_groups: Literal["none", "config", "feature"] = "feature"
    """What serves the consumer group protocol (KIP-848): nothing; the config group.coordinator.rebalance.protocols, as
    early access (`config`); or also the finalized feature group.version (`feature`).
    """
    hashes_topics: bool = True
    """A group of the consumer protocol stores a hash of the metadata of its topics, instead of the metadata
    (KIP-1101).
    """
    rejoins_at_zero: bool = True
    """A member of the consumer protocol may join again with epoch 0 while the group has it in another epoch
    (KAFKA-19233).
    """
    spaces_assignments: bool = True
    """Groups of the consumer protocol begin with epoch 1, in which members wait for an assignment: one is computed at
    most every group.consumer.assignment.interval.ms (KIP-1263).
    """
    static_streams_members: bool = True
    """Streams groups have static members, report changelog offsets, require client tags, and let a task change its role
    on a member (KIP-1071).
    """
    commits_by_assignment: bool = True
    """A member of the consumer protocol may commit with an earlier epoch, for partitions that it was assigned in that
    epoch or before (KIP-1251).
    """
    caps_group_configs: bool = True
    """A config of a group that is beyond a limit of the broker, since the limit was set later, takes effect as that
    limit.
    """
    group_states_in_any_case: bool = True
    """ListGroups accepts state names in any case."""
    producers_in_words: bool = True
    """DescribeProducers returns an error message for an unknown topic or an invalid name."""

    scram_once_a_user: bool = True
    """A request may change the SCRAM credentials of each user once, instead of each mechanism of a user once; error
    messages are those of a KRaft controller.
    """
    credentials_end_sessions: bool = True
    """A session ends with the token of its client also if connections.max.reauth.ms is not set: a delegation token, or
    one of OAUTHBEARER (KAFKA-13848).
    """
    token_rules: Literal["zookeeper", "expired_first", "removable"] = "removable"
    """The rules for delegation tokens: those of brokers with ZooKeeper; those of KRaft controllers, where a renewal is
    no longer than delegation.token.expiry.time.ms and refusals have the timestamp 0 instead of -1, with an expired
    token refused before its owner is compared (`expired_first`), or with one that its owner can remove (`removable`).
    """
    feature_results: Literal["zookeeper", "each", "whole"] = "whole"
    """UpdateFeatures responds like ZooKeeper releases, which have no features; like a KRaft controller with a result
    for each feature (`each`); or like one that applies all updates or none (`whole`).
    """
    downgrade_text: Literal["retry", "plain", "levels"] = "levels"
    """The error message for a downgrade of metadata.version that would lose metadata: with the advice to force it
    (`retry`), which is refused as well, without it (`plain`), or with the present level (`levels`).
    """

    newest_acl_operation: Literal[12, 14, 15] = 15
    """The newest operation in access control entries: 13 and 14 belong to the resource type USER (KIP-373), 15 to
    two-phase commit (KIP-939).
    """
    acls_as_kraft: bool = True
    """CreateAcls and DeleteAcls validate and respond like a KRaft controller, instead of like the authorizers that
    stored entries in ZooKeeper.
    """

    mutes_throttled: bool = True
    """A client above its quota gets its response at once and its connection is muted, instead of the response being
    delayed (KIP-219).
    """
    quota_checks: Literal["zookeeper", "kraft", "finite"] = "finite"
    """The validation and messages of altering and describing client quotas: like a broker with ZooKeeper, like a KRaft
    controller, or like one that requires finite values.
    """
    validation_is_charged: bool = True
    """Requests with validate_only that create topics or partitions count for controller mutation quotas (KIP-599)."""

    described_text: bool = True
    """DescribeConfigs returns an empty error message without an error and for an unknown resource, instead of null."""
    acl_text: bool = True
    """CreateAcls and DescribeAcls return an empty error message without an error, instead of null."""
    first_token: bool = True
    """A client may begin with a token of GSSAPI in place of a request, as those of 0.9 do, which have no SaslHandshake.
    """
    sasl_text: bool = True
    """SaslAuthenticate returns an empty error message without an error, instead of null."""
    kraft_configs: bool = True
    """Config changes are validated like in a KRaft controller instead of a broker with ZooKeeper: with other messages,
    and INVALID_CONFIG for an invalid value of a topic config.
    """
    sets_as_scala: bool = False
    """Error messages about config changes list names as Set(a, b), instead of [a, b]."""
    logger_configs: bool = True
    """Logger levels can be described and altered as configs of a broker (KIP-412)."""
    logger_operations: bool = True
    """A change of a logger by an unknown operation is an invalid request, instead of an unexpected error."""
    listener_threads: bool = True
    """The number of network threads of a listener can be set for all brokers (KAFKA-7589)."""
    client_metrics_configs: Literal["none", "set", "all"] = "all"
    """The client metrics configs in DescribeConfigs (KIP-714): none, those that are set, or all."""
    group_synonyms: bool = True
    """Group configs are described with the broker configs that are their synonyms, instead of as defaults
    of their own.
    """
    group_ranges: bool = True
    """Of group configs only those that are set are checked against the limits of the broker, with these in the error
    message; otherwise all of them, with the names of the limits.
    """
    reports_unregistered: bool = True
    """UnregisterBroker returns an error message for an unknown broker (KAFKA-18859)."""

    unknown_version_lists_range: bool = True
    """ApiVersions in an unsupported version returns UNSUPPORTED_VERSION with the supported range of ApiVersions,
    instead of an empty list.
    """


BEHAVIOUR_NAMES: tuple[str, ...] = Behaviour.__match_args__
Moves = Sequence[tuple[str, Any]]  # (first release with the value, value), oldest first

# The values by release. The first row applies from the oldest release on, even if the difference cannot occur there.
BEHAVIOUR_MOVES: dict[str, Moves] = {
    "unknown_producer": (("0.8.2", "out_of_order"), ("1.0.1", "unknown"), ("2.5", "accept")),
    "marker_only": (("0.8.2", "out_of_order"), ("2.0", "unknown"), ("2.5", "out_of_order")),
    "below_cache": (("0.8.2", "out_of_order"), ("1.0.1", "duplicate_sequence"), ("1.0", "out_of_order")),
    "inside_cache": (("0.8.2", "out_of_order"),),
    "cached_batches": (("0.8.2", 1), ("1.0.1", 5)),
    "drop_below_log_start": (("0.8.2", True), ("2.4", False)),
    "unknown_below_log_start": (("0.8.2", False),),
    "invalid_record_code": (("0.8.2", 2), ("2.4", 87)),
    "wrong_batches": (("0.8.2", "close"), ("2.1", "corrupt"), ("2.4", "invalid")),
    "unreadable_batches": (("0.8.2", "partition"), ("2.1", "close"), ("2.8", "first"), ("3.8", "any")),
    "record_errors": (("0.8.2", "none"), ("2.4", "first"), ("2.5", "all")),
    "counted_record_errors": (("0.8.2", False), ("3.2", True)),
    "refuse_unnumbered": (("0.8.2", False), ("2.4", True), ("2.5", False)),
    "unnumbered_fail": (("0.8.2", False), ("2.6", True)),
    "one_magic": (("0.8.2", False), ("2.4", True)),
    "append_time_bit_allowed": (("0.8.2", False), ("3.6", True)),
    "timestamp_range": (("0.8.2", "difference"), ("3.6", "both"), ("4.0.0", "before_after")),
    "old_formats": (("0.8.2", True), ("4.0.0", False)),
    "newest_magic": (("0.8.2", 0), ("0.10.0", 1), ("0.11", 2)),
    "down_conversion": (("0.8.2", "scan"), ("3.0", "always"), ("4.0.0", "none")),
    "nothing_left": (("0.8.2", "original"), ("2.0.0", "overflow")),
    "sends_cut": (("0.8.2", True), ("3.0", False)),
    "zstd_topic_needs_fetch_10": (("0.8.2", False), ("2.1", True), ("4.0.0", False)),
    "v2_from_ibp_3": (("0.8.2", False), ("3.0", True)),
    "cleaner_keeps_old_formats": (("0.8.2", True), ("4.0.0", False)),
    "delete_horizon": (("0.8.2", False), ("3.1", True)),
    "cleaner_keeps_last_batch": (("0.8.2", "none"), ("4.0.0", "cleaned"), ("4.4", "high_watermark")),
    "eligible_leaders": (("0.8.2", False), ("4.1", True)),
    "transaction_version": (("0.8.2", 0), ("4.0.0", 2)),
    "shrinks_deliveries": (("0.8.2", False), ("4.2", True)),
    "verifies_transactions": (("0.8.2", False), ("3.6", True)),
    "own_epoch_begins_at_0": (("0.8.2", False), ("4.1", True)),
    "verifies_offsets": (("0.8.2", False), ("3.7", True)),
    "absent_group_code": (("0.8.2", 25), ("4.0.0", 22)),
    "hides_topics": (("0.8.2", False), ("0.10.1", True), ("1.0.1", False)),
    "offset_fetch_reads_group": (("0.8.2", True), ("1.0.1", False)),
    "creates_by_topic": (("0.8.2", False), ("2.0.0", True)),
    "describe_suffices": (("0.8.2", False), ("2.1", True)),
    "idempotence_of_cluster": (("0.8.2", True), ("2.8", False)),
    "cidr_hosts": (("0.8.2", False), ("4.4", True)),
    "group_configs": (("0.8.2", False), ("4.0.0", True)),
    "refusal_texts": (("0.8.2", "none"), ("2.3", "create"), ("2.8", "describe"), ("3.3", "alter")),
    "log_dirs_of_requested_topics": (("0.8.2", False), ("3.7", True)),
    "controls_as_kraft": (("0.8.2", False), ("3.3", True)),
    "reassignment_awaits": (
        ("0.8.2", "target"),
        ("3.3", "adding"),
        ("3.8", "target"),
        ("4.3", "adding_if_not_fewer"),
    ),
    "topics_as_kraft": (("0.8.2", False), ("3.3", True)),
    "limits_added_partitions": (("0.8.2", False), ("4.4", True)),
    "first_offsets": (("0.8.2", True), ("3.3", False)),
    "special_timestamps": (("0.8.2", False), ("3.0", True)),
    "cordoned_log_dirs": (("0.8.2", False), ("4.3", True)),
    "deletes_without_policy": (("0.8.2", False), ("4.2", True)),
    "in_sync_at_most_replicas": (("0.8.2", False), ("3.7", True)),
    "coordinator_awaits_topic": (("0.8.2", True),),
    "created_topic": (("0.8.2", "LEADER_NOT_AVAILABLE"), ("3.3", "UNKNOWN_TOPIC_OR_PARTITION")),
    "removes_unsynced": (("0.8.2", False), ("2.8", True)),
    "member_checks": (("0.8.2", "rebalance_first"), ("2.4", "given"), ("3.0", "all"), ("3.3", "unless_empty")),
    "heartbeats_before_sync": (("0.8.2", False), ("2.6", True)),
    "first_session_at_join": (("0.8.2", True), ("2.2", False), ("2.5", True)),
    "old_group_coordinator": (("0.8.2", True), ("4.0.0", False)),
    "consumer_groups": (("0.8.2", "none"), ("3.7", "config"), ("4.0.0", "feature")),
    "hashes_topics": (("0.8.2", False), ("4.1", True)),
    "rejoins_at_zero": (("0.8.2", False), ("4.2", True)),
    "spaces_assignments": (("0.8.2", False), ("4.3", True)),
    "static_streams_members": (("0.8.2", False), ("4.4", True)),
    "commits_by_assignment": (("0.8.2", False), ("4.3", True)),
    "caps_group_configs": (("0.8.2", False), ("4.3", True)),
    "group_states_in_any_case": (("0.8.2", False), ("3.8", True)),
    "producers_in_words": (("0.8.2", False), ("3.0", True)),
    "scram_once_a_user": (("0.8.2", False), ("3.3", True)),
    "credentials_end_sessions": (("0.8.2", False), ("3.3", True)),
    "token_rules": (("0.8.2", "zookeeper"), ("3.3", "expired_first"), ("3.7", "removable")),
    "feature_results": (("0.8.2", "zookeeper"), ("3.3", "each"), ("4.0.0", "whole")),
    "downgrade_text": (("0.8.2", "retry"), ("3.7", "plain"), ("4.2", "levels")),
    "newest_acl_operation": (("0.8.2", 12), ("3.3", 14), ("4.1", 15)),
    "acls_as_kraft": (("0.8.2", False), ("3.3", True)),
    "mutes_throttled": (("0.8.2", False), ("2.0.0", True)),
    "quota_checks": (("0.8.2", "zookeeper"), ("3.3", "kraft"), ("4.4", "finite")),
    "validation_is_charged": (("0.8.2", False), ("3.3", True)),
    "described_text": (("0.8.2", False), ("2.7", True)),
    "acl_text": (("0.8.2", False), ("2.5", True)),
    "first_token": (("0.8.2", False), ("0.9", True), ("4.0.0", False)),
    "sasl_text": (("0.8.2", False), ("2.3", True)),
    "kraft_configs": (("0.8.2", False), ("3.3", True)),
    "sets_as_scala": (("0.8.2", True), ("4.2", False)),
    "logger_configs": (("0.8.2", False), ("2.4", True)),
    "logger_operations": (("0.8.2", False), ("4.4", True)),
    "listener_threads": (("0.8.2", False), ("3.2", True)),
    "client_metrics_configs": (("0.8.2", "none"), ("3.7", "set"), ("4.1", "all")),
    "group_synonyms": (("0.8.2", False), ("4.2", True)),
    "group_ranges": (("0.8.2", False), ("4.4", True)),
    "reports_unregistered": (("0.8.2", False), ("4.1", True)),
    "unknown_version_lists_range": (("0.8.2", False), ("2.4", True)),
}
