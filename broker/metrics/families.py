"""Metric families for Prometheus, with Kafka's names where Kafka has the metric.

Owns the table. Kafka's names follow the usual rules of the JMX exporter: domain, type and name of the bean in lower
case, joined by `_`, counters with `_total`, the other key properties as labels. A bean with percentiles becomes a
histogram; one of times is in seconds, with `_seconds` in its name. `kafka_consumergroup_*` are those of kafka_exporter.
Metrics that Kafka does not have begin with `ottla_`.
"""

from __future__ import annotations

from ...protocol.named import NamedTuple
from .authentications import AUTHENTICATIONS

COUNTER, GAUGE, HISTOGRAM, SUMMARY = "counter", "gauge", "histogram", "summary"


class Family(NamedTuple):
    """A metric family; `name` is without `_total` for a counter. `labels` are all labels of its series."""

    name: str
    kind: str
    labels: tuple[str, ...]
    help: str

    @property
    def shown(self) -> str:
        """The name of the series, with `_total` for a counter."""
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
_COORDINATOR = "kafka_server_group_coordinator_metrics_"
_SHARE_GROUPS = "kafka_server_sharegroupmetrics_"
_SHARE_PARTITIONS = "kafka_server_sharepartitionmetrics_"
_SHARE_SESSIONS = "kafka_server_sharesessioncache_"
_SHARE = ("group", "topic", "partition")
_SOCKETS = "kafka_server_socket_server_metrics_"

