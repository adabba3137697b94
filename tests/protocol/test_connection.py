"""Framing, with every way to cut the bytes."""

from __future__ import annotations

import operator
import struct
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.protocol.connection import (
    JOIN_PIECES,
    READ_BYTES,
    SMALL_PIECE_BYTES,
    BufferPool,
    FrameReceiver,
    add_response,
    joined,
)
from ottla.protocol.errors import ProtocolViolation
from ottla.protocol.headers import read_prefix, read_rest, response_header


def framed(frames: list[bytes]) -> bytes:
    return b"".join(struct.pack(">i", len(frame)) + frame for frame in frames)


def feed(connection: FrameReceiver, data: bytes, cuts: list[int], stop_after: int = 1 << 30) -> list[bytes]:
    """Sends `data` in pieces of the sizes `cuts` (repeating); takes at most `stop_after` frames per read."""
    out, position, turn = [], 0, 0
    while position < len(data):
        buffer = connection.receive_buffer()
        assert len(buffer) > 0
        count = min(len(buffer), cuts[turn % len(cuts)], len(data) - position)
        buffer[:count] = data[position : position + count]
        connection.received(count)
        position += count
        turn += 1
        for _ in range(stop_after):
            frame = connection.next_frame()
            if frame is None:
                break
            out.append(bytes(frame))
        connection.settle()
    while (frame := connection.next_frame()) is not None:
        out.append(bytes(frame))
    connection.settle()
    return out


