"""Documentation of configs, one line each: the text that DescribeConfigs returns from v3 on.

Owns the lines, one for each config that Ottla acts on and one for all others; the topic config and the broker config of
the same setting share a line. Behaviours are documented in docs/reference/behaviours.md.
"""

from __future__ import annotations

from .definitions import BEHAVIOUR_PREFIX
from .group_limits import KINDS, LIMITS

_BOTH = {
    ("cleanup.policy", "log.cleanup.policy"): "Whether old segments are deleted, compacted to the newest record of "
    "each key, or both; empty keeps everything.",
    ("compression.type",): "The codec in which batches are stored; with producer each batch keeps its own.",
    ("compression.gzip.level",): "The level of gzip compression of batches that the broker compresses.",
    ("compression.lz4.level",): "The level of lz4 compression of batches that the broker compresses.",
    ("compression.zstd.level",): "The level of zstd compression of batches that the broker compresses.",
    ("delete.retention.ms", "log.cleaner.delete.retention.ms"): "The time that the log cleaner retains tombstones and "
    "transaction markers.",
    ("file.delete.delay.ms", "log.segment.delete.delay.ms"): "The time before the files of a deleted segment are "
    "removed.",
    ("flush.messages", "log.flush.interval.messages"): "The number of records after which a partition is synced to "
    "disk; producers with acks wait for it.",
    ("flush.ms", "log.flush.interval.ms"): "The age of the oldest unsynced record at which a partition is synced to "
    "disk.",
    ("leader.replication.throttled.replicas",): "The replicas, as PARTITION:NODE, or * for all, to which "
    "leader.replication.throttled.rate applies while they lead.",
    ("follower.replication.throttled.replicas",): "The replicas, as PARTITION:NODE, or * for all, to which "
    "follower.replication.throttled.rate applies while they catch up.",
    ("index.interval.bytes", "log.index.interval.bytes"): "The number of bytes between two entries of an offset index.",
    ("max.compaction.lag.ms", "log.cleaner.max.compaction.lag.ms"): "The maximum time that a record remains ineligible "
    "for compaction.",
    ("max.decompressed.message.bytes",): "The largest record, decompressed, in compressed batches "
    "that are appended, searched or compacted.",
    ("max.message.bytes", "message.max.bytes"): "The largest record batch that producers may append, header included.",
    ("message.downconversion.enable", "log.message.downconversion.enable"): "Whether batches are converted for "
    "consumers that only support older formats.",
    ("message.format.version", "log.message.format.version"): "The release whose message format is stored, if the "
    "release profile still writes old formats.",
    ("message.timestamp.after.max.ms", "log.message.timestamp.after.max.ms"): "The maximum time by which a record's "
    "timestamp may be after the broker's time.",
    ("message.timestamp.before.max.ms", "log.message.timestamp.before.max.ms"): "The maximum time by which a record's "
    "timestamp may be before the broker's time.",
    (
        "message.timestamp.difference.max.ms",
        "log.message.timestamp.difference.max.ms",
    ): "The maximum difference between a record's timestamp and the broker's time.",
    ("message.timestamp.type", "log.message.timestamp.type"): "Whether a record's timestamp is its create time or the "
    "log append time.",
    ("min.cleanable.dirty.ratio", "log.cleaner.min.cleanable.ratio"): "The minimum share of uncompacted bytes of a log "
    "for the log cleaner to compact it.",
    (
        "min.compaction.lag.ms",
        "log.cleaner.min.compaction.lag.ms",
    ): "The minimum time that a record remains uncompacted in the log.",
    ("min.insync.replicas",): "The minimum number of in-sync replicas for produce requests with acks=all to succeed.",
    ("retention.bytes", "log.retention.bytes"): "The size of a partition above which its oldest segments are deleted; "
    "-1 for no limit.",
    ("retention.ms", "log.retention.ms"): "The age of its newest record at which a segment is deleted; -1 for no "
    "limit.",
    ("segment.bytes", "log.segment.bytes"): "The size of a segment; a batch that would exceed it starts a new segment.",
    ("internal.segment.bytes",): "The size of a segment, in place of segment.bytes and without its minimum; for tests.",
    ("segment.index.bytes", "log.index.size.max.bytes"): "The maximum size of a segment's index; a full index starts a "
    "new segment.",
    ("segment.jitter.ms", "log.roll.jitter.ms"): "The maximum random time by which segments are rolled early, to avoid "
    "rolling all at once.",
    ("segment.ms", "log.roll.ms"): "The age at which a segment is rolled even if it is not full.",
    ("unclean.leader.election.enable",): "Whether a replica out of sync may become leader if no replica in sync is "
    "available.",
}

