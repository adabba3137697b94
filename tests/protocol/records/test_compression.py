"""The codecs: Java's framing, data of other writers, bounds against decompression bombs, damage."""

from __future__ import annotations

import gzip
import random
import struct
import tracemalloc
import zlib
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import cramjam
import lz4.frame as lz4_frame
import pytest
import xxhash
from aiokafka import codec as aiokafka
from hypothesis import given
from hypothesis import strategies as st

from ottla.protocol.records.compression import Codec, compress, compressing, decompress, decompressing
from ottla.protocol.records.errors import InvalidRecords, UnsupportedCodec
from ottla.protocol.records.steps import STEP_BYTES, Steps, run
from ottla_testing.each import each

MIB = 1024 * 1024
COMPRESSED = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]
lz4: Any = cramjam.lz4
snappy: Any = cramjam.snappy
zstd: Any = cramjam.zstd


def text(size: int) -> bytes:
    """Returns bytes that compress to about half, the same every time."""
    return bytes(random.Random(7).choices(b"abcdefghijkl", k=size))


def noise(size: int) -> bytes:
    return random.Random(8).randbytes(size)


@each("codec", list(Codec))
@each("data", [b"", b"x", text(1000), text(300_000), noise(300_000)])
def test_compressed_data_is_decompressed(codec: Codec, data: bytes) -> None:
    packed = compress(codec, memoryview(data))
    assert decompress(codec, packed, len(data)) == data
    assert decompress(codec, memoryview(packed), len(data) + MIB) == data
    if data:
        with pytest.raises(InvalidRecords):
            decompress(codec, packed, len(data) - 1)


@given(data=st.binary(max_size=5000), codec=st.sampled_from(list(Codec)))
def test_any_bytes_are_compressed_and_decompressed(data: bytes, codec: Codec) -> None:
    assert decompress(codec, compress(codec, data), len(data)) == data


def test_unknown_codec_raises() -> None:
    with pytest.raises(UnsupportedCodec):
        compress(5, b"x")
    with pytest.raises(UnsupportedCodec):
        decompress(7, b"x", 10)


# --- framing


def test_snappy_is_framed_as_by_java() -> None:
    packed = compress(Codec.SNAPPY, text(70_000))
    assert packed[:16] == bytes.fromhex("82534e41505059 00 00000001 00000001")
    sizes = []
    position = 16
    while position < len(packed):
        (length,) = struct.unpack_from(">i", packed, position)
        sizes.append(snappy.decompress_raw_len(packed[position + 4 : position + 4 + length]))
        position += 4 + length
    assert sizes == [32768, 32768, 70_000 - 65536]
    assert aiokafka.snappy_decode(packed) == text(70_000)


def test_snappy_reads_bare_blocks_and_streams_of_other_writers() -> None:
    data = text(50_000)
    assert decompress(Codec.SNAPPY, bytes(snappy.compress_raw(data)), 50_000) == data
    assert decompress(Codec.SNAPPY, aiokafka.snappy_encode(data), 50_000) == data


def test_lz4_is_framed_as_by_java() -> None:
    data = text(65536) + noise(65536) + b"end"
    packed = compress(Codec.LZ4, data)
    assert packed[:7] == bytes.fromhex("04224d18 60 40 82")  # independent blocks of 64 KiB, no checksums
    (first,) = struct.unpack_from("<I", packed, 7)
    assert first < 65536
    (second,) = struct.unpack_from("<I", packed, 11 + first)
    assert second == 65536 | 0x80000000  # a block that does not shrink is stored
    assert packed[-4:] == b"\x00\x00\x00\x00"
    assert aiokafka.lz4_decode(packed) == data
    assert bytes(lz4.decompress(packed)) == data  # this library verifies the header checksum


