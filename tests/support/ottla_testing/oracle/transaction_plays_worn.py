"""Scripts with transactional ids that have only two epochs of their producer id left.

`raise_epochs` writes this state into an unused directory, as a coordinator would reach it after 32,765 epochs.
"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

from ottla.broker.transactions.records import decode, transaction_record
from ottla.protocol.records import formats
from ottla.protocol.records.batch import Record
from ottla.storage.config import LogConfig
from ottla.storage.io.files import DiskFiles
from ottla.storage.log_dir.directory import DataDirectory
from ottla_testing.oracle.transaction_plays import ABORT, COMMIT
from ottla_testing.oracle.transaction_script import Play, Stage
from ottla_testing.oracle.transaction_wire import Wire

TOPIC = "__transaction_state"
FROM_EPOCH = 32_765


def raise_epochs(root: Path) -> None:
    """Raises the epochs of all ids, which must be without a transaction."""
    newest = {}
    for path in sorted((root / f"{TOPIC}-0").glob("*.log")):
        data = path.read_bytes()
        for position, header in formats.headers(data):
            for record in () if header.is_control else formats.records(data, position):
                newest[record.key] = record
    directory = DataDirectory.open(DiskFiles(), root, node_id=1)
    try:
        now_ms = time.time_ns() // 1_000_000
        log = directory.open_partition(TOPIC, 0, config=LogConfig(), now_ms=now_ms)
        for record in newest.values():
            entry = decode(record.key, record.value)
            assert entry is not None and entry.transaction is not None and record.value is not None
            worn = replace(entry.transaction, producer_epoch=FROM_EPOCH)
            key, value = transaction_record(worn, int.from_bytes(record.value[:2], "big"))
            log.append_records([Record(0, now_ms, key, value, ())], now_ms=now_ms)
    finally:
        directory.close()


def prepare(address: str, *plays: Play) -> None:
    """Makes the ids, their groups and their topics."""
    wire = Wire(address)
    for play in plays:
        stage = Stage(wire, play.__name__)
        stage.find_both()
        stage.create_topic()
        stage.init(4)
    wire.close()


def worn(stage: Stage) -> None:
    """Uses up the epochs, then gets another producer id."""
    stage.init(4)
    first = (stage.pid, stage.epoch)
    stage.add()
    stage.produce(9)
    stage.end(COMMIT)
    stage.init(4)
    stage.describe()
    stage.add(3, given=first)
    stage.end(COMMIT, given=first)
    stage.end(ABORT, given=first)
    stage.produce(9, sequence=1, given=first)
    stage.add()
    stage.produce(9)
    stage.end(COMMIT)
    stage.producers()
    stage.init(4, given=first)
    stage.describe()


def worn_recovers(stage: Stage) -> None:
    """Recovers with the last epoch (KIP-360)."""
    stage.init(4)
    first = (stage.pid, stage.epoch)
    stage.init(4, given=first)
    stage.describe()
    stage.init(4, given=(first[0], first[1] - 1))
    stage.init(4, given=first)
    stage.init(4, given=first)
    stage.init(4, given=(first[0], first[1] + 1))
    stage.describe()


def worn_fenced(stage: Stage) -> None:
    """A transaction of the last epoch is aborted by another producer."""
    stage.init(4)
    first = (stage.pid, stage.epoch)
    stage.add()
    stage.produce(9)
    stage.init(4)
    stage.settle()
    stage.describe()
    stage.producers()
    stage.end(COMMIT, given=first)
    stage.add(3, given=first)
    stage.produce(9, sequence=1, given=first)
    stage.init(4)
    stage.describe()
    stage.end(COMMIT, given=first)
    stage.produce(9, sequence=1, given=first)


def new_worn(stage: Stage) -> None:
    """The end of the last epoch's transaction returns another producer id."""
    stage.init(5)
    first = (stage.pid, stage.epoch)
    stage.produce(12)
    stage.commit_offsets(5, 7)
    stage.end(COMMIT, 5)
    stage.describe()
    stage.producers()
    stage.offsets(require_stable=True)
    stage.end(COMMIT, 5, given=first)
    stage.end(ABORT, 5, given=first)
    stage.end(COMMIT, 4, given=first)
    stage.produce(12, sequence=1, given=first)
    stage.init(5, given=first)
    stage.describe()
    stage.produce(12)
    stage.end(ABORT, 5)
    stage.describe()
    stage.producers()


def new_worn_empty(stage: Stage) -> None:
    """The aborted transaction was empty."""
    stage.init(5)
    first = (stage.pid, stage.epoch)
    stage.end(ABORT, 5)
    stage.describe()
    stage.end(ABORT, 5, given=first)
    stage.end(COMMIT, 5, given=first)
    stage.end(ABORT, 5)
    stage.describe()


def new_worn_fenced(stage: Stage) -> None:
    stage.init(5)
    first = (stage.pid, stage.epoch)
    stage.produce(12)
    stage.init(5)
    stage.settle()
    stage.describe()
    stage.producers()
    stage.end(COMMIT, 5, given=first)
    stage.produce(12, sequence=1, given=first)
    stage.init(5)
    stage.describe()
    stage.end(COMMIT, 5, given=first)


def new_worn_repeats(stage: Stage) -> None:
    """The fenced owner of the last epoch repeats completed requests."""
    stage.init(5)
    first = (stage.pid, stage.epoch)
    stage.produce(12)
    stage.init(5)
    stage.settle()
    stage.end(ABORT, 5, given=first)
    stage.describe()


WORN: tuple[Play, ...] = (worn, worn_recovers, worn_fenced)
WORN_NEW: tuple[Play, ...] = (new_worn, new_worn_empty, new_worn_fenced, new_worn_repeats)
