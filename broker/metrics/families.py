"""Metric families for Prometheus, with Kafka's names where Kafka has the metric.

Owns the table. Kafka's names follow the usual rules of the JMX exporter: domain, type and name of the bean in lower
case, joined by `_`, counters with `_total`, the other key properties as labels. A bean with percentiles becomes a
histogram; one of times is in seconds, with `_seconds` in its name. `kafka_consumergroup_*` are those of kafka_exporter.
Metrics that Kafka does not have begin with `ottla_`.
"""

from __future__ import annotations

from collections.abc import Iterator

from ...protocol.named import NamedTuple

COUNTER, HISTOGRAM, SUMMARY = "counter", "histogram", "summary"  # and "gauge"


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


_TABLE = """
kafka_network_requestmetrics_
  requests{request,version} counter Handled requests, by API and version.
  errors{request,error} counter Error codes in responses, including NONE; each code counts.
  totaltime_seconds{request} histogram Time from reading a request to its response.
  requestbytes{request} summary Bytes of requests, without the 4 bytes of the size.
ottla_
  response_bytes{request} summary Bytes of responses, without the 4 bytes of the size.
  principal_connections{listener,principal} gauge Open connections, by principal.
  requests_waiting{request} gauge Requests in progress: no response yet.
kafka_server_delayedoperationpurgatory_
  purgatorysize{delayedoperation} gauge Delayed requests in purgatory: Fetch, Produce, Rebalance \
(JoinGroup and SyncGroup).
kafka_server_brokertopicmetrics_
  messagesin{topic} counter Records appended by producers.
  bytesin{topic} counter Bytes of record batches from producers, as sent.
  bytesout{topic} counter Bytes of records in Fetch responses.
  bytesrejected{topic} counter Bytes of batches refused as too large.
  totalproducerequests{topic} counter Partitions in Produce requests.
  totalfetchrequests{topic} counter Partitions read by Fetch requests.
  failedproducerequests{topic} counter Partitions in Produce requests that failed with an unexpected error.
  failedfetchrequests{topic} counter Partitions in Fetch requests that failed with an unexpected error.
  producemessageconversions{topic} counter Records converted to another format or codec by Produce.
  fetchmessageconversions{topic} counter Batches converted to an older format for Fetch.
  totalsharefetchrequests{topic} counter ShareFetch requests that read the topic.
  failedsharefetchrequests{topic} counter ShareFetch requests that failed in the topic.
  totalshareacknowledgementrequests{topic} counter Requests that acknowledge in the topic.
  failedshareacknowledgementrequests{topic} counter Requests whose acknowledgements in the topic failed.
kafka_log_log_
  size{topic,partition} gauge Bytes of a partition's segments.
  logstartoffset{topic,partition} gauge Log start offset of a partition.
  logendoffset{topic,partition} gauge Log end offset of a partition.
  numlogsegments{topic,partition} gauge Segments of a partition.
kafka_log_logmanager_
  offlinelogdirectorycount gauge Offline log directories.
kafka_server_replicamanager_
  partitioncount{node} gauge Partitions with a replica on the node.
  leadercount{node} gauge Partitions led by the node.
  offlinereplicacount{node} gauge Replicas of the node in offline log directories.
  underreplicatedpartitions{node} gauge Partitions led by the node with replicas out of sync.
  underminisrpartitioncount{node} gauge Partitions led by the node with fewer in-sync replicas than min.insync.replicas.
  atminisrpartitioncount{node} gauge Partitions led by the node with exactly min.insync.replicas in sync.
  reassigningpartitions{node} gauge Partitions led by the node with a reassignment in progress.
  produceridcount gauge Producer ids in the producer state of partitions whose state is loaded.
kafka_server_kafkaserver_
  brokerstate{node} gauge 3 for a running node, 0 for a stopped one.
kafka_server_fetchsessioncache_
  numincrementalfetchsessions gauge Incremental fetch sessions.
kafka_server_socket_server_metrics_
  connections{listener,software,version} gauge Open connections, by client library.
  connection_creation{listener} counter Accepted connections.
  connection_close{listener} counter Closed connections.
  successful_authentication{listener} counter Connections that were authenticated, by TLS or SASL.
  failed_authentication{listener} counter Connections that were closed because their authentication had failed.
  successful_reauthentication{listener} counter Sessions that clients have renewed (KIP-368).
  failed_reauthentication{listener} counter Connections that were closed because their session could not be renewed.
  expired_connections_killed{listener} counter Connections that were closed because their session was over.
ottla_
  protocol_violations counter Connections closed because of invalid data, or by an injected fault.
kafka_controller_kafkacontroller_
  activecontrollercount gauge 1 if there is a controller, else 0.
  activebrokercount gauge Running nodes.
  fencedbrokercount gauge Stopped nodes.
  globaltopiccount gauge Topics.
  globalpartitioncount gauge Partitions.
  offlinepartitionscount gauge Partitions without a leader.
  preferredreplicaimbalancecount gauge Partitions not led by their preferred replica.
kafka_coordinator_group_groupmetadatamanager_
  numgroups gauge Groups.
kafka_server_group_coordinator_metrics_
  groups{protocol} gauge Groups by type: classic, consumer, share or streams.
  consumer_groups{state} gauge Groups of the consumer protocol by state.
  share_groups{state} gauge Share groups by state.
  streams_groups{state} gauge Streams groups by state.
kafka_server_sharegroupmetrics_
  recordacknowledgements{acktype} counter Acknowledged records by type, such as Accept.
  partitionloadtime_seconds histogram Time until a share partition has its stored state.
  topicpartitionsacquiretime_seconds{group} histogram Time until a ShareFetch acquires records, or ends without that.
  requesttopicpartitionsfetchratio{group} histogram Percent of the partitions of a ShareFetch of which it \
can acquire records.
  deadletterqueuerecordcount{group} counter Records written to dead-letter queues.
  deadletterqueuetotalproducerequests{group} counter Batches for dead-letter queues.
  deadletterqueuefailedproducerequests{group} counter Batches for dead-letter queues that were refused.
kafka_server_sharepartitionmetrics_
  inflightmessagecount{group,topic,partition} gauge Records of a share partition that are in flight.
  inflightbatchcount{group,topic,partition} gauge Batches of a share partition that are in flight.
  inflightbatchmessagecount{group,topic,partition} histogram Records of the batches that came into flight.
  acquisitionlocktimeout{group,topic,partition} counter Records whose acquisition lock has expired.
kafka_server_sharesessioncache_
  sharesessionscount gauge Share sessions.
  sharepartitionscount gauge Partitions in all share sessions.
kafka_server_share_coordinator_metrics_
  write counter Calls that store the state of a share partition.
kafka_coordinator_group_groupmetadatamanager_
  numgroupsempty gauge Classic groups in state Empty.
  numgroupspreparingrebalance gauge Classic groups in state PreparingRebalance.
  numgroupscompletingrebalance gauge Classic groups in state CompletingRebalance.
  numgroupsstable gauge Classic groups in state Stable.
  numgroupsdead gauge Classic groups in state Dead.
  numoffsets gauge Committed offsets.
kafka_consumergroup_
  members{consumergroup} gauge Members of a group.
  current_offset{consumergroup,topic,partition} gauge Committed offset of a group.
  lag{consumergroup,topic,partition} gauge Offsets between the committed offset and the high watermark.
ottla_
  transactions{state} gauge Transactional ids, by transaction state.
  faults gauge Fault rules.
  fault_fired{fault,action} counter How often a present fault rule fired.
  recording gauge 1 while a recording is running, else 0.
  recording_exchanges counter Exchanges in the newest recording.
  recording_dropped counter Exchanges missing in the newest recording: dropped under load or evicted by its ring.
  event_loop_lag_seconds histogram Delay of a periodic timer on the event loop.
  build_info{version,release,cluster_id} gauge Always 1; the labels describe the broker.
  metrics_left_out{metric} gauge Series left out because there are too many.
"""
"""A prefix, and a family on each line below: the rest of its name with its labels, its kind, and the help text."""


