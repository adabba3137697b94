"""The steps of an audit from the plan to the report; the caller runs the tasks.

Owns the order. Files outside the partitions come first, since they must be older than the logs that are read after
them; then all segments, in tasks, in any order; each partition is evaluated as its results arrive; and partitions with
findings are checked once more if a broker may be writing to the directory.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from ....protocol.errors import MalformedMessage
from ....protocol.internal_records.layouts import layout_of, parsed_value
from ....protocol.internal_records.metadata_values import gaps_by_config, topic_configs, topic_ids
from ....protocol.internal_records.transaction_records import TransactionLogValue
from ....protocol.limits import INT16_MAX
from ....storage import inspect
from ....storage.check.directory import PartitionCheck, Verification
from ....storage.check.facts import End, Event, Finding, Run
from ....storage.errors import StorageError
from ....storage.log_dir import metadata_log
from ...backend import ReadError, as_read_error
from ...objects import logs
from .producers import COORDINATOR, Producers
from .report import AuditReport, DirectoryAudit, PartitionFacts
from .rules import Place
from .tasks import FINDINGS_MAX, Packed, SegmentItem, look_over

TRANSACTIONS = "__transaction_state"
ONGOING = 1
OPEN = (ONGOING, 2, 3)
"""The statuses Ongoing, PrepareCommit and PrepareAbort."""

Runner = Callable[[Sequence[SegmentItem]], Iterable[tuple[SegmentItem, Packed]]]
"""Runs the task of each item, in any order, and yields each item with its result."""


def run_here(items: Sequence[SegmentItem]) -> Iterator[tuple[SegmentItem, Packed]]:
    """Runs the tasks in this process."""
    for item in items:
        yield item, look_over(item)


class Audit:
    """Makes its plan on creation; `report` does the rest, once. Raises ReadError for a path that cannot be audited, and
    for a named topic that does not exist."""

    def __init__(
        self,
        paths: str | Sequence[str],
        *,
        topics: Sequence[str] | None = None,
        records: bool = True,
        store_conf: Mapping[str, str] | None = None,
    ) -> None:
        paths = [paths] if isinstance(paths, str) else paths
        self.records = records
        self.store_conf = store_conf
        self._is_named = topics is not None
        objects = logs.places_of(paths, store_conf)
        self._roots = [_Root(path, chosen, topics, records, objects) for path, chosen in _roots(paths).items()]
        named = {walked.folder.topic for root in self._roots for walked in root.partitions}
        for topic in topics or ():
            if topic not in named:
                raise ReadError(f"{', '.join(paths)}: there is no topic {topic}")

    def items(self) -> list[SegmentItem]:
        """Returns all segments."""
        return [item for number, root in enumerate(self._roots) for item in root.items(number)]

    def places(self) -> list[Place]:
        """Returns the partitions for the check of rules."""
        return [
            Place(number, one.folder.path, os.path.basename(one.folder.path), one.folder.topic, self._is_named)
            for number, root in enumerate(self._roots)
            for one in root.partitions
        ]

    def report(self, runner: Runner = run_here, *, now_ms: int) -> AuditReport:
        """Runs the audit. `now_ms` is the reference for the age of open transactions."""
        self._take(runner(self.items()))
        again = [item for number, root in enumerate(self._roots) for item in root.again(number)]
        if again:
            self._take(runner(again))
        return AuditReport([root.result() for root in self._roots], self.records, now_ms)

    def _take(self, results: Iterable[tuple[SegmentItem, Packed]]) -> None:
        for item, packed in results:
            self._roots[item.directory].partitions[item.partition].put(item.number, packed)


def _roots(paths: Sequence[str]) -> dict[str, set[str] | None]:
    """Returns the data directories with their named partition folders, None for all. Raises ReadError."""
    found: dict[str, set[str] | None] = {}
    for path in paths:
        with as_read_error():
            path = logs.followed(path)
            folder = inspect.partition_folder(path, logs.files_of(path))
        if folder is not None:
            named = found.setdefault(os.path.dirname(path), set())
            if named is not None:
                named.add(path)
        else:
            found[path] = None
    return found


class _Root:
    """One data directory."""

    def __init__(
        self,
        path: str,
        folders: set[str] | None,
        topics: Sequence[str] | None,
        records: bool,
        objects: tuple[logs.LogPlace, ...],
    ) -> None:
        self._objects = objects
        self._is_whole = folders is None
        try:
            files = logs.files_of(path)
            self.verification = Verification(
                path,
                deep=records,
                may_have_gaps=gaps_by_config(topic_configs(metadata_log.values(path, files))),
                topic_ids=lambda: topic_ids(metadata_log.values(path, files)),
                files=files,
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

    def items(self, directory: int) -> list[SegmentItem]:
        return [item for at in range(len(self.partitions)) for item in self._items(directory, at)]

    def _items(self, directory: int, at: int) -> list[SegmentItem]:
        tasks = enumerate(self.partitions[at].walk.tasks())
        return [SegmentItem(directory, at, number, task, self._objects) for number, task in tasks]

    def again(self, directory: int) -> list[SegmentItem]:
        """Completes the checks, and returns the segments to check a second time."""
        for partition in self.partitions:
            partition.end()
        self._again = [at for at, partition in enumerate(self.partitions) if partition.begin_again()]
        return [item for at in self._again for item in self._items(directory, at)]

    def result(self) -> DirectoryAudit:
        audit = DirectoryAudit(self.verification.root, self.verification.report.clean)
        for finding in self._beside if self._is_whole else ():
            audit.add(finding)
        for at in self._again:
            self.partitions[at].end()
        for partition in self.partitions:
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


class _Partition(PartitionCheck):
    """One partition, evaluated from the results of its segments, which may arrive in any order."""

    def _begin(self) -> None:
        super()._begin()
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
        self._producer_findings = 0

    def put(self, number: int, packed: Packed) -> None:
        """Takes the result of a segment's task. Segments are evaluated in order."""
        self._waiting[number] = packed
        while self._next in self._waiting:
            found = self._waiting.pop(self._next)
            if found.problem is not None:
                self.fail(found.problem)
            self.take(self._next, found.events())
            self._next += 1

    def step(self, number: int, event: Event) -> Iterator[Finding]:
        if isinstance(event, Run):
            name = f"{os.path.basename(self.folder.path)}/{os.path.basename(self.folder.segments[number].path)}"
            for finding in self.producers.take(name, event, self.walk.missing + event.missing):
                self._add_bounded(finding)
        elif isinstance(event, End):
            self._facts.batches += event.entries
            self._facts.records += event.records
        return super().step(number, event)

    def _add_bounded(self, finding: Finding) -> None:
        """Adds a finding about producers, up to a limit: in a log out of order every batch would have one."""
        self._producer_findings += 1
        if self._producer_findings <= FINDINGS_MAX:
            self.findings.append(finding)
        elif self._producer_findings == FINDINGS_MAX + 1:
            self.findings.append(finding._replace(what=f"{finding.what}; more findings like this are not listed"))

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


