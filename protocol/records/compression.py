"""The four codecs of Kafka's record batches, with the framing of Apache Kafka's Java clients.

Decompression never allocates more than `max_bytes`: sizes stated in the data (snappy's prefix, block headers of lz4 and
zstd) are checked before memory is allocated, and gzip is inflated step by step.

Sources: RFC 1952 (gzip), snappy's format description and snappy-java's stream ("xerial"), the LZ4 frame format 1.6.1 as
KIP-57 repaired it, RFC 8878 (zstd, KIP-110), KIP-390 for the levels.
"""

from __future__ import annotations

import struct
import zlib
from enum import IntEnum
from functools import partial
from typing import Any

from .errors import DecompressedTooLarge, InvalidRecords, Undecodable, UnsupportedCodec
from .steps import STEP_BYTES, Steps, in_c

Buffer = bytes | bytearray | memoryview


class Codec(IntEnum):
    """Bits 0-2 of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


CODEC_NAMES = {codec.value: codec.name.lower() for codec in Codec}


# Kafka's defaults of compression.gzip.level, compression.lz4.level and compression.zstd.level. For lz4 the default
# means the fast compressor; any other level means the high-compression one (as in Java, for compatibility).
GZIP_LEVEL = 6
LZ4_LEVEL = 9
ZSTD_LEVEL = 3

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK_BYTES = 32 * 1024
_INT32 = struct.Struct(">i")

# Magic, FLG (version 1, independent blocks, no checksums), BD (64 KiB blocks) and the header checksum, which is
# constant because the three values before it are.
_LZ4_HEADER = bytes.fromhex("04224d18 60 40 82")
_LZ4_MAGIC = 0x184D2204
# The header checksum of format v0, wrong according to KIP-57: it covers the frame's magic as well.
_LZ4_HEADER_V0 = bytes.fromhex("04224d18 60 40 1a")
_LZ4_BLOCK_BYTES = 64 * 1024
_LZ4_END = b"\x00\x00\x00\x00"
_LZ4_RAW = 0x80000000

_ZSTD_FROM_MAGIC = 2  # the first message format with zstd (KIP-110)
_ZSTD_MAGIC = 0xFD2FB528
_ZSTD_BLOCK_BYTES = 128 * 1024

# Skippable frames: lz4 and zstd share the 16 magic numbers 184D2A50-184D2A5F.
_SKIPPABLE = 0x184D2A50

# Snappy's highest expansion: a literal takes more than its own bytes, a copy of at most 64 bytes takes three.
_SNAPPY_MAX_RATIO = 32

_UINT32_LE = struct.Struct("<I")
_GZIP_STEP_BYTES = 16 * 1024
_GZIP_PART_BYTES = 1024 * 1024  # the most that one step may inflate to, so that no part is as large as the whole


def _cramjam() -> Any:
    import cramjam  # imported late: 1.6 MB that uncompressed data does not need; its submodules have no types

    return cramjam


def compress(codec: int, data: Buffer, level: int | None = None, *, magic: int = 2) -> bytes:
    """Compresses the records of one batch; level None is the codec's default.

    `magic` is the message format: v0 has lz4 frames with a wrong header checksum (KIP-57), only v2 has zstd. Raises
    UnsupportedCodec, and ValueError for a level that the codec does not have.
    """
    if codec == Codec.NONE:
        return bytes(data)
    if codec == Codec.GZIP:
        return zlib.compress(data, GZIP_LEVEL if level is None else level, 31)
    if codec == Codec.SNAPPY:
        return _compress_snappy(data)
    if codec == Codec.LZ4:
        return _compress_lz4(data, LZ4_LEVEL if level is None else level, magic)
    if codec == Codec.ZSTD and magic >= _ZSTD_FROM_MAGIC:
        return bytes(_cramjam().zstd.compress(data, ZSTD_LEVEL if level is None else level))
    raise UnsupportedCodec(f"codec {codec} is unknown in format v{magic}")


def decompress(codec: int, data: Buffer, max_bytes: int, *, magic: int = 2) -> bytes | memoryview:
    """Decompresses the records of one batch into a buffer of at most `max_bytes`. In format v0 the header checksum of
    lz4 is ignored, as every reader of v0 does (KIP-57).

    Raises Undecodable for damaged data, DecompressedTooLarge for data that would exceed `max_bytes`, UnsupportedCodec
    for an unknown codec.
    """
    if codec == Codec.NONE:
        if len(data) > max_bytes:
            raise _beyond(max_bytes)
        return bytes(data)
    if codec == Codec.GZIP:
        return _decompress_gzip(data, max_bytes)
    if codec == Codec.SNAPPY:
        return _decompress_snappy(data, max_bytes)
    if codec == Codec.LZ4:
        bound = _lz4_bound(data, max_bytes)
        data = data if magic else _with_true_checksum(data)
        return _decompress_bounded("lz4", _cramjam().lz4.decompress_into, data, bound, max_bytes)
    if codec == Codec.ZSTD and magic < _ZSTD_FROM_MAGIC:
        raise InvalidRecords(f"zstd in format v{magic}")
    if codec == Codec.ZSTD:
        bound = _zstd_bound(data, max_bytes)
        return _decompress_bounded("zstd", _cramjam().zstd.decompress_into, data, bound, max_bytes)
    raise UnsupportedCodec(f"codec {codec} is unknown")


def compressing(codec: int, data: Buffer, level: int | None = None, *, magic: int = 2) -> Steps[bytes]:
    """Like `compress`, in a worker thread if the data is long."""
    return (yield from in_c(len(data), partial(compress, codec, data, level, magic=magic)))


def decompressing(codec: int, data: Buffer, max_bytes: int, *, magic: int = 2) -> Steps[bytes | memoryview]:
    """Like `decompress`, in a worker thread if the data or its decompressed size is long."""
    if len(data) <= STEP_BYTES:
        if max_bytes <= STEP_BYTES:
            return decompress(codec, data, max_bytes, magic=magic)
        try:
            return decompress(codec, data, STEP_BYTES, magic=magic)
        except InvalidRecords:
            pass  # larger than a step, or damaged: the second attempt distinguishes them
    return (yield partial(decompress, codec, data, max_bytes, magic=magic))


def _beyond(max_bytes: int) -> DecompressedTooLarge:
    return DecompressedTooLarge(f"the records would decompress to more than {max_bytes} bytes")


def _damaged(name: str, why: object) -> Undecodable:
    return Undecodable(f"damaged {name} data: {why}")


# --- gzip


def _decompress_gzip(data: Buffer, max_bytes: int) -> bytes | memoryview:
    """Inflates member after member. Input is passed in small steps: zlib returns unused input as a copy, which would
    take quadratic time for many tiny members."""
    view = memoryview(data)
    end = len(view)
    position = 0
    first = b""  # small data is returned as one part, without a copy
    out = bytearray()
    left = max_bytes
    is_begun = False
    try:
        while position < end or not is_begun:
            member = zlib.decompressobj(31)
            while not member.eof:
                step = view[position : position + _GZIP_STEP_BYTES]
                # One byte more than allowed distinguishes too much from exactly enough. A full output buffer leaves
                # input in unconsumed_tail, which is passed again from `position`.
                part = member.decompress(step, min(left + 1, _GZIP_PART_BYTES))
                left -= len(part)
                if left < 0:
                    raise _beyond(max_bytes)
                is_begun = True
                if not first:
                    first = part
                elif part:
                    out += part if out else first + part
                used = len(step) - len(member.unconsumed_tail) - len(member.unused_data)
                position += used
                if not used and not part and not member.eof:
                    raise _damaged("gzip", "it ends early")
    except zlib.error as error:
        raise _damaged("gzip", error) from None
    return memoryview(out) if out else first


# --- snappy


def _compress_snappy(data: Buffer) -> bytes:
    view = memoryview(data)
    out = bytearray(_XERIAL_HEADER)
    for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = bytes(_cramjam().snappy.compress_raw(view[start : start + _XERIAL_BLOCK_BYTES]))
        out += _INT32.pack(len(block))
        out += block
    return bytes(out)


def _decompress_snappy(data: Buffer, max_bytes: int) -> memoryview:
    """Decompresses a xerial stream or, as Java's reader also accepts, one bare block without a header."""
    view = memoryview(data)
    blocks: list[tuple[memoryview, int]] = []
    if bytes(view[:8]) != _XERIAL_MAGIC:
        blocks.append((view, _snappy_size(view)))
    else:
        position = len(_XERIAL_HEADER)
        while position < len(view):
            if position + 4 > len(view):
                raise _damaged("snappy", "a block's length is cut")
            (length,) = _INT32.unpack_from(view, position)
            position += 4
            if length <= 0 or length > len(view) - position:
                raise _damaged("snappy", f"a block of {length} bytes where {len(view) - position} are left")
            block = view[position : position + length]
            blocks.append((block, _snappy_size(block)))
            position += length
        if position != len(view):
            raise _damaged("snappy", "the stream header is cut")
    total = sum(size for _, size in blocks)
    if total > max_bytes:
        raise _beyond(max_bytes)
    out = bytearray(total)
    target = memoryview(out)
    position = 0
    try:
        for block, size in blocks:
            if _cramjam().snappy.decompress_raw_into(block, target[position : position + size]) != size:
                raise _damaged("snappy", "a block is shorter than its stated size")
            position += size
    except _cramjam().DecompressionError as error:
        raise _damaged("snappy", error) from None
    return memoryview(out)


