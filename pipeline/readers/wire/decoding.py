"""Converts fetched entries to rows: the range, the isolation level, and the treatment of damage.

Owns the trim to the range and `onCorrupt` over the wire. No loop per record, and a loop per entry only for aborted
transactions and damaged entries.
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
from ..columnar.columns import PER_ENTRY
from .entries import aborted_positions
from .fetch import Fetched

CHUNK_BYTES = 8 << 20
"""The bytes decoded together: as much as one Fetch returns. Batches are walked in step, so more of them cost less each.
"""

_log = logging.getLogger(__name__)


class Decoder:
    """The rows of one range. `skipped` counts damaged entries that were left out."""

    def __init__(self, wanted: Wanted, of: OffsetRange) -> None:
        self.skipped = 0
        self._wanted = wanted
        self._range = of
        self._with_offset = tuple(dict.fromkeys([*rows.decoder_columns(wanted.columns), "offset"]))

    def rows(self, fetched: Fetched) -> Iterator[pa.RecordBatch]:
        """Yields the rows of one Fetch response, with the wanted columns. Raises ReadError for damage with
        onCorrupt=fail."""
        topic, partition = self._range.key
        for found in self._decoded(fetched):
            trimmed = self._trimmed(found, fetched.offset)
            if trimmed.num_rows:
                yield rows.assemble(trimmed, topic, partition, self._wanted.columns)

    def _trimmed(self, found: pa.RecordBatch, start: int) -> pa.RecordBatch:
        """Drops records outside the range, which only the first and last entries have. Records below the fetch offset
        were returned before, or are deleted."""
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
        found_rows = list(found)
        found_rows += [self._raw(fetched, position, damage) for position, damage in damages]
        if damages and len(found_rows) > 1:
            # A chunk reports its damage only after its sound entries.
            found_rows = pa.Table.from_batches(found_rows).sort_by("offset").to_batches()
        yield from found_rows

    def _options(self, fetched: Fetched, on_damage: Callable[[Damage], None] | None = None, base: int = 0) -> Options:
        """`base` is the position of the decoded bytes in the fetched ones."""
        wanted = self._wanted
        return Options(
            columns=self._with_offset,
            control=wanted.control,
            keep=self._keep(fetched, base),
            check_crc=wanted.on_corrupt != "emit",
            crcs=wanted.computes_crcs,
            on_damage=on_damage,
            chunk_bytes=CHUNK_BYTES,
            max_batch_bytes=wanted.max_batch_bytes,
        )

    def _keep(self, fetched: Fetched, base: int) -> Callable[[int, BatchHeader], bool] | None:
        """Returns a filter of entries, or None for all, which is faster for plain v0/v1 messages."""
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
            # The header of a v0/v1 entry has no largest timestamp, or none at all.
            return from_ms is None or header.magic < formats.NEWEST_MAGIC or header.max_timestamp >= from_ms

        return keep

    # Damage

    def _around_damage(self, fetched: Fetched, damages: list[tuple[int, Damage]]) -> Iterator[pa.RecordBatch]:
        """Yields the rows that can be decoded; appends to `damages` with positions in the fetched bytes."""
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
            # The size is valid: it leads to the next entry, as it led the next Fetch.
            base = headless[0] + _size_bytes(fetched.data, headless[0])

    def _located(self, fetched: Fetched, error: Exception) -> ReadError:
        """Returns the error with the place of the damage, which is searched only now."""
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
            where, why = f"offset {base}, byte {position} of the response at {fetched.offset}", damage.error
        return ReadError(f"{self._range.key} is damaged at {where} of {fetched.broker}: {why}")

    def _raw(self, fetched: Fetched, position: int, damage: Damage) -> pa.RecordBatch:
        """Returns a row with the bytes of an entry that cannot be decoded."""
        header, (offset, _) = damage.header, OFFSET_AND_LENGTH.unpack_from(fetched.data, position)
        raw = bytes(fetched.data[position : position + _size_bytes(fetched.data, position)])
        found: dict[str, Any] = {"value": raw, "offset": offset, "headers": [], "crc_ok": False}
        if header is None:
            unknown = ("timestamp", "timestamp_type", "producer_id", "producer_epoch", "sequence", "leader_epoch")
            found |= dict.fromkeys(unknown, -1)
            found |= {"magic": fetched.data[position + MAGIC_AT], "codec": 0, "transactional": False, "control": False}
        else:
            found |= {name: of(header) for name, of in PER_ENTRY.items()}
            found |= {"timestamp": header.max_timestamp, "sequence": header.base_sequence}
        found["batch_offset"] = offset
        return rows.row_of(found, schema(self._with_offset))

    def close(self) -> None:
        """Logs the number of skipped entries."""
        if self.skipped:
            _log.warning("damaged entries skipped partition=%s count=%d", self._range.key, self.skipped)


def _size_bytes(data: memoryview, position: int) -> int:
    return PREFIX_BYTES + OFFSET_AND_LENGTH.unpack_from(data, position)[1]
