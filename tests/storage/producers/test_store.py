"""Producers across restarts: the state after any loss, the written and removed files, and the reads.

The state is compared by the responses to batches: epoch, last sequence, and the offsets of duplicates of the newest
batches.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable
from typing import Any

import pytest

from ottla.protocol.records import batch
from ottla.storage import errors
from ottla.storage.partition_log import LogConfig, PartitionLog
from ottla.storage.producers import snapshot
from ottla.storage.producers.producer_state import Producer, ProducerRules, RuleOutcome
from ottla_testing.each import each
from ottla_testing.storage.batches import FOLDER, make, old, open_log, sequenced, values
from ottla_testing.storage.simulated_files import Killed, SimulatedFiles

CONFIG = LogConfig(segment_bytes=600, index_interval_bytes=150)
NO_SCAN = dataclasses.replace(CONFIG, producer_rules=ProducerRules(scan_bytes=0))


@pytest.fixture
def files() -> SimulatedFiles:
    return SimulatedFiles()


def names(files: SimulatedFiles, suffix: str = ".snapshot") -> list[str]:
    return sorted(name for name in files.list(FOLDER) if name.endswith(suffix))


def snapshots(files: SimulatedFiles) -> list[int]:
    return [int(name[:20]) for name in names(files)]


def bases(files: SimulatedFiles) -> list[int]:
    return [int(name[:20]) for name in names(files, ".log")]


def fill(log: PartitionLog, count: int = 30, first: int = 0) -> None:
    """Writes batches of three producers and of none, alternating; the third raises its epoch now and then."""
    for number in range(first, first + count):
        if number % 5 == 4:
            log.append(make(b"plain", timestamp=number), now_ms=0)
            continue
        producer = number % 5 % 3
        known = log.producers().get(producer)
        sequence = (known.batches[-1].last_sequence + 1) if known else 0
        epoch = known.epoch if known else 0
        if producer == 2 and number % 7 == 0:
            sequence, epoch = 0, epoch + 1
        log.append(sequenced(sequence, 1 + number % 3, producer_id=producer, epoch=epoch, timestamp=number), now_ms=0)


def newest(producers: dict[int, Producer]) -> dict[int, Any]:
    """Returns the state in a snapshot, and after any restart from it."""
    return {key: (known.epoch, known.batches[-1], known.last_timestamp_ms) for key, known in producers.items()}


# -- existing files


def test_snapshots_exist_for_each_segment_and_the_log_end(files: SimulatedFiles):
    log = open_log(files, config=CONFIG)
    fill(log)
    assert len(bases(files)) > 4
    assert snapshots(files) == bases(files)[1:]
    for offset in snapshots(files):
        found = snapshot.read(files, FOLDER, offset)
        assert found and max(known.last_offset for known in found.values()) < offset
    log.close()
    assert snapshots(files) == [*bases(files)[1:], log.log_end_offset]
    assert newest(snapshot.read(files, FOLDER, log.log_end_offset) or {}) == newest(log.producers())
    for name in names(files):
        content = files.contents[f"{FOLDER}/{name}"]
        assert content.live == content.durable


def test_log_without_producers_has_empty_snapshots_and_an_empty_log_none(files: SimulatedFiles):
    log = open_log(files, config=CONFIG)
    log.close()
    assert names(files) == []
    log = open_log(files, config=CONFIG)
    for number in range(12):
        log.append(make(b"%d" % number), now_ms=0)
    log.close()
    assert snapshots(files) == [*bases(files)[1:], 12]
    assert {files.read_bytes(f"{FOLDER}/{name}") for name in names(files)} == {snapshot.dump({})}
    # Again, without loading the state: the one at the end moves.
    log = open_log(files, config=CONFIG)
    log.append(make(b"more"), now_ms=0)
    log.close()
    assert snapshots(files)[-1] == 13
    log = open_log(files, config=CONFIG)
    assert snapshots(files) == [*bases(files)[1:], 13]
    steps = files.steps
    log.close()
    assert files.steps == steps  # an idle log writes nothing


def test_log_of_old_formats_has_snapshots(files: SimulatedFiles):
    config = dataclasses.replace(CONFIG, rules=dataclasses.replace(CONFIG.rules, target_magic=1))
    log = open_log(files, config=CONFIG)
    fill(log, 9)
    log.configure(config)
    for number in range(20):
        log.append(old(1, b"%d" % number), now_ms=0, produce_version=2)
    log.close()
    known = newest(log.producers())
    for clean in (True, False):
        log = open_log(files, config=CONFIG, clean=clean)
        assert newest(log.producers()) == known
        log.abandon()


@pytest.mark.parametrize("clean", [True, False])
def test_stray_snapshots_are_removed_at_open(files: SimulatedFiles, clean: bool):
    log = open_log(files, config=CONFIG)
    fill(log)
    log.close()
    known, end, kept = newest(log.producers()), log.log_end_offset, snapshots(files)
    assert kept[:-1] == bases(files)[1:]
    empty = snapshot.dump({})
    inside = next(offset for offset in range(1, end) if offset not in bases(files))
    for offset in (0, inside, end - 1, end + 1, 10**19 - 1):
        if offset not in kept:
            file = files.open(f"{FOLDER}/{snapshot.file_name(offset)}", create=True)
            file.write(0, empty)
    log = open_log(files, config=CONFIG, clean=clean)
    assert snapshots(files) == kept
    assert newest(log.producers()) == known


def test_snapshots_at_or_below_the_log_start_are_removed(files: SimulatedFiles):
    log = open_log(files, config=CONFIG)
    fill(log)
    starts = bases(files)
    log.close()
    log = open_log(files, config=CONFIG, log_start_offset=starts[2])
    assert snapshots(files) == [*starts[3:], log.log_end_offset]


# -- reads


class Reading(SimulatedFiles):
    """Records which files are opened or read as a whole."""

    def __init__(self) -> None:
        super().__init__()
        self.read: list[str] = []

    def open(self, path: str, *, create: bool = False) -> Any:
        self.read.append(path.rpartition("/")[2])
        return super().open(path, create=create)

    def read_bytes(self, path: str) -> bytes:
        self.read.append(path.rpartition("/")[2])
        return super().read_bytes(path)

    def size(self, path: str) -> int:
        return len(self.contents[path].live)


def test_clean_open_reads_no_snapshot_and_the_first_use_only_one():
    files = Reading()
    log = open_log(files, config=CONFIG)
    fill(log)
    last = bases(files)[-1]
    log.close()
    files.read.clear()
    log = open_log(files, config=CONFIG)
    assert not [name for name in files.read if name.endswith(".snapshot")]
    assert {name for name in files.read if name.endswith(".log")} <= {f"{last:020d}.log"}
    files.read.clear()
    assert log.producers()
    assert files.read == [snapshot.file_name(log.log_end_offset)]
    files.read.clear()
    log.append(sequenced(0, producer_id=77), now_ms=0)
    assert not [name for name in files.read if name.endswith(".snapshot")]


def test_records_without_a_producer_read_no_snapshot():
    files = Reading()
    log = open_log(files, config=CONFIG)
    fill(log)
    log.close()
    log = open_log(files, config=CONFIG)
    files.read.clear()
    log.append(make(b"x"), now_ms=0)
    assert not [name for name in files.read if name.endswith(".snapshot")]
    # Batches appended before the state was loaded are after the replayed ones, and have no producer.
    assert newest(log.producers()) and log.append(sequenced(0, producer_id=77), now_ms=0).base_offset


# -- losses


Loss = Callable[[SimulatedFiles, random.Random], None]


def lose(*suffixes: str) -> Loss:
    def loss(files: SimulatedFiles, rng: random.Random) -> None:
        for suffix in suffixes:
            for name in names(files, suffix):
                files.remove(f"{FOLDER}/{name}")

    return loss


def lose_one(files: SimulatedFiles, rng: random.Random) -> None:
    files.remove(f"{FOLDER}/{rng.choice(names(files))}")


def damage(files: SimulatedFiles, rng: random.Random, name: str) -> None:
    live = files.contents[f"{FOLDER}/{name}"].live
    live[rng.randrange(len(live))] ^= 1 << rng.randrange(8)


def damage_one(files: SimulatedFiles, rng: random.Random) -> None:
    damage(files, rng, rng.choice(names(files)))


def damage_all(files: SimulatedFiles, rng: random.Random) -> None:
    for name in names(files):
        damage(files, rng, name)


def cut_all(files: SimulatedFiles, rng: random.Random) -> None:
    for name in names(files):
        live = files.contents[f"{FOLDER}/{name}"].live
        del live[rng.randrange(len(live)) :]


LOSSES: dict[str, Loss] = {
    "nothing": lambda files, rng: None,
    "one snapshot": lose_one,
    "all snapshots": lose(".snapshot"),
    "one is damaged": damage_one,
    "all are damaged": damage_all,
    "all are cut": cut_all,
    "the indexes": lose(".index", ".timeindex"),
    "indexes and snapshots": lose(".index", ".timeindex", ".snapshot"),
}


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("end", ["closed", "killed", "killed late"])
@each("seed", range(4), strided=True)
def test_producer_state_is_rebuilt_after_any_loss(end: str, loss: str, seed: int):
    rng, files = random.Random(seed), SimulatedFiles()
    log = open_log(files, config=CONFIG)
    fill(log, 25 + rng.randrange(12))
    if end == "killed late":
        log.flush()
        fill(log, 8, 40)
    before, point, stored = dict(log.producers()), log.recovery_point, values(log)
    log.close() if end == "closed" else log.abandon()
    LOSSES[loss](files, rng)
    log = open_log(files, config=CONFIG, clean=end == "closed", recovery_point=point)
    assert newest(log.producers()) == newest(before)
    assert values(log) == stored
    # The five newest batches of each get the same responses as before, from the state or by a scan of the log.
    for producer_id, known in before.items():
        for cached in known.batches:
            count = cached.last_sequence - cached.first_sequence + 1
            again = sequenced(cached.first_sequence, count, producer_id=producer_id, epoch=known.epoch, timestamp=1)
            found = log.append(again, now_ms=0)
            assert (found.duplicate, found.base_offset, found.log_append_time_ms) == (
                True,
                cached.base_offset,
                cached.max_timestamp_ms,
            )
    fill(log, 3, 50)
    end_offset = log.log_end_offset
    log.close()
    assert snapshots(files)[-1] == end_offset
    assert newest(open_log(files, config=CONFIG).producers()) == newest(log.producers())


def test_replay_restores_five_batches_per_producer(files: SimulatedFiles):
    log = open_log(files, config=NO_SCAN)
    fill(log)
    before = dict(log.producers())
    log.close()
    assert {len(known.batches) for known in open_log(files, config=NO_SCAN).producers().values()} == {1}
    lose(".snapshot")(files, random.Random())
    assert open_log(files, config=NO_SCAN).producers() == before


def test_restart_without_duplicate_scan_detects_only_the_newest_batch(files: SimulatedFiles):
    log = open_log(files, config=NO_SCAN)
    for number in range(3):
        log.append(sequenced(number), now_ms=0)
    log.close()
    log = open_log(files, config=NO_SCAN)
    assert log.append(sequenced(2), now_ms=0).duplicate
    with pytest.raises(errors.DuplicateSequence):
        log.append(sequenced(1), now_ms=0)


def test_snapshots_above_the_cut_are_ignored(files: SimulatedFiles):
    """A power loss takes batches, the snapshot above them was durable; other batches then get these offsets."""
    log = open_log(files, config=CONFIG)
    fill(log)
    log.close()
    middle = bases(files)[2]
    live = files.contents[f"{FOLDER}/{middle:020d}.log"].live
    live[len(live) // 2] ^= 1
    log = open_log(files, config=CONFIG, clean=False)
    assert log.log_end_offset < snapshots(files)[-1] + 1 == log.log_end_offset + 1
    end, known = log.log_end_offset, dict(log.producers())
    assert max(producer.last_offset for producer in known.values()) < end
    log.abandon()
    lose(".snapshot")(files, random.Random())
    assert open_log(files, config=CONFIG, clean=False).producers() == known


def test_damaged_batch_far_below_the_end_does_not_prevent_open(files: SimulatedFiles):
    log = open_log(files, config=CONFIG)
    fill(log)
    log.flush()
    point = log.recovery_point
    log.abandon()
    lose(".snapshot")(files, random.Random())
    files.contents[f"{FOLDER}/{0:020d}.log"].live[16] = 9
    log = open_log(files, config=CONFIG, clean=False, recovery_point=point)
    log.append(make(b"x"), now_ms=0)
    with pytest.raises(errors.StorageError):
        log.append(sequenced(0), now_ms=0)


# -- kills and power losses


def work(files: SimulatedFiles, acknowledged: list[tuple[int, int]]) -> None:
    """Writes with a producer over several segments, with occasional flushes; returns (sequence, offset) of the
    acknowledged batches."""
    log = open_log(files, config=CONFIG)
    for number in range(14):
        acknowledged.append((number, log.append(sequenced(number, timestamp=number), now_ms=0).base_offset))
        if number == 6:
            log.flush()
    log.close()


def steps_of_work() -> int:
    files = SimulatedFiles()
    work(files, [])
    return files.steps


@each("power_lost", [False, True])
@each("step", range(steps_of_work()), strided=True)
def test_retries_after_a_crash_are_written_once(step: int, power_lost: bool):
    """The producer continues after its last response; a batch without a response may be there, and must then be
    known."""
    rng = random.Random(step)
    for portion in (0.0, 0.5, 1.0):
        files, acknowledged = SimulatedFiles(), []
        files.fail_at, files.killing, files.portion = step, True, portion
        with pytest.raises(Killed):
            work(files, acknowledged)
        if power_lost:
            files.lose_power(lambda path, durable, live: rng.randint(min(durable, live), max(durable, live)))
        files.restart()
        log = open_log(files, config=CONFIG, clean=False)
        stored = len(values(log))
        assert len(acknowledged) <= stored or power_lost
        assert set(log.producers()) == ({9} if stored else set())
        if stored:
            assert log.producers()[9].batches[-1].last_sequence == stored - 1
        for number in range(max(stored - 6, 0), 20):
            done = log.append(sequenced(number, timestamp=number), now_ms=0)
            assert (done.base_offset, done.duplicate) == (number, number < stored)
        log.close()
        log = open_log(files, config=CONFIG)
        assert values(log) == [b"%d" % number for number in range(20)]
        assert log.append(sequenced(19), now_ms=0).duplicate


def test_snapshot_that_cannot_be_written_prevents_the_roll(files: SimulatedFiles):
    log = open_log(files, config=CONFIG)
    while bases(files) == [0]:
        last = log.log_end_offset
        files.failing = lambda operation, path: operation == "create" and ".snapshot" in path
        try:
            log.append(sequenced(last), now_ms=0)
        except errors.StorageError:
            assert bases(files) == [0] and log.log_end_offset == last
            files.failing = lambda operation, path: False
            log.append(sequenced(last), now_ms=0)
    assert snapshots(files) == bases(files)[1:]
    assert values(log) == [b"%d" % number for number in range(log.log_end_offset)]


# -- transactions


def marker(epoch: int, coordinator_epoch: int, offset: int) -> bytes:
    value = b"\0\0" + coordinator_epoch.to_bytes(4, "big")
    record = batch.Record(offset, 5000, b"\0\0\0\1", value)
    return bytes(
        batch.build(
            [record],
            batch.BatchFields(control=True, transactional=True, producer_id=9, producer_epoch=epoch),
            base_offset=offset,
        )
    )


def test_open_transactions_and_markers_are_restored(files: SimulatedFiles):
    first = batch.build(
        [batch.Record(n, 1000, None, b"v") for n in range(2)],
        batch.BatchFields(producer_id=9, producer_epoch=1, base_sequence=0, transactional=True),
    )
    opened = Producer(1, ((0, 1, 0, 1, 1000),), 1, 1000, -1, 0)  # type: ignore[arg-type]
    ended = opened._replace(last_timestamp_ms=5000, coordinator_epoch=6, transaction_first_offset=-1)
    for data, expected in (
        (bytes(first), opened),
        (bytes(first) + marker(1, 6, 2), ended),
        (bytes(first) + marker(1, 6, 2) + marker(2, 4, 3), Producer(2, (), 3, 5000, 6)),
    ):
        for name in files.list(FOLDER) if FOLDER in files.directories else ():
            files.remove(f"{FOLDER}/{name}")
        files.make_directory(FOLDER)
        file = files.open(f"{FOLDER}/{0:020d}.log", create=True)
        file.truncate(0)
        file.write(0, data)
        for clean in (True, False, True, True):  # replayed, recovered, and twice from a snapshot
            log = open_log(files, clean=clean)
            (known,) = log.producers().values()
            # A snapshot has one timestamp, the newest: the batch gets the marker's.
            batches = tuple(cached._replace(max_timestamp_ms=1000) for cached in known.batches)
            assert known._replace(batches=batches) == expected, clean
            log.close()


def test_producer_of_an_open_transaction_does_not_expire():
    from ottla.storage.producers.producer_state import forget_below, forget_expired

    rules = ProducerRules(expiration_ms=10)
    producers = {1: Producer(0, (), 5, 100, -1, 5), 2: Producer(0, (), 5, 100)}
    assert forget_expired(producers, 109, 6, rules) == 0
    assert forget_expired(dict(producers), 10**6, 6, ProducerRules()) == 0
    assert forget_expired(producers, 110, 6, rules) == 1 and set(producers) == {1}
    forget_below(producers, 99, rules)
    assert set(producers) == {1}


def test_errors_for_batches_inside_and_below_the_cache_follow_the_rules(files: SimulatedFiles):
    rules = ProducerRules(
        below_cache=RuleOutcome.DUPLICATE_SEQUENCE, inside_cache=RuleOutcome.OUT_OF_ORDER, scan_bytes=0
    )
    log = open_log(files, config=dataclasses.replace(CONFIG, producer_rules=rules))
    for number in range(6):
        log.append(sequenced(2 * number, 2), now_ms=0)
    for sequence, count, error in (
        (0, 2, errors.DuplicateSequence),
        (0, 1, errors.DuplicateSequence),
        (1, 2, errors.OutOfOrderSequence),  # its second record is in a cached batch
        (3, 2, errors.OutOfOrderSequence),
    ):
        with pytest.raises(error):
            log.append(sequenced(sequence, count), now_ms=0)