_OF_BROKER = {
    "advertised.listeners": "The addresses that clients receive for connecting to this broker.",
    "allow.everyone.if.no.acl.found": "Whether everyone may access a resource without any access control entry.",
    "authorizer.class.name": "The class name of Kafka's authorizer, which enables access control lists.",
    "auto.create.topics.enable": "Whether topics are created when a client first refers to them.",
    "auto.leader.rebalance.enable": "Whether leadership returns to preferred replicas automatically.",
    "broker.id": "The id of this broker; the former name of node.id.",
    "broker.rack": "The rack of this broker, over which replicas are spread and in which consumers may read.",
    "connections.max.idle.ms": "The time after which an idle connection is closed; -1 for never.",
    "controller.listener.names": "The names of the controllers' listeners, which are not opened.",
    "controller.quota.window.num": "The number of samples of quotas for creating and deleting topics.",
    "controller.quota.window.size.seconds": "The time span of each sample of quotas for creating and deleting topics.",
    "cordoned.log.dirs": "The log directories that receive no new partitions; * for all of them.",
    "default.replication.factor": "The replication factor of topics that are created without one.",
    "delete.topic.enable": "Whether topics can be deleted.",
    "fetch.max.bytes": "The maximum number of bytes of records in a fetch response.",
    "group.consumer.assignors": "The assignors that consumer groups may use, the default first: uniform, range.",
    "group.consumer.max.size": "The maximum number of members of a consumer group.",
    "group.consumer.migration.policy": "Whether groups with members change their protocol: bidirectional, upgrade, "
    "downgrade, or disabled.",
    "group.consumer.regex.refresh.interval.ms": "The interval at which consumer groups search for topics that match "
    "their regular expressions.",
    "group.coordinator.rebalance.protocols": "The group protocols that the broker serves: classic, consumer.",
    "group.initial.rebalance.delay.ms": "The time that a new group waits for more members before its first assignment.",
    "group.max.session.timeout.ms": "The maximum session timeout of group members.",
    "group.max.size": "The maximum number of members of a group.",
    "group.min.session.timeout.ms": "The minimum session timeout of group members.",
    "inter.broker.protocol.version": "The release whose message formats are written; from 3.0 on always v2.",
    "leader.imbalance.check.interval.seconds": "The interval between checks for leaders that are not preferred "
    "replicas.",
    "leader.imbalance.per.broker.percentage": "The percentage of partitions not led by their preferred replica above "
    "which leaders are moved.",
    "listener.security.protocol.map": "The security protocol of each listener.",
    "listeners": "The addresses that this broker listens on.",
    "log.cleaner.backoff.ms": "The time that the log cleaner pauses if there is nothing to compact.",
    "log.cleaner.dedupe.buffer.size": "The memory for the keys of one pass of the log cleaner, in bytes.",
    "log.cleaner.enable": "Whether the log cleaner compacts topics.",
    "log.cleaner.io.max.bytes.per.second": "The maximum rate of reads and writes of the log cleaner.",
    "log.dir": "The log directory if log.dirs is not set.",
    "log.dirs": "The log directories, among which partitions are distributed.",
    "log.flush.offset.checkpoint.interval.ms": "The interval between checkpoints of the recovery points of logs.",
    "log.flush.scheduler.interval.ms": "The interval between checks for partitions that are due to be synced.",
    "log.flush.start.offset.checkpoint.interval.ms": "The interval between checkpoints of the log start offsets.",
    "log.record.version.force.upgrade": "With 2, the broker rewrites records in older formats at startup (KIP-724).",
    "log.retention.check.interval.ms": "The interval between checks for segments to delete.",
    "log.retention.hours": "The same as log.retention.ms in hours, if neither that nor log.retention.minutes is set.",
    "log.retention.minutes": "The same as log.retention.ms in minutes, if that is not set.",
    "log.roll.hours": "The same as log.roll.ms in hours, if that is not set.",
    "log.roll.jitter.hours": "The same as log.roll.jitter.ms in hours, if that is not set.",
    "max.connection.creation.rate": "The maximum number of new connections per second; further ones wait.",
    "connection.failed.authentication.delay.ms": "How long the response to a failed authentication is delayed.",
    "connections.max.reauth.ms": "The longest session of a client with SASL, until it authenticates again; 0: no "
    "limit (KIP-368).",
    "delegation.token.expiry.check.interval.ms": "The time between two removals of expired delegation tokens.",
    "delegation.token.expiry.time.ms": "The time after which a delegation token expires unless it is renewed.",
    "delegation.token.master.key": "The older name of delegation.token.secret.key.",
    "delegation.token.max.lifetime.ms": "The time after which a delegation token can no longer be renewed.",
    "delegation.token.secret.key": "The key of the secrets of delegation tokens; without one there are no tokens.",
    "sasl.enabled.mechanisms": "What clients may use: GSSAPI, PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER.",
    "sasl.jaas.config": "The login module of a listener and mechanism; that of PLAIN has the users with passwords.",
    "sasl.kerberos.principal.to.local.rules": "The rules that make users of Kerberos principals, in their order.",
    "sasl.kerberos.service.name": "The broker's Kerberos service name, here or in sasl.jaas.config: GSSAPI needs it.",
    "sasl.oauthbearer.allow.unverified.audience": "Whether tokens of any audience are accepted if none is expected.",
    "sasl.oauthbearer.allow.unverified.issuer": "Whether tokens of any issuer are accepted if none is expected.",
    "sasl.oauthbearer.clock.skew.seconds": "How far the clock that issued a token may differ from the broker's.",
    "sasl.oauthbearer.expected.audience": "A token must have one of these audiences, and none if this is empty.",
    "sasl.oauthbearer.expected.issuer": "The issuer that a token must have.",
    "sasl.oauthbearer.jwks.endpoint.refresh.ms": "The interval at which the keys are fetched again from an HTTP URL.",
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms": "The time in which a failed fetch of the keys is repeated.",
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms": "The first pause after a failed fetch of the keys; it doubles.",
    "sasl.oauthbearer.jwks.endpoint.url": "The JSON web key set that signs tokens: a URL with http, https or file.",
    "sasl.oauthbearer.jwt.validator.class": "DefaultJwtValidator or BrokerJwtValidator, which are the same here.",
    "sasl.oauthbearer.scope.claim.name": "The claim of a signed token with its scope.",
    "sasl.oauthbearer.sub.claim.name": "The claim of a signed token with the name of the principal.",
    "sasl.server.callback.handler.class": "Of OAUTHBEARER, Kafka's class for unsecured (default) or for signed tokens.",
    "sasl.server.max.receive.size": "The largest request in bytes before a client is authenticated.",
    "ssl.allow.dn.changes": "Whether a key store may be replaced by one with another name, while the broker runs.",
    "ssl.allow.san.changes": "Whether a key store may be replaced by one that lacks alternative names.",
    "ssl.cipher.suites": "The cipher suites of TLS, by Java's names; those of TLS 1.3 are used all or not at all.",
    "ssl.client.auth": "Whether clients of TLS show a certificate: required, requested, or none.",
    "ssl.enabled.protocols": "The versions of TLS: a range of TLSv1, TLSv1.1, TLSv1.2, TLSv1.3.",
    "ssl.key.password": "The password of the private key in PEM.",
    "ssl.keystore.certificate.chain": "The certificate of the listener and its issuers, in PEM.",
    "ssl.keystore.key": "The private key of the listener, in PEM.",
    "ssl.keystore.location": "The file with the private key and the certificate of the listener; a new file is read.",
    "ssl.keystore.password": "The password of the key store.",
    "ssl.keystore.type": "The format of the key store: PEM or PKCS12. JKS stands for PKCS12, too, as in newer Java.",
    "ssl.principal.mapping.rules": "The rules that make names of principals from names in certificates (KIP-371).",
    "ssl.truststore.certificates": "The certificates that certificates of clients are checked with, in PEM.",
    "ssl.truststore.location": "The file with the certificates that certificates of clients are checked with.",
    "ssl.truststore.password": "The password of the trust store.",
    "ssl.truststore.type": "The format of the trust store: PEM or PKCS12. JKS stands for PKCS12, too.",
    "max.connections": "The maximum number of open connections; further ones wait until others close.",
    "max.connections.per.ip": "The maximum number of connections from an address; further ones are closed.",
    "max.connections.per.ip.overrides": "The maximum number of connections of single hosts: HOST:COUNT,...",
    "max.incremental.fetch.session.cache.slots": "The maximum number of incremental fetch sessions.",
    "max.request.partition.size.limit": "The maximum number of partitions in a DescribeTopicPartitions response.",
    "internal.metadata.log.segment.bytes": "The size of a segment of the metadata log, without the minimum of "
    "metadata.log.segment.bytes; for tests.",
    "metadata.log.segment.bytes": "The size at which a segment of the metadata log is rolled.",
    "metadata.log.segment.ms": "The age at which a segment of the metadata log is rolled.",
    "node.id": "The id of this broker.",
    "num.replica.alter.log.dirs.threads": "The number of partitions that move between log directories at once; by "
    "default one per directory.",
    "num.partitions": "The number of partitions of topics that are created without one.",
    "offset.metadata.max.bytes": "The maximum size of the metadata string of a committed offset.",
    "offsets.retention.check.interval.ms": "The interval between checks for expired offsets.",
    "offsets.retention.minutes": "The time that the offsets of a group without members are retained.",
    "offsets.topic.compression.codec": "The codec in which committed offsets are stored.",
    "offsets.topic.num.partitions": "The number of partitions of the topic of committed offsets.",
    "offsets.topic.replication.factor": "The replication factor of the topic of committed offsets.",
    "offsets.topic.segment.bytes": "The segment size of the topic of committed offsets.",
    "ottla.client.telemetry": "Whether clients may push metrics (KIP-714).",
    "ottla.validate.records": "Whether each record of a batch is validated, in addition to the batch header.",
    "producer.duplicate.scan.bytes": "The number of bytes at the end of a log that are searched for a duplicate batch.",
    "producer.id.expiration.check.interval.ms": "The interval between checks for expired producer ids.",
    "producer.id.expiration.ms": "The time after its last batch at which a producer id expires.",
    "quota.consumer.default": "The fetch quota of clients without a quota, in bytes per second.",
    "quota.producer.default": "The produce quota of clients without a quota, in bytes per second.",
    "quota.window.num": "The number of samples of quotas.",
    "quota.window.size.seconds": "The time span of each sample of quotas.",
    "leader.replication.throttled.rate": "The rate at which throttled replicas that the broker leads are copied in a "
    "reassignment, in bytes per second.",
    "follower.replication.throttled.rate": "The rate at which the throttled replicas of the broker catch up during a "
    "reassignment, in bytes per second.",
    "replica.alter.log.dirs.io.max.bytes.per.second": "The maximum rate of copying between log directories; 0 stops "
    "it.",
    "replica.selector.class": "The class that chooses the replica from which a consumer reads; none means the leader.",
    "replica.high.watermark.checkpoint.interval.ms": "The interval between checkpoints of the high watermarks.",
    "socket.listen.backlog.size": "The maximum number of connections waiting to be accepted.",
    "socket.receive.buffer.bytes": "The receive buffer of each connection; -1 for the default of the system.",
    "socket.request.max.bytes": "The maximum size of a request; a larger one closes the connection.",
    "socket.send.buffer.bytes": "The send buffer of each connection; -1 for the default of the system.",
    "super.users": "The principals that may do everything, regardless of access control lists.",
    "telemetry.max.bytes": "The maximum size of the metrics that a client pushes at once.",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "The interval between checks for transactions that "
    "have timed out.",
    "transaction.max.timeout.ms": "The maximum transaction timeout of producers.",
    "transaction.partition.verification.enable": "Whether transactional writes are verified with the coordinator.",
    "transaction.remove.expired.transaction.cleanup.interval.ms": "The interval between checks for expired "
    "transactional ids.",
    "group.share.initialize.retry.interval.ms": "The time after which the state of a share partition is initialized "
    "again.",
    "group.share.max.size": "The largest number of members of a share group.",
    "group.streams.max.size": "The largest number of members of a streams group.",
    "group.share.max.share.sessions": "The largest number of share sessions of a broker.",
    "group.share.partition.max.record.locks": "The number of records in flight of a share partition.",
    "group.share.persister.class.name": "The class that stores share partitions: the default one, or none (an empty "
    "name, or NoOpStatePersister).",
    "share.auto.offset.reset": "The offset at which a share group begins.",
    "share.isolation.level": "Whether the group reads committed records only.",
    "share.partition.max.record.locks": "The number of records in flight of a share partition of the group.",
    "share.renew.acknowledge.enable": "Whether members may renew the locks of records.",
    "errors.deadletterqueue.auto.create.topics.enable": "Whether a dead-letter queue that does not exist is created.",
    "errors.deadletterqueue.copy.record.enable": "Whether keys and values are copied to the dead-letter queue.",
    "errors.deadletterqueue.group.enable": "Whether the topic may be the dead-letter queue of share groups.",
    "errors.deadletterqueue.topic.name": "The topic for records that the group does not accept, its dead-letter queue; "
    "none if it is empty.",
    "errors.deadletterqueue.topic.name.prefix": "How the names of dead-letter queues begin.",
    "share.coordinator.cold.partition.snapshot.interval.ms": "The interval between snapshots of share partitions that "
    "do not change.",
    "share.coordinator.snapshot.update.records.per.snapshot": "The number of updates between snapshots of a share "
    "partition.",
    "share.coordinator.state.topic.compression.codec": "The codec in which share partitions are stored.",
    "share.coordinator.state.topic.min.isr": "The min.insync.replicas of the topic of share partitions.",
    "share.coordinator.state.topic.num.partitions": "The number of partitions of the topic of share partitions.",
    "share.coordinator.state.topic.prune.interval.ms": "The interval between deletions of old records of share "
    "partitions.",
    "share.coordinator.state.topic.replication.factor": "The replication factor of the topic of share partitions.",
    "share.coordinator.state.topic.segment.bytes": "The segment size of the topic of share partitions.",
    "transaction.state.log.min.isr": "The min.insync.replicas of the topic of transactions.",
    "transaction.state.log.num.partitions": "The number of partitions of the topic of transactions.",
    "transaction.state.log.replication.factor": "The replication factor of the topic of transactions.",
    "transaction.state.log.segment.bytes": "The segment size of the topic of transactions.",
    "transaction.two.phase.commit.enable": "Whether producers may use two-phase commit, without a transaction timeout.",
    "ottla.features": "The levels of features in a new data directory, such as metadata.version=25.",
    "unstable.feature.versions.enable": "Whether feature levels are supported that the release has not declared "
    "stable.",
    "unstable.api.versions.enable": "Whether API versions are served that the release has not declared stable.",
    "transactional.id.expiration.ms": "The time after its last use at which a transactional id expires.",
}

