"""The broker's state, which every handler may read and change.

Owns the order in which the parts are opened and closed, and the rules that span several parts: automatic creation of
topics, the coordinators' logs, transaction markers, and the advertised addresses. Does not use sockets or the router.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import random
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from ..protocol.acls import AclOperation, ResourceType
from ..protocol.api_key import ApiKey
from ..protocol.config_codes import ConfigSource
from ..protocol.errors import ErrorCode
from ..protocol.internal_records.metadata_records import (
    ConfigRecord,
    FeatureLevelRecord,
    ProducerIdsRecord,
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
)
from ..protocol.records import batch
from ..storage.errors import StorageError
from ..storage.io import random_ids
from ..storage.io.files import DiskFiles, Files
from ..storage.log_dir.directory import DataDirectory
from ..storage.partition_log import Appended, PartitionLog
from .background.log_dir_moves import Moves
from .background.maintenance import Maintenance
from .clock import Clock, ManualClock, SystemClock, Timer
from .config.group_limits import capped
from .config.java_classes import authorizer_settings
from .config.log_config import metadata_config
from .config.message_format import forced_upgrade
from .config.resource_types import BROKER as RESOURCE_BROKER
from .config.resource_types import CLIENT_METRICS, GROUP
from .config.serve_options import ServeOptions, initial_features
from .config.values import IN_SYNC, Config
from .connection_info import ConnectionInfo
from .cooperative import CooperativeScheduler
from .errors import ConfigError, Refused, code_of, message_of
from .futures import settled
from .groups.lookups import WITH_CONSUMER_GROUPS, WITHOUT_NEW_GROUPS, Lookups
from .groups.topics import TopicLookup, TopicShape
from .logs import get_logger, levels
from .metadata.adoption import adopt, mark_others
from .metadata.features import Features, Update, first_records
from .metadata.log import MetadataLog, read_all
from .metadata.named_configs import NamedConfigs, is_broker
from .metadata.nodes import Nodes
from .metadata.producer_ids import ComparingProducers, ProducerIds
from .metadata.topics import (
    BROKER_DEFAULT,
    GROUP_OFFSETS_TOPIC,
    PARTITIONS_AT_ONCE_MAX,
    SHARE_STATE_TOPIC,
    TOO_MANY_PARTITIONS,
    TRANSACTION_STATE_TOPIC,
    Topic,
    Topics,
    internal_configs,
    internal_prefix,
    is_internal,
    new_topic_id,
)
from .metadata.topology import NOTHING_NOTED, Topology, TopologyNote
from .metrics.client_ledger import ClientLedger
from .quotas.client_quotas import ClientQuotas
from .releases.loggers import kafka_logger_names, kafka_loggers
from .releases.profiles import ELIGIBLE_LEADERS, Apis
from .replica.assignment import NO_LEADER
from .replica.fetch_sessions import FetchSessions
from .replica.flush import Durability
from .replica.log_dirs import LogDirs
from .replica.partition import LEADER_EPOCH, PRODUCE_VERSION, Partition
from .replica.purgatory import wake_all
from .replica.start_progress import Opening
from .security.acls import RECORDS as ACL_RECORDS
from .security.acls import Acls
from .security.scram import ScramCredentials
from .security.tokens import RECORDS as TOKEN_RECORDS
from .security.tokens import DelegationTokens, token_settings

if TYPE_CHECKING:
    from .background.cleaner import Cleaner
    from .faults.rule_set import Faults
    from .groups.consumer.events import Caller
    from .groups.coordinator import GroupCoordinator
    from .groups.streams.internal_topics import InternalTopics
    from .groups.streams.values import InternalTopic
    from .metrics.client_telemetry import Telemetry
    from .metrics.counters import TopicMetrics
    from .security.authorizer import Authorizer
    from .share.dead_letters import DeadLetterQueues
    from .share.sessions import SessionKey, ShareSessions, TopicPartition
    from .share.settings import ShareConfigs
    from .share.share_partitions import SharePartitions
    from .share.state_coordinator import StateCoordinator
    from .transactions.coordinator import TransactionCoordinator
    from .transactions.state import WriteMarkers

SETTLING_ROUNDS = 12  # a decision is synced, then its markers, then their completion; each may wait for a thread
DEFAULT_SHARE_SESSIONS = 2000  # in releases without the config
_HELD_IN = {
    GROUP_OFFSETS_TOPIC: "groups",
    TRANSACTION_STATE_TOPIC: "transactions",
    SHARE_STATE_TOPIC: "state of share partitions",
}
SETTLING_ITERATIONS = 5  # of the event loop: from an event to its waiters and to theirs


class BrokerState:
    """The state of one broker. Made by `open`, ended by `begin_stop` and `close`.

    The coordinators of groups, transactions and share partitions are made when they are first needed: at the start if
    their logs exist, otherwise for the first such request. Their modules, which are imported then, would take a sixth
    of a start.
    """

    def __init__(
        self,
        options: ServeOptions,
        ports: Mapping[tuple[int, str], int],
        apis: Apis,
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
        logs: LogDirs,
        waits: Clock | None = None,
    ) -> None:
        self.options = options
        self.config: Config = options.config
        self.profile = options.config.profile
        self.apis = apis
        self.readers = apis.readers
        self.clock = clock
        """The clock of records, sessions, transactions and everything else that expires."""
        is_for_both = isinstance(clock, SystemClock | ManualClock)
        self.waits: Clock = waits or (clock if is_for_both else SystemClock(loop))
        """The clock of waits by clients, disks and observers: the machine's clock, also where `clock` is virtual."""
        self.loop = loop
        self.logs = logs
        self.node_id: int = logs.node_id
        self.nodes = Nodes(logs.node_id, options.node_ids, self.profile.behaviour)
        self.nodes.racks.update((id, self.config.of(id).get("broker.rack")) for id in self.nodes.ids)
        self.checks_in_sync = self.nodes.is_cluster or not self.profile.behaviour.in_sync_at_most_replicas
        """Whether fewer replicas than min.insync.replicas can be in sync. A lone node without
        `in_sync_at_most_replicas` always has all of them.
        """
        self.cluster_id: str = logs.cluster_id
        # A lone node takes the id of its directory, which was unknown when its ports were bound.
        self._ports: Mapping[tuple[int, str], int] = ports
        if options.brokers == 1:
            self._ports = {(self.node_id, name): port for (_, name), port in ports.items()}
        self._random = random.SystemRandom()
        self.scheduler = CooperativeScheduler(loop)
        self.lookups = Lookups(self.waits, unserved=self._unserved_groups)
        """Clients that looked up the coordinator of a group and have not used it since."""
        self.faults: Faults | None = None
        """The rules of fault injection, or None where they are not available."""
        self.failed: asyncio.Future[str] = loop.create_future()
        """Done, with the reason, when the broker cannot continue: its last directory failed, or the one with the
        metadata.
        """
        self.durability = Durability(loop, self.waits)
        self.on_reconfigured: Callable[[], object] = lambda: None
        """Called after dynamic configs of the broker have changed."""
        self.authorizer: Authorizer | None = None
        """Decides which operations are allowed, or None: then all are."""
        self.quotas = ClientQuotas(self.config, clock, loop)
        self.topic_metrics: TopicMetrics | None = None
        """Counts bytes and records by topic, or None while metrics are off."""
        self._is_stopping = False
        self._partitions: dict[str, int] = {}
        """The partition counts of the coordinators' logs that existed at the start."""
        self._cleaner: Cleaner | None = None
        self._cleaner_timer: Timer | None = None
        self.comparing_producers = ComparingProducers()
        self.fetch_sessions = FetchSessions(
            lambda: self._random.randrange(1, 1 << 31), self.config["max.incremental.fetch.session.cache.slots"]
        )

    @classmethod
    def open(
        cls,
        options: ServeOptions,
        ports: Mapping[tuple[int, str], int],
        apis: Apis,
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
        files: Files | None = None,
        waits: Clock | None = None,
        note: TopologyNote = NOTHING_NOTED,
    ) -> BrokerState:
        """Opens the data directories and rebuilds the state from them. Raises StorageError after closing everything
        again.

        `ports` are those of each node's listeners, by (node id, name). `note` is the state of the topology that an
        earlier broker on the same data has recorded.
        """
        files = files or DiskFiles()
        node_id = options.config["node.id"] if options.config.is_set("node.id") else None
        levels().reset()
        levels().follow(kafka_loggers(options.config.profile), kafka_logger_names(options.config.profile))
        logs = LogDirs.open(files, options.data_dirs, node_id, options.allowed_ids)
        for warning in options.config.warnings:  # after the locking, whose failure is to print one line
            get_logger().warning("config ignored", reason=warning)
        options.config.log_inert(options.config.not_acted_on())
        try:
            state = cls(options, ports, apis, clock, loop, logs, waits)
            state._load(files, note)
        except BaseException:
            logs.release()
            raise
        return state

    def _load(self, files: Files, note: TopologyNote) -> None:
        now_ms = self.clock.now_ms()
        self.logs.on_offline = self._soon_offline
        for log_dir in self.logs.unusable:
            get_logger().error(
                "log directory unusable, its partitions are offline",
                log_dir=log_dir.path,
                reason=log_dir.failure,
            )
        adopt(files, self.logs, self.config, now_ms, random_ids.uuid4)
        first = first_records(initial_features(self.config), self.profile)
        self.metadata_log = MetadataLog(self.logs.open_metadata(now_ms, metadata_config(self.config)), first)
        mark_others(files, self.logs)
        self.producer_ids = ProducerIds(self.metadata_log, self.node_id)
        self.acls = Acls(self.metadata_log, random_ids.uuid4)
        self.topics = Topics(self.logs, self.metadata_log, self.config, self.nodes, random_ids.uuid4, self.durability)
        self.topics.changes.attach(self.loop, self.scheduler)
        self.named_configs = NamedConfigs(self.metadata_log)
        self.scram = ScramCredentials(self.metadata_log, self.logs.metadata_dir.id)
        self.tokens = DelegationTokens(
            self.metadata_log,
            token_settings(self.config),
            lambda: new_topic_id(random_ids.uuid4),
            rules=self.profile.behaviour.token_rules,
        )
        unstable = self.config.get("unstable.feature.versions.enable", False)
        self.features = Features(self.metadata_log, self.node_id, self.profile, self.apis, unstable=unstable)
        self.logs.cordoned = lambda: (self.features.cordoned_log_dirs and self.config.get("cordoned.log.dirs")) or ()
        records = list(self.metadata_log.replay())
        for record in records:
            if isinstance(record, FeatureLevelRecord):
                self.features.replay(record)
        self.config.eligible_leaders = self.features.eligible_leaders
        self.config.forget_dynamic()  # the levels decide which dynamic configs a new cluster has
        for record in records:
            if isinstance(record, ProducerIdsRecord):
                self.producer_ids.replay(record)
            elif isinstance(record, ACL_RECORDS):
                self.acls.replay(record)
            elif isinstance(record, ConfigRecord) and self._is_broker_config(record):
                self._replay_broker_config(record)
            elif isinstance(record, ConfigRecord):
                self.named_configs.replay(record)
            elif isinstance(record, UserScramCredentialRecord | RemoveUserScramCredentialRecord):
                self.scram.replay(record)
            elif isinstance(record, TOKEN_RECORDS):
                self.tokens.replay(record)
        if self.options.scram_users and self.features.stores_scram:
            self.scram.ensure(self.options.scram_users, now_ms)
        settings = authorizer_settings(self.config)
        if settings is not None:
            from .security.standard import StandardAuthorizer

            self.authorizer = StandardAuthorizer(self.acls, settings, cidr_hosts=self.profile.behaviour.cidr_hosts)
        placed = self.topics.replay(records)
        self.logs.put_strays_aside({(topic.name, index): (topic.id, at) for topic, index, at in placed})
        if forced_upgrade(self.config):
            from .replica.forced_upgrade import ForcedUpgrade

            self.logs.upgrade = ForcedUpgrade(len(placed), self.waits)
        self.logs.opening = opening = Opening(len(placed), self.waits, is_logged=self.logs.upgrade is None)
        self.topics.open(placed, now_ms, opening.done)
        self.logs.note_losses()
        opening.finish()
        self.logs.opening = None
        if self.logs.upgrade is not None:
            self.logs.upgrade.finish()
            self.logs.upgrade = None
        self.quotas.begin(self.metadata_log, records)
        self.topology = Topology(self.nodes, self.topics, self.config, self.clock, self.waits, self._address)
        self.topology.begin(note)
        self._load_coordinators()
        self.topology.on_leader = self._leader_changed
        self._maintenance = Maintenance(
            self.clock, self.waits, self.config, self.logs, self.topics, self.topology, self.durability
        )
        self._maintenance.expire_tokens(self.tokens, self.config.get("delegation.token.expiry.check.interval.ms", 0))
        self.moves = Moves(files, self.logs, self.topics, self.config, self.clock, self.waits, self.durability)
        if self.config["log.cleaner.enable"]:
            # Not at once: the cleaner's imports would delay the start.
            first_ms = now_ms + self.config["log.cleaner.backoff.ms"]
            self._cleaner_timer = self.clock.call_at(first_ms, self._begin_cleaning, files)
        for log_dir in self.logs.directories:
            self._check_directory(log_dir)
        if self.failed.done():
            raise StorageError(self.failed.result())
        self.clients = ClientLedger.open(files, self.logs.online[0].path, self.apis.advertised, self.clock, self.waits)
        self.moves.resume()

    def _begin_cleaning(self, files: Files) -> None:
        from .background.cleaner import Cleaner

        self._cleaner_timer = None
        remove_later = self._maintenance.remove_later
        self._cleaner = Cleaner(self.loop, self.clock, self.config, files, self.logs, self.topics, remove_later)
        self._maintenance.is_cleaning = self._cleaner.is_cleaning
        self.moves.cleaning = self._cleaner.pass_over

    def _load_coordinators(self) -> None:
        """Loads the logs of the coordinators that exist: groups before transactions, since completing a transaction may
        end offset commits of a group. Releases without share groups have no state of share partitions.
        """
        for name in _HELD_IN:
            topic = self.topics.get(name) if is_internal(name, self.config) else None
            if topic is not None:
                self._partitions[name] = len(topic.partitions)
            for partition in topic.partitions if topic is not None else ():
                self._load_coordinator(partition)
        self.topics.on_created = self._topic_created
        self.topics.on_deleted = self._share_topic_deleted

    def _topic_created(self, topic: Topic) -> None:
        """Makes the coordinator whose log a new topic is: its modules take some 30 ms, in which its clients would wait.
        Not in the request that creates the topic, since Kafka's clients look for the coordinator again after that.
        """
        if topic.name in _HELD_IN and is_internal(topic.name, self.config):
            self.loop.call_soon(self._coordinator, topic.name)

    def _partitions_of(self, name: str) -> int:
        """Returns the partition count of a coordinator's log: that at the start, or the one it is created with."""
        return self._partitions.get(name) or self.config.get(f"{internal_prefix(name)}.num.partitions", 1)

    @functools.cached_property
    def telemetry(self) -> Telemetry:
        """The metrics that clients push."""
        from .metrics.client_telemetry import Telemetry

        max_bytes = self.config.get("telemetry.max.bytes", 0)  # a release without this config has no API for it either
        return Telemetry(lambda: self.named_configs.of(CLIENT_METRICS), max_bytes)

    @functools.cached_property
    def groups(self) -> GroupCoordinator:
        """The coordinator of groups."""
        from .groups.coordinator import GroupCoordinator
        from .groups.settings import CoordinatorSettings

        topics = self.topics
        groups = GroupCoordinator(
            append=partial(self._append_internal, GROUP_OFFSETS_TOPIC),
            append_transactional=partial(self._append_internal, GROUP_OFFSETS_TOPIC),
            partitions=self._partitions_of(GROUP_OFFSETS_TOPIC),
            clock=self.clock,
            topics=TopicLookup(
                has_partition=topics.has_partition,
                name_of=topics.topic_name,
                id_of=topics.topic_id,
                shape_of=self._topic_shape,
                names=topics.topic_names,
                version=lambda: self.metadata_log.end_offset,
                created_version=lambda: topics.created_at,
            ),
            settings=CoordinatorSettings.from_config(self.config, self.profile.behaviour),
        )
        groups.configs = self._configs_of_group
        groups.may_describe = self._may_describe
        if self._stores_share_state:
            groups.share_groups.state = self.share_state
        (groups.close if self._is_stopping else groups.start)()
        return groups

    @functools.cached_property
    def internal_topics(self) -> InternalTopics:
        """Creates the internal topics of streams applications."""
        from .groups.streams.internal_topics import InternalTopics

        return InternalTopics(self._create_all, self.clock)

    def _topic_shape(self, name: str) -> TopicShape | None:
        topic = self.topics.get(name)
        if topic is None:
            return None
        racks: tuple[tuple[str, ...], ...] = ()
        if any(self.nodes.racks.values()):
            of_replicas = ([self.nodes.racks.get(node) for node in one.replicas] for one in topic.partitions)
            racks = tuple(tuple(rack for rack in found if rack is not None) for found in of_replicas)
        return TopicShape(topic.id, name, len(topic.partitions), racks)

    def _configs_of_group(self, group_id: str) -> Mapping[str, str]:
        configs = self.named_configs.of(GROUP).get(group_id)
        if configs is None:
            return {}
        return capped(configs, self.config.get) if self.profile.behaviour.caps_group_configs else configs

    def _may_describe(self, topic: str, caller: Caller) -> bool:
        if self.authorizer is None:
            return True
        return self.authorizer.allows(*caller, AclOperation.DESCRIBE, ResourceType.TOPIC, topic)

    @property
    def serves_consumer_groups(self) -> bool:
        """Whether the consumer group protocol is enabled (KIP-848)."""
        enabled = self.profile.behaviour.consumer_groups
        if enabled == "none" or "consumer" not in self.config["group.coordinator.rebalance.protocols"]:
            return False
        return enabled == "config" or self.features.group_version >= 1

    @property
    def serves_streams_groups(self) -> bool:
        """Whether the streams group protocol is enabled (KIP-1071)."""
        return self.features.streams_groups and "streams" in self.config["group.coordinator.rebalance.protocols"]

    def _unserved_groups(self) -> str | None:
        """Returns the reason to log for a client whose group protocol is not served."""
        if not self.serves_consumer_groups:
            return WITHOUT_NEW_GROUPS
        return None if self.serves_streams_groups else WITH_CONSUMER_GROUPS

    def reconfigure_groups(self) -> None:
        """Applies changed broker configs to the group coordinator."""
        if "groups" in vars(self):
            from .groups.settings import CoordinatorSettings

            self.groups.settings = CoordinatorSettings.from_config(self.config, self.profile.behaviour)

    @functools.cached_property
    def transactions(self) -> TransactionCoordinator:
        """The coordinator of transactions."""
        from .transactions.coordinator import MarkerWriter, TransactionCoordinator
        from .transactions.settings import TransactionSettings

        transactions = TransactionCoordinator(
            append=partial(self._append_internal, TRANSACTION_STATE_TOPIC),
            markers=MarkerWriter(self._write_marker, self._marked),
            allocate=self.producer_ids.allocate,
            offsets_partition=lambda group_id: (GROUP_OFFSETS_TOPIC, self.groups.partition_of(group_id)),
            partitions=self._partitions_of(TRANSACTION_STATE_TOPIC),
            clock=self.clock,
            settings=TransactionSettings.from_config(self.config, self.features.transaction_version),
            waits=self.waits,
        )
        (transactions.close if self._is_stopping else transactions.start)()
        return transactions

    @functools.cached_property
    def share_state(self) -> StateCoordinator:
        """The coordinator of the state of share partitions."""
        from .share.state_coordinator import StateCoordinator, StateSettings

        topics = self.topics

        def has_partition(topic_id: bytes, index: int) -> bool:
            topic = topics.by_id(topic_id)
            return topic is not None and index < len(topic.partitions)

        writes = self.apis.advertised.get(ApiKey.WRITE_SHARE_GROUP_STATE)
        counts_complete = writes is not None and writes.last > 0  # completed deliveries are stored (KIP-1226)
        state = StateCoordinator(
            append=partial(self._append_internal, SHARE_STATE_TOPIC),
            prune=self._prune_share_state,
            has_partition=has_partition,
            partitions=self._partitions_of(SHARE_STATE_TOPIC),
            clock=self.clock,
            settings=StateSettings.from_config(self.config, counts_complete=counts_complete),
        )
        if not self._is_stopping:
            state.start()
        return state

    @property
    def _stores_share_state(self) -> bool:
        from .share.settings import NO_OP_PERSISTERS

        return self.config.get("group.share.persister.class.name") not in NO_OP_PERSISTERS

    @functools.cached_property
    def share_configs(self) -> ShareConfigs:
        """The configs of share groups."""
        from .share.settings import ShareConfigs

        return ShareConfigs(self.named_configs.of(GROUP), self.config, lambda: self.features.dead_letter_queues)

    @functools.cached_property
    def share_partitions(self) -> SharePartitions:
        """The share partitions that this broker leads."""
        from .share.share_partitions import NoOpPersister, SharePartitions

        persister = self.share_state if self._stores_share_state else NoOpPersister()
        return SharePartitions(persister, self.share_configs, self.clock, self.loop, self.dead_letters.write)

    @functools.cached_property
    def dead_letters(self) -> DeadLetterQueues:
        """The dead-letter queues of share groups."""
        from .share.dead_letters import DeadLetterQueues

        return DeadLetterQueues(self.topics, self.share_configs, self._append_dead_letters, self.clock, self.loop)

    async def _append_dead_letters(self, partition: Partition, data: bytearray) -> None:
        """Appends a batch as a producer with acks=-1 does. Raises what refuses it."""
        self.check_in_sync(partition)
        appended = await settled(partition.submit(data, self.clock.now_ms(), PRODUCE_VERSION, self.scheduler))
        if self.topic_metrics is not None:
            self.topic_metrics.appended(partition, data, appended)

    @functools.cached_property
    def share_sessions(self) -> ShareSessions:
        """The sessions of the members of share groups."""
        from .share.sessions import ShareSessions

        most = self.config.get("group.share.max.share.sessions", DEFAULT_SHARE_SESSIONS)
        return ShareSessions(most, self._share_session_lost, self.share_partitions.drop_group)

    def _share_topic_deleted(self, topic: Topic) -> None:
        if "groups" in vars(self):
            self.groups.share_groups.topic_deleted(topic.id)
        if "share_state" in vars(self):
            self.share_state.topic_deleted(topic.id)

    def _prune_share_state(self, index: int, offset: int) -> None:
        """Deletes the records of a partition of `__share_group_state` below an offset."""
        try:
            self.topics.partition(SHARE_STATE_TOPIC, index).log.delete_records_before(offset)
        except Exception as error:  # the next check tries again
            code_of(error)

    def _share_session_lost(self, key: SessionKey, partitions: list[TopicPartition]) -> None:
        """Releases the records of a member whose connection was lost."""
        from .groups.share.state import SharePartitionKey

        for topic_id, index in partitions:
            led = self.share_partitions.get(SharePartitionKey(key.group_id, topic_id, index))
            if led is not None:
                self.share_partitions.release(led, key.member)

    def _load_coordinator(self, partition: Partition) -> None:
        """Loads a partition of an internal topic into its coordinator."""
        is_groups = partition.topic == GROUP_OFFSETS_TOPIC
        coordinator = self._coordinator(partition.topic)
        if partition.offline is not None or partition.leader == NO_LEADER:
            coordinator.resign(partition.index)
            return
        if is_groups:
            from .groups.loading import stored_entries

            code = self.groups.load(partition.index, stored_entries(partition.log))
        elif partition.topic == SHARE_STATE_TOPIC:
            code = self.share_state.load(partition.index, read_all(partition.log))
        else:
            entries = ((record.key or b"", record.value) for record in read_all(partition.log))
            code = self.transactions.load(partition.index, entries)
        if code:
            # As in Kafka: the other partitions are served, these return COORDINATOR_NOT_AVAILABLE.
            get_logger().error(
                f"{_HELD_IN[partition.topic]} not readable",
                topic=partition.topic,
                partition=partition.index,
                code=code.name,
            )

    def _leader_changed(self, partition: Partition) -> None:
        """Resigns the old leader's coordinator of an internal partition and loads the new one's."""
        if is_internal(partition.topic, self.config):
            self._coordinator(partition.topic).resign(partition.index)
            self._load_coordinator(partition)

    def _coordinator(self, topic: str) -> GroupCoordinator | TransactionCoordinator | StateCoordinator:
        """The coordinator whose log an internal topic is."""
        if topic == GROUP_OFFSETS_TOPIC:
            return self.groups
        return self.transactions if topic == TRANSACTION_STATE_TOPIC else self.share_state

    def awaits_topic(self, name: str) -> bool:
        """Whether a coordinator does not exist yet because its topic does not."""
        return self.profile.behaviour.coordinator_awaits_topic and self.topics.get(name) is None

    def _is_broker_config(self, record: ConfigRecord) -> bool:
        """Whether a record sets a config of this broker, or of all."""
        is_applied = is_broker(record.resource_name) or not self.profile.behaviour.kraft_configs
        return is_applied and record.resource_type == RESOURCE_BROKER

    def _replay_broker_config(self, record: ConfigRecord) -> None:
        source = ConfigSource.DYNAMIC_BROKER if record.resource_name else ConfigSource.DYNAMIC_DEFAULT_BROKER
        node_id = int(record.resource_name) if is_broker(record.resource_name or "x") else None
        try:
            self.config.set_dynamic(record.name, record.value, source, node_id)
        except ConfigError as error:  # a record of a newer or older release
            get_logger().warning("broker config ignored", reason=str(error))

    # Rules that span the parts

    def _address(self, node_id: int) -> tuple[str, int]:
        """Returns the address of a node's first listener; a listener on all interfaces has 127.0.0.1."""
        name = self.options.listeners[0].name
        return self.options.advertised_address(name, self._ports.get((node_id, name), -1), "127.0.0.1", node_id)

    def endpoint(self, connection_info: ConnectionInfo, node_id: int | None = None) -> tuple[str, int]:
        """Returns the advertised host and port of a node for a client of this connection; without `node_id`, of the
        connection's own node.
        """
        if node_id is None:
            node_id = connection_info.node_id
        port = self._ports[node_id, connection_info.listener]
        return self.options.advertised_address(connection_info.listener, port, connection_info.local_host, node_id)

    async def auto_create(self, name: str, now_ms: int) -> Topic:
        """Creates a topic that a request named, in cooperative steps. Raises what `Topics.create` raises."""
        key, configs = "num.partitions", {}
        if is_internal(name, self.config):
            key, configs = f"{internal_prefix(name)}.num.partitions", internal_configs(name, self.config)
        partitions = self.config[key]
        return await self.topics.changes.make(name, self.topics.creating(name, partitions, configs, now_ms))

    async def _create_all(self, wanted: Sequence[InternalTopic]) -> dict[str, str]:
        """Creates topics, each on its own, and returns the texts of those that failed by name."""
        failed: dict[str, str] = {}
        if sum(topic.partitions for topic in wanted) > PARTITIONS_AT_ONCE_MAX:
            return dict.fromkeys((topic.name for topic in wanted), TOO_MANY_PARTITIONS)
        for topic in wanted:
            try:
                if self.topics.get(topic.name) is not None:
                    continue
                factor = topic.replication_factor
                if factor in (0, BROKER_DEFAULT):
                    factor = self.topics.replication_factor(topic.name)
                replicas = self.topics.place(topic.partitions, self.topics.check_factor(factor))
                now_ms = self.clock.now_ms()
                creating = self.topics.creating(topic.name, topic.partitions, dict(topic.configs), now_ms, replicas)
                await self.topics.changes.make(topic.name, creating)
            except Exception as error:
                code = code_of(error)
                failed[topic.name] = message_of(error) or code.name
        return failed

    def internal_topic(self, name: str, now_ms: int) -> Topic:
        """Returns one of Kafka's internal topics; creates it at first use, with Kafka's configs."""
        topic = self.topics.get(name)
        if topic is not None:
            return topic
        partitions = self.config[f"{internal_prefix(name)}.num.partitions"]
        return self.topics.create(name, partitions, internal_configs(name, self.config), now_ms)

    def finalize(self, updates: Sequence[Update], now_ms: int) -> None:
        """Finalises features at the levels of checked updates. Raises StorageError.

        With eligible leader replicas min.insync.replicas must be the same for all brokers: a change of that feature
        stores the value for all, and removes those of single brokers.
        """
        also: list[ConfigRecord] = []
        value = self.config.in_sync_of_all
        if any(update.feature == ELIGIBLE_LEADERS for update in updates):
            values: dict[str, str | None] = {"": value}
            if IN_SYNC in self.config.dynamic(ConfigSource.DYNAMIC_BROKER):
                values |= {str(node): None for node in self.nodes.ids}
            also = [
                ConfigRecord(resource_type=RESOURCE_BROKER, resource_name=resource, name=IN_SYNC, value=one)
                for resource, one in values.items()
            ]
        if not self.features.change(updates, also, now_ms):
            return
        if "transactions" in vars(self):
            from .transactions.settings import TransactionSettings

            self.transactions.settings = TransactionSettings.from_config(self.config, self.features.transaction_version)
        if not self.features.share_groups and "share_sessions" in vars(self):
            self.share_sessions.close_all()
            self.share_partitions.drop_all()
        if also:
            self.config.eligible_leaders = self.features.eligible_leaders
            self.config.set_dynamic(IN_SYNC, None, ConfigSource.DYNAMIC_BROKER)
            self.config.set_dynamic(IN_SYNC, value, ConfigSource.DYNAMIC_DEFAULT_BROKER)
            self.topics.reconfigure()

    def _append_internal(
        self,
        name: str,
        index: int,
        records: Sequence[tuple[bytes, bytes | None]],
        now_ms: int,
        producer_id: int = -1,
        producer_epoch: int = -1,
    ) -> Appended | asyncio.Future[Appended]:
        """Appends a coordinator's records to its log, as part of a transaction if a producer is given. Raises what
        appending raises; a future is done after the sync.
        """
        topic = self.internal_topic(name, now_ms)
        if index >= len(topic.partitions):  # the topic was created again with fewer partitions
            raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        entries = [batch.Record(delta, now_ms, key, value, ()) for delta, (key, value) in enumerate(records)]
        partition = topic.partitions[index]
        self.check_in_sync(partition)
        producer = (producer_id, producer_epoch) if producer_id >= 0 else None
        codec = self.config.get(f"{internal_prefix(name)}.compression.codec", 0)  # that of transactions has no config
        return partition.appended(partition.log.append_records(entries, now_ms=now_ms, codec=codec, producer=producer))

    def check_in_sync(self, partition: Partition) -> None:
        """Raises NOT_ENOUGH_REPLICAS if fewer replicas than min.insync.replicas are in sync."""
        if self.checks_in_sync:
            least = self.topics.named(partition.topic).config["min.insync.replicas"]
            at_most_replicas = self.profile.behaviour.in_sync_at_most_replicas
            partition.check_in_sync(least, at_most_replicas=at_most_replicas)

    def _unfinished(self) -> list[asyncio.Future[Any]]:
        """The newest appends that are under way, one for each partition."""
        return [p.unfinished for topic in self.topics for p in topic.partitions if p.unfinished is not None]

    def _write_marker(
        self, partition: tuple[str, int], markers: WriteMarkers, now_ms: int
    ) -> Appended | asyncio.Future[Appended]:
        """Writes a transaction marker to one partition. Raises what appending raises. A future ends with the sync."""
        # The coordinator's epoch is the leader epoch of its log, which can be read: the due markers come from it.
        log = TRANSACTION_STATE_TOPIC, self.transactions.partition_of(markers.transactional_id)
        ended = self.topics.partition(*partition)
        if ended.leader == NO_LEADER:
            raise Refused(ErrorCode.LEADER_NOT_AVAILABLE)
        self.check_in_sync(ended)
        is_there = self.topics.has_partition(*log)  # else a client has deleted it since
        coordinator_epoch = self.topics.partition(*log).leader_epoch if is_there else LEADER_EPOCH
        appended = ended.log.append_marker(
            markers.producer_id,
            markers.producer_epoch,
            committed=markers.committed,
            coordinator_epoch=coordinator_epoch,
            now_ms=now_ms,
            transaction_version=markers.client_version,
        )
        return ended.appended(appended)

    def _marked(self, partition: tuple[str, int], markers: WriteMarkers) -> None:
        """Completes or drops the offset commits that a transaction held in a partition."""
        topic, index = partition
        if topic == GROUP_OFFSETS_TOPIC:
            self.groups.end_transaction(index, markers.producer_id, committed=markers.committed)

    async def group_records_durable(self, group_id: str) -> ErrorCode:
        """Returns NONE when the coordinator's records of a group are as durable as `flush.messages` of its log
        requires, else the error.

        Waits for a sync that is under way, so that no response reports a state that a power loss could take back.
        """
        topic = self.topics.get(GROUP_OFFSETS_TOPIC)
        index = self.groups.partition_of(group_id)
        if topic is None or index >= len(topic.partitions):  # created again with fewer: nothing of the group is stored
            return ErrorCode.NONE
        try:
            covered = topic.partitions[index].syncs.covered()
            if covered is not None:
                await covered
        except Exception as error:
            code = code_of(error)
            from .groups.settings import WRITE_ERRORS

            return WRITE_ERRORS.get(code, code)
        return ErrorCode.NONE

    async def note_log_starts(self, moves: Mapping[PartitionLog, int]) -> None:
        """Makes new log start offsets durable before they are adopted: one write for each directory, in a thread.
        Errors are ignored, since the adoption writes them again.
        """
        for log_dir in self.logs.online:
            of_it = {log: offset for log, offset in moves.items() if log_dir.holds(log)}
            if of_it:
                with contextlib.suppress(StorageError):
                    await self.durability.in_thread(partial(log_dir.note_log_starts, of_it))

    def continue_after(self, earlier: BrokerState) -> None:
        """Continues from an earlier state whose clients are still connected: skips its producer ids, which must stay
        unique, and keeps leader epochs and feature epochs from going back. Raises StorageError.
        """
        self.producer_ids.skip(earlier.producer_ids)
        self.topology.continue_after(earlier.topology)
        self.features.continue_after(earlier.features)

    async def settle(self) -> None:
        """Returns when the work that the broker has begun is done: appends, syncs and other work in threads, a pass of
        the cleaner, and its consequences. Waiting requests such as fetches are not awaited. The number of rounds is
        limited, since clients may send new requests all the time.
        """
        for _ in range(SETTLING_ROUNDS):
            for _ in range(SETTLING_ITERATIONS):
                await asyncio.sleep(0)
            under_way = [*self._unfinished(), *self.moves.under_way, *self.topics.changes.under_way]
            if self._cleaner is not None and self._cleaner.under_way is not None:
                under_way.append(self._cleaner.under_way)
            if under_way:
                await asyncio.wait(under_way)
            elif self.durability.is_idle:
                return
            else:
                await self.durability.caught_up()

    # Failed directories

    def _soon_offline(self, log_dir: DataDirectory) -> None:
        """Schedules `_check_directory`. May be called from any thread and in the middle of any operation."""
        with contextlib.suppress(RuntimeError):  # the loop is closed, and the broker too
            self.loop.call_soon_threadsafe(self._check_directory, log_dir)

    def _check_directory(self, log_dir: DataDirectory) -> None:
        """Takes the partitions of a failed directory offline."""
        if log_dir.failure is None:
            return
        for partition in self.topics.take_offline(log_dir):
            if is_internal(partition.topic, self.config):
                self._coordinator(partition.topic).resign(partition.index)
        lost = "the one with the cluster's metadata" if log_dir is self.logs.metadata_dir else "the last one"
        if (log_dir is self.logs.metadata_dir or not self.logs.online) and not self.failed.done():
            self.failed.set_result(f"log directory {log_dir.path}, {lost}, failed: {log_dir.failure}")

    # Stopping

    def begin_stop(self) -> None:
        """Ends every wait, so that pending requests get a response, and completes changes of topics that were begun."""
        self.topics.changes.finish()
        for topic in self.topics:
            for partition in topic.partitions:
                wake_all(partition.waiters)
        self._is_stopping = True
        made = vars(self)
        for coordinator in ("groups", "transactions", "share_partitions", "share_state"):
            if coordinator in made:
                made[coordinator].close()
        self.quotas.close()
        self.topology.close()

    async def finish_appends(self, seconds: float) -> None:
        """Returns when all submitted appends are done or the time is over; their clients may not have received a
        response.

        Then ends cleaning and syncs that are under way, since they use the logs.
        """
        if tasks := self._unfinished():
            await asyncio.wait(tasks, timeout=seconds)
        if self._cleaner_timer is not None:
            self._cleaner_timer.cancel()
        await self.moves.close()
        if self._cleaner is not None:
            await self._cleaner.close()
        await self.durability.close()

    def close(self) -> None:
        """Flushes and closes all data. Raises StorageError if a write failed."""
        self._maintenance.close()
        self.clients.close()
        self.logs.close()

    def abandon(self) -> None:
        """Releases the data directories without writing, for a state that is about to be replaced. `begin_stop` and
        `finish_appends` come first.
        """
        self._maintenance.close()
        self.clients.close()
        self.logs.release()

    def __repr__(self) -> str:
        return f"BrokerState(cluster_id={self.cluster_id!r}, topics={len(self.topics)})"
