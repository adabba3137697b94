"""The options of the data sources: names, defaults and checks, as in Spark's own Kafka source.

Owns every option's name. Pure: strings in, one value for all readers out; no Spark, no I/O. Names are case-insensitive,
since Spark passes them in lower case. Source of Spark's own options: its Structured Streaming + Kafka Integration
Guide, and the checks of its KafkaSourceProvider.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from ..client.net.security import Settings
from ..protocol.limits import INT32_MAX, INT64_MAX
from ..protocol.names import did_you_mean
from .backend import OnCorrupt, Selection, Wanted
from .objects.places import is_url, local_path
from .offsets import (
    EARLIEST,
    LATEST,
    AtOffset,
    AtOffsets,
    AtTime,
    AtTimes,
    Limit,
    NoMatch,
    OptionError,
    parse_assignment,
    parse_offsets,
    parse_times,
)

Source = Literal["ottla_log", "ottla_batches", "ottla"]

BOOTSTRAP = "bootstrap.servers"
ISOLATION = "isolation.level"
DEFAULT_MAX_TRIGGER_DELAY_MS = 15 * 60_000
DEFAULT_MAX_BATCH_BYTES = 128 << 20

OPTIONS: tuple[str, ...] = (
    "path",
    "paths",
    "subscribe",
    "subscribePattern",
    "assign",
    "startingOffsets",
    "startingOffsetsByTimestamp",
    "startingTimestamp",
    "startingOffsetsByTimestampStrategy",
    "endingOffsets",
    "endingOffsetsByTimestamp",
    "endingTimestamp",
    "failOnDataLoss",
    "minPartitions",
    "maxRecordsPerPartition",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "commitGroup",
    "includeHeaders",
    "includeControlRecords",
    "metadata",
    "columns",
    "isolationLevel",
    "onCorrupt",
    "checkCrcs",
    "maxBatchBytes",
    "pushdown",
)
"""The options with an effect, besides `kafka.*` and `store.*`."""

STORE = "store."

NOT_ACTED_ON: Mapping[str, str] = {
    "groupIdPrefix": "no consumer group is used for reading",
    "kafka.group.id": "no consumer group is used for reading; commitGroup names one that offsets are committed to",
    "kafkaConsumer.pollTimeoutMs": "the client waits up to kafka.default.api.timeout.ms",
    "fetchOffset.numRetries": "the client retries until kafka.default.api.timeout.ms is over",
    "fetchOffset.retryIntervalMs": "the client retries after kafka.retry.backoff.ms",
}
"""Options of Spark's Kafka source that are accepted, for code written for it, with the reason why they have no effect
here."""

_ONLY_RECORDS = ("includeHeaders", "includeControlRecords", "metadata")
_ONLY_STREAMS = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay")
_ONLY_BATCH = ("endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp")
# Options that Spark itself adds for a source, or that a table of its catalog keeps there.
_SPARKS_OWN = ("checkpointlocation", "serialization.format", "schema", "streamname", "queryname")
_UNSUPPORTED_KAFKA: Mapping[str, str] = {
    "auto.offset.reset": "startingOffsets sets where to start",
    "key.deserializer": "keys are returned as bytes",
    "value.deserializer": "values are returned as bytes",
    "enable.auto.commit": "commitGroup commits offsets",
    "interceptor.classes": "records are returned unchanged",
}
_DURATION = re.compile(r"(-?[0-9]+)([a-z]*)")
_DURATION_US = {
    "us": 1,
    "ms": 1_000,
    "": 1_000,
    "s": 1_000_000,
    "m": 60_000_000,
    "min": 60_000_000,
    "h": 3_600_000_000,
    "d": 86_400_000_000,
}


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """The parsed options of a query; picklable.

    `kafka` has the `kafka.*` options without their prefix; its `repr` has no passwords. `columns` is None if the option
    is missing. `committed`: isolationLevel=read_committed. `notes`: sentences for the log on options without effect.
    `store` has the settings of an object store if paths are URLs.
    `max_offsets_per_trigger`, `min_offsets_per_trigger` and the limits on partitions are None if missing; the delay has
    a default. `pushdown`: whether filters narrow the query; None leaves that to the reader.
    """

    source: Source
    paths: tuple[str, ...]
    kafka: Mapping[str, str]
    selection: Selection
    starting: Limit
    ending: Limit
    no_match: NoMatch
    fail_on_data_loss: bool
    metadata: bool
    include_headers: bool
    include_control_records: bool
    columns: tuple[str, ...] | None
    committed: bool
    on_corrupt: OnCorrupt
    check_crcs: bool
    max_batch_bytes: int
    min_partitions: int | None
    max_records_per_partition: int | None
    max_offsets_per_trigger: int | None
    min_offsets_per_trigger: int | None
    max_trigger_delay_ms: int
    commit_group: str | None
    pushdown: bool | None
    notes: tuple[str, ...]
    store: tuple[tuple[str, str], ...] = ()

    def wanted(self, columns: tuple[str, ...], *, from_ms: int | None = None, before_ms: int | None = None) -> Wanted:
        """Returns what a piece reads of each record: these columns, in this order, with these options."""
        return Wanted(
            columns=columns,
            committed=self.committed,
            control=self.include_control_records,
            from_ms=from_ms,
            before_ms=before_ms,
            on_corrupt=self.on_corrupt,
            max_batch_bytes=self.max_batch_bytes,
            fail_on_loss=self.fail_on_data_loss,
            check_crcs=self.check_crcs,
        )


class _Given:
    """The options by lower-case name; each accessor names its option in the error."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._values = {key.lower(): value for key, value in options.items()}

    def __contains__(self, name: str) -> bool:
        return name.lower() in self._values

    def names(self) -> list[str]:
        return list(self._values)

    def below(self, prefix: str) -> dict[str, str]:
        """Returns the options that begin with a prefix, by the rest of their names."""
        return {name[len(prefix) :]: self.text(name) or "" for name in self._values if name.startswith(prefix)}

    def text(self, name: str) -> str | None:
        value = self._values.get(name.lower())
        return value.strip() if value is not None else None

    def flag(self, name: str, default: bool) -> bool:
        return self.choice(name, ("true", "false"), str(default).lower()) == "true"

    def number(self, name: str, *, at_least: int = 1, at_most: int = INT64_MAX) -> int | None:
        text = self.text(name)
        if text is None:
            return None
        if not re.fullmatch(r"[+-]?[0-9]{1,19}", text) or not at_least <= int(text) <= at_most:
            bounds = f">= {at_least}" if at_most == INT64_MAX else f"from {at_least} to {at_most}"
            raise OptionError(f"{name} is {text!r}: it must be a number {bounds}")
        return int(text)

    def choice(self, name: str, choices: tuple[str, ...], default: str) -> Any:
        text = self.text(name)
        if text is None:
            return default
        if text.lower() not in choices:
            raise OptionError(f"{name} is {text!r}: it must be {' or '.join(choices)}")
        return text.lower()

    def listed(self, name: str, what: str) -> tuple[str, ...] | None:
        text = self.text(name)
        if text is None:
            return None
        items = tuple(item.strip() for item in text.split(",") if item.strip())
        if not items:
            raise OptionError(f"{name} is {text!r}: it must name at least one {what}")
        return items


