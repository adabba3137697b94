"""The steps of the job `compact` without Spark, and random logs for them."""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from pathlib import Path

from ottla.pipeline.jobs.compact.configs import Settings
from ottla.pipeline.jobs.compact.last_offsets import ROWS, Part, keys_of, settle, split, write_settled
from ottla.pipeline.jobs.compact.steps import Compaction, Outcome, PartitionPlan, plan_partition
from ottla.pipeline.jobs.compact.tasks import rewrite_group
from ottla.pipeline.jobs.in_place.directory_hold import held
from ottla.protocol.records import batch, formats
from ottla.protocol.records.batch import BatchHeader
from ottla.storage.compaction.cleaned_transactions import aborted_transactions
from ottla.storage.compaction.compaction import Clean, Dirtiness, Group, clean, groups
from ottla.storage.compaction.swap import swap_in
from ottla.storage.io.files import DiskFiles, Files
from ottla.storage.log_dir.directory import CLEAN_SHUTDOWN
from ottla.storage.producers.txn_index import AbortedTransaction, dump
from ottla_testing.storage.batches import FOLDER
from ottla_testing.storage.compacting import Laid, data, entries_of, last_values, lay, marker, old, rows, run, task
from ottla_testing.storage.simulated_files import SimulatedFiles

__all__ = ["FOLDER", "Laid", "Outcome", "SimulatedFiles", "entries_of", "marker", "old", "rows", "run", "task"]

ROOT = "/data"


def compact_here(
    files: Files, plans: Sequence[PartitionPlan], *, rows: int = ROWS, rng: random.Random | None = None
) -> list[Outcome]:
    """Runs the plans, with tasks in any order that Spark may choose."""
    rng = rng or random.Random(0)
    work = Compaction(files, plans)
    try:
        items = work.keys_items()
        rng.shuffle(items)
        for item in items:
            work.found(item, keys_of(item, files))
        for bucket in work.buckets(rows):
            parts: list[list[Part]] = [[] for _ in range(bucket.count)]
            for index, name in rng.sample(bucket.names, len(bucket.names)):
                for number, part in split(files, f"{bucket.directory}/{name}", index, bucket.count):
                    parts[number].append(part)
            for part in parts:
                work.settled(bucket.partition, write_settled(files, bucket.directory, settle(part)))
        work_items = work.group_items()
        rng.shuffle(work_items)
        for group in work_items:
            work.put(group, rewrite_group(group, files))
    finally:
        work.clear()
    return work.outcomes


def plan_of(files: Files, task: Clean) -> PartitionPlan:
    """Returns the plan for a task of the cleaner."""
    dirty = Dirtiness(task.first_dirty_offset, task.end_offset, 0, 1, 0)
    size = sum(segment.size_bytes for segment in task.segments)
    aborted, divided = aborted_transactions(files, task.directory), list(groups(files, task, task.end_offset))
    return PartitionPlan("orders", 0, ROOT, task, dirty, divided, aborted, len(task.segments), size)


