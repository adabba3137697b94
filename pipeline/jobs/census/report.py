"""The report of a census: counts by partition, by topic and in total, as JSON and as text.

Owns the aggregation and the words; `storage/log_dir/readiness.py` has the rules of Kafka 4.0. Pure. The document of
`to_dict` and `to_json`, all sizes in bytes and all times in epoch milliseconds:

    paths, seconds, partitions, segments, file_bytes   the scope
    topic_configs_known, old_formats                   true or false
    on_4_0                                             sentences about 4.0 that hold for every topic
    total                                              facts
    topics                                             one by name: topic, configs (null: not known), on_4_0, notes,
                                                       facts, and its partitions: partition, folder, segments,
                                                       file_bytes, offsets {first, end}, facts

where facts are

    records, entries, bytes, raw_bytes                 raw: uncompressed
    formats                                            [{format, codec, entries, records, bytes, raw_bytes}]
    keys, values                                       {count, nulls, bytes, min, mean, max, p50, p90, p99, p999,
                                                       histogram: [{from, to, count}]}; null where there are none
    headers                                            {records, headers, bytes}
    times                                              {create, append: {records, first, last}, none: records}
    largest_entry_bytes
    producers                                          {ids, numbered, transactional: {entries, records, bytes}}
    markers                                            {commits, aborts, other}
    damage                                             {places, bytes, first: [{file, byte, bytes, kind, what}]}
    gone_segments                                      deleted before they were read
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from ....protocol.internal_records.metadata_values import TOPIC as METADATA_TOPIC
from ....protocol.records.compression import CODEC_NAMES
from ....protocol.text import moment, plural, table, visible
from ....storage.log_dir import readiness
from ...objects.places import is_url
from ..report import Report, total
from .facts import Amount, Damaged, Facts, Sizes, Times, merge
from .plan import Plan, SegmentPiece

NOTES_MAX = 20  # notes of one topic in the text
PERCENTILES = (("p50", 50.0), ("p90", 90.0), ("p99", 99.0), ("p999", 99.9))


@dataclass(slots=True)
class PartitionCensus:
    """The counts of one partition's folder."""

    partition: int
    folder: str
    segments: int
    bytes: int
    facts: Facts = field(default_factory=Facts)


@dataclass(slots=True)
class TopicCensus:
    """The counts of a topic. `configs`: its own, None if unknown. `notes`: what was not counted, or counted twice."""

    topic: str
    partitions: list[PartitionCensus]
    facts: Facts
    configs: dict[str, str] | None
    on_4_0: list[str]
    notes: list[str]

    segments, bytes = (total("partitions", name) for name in ("segments", "bytes"))


@dataclass(slots=True)
class CensusReport(Report):
    """The counts of these log directories and partition folders."""

    paths: list[str]
    topics: list[TopicCensus]
    facts: Facts
    configs_known: bool
    on_4_0: list[str]
    seconds: float = 0.0

    @property
    def old_formats(self) -> bool:
        """Whether any record is stored in v0 or v1."""
        return any(magic < 2 for magic, _ in self.facts.formats)

    @property
    def counted(self) -> list[TopicCensus]:
        """The topics of the totals: all but the metadata log, which holds no messages of clients."""
        return [topic for topic in self.topics if topic.topic != METADATA_TOPIC]

    @property
    def partitions(self) -> int:
        return sum(len(topic.partitions) for topic in self.counted)

    segments, bytes = (total("counted", name) for name in ("segments", "bytes"))

    def to_dict(self) -> dict[str, Any]:
        return {
            "paths": self.paths,
            "seconds": round(self.seconds, 3),
            "partitions": self.partitions,
            "segments": self.segments,
            "file_bytes": self.bytes,
            "topic_configs_known": self.configs_known,
            "old_formats": self.old_formats,
            "on_4_0": self.on_4_0,
            "total": _facts(self.facts),
            "topics": [_topic(topic) for topic in self.topics],
        }

    def lines(self) -> Iterator[str]:
        """Returns each topic, the totals, and the behaviour of 4.0."""
        for topic in self.topics:
            parts = plural(len(topic.partitions), "partition"), plural(topic.segments, "segment")
            yield visible(f"{topic.topic} ({', '.join(parts)}, {topic.bytes} bytes)")
            yield from _of_facts(topic.facts)
            yield from (visible(f"  ! {note}") for note in topic.notes)
            yield from (visible(f"  > {sentence}") for sentence in topic.on_4_0)
            yield ""
        parts = plural(len(self.counted), "topic"), plural(self.partitions, "partition")
        left_out = f" without {METADATA_TOPIC}" if len(self.counted) < len(self.topics) else ""
        yield f"All{left_out}: {', '.join(parts)}, {plural(self.segments, 'segment')}, {self.bytes} bytes"
        yield from _of_facts(self.facts)
        if self.facts.damaged:
            yield f"  ! {self.facts.damaged_bytes} bytes in {plural(self.facts.damaged, 'place')} are not counted"
        old = [amount for (magic, _), amount in self.facts.formats.items() if magic < 2]
        if old:
            records, stored = sum(amount.records for amount in old), sum(amount.bytes for amount in old)
            topics = sum(any(magic < 2 for magic, _ in topic.facts.formats) for topic in self.counted)
            yield f"  > {plural(records, 'record')}, {stored} bytes in v0 and v1, in {plural(topics, 'topic')}"
        yield ""
        yield "On Kafka 4.0, whatever the format:"
        yield from (f"  > {sentence}" for sentence in self.on_4_0)


