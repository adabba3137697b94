"""Checks a data directory after an interruption anywhere, once it is opened again. Raises Violation.

Nothing acknowledged is missing (after a kill, and after a power loss as far as it was flushed), the records are a
beginning of the attempted ones, record by record; the log start is the acknowledged one; every look-up by offset and
timestamp is right; producers are those of the batches, a retry is a duplicate or is written once; nothing deleted
reappears, no leftover stays; `verify` finds nothing after a close; and all this also after a second interruption during
the opening.
"""

from __future__ import annotations

import random

from ottla.protocol.records import batch, formats
from ottla.storage.check.directory import Verification
from ottla.storage.errors import StorageError
from ottla.storage.log_dir.directory import DataDirectory
from ottla.storage.partition_log import PartitionLog
from ottla_testing.storage.committed import consumed
from ottla_testing.storage.crash_transactions import end_all, fates, markers, stable_range, states, wrong_producer
from ottla_testing.storage.crash_world import (
    DATA,
    Batch,
    Key,
    Partition,
    Row,
    Stop,
    Violation,
    demand,
    open_directory,
    put_strays_aside,
    rows_of,
    still_there,
)
from ottla_testing.storage.simulated_files import SimulatedFiles, Step

LEFTOVERS = (".deleted", ".cleaned", ".swap", ".tmp")
NEW = batch.build([batch.Record(0, 10**6, b"new", b"new")])
SECOND_STOPS = 0.3  # the share of openings that are interrupted themselves
ALL_LOOK_UPS = 0.3  # the share checked at every offset and timestamp, the others at a few
THOROUGH = 0.2  # the share used afterwards, closed, verified and opened once more


def check(stop: Stop, rng: random.Random, *, again: bool = True) -> None:
    """Opens the disk after an interruption, which is used up, and compares its contents with the expected ones."""
    try:
        _check(stop, rng, again)
    except (StorageError, OSError) as error:
        raise Violation(f"it does not open: {type(error).__name__}: {error}\n{_where(stop)}") from error
    except Violation as error:
        raise Violation(f"{error}\n{_where(stop)}") from error


def _where(stop: Stop) -> str:
    return f"after a {'kill' if stop.powered else 'power loss'} in {stop.where}"


def _check(stop: Stop, rng: random.Random, again: bool) -> None:
    disk = stop.disk
    if again and rng.random() < SECOND_STOPS:
        disk.on_step = _second_stop(stop, rng, rng.randrange(25))
    directory = open_directory(disk, rng)
    _check_gone(directory, stop)
    put_strays_aside(directory, stop.partitions)
    upgrade = (lambda progress: None) if stop.upgrades and rng.random() < 0.2 else None
    logs: dict[Key, PartitionLog] = {}
    for key, known in sorted(stop.partitions.items()):
        if not known.deleted:
            logs[key] = directory.open_partition(
                *key, topic_id=known.topic_id, config=known.config, now_ms=5000, upgrade=upgrade
            )
    disk.on_step = None
    for key, log in logs.items():
        try:
            check_log(log, stop.partitions[key], stop.powered, rng)
            leftovers = [name for name in disk.list(f"{DATA}/{key[0]}-{key[1]}") if name.endswith(LEFTOVERS)]
            demand(not leftovers, "leftovers", leftovers)
        except Violation as error:
            raise Violation(f"{key[0]}-{key[1]}: {error}") from error
    if rng.random() < THOROUGH:
        _continue(disk, directory, logs, stop, rng)


def _second_stop(stop: Stop, rng: random.Random, number: int):
    def on_step(step: Step) -> None:
        if step.number == number:
            size = len(step.change.data or b"") if step.change is not None else 0
            fork = stop.disk.fork(step, rng.randint(0, size))
            powered = stop.powered and rng.random() < 0.5
            if powered:
                fork.restart()
            else:
                fork.crash(rng)
            where = f"the opening, at step {number}: {step.operation} {step.path}\n{_where(stop)}"
            known = {key: partition.copy() for key, partition in stop.partitions.items()}
            check(Stop(fork, known, stop.gone, powered, stop.upgrades, where), rng, again=False)

    return on_step


