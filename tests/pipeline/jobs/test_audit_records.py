"""Records checked by arrays: for every entry the same result as when it is opened alone. And the size of a segment's
result."""

from __future__ import annotations

import random
import struct
import zlib
from pathlib import Path

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from ottla.pipeline.jobs.audit import records as by_arrays
from ottla.pipeline.jobs.audit.tasks import SegmentItem, look_over
from ottla.protocol.records import batch, formats
from ottla.storage import inspect
from ottla.storage.check.facts import Run, SegmentTask
from ottla.storage.check.segment import one_by_one
from ottla_testing.pipeline.columnar_samples import FORMATS, entries, some_records

Results = list[tuple[inspect.BatchFacts | inspect.Damage, str | None]]


def both(data: bytes, gaps: bool) -> tuple[Results, Results]:
    """Returns the results of both paths for these entries. An entry with a wrong CRC need not be opened."""
    source = inspect.BytesSource(data)
    segment = inspect.SegmentFile(0, "/data/orders-0/00000000000000000000.log", len(data))
    task = SegmentTask("orders-0", segment, None, True, gaps, True, ())
    alone = list(one_by_one(source, inspect.entries(source, open_wrappers=True), task))
    together = list(by_arrays.together(source, inspect.entries(source), task))
    return [unopened(*one) for one in alone], [unopened(*one) for one in together]


def unopened(
    found: inspect.BatchFacts | inspect.Damage, what: str | None
) -> tuple[inspect.BatchFacts | inspect.Damage, str | None]:
    if isinstance(found, inspect.BatchFacts) and not found.crc_ok:
        return found._replace(first_offset=-1, record_count=-1, problem=None), what
    return found, what


def resealed(data: bytearray, position: int, header: batch.BatchHeader) -> None:
    """Updates the CRC after a change."""
    end = position + header.size_bytes
    if header.magic == 2:
        struct.pack_into(">I", data, position + 17, crc32c(bytes(data[position + 21 : end])))
    else:
        struct.pack_into(">I", data, position + 12, zlib.crc32(data[position + 16 : end]))


def a_log(seed: int, count: int = 12) -> bytes:
    chance = random.Random(seed)
    log, offset = b"", 0
    for number in range(count):
        magic, codec = chance.choice(FORMATS)
        found = some_records(chance.randint(1, 5), seed + number, first=offset, headers=magic == 2)
        if magic < 2 or chance.random() < 0.6:  # as a producer wrote them, without missing offsets
            found = [one._replace(offset=offset + n) for n, one in enumerate(found)]
        offset = found[-1].offset + 1
        log += entries(found, magic, codec)
    return log


@pytest.mark.parametrize("gaps", [True, False])
def test_fast_path_sound_entries_match(gaps: bool) -> None:
    for seed in range(6):
        alone, together = both(a_log(seed), gaps)
        assert together == alone
        assert any(isinstance(one[0], inspect.BatchFacts) and one[0].is_wrapper for one in alone)
        assert gaps is False or all(one[1] is None for one in alone)


@given(seed=st.integers(0, 50), chance=st.randoms(use_true_random=False), gaps=st.booleans(), reseal=st.booleans())
def test_fast_path_damaged_entries_match(seed: int, chance: random.Random, gaps: bool, reseal: bool) -> None:
    data = bytearray(a_log(seed))
    for position, header in chance.sample(list(formats.headers(data)), 3):
        first = 21 if header.magic == 2 else 17
        at = position + chance.randrange(first, header.size_bytes)
        data[at] ^= 1 << chance.randrange(8)
        if reseal:
            resealed(data, position, header)
    alone, together = both(bytes(data), gaps)
    assert together == alone