def report(plan: Plan, counted: Iterable[tuple[SegmentPiece, Facts]], seconds: float = 0.0) -> CensusReport:
    """Returns the report of the counts; the pieces may arrive in any order."""
    by_folder = {
        folder.path: PartitionCensus(
            folder.partition,
            folder.path,
            len(folder.segments),
            sum(segment.size_bytes for segment in folder.segments),
        )
        for folder in plan.folders
    }
    for piece, facts in counted:
        by_folder[os.path.dirname(piece.path)].facts.add(facts)
    by_topic: dict[str, list[PartitionCensus]] = {}
    for folder in plan.folders:
        by_topic.setdefault(folder.topic, []).append(by_folder[folder.path])
    topics: list[TopicCensus] = []
    total = Facts()
    for name, partitions in sorted(by_topic.items()):
        facts = merge(partition.facts for partition in partitions)
        if name != METADATA_TOPIC:
            total.add(facts)
        configs = None if plan.configs is None else plan.configs.get(name, {})
        amounts = [
            readiness.Amount(*key, amount.records, amount.bytes) for key, amount in sorted(facts.formats.items())
        ]
        on_4_0, notes = readiness.of_topic(amounts, configs), list(_notes(facts, partitions))
        topics.append(TopicCensus(name, partitions, facts, configs, on_4_0, notes))
    old_in = plan.paths if any(magic < 2 for magic, _ in total.formats) else []
    directories = [path for path in old_in if not is_url(path)]
    in_stores = len(directories) < len(old_in)
    on_4_0 = readiness.of_all(directories, old_in_stores=in_stores, configs_known=plan.configs is not None)
    return CensusReport(plan.paths, topics, total, plan.configs is not None, on_4_0, seconds)


def _notes(facts: Facts, partitions: list[PartitionCensus]) -> Iterator[str]:
    numbers = [partition.partition for partition in partitions]
    for number in sorted({number for number in numbers if numbers.count(number) > 1}):
        yield f"partition {number} is in {numbers.count(number)} folders, all of them counted: replicas?"
    if facts.gone:
        yield f"{plural(facts.gone, 'part')} of segments deleted meanwhile"
    shown = facts.damage[:NOTES_MAX]
    yield from (damage_text(damaged) for damaged in shown)
    if facts.damaged > len(shown):
        yield f"and {facts.damaged - len(shown)} more"


def damage_text(damaged: Damaged) -> str:
    """Returns one line about bytes that were not counted."""
    name = os.sep.join(damaged.file.split(os.sep)[-2:])
    kinds = {"cut": "the end is truncated", "open end": "the end is truncated, or being written"}
    kind = kinds.get(damaged.kind, damaged.kind)
    return f"{name} at byte {damaged.position}: {kind}; {damaged.bytes} bytes are not counted: {damaged.what}"


# -- as JSON


def _topic(topic: TopicCensus) -> dict[str, Any]:
    return {
        "topic": topic.topic,
        "configs": topic.configs,
        "on_4_0": topic.on_4_0,
        "notes": topic.notes,
        **_facts(topic.facts),
        "partitions": [
            {
                "partition": partition.partition,
                "folder": partition.folder,
                "segments": partition.segments,
                "file_bytes": partition.bytes,
                "offsets": {"first": partition.facts.first_offset, "end": partition.facts.end_offset},
                **_facts(partition.facts),
            }
            for partition in topic.partitions
        ],
    }


