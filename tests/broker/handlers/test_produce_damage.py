"""Damaged sets of v0, v1 and v2 over the wire: refused whole, with the release's code, and nothing is stored.

The expected code is computed by the tests' own code, from the formats alone. Two parts have no checksum: an offset,
which the broker overwrites; and a length beyond the set, which ends the set.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
import zlib
from pathlib import Path

import crc32c
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.protocol.records import batch, compression
from ottla_testing.broker.producing import (
    NOW,
    SAMPLE,
    Played,
    broken,
    closes_for_unreadable,
    header_changed,
    invalid,
    made,
    message,
    newest_format,
    plain,
    playing,
    sealed,
    since,
    wrapper,
)
from ottla_testing.each import taken

UNKNOWN, CORRUPT, ZSTD = -1, 2, 76
RELEASES = ["0.9", "0.10.2", "2.1", "2.3", "2.4", "2.8", "3.9", "4.3", "ottla"]
NOTHING = "nothing"  # a set without a whole entry: Produce v0-v2 accept it and append nothing
Outcome = int | str | None  # the code; NOTHING; None for a closed connection


def formats_of(release: str) -> list[int]:
    """The formats of a release's producers."""
    return [magic for magic in range(newest_format(release) + 1) if magic == 2 or release != "4.3"]


def versions(played: Played, magic: int) -> list[int]:
    """The versions of Produce that carry v2, or the others."""
    old = [min(2, played.newest)] if played.versions.first == 0 else []
    return [*old, 3, played.newest] if magic == 2 else old


async def outcome(played: Played, data: bytes | bytearray, version: int, topic: str) -> Outcome:
    """The result of a set; a refused one must leave no trace."""
    before = played.end(topic), played.stored(topic)
    response = await played.send(data, version, topic)
    if response is not None and response.error_code == 0 and response.base_offset >= 0:
        assert response.base_offset == before[0] < played.end(topic)
        return 0
    assert (played.end(topic), played.stored(topic)) == before
    if response is None:
        return None
    assert (response.base_offset, response.log_append_time_ms) == (-1, -1)
    return response.error_code or NOTHING


# ---- expectations from the formats


def entries(data: bytes, release: str, *, reads_producers: bool = False) -> list[bytes] | int:
    """The whole entries of a set, or the code if it cannot be split or a batch ends before its producer id."""
    found: list[bytes] = []
    position = 0
    while len(data) - position >= 12:
        (length,) = struct.unpack_from(">i", data, position + 8)
        if length < 14:
            return CORRUPT
        if len(data) - position < 17:
            break
        magic = data[position + 16]
        if magic > 2:
            return CORRUPT
        if length > 2**31 - 13 and since(release, "0.11"):
            return UNKNOWN
        if len(data) - position < 12 + length:
            break
        if reads_producers and magic == 2 and 12 + length < 51:
            return UNKNOWN
        found.append(data[position : position + 12 + length])
        position += 12 + length
    return found


def is_sound(entry: bytes) -> bool:
    """Whether the checksum matches."""
    if entry[16] == 2:
        return len(entry) >= 61 and crc32c.crc32c(entry[21:]) == struct.unpack_from(">I", entry, 17)[0]
    return zlib.crc32(entry[16:]) == struct.unpack_from(">I", entry, 12)[0]


