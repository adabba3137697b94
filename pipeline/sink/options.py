"""The options of the sink: their names, their defaults, and what is refused.

Owns every name. Pure: texts in, one value out, which goes to the tasks. Names are read without regard to case, since
Spark hands them on in lower case. What an option of Kafka's producer means is that producer's to say, but that what a
batch holds may depend on its rows alone: nothing waits for more (linger.ms), or for room (buffer.memory).
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass

from ...client.net.errors import ConfigError
from ...client.net.options import read_options
from ...client.producer.options import ProducerOptions
from ...protocol.limits import INT32_MAX
from ...protocol.records.compression import Codec
from ..backend import ReadError
from ..readers.wire.config import names_taken
from .errors import SinkError

__all__ = ["BATCH_BYTES", "IN_FLIGHT", "OPTIONS", "SinkOptions"]

OPTIONS: tuple[str, ...] = ("topic", "transactionalId", "orderBy", "idempotencyKey", "stagingLocation")
"""What is acted on, besides `kafka.*`."""

BATCH_BYTES = 256 << 10
"""What the records of a batch take before they are compressed, at most. Kafka's default of 16 KiB costs three times the
requests and half as much again of the processor."""

TRANSACTION_TIMEOUT_MS = 600_000
"""Kafka's default of one minute is shorter than many a micro-batch; brokers allow 15 unless they are told otherwise."""

IN_FLIGHT = 5
"""As many batches of a producer as every broker since 1.0 remembers."""

TAKEN = frozenset(
    {
        "batch.size",
        "bootstrap.servers",
        "client.id",
        "compression.gzip.level",
        "compression.lz4.level",
        "compression.type",
        "compression.zstd.level",
        "delivery.timeout.ms",
        "max.block.ms",
        "max.in.flight.requests.per.connection",
        "max.request.size",
        "metadata.max.age.ms",
        "reconnect.backoff.max.ms",
        "reconnect.backoff.ms",
        "request.timeout.ms",
        "retry.backoff.max.ms",
        "retry.backoff.ms",
        "socket.connection.setup.timeout.ms",
        "transaction.timeout.ms",
    }
)
_OWN_NAMES = {"socket.connection.setup.timeout.ms": "connect_timeout_ms"}

WITHOUT_EFFECT = frozenset(
    {
        "buffer.memory",
        "client.dns.lookup",
        "config.providers",
        "connections.max.idle.ms",
        "enable.metrics.push",
        "linger.ms",
        "metadata.max.idle.ms",
        "metadata.recovery.rebootstrap.trigger.ms",
        "metadata.recovery.strategy",
        "metric.reporters",
        "metrics.num.samples",
        "metrics.recording.level",
        "metrics.sample.window.ms",
        "partitioner.adaptive.partitioning.enable",
        "partitioner.availability.timeout.ms",
        "receive.buffer.bytes",
        "retries",
        "security.protocol",
        "security.providers",
        "send.buffer.bytes",
        "socket.connection.setup.timeout.max.ms",
    }
)
"""Options of Kafka's producer that change nothing here: waiting for more records, metrics, buffers of the system.
`retries`: what can be tried again is, until delivery.timeout.ms."""

