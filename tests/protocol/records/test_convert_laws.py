"""Conversion there and back loses only what the formats cannot hold; damage; decompression bombs; step sizes."""

from __future__ import annotations

import random
import struct
import tracemalloc
import zlib
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.protocol.records import batch, convert, formats, legacy, rows, steps
from ottla.protocol.records.batch import Header, Record
from ottla.protocol.records.errors import CorruptRecords, InvalidRecords, UnsupportedCodec
from ottla.protocol.records.steps import STEP_BYTES, STEP_RECORDS, Steps, run
from ottla_testing.protocol.batches import batch_of
from ottla_testing.protocol.message_sets import NOW, made, message, plain, wrapper

MIB = 1024 * 1024

blob = st.none() | st.binary(max_size=100) | st.sampled_from([63, 64, 8191, 8192]).map(bytes)
header = st.builds(Header, st.text(max_size=5), st.none() | st.binary(max_size=9))
times = st.integers(-1, 2**40) | st.just(-1) | st.integers(2**62, 2**63 - 1)
record = st.builds(Record, st.integers(1, 5), times, blob, blob, st.lists(header, max_size=3).map(tuple))
codecs = st.sampled_from(range(4))


def numbered(found: list[Record], base_offset: int) -> list[Record]:
    """Returns the records at rising offsets with gaps: each record's offset is the step to it."""
    out: list[Record] = []
    offset = base_offset
    for item in found:
        offset += item.offset
        out.append(item._replace(offset=offset))
    return out


record_lists = st.builds(numbered, st.lists(record, min_size=1, max_size=15), st.integers(0, 2**50))


def plainly(found: list[Record], magic: int) -> list[Record]:
    """Returns the fields of the records that v0 or v1 can hold."""
    return [item._replace(headers=(), timestamp=item.timestamp if magic else -1) for item in found]


def read(data: bytes | bytearray) -> list[Record]:
    found: list[Record] = []
    for position, head in formats.headers(data):
        assert formats.crc_matches(data, position, head)
        found += formats.records(data, position)
    return found


def up_all(data: bytes | bytearray) -> bytearray:
    """Converts every entry to a v2 batch."""
    out = bytearray()
    for position, head in formats.headers(data):
        out += run(convert.up_entry(data, position, head))
    return out


# --- there and back


@given(found=record_lists, magic=st.sampled_from([0, 1]), codec=codecs)
def test_up_then_down_conversion_keeps_everything(found: list[Record], magic: int, codec: int) -> None:
    """Uncompressed sets keep every byte; compressed ones every byte of the set inside and every field of the
    wrapper."""
    found = [item._replace(timestamp=min(item.timestamp, 2**62)) for item in found]
    old = bytes(legacy.build(found, magic=magic, codec=codec))
    new = up_all(old)
    assert {head.magic for _, head in formats.headers(new)} == {2}
    assert read(new) == plainly(found, magic)
    again = run(convert.down(new, magic, 0))
    if not codec:
        assert again == old
    else:
        ((_, before),), ((_, after),) = formats.headers(old), formats.headers(again)
        assert legacy.inner(again, 0, after) == legacy.inner(old, 0, before)
        assert after._replace(crc=0, batch_length=0) == before._replace(crc=0, batch_length=0)