@pytest.mark.parametrize("content_checksum", [False, True])
@pytest.mark.parametrize("linked", [False, True])
def test_lz4_reads_any_frame(content_checksum: bool, linked: bool) -> None:
    data = text(500_000)
    writer = lz4.Compressor(3, content_checksum, linked)
    writer.compress(data)
    packed = bytes(writer.finish())
    assert decompress(Codec.LZ4, packed, len(data)) == data
    assert decompress(Codec.LZ4, packed + packed, 2 * len(data)) == data + data


def test_gzip_reads_several_members() -> None:
    packed = b"".join(gzip.compress(part, 1) for part in (b"", text(100_000), b"", b"tail"))
    assert decompress(Codec.GZIP, packed, 100_004) == text(100_000) + b"tail"
    with pytest.raises(InvalidRecords):
        decompress(Codec.GZIP, packed, 100_003)
    with pytest.raises(InvalidRecords):
        decompress(Codec.GZIP, packed + b"tail", 200_000)


def test_zstd_reads_frames_with_and_without_a_content_size() -> None:
    data = text(400_000)
    writer = zstd.Compressor(3)
    writer.compress(data)
    streamed = bytes(writer.finish())  # like Java's: the size is unknown when the header is written
    assert streamed[4] >> 5 == 0
    sized = bytes(zstd.compress(data, 3))
    skipped = bytes.fromhex("502a4d18 03000000 616263")
    assert decompress(Codec.ZSTD, streamed, len(data)) == data
    assert decompress(Codec.ZSTD, sized, len(data)) == data
    assert decompress(Codec.ZSTD, skipped + streamed + sized, 2 * len(data)) == data + data


def test_compression_levels_are_used() -> None:
    data = text(200_000)
    lines = b"".join(b'{"id": %d, "name": "user-%d", "seen": %d}\n' % (n, n % 97, n * n) for n in range(5000))
    for codec, low, high in ((Codec.GZIP, 1, 9), (Codec.ZSTD, 1, 19)):
        assert len(compress(codec, lines, high)) < len(compress(codec, lines, low))
        assert decompress(codec, compress(codec, lines, high), len(lines)) == lines
    assert compress(Codec.GZIP, data) == compress(Codec.GZIP, data, 6)
    assert compress(Codec.ZSTD, data) == compress(Codec.ZSTD, data, 3)
    assert compress(Codec.LZ4, data) == compress(Codec.LZ4, data, 9)
    assert len(compress(Codec.LZ4, lines, 12)) < len(compress(Codec.LZ4, lines))
    assert compress(Codec.LZ4, lines, 12)[:7] == compress(Codec.LZ4, lines)[:7]
    assert bytes(lz4.decompress(compress(Codec.LZ4, lines + noise(70_000), 12))) == lines + noise(70_000)
    for level in (1, 12, 17):
        assert decompress(Codec.LZ4, compress(Codec.LZ4, data, level), len(data)) == data


# --- formats v0 and v1


def test_lz4_of_format_v0_has_the_broken_header_checksum() -> None:
    """KIP-57: old clients computed the checksum over the frame's magic as well."""
    data = text(1000)
    packed = compress(Codec.LZ4, data, magic=0)
    assert packed[:7] == bytes.fromhex("04224d18 60 40 1a")
    assert packed[6] == xxhash.xxh32(packed[:6]).intdigest() >> 8 & 0xFF
    true = compress(Codec.LZ4, data, magic=1)
    assert true == compress(Codec.LZ4, data) == packed[:6] + b"\x82" + packed[7:]
    assert decompress(Codec.LZ4, packed, 1000, magic=0) == data
    for magic in (1, 2):
        with pytest.raises(InvalidRecords):
            decompress(Codec.LZ4, packed, 1000, magic=magic)