def _snappy_size(block: memoryview) -> int:
    try:
        size: int = _cramjam().snappy.decompress_raw_len(block)
    except _cramjam().DecompressionError as error:
        raise _damaged("snappy", error) from None
    if size > len(block) * _SNAPPY_MAX_RATIO:
        raise _damaged("snappy", f"{len(block)} bytes cannot hold {size}")
    return size


# --- lz4


def _compress_lz4(data: Buffer, level: int, magic: int) -> bytes:
    view = memoryview(data)
    out = bytearray(_LZ4_HEADER if magic else _LZ4_HEADER_V0)
    for start in range(0, len(view), _LZ4_BLOCK_BYTES):
        raw = view[start : start + _LZ4_BLOCK_BYTES]
        block = _compress_lz4_block(raw, level)
        if len(block) < len(raw):
            out += _UINT32_LE.pack(len(block))
            out += block
        else:
            out += _UINT32_LE.pack(len(raw) | _LZ4_RAW)
            out += raw
    out += _LZ4_END
    return bytes(out)


def _compress_lz4_block(raw: memoryview, level: int) -> bytes | memoryview:
    if level == LZ4_LEVEL:
        return bytes(_cramjam().lz4.compress_block(raw, store_size=False))
    # cramjam's block functions support one level only, its frames all of them (with checksums that Java's writer leaves
    # out): write a frame of this one block and take the block from it.
    writer = _cramjam().lz4.Compressor(level, False, False)
    writer.compress(bytes(raw))
    frame = memoryview(bytes(writer.finish()))
    (size,) = _UINT32_LE.unpack_from(frame, 7)
    length = size & 0x7FFFFFFF
    # A stored block is returned unchanged, as long as its input: the caller stores it too.
    return frame[11 : 11 + length]


