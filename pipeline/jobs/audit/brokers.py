"""The rules of an audit for the topics of running brokers, whose files are out of reach: records are read by fetches.

A damaged batch ends the check of its piece, and is a finding.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...backend import Offsets, ReadError, Selection, TopicPartition, Wanted
from ...offsets import split
from ...readers.wire import WireBackend
from ..export.plan import OFFSET_BYTES, WIRE_OFFSETS
from .report import AuditReport, DirectoryAudit, PartitionFacts
from .rules import Checked, RuleItem, Rules, columns, ranges_of


@dataclass(frozen=True, slots=True)
class BrokersPlan:
    """What is checked: the pieces, and the first and last offsets of each partition."""

    brokers: str
    items: list[RuleItem]
    first: Offsets
    last: Offsets

    @property
    def keys(self) -> list[TopicPartition]:
        return sorted(self.first.keys() & self.last.keys())

    def report(self, found: Sequence[tuple[RuleItem, Checked]], now_ms: int) -> AuditReport:
        """Returns the report without the findings."""
        records = dict.fromkeys((str(key) for key in self.keys), 0)
        for item, checked in found:
            records[item.label] += checked.records
        audit = DirectoryAudit(self.brokers, None)
        for key in self.keys:
            start = self.first[key]
            facts = PartitionFacts(*key, str(key), segments=0, log_start_offset=start, first_offset=start)
            facts.records, facts.end_offset = records[str(key)], self.last[key]
            audit.partitions.append(facts)
        return AuditReport([audit], records=True, now_ms=now_ms)


def plan(
    config: Mapping[str, str], rules: Rules, *, topics: Sequence[str] | None = None, like: str | None = None
) -> BrokersPlan:
    """Returns what the rules check: these topics, or those with names like this, or all but internal ones. `config` has
    the `kafka.*` options without their prefix. Raises ReadError."""
    brokers = config["bootstrap.servers"]
    with WireBackend(config) as backend:
        keys = backend.partitions(Selection.named(topics, like))
        known = {key.topic for key in keys}
        if not keys:
            raise ReadError(f"no partition is selected at {brokers}")
        rules.check(known)
        first, last = backend.earliest(keys), backend.latest(keys, committed=False)
        items: list[RuleItem] = []
        for topic in sorted(known):
            numbers = rules.of_topic(topic, named=topics is not None)
            if not numbers:
                continue
            wanted = Wanted(columns(rules, numbers), fail_on_loss=False)
            ranges = ranges_of((key for key in keys if key.topic == topic), first, last)
            for piece in backend.pieces(split(ranges, WIRE_OFFSETS), wanted, at_least=None):
                of = piece.range
                size = of.size * OFFSET_BYTES
                items.append(RuleItem(0, str(of.key), piece, rules, numbers, of.start, size))
    return BrokersPlan(brokers, items, first, last)
