"""The steps of an audit from the plan to the report; the caller runs the tasks.

Owns the order. Files outside the partitions come first, since they must be older than the logs that are read after
them; then all segments, in tasks, in any order; each partition is evaluated as its results arrive; and partitions with
findings are checked once more if a broker may be writing to the directory.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from ....storage import inspect
from ....storage.check.directory import MayHaveGaps, Verification, seen_twice
from ....storage.check.facts import End, Finding, Run
from ....storage.check.partition import Walk
from ....storage.errors import StorageError
from ...backend import ReadError
from ...objects import logs
from ..partitions import topic_configs, topic_ids
from .producers import COORDINATOR, Producers
from .report import AuditReport, DirectoryAudit, PartitionFacts
from .rules import Place
from .tasks import FINDINGS_MAX, Packed, SegmentItem, look_over
from .transaction_times import OpenInPartition, begun_ms

Runner = Callable[[Sequence[SegmentItem]], Iterable[tuple[SegmentItem, Packed]]]
"""Runs the task of each item, in any order, and yields each item with its result."""


def run_here(items: Sequence[SegmentItem]) -> Iterator[tuple[SegmentItem, Packed]]:
    """Runs the tasks in this process."""
    for item in items:
        yield item, look_over(item)


class Amounts(NamedTuple):
    """The size of a plan."""

    partitions: int
    segments: int
    bytes: int


class Audit:
    """Makes its plan on creation; `report` does the rest, once. Raises ReadError for a path that cannot be audited, and
    for a named topic that does not exist."""

    def __init__(
        self,
        paths: Sequence[str],
        *,
        topics: Sequence[str] | None = None,
        records: bool = True,
        store_conf: Mapping[str, str] | None = None,
    ) -> None:
        self._records = records
        self._is_named = topics is not None
        self._objects = logs.places_of(paths, store_conf)
        self._roots = [_Root(path, chosen, topics, records) for path, chosen in _roots(paths).items()]
        named = {walked.folder.topic for root in self._roots for walked in root.partitions}
        for topic in topics or ():
            if topic not in named:
                raise ReadError(f"{', '.join(paths)}: there is no topic {topic}")

    @property
    def amounts(self) -> Amounts:
        """The amount of data to read."""
        items = self.items()
        partitions = sum(len(root.partitions) for root in self._roots)
        return Amounts(partitions, len(items), sum(item.size_bytes for item in items))

    def items(self) -> list[SegmentItem]:
        """Returns all segments."""
        found = [item for number, root in enumerate(self._roots) for item in root.items(number)]
        return [item._replace(objects=self._objects) for item in found]

    def places(self) -> list[Place]:
        """Returns the partitions for the check of rules."""
        return [
            Place(number, one.folder.path, os.path.basename(one.folder.path), one.folder.topic, self._is_named)
            for number, root in enumerate(self._roots)
            for one in root.partitions
        ]

    def report(self, runner: Runner = run_here, *, now_ms: int) -> AuditReport:
        """Runs the audit. `now_ms` is the reference for the age of open transactions."""
        for item, packed in runner(self.items()):
            self._roots[item.directory].partitions[item.partition].put(item.number, packed)
        again: list[SegmentItem] = []
        for number, root in enumerate(self._roots):
            root.end_look()
            again += [item._replace(objects=self._objects) for item in root.again(number)]
        for item, packed in runner(again) if again else ():
            self._roots[item.directory].partitions[item.partition].put(item.number, packed)
        return AuditReport([root.result() for root in self._roots], self._records, now_ms)


def _roots(paths: Sequence[str]) -> dict[str, set[str] | None]:
    """Returns the data directories with their named partition folders, None for all. Raises ReadError."""
    found: dict[str, set[str] | None] = {}
    for path in paths:
        try:
            path = logs.followed(path)
            folder = inspect.partition_folder(path, logs.files_of(path))
        except StorageError as error:
            raise ReadError(str(error)) from error
        if folder is not None:
            named = found.setdefault(os.path.dirname(path), set())
            if named is not None:
                named.add(path)
        else:
            found[path] = None
    return found


class _Root:
    """One data directory."""

    def __init__(self, path: str, folders: set[str] | None, topics: Sequence[str] | None, records: bool) -> None:
        self._is_whole = folders is None
        try:
            gaps = _gaps(path)
            self.verification = Verification(
                path,
                deep=records,
                may_have_gaps=gaps,
                topic_ids=lambda: topic_ids(path),
                files=logs.files_of(path),
            )
            # Read before the logs: writes made meanwhile are then in the logs only.
            self._beside = list(self.verification.other_findings())
        except (StorageError, OSError) as error:
            raise ReadError(str(error)) from error
        self.partitions = [
            _Partition(self.verification, folder)
            for folder in self.verification.folders
            if (folders is None or folder.path in folders) and (topics is None or folder.topic in topics)
        ]
        self._audit = DirectoryAudit(path, self.verification.report.clean)

    def items(self, directory: int) -> list[SegmentItem]:
        return [
            SegmentItem(directory, at, number, task)
            for at, partition in enumerate(self.partitions)
            for number, task in enumerate(partition.walk.tasks())
        ]

    def end_look(self) -> None:
        for partition in self.partitions:
            partition.end_look()

    def again(self, directory: int) -> list[SegmentItem]:
        """Returns the segments to check a second time."""
        if self.verification.report.clean:
            return []
        found: list[SegmentItem] = []
        for at, partition in enumerate(self.partitions):
            if partition.is_suspect and partition.begin_again():
                tasks = partition.walk.tasks()
                found += [SegmentItem(directory, at, number, task) for number, task in enumerate(tasks)]
        return found

    def result(self) -> DirectoryAudit:
        audit = self._audit
        for finding in self._beside if self._is_whole else ():
            audit.add(finding)
        for partition in self.partitions:
            partition.end_look()
            if partition.is_there:
                audit.partitions.append(partition.facts())
                for finding in partition.findings:
                    audit.add(finding)
        for finding in self.verification.identities():
            audit.add(finding)
        self._time_transactions(audit)
        return audit

    def _time_transactions(self, audit: DirectoryAudit) -> None:
        """Takes the start of open transactions from their coordinator, if its records are in this directory."""
        if not any(partition.open for partition in audit.partitions):
            return
        by_coordinator = begun_ms(self.verification.root)
        for partition in audit.partitions:
            for number, one in enumerate(partition.open):
                key = OpenInPartition(one.producer_id, one.epoch, partition.topic, partition.partition)
                if key in by_coordinator:
                    partition.open[number] = one._replace(since_ms=by_coordinator[key], since_by=COORDINATOR)


def _gaps(root: str) -> MayHaveGaps:
    """Returns a function that tests by a topic's cleanup.policy whether a cleaner may have left gaps; always true
    without known configs."""
    configs = topic_configs([root])
    return lambda topic: configs is None or "compact" in configs.get(topic, {}).get("cleanup.policy", "")


class _Partition:
    """One partition, evaluated from the results of its segments."""

    def __init__(self, verification: Verification, folder: inspect.PartitionFolder) -> None:
        self.folder = folder
        self.is_there = True
        self.findings: list[Finding] = []
        self._verification = verification
        self._before: list[Finding] | None = None  # the findings of a first check
        self._begin()

    def _begin(self) -> None:
        self.walk: Walk = self._verification.walk(self.folder)
        start = max(self.walk.circumstances.log_start_offset, self.folder.segments[0].base_offset)
        self.producers = Producers(start, from_start=start == 0)
        self._waiting: dict[int, Packed] = {}
        self._next = 0
        self._facts = PartitionFacts(
            self.folder.topic,
            self.folder.partition,
            self.folder.path,
            len(self.folder.segments),
            log_start_offset=start,
        )
        self._is_open = True
        self._producer_findings = 0
        self._failed = False
        self.is_suspect = False
        self.findings = list(self.walk.leftovers())

    def put(self, number: int, packed: Packed) -> None:
        """Takes the result of a segment's task. Segments are evaluated in order."""
        self._waiting[number] = packed
        while self._next in self._waiting:
            self._judge(self._next, self._waiting.pop(self._next))
            self._next += 1

    def _judge(self, number: int, packed: Packed) -> None:
        if self._failed:
            return
        if packed.problem is not None:
            self._fail(packed.problem)
            return
        name = f"{os.path.basename(self.folder.path)}/{os.path.basename(self.folder.segments[number].path)}"
        try:
            for event in packed.events():
                if isinstance(event, Run):
                    for finding in self.producers.take(name, event, self.walk.missing + event.missing):
                        self._add_bounded(finding)
                elif isinstance(event, End):
                    self._facts.batches += event.entries
                    self._facts.records += event.records
                self.findings += self.walk.step(number, event)
        except StorageError as error:
            self._fail(str(error))

    def _add_bounded(self, finding: Finding) -> None:
        """Adds a finding about producers, up to a limit: in a log out of order every batch would have one."""
        self._producer_findings += 1
        if self._producer_findings <= FINDINGS_MAX:
            self.findings.append(finding)
        elif self._producer_findings == FINDINGS_MAX + 1:
            self.findings.append(finding._replace(what=f"{finding.what}; more findings like this are not listed"))

    def _fail(self, problem: str) -> None:
        self._failed = True
        self.findings.append(Finding(os.path.basename(self.folder.path), None, None, problem))

    def end_look(self) -> None:
        """Completes the check after the last segment."""
        if not self._is_open:
            return
        self._is_open = False
        if not self._failed:
            try:
                self.findings += self.walk.finish()
            except StorageError as error:
                self._fail(str(error))
        self.findings += self._verification.around(self.walk)
        if self._before is not None:
            self.findings = seen_twice(self._before, self.findings)
        self.is_suspect = any(finding.wrong for finding in self.findings)

    def begin_again(self) -> bool:
        """Prepares a second check. Returns False if the partition was deleted."""
        folder = inspect.partition_folder(self.folder.path, logs.files_of(self.folder.path))
        if folder is None:
            self.is_there = False
            self._verification.forget(self.folder)
            return False
        before, self.folder = self.findings, folder
        self._begin()
        self._before = before
        return True

    def facts(self) -> PartitionFacts:
        """Returns the facts besides the findings."""
        facts, walk = self._facts, self.walk
        facts.bytes = walk.bytes_read
        facts.first_offset, facts.end_offset = walk.first_offset, walk.log_end
        facts.missing_offsets, facts.holes = walk.missing, walk.holes
        facts.producers = self.producers.count
        facts.commits, facts.aborts = self.producers.commits, self.producers.aborts
        facts.leader_epochs = list(walk.epochs)
        facts.open, facts.aborted = self.producers.open_transactions(), self.producers.aborted
        return facts