def parse(options: Mapping[str, str], source: Source, streaming: bool | None) -> SourceOptions:
    """Parses the options of a query. `streaming` is None as long as it is not known: then only the checks for both
    kinds run. Raises OptionError with one sentence."""
    given = _Given(options)
    kafka = Settings(given.below("kafka."))
    notes = _check_names(given, source)
    _check_kafka(kafka, source)
    if streaming is not None:
        notes += _check_kind(given, source, streaming)
    delay = given.text("maxTriggerDelay")
    found = SourceOptions(
        source=source,
        paths=_paths(given, source),
        kafka=kafka,
        selection=_selection(given),
        starting=_limit(given, "starting", AtOffset(LATEST if streaming else EARLIEST)),
        ending=_limit(given, "ending", AtOffset(LATEST)),
        no_match=given.choice("startingOffsetsByTimestampStrategy", ("error", "latest"), "error"),
        fail_on_data_loss=given.flag("failOnDataLoss", True),
        metadata=given.flag("metadata", False),
        include_headers=given.flag("includeHeaders", False),
        include_control_records=given.flag("includeControlRecords", False),
        columns=given.listed("columns", "column"),
        committed=_committed(given, kafka),
        on_corrupt=given.choice("onCorrupt", ("fail", "skip", "emit"), "fail"),
        check_crcs=given.flag("checkCrcs", given.flag("kafka.check.crcs", True)),
        max_batch_bytes=given.number("maxBatchBytes", at_most=INT32_MAX) or DEFAULT_MAX_BATCH_BYTES,
        min_partitions=given.number("minPartitions", at_most=INT32_MAX),
        max_records_per_partition=given.number("maxRecordsPerPartition"),
        max_offsets_per_trigger=given.number("maxOffsetsPerTrigger"),
        min_offsets_per_trigger=given.number("minOffsetsPerTrigger", at_least=0),
        max_trigger_delay_ms=DEFAULT_MAX_TRIGGER_DELAY_MS if delay is None else _duration_ms(delay, "maxTriggerDelay"),
        commit_group=given.text("commitGroup"),
        pushdown=given.flag("pushdown", False) if "pushdown" in given else None,
        notes=tuple(notes),
        store=_store(given, source),
    )
    if streaming is False:
        _check_batch_limits(found)
    _check_together(found)
    return found