def _facts(facts: Facts) -> dict[str, Any]:
    return {
        "records": facts.records,
        "entries": facts.entries,
        "bytes": facts.bytes,
        "raw_bytes": facts.raw_bytes,
        "formats": [
            {"format": f"v{magic}", "codec": codec_name(codec), **_amount(amount), "raw_bytes": amount.raw_bytes}
            for (magic, codec), amount in sorted(facts.formats.items())
        ],
        "keys": _sizes(facts.keys),
        "values": _sizes(facts.values),
        "headers": {"records": facts.with_headers, "headers": facts.headers, "bytes": facts.header_bytes},
        "times": {"create": _times(facts.create), "append": _times(facts.append), "none": facts.untimed},
        "largest_entry_bytes": facts.largest_entry_bytes,
        "producers": {
            "ids": len(facts.producers),
            "numbered": _amount(facts.numbered),
            "transactional": _amount(facts.transactional),
        },
        "markers": {"commits": facts.commits, "aborts": facts.aborts, "other": facts.other_markers},
        "damage": {
            "places": facts.damaged,
            "bytes": facts.damaged_bytes,
            "first": [
                {"file": one.file, "byte": one.position, "bytes": one.bytes, "kind": one.kind, "what": one.what}
                for one in facts.damage
            ],
        },
        "gone_segments": facts.gone,
    }


def _amount(amount: Amount) -> dict[str, int]:
    return {"entries": amount.entries, "records": amount.records, "bytes": amount.bytes}


def _times(times: Times) -> dict[str, int | None]:
    return {"records": times.records, "first": times.first_ms, "last": times.last_ms}


def _sizes(sizes: Sizes) -> dict[str, Any]:
    return {
        "count": sizes.count,
        "nulls": sizes.nulls,
        "bytes": sizes.total,
        "min": sizes.least,
        "mean": None if sizes.mean is None else round(sizes.mean, 1),
        "max": sizes.most,
        **{name: sizes.percentile(percent) for name, percent in PERCENTILES},
        "histogram": [{"from": low, "to": high, "count": number} for low, high, number in sizes.octaves()],
    }


def codec_name(codec: int) -> str:
    """Returns the name of a codec."""
    return CODEC_NAMES.get(codec, f"codec {codec}")


# -- as text


def _of_facts(facts: Facts) -> Iterator[str]:
    rows = [
        (f"v{magic}", codec_name(codec), amount.records, amount.bytes, amount.raw_bytes if codec else None)
        for (magic, codec), amount in sorted(facts.formats.items())
    ]
    head = ("FORMAT", "CODEC", "RECORDS", "BYTES", "UNCOMPRESSED")
    yield from (f"  {line.rstrip()}" for line in (table(rows, head) if rows else ()))
    if not facts.formats:
        yield "  no records"
    for name, sizes in (("keys", facts.keys), ("values", facts.values)):
        if sizes.count or sizes.nulls:
            yield f"  {name:<8}{_of_sizes(sizes)}"
    if facts.headers:
        yield (
            f"  headers {facts.headers} of {plural(facts.with_headers, 'record')}, "
            f"{facts.header_bytes} bytes with their keys"
        )
    for who, times in (("the producers", facts.create), ("the broker", facts.append)):
        if times.records:
            yield f"  times   {moment(times.first_ms)} to {moment(times.last_ms)} by {who}: {times.records} records"
    if facts.untimed:
        yield f"  times   none: {facts.untimed} records"
    if facts.producers:
        yield (
            f"  ids     {plural(len(facts.producers), 'producer')} numbered {facts.numbered.records} records, "
            f"{facts.transactional.records} of them in transactions"
        )
    if facts.commits or facts.aborts or facts.other_markers:
        others = f", {facts.other_markers} others" if facts.other_markers else ""
        yield f"  markers {facts.commits} of commits, {facts.aborts} of aborts{others}"


def _of_sizes(sizes: Sizes) -> str:
    nulls = f"{sizes.nulls} null" if sizes.nulls else "none null"
    if not sizes.count:
        return nulls
    if sizes.least == sizes.most:
        return f"{plural(sizes.most or 0, 'byte')} each; {nulls}"
    return (
        f"{sizes.least} to {sizes.most} bytes, {sizes.mean:.0f} in the mean, half up to {sizes.percentile(50)}, "
        f"99% up to {sizes.percentile(99)}; {nulls}"
    )
