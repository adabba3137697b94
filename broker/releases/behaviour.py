"""What moved between Kafka's releases beside versions and configs: the switches of a profile, and when each moved.

Owns the declarations and, release by release, their values; `profiles.py` makes profiles of them. Each switch can be
set alone by `--override ottla.behaviour.<name>=<value>`. docs/reference/behaviours.md has the table, made from the sentences below.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

# What a producer's batch may be answered where releases differ; the names of storage's `Answer`.
AnswerName = Literal["accept", "unknown", "out_of_order", "duplicate_sequence"]


@dataclass(frozen=True, slots=True)
class Behaviour:
    """What moved between releases beside versions and configs. The defaults are Ottla's own profile."""

    unknown_producer: AnswerName = "unknown"
    """Nothing is known of a producer and its batch does not begin with sequence 0."""
    marker_only: AnswerName = "out_of_order"
    """The producer's epoch is known, none of its batches is, and the batch does not begin with sequence 0."""
    below_cache: AnswerName = "duplicate_sequence"
    """All of the batch was written before, and before the remembered batches."""
    inside_cache: AnswerName = "duplicate_sequence"
    """All of the batch was written before, some of it in remembered batches, and it is a copy of none of these."""
    cached_batches: int = 5
    """How many batches of a producer are remembered."""
    drop_below_log_start: bool = False
    """A producer is forgotten when its last offset falls below the log start offset."""
    unknown_below_log_start: bool = True
    """A producer whose last offset lies below the log start offset is unknown to an idempotent client that is known to
    compare that offset with its last acknowledged one (KIP-192)."""

    invalid_record_code: Literal[2, 87] = 87
    """A malformed batch: CORRUPT_MESSAGE, which clients retry, or INVALID_RECORD, which they do not."""
    wrong_batches: Literal["close", "corrupt", "invalid"] = "invalid"
    """Produce v3 and later with anything but one v2 batch: the connection closes, or error 2, or 87."""
    unreadable_batches: Literal["partition", "close", "first", "any"] = "first"
    """What batches refuse that cannot be read: their partition; the connection, if they are a partition's first; the
    whole request, if they are first; or the request in any place, as also batches that end before their producer id."""
    record_errors: Literal["none", "first", "all"] = "all"
    """Which refused records a refusal names."""
    counted_record_errors: bool = True
    """The text of such a refusal counts the records and shows the first three."""
    refuse_unnumbered: bool = False
    """A compressed batch whose offsets are not 0, 1, 2, ... is refused rather than rebuilt."""
    unnumbered_fail: bool = True
    """Such a batch of format v2 fails with UNKNOWN_SERVER_ERROR where its codec is kept."""
    one_magic: bool = True
    """A set of several compressed wrappers, or of several formats, is refused rather than merged."""
    append_time_bit_allowed: bool = True
    """A batch that a client marked as log append time enters a create-time topic."""
    timestamp_range: Literal["difference", "both", "before_after"] = "both"
    """Which of message.timestamp.difference.max.ms and .before/.after.max.ms bound a record's timestamp."""
    old_formats: bool = True
    """Sets of v0 and v1 are taken from producers at all."""
    newest_magic: Literal[0, 1, 2] = 2
    """The newest message format that the release knows."""

    down_conversion: Literal["scan", "always", "none"] = "always"
    """For Fetch v0-v3: only if what was read holds a newer format, always, or never."""
    nothing_left: Literal["original", "overflow"] = "overflow"
    """Down-conversion left no record: the unconverted bytes are sent, or the header of a message that is too large."""
    sends_cut: bool = True
    """Fetch v0-v2 asks for less than one message or batch: it gets that cut off one and learns that it is too large,
    rather than nothing."""
    zstd_topic_needs_fetch_10: bool = False
    """Fetch before v10 of a topic with compression.type=zstd answers UNSUPPORTED_COMPRESSION_TYPE."""
    v2_from_ibp_3: bool = True
    """With inter.broker.protocol.version 3.0 or later everything is written as v2, whatever the topic says."""

    cleaner_keeps_old_formats: bool = False
    """The log cleaner leaves v0 and v1 in their formats, rather than writing v2 (KIP-724)."""
    delete_horizon: bool = True
    """The log cleaner counts delete.retention.ms from its first pass over a tombstone, noted in the batch (KIP-534)."""
    cleaner_keeps_last_batch: bool = True
    """The log cleaner keeps the header of the last batch that it has cleaned."""

    eligible_leaders: bool = False
    """A partition whose only replica is offline has that as an eligible leader, and nobody in sync (KIP-966)."""

    transaction_version: Literal[0, 1, 2] = 2
    """The feature transaction.version as it is finalised: from 1 on KIP-915's records of transactions are written, from
    2 on every transaction has its own epoch and partitions are added by writing to them (KIP-890)."""
    verifies_transactions: bool = True
    """A write begins a transaction in a partition only if the coordinator knows the partition in it (KIP-890)."""
    own_epoch_begins_at_0: bool = True
    """With transaction.version 2 a producer begins a transaction with sequence 0 where none of its batches is known."""
    verifies_offsets: bool = True
    """Offsets enter a transaction only if the coordinator knows their group in it (KIP-890, KAFKA-15449)."""
    absent_group_code: Literal[22, 25] = 22
    """A member commits in a transaction to a group that is not there: ILLEGAL_GENERATION, or UNKNOWN_MEMBER_ID."""

    hides_topics: bool = False
    """Who may not describe a topic is told that it is unknown, rather than that the right is missing."""
    offset_fetch_reads_group: bool = False
    """OffsetFetch asks for READ on the group, rather than DESCRIBE."""
    creates_by_topic: bool = True
    """Who may CREATE a topic of that name may create it, rather than who may CREATE on the cluster alone (KIP-277)."""
    describe_suffices: bool = True
    """ListGroups lists the groups that may be described, OffsetForLeaderEpoch answers for such topics (KIP-231,
    KIP-320), rather than both asking for a right on the cluster."""
    idempotence_of_cluster: bool = False
    """Numbered batches and their producer ids ask for IDEMPOTENT_WRITE on the cluster, rather than WRITE on any topic
    being enough (KIP-679)."""
    group_configs: bool = True
    """The rights to describe and alter a group's configs are among those that a group has."""
    refusal_texts: Literal["none", "create", "describe", "alter"] = "alter"
    """Which refusals for a missing right have a text: none, those of CreateTopics, of DescribeConfigs as well, or also
    of DeleteTopics and of altering configs, as KRaft's have."""

    log_dirs_of_topics_asked: bool = True
    """DescribeLogDirs of some partitions leaves out the other topics, rather than to list them without partitions."""
    controls_as_kraft: bool = True
    """Elections and reassignments are answered as by a KRaft controller rather than with ZooKeeper: other texts, an
    election of all leaders lists topics without results too, leader.imbalance.per.broker.percentage is not asked."""

    topics_as_kraft: bool = True
    """Topics are made, grown and deleted as by KRaft's controller, rather than with ZooKeeper: other texts; DELETE
    on the cluster is enough, and no name is deleted that may not be described; and each entry of a name that is listed
    twice is answered with ZooKeeper alone."""
    first_offsets: bool = True
    """Version 0 of OffsetCommit and OffsetFetch is answered, rather than refused in words: ZooKeeper's brokers keep
    such offsets there."""
    special_timestamps: bool = True
    """ListOffsets knows negative timestamps below -2, each from its version on; before KIP-734 they are times."""
    cordoned_log_dirs: bool = True
    """Brokers that are too few may have to do with log directories that take no more partitions (KIP-1066)."""
    deletes_without_policy: bool = True
    """Records of a topic whose cleanup.policy is empty can be deleted; before that is what `delete` in it allows."""
    in_sync_at_most_replicas: bool = True
    """A partition with fewer replicas than min.insync.replicas can be written to as long as all of them are in sync."""

    coordinator_awaits_topic: bool = False
    """There is no coordinator before its topic exists: FindCoordinator creates the topic and answers
    COORDINATOR_NOT_AVAILABLE, other requests answer NOT_COORDINATOR."""
    removes_unsynced: bool = True
    """A member that sends no SyncGroup within the rebalance timeout is removed (KAFKA-12890)."""
    member_checks: Literal["rebalance_first", "given", "all", "unless_empty"] = "unless_empty"
    """Which requests of groups are refused for their member. `rebalance_first`: before the assignment is known each
    OffsetCommit, with REBALANCE_IN_PROGRESS, else as `given`. `given`: an instance id that the group does not have is
    ignored, and TxnOffsetCommit may name a member or a generation alone. `all`: these are refused. `unless_empty`: as
    `all`, but a commit without a generation to an Empty group may name any member."""
    heartbeats_before_sync: bool = True
    """A heartbeat before the assignment is known keeps the member's session, rather than being refused with
    REBALANCE_IN_PROGRESS."""
    first_session_at_join: bool = True
    """The session of a new member begins with the response to its JoinGroup, rather than with its next request
    (KAFKA-9752)."""
    old_group_coordinator: bool = False
    """The group coordinator before KIP-848's: a group without members goes with its last offset rather than at the
    next check, a member of no group commits with another code, topics that are asked for nothing are not listed."""
    group_states_in_any_case: bool = True
    """ListGroups takes the names of states in any case, rather than as it writes them."""
    producers_in_words: bool = True
    """DescribeProducers says in words what is wrong with a topic or its name, rather than that it is unknown."""

    scram_once_a_user: bool = True
    """A request may change the SCRAM credentials of a user once, rather than once for each mechanism; and the texts are
    a KRaft controller's."""
    feature_answers: Literal["zookeeper", "each", "whole"] = "whole"
    """UpdateFeatures is judged as with ZooKeeper, where there are no features, by a KRaft controller that answers for
    each feature, or by one that does all that was asked for or nothing."""

    newest_acl_operation: Literal[12, 14, 15] = 15
    """The newest operation that an access control entry may be about: 13 and 14 came with the resource type USER
    (KIP-373), 15 with transactions in two phases (KIP-939)."""
    acls_as_kraft: bool = True
    """CreateAcls and DeleteAcls check and answer as KRaft's controller does, rather than as the authorizers that kept
    their entries in ZooKeeper."""

    mutes_throttled: bool = True
    """Who breaks a quota is answered at once and then not heard for a while, rather than answered late (KIP-219)."""
    quota_checks: Literal["zookeeper", "kraft"] = "kraft"
    """Whose checks and texts altering and describing quotas have."""
    validation_is_charged: bool = True
    """Also creating topics and partitions that is only validated counts for a quota of mutations (KIP-599)."""

    described_text: bool = True
    """DescribeConfigs of a resource without an error, or that does not exist, has an empty text rather than none."""
    acl_text: bool = True
    """CreateAcls and DescribeAcls without an error have an empty text rather than none."""
    kraft_configs: bool = True
    """Changes of configs are checked and refused as by KRaft's controller, rather than as by a broker with
    ZooKeeper: other texts, and a bad value of a topic's config is INVALID_CONFIG."""
    sets_as_scala: bool = False
    """Refusals of changes of configs list their names as Set(a, b) rather than [a, b]."""
    logger_configs: bool = True
    """The levels of loggers are told and set as configs of a broker (KIP-412)."""
    client_metrics_configs: Literal["none", "set", "all"] = "all"
    """What is told of the configs of client metrics (KIP-714): there are none, those that are set, or all."""
    group_synonyms: bool = True
    """A group's configs are told with the broker's that stand for them, rather than as their own defaults."""
    tells_unregistered: bool = True
    """UnregisterBroker says in words that it knows no such broker (KAFKA-18859)."""

    unknown_version_lists_range: bool = True
    """ApiVersions in a version that is not served answers error 35 with its own range, rather than with nothing."""