# Settings of groups: the config of a broker begins with `group.`, and {} is each group of the kind; that of one group
# does not.
_OF_GROUPS = {
    "share.delivery.count.limit": "The number of times that a record is delivered to {}.",
    "share.record.lock.duration.ms": "The time for which a record is locked for a member of {}.",
    "streams.acceptable.recovery.lag": "The lag up to which a task of {} counts as caught up.",
    "streams.initial.rebalance.delay.ms": "The time for which the first assignment of {} waits.",
    "streams.num.standby.replicas": "The number of standbys of each stateful task of {}.",
    "streams.rack.aware.assignment.tags": "The client tags that members of {} are to have.",
    "streams.task.offset.interval.ms": "The interval of reports of changelog offsets in {}.",
    **{f"{kind}.assignment.interval.ms": "The shortest time between two assignments of {}." for kind in KINDS},
    **{f"{kind}.heartbeat.interval.ms": "The interval between heartbeats of a member of {}." for kind in KINDS},
    **{f"{kind}.session.timeout.ms": "The time without a heartbeat after which a member leaves {}." for kind in KINDS},
}

DOCS: dict[str, str] = {
    **LIMITS,
    **_OF_BROKER,
    **{name: text for names, text in _BOTH.items() for name in names},
    **{name: text.format("the group") for name, text in _OF_GROUPS.items()},
    **{f"group.{name}": text.format(f"a {name.partition('.')[0]} group") for name, text in _OF_GROUPS.items()},
}
NO_EFFECT = "Accepted as in Kafka, without an effect in Ottla."


def documentation(name: str) -> str:
    """Returns the documentation of a config."""
    if name.startswith(BEHAVIOUR_PREFIX):
        return "A difference between Kafka releases; see docs/reference/behaviours.md."
    return DOCS.get(name, NO_EFFECT)