@pytest.mark.parametrize("content_size", [False, True])
@pytest.mark.parametrize("content_checksum", [False, True])
def test_lz4_of_format_v0_is_read_with_any_header_checksum(content_size: bool, content_checksum: bool) -> None:
    data = text(1000)
    frame: Any = lz4_frame.compress(
        data, block_linked=False, store_size=content_size, content_checksum=content_checksum, block_checksum=True
    )
    at = 14 if content_size else 6
    for checksum in range(256):
        changed = frame[:at] + bytes([checksum]) + frame[at + 1 :]
        assert decompress(Codec.LZ4, changed, 1000, magic=0) == data
        if checksum != frame[at]:
            with pytest.raises(InvalidRecords):
                decompress(Codec.LZ4, changed, 1000, magic=1)
    assert decompress(Codec.LZ4, frame, 1000, magic=1) == data


def test_lz4_of_format_v0_with_a_dictionary_id_is_refused() -> None:
    """The dictionary is never available; the header with one is four bytes longer."""
    with pytest.raises(InvalidRecords):
        decompress(Codec.LZ4, bytes.fromhex("04224d18 61 40 01020304 00 04000080 61626364"), 1000, magic=0)


def test_zstd_of_an_old_format_raises() -> None:
    packed = compress(Codec.ZSTD, b"x" * 100)
    for magic in (0, 1):
        with pytest.raises(UnsupportedCodec):
            compress(Codec.ZSTD, b"x", magic=magic)
        with pytest.raises(InvalidRecords):
            decompress(Codec.ZSTD, packed, 1000, magic=magic)


@given(data=st.binary(max_size=3000), codec=st.sampled_from(COMPRESSED[:3]), magic=st.sampled_from([0, 1]))
def test_any_bytes_are_compressed_and_decompressed_in_old_formats(data: bytes, codec: Codec, magic: int) -> None:
    assert decompress(codec, compress(codec, data, magic=magic), len(data), magic=magic) == data


@given(data=st.data(), size=st.integers(0, 40))
def test_damaged_lz4_of_format_v0_raises_declared_error_only(data: st.DataObject, size: int) -> None:
    packed = bytearray(compress(Codec.LZ4, text(size), magic=0))
    for _ in range(data.draw(st.integers(1, 4))):
        packed[data.draw(st.integers(0, len(packed) - 1))] = data.draw(st.integers(0, 255))
    with suppress(InvalidRecords):
        assert len(decompress(Codec.LZ4, packed, 100_000, magic=0)) <= 100_000


# --- in steps


def counting(steps: Steps[Any]) -> tuple[int, Any]:
    """Returns the number of calls for a worker thread, and the result."""
    calls, sent = 0, None
    while True:
        try:
            call = steps.send(sent)
        except StopIteration as done:
            return calls, done.value
        assert call is not None
        calls += 1
        sent = call()


@pytest.mark.parametrize("codec", COMPRESSED)
def test_only_large_data_is_compressed_in_a_thread(codec: Codec) -> None:
    for size, expected in ((STEP_BYTES, 0), (STEP_BYTES + 1, 1)):
        data = noise(size)
        calls, packed = counting(compressing(codec, data))
        assert calls == expected
        assert packed == compress(codec, data)
    data = bytes(STEP_BYTES)
    assert counting(decompressing(codec, compress(codec, data), MIB)) == (0, data)
    # A short input with a long output.
    data = bytes(STEP_BYTES + 1)
    assert counting(decompressing(codec, compress(codec, data), MIB)) == (1, data)
    with pytest.raises(InvalidRecords):
        run(decompressing(codec, compress(codec, data), STEP_BYTES))
    with pytest.raises(InvalidRecords):
        run(decompressing(codec, compress(codec, data)[:-1], MIB))


# --- bombs