def _families() -> Iterator[Family]:
    prefix = ""
    for line in _TABLE.strip().splitlines():
        name, _, described = line.strip().partition(" ")
        if not described:
            prefix = name
            continue
        kind, _, text = described.partition(" ")
        name, _, labels = name.rstrip("}").partition("{")
        yield Family(prefix + name, kind, tuple(filter(None, labels.split(","))), text)


FAMILIES = tuple(_families())
BY_NAME = {family.name: family for family in FAMILIES}
TOPIC_COUNTERS = {
    "messagesin": "messages_in",
    "bytesin": "bytes_in",
    "bytesout": "bytes_out",
    "bytesrejected": "bytes_rejected",
    "totalproducerequests": "produce_requests",
    "totalfetchrequests": "fetch_requests",
    "failedproducerequests": "produce_failures",
    "failedfetchrequests": "fetch_failures",
    "producemessageconversions": "produce_conversions",
    "fetchmessageconversions": "fetch_conversions",
    "totalsharefetchrequests": "share_fetch_requests",
    "failedsharefetchrequests": "share_fetch_failures",
    "totalshareacknowledgementrequests": "share_acknowledgement_requests",
    "failedshareacknowledgementrequests": "share_acknowledgement_failures",
}
"""Attributes of `TopicCounters` by metric. Each has series with a topic label, and one without it, the sum over all
topics, deleted ones included."""