_REFUSED: Mapping[str, str] = {
    "interceptor.classes": "records are written as they are",
    "key.serializer": "keys are written as bytes or text",
    "partitioner.class": "a row goes to its column partition, else where its key belongs",
    "partitioner.ignore.keys": "a row goes to its column partition, else where its key belongs",
    "transaction.two.phase.commit.enable": "each micro-batch is one transaction, which ends with it",
    "transactional.id": "the option transactionalId names it",
    "value.serializer": "values are written as bytes or text",
}
_ONLY: Mapping[str, tuple[str, ...]] = {"acks": ("all", "-1"), "enable.idempotence": ("true", "required", "requested")}
_SPARKS_OWN = ("checkpointlocation", "path", "queryname", "streamname")


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """What a query asks of the sink; can be pickled.

    `kafka` are the `kafka.*` options without their prefix, `client` what they mean. `batch_bytes` is what the records
    of a batch take before they are compressed, about. `topic`, `transactional_id`, `idempotency_key` and
    `staging_location` are None where they are not given, `order_by` is empty then.
    """

    kafka: Mapping[str, str]
    client: ProducerOptions
    topic: str | None = None
    transactional_id: str | None = None
    order_by: tuple[str, ...] = ()
    idempotency_key: str | None = None
    staging_location: str | None = None
    batch_bytes: int = BATCH_BYTES

    @property
    def codec(self) -> Codec:
        """How batches are compressed."""
        name = self.client.compression_type or "none"
        return Codec[name.upper()]

    @property
    def in_flight(self) -> int:
        """How many batches may be without an answer."""
        return min(self.client.max_in_flight_requests_per_connection, IN_FLIGHT)

    @classmethod
    def read(cls, options: Mapping[str, str]) -> SinkOptions:
        """The options as a query gives them. Raises SinkError, in one sentence."""
        for name, value in options.items():
            if value is None:
                raise SinkError(f"{name} has no value")
        given = {str(name).lower(): str(value).strip() for name, value in options.items()}
        _check_names(given)
        kafka = {name.removeprefix("kafka."): value for name, value in given.items() if name.startswith("kafka.")}
        client = client_options(kafka)
        batch_bytes = client.batch_size if "batch.size" in kafka else BATCH_BYTES
        order = given.get("orderby")
        names = tuple(part.strip() for part in (order or "").split(",") if part.strip())
        if order is not None and not names:
            raise SinkError("orderBy names no column")
        texts = {name: given.get(name.lower()) for name in OPTIONS}
        for name, text in texts.items():
            if text is not None and not text:
                raise SinkError(f"{name} is empty")
        return cls(
            kafka=kafka,
            client=client,
            topic=texts["topic"],
            transactional_id=texts["transactionalId"],
            order_by=names,
            idempotency_key=texts["idempotencyKey"],
            staging_location=texts["stagingLocation"],
            batch_bytes=max(1, min(batch_bytes, client.max_request_size)),
        )


def _check_names(given: Mapping[str, str]) -> None:
    known = {name.lower(): name for name in OPTIONS}
    for name in given:
        if name not in known and not name.startswith("kafka.") and name not in _SPARKS_OWN:
            near = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
            hint = f"; did you mean {known[near[0]]}?" if near else f"; it has {', '.join(OPTIONS)} and kafka.*"
            raise SinkError(f"the sink has no option {name}{hint}")


def client_options(kafka: Mapping[str, str]) -> ProducerOptions:
    """What the client is told. Raises SinkError: no brokers, a malformed value, or what this sink cannot do."""
    for name, why in _REFUSED.items():
        if name in kafka:
            raise SinkError(f"kafka.{name} is not supported: {why}")
    for name, values in _ONLY.items():
        if name in kafka and kafka[name].lower() not in values:
            raise SinkError(f"kafka.{name} is {kafka[name]}, with which nothing is written exactly once: leave it out")
    idle = WITHOUT_EFFECT | _ONLY.keys()
    try:
        taken = names_taken(kafka, TAKEN, idle, client="producer", can="this sink cannot speak: it writes to listeners")
        level = taken.get(f"compression.{taken.get('compression.type', '').lower()}.level")
        values = {
            _OWN_NAMES.get(name, name): value
            for name, value in taken.items()
            if not (name.startswith("compression.") and name.endswith(".level"))
        }
        if level is not None:
            values["compression_level"] = level
        if "compression.type" in values:
            values["compression.type"] = values["compression.type"].lower()
        # To write to a topic must never make one.
        fixed = {"allow_auto_create_topics": "false", "old_brokers": "false"}
        values.setdefault("transaction.timeout.ms", str(TRANSACTION_TIMEOUT_MS))
        if values.get("max.block.ms", "").isdecimal():
            fixed["default_api_timeout_ms"] = str(min(max(1, int(values["max.block.ms"])), INT32_MAX))
        return read_options(ProducerOptions, values | fixed)
    except ReadError as error:
        raise SinkError(str(error)) from None
    except ConfigError as error:
        raise SinkError(f"an option kafka.* is not as it must be: {error}") from None
