"""The expected differences between Apache Kafka's responses and ours, with their reasons: one table."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

from call_values import NO_PATHS


class Reason(NamedTuple):
    """An expected difference: of these APIs, at paths that match, if `holds(theirs, ours)` and `about(request)`."""

    apis: str
    path: str
    text: str
    holds: Callable[[Any, Any], bool] = lambda theirs, ours: True
    releases: tuple[str, ...] = ()
    about: Callable[[Any], bool] = lambda request: True


class Reasons:
    """The table with its look-up."""

    def __init__(self, reasons: list[Reason]) -> None:
        self._reasons = reasons

    def of(self, release: str, api: str, path: str, theirs: Any, ours: Any, request: Any = None) -> str | None:
        """Returns the text of the first reason that explains a difference between responses."""
        for reason in self._reasons:
            if reason.releases and release not in reason.releases:
                continue
            if api not in reason.apis.split() or not re.search(reason.path, path):
                continue
            if reason.holds(theirs, ours) and reason.about(request):
                return reason.text
        return None


def _name_in(message: Any) -> str:
    """Returns the config that a refusal is about."""
    found = re.search(r"(?:name: |configuration )(\S+?)[:.]?(?: |$)", str(message))
    return found[1] if found else ""


def _without_partitions(theirs: Any, ours: Any) -> bool:
    return (
        theirs == "<absent>"
        and isinstance(ours, dict)
        and [] in (ours.get("partitions"), ours.get("partition_responses"))
    )


def _quotas_in(message: Any) -> set[str]:
    """Returns the quotas that a refusal is about."""
    return set(re.findall(r"\w+_(?:rate|percentage)\b", str(message)))


def _keys_in(message: Any) -> set[str]:
    """Returns the configs that a refusal of duplicates is about."""
    return set(str(message).partition(" : ")[2].split(","))


def _of_voters(result: Any) -> bool:
    return re.search(r"kraft\.version", str(result)) is not None


def _has_failed(theirs: Any) -> bool:
    return isinstance(theirs, dict) and theirs.get("error_code") == -1


def _operations(request: Any) -> set[int]:
    """Returns the operations on configs in a request."""
    return {config.config_operation for one in request.resources for config in one.configs}


def _unknown_kinds(request: Any) -> Counter[str]:
    """Returns how often resources of unknown types have each name."""
    known = (2, 4, 8, 16, 32)
    return Counter(one.resource_name for one in request.resources if one.resource_type not in known)


def _of_unseen_group(theirs: Any, ours: Any) -> bool:
    if isinstance(ours, dict):
        return theirs == "<absent>" and ours["group_state"] in ("", "Empty") and ours["protocol_type"] == ""
    is_reported = (theirs, ours) in (("Dead", "Empty"), (69, 0)) or (ours is None and "not found" in str(theirs))
    return is_reported or (theirs == -(1 << 31) and isinstance(ours, int))  # the operations on a missing group


def _of_encoded_user(theirs: Any, ours: Any) -> bool:
    users = [one["user"] for one in (theirs, ours) if isinstance(one, dict)]
    return all("%3A" in user or ":" in user for user in users)


OF_A_PREVIEW = frozenset(
    """broker.heartbeat.interval.ms broker.session.timeout.ms controller.listener.names
    controller.quorum.append.linger.ms controller.quorum.election.backoff.max.ms controller.quorum.election.timeout.ms
    controller.quorum.fetch.timeout.ms controller.quorum.request.timeout.ms controller.quorum.retry.backoff.ms
    controller.quorum.voters initial.broker.registration.timeout.ms metadata.log.dir node.id port process.roles
    sasl.mechanism.controller.protocol""".split()
)
UNKNOWN_KIND = "Unexpected resource type UNKNOWN"
LOGGER_KIND = "AlterConfigs is deprecated and does not support the resource type BROKER_LOGGER"
FIXED = "a static quorum of Kafka can upgrade kraft.version; our voters are fixed"
_REFUSALS = {29, 30, 31}
_OF_THE_REQUEST = (
    "duplicate config keys|Null value not supported|Unknown resource type|Unknown operations type"
    "|Unknown config name|is not allowed for config key|Invalid (config )?value|Unexpected broker id|Node id must be"
)


def _is_refused_by_right(theirs: Any, ours: Any) -> bool:
    """Returns whether ours refuses for a missing right, with its code or its text, and Kafka for the request."""
    if isinstance(ours, int):
        return ours in _REFUSALS and theirs in (35, 40, 42)
    is_refusal = ours is None or str(ours).endswith("authorization failed.")
    return is_refusal and re.search(_OF_THE_REQUEST, str(theirs)) is not None


REASONS = Reasons(
    [
        Reason(
            "AlterConfigs IncrementalAlterConfigs",
            r"\.error_(code|message)$",
            "a user without the right is refused before the request is checked: refusals show values of the broker",
            _is_refused_by_right,
        ),
        Reason(
            "IncrementalAlterConfigs",
            r"\.error_(code|message)$",
            "KRaft's controller fails the whole request unexpectedly when one operation is unknown",
            lambda theirs, ours: theirs in (-1, None) and (ours in _REFUSALS or str(ours).endswith("failed.")),
            about=lambda request: bool(_operations(request) - set(range(4))),
        ),
        Reason(
            "CreateAcls DeleteAcls DescribeAcls AlterUserScramCredentials AlterClientQuotas CreateTopics "
            "UpdateFeatures ElectLeaders AlterPartitionReassignments ListPartitionReassignments CreatePartitions "
            "UnregisterBroker",
            r"error_message$",
            "Kafka's refusal shows an object of its process",
            lambda theirs, ours: (
                str(theirs).startswith("Request Request(") and str(ours) == "Cluster authorization failed."
            ),
        ),
        Reason(
            "DescribeUserScramCredentials",
            "^$",
            "Kafka does not respond to a refused request for all users",
            lambda theirs, ours: theirs == "no response: TimeoutError",
        ),
        Reason(
            "CreateDelegationToken",
            "principal_name$",
            "an owner with a name and no type is refused with that reason, where Kafka fails",
            lambda theirs, ours: theirs == "ANONYMOUS",
            about=lambda request: bool(request.owner_principal_name) and not request.owner_principal_type,
        ),
        Reason(
            "CreateDelegationToken",
            "error_code$",
            "an owner with a name and no type is refused with that reason, where Kafka fails",
            lambda theirs, ours: (theirs, ours) == (-1, 67),
        ),
        Reason(
            "CreateTopics",
            r"\.topic_id$",
            "a topic that is only validated has no id with us, and with KRaft one that no topic ever gets",
            lambda theirs, ours: ours == bytes(16),
        ),
        Reason(
            "CreateTopics AlterConfigs IncrementalAlterConfigs",
            r"\.error_message$",
            "of several invalid configs another is reported first: Kafka takes them out of a hash table",
            lambda theirs, ours: "onfig" in str(theirs) and "onfig" in str(ours) and _name_in(theirs) != _name_in(ours),
        ),
        Reason(
            "Produce ListOffsets OffsetCommit OffsetDelete DeleteRecords OffsetFetch OffsetForLeaderEpoch",
            r"\[\]$",
            "topics that are named without partitions are left out by Kafka",
            _without_partitions,
        ),
        Reason(
            "DescribeConfigs",
            r"\.configs\[(advertised\.listeners|listeners|log\.dirs|listener\.security\.protocol\.map|process\.roles|"
            r"controller\.listener\.names|controller\.quorum\.(voters|bootstrap\.servers)|inter\.broker\.listener\.name|"
            r"zookeeper\.connect)\]",
            "ports and folders are each broker's own, and there is neither a controller beside ours nor a ZooKeeper",
        ),
        Reason(
            "DescribeConfigs",
            r"\.configs\[(offsets\.topic|transaction\.state\.log|share\.coordinator\.state\.topic)\."
            r"(replicatio(n\.factor)?|min\.isr)\]",  # long names are cut
            "internal topics have one replica by default, for one node; a Kafka has three",
        ),
        Reason(
            "DescribeConfigs", r"\.configs\[node\.id\]\.synonyms", "up to 3.9 there is a default -1, which is not ours"
        ),
        Reason(
            "DescribeConfigs",
            r"\.configs\[\S*replication\.throttled\.rate\]\.read_only$",
            "up to 4.1 it was reported as read-only although it can be changed",
            releases=("2.8", "3.9"),
        ),
        Reason(
            "DescribeConfigs",
            r"\.is_default$",
            "Kafka lost this field of v0 when its messages became generated, and sends false for all",
            lambda theirs, ours: theirs is False,
        ),
        Reason(
            "UpdateFeatures",
            r"^\.results\[kraft\.version\]",
            FIXED,
            releases=("3.9", "4.3", "4.4"),
        ),
        Reason(
            "UpdateFeatures",
            r"^\.(error_(code|message)|results\[\])$",  # of all features
            FIXED,
            lambda theirs, ours: theirs == 95 or _of_voters(theirs) or (theirs, ours) == (0, 95) or _of_voters(ours),
            ("4.3", "4.4"),
            lambda request: any(one.feature == "kraft.version" for one in request.feature_updates),
        ),
        Reason(
            "DescribeUserScramCredentials",
            r"\.results\[\]$",
            "with ZooKeeper users are listed by their encoded names there, with % in them",
            _of_encoded_user,
            ("2.8",),
        ),
        Reason(
            "AlterClientQuotas",
            r"\.error_message$",
            "with ZooKeeper entities are named by their encoded names there, with % in them",
            lambda theirs, ours: str(theirs).replace("%3A", ":") == ours,
            ("2.8",),
        ),
        Reason(
            "AlterClientQuotas",
            r"\.error_message$",
            "of several invalid quotas another is reported first: Kafka takes them out of a hash table",
            lambda theirs, ours: (
                len(_quotas_in(theirs)) == len(_quotas_in(ours)) == 1 and _quotas_in(theirs) != _quotas_in(ours)
            ),
        ),
        Reason(
            "AlterConfigs",
            r"\.error_(code|message)$",
            "with ZooKeeper a value that is null makes the whole request fail unexpectedly",
            lambda theirs, ours: theirs in (-1, None) and ours not in (0, None),
            ("2.8",),
            lambda request: any(config.value is None for one in request.resources for config in one.configs),
        ),
        Reason(
            "AlterConfigs IncrementalAlterConfigs",
            r"^\.responses\[16,.*\.error_(code|message)$",
            "up to 3.9 what is no number in the configs of client metrics fails unexpectedly",
            lambda theirs, ours: theirs in (-1, None) and ours not in (0, None),
            ("3.9",),
        ),
        Reason(
            "DescribeConfigs",
            r"\.configs\[\]$",
            "2.8 has configs of a preview of KRaft that it does not document",
            lambda theirs, ours: ours == "<absent>" and theirs["name"] in OF_A_PREVIEW,
            ("2.8",),
        ),
        Reason(
            "IncrementalAlterConfigs",
            r"^\.responses\[2,\.?\.?\]\.error_(code|message)$",
            "a topic's name that is no path of ZooKeeper's is first met as that",
            lambda theirs, ours: theirs == 42 or re.search("Path must not end|Invalid path", str(theirs)) is not None,
            ("2.8",),
        ),
        Reason(
            "IncrementalAlterConfigs",
            r"^\.responses\[8,[^]]*\]\.error_message$",
            "for loggers of another node Kafka's error names its own id in place of the one that was sent",
            lambda theirs, ours: (
                str(theirs) == "Unexpected node id. Expected 1, but received 1"
                and str(ours).startswith("Unexpected node id. Expected 1, but received ")
            ),
            ("3.9", "4.3", "4.4"),
        ),
        Reason(
            "IncrementalAlterConfigs",
            r"\.error_(code|message)$",
            "KRaft's controller fails the whole request unexpectedly when one operation is unknown",
            lambda theirs, ours: theirs in (-1, None) and (ours == 42 or "Unknown operations type" in str(ours)),
            ("3.9", "4.3", "4.4"),
            lambda request: not {0, 1, 2, 3} >= _operations(request),
        ),
        Reason(
            "IncrementalAlterConfigs",
            r"\.error_(code|message)$",
            "with ZooKeeper an unknown operation fails unexpectedly",
            lambda theirs, ours: theirs in (-1, None) and (ours == 42 or "Unknown operations type" in str(ours)),
            ("2.8",),
            lambda request: not {0, 1, 2, 3} >= _operations(request),
        ),
        Reason(
            "AlterConfigs IncrementalAlterConfigs CreateTopics",
            r"\.error_code$",
            "of several invalid configs another is reported first, which with ZooKeeper may have another code",
            lambda theirs, ours: {theirs, ours} == {40, 42},
            ("2.8",),
            lambda request: any(
                len(one.configs) > 1 for one in getattr(request, "resources", None) or getattr(request, "topics", ())
            ),
        ),
        Reason(
            "AlterConfigs",
            r"\.error_message$",
            "of several kinds of resources that cannot be changed another is reported first: Kafka hashes them",
            lambda theirs, ours: {theirs, ours} == {UNKNOWN_KIND, LOGGER_KIND},
            ("2.8",),
        ),
        Reason(
            "IncrementalAlterConfigs",
            r"\.error_(code|message)$",
            "with ZooKeeper it fails unexpectedly to add to a config that there is not, or to take from it",
            lambda theirs, ours: theirs in (-1, None) and (ours == 40 or "Unknown config name" in str(ours)),
            ("2.8",),
            lambda request: bool({2, 3} & _operations(request)),
        ),
        Reason(
            "IncrementalAlterConfigs",
            r"\.error_message$",
            "configs that are listed twice are reported in the order of a hash table",
            lambda theirs, ours: "duplicate config keys" in str(theirs) and _keys_in(theirs) == _keys_in(ours),
            ("2.8",),
        ),
        Reason(
            "IncrementalAlterConfigs",
            r"^\.responses\[4,.*\.error_(code|message)$",
            "up to 4.1 the throttled rates of replication are no configs to which something can be added",
            lambda theirs, ours: theirs in (-1, None),
            ("2.8", "3.9"),
            lambda request: any(
                config.name.endswith(".replication.throttled.rate") and config.config_operation in (2, 3)
                for one in request.resources
                for config in one.configs
            ),
        ),
        Reason(
            "DescribeConfigs IncrementalAlterConfigs",
            r"^\.(results|responses)\[8,",
            "that Kafka is started without Log4j, by which it knows loggers",
            lambda theirs, ours: theirs in (-1, None, "<absent>"),
            ("2.8", "3.9"),
        ),
        Reason(
            "IncrementalAlterConfigs",
            r"\.error_(code|message)$",
            "of several invalid changes the first is reported there; here an unknown operation comes first",
            lambda theirs, ours: theirs not in (0, None) and (ours == 42 or "Unknown operations type" in str(ours)),
            ("3.9",),
            lambda request: not {0, 1, 2, 3} >= _operations(request),
        ),
        Reason(
            "DescribeClientQuotas",
            r"^\.(error_code|error_message|entries)$",
            "with ZooKeeper the quotas of an entity without a name are at no path, and the request fails unexpectedly",
            lambda theirs, ours: theirs in (-1, None),
            ("2.8",),
            lambda request: any(one.match_type == 0 and one.match == "" for one in request.components),
        ),
        Reason(
            "CreatePartitions",
            r"\.error_(code|message)$",
            "with ZooKeeper a name that is no path there makes the whole request fail unexpectedly",
            lambda theirs, ours: theirs in (-1, None),
            ("2.8",),
            lambda request: all(topic.name in NO_PATHS for topic in request.topics),
        ),
        Reason(
            "ListOffsets",
            r"\.error_code$",
            "v0 fails unexpectedly there when a negative number of offsets is requested",
            lambda theirs, ours: (theirs, ours) == (-1, 0),
            about=lambda request: any(
                partition.max_num_offsets < 0 for topic in request.topics for partition in topic.partitions
            ),
        ),
        Reason(
            "ListOffsets",
            r"\.old_style_offsets",
            "v0 uses the times of files there, and of records here: a copied directory gives the same offsets",
        ),
        Reason(
            "ListOffsets",
            r"\.(offset|timestamp|leader_epoch)$",
            "the largest timestamp is looked for in records that DeleteRecords took away, too",
            lambda theirs, ours: isinstance(theirs, int) and theirs >= 0 and theirs != ours,
            ("3.9", "4.3", "4.4"),
            lambda request: any(one.timestamp == -3 for topic in request.topics for one in topic.partitions),
        ),
        Reason(
            "FindCoordinator",
            r"\.error_(code|message)$",
            "share groups are not served, and their coordinators refused as those of a kind that there is not",
            lambda theirs, ours: theirs in (15, "") and (ours == 42 or "malformed" in str(ours)),
            ("3.9", "4.3", "4.4"),
            lambda request: request.key_type == 2,
        ),
        Reason(
            "OffsetForLeaderEpoch ListOffsets DeleteRecords",
            r"__(consumer_offsets|transaction_state)\].*\.(end_offset|offset|low_watermark|timestamp)$",
            "the number of records in a coordinator's log may differ: it may rewrite an unchanged one",
        ),
        Reason(
            "AlterConfigs IncrementalAlterConfigs",
            r"^$",
            "resources of one name and of two unknown types are one to Kafka, which sends no response",
            lambda theirs, ours: "no response" in str(theirs),
            ("3.9", "4.3", "4.4"),
            lambda request: any(count > 1 for count in _unknown_kinds(request).values()),
        ),
        Reason(
            "DescribeTopicPartitions",
            r"^\.(topics|next_cursor)",
            "Kafka fails unexpectedly when one of the names is empty",
            lambda theirs, ours: theirs in (-1, -(1 << 31), bytes(16), "<absent>", None) or _has_failed(theirs),
            ("3.9", "4.3", "4.4"),
            lambda request: "" in {topic.name for topic in request.topics},
        ),
        Reason(
            "DescribeConfigs",
            r"^\.results\[16,.*\.configs\[\]$",
            "Kafka up to 3.9 returns all configs of client metrics, whichever were requested",
            lambda theirs, ours: ours == "<absent>",
            ("3.9",),
        ),
        Reason(
            "OffsetFetch",
            r"^$",
            "Kafka up to 3.9 sends no response to a request for no group",
            lambda theirs, ours: "no response" in str(theirs) and isinstance(ours, dict) and not ours["groups"],
            ("3.9",),
        ),
        Reason(
            "DescribeGroups ListGroups",
            r"\.groups\[",
            "the group of a commit whose metadata is too long is seen there from the next write to the log on",
            _of_unseen_group,
            ("4.3", "4.4"),
        ),
        Reason(
            "DescribeLogDirs",
            r"\.partition_size$",
            "what a topic has compressed is a little larger or smaller with another implementation of the codec",
            lambda theirs, ours: min(theirs, ours) > 0 and abs(theirs - ours) < 0.2 * ours,
        ),
        Reason(
            "DescribeLogDirs",
            r"__consumer_offsets.*\.partition_size$",
            "what a coordinator writes and when is its own; from 4.2 on Kafka keeps topic ids with offsets, too",
        ),
        Reason(
            "IncrementalAlterConfigs",
            r"\.error_message$",
            "of several configs that are no lists another is reported first: Kafka takes them out of a hash table",
            lambda theirs, ours: all("its type is not LIST" in str(text) for text in (theirs, ours)),
        ),
    ]
)


def _on_absent_nodes(theirs: Any, ours: Any) -> bool:
    """Returns whether it is about the topic v of the calls, which exists at the second request."""
    result = ("TimedOut", "TIMED_OUT", "Error 7]", "AlreadyExists", "already exists", "ALREADY_EXISTS", "Error 36]")
    is_reported = any(word in str(theirs) for word in result) or theirs in (7, 36) or "no such broker" in str(ours)
    left_out = "'name': 'v'" in str(ours) or "'topic': 'v'" in str(ours) or ours == "UNSTEADY"
    return is_reported or (theirs == "<absent>" and left_out)


def _hidden(theirs: Any, ours: Any) -> bool:
    """Returns whether it is about the topic v of the calls, whose only replica is on a missing node."""
    return theirs == "<absent>" and (ours == "v" or "'topic': 'v'" in str(ours) or "'name': 'v'" in str(ours))


BETWEEN_BROKERS = ("LeaderAndIsr", "StopReplica", "UpdateMetadata", "ControlledShutdown", "AlterPartition$")
NOT_SERVED = (
    *BETWEEN_BROKERS,
    "ConsumerGroup",
    "Share",
    "Streams",
)
NOT_SERVED_KEYS = (
    "4",
    "5",
    "6",
    "7",
    "56",
    "68",
    "69",
    *map(str, range(76, 80)),
    *map(str, range(83, 93)),
)
CLIENT_REASONS = Reasons(
    [
        Reason(
            "api_versions get_broker_version_data",
            r"\.(\w*({})\w*$|api_versions\.({})$)".format("|".join(NOT_SERVED), "|".join(NOT_SERVED_KEYS)),
            "SASL, the later group protocols and requests between brokers are not served",
            lambda theirs, ours: ours == "<absent>",
        ),
        Reason(
            "create_topics",
            "",
            "with ZooKeeper a topic is made also on nodes that there are not, and waited for in vain",
            _on_absent_nodes,
            ("2.8",),
        ),
        Reason(
            "list_topics describe_topics elect_leaders",
            "",
            "with ZooKeeper Kafka hides a topic that no node can lead; with us it is there without a leader",
            _hidden,
            ("2.8",),
        ),
        Reason("describe_features", r"\.finalized_epoch$", "the metadata logs do not hold the same records"),
        Reason(
            "create_topics",
            r"\.topic_id$",
            "a topic that is only validated has no id with us, and with KRaft one that no topic ever gets",
            lambda theirs, ours: ours in (None, bytes(16)),
        ),
        Reason(
            "describe_metadata_quorum",
            r"\.(high_watermark|log_end_offset)$",
            "the metadata logs do not hold the same records",
        ),
        Reason(
            "describe_metadata_quorum",
            r"\.listeners",
            "our controller is the broker, and listens where that does",
        ),
    ]
)