def _with_true_checksum(data: Buffer) -> bytearray:
    """Returns the frame of a v0 message with the header checksum that the LZ4 format requires."""
    import xxhash  # imported late: only messages of format v0 need it

    out = bytearray(data)
    if len(out) > 6:
        flags = out[4]
        end = 6 + (8 if flags & 0x08 else 0) + (4 if flags & 0x01 else 0)
        if end < len(out):
            out[end] = xxhash.xxh32_intdigest(out[4:end]) >> 8 & 0xFF
    return out


def _lz4_bound(data: Buffer, max_bytes: int) -> int:
    """Returns the most bytes that these frames can decompress to, from their headers and block sizes alone."""
    total = 0
    position = 0
    end = len(data)
    try:
        while position < end:
            (magic,) = _UINT32_LE.unpack_from(data, position)
            position += 4
            if magic & 0xFFFFFFF0 == _SKIPPABLE:
                position += 4 + _UINT32_LE.unpack_from(data, position)[0]
                continue
            if magic != _LZ4_MAGIC:
                raise _damaged("lz4", "bad magic")
            flags = data[position]
            block_bytes = 1 << (8 + 2 * (data[position + 1] >> 4 & 7))  # 4: 64 KiB ... 7: 4 MiB
            position += 2
            if flags & 0x08:
                if int.from_bytes(data[position : position + 8], "little") > max_bytes:
                    raise _beyond(max_bytes)
                position += 8
            position += 5 if flags & 0x01 else 1  # dictionary id, header checksum
            while True:
                (size,) = _UINT32_LE.unpack_from(data, position)
                position += 4
                if size == 0:
                    break
                length = size & 0x7FFFFFFF
                # One compressed byte expands to at most 255.
                total += length if size & _LZ4_RAW else min(block_bytes, length * 255)
                position += length + (4 if flags & 0x10 else 0)
            position += 4 if flags & 0x04 else 0
    except (IndexError, struct.error):
        raise _damaged("lz4", "it ends early") from None
    return total