def _check_gone(directory: DataDirectory, stop: Stop) -> None:
    """Checks that no deleted topic exists under its name after a kill or a power loss: its rename is synced."""
    for key in directory.partitions():
        found = directory.topic_id(*key)
        demand(found not in stop.gone, "a deleted topic is back", key)


# -- one log


def check_log(log: PartitionLog, known: Partition, powered: bool, rng: random.Random) -> None:
    """Compares the log with its expected state; `known` is cut to the contents of the log."""
    start, end = log.log_start_offset, log.log_end_offset
    demand(known.log_start <= start <= max(known.log_start_limit, known.log_start), "the log start is", start, known)
    surely = known.acknowledged if powered else known.flushed
    demand(end >= surely, f"the log ends at {end}, and {surely} was", "acknowledged" if powered else "flushed")
    kept = [one for one in known.batches if one.end <= end]
    # Of a compacted log a power loss may leave the newest segment, empty, without the end of the one before it.
    right = end in (start, kept[-1].end if kept else 0) or known.config.rules.compacted or known.cleaned_to
    demand(bool(right), "the log ends within a batch, or after all of them", end)
    found = rows_of(log)
    if not powered or known.may_lack:
        kept = still_there(known, kept, found, start)
    known.batches = kept
    expected = [row for one in kept for row in one.rows if row.offset >= start]
    if known.cleaned_to:
        expected = _without_cleaned(expected, found, known.cleaned_to, kept)
    if found != expected:
        wrong = next((pair for pair in zip(found, expected, strict=False) if pair[0] != pair[1]), None)
        raise Violation(f"wrong records: {len(found)} found, {len(expected)} expected, the first: {wrong}")
    check_look_ups(log, found, rng)
    check_indexes(log)
    check_producers(log, kept, start)
    check_committed(log, kept, found)


def _without_cleaned(expected: list[Row], found: list[Row], cleaned_to: int, batches: list[Batch]) -> list[Row]:
    """Returns the expected records without those that a compaction may have removed and did: also markers, and aborted
    ones."""
    there = {row.offset for row in found}
    void = fates(batches)[0] | markers(batches)
    last = {row.key: row.offset for row in expected if row.offset < cleaned_to and row.offset not in void}
    return [
        row
        for row in expected
        if row.offset in there
        or row.offset >= cleaned_to
        or (row.offset not in void and row.key is not None and row.value is not None and last[row.key] == row.offset)
    ]


def check_committed(log: PartitionLog, batches: list[Batch], found: list[Row]) -> None:
    """Checks the last stable offset, the open transactions, and the records of a read_committed consumer."""
    start, end = log.log_start_offset, log.log_end_offset
    least, largest = stable_range(list(batches), start, end)
    stable = log.last_stable_offset
    demand(least <= stable <= largest, "the last stable offset is", stable, least, largest)
    hidden = fates(batches)[0] | markers(batches)
    expected = [row.offset for row in found if row.offset < stable and row.offset not in hidden]
    seen = consumed(log, start, 500)
    demand(seen == expected, "a reader of committed records sees", seen, "and not", expected)


def check_look_ups(log: PartitionLog, rows: list[Row], rng: random.Random | None = None) -> None:
    """Checks each offset and each timestamp, the existing ones and those beside them; with `rng` some of them."""
    all_rows = rows
    if rng is not None and rows and rng.random() > ALL_LOOK_UPS:
        rows = rng.sample(rows, min(len(rows), 3))
    for row in rows:
        data = bytes(log.read(row.offset, 1).records)
        _, header = next(iter(formats.headers(data)))
        offsets = [record.offset for record in formats.records(data)]
        demand(row.offset in offsets, "an offset is looked up as", row.offset, header)
    times = {row.timestamp for row in rows}
    for wanted in sorted({*times, *(time + 1 for time in times), 0}):
        expected = next(((row.timestamp, row.offset) for row in all_rows if row.timestamp >= wanted), None)
        found = log.find_timestamp(wanted)
        demand((found and found[:2]) == expected, "a timestamp is looked up as", wanted, found, expected)
    top = max((row.timestamp for row in all_rows), default=-1)
    expected = next(((row.timestamp, row.offset) for row in all_rows if row.timestamp == top >= 0), None)
    found = log.max_timestamp()
    demand((found and found[:2]) == expected, "the largest timestamp is looked up as", found, expected)