BEHAVIOUR_NAMES = tuple(declared.name for declared in dataclasses.fields(Behaviour))
Moves = Sequence[tuple[str, Any]]  # (from this release on, this), oldest release first

# What each release does. The first row reaches back to the oldest, where the question may not arise.
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
    "cleaner_keeps_last_batch": (("0.8.2", False), ("4.0.0", True)),
    "eligible_leaders": (("0.8.2", False), ("4.1", True)),
    "transaction_version": (("0.8.2", 0), ("4.0.0", 2)),
    "verifies_transactions": (("0.8.2", False), ("3.6", True)),
    "own_epoch_begins_at_0": (("0.8.2", False), ("4.1", True)),
    "verifies_offsets": (("0.8.2", False), ("3.7", True)),
    "absent_group_code": (("0.8.2", 25), ("4.0.0", 22)),
    "hides_topics": (("0.8.2", False), ("0.10.1", True), ("1.0.1", False)),
    "offset_fetch_reads_group": (("0.8.2", True), ("1.0.1", False)),
    "creates_by_topic": (("0.8.2", False), ("2.0.0", True)),
    "describe_suffices": (("0.8.2", False), ("2.1", True)),
    "idempotence_of_cluster": (("0.8.2", True), ("2.8", False)),
    "group_configs": (("0.8.2", False), ("4.0.0", True)),
    "refusal_texts": (("0.8.2", "none"), ("2.3", "create"), ("2.8", "describe"), ("3.3", "alter")),
    "log_dirs_of_topics_asked": (("0.8.2", False), ("3.7", True)),
    "controls_as_kraft": (("0.8.2", False), ("3.3", True)),
    "topics_as_kraft": (("0.8.2", False), ("3.3", True)),
    "first_offsets": (("0.8.2", True), ("3.3", False)),
    "special_timestamps": (("0.8.2", False), ("3.0", True)),
    "cordoned_log_dirs": (("0.8.2", False), ("4.3", True)),
    "deletes_without_policy": (("0.8.2", False), ("4.2", True)),
    "in_sync_at_most_replicas": (("0.8.2", False), ("3.7", True)),
    "coordinator_awaits_topic": (("0.8.2", True),),
    "removes_unsynced": (("0.8.2", False), ("2.8", True)),
    "member_checks": (("0.8.2", "rebalance_first"), ("2.4", "given"), ("3.0", "all"), ("3.3", "unless_empty")),
    "heartbeats_before_sync": (("0.8.2", False), ("2.6", True)),
    "first_session_at_join": (("0.8.2", True), ("2.2", False), ("2.5", True)),
    "old_group_coordinator": (("0.8.2", True), ("4.0.0", False)),
    "group_states_in_any_case": (("0.8.2", False), ("3.8", True)),
    "producers_in_words": (("0.8.2", False), ("3.0", True)),
    "scram_once_a_user": (("0.8.2", False), ("3.3", True)),
    "feature_answers": (("0.8.2", "zookeeper"), ("3.3", "each"), ("4.0.0", "whole")),
    "newest_acl_operation": (("0.8.2", 12), ("3.3", 14), ("4.1", 15)),
    "acls_as_kraft": (("0.8.2", False), ("3.3", True)),
    "mutes_throttled": (("0.8.2", False), ("2.0.0", True)),
    "quota_checks": (("0.8.2", "zookeeper"), ("3.3", "kraft")),
    "validation_is_charged": (("0.8.2", False), ("3.3", True)),
    "described_text": (("0.8.2", False), ("2.7", True)),
    "acl_text": (("0.8.2", False), ("2.5", True)),
    "kraft_configs": (("0.8.2", False), ("3.3", True)),
    "sets_as_scala": (("0.8.2", True), ("4.2", False)),
    "logger_configs": (("0.8.2", False), ("2.4", True)),
    "client_metrics_configs": (("0.8.2", "none"), ("3.7", "set"), ("4.1", "all")),
    "group_synonyms": (("0.8.2", False), ("4.2", True)),
    "tells_unregistered": (("0.8.2", False), ("4.1", True)),
    "unknown_version_lists_range": (("0.8.2", False), ("2.4", True)),
}