# --- zstd


def _zstd_bound(data: Buffer, max_bytes: int) -> int:
    """Returns the most bytes that these frames can decompress to, from headers and block sizes alone (RFC 8878,
    3.1.1)."""
    total = 0
    position = 0
    end = len(data)
    try:
        while position < end:
            (magic,) = _UINT32_LE.unpack_from(data, position)
            position += 4
            if magic & 0xFFFFFFF0 == _SKIPPABLE:
                position += 4 + _UINT32_LE.unpack_from(data, position)[0]
                continue
            if magic != _ZSTD_MAGIC:
                raise _damaged("zstd", "bad magic")
            descriptor = data[position]
            single_segment = descriptor >> 5 & 1
            position += 2 - single_segment  # the descriptor and, unless it is a single segment, the window descriptor
            position += (0, 1, 2, 4)[descriptor & 3]  # dictionary id
            size_bytes = (single_segment, 2, 4, 8)[descriptor >> 6]
            if size_bytes:
                size = int.from_bytes(data[position : position + size_bytes], "little")
                if size + (256 if size_bytes == 2 else 0) > max_bytes:
                    raise _beyond(max_bytes)
                position += size_bytes
            last = 0
            while not last:
                block = int.from_bytes(data[position : position + 3], "little")
                last = block & 1
                length = block >> 3
                kind = block >> 1 & 3  # 0 raw, 1 one repeated byte, 2 compressed, 3 reserved
                total += length if kind < 2 else _ZSTD_BLOCK_BYTES
                position += 3 + (1 if kind == 1 else length)
                if position > end:
                    raise _damaged("zstd", "it ends early")
            position += 4 if descriptor & 0x04 else 0
    except (IndexError, struct.error):
        raise _damaged("zstd", "it ends early") from None
    return total


def _decompress_bounded(name: str, decompress_into: Any, data: Buffer, bound: int, max_bytes: int) -> memoryview:
    """Decompresses into a buffer as large as the blocks can fill, never larger than `max_bytes`."""
    out = bytearray(min(bound, max_bytes))
    try:
        length: int = decompress_into(data, out)
    except _cramjam().DecompressionError as error:
        # The buffer was too small, or the data is damaged: refused either way, with the likelier reason.
        raise _beyond(max_bytes) if bound > max_bytes else _damaged(name, error) from None
    return memoryview(out)[:length]
