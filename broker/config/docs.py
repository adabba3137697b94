"""What a config does here, in a line of our own: what DescribeConfigs answers from v3 on when it is asked to explain.

Owns the lines, one for each config that is acted on and for no other; the topics' and the broker's name of one thing
have one. Those of behaviours are in the README.
"""

from __future__ import annotations

from .definitions import BEHAVIOUR_PREFIX

_BOTH = {
    ("cleanup.policy", "log.cleanup.policy"): "Old segments are deleted, compacted to the newest record of each key, "
    "or both; none of them keeps everything.",
    ("compression.type",): "The codec in which batches are stored; with producer, each keeps its own.",
    ("compression.gzip.level",): "How hard gzip tries where batches are compressed here.",
    ("compression.lz4.level",): "How hard lz4 tries where batches are compressed here.",
    ("compression.zstd.level",): "How hard zstd tries where batches are compressed here.",
    ("delete.retention.ms", "log.cleaner.delete.retention.ms"): "How long the cleaner leaves tombstones and the ends "
    "of transactions for readers to see.",
    ("file.delete.delay.ms", "log.segment.delete.delay.ms"): "How long the files of a deleted segment stay.",
    ("flush.messages", "log.flush.interval.messages"): "After so many records a partition is synced to the disk, and "
    "producers that ask for acks wait for it.",
    ("flush.ms", "log.flush.interval.ms"): "A partition is synced when its oldest unsynced record is that old.",
    ("index.interval.bytes", "log.index.interval.bytes"): "An offset index has an entry for every so many bytes.",
    ("max.compaction.lag.ms", "log.cleaner.max.compaction.lag.ms"): "A record waits no longer than this to be "
    "compacted.",
    ("max.message.bytes", "message.max.bytes"): "The largest batch that producers may append, headers included.",
    ("message.downconversion.enable", "log.message.downconversion.enable"): "Whether batches are converted for "
    "consumers that read only older formats.",
    ("message.format.version", "log.message.format.version"): "The release whose message format records are stored "
    "in, where the release played still writes old ones.",
    ("message.timestamp.after.max.ms", "log.message.timestamp.after.max.ms"): "How far in the future a record's "
    "timestamp may lie.",
    ("message.timestamp.before.max.ms", "log.message.timestamp.before.max.ms"): "How far in the past a record's "
    "timestamp may lie.",
    ("message.timestamp.difference.max.ms", "log.message.timestamp.difference.max.ms"): "How far a record's timestamp "
    "may be from the broker's time, on either side.",
    ("message.timestamp.type", "log.message.timestamp.type"): "Whether records keep the producer's time or get that of "
    "the append.",
    ("min.cleanable.dirty.ratio", "log.cleaner.min.cleanable.ratio"): "The share of a log that is not yet compacted "
    "from which on the cleaner takes it.",
    ("min.compaction.lag.ms", "log.cleaner.min.compaction.lag.ms"): "A record is not compacted away before this age.",
    ("min.insync.replicas",): "With fewer replicas in sync, produce requests with acks=all are refused.",
    (
        "retention.bytes",
        "log.retention.bytes",
    ): "A partition that is larger loses its oldest segments; -1 for no bound.",
    ("retention.ms", "log.retention.ms"): "Segments whose newest record is older are deleted; -1 keeps them.",
    ("segment.bytes", "log.segment.bytes"): "A segment that would grow larger is closed and the next one begun.",
    ("segment.index.bytes", "log.index.size.max.bytes"): "The largest index of a segment; a full one begins the next "
    "segment.",
    ("segment.jitter.ms", "log.roll.jitter.ms"): "By up to this much segments are closed early, so that not all are at "
    "once.",
    ("segment.ms", "log.roll.ms"): "The age at which a segment is closed although it is not full.",
    ("unclean.leader.election.enable",): "Whether a replica that is behind may lead when none in sync is left.",
}