def _store(given: _Given, source: Source) -> tuple[tuple[str, str], ...]:
    """Returns the settings of an object store: the options `store.*` without their prefix."""
    found = tuple(given.below(STORE).items())
    if found and source == "ottla":
        raise OptionError("ottla reads from brokers and takes no store.*; ottla_log reads copies of logs as objects")
    return found


def _check_names(given: _Given, source: Source) -> list[str]:
    """Refuses unknown names. Returns notes on options without effect."""
    known = {name.lower() for name in OPTIONS}
    idle = {name.lower(): name for name in NOT_ACTED_ON}
    notes: list[str] = []
    for name in given.names():
        if name in idle:
            notes.append(f"option {idle[name]} has no effect here: {NOT_ACTED_ON[idle[name]]}")
        elif name not in known and not name.startswith(("kafka.", STORE)) and name not in _SPARKS_OWN:
            hint = did_you_mean(name, [*OPTIONS, *NOT_ACTED_ON]) or f"; use {', '.join(OPTIONS)} or kafka.*"
            raise OptionError(f"{source} has no option {name}{hint}")
    if source == "ottla_batches":
        for name in _ONLY_RECORDS:
            if name in given:
                raise OptionError(f"ottla_batches has no option {name}, since its rows are batches; ottla_log has it")
    return notes


def _check_kafka(kafka: Mapping[str, str], source: Source) -> None:
    for name, instead in _UNSUPPORTED_KAFKA.items():
        if name in kafka:
            raise OptionError(f"kafka.{name} is not supported: {instead}")
    if source == "ottla" and not kafka.get(BOOTSTRAP):
        raise OptionError("kafka.bootstrap.servers must be given: brokers to connect to, as host:port,host:port")


def _check_kind(given: _Given, source: Source, streaming: bool) -> list[str]:
    """Refuses options of batch queries in a stream, and the reverse. Returns notes on options without effect."""
    if streaming:
        for name in _ONLY_BATCH:
            if name in given:
                raise OptionError(f"{name} is not valid in a streaming query, which has no end")
        return []
    if "commitGroup" in given:
        raise OptionError("commitGroup is not valid in a batch query: a streaming query commits what it has processed")
    return [f"option {name} has no effect in a batch query" for name in _ONLY_STREAMS if name in given]


def _paths(given: _Given, source: Source) -> tuple[str, ...]:
    """Returns the directories of `path`, separated by commas, and of `paths`, the JSON list that Spark makes of
    `load([a, b])`."""
    found = [*(given.listed("path", "directory") or ())]
    if (listed := given.text("paths")) is not None:
        try:
            more = json.loads(listed)
        except ValueError:
            more = None
        if not isinstance(more, list) or not all(isinstance(path, str) and path for path in more):
            raise OptionError(f'paths is {listed!r}: it must be a JSON list like ["/data/a", "/data/b"]')
        found += more
    if source == "ottla":
        if found:
            raise OptionError("ottla reads from brokers and takes no path; ottla_log reads directories")
    elif not found:
        raise OptionError("path must be given: log directories or folders of partitions, separated by commas")
    return tuple(dict.fromkeys(_local(path) for path in found))