class RandomLog:
    """Writes segments with formats, codecs, tombstones, missing keys, producers, transactions and empty batches."""

    def __init__(self, rng: random.Random, keys: int = 8, *, old_formats: bool = True) -> None:
        self.rng, self.keys, self.old_formats = rng, keys, old_formats
        self.offset = rng.choice([0, 0, 1000])
        self.open: dict[int, int] = {}  # first offsets of transactions by producer
        self.producers: dict[int, tuple[int, int]] = {}
        self.index: dict[int, list[bytes]] = {}
        self.laid: list[Laid] = []
        self.modified_ms = 1000

    def segment(self, batches: int, *, closing: bool = False) -> None:
        """Adds a segment."""
        base, made = self.offset, []
        for _ in range(batches):
            made.append(bytes(self._entry(base)))
        while closing and self.open:
            made.append(bytes(self._end(base, next(iter(self.open)))))
        self.laid.append(Laid(base, self.modified_ms, made))
        self.modified_ms += self.rng.choice([0, 100, 400, 3000])
        self.offset += self.rng.choice([0, 0, 3])

    def lay(self, files: SimulatedFiles) -> None:
        lay(files, self.laid, self.index)

    @property
    def end_offset(self) -> int:
        """Returns the base offset of the active segment."""
        return self.laid[-1].base_offset

    def _pairs(self, most: int = 5) -> list[tuple[bytes | None, bytes | None]]:
        pick = self.rng
        keys = [b"k%d" % pick.randrange(self.keys) if pick.random() < 0.93 else None for _ in range(most)]
        values = [None if pick.random() < 0.25 else pick.randbytes(pick.choice([0, 3, 90])) for _ in range(most)]
        return list(zip(keys, values, strict=True))[: pick.randrange(1, most + 1)]

    def _entry(self, base: int) -> bytes | bytearray:
        pick = self.rng
        kind = pick.random()
        pairs = self._pairs()
        first, time = self.offset, 1000 + pick.randrange(50)
        if kind < 0.3:
            self.offset += len(pairs)
            more = {"log_append_time": True} if pick.random() < 0.2 else {}
            return data(first, *pairs, time=time, codec=pick.choice([0, 0, 1, 3, 4]), **more)
        if kind < 0.5 and self.old_formats:
            self.offset += len(pairs)
            return old(pick.choice([0, 1]), pick.choice([0, 1]), first, *pairs, time=time)
        if kind < 0.6:
            producer = pick.randrange(10, 13)
            self.offset += len(pairs)
            self.producers[producer] = (0, self.offset - 1)
            return data(first, *pairs, time=time, producer_id=producer, producer_epoch=0, base_sequence=first)
        if kind < 0.65:  # a batch without records, left by a cleaner
            producer, self.offset = pick.randrange(10, 13), self.offset + 2
            self.producers[producer] = (0, self.offset - 1)
            return batch.build(
                [],
                batch.BatchFields(producer_id=producer, producer_epoch=0, base_sequence=first, last_offset_delta=1),
                base_offset=first,
            )
        if kind < 0.7:
            self.offset += 1
            other = pick.choice([(-1, 2), (5, 1), (6, 0)])  # a leader change, or a marker whose data was removed
            if other[0] >= 0 and other[0] not in self.open:
                self.producers.setdefault(other[0], (0, -1))
                return marker(first, other[0], commit=bool(other[1]))
            return marker(first, -1, commit=True, kind=2)
        producer = pick.randrange(4)
        if producer in self.open and pick.random() < 0.4:
            return self._end(base, producer)
        self.open.setdefault(producer, first)
        self.offset += len(pairs)
        self.producers[producer] = (0, self.offset - 1)
        return data(
            first, *pairs, time=time, codec=pick.choice([0, 3]), producer_id=producer, producer_epoch=0,
            base_sequence=first, transactional=True,
        )  # fmt: skip

    def _end(self, base: int, producer: int) -> bytearray:
        first, offset = self.open.pop(producer), self.offset
        self.offset += 1
        commit = self.rng.random() < 0.5
        if not commit:
            self.index.setdefault(base, []).append(dump([AbortedTransaction(producer, first, offset, offset + 1)]))
        return marker(offset, producer, commit=commit)


def contents(files: SimulatedFiles, folder: str = FOLDER) -> dict[str, tuple[bytes, int]]:
    """Returns all files of a folder, with the modification times of logs."""
    return {
        name: (files.read_bytes(f"{folder}/{name}"), files.modified_ns(f"{folder}/{name}") * name.endswith(".log"))
        for name in files.list(folder)
    }


def live(files: Files) -> dict[bytes, bytes]:
    """Returns the last committed value of each key, as read from the start."""
    aborted = aborted_transactions(files, FOLDER)

    def is_aborted(header: BatchHeader) -> bool:
        return header.is_transactional and any(
            found.producer_id == header.producer_id and found.first_offset <= header.base_offset <= found.last_offset
            for found in aborted
        )

    return last_values(
        [
            (record.offset, record.key, record.value)
            for header, entry in entries_of(files)
            if not header.is_control and not is_aborted(header)
            for record in formats.records(entry)
        ]
    )


def close(files: SimulatedFiles) -> None:
    """Marks the written directory as closed by its broker."""
    files.open(f"{ROOT}/{CLEAN_SHUTDOWN}", create=True).close()
    files.sync_directory(ROOT)


def compact_directory(files: SimulatedFiles, settings: Settings, *, now_ms: int = 10_000) -> list[Outcome]:
    """Runs the job on the directory, whose one topic is compacted."""
    with held(ROOT, files=files) as holding:
        plans = [
            plan_partition(holding, folder.topic, folder.partition, settings, now_ms=now_ms)
            for folder in holding.partitions
        ]
        return compact_here(files, plans)


def on_disk(files: SimulatedFiles, folder: Path) -> None:
    """Writes the files to a partition's folder of a closed directory on the real disk."""
    folder.mkdir(parents=True)
    (folder.parent / CLEAN_SHUTDOWN).touch()
    for name, (content, modified_ns) in contents(files).items():
        (folder / name).write_bytes(content)
        os.utime(folder / name, ns=(modified_ns, modified_ns))


def disk_contents(folder: Path) -> dict[str, tuple[bytes, int]]:
    """Returns all files of a folder on the disk, with the modification times of logs."""
    return {
        path.name: (path.read_bytes(), path.stat().st_mtime_ns * (path.suffix == ".log"))
        for path in folder.iterdir()
        if path.is_file()
    }


def clean_as_a_broker(root: Path, topic: str, partition: int, settings: Settings, now_ms: int) -> None:
    """Runs one pass of the broker's cleaner on a partition of a closed directory."""
    with held(root) as holding:
        found = plan_partition(holding, topic, partition, settings, now_ms=now_ms)
        for made in clean(DiskFiles(), found.task):
            if isinstance(made, Group):
                swap_in(DiskFiles(), found.directory, [new.base_offset for new in made.new], made.old)
