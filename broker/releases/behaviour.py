"""Behaviours: differences between Kafka releases other than API versions and configs, and the releases that changed
them.

Owns the declarations and their values by release; `profiles.py` creates profiles from them. Each behaviour can be set
individually with `--override ottla.behaviour.<name>=<value>`. docs/reference/behaviours.md has the table, generated
from the sentences below.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import Any, Literal

from ...protocol.frozen import frozen

OLDEST = "0.8.2"
Moves = Sequence[tuple[str, Any]]
"""Pairs of (first release with the value, value), oldest first."""
# Verdicts on a producer's batch where releases differ; the names of storage's `ProducerRules` verdicts.
ProducerVerdict = Literal["accept", "unknown", "out_of_order", "duplicate_sequence"]


def by_release(own: Any, oldest: Any, *moves: tuple[str, Any]) -> Any:
    """Declares a behaviour: its value in Ottla's own profile, the one of the oldest release, and the later ones, each
    with the first release that has it. The oldest release has a value even if the difference cannot occur there."""
    return field(default=own, metadata={"moves": ((OLDEST, oldest), *moves)})


def since(release: str, *, own: bool = True) -> Any:
    """Declares a behaviour that begins with a release."""
    return by_release(own, False, (release, True))


def until(release: str, *, own: bool = False) -> Any:
    """Declares a behaviour that ends with a release, which no longer has it."""
    return by_release(own, True, (release, False))


@frozen
class Behaviour:
    """The behaviours of a profile, each declared with its values by release. The defaults are those of Ottla's own
    profile."""

    unknown_producer: ProducerVerdict = by_release("unknown", "out_of_order", ("1.0.1", "unknown"), ("2.5", "accept"))
    """Verdict on a batch that does not begin with sequence 0 if there is no state of its producer."""
    marker_only: ProducerVerdict = by_release(
        "out_of_order", "out_of_order", ("2.0", "unknown"), ("2.5", "out_of_order")
    )
    """Verdict on a batch that does not begin with sequence 0 if the producer's state has its epoch but none of its
    batches.
    """
    below_cache: ProducerVerdict = by_release(
        "duplicate_sequence", "out_of_order", ("1.0.1", "duplicate_sequence"), ("1.0", "out_of_order")
    )
    """Verdict on a batch whose records were all written before those in the cached batches."""
    inside_cache: ProducerVerdict = by_release("out_of_order", "out_of_order")
    """Verdict on a batch whose records were all written before, some of them in cached batches, if it duplicates none
    of these.
    """
    cached_batches: int = by_release(5, 1, ("1.0.1", 5))
    """The number of batches of a producer that its state caches."""
    drop_below_log_start: bool = until("2.4")
    """The state of a producer is removed when its last offset falls below the log start offset."""
    unknown_below_log_start: bool = by_release(True, False)
    """A producer whose last offset is below the log start offset gets UNKNOWN_PRODUCER_ID, if its client compares the
    log start offset in the response with the last acknowledged offset (KIP-192).
    """

    invalid_record_code: Literal[2, 87] = by_release(87, 2, ("2.4", 87))
    """The error for a malformed batch: CORRUPT_MESSAGE (2), on which clients retry, or INVALID_RECORD (87), on which
    they do not.
    """
    wrong_batches: Literal["close", "corrupt", "invalid"] = by_release(
        "invalid", "close", ("2.1", "corrupt"), ("2.4", "invalid")
    )
    """The reaction to Produce v3 and later with anything but one v2 batch: the connection closes, or error 2, or error
    87.
    """
    unreadable_batches: Literal["partition", "close", "first", "any"] = by_release(
        "first", "partition", ("2.1", "close"), ("2.8", "first"), ("3.8", "any")
    )
    """What fails because of a malformed batch: its partition (`partition`), the connection if it is a partition's first
    batch (`close`), the whole request if it is a partition's first batch (`first`), or the whole request in any case,
    also for a batch that ends before its producer id (`any`).
    """
    record_errors: Literal["none", "first", "all"] = by_release("all", "none", ("2.4", "first"), ("2.5", "all"))
    """The refused records that an error response lists: none, the first, or all."""
    counted_record_errors: bool = since("3.2")
    """The error message for refused records has their number and shows the first three."""
    refuse_unnumbered: bool = by_release(False, False, ("2.4", True), ("2.5", False))
    """A compressed batch whose offsets are not 0, 1, 2, ... is refused, instead of being rebuilt."""
    unnumbered_fail: bool = since("2.6")
    """A compressed v2 batch whose offsets are not 0, 1, 2, ... fails with UNKNOWN_SERVER_ERROR if its codec is kept."""
    one_magic: bool = since("2.4")
    """A message set with several compressed wrappers, or with several formats, is refused, instead of being merged."""
    append_time_bit_allowed: bool = since("3.6")
    """A batch with the log append time bit set by its client is accepted in a topic with create time."""
    timestamp_range: Literal["difference", "both", "before_after"] = by_release(
        "both", "difference", ("3.6", "both"), ("4.0.0", "before_after")
    )
    """The configs that limit a record's timestamp: message.timestamp.difference.max.ms, message.timestamp.before.max.ms
    and message.timestamp.after.max.ms, or both.
    """
    old_formats: bool = until("4.0.0", own=True)
    """Producers may send message sets of formats v0 and v1."""
    newest_magic: Literal[0, 1, 2] = by_release(2, 0, ("0.10.0", 1), ("0.11", 2))
    """The newest message format of the release."""

    down_conversion: Literal["scan", "always", "none"] = by_release(
        "always", "scan", ("3.0", "always"), ("4.0.0", "none")
    )
    """Down-conversion for Fetch v0 to v3: only if the records have a newer format (`scan`), always, or never."""
    nothing_left: Literal["original", "overflow"] = by_release("overflow", "original", ("2.0.0", "overflow"))
    """The response if down-conversion leaves no record: the unconverted bytes, or the header of a message that is too
    large.
    """
    sends_cut: bool = until("3.0", own=True)
    """Fetch v0 to v2 with a limit below the size of the first batch returns a truncated batch, from which the client
    learns that the limit is too low, instead of nothing.
    """
    zstd_topic_needs_fetch_10: bool = by_release(False, False, ("2.1", True), ("4.0.0", False))
    """Fetch before v10 from a topic with compression.type=zstd fails with UNSUPPORTED_COMPRESSION_TYPE."""
    v2_from_ibp_3: bool = since("3.0")
    """With inter.broker.protocol.version 3.0 or later, v2 is written regardless of message.format.version."""

    cleaner_keeps_old_formats: bool = until("4.0.0")
    """The log cleaner keeps formats v0 and v1, instead of writing v2 (KIP-724)."""
    delete_horizon: bool = since("3.1")
    """The log cleaner counts delete.retention.ms from its first pass over a tombstone, stored in the batch
    (KIP-534).
    """
    cleaner_keeps_last_batch: Literal["none", "cleaned", "high_watermark"] = by_release(
        "high_watermark", "none", ("4.0.0", "cleaned"), ("4.4", "high_watermark")
    )
    """The batch whose header the log cleaner keeps without records: none, the last one that it cleaned, or the one that
    ends at the high watermark.
    """

    eligible_leaders: bool = since("4.1", own=False)
    """A new cluster has eligible.leader.replicas.version 1: partitions with fewer replicas in sync than
    min.insync.replicas have eligible leader replicas, and their ISR may be empty (KIP-966).
    """

    transaction_version: Literal[0, 1, 2] = by_release(2, 0, ("4.0.0", 2))
    """The finalized level of transaction.version: 1 writes the transaction records of KIP-915, 2 gives every
    transaction its own epoch and adds partitions when they are written to (KIP-890).
    """
    shrinks_deliveries: bool = since("4.2")
    """Records that were delivered several times to a share group are delivered in smaller parts, on the last attempt
    one by one.
    """
    verifies_transactions: bool = since("3.6")
    """A write starts a transaction in a partition only if the coordinator's transaction includes the partition
    (KIP-890).
    """
    own_epoch_begins_at_0: bool = since("4.1")
    """With transaction.version 2, a transaction of a producer without cached batches must begin with sequence 0."""
    verifies_offsets: bool = since("3.7")
    """A transactional offset commit is accepted only if the coordinator's transaction includes the group (KIP-890,
    KAFKA-15449).
    """
    absent_group_code: Literal[22, 25] = by_release(22, 25, ("4.0.0", 22))
    """The error for a transactional offset commit of a member to an unknown group: ILLEGAL_GENERATION (22) or
    UNKNOWN_MEMBER_ID (25).
    """

    hides_topics: bool = by_release(False, False, ("0.10.1", True), ("1.0.1", False))
    """A client without DESCRIBE on a topic gets UNKNOWN_TOPIC_OR_PARTITION, instead of TOPIC_AUTHORIZATION_FAILED."""
    offset_fetch_reads_group: bool = until("1.0.1")
    """OffsetFetch requires READ on the group, instead of DESCRIBE."""
    creates_by_topic: bool = since("2.0.0")
    """CREATE on a topic name allows to create the topic; otherwise only CREATE on the cluster does (KIP-277)."""
    describe_suffices: bool = since("2.1")
    """ListGroups and OffsetForLeaderEpoch require DESCRIBE on each group or topic, instead of a permission on the
    cluster (KIP-231, KIP-320).
    """
    idempotence_of_cluster: bool = until("2.8")
    """Idempotent producers require IDEMPOTENT_WRITE on the cluster; otherwise WRITE on any topic is enough
    (KIP-679).
    """
    cidr_hosts: bool = since("4.4")
    """The host of an access control entry may be a block of addresses in CIDR notation, and may not be empty."""
    group_configs: bool = since("4.0.0")
    """The authorized operations of a group include DESCRIBE_CONFIGS and ALTER_CONFIGS."""
    refusal_texts: Literal["none", "create", "describe", "alter"] = by_release(
        "alter", "none", ("2.3", "create"), ("2.8", "describe"), ("3.3", "alter")
    )
    """The APIs whose authorization errors have a message: none, CreateTopics (`create`), also DescribeConfigs
    (`describe`), or also DeleteTopics and alterations of configs (`alter`).
    """

    log_dirs_of_requested_topics: bool = since("3.7")
    """DescribeLogDirs for some partitions omits other topics, instead of listing them without partitions."""
    controls_as_kraft: bool = since("3.3")
    """Elections and reassignments respond like a KRaft controller instead of like one with ZooKeeper: with other
    messages, all topics in the result of an election of all leaders, and leader.imbalance.per.broker.percentage
    ignored.
    """
    reassignment_awaits: Literal["target", "adding", "adding_if_not_fewer"] = by_release(
        "adding_if_not_fewer", "target", ("3.3", "adding"), ("3.8", "target"), ("4.3", "adding_if_not_fewer")
    )
    """The replicas that must be in sync before a reassignment completes: all of the target, only those that it adds, or
    only those unless it removes more than it adds (KAFKA-15665, KAFKA-19975).
    """

    topics_as_kraft: bool = since("3.3")
    """Topic changes respond like a KRaft controller instead of like one with ZooKeeper: with other messages; DELETE on
    the cluster suffices to delete; a topic without DESCRIBE is not deleted; and a duplicate name in a request gets only
    one result.
    """
    limits_added_partitions: bool = since("4.4")
    """CreatePartitions fails as a whole if it would add more than 10,000 partitions to all its topics together."""
    first_offsets: bool = until("3.3", own=True)
    """OffsetCommit v0 and OffsetFetch v0 are served; Kafka with ZooKeeper stores these offsets there."""
    special_timestamps: bool = since("3.0")
    """ListOffsets supports special timestamps below -2, each from its API version on; before KIP-734 they are treated
    as times.
    """
    cordoned_log_dirs: bool = since("4.3")
    """Error messages about too few brokers mention cordoned log directories (KIP-1066)."""
    deletes_without_policy: bool = since("4.2")
    """DeleteRecords is allowed if cleanup.policy is empty; otherwise only if it includes `delete`."""
    in_sync_at_most_replicas: bool = since("3.7")
    """A partition with fewer replicas than min.insync.replicas accepts writes if all of them are in sync. With fewer in
    sync than required the high watermark stays, so that records written with acks=1 are not read (KAFKA-15583).
    """

    coordinator_awaits_topic: bool = by_release(False, True)
    """There is no coordinator until its topic exists: FindCoordinator creates the topic and returns
    COORDINATOR_NOT_AVAILABLE, other requests get NOT_COORDINATOR.
    """
    created_topic: Literal["ready", "LEADER_NOT_AVAILABLE", "UNKNOWN_TOPIC_OR_PARTITION"] = by_release(
        "ready", "LEADER_NOT_AVAILABLE", ("3.3", "UNKNOWN_TOPIC_OR_PARTITION")
    )
    """The response for a topic that Metadata creates: its partitions, or the error after which a client retries."""
    removes_unsynced: bool = since("2.8")
    """A member without SyncGroup within the rebalance timeout is removed (KAFKA-12890)."""
    member_checks: Literal["rebalance_first", "given", "all", "unless_empty"] = by_release(
        "unless_empty", "rebalance_first", ("2.4", "given"), ("3.0", "all"), ("3.3", "unless_empty")
    )
    """The checks of the member in group requests. `rebalance_first`: OffsetCommit gets REBALANCE_IN_PROGRESS until the
    assignment is known, otherwise like `given`. `given`: an unknown instance id is ignored, and TxnOffsetCommit may
    have a member or a generation alone. `all`: these are refused. `unless_empty`: like `all`, but a commit without a
    generation to an Empty group may have any member.
    """
    heartbeats_before_sync: bool = since("2.6")
    """A heartbeat before the assignment is known keeps the session of the member, instead of getting
    REBALANCE_IN_PROGRESS.
    """
    first_session_at_join: bool = by_release(True, True, ("2.2", False), ("2.5", True))
    """The session of a new member starts with the response to JoinGroup, instead of with its next request
    (KAFKA-9752).
    """
    old_group_coordinator: bool = until("4.0.0")
    """The group coordinator is the one before KIP-848: a group without members is removed with its last offset instead
    of by the next check, a commit to an unknown group gets another error, and topics without requested partitions are
    not listed.
    """
    consumer_groups: Literal["none", "config", "feature"] = by_release(
        "feature", "none", ("3.7", "config"), ("4.0.0", "feature")
    )
    """What serves the consumer group protocol (KIP-848): nothing; the config group.coordinator.rebalance.protocols, as
    early access (`config`); or also the finalized feature group.version (`feature`).
    """
    hashes_topics: bool = since("4.1")
    """A group of the consumer protocol stores a hash of the metadata of its topics, instead of the metadata
    (KIP-1101).
    """
    rejoins_at_zero: bool = since("4.2")
    """A member of the consumer protocol may join again with epoch 0 while the group has it in another epoch
    (KAFKA-19233).
    """
    spaces_assignments: bool = since("4.3")
    """Groups of the consumer protocol begin with epoch 1, in which members wait for an assignment: one is computed at
    most every group.consumer.assignment.interval.ms (KIP-1263).
    """
    static_streams_members: bool = since("4.4")
    """Streams groups have static members, report changelog offsets, require client tags, and let a task change its role
    on a member (KIP-1071).
    """
    commits_by_assignment: bool = since("4.3")
    """A member of the consumer protocol may commit with an earlier epoch, for partitions that it was assigned in that
    epoch or before (KIP-1251).
    """
    caps_group_configs: bool = since("4.3")
    """A config of a group that is beyond a limit of the broker, since the limit was set later, takes effect as that
    limit.
    """
    group_states_in_any_case: bool = since("3.8")
    """ListGroups accepts state names in any case."""
    producers_in_words: bool = since("3.0")
    """DescribeProducers returns an error message for an unknown topic or an invalid name."""

    scram_once_a_user: bool = since("3.3")
    """A request may change the SCRAM credentials of each user once, instead of each mechanism of a user once; error
    messages are those of a KRaft controller.
    """
    credentials_end_sessions: bool = since("3.3")
    """A session ends with the token of its client also if connections.max.reauth.ms is not set: a delegation token, or
    one of OAUTHBEARER (KAFKA-13848).
    """
    token_rules: Literal["zookeeper", "expired_first", "removable"] = by_release(
        "removable", "zookeeper", ("3.3", "expired_first"), ("3.7", "removable")
    )
    """The rules for delegation tokens: those of brokers with ZooKeeper; those of KRaft controllers, where a renewal is
    no longer than delegation.token.expiry.time.ms and refusals have the timestamp 0 instead of -1, with an expired
    token refused before its owner is compared (`expired_first`), or with one that its owner can remove (`removable`).
    """
    feature_results: Literal["zookeeper", "each", "whole"] = by_release(
        "whole", "zookeeper", ("3.3", "each"), ("4.0.0", "whole")
    )
    """UpdateFeatures responds like ZooKeeper releases, which have no features; like a KRaft controller with a result
    for each feature (`each`); or like one that applies all updates or none (`whole`).
    """
    downgrade_text: Literal["retry", "plain", "levels"] = by_release(
        "levels", "retry", ("3.7", "plain"), ("4.2", "levels")
    )
    """The error message for a downgrade of metadata.version that would lose metadata: with the advice to force it
    (`retry`), which is refused as well, without it (`plain`), or with the present level (`levels`).
    """

    newest_acl_operation: Literal[12, 14, 15] = by_release(15, 12, ("3.3", 14), ("4.1", 15))
    """The newest operation in access control entries: 13 and 14 belong to the resource type USER (KIP-373), 15 to
    two-phase commit (KIP-939).
    """
    acls_as_kraft: bool = since("3.3")
    """CreateAcls and DeleteAcls validate and respond like a KRaft controller, instead of like the authorizers that
    stored entries in ZooKeeper.
    """

    mutes_throttled: bool = since("2.0.0")
    """A client above its quota gets its response at once and its connection is muted, instead of the response being
    delayed (KIP-219).
    """
    quota_checks: Literal["zookeeper", "kraft", "finite"] = by_release(
        "finite", "zookeeper", ("3.3", "kraft"), ("4.4", "finite")
    )
    """The validation and messages of altering and describing client quotas: like a broker with ZooKeeper, like a KRaft
    controller, or like one that requires finite values.
    """
    validation_is_charged: bool = since("3.3")
    """Requests with validate_only that create topics or partitions count for controller mutation quotas (KIP-599)."""

    described_text: bool = since("2.7")
    """DescribeConfigs returns an empty error message without an error and for an unknown resource, instead of null."""
    acl_text: bool = since("2.5")
    """CreateAcls and DescribeAcls return an empty error message without an error, instead of null."""
    first_token: bool = by_release(True, False, ("0.9", True), ("4.0.0", False))
    """A client may begin with a token of GSSAPI in place of a request, as those of 0.9 do, which have no SaslHandshake.
    """
    sasl_text: bool = since("2.3")
    """SaslAuthenticate returns an empty error message without an error, instead of null."""
    kraft_configs: bool = since("3.3")
    """Config changes are validated like in a KRaft controller instead of a broker with ZooKeeper: with other messages,
    and INVALID_CONFIG for an invalid value of a topic config.
    """
    sets_as_scala: bool = until("4.2")
    """Error messages about config changes list names as Set(a, b), instead of [a, b]."""
    logger_configs: bool = since("2.4")
    """Logger levels can be described and altered as configs of a broker (KIP-412)."""
    logger_operations: bool = since("4.4")
    """A change of a logger by an unknown operation is an invalid request, instead of an unexpected error."""
    listener_threads: bool = since("3.2")
    """The number of network threads of a listener can be set for all brokers (KAFKA-7589)."""
    client_metrics_configs: Literal["none", "set", "all"] = by_release("all", "none", ("3.7", "set"), ("4.1", "all"))
    """The client metrics configs in DescribeConfigs (KIP-714): none, those that are set, or all."""
    group_synonyms: bool = since("4.2")
    """Group configs are described with the broker configs that are their synonyms, instead of as defaults
    of their own.
    """
    group_ranges: bool = since("4.4")
    """Of group configs only those that are set are checked against the limits of the broker, with these in the error
    message; otherwise all of them, with the names of the limits.
    """
    reports_unregistered: bool = since("4.1")
    """UnregisterBroker returns an error message for an unknown broker (KAFKA-18859)."""

    unknown_version_lists_range: bool = since("2.4")
    """ApiVersions in an unsupported version returns UNSUPPORTED_VERSION with the supported range of ApiVersions,
    instead of an empty list.
    """


BEHAVIOUR_NAMES: tuple[str, ...] = Behaviour.__match_args__