def gzip_bomb(size: int) -> bytes:
    writer = zlib.compressobj(9, zlib.DEFLATED, 31)
    step = bytes(4 * MIB)
    return b"".join(writer.compress(step) for _ in range(size // len(step))) + writer.flush()


def snappy_bomb(size: int) -> bytes:
    block = bytes(snappy.compress_raw(bytes(32768)))
    return compress(Codec.SNAPPY, b"") + (struct.pack(">i", len(block)) + block) * (size // 32768)


def lz4_bomb(size: int) -> bytes:
    block = bytes(lz4.compress_block(bytes(65536), store_size=False))
    return compress(Codec.LZ4, b"")[:-4] + (struct.pack("<I", len(block)) + block) * (size // 65536) + bytes(4)


def zstd_bomb(size: int) -> bytes:
    """Returns a frame without content size, in which every block is one byte repeated 128 KiB times."""
    count = size // 131072
    blocks = [(131072 << 3 | 1 << 1 | (index == count - 1)).to_bytes(3, "little") + b"\x00" for index in range(count)]
    return struct.pack("<I", 0xFD2FB528) + b"\x00\x70" + b"".join(blocks)


BOMBS: dict[Codec, Callable[[int], bytes]] = {
    Codec.GZIP: gzip_bomb,
    Codec.SNAPPY: snappy_bomb,
    Codec.LZ4: lz4_bomb,
    Codec.ZSTD: zstd_bomb,
}


@pytest.mark.parametrize("codec", COMPRESSED)
def test_decompression_bomb_is_refused_in_bounded_memory(codec: Codec) -> None:
    assert decompress(codec, BOMBS[codec](8 * MIB), 8 * MIB) == bytes(8 * MIB)  # the bomb is valid data
    bomb = BOMBS[codec](64 * MIB)
    tracemalloc.start()
    try:
        with pytest.raises(InvalidRecords):
            decompress(codec, bomb, 4 * MIB)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 16 * MIB


@pytest.mark.parametrize(
    ("codec", "data"),
    [
        (Codec.SNAPPY, b"\xff\xff\xff\xff\x0f" + b"\x00" * 20),
        (Codec.SNAPPY, compress(Codec.SNAPPY, b"") + struct.pack(">i", 6) + b"\xff\xff\xff\xff\x0f\x00"),
        (Codec.ZSTD, bytes.fromhex("28b52ffd e0 ffffffffffffff7f 010000")),
        (Codec.LZ4, bytes.fromhex("04224d18 68 40 ffffffffffffff7f 00 00000000")),
    ],
    ids=["snappy", "xerial", "zstd", "lz4"],
)
def test_declared_size_allocates_no_memory(codec: Codec, data: bytes) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(InvalidRecords):
            decompress(codec, data, 1 << 40)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < MIB


# --- damage


@pytest.mark.parametrize("codec", COMPRESSED)
def test_truncated_data_is_refused(codec: Codec) -> None:
    packed = compress(codec, text(300) + noise(60))
    for end in range(len(packed)):
        # A xerial stream has no end mark: cut between blocks, or after its header, it is a valid shorter stream.
        if codec == Codec.SNAPPY and end == 16:
            continue
        with pytest.raises(InvalidRecords):
            decompress(codec, packed[:end], 100_000)


@given(data=st.data(), codec=st.sampled_from(COMPRESSED))
def test_damaged_data_raises_declared_error_only(data: st.DataObject, codec: Codec) -> None:
    packed = bytearray(compress(codec, text(2000) + noise(100)))
    for _ in range(data.draw(st.integers(1, 4))):
        packed[data.draw(st.integers(0, len(packed) - 1))] = data.draw(st.integers(0, 255))
    with suppress(InvalidRecords):
        assert len(decompress(codec, packed, 100_000)) <= 100_000


@given(data=st.binary(max_size=300), codec=st.sampled_from(COMPRESSED), framed=st.booleans())
def test_arbitrary_bytes_raise_declared_error_only(data: bytes, codec: Codec, framed: bool) -> None:
    start = {Codec.GZIP: 10, Codec.SNAPPY: 16, Codec.LZ4: 7, Codec.ZSTD: 4}[codec]
    with suppress(InvalidRecords):
        decompress(codec, compress(codec, b"abc")[: start if framed else 0] + data, 100_000)


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_decompression_allocates_its_result_once(codec: Codec):
    size = 16 << 20
    data = compress(codec, bytes(size))
    tracemalloc.start()
    try:
        found = decompress(codec, data, size)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(found) == size and peak < 1.5 * size
