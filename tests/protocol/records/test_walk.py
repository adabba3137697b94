"""The fast walk over records agrees with the walk that reads one record at a time."""

from __future__ import annotations

import os
import random

from hypothesis import given
from hypothesis import strategies as st

from ottla.protocol.records import batch, walk
from ottla.protocol.records.batch import Header, Record
from ottla.protocol.records.errors import InvalidRecords
from ottla_testing.each import each

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
SCALE = float(os.environ.get("OTTLA_TEST_SCALE", "1"))

blob = st.none() | st.binary(max_size=6) | st.sampled_from([63, 64, 65, 8191, 8192, 9000]).map(bytes)
header = st.builds(Header, st.text(max_size=3) | st.just("h" * 70), blob)
deltas = st.integers(-70, 70) | st.integers(-(2**40), 2**40)
record = st.builds(Record, st.just(0), deltas, blob, blob, st.lists(header, max_size=20).map(tuple))
offsets = st.just(0) | st.sampled_from([1, -1, 64, 8192])


@st.composite
def payloads(draw: st.DrawFn) -> tuple[bytes, int]:
    """Returns a payload and its record count; its first record may have any number, as in the middle of a large
    batch."""
    found = draw(st.lists(record, min_size=1, max_size=8))
    first = draw(st.sampled_from([0, 62, 8190]))
    numbered = [item._replace(offset=first + index + draw(offsets)) for index, item in enumerate(found)]
    built = batch.build([Record(0, 0, None, None), *numbered])
    data = bytes(built[batch.HEADER_BYTES + 7 :])  # without the first one, which only sets the base timestamp
    return data, first


def one_by_one(data: bytes, first: int, least: int, most: int, keyed: bool) -> tuple[int, int, list[int], bool]:
    """Returns the expected result of `whole_from`: (position, count, deltas, in order)."""
    position, seen, in_order = 0, [], True
    while position < len(data):
        try:
            found = walk.record(data, position, len(data))
            after = walk.skip_headers(data, found.headers_position, found.end, found.header_count)
        except InvalidRecords:
            break
        if after != found.end or not least <= found.timestamp_delta <= most or (keyed and found.key_bytes < 0):
            break
        if found.header_count > 15:
            break
        in_order = in_order and found.offset_delta == first + len(seen)
        seen.append(found.timestamp_delta)
        position = found.end
    return position, len(seen), seen, in_order


@given(made=payloads(), data=st.data(), keyed=st.booleans(), narrow=st.booleans())
def test_quick_walk_stops_at_an_invalid_record(
    made: tuple[bytes, int], data: st.DataObject, keyed: bool, narrow: bool
) -> None:
    payload, first = bytearray(made[0]), made[1]
    for _ in range(data.draw(st.integers(0, 2))):
        payload[data.draw(st.integers(0, len(payload) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    least, most = (-64, 64) if narrow else (INT64_MIN, INT64_MAX)
    position, count, seen, in_order = one_by_one(bytes(payload), first, least, most, keyed)
    try:
        found = walk.whole_from(payload, 0, 1 << 20, first, least, most, keyed)
    except InvalidRecords:  # an invalid varint: `record` refuses that record
        return
    assert found[:2] == (position, count)
    if seen:
        assert found[3] == max(seen)
        assert found[2] == min(seen) if min(seen) < 0 else 0 <= found[2] <= min(seen)
    # The number of the record at which it stops may have been read.
    assert in_order or not found[4]


@given(made=payloads())
def test_quick_walk_of_a_valid_payload_reaches_its_end(made: tuple[bytes, int]) -> None:
    payload, first = made
    position, count, seen, in_order = one_by_one(payload, first, INT64_MIN, INT64_MAX, False)
    found = walk.whole_from(memoryview(payload), 0, count, first, INT64_MIN, INT64_MAX, False)
    assert found[:2] == (position, count) and found[4] == in_order
    if seen:
        assert found[3] == max(seen)
        assert found[2] == min(seen) if min(seen) < 0 else 0 <= found[2] <= min(seen)
    # The walk in parts has the same result.
    place, done = 0, 0
    while done < count:
        place, passed, *_ = walk.whole_from(payload, place, 2, first + done, INT64_MIN, INT64_MAX, False)
        done += passed
        assert passed
    assert (place, done) == (position, count)


@given(value=st.integers(INT64_MIN, INT64_MAX))
def test_zigzag_varints_are_read_back(value: int) -> None:
    written = walk.zigzag(value)
    assert walk.varlong(written, 0) == (value, len(written))
    if -(2**31) <= value < 2**31:
        assert walk.varint(written, 0) == (value, len(written))


def shaped(source: random.Random, index: int, shape: dict[str, int]) -> Record:
    """Returns a record like others of its batch, with a similar size."""
    return Record(
        index,
        shape["time"] * index - source.choice((0, 0, 3)),
        None if not shape["key"] else bytes(source.randrange(shape["key"])),
        bytes(source.randrange(shape["value"] // 2, shape["value"])),
        tuple(Header("h" * source.choice((1, 9)), bytes(source.randrange(70))) for _ in range(shape["headers"])),
    )


@each("seed", range(max(2, int(20 * SCALE))))
def test_walk_over_similar_records_stops_at_any_damage(seed: int) -> None:
    """Batches as producers make them, with one byte changed."""
    source = random.Random(seed)
    choices = {"time": (0, 1, 40, 900), "key": (0, 9, 60, 300), "value": (8, 60, 130, 2000), "headers": (0, 0, 1, 3)}
    shape = {name: source.choice(found) for name, found in choices.items()}
    made = [shaped(source, index, shape) for index in range(source.choice((5, 150)))]
    payload = bytearray(batch.build(made)[batch.HEADER_BYTES :])
    assert walk.whole_from(payload, 0, len(made), 0, INT64_MIN, INT64_MAX, False)[:2] == (len(payload), len(made))
    for _ in range(60):
        place, bit = source.randrange(len(payload)), 1 << source.randrange(8)
        keyed, (least, most) = source.random() < 0.3, source.choice(((INT64_MIN, INT64_MAX), (-64, 5000)))
        payload[place] ^= bit
        position, count, seen, in_order = one_by_one(bytes(payload), 0, least, most, keyed)
        found = walk.whole_from(memoryview(payload), 0, 1 << 20, 0, least, most, keyed)
        assert found[:2] == (position, count), (seed, place, bit)
        assert in_order or not found[4]
        if seen:
            assert found[3] == max(seen)
            assert found[2] == min(seen) if min(seen) < 0 else 0 <= found[2] <= min(seen)
        payload[place] ^= bit
