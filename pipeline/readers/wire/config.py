"""The `kafka.*` options of a reader, prefix off: what the client takes, what it cannot do, what means nothing to it.

Owns the three lists. Pure but for one line in the log per unknown name, as Kafka's own clients do.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Mapping, Set

from ....client.consumer.options import ConsumerOptions, with_own_names
from ....client.net.errors import ConfigError
from ....client.net.options import read_options
from ....protocol.limits import INT32_MAX
from ...backend import ReadError

__all__ = ["client_options", "names_taken"]

TAKEN = frozenset(
    {
        "bootstrap.servers",
        "check.crcs",
        "client.id",
        "default.api.timeout.ms",
        "fetch.max.bytes",
        "fetch.max.wait.ms",
        "fetch.min.bytes",
        "isolation.level",
        "max.partition.fetch.bytes",
        "metadata.max.age.ms",
        "reconnect.backoff.max.ms",
        "reconnect.backoff.ms",
        "request.timeout.ms",
        "retry.backoff.max.ms",
        "retry.backoff.ms",
        "socket.connection.setup.timeout.ms",
    }
)
_OWN_NAMES = {"socket.connection.setup.timeout.ms": "connect_timeout_ms"}

WITHOUT_EFFECT = frozenset(
    {
        "allow.auto.create.topics",
        "auto.commit.interval.ms",
        "client.dns.lookup",
        "client.rack",
        "config.providers",
        "connections.max.idle.ms",
        "enable.metrics.push",
        "exclude.internal.topics",
        "group.id",
        "group.instance.id",
        "group.protocol",
        "group.remote.assignor",
        "heartbeat.interval.ms",
        "max.poll.interval.ms",
        "max.poll.records",
        "metadata.recovery.rebootstrap.trigger.ms",
        "metadata.recovery.strategy",
        "metric.reporters",
        "metrics.num.samples",
        "metrics.recording.level",
        "metrics.sample.window.ms",
        "partition.assignment.strategy",
        "receive.buffer.bytes",
        "security.protocol",
        "security.providers",
        "send.buffer.bytes",
        "session.timeout.ms",
        "share.acknowledgement.mode",
        "socket.connection.setup.timeout.max.ms",
        "throw.on.fetch.stable.offset.unsupported",
    }
)
"""Options of Kafka's consumer that change nothing here: groups, metrics, buffers of the system. `client.rack`: records
are read from the leaders."""
_WITHOUT_EFFECT_BEGIN = ("sasl.", "ssl.")  # of security.protocols that are refused

MAX_PARTITION_FETCH_BYTES = 8 << 20
"""What is decoded together. Kafka's default of 1 MiB takes half as much again of the processor per record."""

_RESPONSE_ROOM_BYTES = 1 << 20
_log = logging.getLogger(__name__)


def client_options(config: Mapping[str, str]) -> ConsumerOptions:
    """What the client is told. Raises ReadError: no brokers, a malformed value, or what this client cannot do."""
    can = "this source cannot speak: it reads from listeners"
    names = names_taken(config, TAKEN, WITHOUT_EFFECT, client="consumer", can=can)
    taken = {_OWN_NAMES.get(name, name): value for name, value in names.items()}
    taken.setdefault("max.partition.fetch.bytes", str(MAX_PARTITION_FETCH_BYTES))
    # To read a topic must never make one.
    fixed = {"allow_auto_create_topics": "false", "enable_auto_commit": "false"}
    try:
        options = read_options(ConsumerOptions, with_own_names({**taken, **fixed}))
        # A broker exceeds the limit by one batch, where that is larger.
        most_bytes = max(options.response_bytes_max, options.fetch_max_bytes + _RESPONSE_ROOM_BYTES)
        own = {"response_bytes_max": str(min(most_bytes, INT32_MAX))}
        return read_options(ConsumerOptions, with_own_names({**taken, **fixed, **own}))
    except ConfigError as error:
        raise ReadError(f"an option kafka.* is not as it must be: {error}") from None


def names_taken(
    config: Mapping[str, str], taken: Set[str], without_effect: Set[str], *, client: str, can: str
) -> dict[str, str]:
    """Those of `kafka.*` that mean something, prefix off. Of a name that a Kafka `client` does not have the log tells.
    Raises ReadError: no brokers, or a protocol of security, of which `can` says what is possible."""
    names = {str(name): str(value).strip() for name, value in config.items()}
    if not names.get("bootstrap.servers"):
        raise ReadError("kafka.bootstrap.servers must be given: the brokers to ask first, as host:port,host:port")
    protocol = names.get("security.protocol", "PLAINTEXT") or "PLAINTEXT"
    if protocol.upper() != "PLAINTEXT":
        raise ReadError(f"kafka.security.protocol is {protocol}, which {can} that are PLAINTEXT")
    for name in names:
        if name not in taken and name not in without_effect and not name.startswith(_WITHOUT_EFFECT_BEGIN):
            _note_unknown(name, client)
    return {name: value for name, value in names.items() if name in taken}


@functools.cache
def _note_unknown(name: str, client: str) -> None:
    """Tells once per process."""
    _log.warning("option kafka.%s is supplied but is not a known option of a Kafka %s", name, client)
