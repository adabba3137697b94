"""The start and the end of a query: Spark's JSON form of offsets, and the ranges that a batch query reads.

Owns the forms of `startingOffsets`, `assign` and related options, and resolves them against the logs of a backend. Pure
apart from calls to that backend; no Spark. Source: JsonUtils and KafkaOffsetReader of Spark's Kafka source.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from ..protocol.limits import INT32_MAX, INT64_MAX
from .backend import Backend, DataLoss, OffsetRange, Offsets, ReadError, TopicPartition

LATEST = -1
EARLIEST = -2

NoMatch = Literal["error", "latest"]
"""startingOffsetsByTimestampStrategy: how to treat a partition without a record at or after its timestamp."""

_log = logging.getLogger(__name__)
MAX_PIECES = 1_000_000
"""The highest number of tasks."""


class OptionError(ReadError):
    """An option is invalid. The message is one sentence that names it."""


class AtOffset(NamedTuple):
    """All partitions at EARLIEST or LATEST."""

    offset: int


class AtOffsets(NamedTuple):
    """Each partition at its own offset, at EARLIEST or at LATEST. Every partition that is read must be named."""

    offsets: Mapping[TopicPartition, int]


class AtTime(NamedTuple):
    """All partitions at their first record whose timestamp is >= `time_ms` (epoch milliseconds)."""

    time_ms: int


class AtTimes(NamedTuple):
    """Each partition at its first record whose timestamp is >= its own (epoch milliseconds). All must be named."""

    times: Mapping[TopicPartition, int]


Limit = AtOffset | AtOffsets | AtTime | AtTimes
"""The start or the end of a query."""

End = Literal["starting", "ending"]
_NAMES: Mapping[type[Limit], str] = {
    AtOffset: "Offsets",
    AtOffsets: "Offsets",
    AtTime: "Timestamp",
    AtTimes: "OffsetsByTimestamp",
}


def parse_offsets(text: str, name: str) -> Offsets:
    """Parses `{"topicA": {"0": 23, "1": -1}, "topicB": {"0": -2}}`. Raises OptionError, which names the option."""
    return _by_partition(text, name, '{"topicA": {"0": 23, "1": -1}, "topicB": {"0": -2}}', EARLIEST)


def parse_times(text: str, name: str) -> Offsets:
    """Parses `{"topicA": {"0": 1000}}`, in epoch milliseconds. Raises OptionError, which names the option."""
    return _by_partition(text, name, '{"topicA": {"0": 1700000000000, "1": 1700000000000}}', 0)


def parse_assignment(text: str, name: str) -> tuple[TopicPartition, ...]:
    """Parses `{"topicA": [0, 1]}`. Raises OptionError, which names the option."""
    wrong = OptionError(f'{name} is {text!r}: it must be like {{"topicA": [0, 1], "topicB": [2]}}')
    value = _object(text, wrong)
    found: list[TopicPartition] = []
    for topic, partitions in value.items():
        if not isinstance(partitions, list):
            raise wrong
        for partition in partitions:
            if not _whole(partition, 0, INT32_MAX):
                raise wrong
            found.append(TopicPartition(topic, partition))
    if not found:
        raise OptionError(f"{name} is {text!r}: it must name at least one partition")
    return tuple(dict.fromkeys(found))


def offsets_json(offsets: Mapping[TopicPartition, int]) -> str:
    """Returns the offsets in Spark's JSON form, in order; `parse_offsets` is the inverse."""
    return json.dumps(nested(offsets), separators=(",", ":"))