@pytest.mark.parametrize(("at", "form"), [(0, ">q"), (23, ">i"), (27, ">q"), (35, ">q"), (57, ">i")])
@pytest.mark.parametrize("gaps", [True, False])
def test_fast_path_wrong_headers_match(at: int, form: str, gaps: bool, stride: int) -> None:
    """Changes offset, last offset, timestamps and record count, in each format that has them."""
    problems = 0
    for seed in range(8):
        log = a_log(seed)
        changed = [one for one in formats.headers(log) if one[1].magic == 2 or not at]
        for position, header in changed[random.randrange(stride) :: stride]:
            for by in (-1, 1):
                data = bytearray(log)
                struct.pack_into(form, data, position + at, struct.unpack_from(form, data, position + at)[0] + by)
                resealed(data, position, header)
                alone, together = both(bytes(data), gaps)
                assert together == alone, (seed, position, by)
                problems += sum(what is not None for _, what in alone)
    assert problems or (gaps and at in (27, 35))


def test_fast_path_offsets_not_ascending_found() -> None:
    made = [batch.Record(offset, 1000, None, b"v") for offset in (0, 2, 1, 3)]
    data = batch.build(made) + batch.build([batch.Record(4, 1000, None, b"v")], base_offset=4)
    for gaps in (True, False):
        alone, together = both(bytes(data), gaps)
        assert together == alone and [what for _, what in together] == ["record offset 1 after 2", None]


@pytest.mark.parametrize("bound", [1, 3000, 4 << 20])
def test_fast_path_any_chunk_size_matches(bound: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(by_arrays, "CHUNK_BYTES", bound)
    alone, together = both(a_log(1, 60), gaps=True)
    assert together == alone


def test_fast_path_batch_above_max_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(by_arrays.batches, "MAX_ROWS", 7)
    records = [batch.Record(n, 1000 + n, None, b"") for n in range(40)]
    parts = [records[:5], records[5:12], records[12:30], records[30:34], records[34:]]
    data = b"".join(bytes(batch.build(part, base_offset=part[0].offset)) for part in parts)
    alone, together = both(data, gaps=False)
    assert together == alone and [what for _, what in together] == [None] * 5


def test_fast_path_one_wrong_header_among_small_batches(tmp_path: Path) -> None:
    """Chunks in which batches are walked together; a wrong header is reported for its own batch."""
    data = bytearray()
    for number in range(200):
        made = batch.build(
            [batch.Record(2 * number + n, 1000 + n, None, b"v") for n in range(2)], base_offset=2 * number
        )
        data += made
    size = len(data) // 200
    position = 77 * size
    struct.pack_into(">q", data, position + 35, 5000)
    resealed(data, position, batch.read_header(data, position))
    alone, together = both(bytes(data), gaps=False)
    assert together == alone
    wrong = [(found.position, what) for found, what in together if what is not None]
    assert wrong == [(position, "its latest record is of 1001, by its header of 5000")]


def test_packed_result_does_not_grow_with_batches(tmp_path: Path) -> None:
    """Two producers alternate, with consecutive batches: the number of runs does not depend on the number of
    batches."""
    sizes: list[tuple[int, int]] = []
    for count in (20, 400):
        data = bytearray()
        for number in range(count):
            records = [batch.Record(number, 1000, None, b"v")]
            data += batch.build(
                records,
                batch.BatchFields(producer_id=number % 2, producer_epoch=0, base_sequence=number // 2),
                base_offset=number,
            )
        path = tmp_path / f"{count}" / "orders-0" / f"{0:020d}.log"
        path.parent.mkdir(parents=True)
        path.write_bytes(data)
        segment = inspect.SegmentFile(0, str(path), len(data))
        task = SegmentTask("orders-0", segment, None, False, False, True, ())
        packed = look_over(SegmentItem(0, 0, 0, task))
        runs = [event for event in packed.events() if isinstance(event, Run)]
        assert sum(run.batches for run in runs) == count
        sizes.append((len(runs), len(packed.data)))
    assert sizes[0][0] == sizes[1][0] == 4 and max(size for _, size in sizes) < 600
