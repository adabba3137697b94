"""When the open transactions of a data directory began, by the transaction coordinator's clock.

Owns the reading of `__transaction_state`: each transactional id's last record has the producer, the status and the time
at which the transaction began. A directory without the coordinator's partition has none of them.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from ....protocol.compiler import parse
from ....protocol.errors import MalformedMessage
from ....protocol.internal_records.transaction_records import TransactionLogKey, TransactionLogValue
from ....protocol.limits import INT16_MAX
from ....protocol.schema import spec
from ....storage import inspect
from ....storage.errors import StorageError
from ...objects.logs import files_of

TOPIC = "__transaction_state"
ONGOING = 1
OPEN = (ONGOING, 2, 3)
"""The statuses Ongoing, PrepareCommit and PrepareAbort."""

_VERSION = struct.Struct(">h")


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
    for folder in inspect.partitions(root, files_of(root)):
        if folder.topic == TOPIC:
            for key, value in _records(folder):
                newest[key] = _parsed(key, value)
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


def _parsed(key: bytes, value: bytes | None) -> TransactionLogValue | None:
    try:
        if value is None or _VERSION.unpack_from(key)[0] != spec(TransactionLogKey).api_key:
            return None
        (version,) = _VERSION.unpack_from(value)
        if version not in spec(TransactionLogValue).versions:
            return None
        return parse(TransactionLogValue, version, value, _VERSION.size)
    except (MalformedMessage, struct.error):
        return None


def _records(folder: inspect.PartitionFolder) -> Iterator[tuple[bytes, bytes | None]]:
    for segment in folder.segments:
        try:
            for record in inspect.sound_records(segment.path, files_of(segment.path)):
                if record.key is not None:
                    yield bytes(record.key), None if record.value is None else bytes(record.value)
        except (StorageError, OSError):
            continue  # reported by the audit of that partition