@given(found=record_lists, magic=st.sampled_from([0, 1]), codec=codecs, producer=st.booleans(), marked=st.booleans())
def test_down_then_up_conversion_loses_only_what_the_old_format_lacks(
    found: list[Record], magic: int, codec: int, producer: bool, marked: bool
) -> None:
    fields: dict[str, Any] = {"producer_id": 7, "producer_epoch": 1, "base_sequence": 3, "transactional": True}
    time = {"log_append_time": True, "max_timestamp": NOW} if marked else {}
    found = [item._replace(timestamp=min(item.timestamp, 2**62)) for item in found]
    base_offset = found[0].offset - 1
    new = batch_of(found, base_offset=base_offset, codec=codec, leader_epoch=5, **time, **fields if producer else {})
    old = run(convert.down(new, magic, 0))
    assert {head.magic for _, head in formats.headers(old)} == {magic}
    expected = plainly([item._replace(timestamp=NOW) for item in found] if marked else found, magic)
    assert read(old) == expected
    again = up_all(old)
    assert read(again) == expected
    for _, head in formats.headers(again):
        assert head.log_append_time == (marked and magic == 1)
        assert head.codec == codec
        assert head[9:12] == (-1, -1, -1) and head.partition_leader_epoch == -1
    if codec:
        ((_, head),) = formats.headers(again)
        assert (head.base_offset, head.last_offset) == (found[0].offset, found[-1].offset)
        assert head.max_timestamp == (NOW if marked else max(-1, *(r.timestamp for r in found))) if magic else -1


@given(found=record_lists, codec=codecs)
def test_conversion_from_v1_to_v0_loses_only_times(found: list[Record], codec: int) -> None:
    old = legacy.build(found, magic=1, codec=codec)
    result = run(convert.down(old, 0, 0))
    assert read(result) == plainly(found, 0)
    assert result == bytes(legacy.build(found, magic=0, codec=codec))


@given(found=record_lists, magic=st.sampled_from([0, 1]), codec=codecs, target=st.none() | st.sampled_from(range(5)))
def test_up_conversion_of_a_set_renumbers_its_records(
    found: list[Record], magic: int, codec: int, target: int | None
) -> None:
    found = [item._replace(timestamp=min(item.timestamp, 2**62)) for item in found]
    built = run(convert.up_set(legacy.build(found, magic=magic, codec=codec), target))
    assert read(built) == [item._replace(offset=index) for index, item in enumerate(plainly(found, magic))]


def test_up_conversion_of_too_distant_times_is_refused() -> None:
    far = [Record(0, -(2**63), None, None), Record(1, 2**63 - 1, None, None)]
    for data in (legacy.build(far, magic=1), legacy.build(far, magic=1, codec=1)):
        with pytest.raises(InvalidRecords, match="does not fit"):
            run(convert.up_set(data))
    alone = legacy.build(far, magic=1)
    assert read(up_all(alone)) == far  # each in a batch of its own


# --- damage


def mixed() -> bytes:
    """Returns a log with every format and codec in entries of a few bytes."""
    found = [Record(0, NOW, b"key", b"value"), Record(1, NOW + 3, None, b"x" * 30)]
    return b"".join(made(magic, codec, found) for codec in range(4) for magic in (2, 1, 0))


def resealed(data: bytearray) -> bytearray:
    """Returns the log with every CRC corrected, so that damage is met after the CRC check."""
    with suppress(CorruptRecords):
        for position, head in formats.headers(data):
            end = position + head.size_bytes
            if head.magic == 2:
                batch.reseal(data, position, attributes=head.attributes, max_timestamp=head.max_timestamp)
            else:
                crc = zlib.crc32(data[position + 16 : end])
                struct.pack_into(">I", data, position + 12, crc)
    return data


@given(data=st.data(), sealed=st.booleans(), cut=st.booleans())
def test_conversion_of_damage_raises_declared_errors_only(data: st.DataObject, sealed: bool, cut: bool) -> None:
    log = bytearray(mixed())
    del log[: data.draw(st.sampled_from([position for position, _ in formats.headers(log)]))]
    for _ in range(data.draw(st.integers(1, 4))):
        log[data.draw(st.integers(0, min(len(log) - 1, 300)))] = data.draw(st.integers(0, 255))
    if sealed:
        resealed(log)
    if cut:
        del log[data.draw(st.integers(0, len(log))) :]
    for target in (0, 1):
        with suppress(CorruptRecords, InvalidRecords, UnsupportedCodec):
            run(convert.down(log, target, data.draw(st.integers(0, 3)), max_bytes=MIB))
    with suppress(CorruptRecords, InvalidRecords):
        run(convert.up_set(log, max_bytes=MIB))
    with suppress(CorruptRecords):
        for position, head in formats.headers(log):
            if head.magic < 2:
                with suppress(CorruptRecords, InvalidRecords):
                    run(convert.up_entry(log, position, head, max_bytes=MIB))


