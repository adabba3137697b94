"""Logs for the tests of compaction: written batch by batch, cleaned and swapped as the broker does, and read back."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ottla.protocol.records import batch, formats
from ottla.protocol.records.batch import BatchHeader, Record
from ottla.storage.compaction.compaction import Clean, Cleaned, Group, SegmentFacts, clean
from ottla.storage.compaction.swap import swap_in
from ottla.storage.io.files import Files
from ottla.storage.segments.segment import file_name
from ottla_testing.protocol.batches import batch_of
from ottla_testing.storage.batches import FOLDER
from ottla_testing.storage.old_messages import message, wrapper
from ottla_testing.storage.simulated_files import SimulatedFiles

Row = tuple[int, bytes | None, bytes | None]
"""Offset, key, value."""


class Laid(NamedTuple):
    """A segment: base offset, when its file was changed (ms), its batches."""

    base_offset: int
    modified_ms: int
    batches: Sequence[bytes | bytearray]


def data(first: int, *pairs: tuple[bytes | None, bytes | None], time: int = 1000, **more: object) -> bytearray:
    """Returns a v2 batch of (key, value) from an offset on."""
    records = [Record(first + number, time + number, key, value) for number, (key, value) in enumerate(pairs)]
    return batch_of(records, base_offset=first, **more)  # type: ignore[arg-type]


def marker(
    offset: int,
    producer: int,
    *,
    commit: bool,
    epoch: int = 0,
    time: int = 1000,
    kind: int | None = None,
    leader_epoch: int = -1,
) -> bytearray:
    """Returns the control batch that ends a transaction, or one of another kind."""
    key, value = struct.pack(">hh", 0, int(commit) if kind is None else kind), struct.pack(">hi", 0, 7)
    return batch.build(
        [Record(offset, time, key, value)],
        batch.BatchFields(producer_id=producer, producer_epoch=epoch, transactional=True, control=True),
        base_offset=offset,
        leader_epoch=leader_epoch,
    )


def old(magic: int, codec: int, first: int, *pairs: tuple[bytes | None, bytes | None], time: int = 1000) -> bytes:
    """Returns the records in an old format: plain messages, or a wrapper."""
    times = [time + number if magic else -1 for number in range(len(pairs))]
    rows = [(first + number, key, value, times[number]) for number, (key, value) in enumerate(pairs)]
    return wrapper(magic, codec, rows) if codec else b"".join(message(magic, *row) for row in rows)


def lay(files: SimulatedFiles, segments: Sequence[Laid], aborted: Mapping[int, Sequence[bytes]] | None = None) -> None:
    """Writes durable segments, with transaction indexes of these entries by base offset."""
    files.make_directory(FOLDER)
    for base_offset, modified_ms, batches in segments:
        contents = {".log": b"".join(batches), ".index": b"", ".timeindex": b""}
        if aborted and base_offset in aborted:
            contents[".txnindex"] = b"".join(aborted[base_offset])
        for suffix, content in contents.items():
            path = f"{FOLDER}/{file_name(base_offset, suffix)}"
            file = files.open(path, create=True)
            file.truncate(0)
            file.write(0, content)
            files.set_modified_ns(path, modified_ms * 1_000_000)
            file.sync()
    files.sync_directory(FOLDER)


def bases(files: Files, folder: str = FOLDER) -> list[int]:
    return sorted(int(name[:20]) for name in files.list(folder) if name.endswith(".log"))


def facts(files: SimulatedFiles, end_offset: int) -> tuple[SegmentFacts, ...]:
    """Returns all segments below an offset, which is the end of the last of them."""
    found = [base for base in bases(files) if base < end_offset]
    ends = [*found[1:], end_offset]
    made = []
    for base, end in zip(found, ends, strict=True):
        path = f"{FOLDER}/{file_name(base)}"
        headers = [header for _, header in formats.headers(files.read_bytes(path))]
        times = [header.max_timestamp for header in headers]
        made.append(
            SegmentFacts(base, files.size(path), end, files.modified_ns(path), max(times, default=-1), [*times, -1][0])
        )
    return tuple(made)


def task(files: SimulatedFiles, first_dirty: int, end_offset: int, **more: object) -> Clean:
    chosen: dict[str, object] = {
        "directory": FOLDER, "segments": facts(files, end_offset), "first_dirty_offset": first_dirty,
        "end_offset": end_offset, "now_ms": 10_000, "delete_retention_ms": 500, "active_producers": {},
        "keep_empty_at_end": False, "dedupe_buffer_bytes": 1 << 16,
    }  # fmt: skip
    return Clean(**(chosen | more))  # type: ignore[arg-type]


def run(files: SimulatedFiles, what: Clean) -> Cleaned:
    """Runs one pass, and swaps its groups in one after another."""
    for found in clean(files, what):
        if isinstance(found, Group):
            swap_in(files, FOLDER, [made.base_offset for made in found.new], found.old)
            for made in found.new:
                assert files.size(f"{FOLDER}/{file_name(made.base_offset)}") == made.size_bytes
        else:
            return found
    raise AssertionError("a pass without an end")


def clean_once(files: SimulatedFiles, first_dirty: int, end_offset: int, **more: object) -> Cleaned:
    return run(files, task(files, first_dirty, end_offset, **more))


def entries_of(files: Files, base: int | None = None) -> list[tuple[BatchHeader, bytes]]:
    """Returns all entries of the log, or of one segment, after a check of checksums and rising offsets."""
    found: list[tuple[BatchHeader, bytes]] = []
    for number in bases(files) if base is None else [base]:
        content = files.read_bytes(f"{FOLDER}/{file_name(number)}")
        end = 0
        for position, header in formats.headers(content):
            assert formats.crc_matches(content, position, header)
            end = position + header.size_bytes
            found.append((header, content[position:end]))
        assert end == len(content)
    last = -1
    for header, entry in found:
        records = list(formats.records(entry))
        first = records[0].offset if header.magic < 2 else header.base_offset
        assert last < first and all(first <= record.offset <= header.last_offset for record in records)
        last = header.last_offset
    return found


def rows(files: SimulatedFiles) -> list[Row]:
    """Returns all records except control records."""
    return [
        (record.offset, record.key, record.value)
        for header, entry in entries_of(files)
        if not header.is_control
        for record in formats.records(entry)
    ]


def last_values(found: Sequence[Row]) -> dict[bytes, bytes]:
    """Returns the last values for a consumer that read from the beginning: a tombstone deletes."""
    known: dict[bytes, bytes] = {}
    for _, key, value in found:
        if key is not None:
            known.pop(key, None)
            if value is not None:
                known[key] = value
    return known


def offsets(files: SimulatedFiles) -> list[int]:
    return [row[0] for row in rows(files)]