def check_indexes(log: PartitionLog) -> None:
    """Checks that both indexes of each segment match its bytes. A close adds a time entry wherever the log then
    ended."""
    for segment in log._segments:
        segment.load()
        offsets, times = segment._offset_index, segment._time_index
        found = list(zip(offsets.offsets, offsets.positions, strict=True))
        found_times = list(zip(times.timestamps, times.offsets, strict=True))
        largest: list[tuple[int, int]] = []
        for _, header in segment.batches():
            if header.max_timestamp > max((time for time, _ in largest), default=-1):
                largest.append((header.max_timestamp, header.last_offset - segment.base_offset))
        segment.rebuild()
        offsets, times = segment._offset_index, segment._time_index
        wanted = list(zip(offsets.offsets, offsets.positions, strict=True))
        demand(found == wanted, "an index is not that of its log", segment.base_offset, found, wanted)
        wanted = list(zip(times.timestamps, times.offsets, strict=True))
        right = set(wanted) <= set(found_times) <= set(largest)
        demand(right, "a time index is not that of its log", segment.base_offset, found_times, wanted, largest)


def last_batches(batches: list[Batch], start: int) -> dict[int, Batch]:
    """Returns the newest batch of each producer with batches above the log start, if it may be retried."""
    newest = {one.producer[0]: one for one in batches if one.producer is not None and one.end > start}
    return {producer_id: one for producer_id, one in newest.items() if one.sent}


def check_producers(log: PartitionLog, batches: list[Batch], start: int) -> None:
    """Checks that the producers are exactly those of the batches."""
    whole, part, found = states(batches), states(batches, start), log.producers()
    demand(set(found) <= set(whole), "producers are known that never wrote", set(found) - set(whole))
    drops = log.config.producer_rules.drop_below_log_start
    for producer_id, state in whole.items():
        wrong = wrong_producer(found.get(producer_id), state, part.get(producer_id), start, drops)
        demand(not wrong, f"of producer {producer_id}", wrong, found.get(producer_id), state)


# -- further work


def _continue(
    disk: SimulatedFiles, directory: DataDirectory, logs: dict[Key, PartitionLog], stop: Stop, rng: random.Random
) -> None:
    """Retries are duplicates, or written once; then a clean close and a second opening find the same."""
    ends: dict[Key, tuple[int, list[Row]]] = {}
    for key, log in logs.items():
        known = stop.partitions[key]
        for producer_id, last in last_batches(known.batches, log.log_start_offset).items():
            if log.config.rules.compacted and any(row.key is None for row in last.rows):
                continue  # was accepted under another policy, and is refused now
            before = log.log_end_offset
            again = log.append(bytearray(last.sent), now_ms=5000)
            demand(again.duplicate and again.base_offset == last.first, "a retry of", last.first, "returned", again)
            demand(log.log_end_offset == before, "a retry was written twice", producer_id)
        end_all(log, 5000)
        demand(
            log.last_stable_offset == log.log_end_offset, "what was open could not be ended", log.open_transactions()
        )
        rows = rows_of(log)
        log.append(bytearray(NEW), now_ms=5000)
        found = rows_of(log)
        demand(found[:-1] == rows and found[-1].value == b"new", "an append changed what was there", found)
        if rng.random() < 0.5:
            log.flush()
        ends[key] = log.log_end_offset, found
    directory.close()
    wrong = [
        found for found in Verification(DATA, files=disk, may_have_gaps=lambda topic: True).findings() if found.wrong
    ]
    demand(not wrong, "verify finds", wrong)
    disk.crash(rng)
    directory = open_directory(disk, rng)
    demand(directory.was_clean, "a clean close was not noted")
    for key, (end, rows) in ends.items():
        known = stop.partitions[key]
        log = directory.open_partition(*key, topic_id=known.topic_id, config=known.config, now_ms=5000)
        demand(log.log_end_offset == end, "after a clean close the log ends elsewhere", log.log_end_offset, end)
        found = rows_of(log)
        demand(found == rows, "after a clean close there are other records", found)
        check_look_ups(log, found)
        check_indexes(log)
        demand(log.cut_bytes == 0, "a clean opening cut", log.cut_bytes)
    directory.abandon()