# -- when the open transactions of a data directory began, by the transaction coordinator's clock: each transactional
# id's last record has the producer, the status and that time; a directory without the coordinator's partition has none


class OpenInPartition(NamedTuple):
    """A transaction of a producer that has not ended in a partition."""

    producer_id: int
    epoch: int
    topic: str
    partition: int


def begun_ms(root: str) -> dict[OpenInPartition, int]:
    """Returns the start of all open transactions whose coordinator's records are in this directory, for each of their
    partitions. Damaged records are skipped.

    A hanging transaction (KIP-664) is none of them: the coordinator has ended it, or has another one of the producer.
    """
    newest: dict[bytes, TransactionLogValue | None] = {}
    for folder in inspect.partitions(root, logs.files_of(root)):
        for segment in folder.segments if folder.topic == TRANSACTIONS else ():
            with contextlib.suppress(StorageError, OSError):  # reported by the audit of that partition
                for record in inspect.sound_records(segment.path, logs.files_of(segment.path)):
                    if record.key is not None:
                        newest[bytes(record.key)] = _transaction(bytes(record.key), record.value)
    found: dict[OpenInPartition, int] = {}
    for value in newest.values():
        if value is None or value.transaction_status not in OPEN or value.transaction_start_timestamp_ms <= 0:
            continue
        for of_topic in value.transaction_partitions or ():
            for partition in of_topic.partition_ids:
                for identity in _identities(value):
                    found[OpenInPartition(*identity, of_topic.topic, partition)] = value.transaction_start_timestamp_ms
    return found


def _identities(value: TransactionLogValue) -> Iterator[tuple[int, int]]:
    """Yields the producer id and the epoch of the batches of a transaction. With the decision its producer gets the
    next epoch, in version 2 of transactions maybe with another id (KIP-890)."""
    yield value.producer_id, value.producer_epoch
    if value.transaction_status != ONGOING:
        yield value.producer_id, value.producer_epoch - 1
        if value.previous_producer_id >= 0:
            yield value.previous_producer_id, INT16_MAX - 1


def _transaction(key: bytes, value: bytes | memoryview | None) -> TransactionLogValue | None:
    """Returns the value of a record of `__transaction_state`; None for a tombstone, another type and a damaged one."""
    layout = layout_of(TRANSACTIONS, key)
    if layout is None or value is None:
        return None
    with contextlib.suppress(MalformedMessage):
        return parsed_value(layout, bytes(value))
    return None
