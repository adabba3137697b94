"""Kafka's loggers for the parts that Ottla has, by release (KIP-412).

A logger of Ottla has the level of Kafka's logger of the same part unless it has its own. Loggers of parts that Ottla
does not have are not here: a level of theirs would have no effect. The names are those that brokers of 2.8.2, 3.9.1 and
4.3.1 list; classes that moved have another name from that release on.
"""

from __future__ import annotations

from .behaviour import Moves
from .profiles import NEWEST, Profile, at

PACKAGES = ("kafka", "org.apache.kafka")
"""The loggers above those of all parts, which Kafka's own configuration sets."""

_CLEANER = "org.apache.kafka.storage.internals.log.LogCleaner"
_CLIENT_METRICS: Moves = (("0.8.2", ()), ("3.7", ("org.apache.kafka.server.ClientMetricsManager",)))
_CONTROLLER: Moves = (
    ("0.8.2", ("kafka.controller.KafkaController",)),
    (
        "3.3",
        (
            "org.apache.kafka.controller.ReplicationControlManager",
            "org.apache.kafka.controller.QuorumController",
            "kafka.server.ControllerServer",
        ),
    ),
)
_LOG_MANAGER: Moves = (("0.8.2", ("kafka.log.LogManager",)),)
_PROCESS: Moves = (
    ("0.8.2", ("kafka.server.KafkaServer",)),
    ("3.3", ("kafka.server.BrokerServer", "kafka.server.KafkaRaftServer")),
)

# For each logger of Ottla, without its prefix: the loggers of Kafka, the nearest first.
_PARTS: dict[str, Moves] = {
    "background.cleaner": (("0.8.2", ("kafka.log.LogCleaner",)), ("4.1", (_CLEANER, "kafka.log.LogCleaner"))),
    "background.log_dir_moves": (("0.8.2", ("kafka.server.ReplicaManager",)),),
    "background.maintenance": _LOG_MANAGER,
    "broker_state": _PROCESS,
    "config.values": (
        ("0.8.2", ("kafka.server.KafkaConfig",)),
        ("4.0.0", ("org.apache.kafka.common.config.AbstractConfig",)),
    ),
    "errors": (("0.8.2", ("kafka.server.KafkaApis", "kafka.server.KafkaRequestHandler")),),
    "groups.lookups": (
        ("0.8.2", ("kafka.coordinator.group.GroupCoordinator",)),
        ("4.0.0", ("org.apache.kafka.coordinator.group.GroupCoordinatorService",)),
    ),
    "main": _PROCESS,
    "metadata.adopted_data": _LOG_MANAGER,
    "metadata.adoption": _LOG_MANAGER,
    "metadata.topics": _CONTROLLER,
    "metadata.topology": _CONTROLLER,
    "metrics.client_ledger": _CLIENT_METRICS,
    "metrics.client_telemetry": _CLIENT_METRICS,
    "network.connections": (("0.8.2", ("kafka.network.Processor", "kafka.network.SocketServer")),),
    "network.request_log": (("0.8.2", ("kafka.request.logger",)),),
    "quotas.client_quotas": (
        ("0.8.2", ("kafka.server.ClientQuotaManager$ThrottledChannelReaper", "kafka.network.ConnectionQuotas")),
        (
            "4.2",
            (
                "org.apache.kafka.server.quota.ClientQuotaManager$ThrottledChannelReaper",
                "org.apache.kafka.server.quota.ClientQuotaManager",
                "kafka.network.ConnectionQuotas",
            ),
        ),
    ),
    "replica.flush": _LOG_MANAGER,
    "replica.forced_upgrade": _LOG_MANAGER,
    "replica.log_dirs": (("0.8.2", ("kafka.server.ReplicaManager", "kafka.log.LogManager")),),
    "replica.start_progress": _LOG_MANAGER,
    "transactions.coordinator": (("0.8.2", ("kafka.coordinator.transaction.TransactionCoordinator",)),),
}


def kafka_loggers(profile: Profile) -> dict[str, tuple[str, ...]]:
    """Returns Kafka's loggers of each part by the name of Ottla's logger, without its prefix."""
    release = NEWEST if profile.is_own else profile.name
    return {part: at(moves, release) for part, moves in _PARTS.items()}


def kafka_logger_names(profile: Profile) -> tuple[str, ...]:
    """Returns the names of all of Kafka's loggers in a release, sorted."""
    return tuple(sorted({*PACKAGES, *(name for names in kafka_loggers(profile).values() for name in names)}))