def expected(data: bytes, version: int, release: str, target: int = 2) -> Outcome:
    """The result for a set whose entries are valid except for one damage; a wrapper or batch holds three records."""
    found = entries(data, release, reads_producers=version < 3 and release == "3.9")
    end = 12 + max(0, *struct.unpack_from(">i", data, 8)) if len(data) > 12 else 0
    first = entries(data[:end], release)
    whole = isinstance(first, list) and bool(first)
    short = isinstance(first, list) and whole and first[0][16] == 2 and len(first[0]) < 51
    if closes_for_unreadable(release) and (not whole or short):
        return None
    if isinstance(first, list) and whole and first[0][16] == 2 and first[0][22] & 0x10:
        wrong = isinstance(found, int) or len(found) != 1
        if since(release, "2.1") or (version >= 3 and not (wrong and first[0][22] & 7 < 4)):
            return 53
    if isinstance(first, int):
        return first if version < 3 or since(release, "2.1") else None
    if version >= 3:
        if first and first[0][16] == 2 and first[0][22] & 7 == 4 and version < 7:
            return ZSTD
        if first and first[0][16] == 2 and first[0][22] & 7 > 4 and version < 7:
            return UNKNOWN  # the codec is checked before the checksum there
        if (isinstance(found, int) or len(found) != 1 or found[0][16] != 2) and not since(release, "2.1"):
            return None
        if isinstance(found, int):  # the wrong format is found before later parts are read
            return invalid(release) if first and first[0][16] < 2 else found
        if len(found) != 1 or found[0][16] != 2:
            return invalid(release)
        if short and since(release, "3.8") and release != "ottla":
            return UNKNOWN
    if isinstance(found, int):
        return found
    if not found:
        return NOTHING
    for entry in found:
        if entry[16] == 2 and entry[:8] != bytes(8):
            return invalid(release)
        if not is_sound(entry):
            return CORRUPT
    if since(release, "2.4") and len(found) > 1 and any(entry[16] == 2 or entry[17] & 7 for entry in found):
        return 87
    for entry in found:
        (offset,) = struct.unpack_from(">q", entry)
        if entry[16] == 1 and entry[17] & 7 and offset not in (0, 2):
            unnumbered = release == "2.4" and target > 0  # only in that release
            if offset < 2 or unnumbered:
                return invalid(release)
    return 0


def flipped(data: bytes, at: int, bits: int) -> bytes:
    damaged = bytearray(data)
    damaged[at] ^= bits
    return bytes(damaged)


def with_length(data: bytes, length: int) -> bytes:
    damaged = bytearray(data)
    struct.pack_into(">i", damaged, 8, length)
    return bytes(damaged)


@st.composite
def damages(draw: st.DrawFn, magics: list[int]) -> tuple[int, bytes]:
    """(format, a set with one damage)."""
    magic = draw(st.sampled_from(magics))
    data = made(magic, draw(st.integers(0, 3)), SAMPLE)
    if draw(st.booleans()) and magic < 2:
        data = message(magic=magic) + data if data[17] & 7 == 0 else data
    at = draw(st.integers(0, 30) | st.integers(0, len(data) - 1))
    at = min(at, len(data) - 1)
    kind = draw(st.sampled_from(["flip", "flip", "cut", "extend", "length", "drop"]))
    if kind == "flip":
        data = flipped(data, at, draw(st.sampled_from([1, 2, 4, 8, 16, 32, 64, 128, 255])))
    elif kind == "cut":
        data = data[:at]
    elif kind == "extend":
        data += draw(st.binary(min_size=1, max_size=40))
    elif kind == "drop":
        data = data[:at] + data[at + 1 :]
    else:
        data = with_length(data, draw(st.integers(-(2**31), 2**31 - 1) | st.integers(0, len(data))))
    return magic, data


@pytest.mark.parametrize("release", RELEASES)
def test_damaged_byte_at_any_place_is_refused(release: str, tmp_path: Path) -> None:
    """One broker for all examples: the records appended in between do not matter."""
    targets = range(newest_format(release) + 1) if release != "4.3" else [2]

    async def begin(stack: contextlib.AsyncExitStack) -> Played:
        played = await stack.enter_async_context(playing(tmp_path, release, old_formats=release != "4.3"))
        for target in targets:
            await played.topic(f"v{target}", target)
        return played

    async def end(played: Played, stack: contextlib.AsyncExitStack) -> None:
        for target in targets:
            topic, version = f"v{target}", played.newest if target == 2 else versions(played, 1)[0]
            assert await outcome(played, made(target, 1), version, topic) == 0
            assert [record.offset for record in played.records(topic)] == list(range(played.end(topic)))
        await stack.aclose()

    async def send(magic: int, data: bytes) -> None:
        for version in versions(played, magic):
            for target in targets:
                wanted = expected(data, version, release, target)
                assert await outcome(played, data, version, f"v{target}") == wanted, (version, target)

    with asyncio.Runner() as runner:
        stack = contextlib.AsyncExitStack()
        played = runner.run(begin(stack))

        @settings(max_examples=2 * settings().max_examples)
        @given(damages(formats_of(release)))
        def check(damaged: tuple[int, bytes]) -> None:
            runner.run(send(*damaged))

        try:
            check()
        finally:
            runner.run(end(played, stack))


