"""The report of an audit: findings, notes and facts, as JSON and as text.

Owns the words. The document of `to_dict` and `to_json`, sizes in bytes and times in epoch milliseconds:

    sound                        true or false: true without any finding
    records                      whether the records in the batches were checked
    seconds, partitions, segments, bytes, batches, record_count
    findings, notes              [{directory, file, byte, offset, part, what}]: faults, and remarks without a fault;
                                 file is relative to directory; byte and offset may be null
    rules                        [{rule, records, broken}]: the records that were checked by each rule, and those of
                                 them that break it
    directories                  [{path, clean (null: running brokers), partitions}], where partitions are
                                 [{topic, partition, folder, segments, bytes, batches, records, log_start_offset,
                                   first_offset, end_offset (null: not known), last_stable_offset, missing_offsets,
                                   holes, producers, leader_epochs: [{epoch, start_offset}], transactions}]
    transactions                 {commits, aborts,
                                  open: [{producer_id, epoch, first_offset, since, since_by, age_ms}],
                                  aborted: [{producer_id, epoch, first_offset, marker_offset}]}; the first 100 of each

`since_by` is the clock: coordinator (the record of `__transaction_state`), broker (LogAppendTime) or producer.
`batches` counts log entries: for the old formats messages and wrappers. An offset is missing if no batch has it:
compacted, or lost. A part is log, index, snapshot, transactions, epochs, checkpoint, identity, leftover, producers or
rules.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from ....protocol.text import elapsed, moment, plural, speed, visible
from ....storage.check.facts import Finding
from ..report import Report, total
from .producers import EndedTransaction, OpenTransaction
from .rules import RuleResult

LISTED_MAX = 100
TEXT_MAX = 200  # findings, and notes, in the text
_SHOWN = 8  # open transactions of a partition in the text
_FACTS = (
    "topic partition folder segments bytes batches records log_start_offset first_offset end_offset last_stable_offset "
    "missing_offsets holes producers"
).split()
_STATES = {True: "closed cleanly", False: "not closed cleanly, or in use", None: "running brokers, by rules alone"}


@dataclass(slots=True)
class PartitionFacts:
    """The facts of one partition's folder. `end_offset` is None if the log does not determine it."""

    topic: str
    partition: int
    folder: str
    segments: int
    bytes: int = 0
    batches: int = 0
    records: int = 0
    log_start_offset: int = 0
    first_offset: int = 0
    end_offset: int | None = None
    missing_offsets: int = 0
    holes: int = 0
    producers: int = 0
    commits: int = 0
    aborts: int = 0
    leader_epochs: list[tuple[int, int]] = field(default_factory=list)
    open: list[OpenTransaction] = field(default_factory=list)
    aborted: list[EndedTransaction] = field(default_factory=list)

    @property
    def last_stable_offset(self) -> int | None:
        return self.open[0].first_offset if self.open else self.end_offset

    def to_dict(self, now_ms: int) -> dict[str, Any]:
        """Returns the partition's object of the document."""
        begun = [
            {
                "producer_id": one.producer_id,
                "epoch": one.epoch,
                "first_offset": one.first_offset,
                "since": one.since_ms,
                "since_by": one.since_by,
                "age_ms": max(now_ms - one.since_ms, 0) if one.since_ms >= 0 else None,
            }
            for one in self.open[:LISTED_MAX]
        ]
        return {
            **{name: getattr(self, name) for name in _FACTS},
            "leader_epochs": [{"epoch": epoch, "start_offset": start} for epoch, start in self.leader_epochs],
            "transactions": {
                "commits": self.commits,
                "aborts": self.aborts,
                "open": begun,
                "aborted": [one._asdict() for one in self.aborted[:LISTED_MAX]],
            },
        }


@dataclass(slots=True)
class DirectoryAudit:
    """The audit of one data directory, or of the one that contains the named partition folders. For running brokers:
    their address, and None for `clean`."""

    path: str
    clean: bool | None
    findings: list[Finding] = field(default_factory=list)
    notes: list[Finding] = field(default_factory=list)
    partitions: list[PartitionFacts] = field(default_factory=list)

    def add(self, finding: Finding) -> None:
        (self.findings if finding.wrong else self.notes).append(finding)