@pytest.mark.parametrize("codec", range(4))
@pytest.mark.parametrize("magic", [0, 1, 2])
def test_damaged_byte_is_not_converted(magic: int, codec: int) -> None:
    """Applies to bytes under the CRC; a changed offset or leader epoch is not detected."""
    good = made(magic, codec, [Record(0, NOW, b"key", b"value")])
    for at in range(17 if magic < 2 else 21, len(good)):
        bad = bytearray(good)
        bad[at] ^= 0x10
        if magic:
            with pytest.raises((CorruptRecords, InvalidRecords, UnsupportedCodec)):
                run(convert.down(bad, 0, 0))
        if magic < 2:
            with pytest.raises(CorruptRecords):
                run(convert.up_set(bad))
            with pytest.raises(CorruptRecords):
                run(convert.up_entry(bad, 0, formats.read_header(bad)))


# --- bombs


def tiny_set(magic: int, size: int) -> bytes:
    one = plain([Record(0, NOW, None, None)], magic)
    return one * (size // len(one))


def peak_of(action: Callable[[], Any], error: type[Exception]) -> int:
    tracemalloc.start()
    try:
        with pytest.raises(error):
            action()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("codec", [1, 2, 3])
@pytest.mark.parametrize("magic", [0, 1])
def test_wrapper_bomb_is_refused_in_bounded_memory(magic: int, codec: int) -> None:
    bomb = wrapper(tiny_set(magic, 32 * MIB), codec, magic=magic, offset=2**40)
    nested = wrapper(bomb, codec, magic=magic, offset=2**40)
    entry = formats.read_header(bomb)
    for data in (bomb, nested, bomb + bomb):
        assert peak_of(lambda data=data: run(convert.up_set(data, max_bytes=2 * MIB)), InvalidRecords) < 9 * MIB
    assert peak_of(lambda: run(convert.up_entry(bomb, 0, entry, max_bytes=2 * MIB)), InvalidRecords) < 9 * MIB
    if magic:
        assert peak_of(lambda: run(convert.down(bomb, 0, 0, max_bytes=2 * MIB)), InvalidRecords) < 9 * MIB


def test_wrappers_of_a_set_share_one_memory_bound() -> None:
    one = wrapper(plain([Record(0, NOW, None, bytes(MIB))]), 1, offset=0)
    assert run(convert.up_set(one * 3, 0, max_bytes=4 * MIB))
    assert peak_of(lambda: run(convert.up_set(one * 64, 0, max_bytes=4 * MIB)), InvalidRecords) < 24 * MIB


@pytest.mark.parametrize("codec", [1, 2, 3])
def test_down_conversion_of_a_growing_batch_is_bounded(codec: int) -> None:
    """A v2 record takes at least 7 bytes, a v1 message 34."""
    found = [Record(index, NOW, None, None) for index in range(10_000)]
    data = batch.build(found, codec=codec)
    assert peak_of(lambda: run(convert.down(data, 1, 0, max_bytes=MIB // 4)), InvalidRecords) < 2 * MIB
    assert len(read(run(convert.down(data, 1, 0, max_bytes=MIB // 2)))) == 10_000
    big = batch.build([Record(0, NOW, None, bytes(8 * MIB))], codec=codec)
    assert peak_of(lambda: run(convert.down(big, 1, 0, max_bytes=2 * MIB)), InvalidRecords) < 9 * MIB


@pytest.mark.parametrize("codec", range(4))
def test_wrong_counts_and_lengths_allocate_no_memory(codec: int) -> None:
    good = batch.build([Record(0, NOW, b"k", b"v")], codec=codec)
    for count in (-1, 2, 1000, 2**31 - 1):
        lying = bytearray(good)
        struct.pack_into(">i", lying, 57, count)
        resealed(lying)
        assert peak_of(lambda lying=lying: run(convert.down(lying, 0, 0)), InvalidRecords) < MIB
    for length in (b"\xfe\xff\xff\xff\x0f", b"\x01", b"\x80\x80\x80\x80\x80\x01", b"\x10", b"\x02"):
        for payload in (length + bytes(20), b"\x1e\x00\x00\x00" + length + bytes(14)):
            lying = batch.with_payload(batch.read_header(good), payload, codec)
            assert peak_of(lambda lying=lying: run(convert.down(lying, 0, 0)), InvalidRecords) < MIB


# --- steps


class StepMeter:
    """Counts what the reading and writing loops process between two yields; calls for a worker thread are not
    counted."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.steps: list[tuple[int, int]] = []
        self.calls = 0
        self.bytes = self.records = 0
        self.handed_out = False
        for name in ("read_messages", "read_records"):
            monkeypatch.setattr(rows, name, self.metered(getattr(rows, name)))

    def metered(self, read_rows: Callable[..., tuple[list[Any], int]]) -> Callable[..., tuple[list[Any], int]]:
        def reading(*arguments: Any) -> tuple[list[Any], int]:
            found, used = read_rows(*arguments)
            if not self.handed_out:
                self.bytes += used
                self.records += len(found)
            return found, used

        return reading

    def end_step(self) -> None:
        self.steps.append((self.bytes, self.records))
        self.bytes = self.records = 0

    def drive(self, work: Steps[Any]) -> Any:
        sent: Any = None
        while True:
            try:
                call = work.send(sent)
            except StopIteration as done:
                self.end_step()
                return done.value
            if call is None:
                self.end_step()
                sent = None
                continue
            self.calls += 1
            self.handed_out = True
            sent = call()
            self.handed_out = False


def conversions(found: list[Record], codec: int) -> list[tuple[str, Callable[[], Steps[Any]], int]]:
    """Yields each conversion with the number of bytes that it processes in steps."""
    v0, v1 = (legacy.build(found, magic=magic, codec=codec) for magic in (0, 1))
    v2 = batch.build(found, codec=codec)
    sizes = [len(legacy.build(found, magic=magic)) for magic in (0, 1)] + [len(batch.build(found)) - 61]
    ways: list[tuple[str, Callable[[], Steps[Any]], int]] = [
        ("v0 up", lambda: convert.up_set(v0), sizes[0]),
        ("v1 up", lambda: convert.up_set(v1), sizes[1]),
        ("v2 to v1", lambda: convert.down(v2, 1, 0), sizes[2]),
        ("v2 to v0", lambda: convert.down(v2, 0, 0), sizes[2]),
        ("v1 to v0", lambda: convert.down(v1, 0, 0), sizes[1] * (2 if codec else 1)),
    ]
    if codec:
        entry = formats.read_header(v1)
        ways.append(("v1 entry", lambda: convert.up_entry(v1, 0, entry), sizes[1]))
    return ways


MOST_BYTES = 60_000_000  # below the decompression bound of a batch


@pytest.mark.soak
@pytest.mark.parametrize("codec", range(4))
@pytest.mark.parametrize(("count", "value_bytes"), [(20_000, 0), (30_000, 90), (400, 9_000), (40, 100_000)])
def test_steps_stay_below_their_bound(
    codec: int, count: int, value_bytes: int, monkeypatch: pytest.MonkeyPatch, scaled: Callable[[int], int]
) -> None:
    value = random.Random(1).randbytes(value_bytes)
    most = MOST_BYTES // (value_bytes + 40)  # in one batch, at any scale
    found = [Record(index, NOW + index, None, value) for index in range(min(scaled(count), most))]
    for name, work, size in conversions(found, codec):
        with monkeypatch.context() as patches:
            watch = StepMeter(patches)
            watch.drive(work())
        assert sum(step[0] for step in watch.steps) == size, name
        assert max(step[0] for step in watch.steps) <= STEP_BYTES, name
        assert max(step[1] for step in watch.steps) <= STEP_RECORDS, name
        # Steps are not too small: all but a few are at least half full.
        filled = [step for step in watch.steps if step[0] > STEP_BYTES // 2 or step[1] > STEP_RECORDS // 2]
        assert len(filled) >= len(watch.steps) - 3, name


@pytest.mark.parametrize("codec", range(4))
def test_large_records_are_compressed_in_a_thread(codec: int, monkeypatch: pytest.MonkeyPatch) -> None:
    value = random.Random(2).randbytes(STEP_BYTES + 1)
    small = Record(0, NOW, b"k", b"v")
    found = [small, Record(1, NOW, None, value), small._replace(offset=2), Record(3, NOW, value, None)]
    for name, work, size in conversions(found, codec):
        with monkeypatch.context() as patches:
            watch = StepMeter(patches)
            result = watch.drive(work())
        assert sum(step[0] for step in watch.steps) < 1000 < size, name
        assert watch.calls >= 4, name
        assert [len(record.value or b"") for record in read(result)] == [1, STEP_BYTES + 1, 1, 0], name


def test_long_work_without_conversion_yields() -> None:
    """Copies of old messages, control batches, and tiny wrappers and batches one by one."""
    marker = bytes(
        batch.build(
            [Record(0, NOW, bytes(4), bytes(6))], batch.BatchFields(control=True, producer_id=1, producer_epoch=0)
        )
    )
    old = message(magic=0)
    tiny = wrapper(message(), 1)
    one = bytes(batch.build([Record(0, NOW, None, None)]))
    for data, count, work in (
        (old, 10_000, lambda data: convert.down(data, 0, 0)),
        (old + message(), 5_000, lambda data: convert.down(data, 1, 0)),
        (marker, 10_000, lambda data: convert.down(data, 1, 0)),
        (tiny, 3_000, lambda data: convert.up_set(data)),
        (tiny + message(), 3_000, lambda data: convert.up_set(data)),
        (one, 10_000, lambda data: convert.down(data, 0, 0)),
        (tiny, 3_000, lambda data: convert.down(data, 0, 0)),
    ):
        data = data * count
        yields = sum(call is None for call in work(data))
        assert yields >= max(count // STEP_RECORDS, len(data) // STEP_BYTES) - 1
        assert yields <= 2 + 4 * max(count // STEP_RECORDS, len(data) // STEP_BYTES)


@pytest.mark.parametrize("codec", range(4))
def test_small_work_never_yields(codec: int) -> None:
    found = [Record(index, NOW, b"key", b"value") for index in range(500)]
    for name, work, _ in conversions(found, codec):
        assert list(work()) == [], name


def test_error_of_a_call_is_raised_in_the_conversion() -> None:
    def work() -> Steps[str]:
        yield
        try:
            yield lambda: 1 // 0
        except ZeroDivisionError:
            return (yield lambda: "done")
        return "not raised"

    assert run(work()) == "done"
    big = made(2, 1, [Record(0, NOW, None, random.Random(3).randbytes(2 * STEP_BYTES))])
    damaged = bytearray(big)
    damaged[-1] ^= 1
    with pytest.raises(CorruptRecords):
        run(convert.down(damaged, 0, 0))


def test_pace_is_used_up_and_renewed() -> None:
    pace = steps.Pace()
    assert pace.is_fresh and not pace.over(10 * STEP_BYTES)
    pace.spend(1)
    assert pace.over(STEP_BYTES) and not pace.over(STEP_BYTES - 1) and pace.over(0, STEP_RECORDS + 1)
    pace.spend(0, STEP_RECORDS)
    assert pace.over(0)
    pace.renew()
    assert pace.is_fresh