@given(
    st.lists(st.one_of(st.binary(max_size=40), st.integers(0, 3 * READ_BYTES).map(bytes)), max_size=8),
    st.lists(st.one_of(st.integers(1, 9), st.integers(1, 400_000)), min_size=1, max_size=5),
    st.sampled_from([1, 2, 1 << 30]),
)
def test_frames_are_read_from_chunks_of_any_size(frames, cuts, stop_after):
    connection = FrameReceiver(BufferPool())
    data = framed(frames)
    cuts = [max(cut, len(data) // 2000) for cut in cuts]
    assert feed(connection, data, cuts, stop_after) == frames


@given(
    st.lists(st.one_of(st.binary(max_size=40), st.integers(0, 2 * READ_BYTES).map(bytes)), min_size=1, max_size=8),
    st.lists(st.integers(1, 300_000), min_size=1, max_size=5),
    st.lists(st.integers(0, 3), min_size=1, max_size=8),
    st.booleans(),
)
def test_frames_that_were_put_back_come_again(frames, cuts, backs, settles):
    """Also when their bytes come with the beginning of the next ones; `settles` in between as after a read."""
    connection, data, position, out, turn = FrameReceiver(BufferPool()), framed(frames), 0, list[bytes](), 0
    left = 20
    while len(out) < len(frames):
        if position < len(data):
            buffer = connection.receive_buffer()
            count = min(len(buffer), max(cuts[turn % len(cuts)], len(data) // 100), len(data) - position)
            buffer[:count] = data[position : position + count]
            connection.received(count)
            position += count
        turn += 1
        taken = []
        while (frame := connection.next_frame()) is not None:
            taken.append(bytes(frame))
        back = min(backs[turn % len(backs)], len(taken)) if left > 0 else 0
        left -= 1
        if back:
            connection.put_back(taken[-back:])
            del taken[-back:]
        out += taken
        if settles or not back:
            connection.settle()
    assert out == frames


def test_idle_connections_hold_no_buffer():
    pool = BufferPool()
    connections = [FrameReceiver(pool) for _ in range(50)]
    for connection in connections:
        assert feed(connection, framed([b"abc", b"d"]), [1000]) == [b"abc", b"d"]
    assert len(pool._free) == 1
    assert all(c._own is None and c._pooled is None for c in connections)


@pytest.mark.parametrize("size", [-1, -(1 << 31), 1001, (1 << 31) - 1])
def test_impossible_request_size_is_a_violation(size):
    connection = FrameReceiver(BufferPool(), frame_bytes_max=1000)
    with pytest.raises(ProtocolViolation, match=str(size)):
        feed(connection, struct.pack(">i", size) + b"x", [100])


@pytest.mark.parametrize(
    ("data", "hint"),
    [(b"\x16\x03\x01\x02\x00", "TLS"), (b"GET / HTTP/1.1", "HTTP"), (b"\x7f\xff\xff\xff", None)],
)
def test_violation_mentions_the_other_protocol(data, hint):
    with pytest.raises(ProtocolViolation) as raised:
        feed(FrameReceiver(BufferPool()), data, [1000])
    assert ("this is" in str(raised.value)) == (hint is not None)
    assert hint is None or f"this is {hint}" in str(raised.value)


def test_frame_of_exactly_the_limit_is_accepted():
    assert feed(FrameReceiver(BufferPool(), 1000), framed([bytes(1000)]), [300]) == [bytes(1000)]


def test_declared_size_allocates_no_memory_before_the_bytes_arrive():
    tracemalloc.start()
    try:
        connections = [FrameReceiver(BufferPool()) for _ in range(10)]
        for connection in connections:
            feed(connection, struct.pack(">i", 100 << 20) + b"x", [100])
        assert tracemalloc.get_traced_memory()[1] < 24 * READ_BYTES
    finally:
        tracemalloc.stop()


def test_read_without_bytes_allocates_no_buffer():
    """As of thousands of connections whose peers close at once."""
    pool = BufferPool()
    connections = [FrameReceiver(pool) for _ in range(1000)]
    buffers = {id(connection.receive_buffer().obj) for connection in connections}
    assert len(buffers) == len(pool._free) == 1
    assert feed(connections[0], framed([b"abc"]), [1000]) == [b"abc"]


def test_response_is_framed_with_its_size():
    ready: list[bytes] = []
    assert [add_response(parts, ready) for parts in ([b"answer", b"0"], [], [b"answer1"])] == [11, 0, 11]
    assert b"".join(ready) == framed([b"answer0", b"answer1"])


@given(st.lists(st.integers(0, 9000), max_size=6), st.integers(1, 400))
def test_joined_pieces_have_the_same_bytes_and_a_bounded_count(sizes, times):
    pieces = [bytes([size % 251]) * size for size in sizes] * times
    out = joined(pieces)
    assert b"".join(out) == b"".join(pieces)
    whole = sum(map(len, pieces)) // SMALL_PIECE_BYTES
    assert len(out) <= max(JOIN_PIECES, whole + len(pieces) // JOIN_PIECES + JOIN_PIECES)


def test_repeated_pieces_of_a_response_are_not_copied():
    """Such as the configs of a topic that is named 20,000 times: 30 MB if each is copied."""
    pieces = [bytes(20), bytes(1300)] * 20_000
    out = joined(pieces)
    assert len(out) == len(pieces) and all(map(operator.is_, out, pieces))


HEADER = bytes.fromhex("0012 0003 0000002a 0003 616263")


def test_request_headers_are_read_as_in_the_protocol_guide():
    prefix = read_prefix(HEADER)
    assert (prefix.api_key, prefix.api_version, prefix.correlation_id) == (18, 3, 42)
    assert read_rest(HEADER, prefix, flexible=False) == ("abc", 13)
    assert read_rest(HEADER + b"\0", prefix, flexible=True) == ("abc", 14)
    assert read_rest(HEADER + bytes.fromhex("01 05 02 ffff 99"), prefix, flexible=True) == ("abc", 18)
    null = HEADER[:8] + b"\xff\xff"
    assert read_rest(null, read_prefix(null), flexible=False) == ("", 10)


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        HEADER[:9],
        HEADER[:12],
        HEADER[:8] + b"\xff\xfe",
        HEADER[:8] + b"\x00\x01\xff\x00",
        HEADER,  # flexible, and no tagged fields
        HEADER + bytes.fromhex("01 05 7f 00"),
        HEADER + bytes.fromhex("ffffffffff 00"),
        HEADER + bytes.fromhex("ffffffff07 0000"),
        HEADER + b"\x65" + bytes(2 * 101),
    ],
)
def test_invalid_header_is_a_violation(frame):
    with pytest.raises(ProtocolViolation):
        read_rest(frame, read_prefix(frame), flexible=True)


def test_response_headers_have_tags_in_flexible_versions_except_api_versions():
    assert response_header(7, 3, flexible=False) == bytes.fromhex("00000007")
    assert response_header(7, 3, flexible=True) == bytes.fromhex("0000000700")
    assert response_header(7, 18, flexible=True) == bytes.fromhex("00000007")