# ---- chosen damages


def fixed(magic: int, codec: int) -> list[tuple[str, bytes, str]]:
    """(reason, set, "corrupt", "invalid", or "by the formats" for `expected`)."""
    data = made(magic, codec)
    end = struct.unpack_from(">i", data, 8)[0]
    crc_at = 17 if magic == 2 else 12
    cases: list[tuple[str, bytes, str]] = [
        ("the CRC", flipped(data, crc_at, 1), "corrupt"),
        ("the last byte", broken(data), "corrupt"),
        ("a byte in the middle", flipped(data, len(data) // 2, 0x10), "corrupt"),
        ("length 0", with_length(data, 0), "by the formats"),
        ("length 13", with_length(data, 13), "by the formats"),
        ("a length below 0", with_length(data, -(2**31)), "by the formats"),
        ("length 14", with_length(data, 14), "by the formats"),
        ("one less", with_length(data, end - 1), "by the formats"),
        ("one more", with_length(data, end + 1), "by the formats"),
        ("the largest length", with_length(data, 2**31 - 1), "by the formats"),
        ("magic 3", data[:16] + b"\x03" + data[17:], "by the formats"),
        ("magic -1", data[:16] + b"\xff" + data[17:], "by the formats"),
        ("another magic", flipped(data, 16, 1 if magic < 2 else 2), "by the formats"),
        ("too short for a batch's head", with_length(data[:50], 38), "by the formats"),
        ("cut by one", data[:-1], "by the formats"),
        ("cut in the head", data[:15], "by the formats"),
        ("cut before the head is over", data[:60], "by the formats"),
        ("zeros after it", data + bytes(20), "by the formats"),
        ("a few bytes after it", data + b"\xff" * 11, "by the formats"),
        ("itself, damaged, after it", data + broken(data), "corrupt" if magic < 2 and not codec else "by the formats"),
        ("itself, cut, after it", data + data[:-1], "by the formats"),
    ]
    return cases


def codec_bits(magic: int, codec: int) -> list[tuple[str, bytes]]:
    """Sets with another codec in their attributes, and a matching checksum."""
    data = made(magic, codec)
    found = []
    for claimed in range(8):
        if claimed == codec or (codec and not claimed and magic < 2):
            continue  # an uncompressed message may have any bytes
        why = f"codec {codec} declared as {claimed}"
        if magic == 2:
            found.append((why, bytes(header_changed(21, ">h", claimed, bytearray(data)))))
        elif codec:
            found.append((why, sealed(2, data[16:17] + bytes([claimed]) + data[18:])))
        else:
            found.append((why, message(0, None, b"neither", magic=magic, attributes=claimed)))
    return found


def inner_damages(magic: int, release: str) -> list[tuple[str, bytes, int]]:
    """Wrappers with a matching checksum around damaged messages."""
    bad = invalid(release)
    good = plain(magic=magic)
    payload = compression.compress(1, good, magic=magic)
    return [
        ("a CRC inside", wrapper(flipped(good, 13, 1), magic=magic, offset=2), CORRUPT),
        ("a byte inside", wrapper(broken(good), magic=magic, offset=2), CORRUPT),
        ("a length of 13 inside", wrapper(with_length(good, 13), magic=magic, offset=2), CORRUPT),
        ("a length of the end inside", wrapper(with_length(good, 2**31 - 1), magic=magic, offset=2), CORRUPT),
        ("a magic inside", wrapper(good[:16] + b"\x03" + good[17:], magic=magic, offset=2), bad),
        ("a cut set inside", wrapper(good[:-1], magic=magic, offset=2), CORRUPT),
        ("bytes after it inside", wrapper(good + bytes(30), magic=magic, offset=2), CORRUPT),
        ("nothing inside", wrapper(b"", magic=magic), bad),
        ("a wrapper inside", wrapper(wrapper(good, magic=magic, offset=2), magic=magic, offset=2), bad),
        ("codec bits inside", wrapper(message(magic=magic, attributes=1), magic=magic), bad),
        ("half of what was compressed", message(2, None, payload[: len(payload) // 2], magic=magic, attributes=1), -1),
        ("damaged after it was compressed", message(2, None, broken(payload, 12), magic=magic, attributes=1), -1),
        ("not compressed at all", message(2, None, good, magic=magic, attributes=3), -1),
        ("no value", message(2, None, None, magic=magic, attributes=2), bad),
    ]


@pytest.mark.parametrize("release", RELEASES)
async def test_chosen_damage_is_refused(release: str, tmp_path: Path, stride: int) -> None:
    async with playing(tmp_path, release, old_formats=release != "4.3") as played:
        await played.topic("t")
        checked = 0
        for magic in formats_of(release):
            for codec in taken(range(4), stride):
                for version in versions(played, magic):
                    for why, data, kind in fixed(magic, codec):
                        wanted = CORRUPT if kind == "corrupt" else expected(data, version, release)
                        assert await outcome(played, data, version, "t") == wanted, (why, magic, codec, version)
                        checked += 1
                    for why, data in codec_bits(magic, codec):
                        zstd = "declared as 4" in why and (
                            (magic == 2 and 3 <= version < 7) or not since(release, "2.1")
                        )
                        read_as_records = "declared as 0" in why or (magic < 2 and "declared as 4" in why)
                        wanted = ZSTD if zstd else invalid(release) if read_as_records else UNKNOWN
                        assert await outcome(played, data, version, "t") == wanted, (why, magic, version)
        assert checked > 60 // stride
        end = played.end()
        good = made(formats_of(release)[-1], 0)
        assert await outcome(played, good, played.newest, "t") == 0
        assert played.end() == end + 3 and [r.offset for r in played.records()] == list(range(end + 3))


@pytest.mark.parametrize("release", [name for name in RELEASES if name != "4.3"])
async def test_damage_in_wrappers_is_refused(release: str, tmp_path: Path) -> None:
    """In every format that the topic may store."""
    async with playing(tmp_path, release, old_formats=True) as played:
        version = min(2, played.newest)
        for target in range(newest_format(release) + 1):
            topic = f"v{target}"
            await played.topic(topic, target)
            for magic in range(min(newest_format(release), 1) + 1):
                for why, data, code in inner_damages(magic, release):
                    assert await outcome(played, data, version, topic) == code, (why, magic, target)
                assert await outcome(played, wrapper(plain(magic=magic), magic=magic, offset=2), version, topic) == 0
            count = 3 * (min(newest_format(release), 1) + 1)
            assert [record.offset for record in played.records(topic)] == list(range(count))


@pytest.mark.parametrize("release", ["2.3", "2.8", "3.9", "ottla"])
async def test_one_invalid_record_refuses_the_set(release: str, tmp_path: Path, stride: int) -> None:
    """Also in a large set that is converted in steps: the valid records before it are not written."""
    async with playing(tmp_path, release, old_formats=True) as played:
        for target in (0, 1, 2):
            await played.topic(f"v{target}", target)
        many = b"".join(message(index, timestamp=NOW) for index in range(6000))
        one = len(message(0))
        for target in taken((0, 1, 2), stride):
            topic = f"v{target}"
            for at in (one * 5999 + 30, one * 3000 + 13, one * 4000 + 12):
                assert await outcome(played, flipped(many, at, 1), 2, topic) == CORRUPT
            packed = wrapper(flipped(many, one * 5999 + 30, 1), offset=5999)
            assert await outcome(played, packed, 2, topic) == CORRUPT
            assert await outcome(played, broken(wrapper(many, offset=5999)), 2, topic) == CORRUPT
            if target == 2:
                records = [batch.Record(index, NOW, b"k", b"v") for index in range(6000)]
                for codec in (0, 1):
                    data = bytes(batch.build(records, codec=codec))
                    assert await outcome(played, broken(data), played.newest, topic) == CORRUPT
                    short = header_changed(57, ">i", 5999, header_changed(23, ">i", 5998, bytearray(data)))
                    assert await outcome(played, short, played.newest, topic) == invalid(release)
            assert await outcome(played, many, 2, topic) == 0
            assert played.end(topic) == 6000