def nested(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    """Returns {topic: {"0": offset}} in order of topics and partitions, the form of a stream's offset."""
    found: dict[str, dict[str, int]] = {}
    for key in sorted(offsets):
        found.setdefault(key.topic, {})[str(key.partition)] = offsets[key]
    return found


def flat(value: Mapping[str, Mapping[str, int]]) -> Offsets:
    """Returns the offsets by partition; the inverse of `nested`."""
    return {TopicPartition(topic, int(part)): offset for topic, of in value.items() for part, offset in of.items()}


def _object(text: str, wrong: OptionError) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        raise wrong from None
    if not isinstance(value, dict):
        raise wrong
    return value


def _whole(value: object, least: int, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def _by_partition(text: str, name: str, example: str, least: int) -> Offsets:
    wrong = OptionError(f"{name} is {text!r}: it must be like {example}")
    found: Offsets = {}
    for topic, partitions in _object(text, wrong).items():
        if not isinstance(partitions, dict):
            raise wrong
        for partition, number in partitions.items():
            if not (partition.isascii() and partition.isdecimal() and _whole(int(partition), 0, INT32_MAX)):
                raise wrong
            if not _whole(number, least, INT64_MAX):
                raise wrong
            found[TopicPartition(topic, int(partition))] = number
    return found


def positions(
    backend: Backend,
    keys: Sequence[TopicPartition],
    limit: Limit,
    *,
    end: End = "starting",
    committed: bool,
    no_match: NoMatch = "latest",
    of: Sequence[TopicPartition] | None = None,
) -> Offsets:
    """Returns the offset of each partition at one end of a query. With `of` only of these partitions, though all must
    be named. Explicit offsets are not checked against the log. Partitions that no longer exist are left out.

    Raises OptionError if the named partitions are not those that are read, or if `no_match` is "error" and a partition
    has no record at or after its timestamp; ReadError from the backend.
    """
    requested: dict[TopicPartition, int]
    name = end + _NAMES[type(limit)]
    if isinstance(limit, AtOffsets | AtTimes):
        _same_partitions(limit[0], keys, name)
    keys = keys if of is None else of
    match limit:
        case AtOffset(offset):
            requested = dict.fromkeys(keys, offset)
        case AtOffsets(offsets):
            requested = {key: offsets[key] for key in keys}
        case AtTime(time_ms):
            requested = _at_times(backend, dict.fromkeys(keys, time_ms), name, committed, no_match)
        case AtTimes(times):
            requested = _at_times(backend, {key: times[key] for key in keys}, name, committed, no_match)
    earliest = [key for key, offset in requested.items() if offset == EARLIEST]
    latest = [key for key, offset in requested.items() if offset == LATEST]
    found = {key: offset for key, offset in requested.items() if offset >= 0}
    if earliest:
        found |= backend.earliest(earliest)
    if latest:
        found |= backend.latest(latest, committed=committed)
    return {key: found[key] for key in keys if key in found}


def _same_partitions(given: Mapping[TopicPartition, int], keys: Sequence[TopicPartition], name: str) -> None:
    if given.keys() != set(keys):
        missing, extra = _names(set(keys) - given.keys()), _names(given.keys() - set(keys))
        faults = [f"lacks {missing}"] * bool(missing) + [f"names {extra}, which is not read"] * bool(extra)
        raise OptionError(f"{name} must name every partition that is read and no other; it {' and '.join(faults)}")


def _names(keys: Iterable[TopicPartition]) -> str:
    named = sorted(keys)
    return ", ".join(map(str, named[:5])) + (f" and {len(named) - 5} more" if len(named) > 5 else "")


def _at_times(
    backend: Backend, times: Mapping[TopicPartition, int], name: str, committed: bool, no_match: NoMatch
) -> dict[TopicPartition, int]:
    """Returns the offsets for these timestamps. Like ListOffsets, ignores records at or after the high watermark or the
    last stable offset."""
    found = backend.at_times(times)
    ends = backend.latest([key for key, offset in found.items() if offset is not None], committed=committed)
    resolved: dict[TopicPartition, int] = {}
    for key, offset in found.items():
        if offset is not None and offset < ends.get(key, offset + 1):
            resolved[key] = offset
        elif no_match == "latest":
            resolved[key] = LATEST
        else:
            raise OptionError(
                f"{name}: {key} has no record with a timestamp >= {times[key]}; "
                "startingOffsetsByTimestampStrategy=latest starts such a partition at its end"
            )
    return resolved


def resolve(
    backend: Backend,
    keys: Sequence[TopicPartition],
    starting: Limit,
    ending: Limit,
    *,
    no_match: NoMatch,
    committed: bool,
    fail_on_data_loss: bool,
    of: Sequence[TopicPartition] | None = None,
) -> list[OffsetRange]:
    """Returns the range of each partition that a batch query reads, in order, without empty ones. With `of` only of
    these partitions, though explicit offsets and times must name all.

    Data is lost if an explicit offset is below the log start offset or above the end of the log, or if a partition no
    longer exists: raises DataLoss, or, without `fail_on_data_loss`, logs a warning and reads what exists. A start after
    the end raises OptionError. Raises ReadError from the backend as well.
    """
    starts = positions(backend, keys, starting, committed=committed, no_match=no_match, of=of)
    ends = positions(backend, keys, ending, end="ending", committed=committed, of=of)
    keys = keys if of is None else of
    given = [key for key in keys if _is_number(starting, key) or _is_number(ending, key)]
    first = backend.earliest(given) if given else {}
    # Read after the ends, so that a log that grows meanwhile does not look too short.
    last = backend.latest(given, committed=committed) if given else {}
    found: list[OffsetRange] = []
    for key in keys:
        if key not in starts or key not in ends or (key in given and (key not in first or key not in last)):
            _lost(f"{key} no longer exists", fail_on_data_loss)
            continue
        start, end = starts[key], ends[key]
        if start > end and _backwards(key, starting, ending):
            raise OptionError(f"the query of {key} starts at offset {start}, which is after its end, {end}")
        if key in given and start < first[key] and start < end:
            _lost(f"{key} begins at offset {first[key]}: those from {start} on are deleted", fail_on_data_loss)
            start = first[key]
        if key in given and end > last[key]:
            _lost(f"{key} ends at offset {last[key]}, before the requested end, {end}", fail_on_data_loss)
            end = last[key]
        if start < end:
            found.append(OffsetRange(key.topic, key.partition, start, end))
    return found


def _is_number(limit: Limit, key: TopicPartition) -> bool:
    return isinstance(limit, AtOffsets) and limit.offsets.get(key, LATEST) >= 0


def _backwards(key: TopicPartition, starting: Limit, ending: Limit) -> bool:
    """Returns whether the options put the start after the end, by an offset or by two timestamps. Otherwise the log was
    truncated or deleted between reading its start and its end, and nothing is left to read."""
    times = isinstance(starting, AtTime | AtTimes) and isinstance(ending, AtTime | AtTimes)
    return times or _is_number(starting, key) or _is_number(ending, key)


def _lost(what: str, fail: bool) -> None:
    if fail:
        raise DataLoss(f"records may be lost: {what}; failOnDataLoss=false reads the remaining ones")
    _log.warning("records may be lost: %s", what)


def split(ranges: Sequence[OffsetRange], max_records: int | None) -> list[OffsetRange]:
    """Splits ranges into parts of at most `max_records` offsets (maxRecordsPerPartition), those of a range of about
    equal size. Raises OptionError for more than MAX_PIECES parts."""
    if max_records is None:
        return list(ranges)
    counts = [-(-of.size // max_records) for of in ranges]
    if sum(counts) > MAX_PIECES:
        tasks = sum(counts)
        raise OptionError(f"maxRecordsPerPartition is {max_records}: {tasks} tasks, at most {MAX_PIECES} are allowed")
    return [
        OffsetRange(of.topic, of.partition, of.start + of.size * i // parts, of.start + of.size * (i + 1) // parts)
        for of, parts in zip(ranges, counts, strict=True)
        for i in range(parts)
    ]