def _local(path: str) -> str:
    """Returns the local path of a path or a file: URL, which Spark may have made of it."""
    if is_url(path):
        return path
    if (found := local_path(path)) is None:
        raise OptionError(f"path {path!r}: only directories that are mounted on every worker, and objects, can be read")
    return found


def _selection(given: _Given) -> Selection:
    ways = [name for name in ("subscribe", "subscribePattern", "assign") if name in given]
    if len(ways) > 1:
        raise OptionError(f"only one of subscribe, subscribePattern and assign may be given, not {' and '.join(ways)}")
    pattern = given.text("subscribePattern")
    if pattern is not None:
        if not pattern:
            raise OptionError("subscribePattern is empty: it must be a regular expression")
        try:
            re.compile(pattern)
        except re.error as error:
            raise OptionError(f"subscribePattern is {pattern!r}, which is not a regular expression: {error}") from None
    assigned = given.text("assign")
    return Selection(
        topics=given.listed("subscribe", "topic"),
        pattern=pattern,
        assigned=parse_assignment(assigned, "assign") if assigned is not None else None,
    )


def _limit(given: _Given, end: Literal["starting", "ending"], default: Limit) -> Limit:
    """Returns one end of a query: one time for all partitions, else times by partition, else offsets, in the order of
    precedence of Spark's Kafka source."""
    if (time_ms := given.number(f"{end}Timestamp", at_least=0)) is not None:
        return AtTime(time_ms)
    if (times := given.text(f"{end}OffsetsByTimestamp")) is not None:
        return AtTimes(parse_times(times, f"{end}OffsetsByTimestamp"))
    text = given.text(f"{end}Offsets")
    if text is None:
        return default
    named = {"earliest": EARLIEST, "latest": LATEST}.get(text.lower())
    return AtOffset(named) if named is not None else AtOffsets(parse_offsets(text, f"{end}Offsets"))


def _check_batch_limits(found: SourceOptions) -> None:
    """Refuses a batch query that starts at the end or ends at the start."""
    both = (
        ("startingOffsets", found.starting, LATEST, "latest"),
        ("endingOffsets", found.ending, EARLIEST, "earliest"),
    )
    for name, limit, refused, word in both:
        if limit == AtOffset(refused):
            raise OptionError(f"{name} can't be {word} in a batch query")
        if isinstance(limit, AtOffsets):
            for key, offset in limit.offsets.items():
                if offset == refused:
                    raise OptionError(f"{name} of {key} can't be {refused}, {word}, in a batch query")


def _check_together(found: SourceOptions) -> None:
    least, most = found.min_offsets_per_trigger, found.max_offsets_per_trigger
    if least is not None and most is not None and least > most:
        raise OptionError(f"minOffsetsPerTrigger is {least}, more than maxOffsetsPerTrigger, {most}")
    if found.commit_group == "":
        raise OptionError("commitGroup is empty: it must name a consumer group")
    if found.commit_group is not None and not found.kafka.get(BOOTSTRAP):
        raise OptionError("commitGroup needs kafka.bootstrap.servers: the brokers that keep the group's offsets")


def _committed(given: _Given, kafka: Mapping[str, str]) -> bool:
    """Returns isolationLevel, for which kafka.isolation.level is another name."""
    choices = ("read_uncommitted", "read_committed")
    own: str | None = given.choice("isolationLevel", choices, "") or None
    of_client: str | None = given.choice(f"kafka.{ISOLATION}", choices, "") or None if ISOLATION in kafka else None
    if own and of_client and own != of_client:
        raise OptionError(f"isolationLevel is {own}, but kafka.{ISOLATION} is {of_client}: give one of them")
    return (own or of_client) == "read_committed"


def _duration_ms(text: str, name: str) -> int:
    """Parses a duration as Spark does: "15m", "100ms", "2h"; a number alone is in milliseconds."""
    found = _DURATION.fullmatch(text.lower())
    if not found or found[2] not in _DURATION_US or len(found[1]) > 18:
        raise OptionError(f"{name} is {text!r}: it must be a duration such as 15m, 90s or 500ms")
    if (lasts := int(found[1]) * _DURATION_US[found[2]] // 1_000) < 0:
        raise OptionError(f"{name} is {text!r}: it must not be negative")
    return lasts
