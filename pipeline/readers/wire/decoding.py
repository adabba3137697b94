"""Fetched entries to rows: what is in the range, what is committed, and what becomes of damage.

Owns the trim to the range and `onCorrupt` over the wire. No loop per record, and none per entry but where transactions
were aborted or entries are damaged.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from ....protocol.records import formats
from ....protocol.records.batch import BatchHeader
from ....protocol.records.errors import CorruptRecords, InvalidRecords
from ....protocol.records.layout import MAGIC_AT, OFFSET_AND_LENGTH, PREFIX_BYTES
from ...backend import OffsetRange, ReadError, Wanted
from .. import columns as rows
from ..columnar import Damage, Options, decode, schema
from .entries import aborted_positions
from .fetch import Fetched

__all__ = ["CHUNK_BYTES", "Decoder"]

CHUNK_BYTES = 8 << 20
"""Decoded together: as much as is fetched at once. Batches are hopped in step, so more of them cost less each."""

_log = logging.getLogger(__name__)


class Decoder:
    """The rows of one range. `skipped` counts entries that were left out because they are damaged."""

    def __init__(self, wanted: Wanted, of: OffsetRange) -> None:
        self.skipped = 0
        self._wanted = wanted
        self._range = of
        needed = dict.fromkeys(rows.decoder_columns(wanted.columns))
        self._columns = tuple(needed)
        self._with_offset = tuple(dict.fromkeys([*needed, "offset"]))

    def rows(self, fetched: Fetched) -> Iterator[pa.RecordBatch]:
        """Those of one answer, with the columns that are wanted. Raises ReadError for damage that fails."""
        topic, partition = self._range.key
        for found in self._decoded(fetched):
            trimmed = self._trimmed(found, fetched.offset)
            if trimmed.num_rows:
                yield rows.assemble(trimmed, topic, partition, self._wanted.columns)

    def _trimmed(self, found: pa.RecordBatch, start: int) -> pa.RecordBatch:
        """Without what is outside of the range: only the first and the last entries hold any. What lies below the
        offset that was asked for was given before, or is deleted."""
        offsets = found.column("offset").to_numpy()
        if offsets.min() >= start and offsets.max() < self._range.end:
            return found
        inside = np.flatnonzero((offsets >= start) & (offsets < self._range.end))
        if inside.size and inside[-1] - inside[0] + 1 == inside.size:
            return found.slice(int(inside[0]), inside.size)
        return found.take(pa.array(inside))

    def _decoded(self, fetched: Fetched) -> Iterator[pa.RecordBatch]:
        wanted = self._wanted
        damages: list[tuple[int, Damage]] = []
        if wanted.on_corrupt == "fail":
            try:
                yield from decode(fetched.data, self._options(fetched))
            except (CorruptRecords, InvalidRecords) as error:
                raise self._located(fetched, error) from error
            return
        found = self._around_damage(fetched, damages)
        if wanted.on_corrupt == "skip":
            yield from found
            self.skipped += len(damages)
            return
        told = list(found)
        told += [self._raw(fetched, position, damage) for position, damage in damages]
        if damages and len(told) > 1:
            # What is damaged is known only after what is behind it in a chunk.
            told = pa.Table.from_batches(told).sort_by("offset").to_batches()
        yield from told

    def _options(self, fetched: Fetched, on_damage: Callable[[Damage], None] | None = None, base: int = 0) -> Options:
        """`base`: where what is decoded starts in what was fetched."""
        wanted = self._wanted
        return Options(
            columns=self._with_offset,
            control=wanted.control,
            keep=self._keep(fetched, base),
            check_crc=wanted.on_corrupt != "emit",
            on_damage=on_damage,
            chunk_bytes=CHUNK_BYTES,
            max_batch_bytes=wanted.max_batch_bytes,
        )

    def _keep(self, fetched: Fetched, base: int) -> Callable[[int, BatchHeader], bool] | None:
        """Which entries are looked at; None for all, which is the quicker way for old plain messages."""
        aborted: frozenset[int] = frozenset()
        if fetched.aborted:
            try:
                aborted = aborted_positions(fetched.data, fetched.aborted)
            except CorruptRecords as error:
                raise self._located(fetched, error) from error
        from_ms = self._wanted.from_ms
        if from_ms is None and not aborted:
            return None

        def keep(position: int, header: BatchHeader) -> bool:
            if position + base in aborted:
                return False
            # Of the old formats a header does not tell the newest time, or has none.
            return from_ms is None or header.magic < formats.NEWEST_MAGIC or header.max_timestamp >= from_ms

        return keep

    # Damage

    def _around_damage(self, fetched: Fetched, damages: list[tuple[int, Damage]]) -> Iterator[pa.RecordBatch]:
        """All that can be decoded; `damages` get their positions in what was fetched."""
        base = 0
        while base < len(fetched.data):
            headless: list[int] = []

            def on_damage(damage: Damage, base: int = base, headless: list[int] = headless) -> None:
                damages.append((base + damage.position, damage))
                if damage.header is None:
                    headless.append(base + damage.position)

            yield from decode(fetched.data[base:], self._options(fetched, on_damage, base))
            if not headless:
                return
            # Its size is right: the next entry is found by it, as was the next Fetch.
            base = headless[0] + _size_bytes(fetched.data, headless[0])

    def _located(self, fetched: Fetched, error: Exception) -> ReadError:
        """The failure, with where it is: looked for only now."""
        found: list[tuple[int, Damage]] = []
        options = Options(
            columns=(),
            control=self._wanted.control,
            on_damage=lambda damage: found.append((damage.position, damage)),
            max_batch_bytes=self._wanted.max_batch_bytes,
        )
        for _ in decode(fetched.data, options):
            if found:
                break
        where, why = f"offset {fetched.offset}", error
        if found:
            position, damage = found[0]
            base = OFFSET_AND_LENGTH.unpack_from(fetched.data, position)[0]
            where, why = f"offset {base}, byte {position} of what was fetched at offset {fetched.offset}", damage.error
        return ReadError(f"{self._range.key} is damaged at {where} of {fetched.broker}: {why}")

    def _raw(self, fetched: Fetched, position: int, damage: Damage) -> pa.RecordBatch:
        """The row of an entry that cannot be decoded: its bytes."""
        header = damage.header
        told: dict[str, Any] = {
            "value": bytes(fetched.data[position : position + _size_bytes(fetched.data, position)]),
            "offset": OFFSET_AND_LENGTH.unpack_from(fetched.data, position)[0],
            "timestamp": header.max_timestamp if header else -1,
            "timestamp_type": (int(header.log_append_time) if header.magic else -1) if header else -1,
            "headers": [],
            "magic": header.magic if header else fetched.data[position + MAGIC_AT],
            "codec": header.codec if header else 0,
            "producer_id": header.producer_id if header else -1,
            "producer_epoch": header.producer_epoch if header else -1,
            "sequence": header.base_sequence if header else -1,
            "leader_epoch": header.partition_leader_epoch if header else -1,
            "transactional": header.is_transactional if header else False,
            "control": header.is_control if header else False,
            "crc_ok": False,
        }
        told["batch_offset"] = told["offset"]
        kinds = schema(self._with_offset)
        return pa.RecordBatch.from_arrays(
            [pa.array([told.get(field.name)], field.type) for field in kinds], schema=kinds
        )

    def close(self) -> None:
        """Tells in one line what was left out."""
        if self.skipped:
            _log.warning("%s: %d damaged entries were left out (onCorrupt=skip)", self._range.key, self.skipped)


def _size_bytes(data: memoryview, position: int) -> int:
    return PREFIX_BYTES + OFFSET_AND_LENGTH.unpack_from(data, position)[1]
