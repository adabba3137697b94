"""The names under which Prometheus is told what there is: Kafka's own where it has one.

Owns the table. Kafka's are written as the usual rules of the JMX exporter write its beans: domain, type and name in
small letters, joined by `_`, what counts with `_total`, and the rest of the bean as labels. Where a bean says
percentiles there is a histogram, in seconds, under a name that says so. `kafka_consumergroup_*` are kafka_exporter's.
What is of no Kafka begins with `ottla_`.
"""

from __future__ import annotations

from typing import NamedTuple

COUNTER, GAUGE, HISTOGRAM, SUMMARY = "counter", "gauge", "histogram", "summary"


class Family(NamedTuple):
    """One name: without `_total` where it is a counter. `labels` are all that its series may have."""

    name: str
    kind: str
    labels: tuple[str, ...]
    help: str

    @property
    def shown(self) -> str:
        """The name as series have it."""
        return f"{self.name}_total" if self.kind == COUNTER else self.name


_NODE = ("node",)
_PARTITION = ("topic", "partition")
_LAG = ("consumergroup", "topic", "partition")
_REQUESTS = "kafka_network_requestmetrics_"
_TOPICS = "kafka_server_brokertopicmetrics_"
_REPLICAS = "kafka_server_replicamanager_"
_LOG = "kafka_log_log_"
_CONTROLLER = "kafka_controller_kafkacontroller_"
_GROUPS = "kafka_coordinator_group_groupmetadatamanager_"
_SOCKETS = "kafka_server_socket_server_metrics_"

