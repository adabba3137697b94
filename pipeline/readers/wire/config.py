"""The `kafka.*` options of a reader without their prefix: those with an effect, and those without.

Owns the lists, except that of the login and of TLS, which all clients share. Pure apart from one log line per unknown
name, as in Kafka's own clients.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Mapping, Set

from ....client.consumer.options import CONSUMER_ALIASES, ConsumerOptions
from ....client.net.errors import ConfigError
from ....client.net.options import read_options
from ....client.net.security import Settings, is_security, is_without_effect
from ....protocol.limits import INT32_MAX
from ...backend import ReadError

_CONNECTION = frozenset(
    {
        "bootstrap.servers",
        "client.id",
        "metadata.max.age.ms",
        "reconnect.backoff.max.ms",
        "reconnect.backoff.ms",
        "request.timeout.ms",
        "retry.backoff.max.ms",
        "retry.backoff.ms",
        "socket.connection.setup.timeout.ms",
    }
)
"""Options of connections, which every client has."""

_OWN_NAMES = {"socket.connection.setup.timeout.ms": "connect_timeout_ms"}
_CONNECTION_WITHOUT_EFFECT = frozenset(
    {
        "client.dns.lookup",
        "config.providers",
        "connections.max.idle.ms",
        "enable.metrics.push",
        "metadata.recovery.rebootstrap.trigger.ms",
        "metadata.recovery.strategy",
        "metric.reporters",
        "metrics.num.samples",
        "metrics.recording.level",
        "metrics.sample.window.ms",
        "receive.buffer.bytes",
        "send.buffer.bytes",
        "socket.connection.setup.timeout.max.ms",
    }
)

TAKEN = frozenset(
    {
        "check.crcs",
        "default.api.timeout.ms",
        "fetch.max.bytes",
        "fetch.max.wait.ms",
        "fetch.min.bytes",
        "isolation.level",
        "max.partition.fetch.bytes",
    }
)
WITHOUT_EFFECT = frozenset(
    {
        "allow.auto.create.topics",
        "auto.commit.interval.ms",
        "client.rack",
        "exclude.internal.topics",
        "group.id",
        "group.instance.id",
        "group.protocol",
        "group.remote.assignor",
        "heartbeat.interval.ms",
        "max.poll.interval.ms",
        "max.poll.records",
        "partition.assignment.strategy",
        "session.timeout.ms",
        "share.acknowledgement.mode",
        "throw.on.fetch.stable.offset.unsupported",
    }
)
"""Options of Kafka's consumer without effect here, besides metrics and socket buffers. `client.rack`: records are read
from the leaders."""

MAX_PARTITION_FETCH_BYTES = 8 << 20
"""The default size of what is decoded together. With Kafka's default of 1 MiB a record takes half as much CPU time
again."""

_RESPONSE_ROOM_BYTES = 1 << 20
_log = logging.getLogger(__name__)


def client_options(config: Mapping[str, str]) -> ConsumerOptions:
    """Returns the client's options. Raises ReadError without brokers, or for an invalid value."""
    taken = names_taken(config, TAKEN, WITHOUT_EFFECT, client="consumer")
    taken.setdefault("max.partition.fetch.bytes", str(MAX_PARTITION_FETCH_BYTES))
    # Reading a topic must never create it.
    fixed = {"allow_auto_create_topics": "false", "enable_auto_commit": "false"}
    try:
        options = read_options(ConsumerOptions, {**taken, **fixed}, CONSUMER_ALIASES)
        # A broker exceeds the limit by one batch if that batch is larger.
        most_bytes = max(options.response_bytes_max, options.fetch_max_bytes + _RESPONSE_ROOM_BYTES)
        own = {"response_bytes_max": str(min(most_bytes, INT32_MAX))}
        return read_options(ConsumerOptions, {**taken, **fixed, **own}, CONSUMER_ALIASES)
    except ConfigError as error:
        raise ReadError(f"an option kafka.* is invalid: {error}") from None


def names_taken(config: Mapping[str, str], taken: Set[str], without_effect: Set[str], *, client: str) -> Settings:
    """Returns the `kafka.*` options with an effect, by the client's names: those in `taken`, of connections, of the
    login and of TLS. Logs a warning for a name that a Kafka `client` does not have. Raises ReadError without
    brokers."""
    names = {str(name): str(value).strip() for name, value in config.items()}
    if not names.get("bootstrap.servers"):
        raise ReadError("kafka.bootstrap.servers must be given: brokers to connect to, as host:port,host:port")
    if not names.get("security.protocol", "PLAINTEXT"):
        del names["security.protocol"]
    found = Settings()
    for name, value in names.items():
        if name in taken or name in _CONNECTION or is_security(name):
            found[_OWN_NAMES.get(name, name)] = value
        elif name not in without_effect and name not in _CONNECTION_WITHOUT_EFFECT and not is_without_effect(name):
            _note_unknown(name, client)
    return found


@functools.cache
def _note_unknown(name: str, client: str) -> None:
    """Logs the warning once per process."""
    _log.warning("option kafka.%s is supplied but is not a known option of a Kafka %s", name, client)