FAMILIES = (
    Family(_REQUESTS + "requests", COUNTER, ("request", "version"), "Handled requests, by API and version."),
    Family(
        _REQUESTS + "errors",
        COUNTER,
        ("request", "error"),
        "Error codes in responses, including NONE; each code counts.",
    ),
    Family(
        _REQUESTS + "totaltime_seconds",
        HISTOGRAM,
        ("request",),
        "Time from reading a request to its response.",
    ),
    Family(_REQUESTS + "requestbytes", SUMMARY, ("request",), "Bytes of requests, without the 4 bytes of the size."),
    Family("ottla_response_bytes", SUMMARY, ("request",), "Bytes of responses, without the 4 bytes of the size."),
    Family("ottla_principal_connections", GAUGE, ("listener", "principal"), "Open connections, by principal."),
    Family("ottla_requests_waiting", GAUGE, ("request",), "Requests in progress: no response yet."),
    Family(
        "kafka_server_delayedoperationpurgatory_purgatorysize",
        GAUGE,
        ("delayedoperation",),
        "Delayed requests in purgatory: Fetch, Produce, Rebalance (JoinGroup and SyncGroup).",
    ),
    # Traffic of topics: with a topic label, and without it the sum over all topics, deleted ones included.
    Family(_TOPICS + "messagesin", COUNTER, ("topic",), "Records appended by producers."),
    Family(_TOPICS + "bytesin", COUNTER, ("topic",), "Bytes of record batches from producers, as sent."),
    Family(_TOPICS + "bytesout", COUNTER, ("topic",), "Bytes of records in Fetch responses."),
    Family(_TOPICS + "bytesrejected", COUNTER, ("topic",), "Bytes of batches refused as too large."),
    Family(_TOPICS + "totalproducerequests", COUNTER, ("topic",), "Partitions in Produce requests."),
    Family(_TOPICS + "totalfetchrequests", COUNTER, ("topic",), "Partitions read by Fetch requests."),
    Family(
        _TOPICS + "failedproducerequests",
        COUNTER,
        ("topic",),
        "Partitions in Produce requests that failed with an unexpected error.",
    ),
    Family(
        _TOPICS + "failedfetchrequests",
        COUNTER,
        ("topic",),
        "Partitions in Fetch requests that failed with an unexpected error.",
    ),
    Family(
        _TOPICS + "producemessageconversions",
        COUNTER,
        ("topic",),
        "Records converted to another format or codec by Produce.",
    ),
    Family(_TOPICS + "fetchmessageconversions", COUNTER, ("topic",), "Batches converted to an older format for Fetch."),
    Family(_TOPICS + "totalsharefetchrequests", COUNTER, ("topic",), "ShareFetch requests that read the topic."),
    Family(_TOPICS + "failedsharefetchrequests", COUNTER, ("topic",), "ShareFetch requests that failed in the topic."),
    Family(
        _TOPICS + "totalshareacknowledgementrequests", COUNTER, ("topic",), "Requests that acknowledge in the topic."
    ),
    Family(
        _TOPICS + "failedshareacknowledgementrequests",
        COUNTER,
        ("topic",),
        "Requests whose acknowledgements in the topic failed.",
    ),
    Family(_LOG + "size", GAUGE, _PARTITION, "Bytes of a partition's segments."),
    Family(_LOG + "logstartoffset", GAUGE, _PARTITION, "Log start offset of a partition."),
    Family(_LOG + "logendoffset", GAUGE, _PARTITION, "Log end offset of a partition."),
    Family(_LOG + "numlogsegments", GAUGE, _PARTITION, "Segments of a partition."),
    Family("kafka_log_logmanager_offlinelogdirectorycount", GAUGE, (), "Offline log directories."),
    Family(_REPLICAS + "partitioncount", GAUGE, _NODE, "Partitions with a replica on the node."),
    Family(_REPLICAS + "leadercount", GAUGE, _NODE, "Partitions led by the node."),
    Family(_REPLICAS + "offlinereplicacount", GAUGE, _NODE, "Replicas of the node in offline log directories."),
    Family(
        _REPLICAS + "underreplicatedpartitions", GAUGE, _NODE, "Partitions led by the node with replicas out of sync."
    ),
    Family(
        _REPLICAS + "underminisrpartitioncount",
        GAUGE,
        _NODE,
        "Partitions led by the node with fewer in-sync replicas than min.insync.replicas.",
    ),
    Family(
        _REPLICAS + "atminisrpartitioncount",
        GAUGE,
        _NODE,
        "Partitions led by the node with exactly min.insync.replicas in sync.",
    ),
    Family(
        _REPLICAS + "reassigningpartitions", GAUGE, _NODE, "Partitions led by the node with a reassignment in progress."
    ),
    Family(
        _REPLICAS + "produceridcount",
        GAUGE,
        (),
        "Producer ids in the producer state of partitions whose state is loaded.",
    ),
    Family("kafka_server_kafkaserver_brokerstate", GAUGE, _NODE, "3 for a running node, 0 for a stopped one."),
    Family("kafka_server_fetchsessioncache_numincrementalfetchsessions", GAUGE, (), "Incremental fetch sessions."),
    Family(
        _SOCKETS + "connections", GAUGE, ("listener", "software", "version"), "Open connections, by client library."
    ),
    Family(_SOCKETS + "connection_creation", COUNTER, ("listener",), "Accepted connections."),
    Family(_SOCKETS + "connection_close", COUNTER, ("listener",), "Closed connections."),
    *(Family(_SOCKETS + name, COUNTER, ("listener",), text) for name, text in AUTHENTICATIONS.items()),
    Family(
        "ottla_protocol_violations", COUNTER, (), "Connections closed because of invalid data, or by an injected fault."
    ),
    Family(_CONTROLLER + "activecontrollercount", GAUGE, (), "1 if there is a controller, else 0."),
    Family(_CONTROLLER + "activebrokercount", GAUGE, (), "Running nodes."),
    Family(_CONTROLLER + "fencedbrokercount", GAUGE, (), "Stopped nodes."),
    Family(_CONTROLLER + "globaltopiccount", GAUGE, (), "Topics."),
    Family(_CONTROLLER + "globalpartitioncount", GAUGE, (), "Partitions."),
    Family(_CONTROLLER + "offlinepartitionscount", GAUGE, (), "Partitions without a leader."),
    Family(_CONTROLLER + "preferredreplicaimbalancecount", GAUGE, (), "Partitions not led by their preferred replica."),
    Family(_GROUPS + "numgroups", GAUGE, (), "Groups."),
    Family(_COORDINATOR + "groups", GAUGE, ("protocol",), "Groups by type: classic, consumer, share or streams."),
    Family(_COORDINATOR + "consumer_groups", GAUGE, ("state",), "Groups of the consumer protocol by state."),
    Family(_COORDINATOR + "share_groups", GAUGE, ("state",), "Share groups by state."),
    Family(_COORDINATOR + "streams_groups", GAUGE, ("state",), "Streams groups by state."),
    Family(
        _SHARE_GROUPS + "recordacknowledgements", COUNTER, ("acktype",), "Acknowledged records by type, such as Accept."
    ),
    Family(
        _SHARE_GROUPS + "partitionloadtime_seconds", HISTOGRAM, (), "Time until a share partition has its stored state."
    ),
    Family(
        _SHARE_GROUPS + "topicpartitionsacquiretime_seconds",
        HISTOGRAM,
        ("group",),
        "Time until a ShareFetch acquires records, or ends without that.",
    ),
    Family(
        _SHARE_GROUPS + "requesttopicpartitionsfetchratio",
        HISTOGRAM,
        ("group",),
        "Percent of the partitions of a ShareFetch of which it can acquire records.",
    ),
    Family(_SHARE_GROUPS + "deadletterqueuerecordcount", COUNTER, ("group",), "Records written to dead-letter queues."),
    Family(
        _SHARE_GROUPS + "deadletterqueuetotalproducerequests", COUNTER, ("group",), "Batches for dead-letter queues."
    ),
    Family(
        _SHARE_GROUPS + "deadletterqueuefailedproducerequests",
        COUNTER,
        ("group",),
        "Batches for dead-letter queues that were refused.",
    ),
    Family(
        _SHARE_PARTITIONS + "inflightmessagecount", GAUGE, _SHARE, "Records of a share partition that are in flight."
    ),
    Family(_SHARE_PARTITIONS + "inflightbatchcount", GAUGE, _SHARE, "Batches of a share partition that are in flight."),
    Family(
        _SHARE_PARTITIONS + "inflightbatchmessagecount",
        HISTOGRAM,
        _SHARE,
        "Records of the batches that came into flight.",
    ),
    Family(
        _SHARE_PARTITIONS + "acquisitionlocktimeout", COUNTER, _SHARE, "Records whose acquisition lock has expired."
    ),
    Family(_SHARE_SESSIONS + "sharesessionscount", GAUGE, (), "Share sessions."),
    Family(_SHARE_SESSIONS + "sharepartitionscount", GAUGE, (), "Partitions in all share sessions."),
    Family(
        "kafka_server_share_coordinator_metrics_write", COUNTER, (), "Calls that store the state of a share partition."
    ),
    Family(_GROUPS + "numgroupsempty", GAUGE, (), "Classic groups in state Empty."),
    Family(_GROUPS + "numgroupspreparingrebalance", GAUGE, (), "Classic groups in state PreparingRebalance."),
    Family(_GROUPS + "numgroupscompletingrebalance", GAUGE, (), "Classic groups in state CompletingRebalance."),
    Family(_GROUPS + "numgroupsstable", GAUGE, (), "Classic groups in state Stable."),
    Family(_GROUPS + "numgroupsdead", GAUGE, (), "Classic groups in state Dead."),
    Family(_GROUPS + "numoffsets", GAUGE, (), "Committed offsets."),
    Family("kafka_consumergroup_members", GAUGE, ("consumergroup",), "Members of a group."),
    Family("kafka_consumergroup_current_offset", GAUGE, _LAG, "Committed offset of a group."),
    Family("kafka_consumergroup_lag", GAUGE, _LAG, "Offsets between the committed offset and the high watermark."),
    Family("ottla_transactions", GAUGE, ("state",), "Transactional ids, by transaction state."),
    Family("ottla_faults", GAUGE, (), "Fault rules."),
    Family("ottla_fault_fired", COUNTER, ("fault", "action"), "How often a present fault rule fired."),
    Family("ottla_recording", GAUGE, (), "1 while a recording is running, else 0."),
    Family("ottla_recording_exchanges", COUNTER, (), "Exchanges in the newest recording."),
    Family(
        "ottla_recording_dropped",
        COUNTER,
        (),
        "Exchanges missing in the newest recording: dropped under load or evicted by its ring.",
    ),
    Family("ottla_event_loop_lag_seconds", HISTOGRAM, (), "Delay of a periodic timer on the event loop."),
    Family(
        "ottla_build_info", GAUGE, ("version", "release", "cluster_id"), "Always 1; the labels describe the broker."
    ),
    Family("ottla_metrics_left_out", GAUGE, ("metric",), "Series left out because there are too many."),
)

BY_NAME = {family.name: family for family in FAMILIES}