FAMILIES = (
    Family(_REQUESTS + "requests", COUNTER, ("request", "version"), "Requests that were handled, by API and version."),
    Family(_REQUESTS + "errors", COUNTER, ("request", "error"), "Error codes in answers, NONE among them, each one."),
    Family(
        _REQUESTS + "totaltime_seconds",
        HISTOGRAM,
        ("request",),
        "From when a request was read to when it was answered.",
    ),
    Family(_REQUESTS + "requestbytes", SUMMARY, ("request",), "Bytes of requests, without the four of their size."),
    Family("ottla_response_bytes", SUMMARY, ("request",), "Bytes of answers, likewise."),
    Family("ottla_requests_waiting", GAUGE, ("request",), "Requests that were begun and are not answered."),
    Family(
        "kafka_server_delayedoperationpurgatory_purgatorysize",
        GAUGE,
        ("delayedoperation",),
        "Requests that wait for something to happen: Fetch, Produce, Rebalance (JoinGroup and SyncGroup).",
    ),
    # What goes into topics and out of them: with the topic, and without it the sum of all topics there ever were.
    Family(_TOPICS + "messagesin", COUNTER, ("topic",), "Records that producers stored."),
    Family(_TOPICS + "bytesin", COUNTER, ("topic",), "Bytes of them, as they were sent."),
    Family(_TOPICS + "bytesout", COUNTER, ("topic",), "Bytes of records that Fetch answered."),
    Family(_TOPICS + "bytesrejected", COUNTER, ("topic",), "Bytes of batches that were too large."),
    Family(_TOPICS + "totalproducerequests", COUNTER, ("topic",), "Partitions in Produce requests."),
    Family(_TOPICS + "totalfetchrequests", COUNTER, ("topic",), "Partitions that Fetch requests read."),
    Family(_TOPICS + "failedproducerequests", COUNTER, ("topic",), "Those that failed as no client has to expect."),
    Family(_TOPICS + "failedfetchrequests", COUNTER, ("topic",), "Those that failed as no client has to expect."),
    Family(_TOPICS + "producemessageconversions", COUNTER, ("topic",), "Records brought to another format or codec."),
    Family(_TOPICS + "fetchmessageconversions", COUNTER, ("topic",), "Entries brought to an older format for Fetch."),
    Family(_LOG + "size", GAUGE, _PARTITION, "Bytes of a partition's segments."),
    Family(_LOG + "logstartoffset", GAUGE, _PARTITION, "The first offset of a partition."),
    Family(_LOG + "logendoffset", GAUGE, _PARTITION, "The offset behind its last one."),
    Family(_LOG + "numlogsegments", GAUGE, _PARTITION, "Its segments."),
    Family("kafka_log_logmanager_offlinelogdirectorycount", GAUGE, (), "Log directories that failed."),
    Family(_REPLICAS + "partitioncount", GAUGE, _NODE, "Partitions of which a node has a replica."),
    Family(_REPLICAS + "leadercount", GAUGE, _NODE, "Partitions that a node leads."),
    Family(_REPLICAS + "offlinereplicacount", GAUGE, _NODE, "Replicas of a node whose log directory failed."),
    Family(_REPLICAS + "underreplicatedpartitions", GAUGE, _NODE, "Partitions it leads with replicas out of sync."),
    Family(
        _REPLICAS + "underminisrpartitioncount", GAUGE, _NODE, "Partitions it leads with too few in sync to be written."
    ),
    Family(_REPLICAS + "atminisrpartitioncount", GAUGE, _NODE, "Partitions it leads with just enough in sync."),
    Family(_REPLICAS + "reassigningpartitions", GAUGE, _NODE, "Partitions it leads that are being reassigned."),
    Family(
        _REPLICAS + "produceridcount", GAUGE, (), "Producer ids that partitions know, as far as they were looked at."
    ),
    Family("kafka_server_kafkaserver_brokerstate", GAUGE, _NODE, "3 for a node that runs, 0 for one that is stopped."),
    Family("kafka_server_fetchsessioncache_numincrementalfetchsessions", GAUGE, (), "Fetch sessions."),
    Family(_SOCKETS + "connections", GAUGE, ("listener", "software", "version"), "Open connections, by client."),
    Family(_SOCKETS + "connection_creation", COUNTER, ("listener",), "Connections that were accepted."),
    Family(_SOCKETS + "connection_close", COUNTER, ("listener",), "Connections that are gone."),
    Family("ottla_protocol_violations", COUNTER, (), "Connections that were closed for what came, or by a fault."),
    Family(_CONTROLLER + "activecontrollercount", GAUGE, (), "1 while there is a controller."),
    Family(_CONTROLLER + "activebrokercount", GAUGE, (), "Nodes that run."),
    Family(_CONTROLLER + "fencedbrokercount", GAUGE, (), "Nodes that are stopped."),
    Family(_CONTROLLER + "globaltopiccount", GAUGE, (), "Topics."),
    Family(_CONTROLLER + "globalpartitioncount", GAUGE, (), "Partitions."),
    Family(_CONTROLLER + "offlinepartitionscount", GAUGE, (), "Partitions without a leader."),
    Family(_CONTROLLER + "preferredreplicaimbalancecount", GAUGE, (), "Partitions that others than the first lead."),
    Family(_GROUPS + "numgroups", GAUGE, (), "Groups."),
    Family(_GROUPS + "numgroupsempty", GAUGE, (), "Groups without members."),
    Family(_GROUPS + "numgroupspreparingrebalance", GAUGE, (), "Groups that wait for members to join."),
    Family(_GROUPS + "numgroupscompletingrebalance", GAUGE, (), "Groups that wait for their leader's assignment."),
    Family(_GROUPS + "numgroupsstable", GAUGE, (), "Groups that do their work."),
    Family(_GROUPS + "numgroupsdead", GAUGE, (), "Groups that are about to go."),
    Family(_GROUPS + "numoffsets", GAUGE, (), "Committed offsets."),
    Family("kafka_consumergroup_members", GAUGE, ("consumergroup",), "Members of a group."),
    Family("kafka_consumergroup_current_offset", GAUGE, _LAG, "What a group committed."),
    Family("kafka_consumergroup_lag", GAUGE, _LAG, "How many offsets are behind that, below the high watermark."),
    Family("ottla_transactions", GAUGE, ("state",), "Transactional ids, by the state of their transaction."),
    Family("ottla_faults", GAUGE, (), "Faults in force."),
    Family("ottla_fault_fired", COUNTER, ("fault", "action"), "How often a fault that is in force fired."),
    Family("ottla_recording", GAUGE, (), "1 while requests are recorded."),
    Family("ottla_recording_exchanges", COUNTER, (), "Requests in the newest recording."),
    Family("ottla_recording_dropped", COUNTER, (), "Requests that it lacks: they came too fast, or a ring lost them."),
    Family("ottla_event_loop_lag_seconds", HISTOGRAM, (), "How late the event loop came back to a timer of its own."),
    Family("ottla_build_info", GAUGE, ("version", "release", "cluster_id"), "1, for the broker that is asked."),
    Family("ottla_metrics_left_out", GAUGE, ("metric",), "Series that are not shown, as there are too many."),
)

BY_NAME = {family.name: family for family in FAMILIES}