_OF_BROKER = {
    "advertised.listeners": "The addresses that clients are told to connect to.",
    "allow.everyone.if.no.acl.found": "Whether a resource without any access control list is open to everybody.",
    "authorizer.class.name": "Kafka's authorizer: any of its names switches access control lists on.",
    "auto.create.topics.enable": "Whether a topic comes into being when a client first names it.",
    "auto.leader.rebalance.enable": "Whether preferred replicas are made leaders again by themselves.",
    "broker.id": "The number of this broker, as it was called before node.id.",
    "broker.rack": "The rack that this broker tells clients it stands in.",
    "connections.max.idle.ms": "A connection on which nothing moves for so long is closed; -1 is never.",
    "controller.listener.names": "Listeners of these names are the controllers' and are not opened.",
    "controller.quota.window.num": "How many past windows count for quotas of creating and deleting topics.",
    "controller.quota.window.size.seconds": "How long a window of those quotas is.",
    "cordoned.log.dirs": "The data directories that get no more partitions; * is all of them.",
    "default.replication.factor": "How many replicas partitions get if nobody says.",
    "delete.topic.enable": "Whether topics may be deleted.",
    "fetch.max.bytes": "The most that one fetch is answered with.",
    "group.initial.rebalance.delay.ms": "How long a new group waits for more members before its first assignment.",
    "group.max.session.timeout.ms": "The longest session time-out that a member may ask for.",
    "group.max.size": "The most members that a group may have.",
    "group.min.session.timeout.ms": "The shortest session time-out that a member may ask for.",
    "inter.broker.protocol.version": "The release whose formats are written; from 3.0 on that is v2 everywhere.",
    "leader.imbalance.check.interval.seconds": "How often it is looked whether preferred replicas lead.",
    "leader.imbalance.per.broker.percentage": "The share of partitions led by others from which on leaders are moved.",
    "listener.security.protocol.map": "Which security protocol each listener speaks.",
    "listeners": "The addresses that this broker opens.",
    "log.cleaner.backoff.ms": "How long the cleaner rests when there was nothing to do.",
    "log.cleaner.dedupe.buffer.size": "The room for the keys of one pass of the cleaner.",
    "log.cleaner.enable": "Whether compacted topics are compacted at all.",
    "log.cleaner.io.max.bytes.per.second": "How fast the cleaner may read and write.",
    "log.dir": "The data directory, where log.dirs names none.",
    "log.dirs": "The data directories, over which partitions are spread.",
    "log.flush.offset.checkpoint.interval.ms": "How often it is noted up to where each log is safe on the disk.",
    "log.flush.scheduler.interval.ms": "How often partitions are looked at that are due to be synced.",
    "log.flush.start.offset.checkpoint.interval.ms": "How often the first offset of each log is noted.",
    "log.record.version.force.upgrade": "With 2, a start rewrites whatever is stored in older formats (KIP-724).",
    "log.retention.check.interval.ms": "How often segments are looked for that retention deletes.",
    "log.retention.hours": "As log.retention.ms, in hours, where neither that nor the minutes are set.",
    "log.retention.minutes": "As log.retention.ms, in minutes, where that is not set.",
    "log.roll.hours": "As log.roll.ms, in hours, where that is not set.",
    "log.roll.jitter.hours": "As log.roll.jitter.ms, in hours, where that is not set.",
    "max.connection.creation.rate": "How many connections a second are served; more wait for their turn.",
    "max.connections": "How many connections are served at a time; more wait until others have gone.",
    "max.connections.per.ip": "How many connections an address may have; more are closed at once.",
    "max.connections.per.ip.overrides": "The same for single hosts: HOST:COUNT,...",
    "max.incremental.fetch.session.cache.slots": "How many fetch sessions are remembered.",
    "max.request.partition.size.limit": "The most partitions that one DescribeTopicPartitions lists.",
    "metadata.log.segment.bytes": "The size at which a segment of the metadata log is closed.",
    "metadata.log.segment.ms": "The age at which a segment of the metadata log is closed.",
    "node.id": "The number of this broker.",
    "num.replica.alter.log.dirs.threads": "How many partitions move between log directories at "
    "once; without it as many as there are directories.",
    "num.partitions": "How many partitions a new topic gets if nobody says.",
    "offset.metadata.max.bytes": "The longest text that may go with a committed offset.",
    "offsets.retention.check.interval.ms": "How often committed offsets are looked for that have expired.",
    "offsets.retention.minutes": "How long the offsets of a group that nobody is in are kept.",
    "offsets.topic.compression.codec": "The codec in which committed offsets are stored.",
    "offsets.topic.num.partitions": "How many partitions the topic of committed offsets is made with.",
    "offsets.topic.replication.factor": "How many replicas the topic of committed offsets gets.",
    "offsets.topic.segment.bytes": "The segment size of the topic of committed offsets.",
    "ottla.client.telemetry": "Whether clients are told that they may push metrics.",
    "ottla.validate.records": "Whether each record of a batch is looked at, not the batch's header alone.",
    "producer.duplicate.scan.bytes": "How far back the log is read for a batch that may be a repetition.",
    "producer.id.expiration.check.interval.ms": "How often producers are looked for that are to be forgotten.",
    "producer.id.expiration.ms": "How long after its last batch a producer is forgotten.",
    "quota.consumer.default": "The bytes a second that each client may fetch, where no quota says otherwise.",
    "quota.producer.default": "The bytes a second that each client may produce, where no quota says otherwise.",
    "quota.window.num": "How many past windows count for quotas.",
    "quota.window.size.seconds": "How long a window of quotas is.",
    "replica.alter.log.dirs.io.max.bytes.per.second": "How many bytes a second are copied for all partitions that move "
    "between log directories; 0 stops them.",
    "replica.high.watermark.checkpoint.interval.ms": "How often high watermarks are noted.",
    "socket.listen.backlog.size": "How many connections may wait to be accepted.",
    "socket.receive.buffer.bytes": "The receive buffer of each connection; -1 is the system's.",
    "socket.request.max.bytes": "The largest request that is read; a larger one closes the connection.",
    "socket.send.buffer.bytes": "The send buffer of each connection; -1 is the system's.",
    "super.users": "Who may do everything, whatever access control lists say.",
    "telemetry.max.bytes": "The most that a client may push of metrics at once.",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "How often transactions are looked for that have "
    "timed out.",
    "transaction.max.timeout.ms": "The longest time-out that a producer may ask for its transactions.",
    "transaction.partition.verification.enable": "Whether a write in a transaction is checked with its coordinator.",
    "transaction.remove.expired.transaction.cleanup.interval.ms": "How often transactional ids are looked for that "
    "have expired.",
    "transaction.state.log.min.isr": "The min.insync.replicas of the topic of transactions.",
    "transaction.state.log.num.partitions": "How many partitions the topic of transactions is made with.",
    "transaction.state.log.replication.factor": "How many replicas the topic of transactions gets.",
    "transaction.state.log.segment.bytes": "The segment size of the topic of transactions.",
    "transactional.id.expiration.ms": "How long a transactional id is known that nobody uses.",
}

DOCS: dict[str, str] = _OF_BROKER | {name: text for names, text in _BOTH.items() for name in names}


def documentation(name: str) -> str | None:
    """The line for a config; None where it is not acted on."""
    if name.startswith(BEHAVIOUR_PREFIX):
        return "One way in which releases differ; the README tells of each."
    return DOCS.get(name)