@dataclass(slots=True)
class AuditReport(Report):
    """The findings in these directories."""

    directories: list[DirectoryAudit]
    records: bool
    now_ms: int
    seconds: float = 0.0
    rules: list[RuleResult] = field(default_factory=list)

    @property
    def sound(self) -> bool:
        """True without any finding."""
        return not any(directory.findings for directory in self.directories)

    @property
    def exit_code(self) -> int:
        """1 with any finding, else 0."""
        return 0 if self.sound else 1

    @property
    def findings(self) -> list[Finding]:
        """The faults of all directories."""
        return [finding for directory in self.directories for finding in directory.findings]

    @property
    def notes(self) -> list[Finding]:
        """The remarks without a fault."""
        return [finding for directory in self.directories for finding in directory.notes]

    @property
    def partitions(self) -> list[PartitionFacts]:
        return [partition for directory in self.directories for partition in directory.partitions]

    segments, bytes, batches = (total("partitions", name) for name in ("segments", "bytes", "batches"))
    record_count = total("partitions", "records")

    def to_dict(self) -> dict[str, Any]:
        found = self.partitions
        return {
            "sound": self.sound,
            "records": self.records,
            "seconds": round(self.seconds, 3),
            "partitions": len(found),
            "segments": self.segments,
            "bytes": self.bytes,
            "batches": self.batches,
            "record_count": self.record_count,
            "findings": [_finding_fields(one, finding) for one in self.directories for finding in one.findings],
            "notes": [_finding_fields(one, finding) for one in self.directories for finding in one.notes],
            "rules": [{"rule": one.text, "records": one.records, "broken": one.broken} for one in self.rules],
            "directories": [
                {
                    "path": directory.path,
                    "clean": directory.clean,
                    "partitions": [partition.to_dict(self.now_ms) for partition in directory.partitions],
                }
                for directory in self.directories
            ],
        }

    def lines(self) -> Iterator[str]:
        """Returns each directory with its findings and open transactions, and a summary."""
        for directory in self.directories:
            yield f"{directory.path}: {_STATES[directory.clean]}"
            for mark, found in (("!", directory.findings), ("-", directory.notes)):
                for finding in found[:TEXT_MAX]:
                    yield f"{mark} {text_of(finding)}"
                if len(found) > TEXT_MAX:
                    yield f"{mark} and {len(found) - TEXT_MAX} more in the report file"
            for partition in directory.partitions:
                yield from _open_lines(partition, self.now_ms)
        found = self.partitions
        files = rate = ""
        if all(directory.clean is not None for directory in self.directories):  # else running brokers
            files = f" {self.segments} segments, {self.bytes} bytes, {self.batches} batches,"
            rate = f", {speed(self.bytes, self.seconds)}" if self.seconds > 0 else ""
        yield f"{len(found)} partitions,{files} {self.record_count} records in {elapsed(self.seconds * 1000)}{rate}"
        commits, aborts = sum(one.commits for one in found), sum(one.aborts for one in found)
        begun = sum(len(one.open) for one in found)
        if commits or aborts or begun:
            yield f"transactions: {commits} committed, {aborts} aborted, {begun} open (counted in each partition)"
        missing = [one for one in found if one.missing_offsets]
        if missing:
            absent = f"{sum(one.missing_offsets for one in missing)} offsets in {len(missing)} partitions"
            yield f"{absent} are in no batch: compacted, deleted, or reported above"
        for one in self.rules:
            yield visible(f"rule `{one.text}`: {one.broken} of {plural(one.records, 'record')} break it")
        if not self.records:
            yield "the records in the batches were not checked"
        wrong = Counter(finding.part for finding in self.findings)
        kinds = ", ".join(f"{part} {count}" for part, count in wrong.most_common())
        yield f"{wrong.total()} wrong: {kinds}" if wrong else "no errors"


def _finding_fields(directory: DirectoryAudit, finding: Finding) -> dict[str, Any]:
    return {
        "directory": directory.path,
        **{name: getattr(finding, name) for name in ("file", "byte", "offset", "part", "what")},
    }


def text_of(finding: Finding) -> str:
    """Returns one line about a finding."""
    return visible(f"{finding.where}: {finding.what}")


def _open_lines(partition: PartitionFacts, now_ms: int) -> Iterator[str]:
    name = f"{partition.topic}-{partition.partition}"
    for one in partition.open[:_SHOWN]:
        age = ""
        if one.since_ms >= 0:
            age = f", since {moment(one.since_ms)} UTC, for {elapsed(max(now_ms - one.since_ms, 0))}"
            age += f" by the {one.since_by}'s clock"
        yield f"  {name}: producer {one.producer_id} has a transaction open from offset {one.first_offset} on{age}"
    if len(partition.open) > _SHOWN:
        yield f"  {name}: and {len(partition.open) - _SHOWN} more"
