"""The options of the sink: names, defaults and checks.

Owns every name. Pure: strings in, one value out, which goes to the tasks. Names are case-insensitive, since Spark
passes them in lower case. Options of Kafka's producer have its meaning, except those that would make a batch depend on
anything but its rows: no waiting for more records (linger.ms) or for room (buffer.memory).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ...client.net.errors import ConfigError
from ...client.net.options import read_options
from ...client.net.security import Settings
from ...client.producer.options import ProducerOptions
from ...protocol.limits import INT32_MAX
from ...protocol.names import did_you_mean
from ...protocol.records.compression import Codec
from ..backend import ReadError
from ..readers.wire.config import names_taken
from .errors import SinkError

OPTIONS: tuple[str, ...] = ("topic", "transactionalId", "orderBy")
"""The options with an effect, besides `kafka.*`."""

BATCH_BYTES = 256 << 10
"""The most that the records of a batch take uncompressed. Kafka's default of 16 KiB needs three times the requests and
half as much CPU time again."""

TRANSACTION_TIMEOUT_MS = 600_000
"""Kafka's default of one minute is shorter than many micro-batches; brokers allow 15 minutes by default."""

IN_FLIGHT = 5
"""Every broker since 1.0 keeps this many batches of a producer for deduplication."""

TAKEN = frozenset(
    {
        "batch.size",
        "compression.gzip.level",
        "compression.lz4.level",
        "compression.type",
        "compression.zstd.level",
        "delivery.timeout.ms",
        "max.block.ms",
        "max.in.flight.requests.per.connection",
        "max.request.size",
        "transaction.timeout.ms",
    }
)
WITHOUT_EFFECT = frozenset(
    {
        "buffer.memory",
        "linger.ms",
        "metadata.max.idle.ms",
        "partitioner.adaptive.partitioning.enable",
        "partitioner.availability.timeout.ms",
        "retries",
    }
)
"""Options of Kafka's producer without effect here, besides metrics and socket buffers. `retries`: retriable errors are
retried until delivery.timeout.ms."""

_REFUSED: Mapping[str, str] = {
    "interceptor.classes": "records are written unchanged",
    "key.serializer": "keys are written as bytes or text",
    "partitioner.class": "a row goes to its column partition, else to the partition of its key",
    "partitioner.ignore.keys": "a row goes to its column partition, else to the partition of its key",
    "transaction.two.phase.commit.enable": "each micro-batch is one transaction",
    "transactional.id": "use the option transactionalId",
    "value.serializer": "values are written as bytes or text",
}
_ONLY: Mapping[str, tuple[str, ...]] = {"acks": ("all", "-1"), "enable.idempotence": ("true", "required", "requested")}
_SPARKS_OWN = ("checkpointlocation", "path", "queryname", "streamname")


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """The parsed options of a sink; picklable.

    `kafka` has the `kafka.*` options without their prefix, `client` the client's options made of them. `batch_bytes` is
    the approximate uncompressed size of a batch's records. `topic` and `transactional_id` are None if missing,
    `order_by` is empty then.
    """

    kafka: Mapping[str, str]
    client: ProducerOptions
    topic: str | None = None
    transactional_id: str | None = None
    order_by: tuple[str, ...] = ()
    batch_bytes: int = BATCH_BYTES

    @property
    def codec(self) -> Codec:
        """The compression of batches."""
        return Codec[(self.client.compression_type or "none").upper()]

    @property
    def in_flight(self) -> int:
        """The maximum number of batches without a response."""
        return min(self.client.max_in_flight_requests_per_connection, IN_FLIGHT)

    @classmethod
    def read(cls, options: Mapping[str, str]) -> SinkOptions:
        """Parses the options of a query. Raises SinkError with one sentence."""
        for name, value in options.items():
            if value is None:
                raise SinkError(f"{name} has no value")
        given = {str(name).lower(): str(value).strip() for name, value in options.items()}
        known = {name.lower() for name in OPTIONS}
        for name in given:
            if name not in known and not name.startswith("kafka.") and name not in _SPARKS_OWN:
                hint = did_you_mean(name, OPTIONS) or f"; use {', '.join(OPTIONS)} or kafka.*"
                raise SinkError(f"the sink has no option {name}{hint}")
        kafka = Settings(
            {name.removeprefix("kafka."): value for name, value in given.items() if name.startswith("kafka.")}
        )
        client = client_options(kafka)
        batch_bytes = client.batch_size if "batch.size" in kafka else BATCH_BYTES
        order = given.get("orderby")
        names = tuple(part.strip() for part in (order or "").split(",") if part.strip())
        if order is not None and not names:
            raise SinkError("orderBy must name at least one column")
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
            batch_bytes=max(1, min(batch_bytes, client.max_request_size)),
        )


def client_options(kafka: Mapping[str, str]) -> ProducerOptions:
    """Returns the client's options. Raises SinkError without brokers, for an invalid value, or for an unsupported
    option."""
    for name, why in _REFUSED.items():
        if name in kafka:
            raise SinkError(f"kafka.{name} is not supported: {why}")
    for name, values in _ONLY.items():
        if name in kafka and kafka[name].lower() not in values:
            raise SinkError(f"kafka.{name} is {kafka[name]}, which does not allow exactly-once writing: leave it out")
    idle = WITHOUT_EFFECT | _ONLY.keys()
    try:
        taken = names_taken(kafka, TAKEN, idle, client="producer")
        level = taken.get(f"compression.{taken.get('compression.type', '').lower()}.level")
        values = {
            name: value
            for name, value in taken.items()
            if not (name.startswith("compression.") and name.endswith(".level"))
        }
        if level is not None:
            values["compression_level"] = level
        if "compression.type" in values:
            values["compression.type"] = values["compression.type"].lower()
        # Writing to a topic must never create it.
        fixed = {"allow_auto_create_topics": "false", "old_brokers": "false"}
        values.setdefault("transaction.timeout.ms", str(TRANSACTION_TIMEOUT_MS))
        if values.get("max.block.ms", "").isdecimal():
            fixed["default_api_timeout_ms"] = str(min(max(1, int(values["max.block.ms"])), INT32_MAX))
        return read_options(ProducerOptions, values | fixed)
    except ReadError as error:
        raise SinkError(str(error)) from None
    except ConfigError as error:
        raise SinkError(f"an option kafka.* is invalid: {error}") from None
