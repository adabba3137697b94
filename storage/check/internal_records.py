"""The records of internal topics in a verification.

A record that cannot be decoded is not damage of its log: its batch is sound. It stops a broker that loads groups,
transactions or share state from its partition, so it is reported as wrong; a repair leaves it. Records of unknown
types, which brokers skip, are a note.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias

from ...protocol.records import formats
from ...protocol.records.errors import CorruptRecords, InvalidRecords, UnsupportedCodec
from .. import inspect
from ..errors import StorageError
from ..io.files import Files
from .facts import Finding, SegmentTask

PART = "records"
INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})
FINDINGS_MAX = 100  # of a segment
RecordCheck: TypeAlias = Callable[[str, bytes | None, bytes | None], tuple[str, bool] | None]
"""(topic, key, value) -> what is wrong with a record and whether a broker cannot load it, or None."""


def findings(task: SegmentTask, files: Files, check: RecordCheck) -> Iterator[Finding]:
    """Yields a finding for each faulty record of a segment of an internal topic; none for another topic. Damaged
    batches are left out: the pass over the segment finds them. Raises StorageError if the file cannot be read.
    """
    topic = task.label.rpartition("-")[0]
    if topic not in INTERNAL_TOPICS:
        return
    name = f"{task.label}/{os.path.basename(task.segment.path)}"
    count = 0
    with inspect.FileSource(task.segment.path, files) as source:
        for found in inspect.entries(source):
            if isinstance(found, inspect.Damage):
                return
            is_sound = found.crc_ok and found.problem is None and found.size_bytes <= inspect.ENTRY_BYTES_MAX
            if not is_sound or found.header.is_control:
                continue
            for offset, what, is_wrong in _problems(topic, source, found, check):
                count += 1
                if count <= FINDINGS_MAX:
                    yield Finding(name, found.position, offset, what, is_wrong, PART)
    if count > FINDINGS_MAX:
        yield Finding(name, None, None, f"{count - FINDINGS_MAX} more records are faulty", True, PART)


def _problems(
    topic: str, source: inspect.Source, found: inspect.BatchFacts, check: RecordCheck
) -> Iterable[tuple[int, str, bool]]:
    try:
        for record in formats.records(source.read(found.position, found.size_bytes), 0):
            key = None if record.key is None else bytes(record.key)
            problem = check(topic, key, None if record.value is None else bytes(record.value))
            if problem is not None:
                yield record.offset, *problem
    except (CorruptRecords, InvalidRecords, UnsupportedCodec):
        return  # a fault of the batch
    except OSError as error:
        raise StorageError(f"cannot read a segment of {topic}: {error.strerror}") from error
