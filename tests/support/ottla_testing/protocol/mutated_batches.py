"""Records of Produce requests, damaged by a seeded generator: message formats v0, v1 and v2, all codecs, every field of
the headers and of the records; the CRC mostly matches the damage. Some requests have a transactional id, some a second
partition with a sound batch.

Only the damage is made here: `tests/interop/refused_batches.py` sends the batches to Apache Kafka and to Ottla,
`records/test_refused_batches.py` compares the recorded responses.
"""

from __future__ import annotations

import random
import struct
import zlib
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

from crc32c import crc32c

from ottla.protocol.records.compression import compress

HOUR_MS = 3_600_000
INT32_MIN, INT32_MAX = -(2**31), 2**31 - 1
INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
# By topic: its configs. Each has another path through the broker's validation.
TOPICS: dict[str, dict[str, str]] = {
    "plain": {},
    "append": {"message.timestamp.type": "LogAppendTime"},
    "compact": {"cleanup.policy": "compact"},
    "gzip": {"compression.type": "gzip"},
    "uncompressed": {"compression.type": "uncompressed"},
}
_V2 = struct.Struct(">qiibIhiqqqhii")
_BROKEN = (b"", b"\x00", b"\x80", b"\xff", b"\x80" * 5 + b"\x00", b"\xff" * 10, b"\x80" * 10 + b"\x01", b"\x01")


class Case(NamedTuple):
    """A Produce request of `version` for partition 0 of `topic`; `damage` describes the damage to its records."""

    topic: str
    version: int
    records: bytes
    damage: tuple[str, ...]
    transactional_id: str | None = None
    beside: Literal["", "before", "after"] = ""
    """The position of partition 1 in the request, which gets the sound batch that `sound` returns."""


def zigzag(value: int, width: int = 0) -> bytes:
    """Returns a varint of at least `width` bytes: a wider one than needed has the same value."""
    rest = (value << 1) ^ (value >> 63)
    out = bytearray()
    while rest > 127 or len(out) + 1 < width:
        out.append(rest & 127 | 128)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def _blob(data: bytes | None, length: int | None = None, width: int = 0) -> bytes:
    if data is None:
        return zigzag(-1 if length is None else length, width)
    return zigzag(len(data) if length is None else length, width) + data


# Format v2


def _record(fields: dict[str, Any]) -> bytes:
    width = fields.get("width", 0)
    body = struct.pack(">b", fields["attributes"])
    body += zigzag(fields["timestamp"], fields.get("timestamp_width", 0)) + zigzag(fields["offset"], width)
    body += _blob(fields["key"], fields.get("key_length"), fields.get("key_width", 0))
    body += _blob(fields["value"], fields.get("value_length"), fields.get("value_width", 0))
    headers = fields["headers"]
    body += zigzag(fields.get("header_count", len(headers)), fields.get("header_width", 0))
    for header in headers:
        body += _blob(header["key"], header.get("key_length")) + _blob(header["value"], header.get("value_length"))
    if "broken" in fields:  # an invalid varint, anywhere
        place, varint = fields["broken"]
        place = min(place, len(body))
        body = body[:place] + varint + body[place + 1 :]
    body += fields.get("tail", b"")
    if "cut" in fields:
        body = body[: -fields["cut"]]
    return zigzag(fields.get("length", len(body)), fields.get("length_width", 0)) + body


def _whole_record(source: random.Random, index: int) -> dict[str, Any]:
    headers = []
    if source.random() < 0.3:
        for _ in range(source.choice((1, 1, 2, 3, 20))):
            value = source.choice((None, b"", b"v" * source.choice((1, 63, 64, 200))))
            headers.append({"key": b"h" * source.choice((0, 1, 5, 64, 150)), "value": value})
    return {
        "attributes": 0,
        "timestamp": index * source.choice((0, 1, 40, 100, 9000)) - source.choice((0, 0, 0, 3, 5000)),
        "offset": index,
        "key": source.choice((None, b"", b"key", b"k" * 63, b"k" * 64, b"k" * 300)),
        "value": source.choice((None, b"", b"value", b"v" * 63, b"v" * 64, b"v" * 1000, b"v" * 9000)),
        "headers": headers,
    }


Batch = dict[str, Any]


def _batch(source: random.Random, now_ms: int) -> Batch:
    count = source.choice((1, 1, 2, 3, 3, 5, 70, 140))
    records = [_whole_record(source, index) for index in range(count)]
    if count > 10:
        for record in records:
            record["value"] = (record["value"] or b"")[:64]
    return {
        "base_offset": 0,
        "leader_epoch": source.choice((-1, 0, 7)),
        "magic": 2,
        "codec": source.choice((0, 0, 0, 1, 2, 3, 4)),
        "attributes": 0,
        "base_timestamp": now_ms - source.choice((0, 1000, 86_400_000)),
        "max_timestamp": now_ms,
        "producer_id": -1,
        "producer_epoch": -1,
        "base_sequence": -1,
        "records": records,
    }


def _sealed(batch: Batch) -> bytes:
    records = b"".join(map(_record, batch["records"])) + batch.get("tail", b"")
    if "cut" in batch:
        records = records[: -batch["cut"]]
    if batch["codec"]:
        records = compress(batch["codec"], records)
    if "packed" in batch:
        records = batch["packed"](records)
    count = batch.get("record_count", len(batch["records"]))
    body = struct.pack(
        ">hiqqqhii",
        batch["attributes"] | batch.get("codec_bits", batch["codec"]),
        batch.get("last_offset_delta", len(batch["records"]) - 1),
        batch["base_timestamp"],
        batch["max_timestamp"],
        batch["producer_id"],
        batch["producer_epoch"],
        batch["base_sequence"],
        count,
    )
    body += records
    crc = crc32c(body) ^ batch.get("crc", 0)
    length = batch.get("length", len(body) + 9)
    head = struct.pack(">qiibI", batch["base_offset"], length, batch["leader_epoch"], batch["magic"], crc)
    return head + body + batch.get("behind", b"")


def _any_record(source: random.Random, batch: Batch) -> dict[str, Any]:
    return source.choice(batch["records"])


def _headers_of(source: random.Random, batch: Batch) -> dict[str, Any]:
    """Returns a record's header, which is made if there is none."""
    record = _any_record(source, batch)
    if not record["headers"]:
        record["headers"] = [{"key": b"h", "value": b"v"}, {"key": b"i", "value": None}]
    return source.choice(record["headers"])


_LENGTHS = (-1, -2, -100, INT32_MIN, 0, 1, 5, 63, 64, 100, 8191, 8192, 1 << 20, INT32_MAX)
# From 2^31 - 12 on, the length of a batch plus the 12 bytes before it are negative in 32 bits.
_NEAR_MAX = (INT32_MAX, INT32_MAX - 1, INT32_MAX - 11, INT32_MAX - 12, INT32_MAX - 13)
_TIMES = (-1, -2, -1000, INT64_MIN, INT64_MIN + 1, 0, 1, INT64_MAX, INT64_MAX - 1)


def _set(name: str, *values: Any) -> Callable[[random.Random, Batch], None]:
    def damage(source: random.Random, batch: Batch) -> None:
        batch[name] = source.choice(values)

    return damage


def _of_record(name: str, *values: Any) -> Callable[[random.Random, Batch], None]:
    def damage(source: random.Random, batch: Batch) -> None:
        _any_record(source, batch)[name] = source.choice(values)

    return damage


def _of_header(name: str, *values: Any) -> Callable[[random.Random, Batch], None]:
    def damage(source: random.Random, batch: Batch) -> None:
        _headers_of(source, batch)[name] = source.choice(values)

    return damage


def _shifted(name: str) -> Callable[[random.Random, Batch], None]:
    """Returns a length slightly different from the right one."""

    def damage(source: random.Random, batch: Batch) -> None:
        record = _any_record(source, batch)
        if name == "length":
            right = len(_record({key: value for key, value in record.items() if key != "length"}))
            right -= len(zigzag(right - 1)) if right > 64 else 1
        elif name == "header_count":
            right = len(record["headers"])
        else:
            right = len(record[name.removesuffix("_length")] or b"")
        record[name] = right + source.choice((-2, -1, 1, 2, 3))

    return damage


def _times(source: random.Random, batch: Batch) -> None:
    """Sets a different timestamp, by its delta or by the base."""
    record = _any_record(source, batch)
    target = source.choice((*_TIMES, batch["base_timestamp"] + 2 * HOUR_MS, batch["base_timestamp"] - 2 * HOUR_MS))
    target = min(max(target, INT64_MIN), INT64_MAX)  # if the timestamps were changed before
    if source.random() < 0.5:
        delta = target - batch["base_timestamp"]
        record["timestamp"] = delta if INT64_MIN <= delta <= INT64_MAX else target
    else:
        batch["base_timestamp"] = target
        if source.random() < 0.7:
            for one in batch["records"]:
                one["timestamp"] = source.choice((0, 0, 1))


def _wrong_offsets(source: random.Random, batch: Batch) -> None:
    for record in batch["records"]:
        if source.random() < 0.5:
            record["offset"] = source.choice((0, -1, 5, INT32_MAX, INT32_MIN, min(record["offset"], 999) + 1))


def _other_order(source: random.Random, batch: Batch) -> None:
    for record, offset in zip(batch["records"], range(len(batch["records"]), 0, -1), strict=True):
        record["offset"] = offset - 1


def _producer(source: random.Random, batch: Batch) -> None:
    """Sets a producer id of its own, so that there is no state of it."""
    batch["producer_id"] = source.choice((source.randrange(10**6, INT64_MAX), source.randrange(10**6, 10**9), -2, -5))
    batch["producer_epoch"] = source.choice((0, 0, 0, 3, -1, -2, 32767))
    batch["base_sequence"] = source.choice((0, 0, 0, -1, -2, INT32_MIN, 5, INT32_MAX))


def _transactional(source: random.Random, batch: Batch) -> None:
    batch["attributes"] |= 0x10
    if source.random() < 0.5:
        _producer(source, batch)


def _control(source: random.Random, batch: Batch) -> None:
    batch["attributes"] |= source.choice((0x20, 0x30))
    if source.random() < 0.5:
        _producer(source, batch)


def _packed(source: random.Random, batch: Batch) -> None:
    """Damages the compressed bytes."""
    place, kind, byte = (
        source.random(),
        source.choice(("flip", "flip", "flip", "cut", "more")),
        source.randrange(1, 256),
    )
    size = source.choice((1, 2, 5, 30))

    def damage(data: bytes) -> bytes:
        if kind == "cut":
            return data[: max(0, len(data) - size)]
        if kind == "more":
            return data + bytes([byte]) * size
        at = int(place * len(data))
        return data[:at] + bytes([data[at] ^ byte]) + data[at + 1 :] if data else data

    batch["packed"] = damage
    batch["codec"] = batch["codec"] or source.choice((1, 2, 3, 4))


def _trailing_bytes(source: random.Random, batch: Batch) -> None:
    length = struct.pack(">qi", 0, source.choice(_NEAR_MAX))
    batch["behind"] = source.choice(
        (b"\0", bytes(11), bytes(12), bytes(16), bytes(17), bytes(80), length, length + bytes(4), length + bytes(5))
    )


def _broken(source: random.Random, batch: Batch) -> None:
    _any_record(source, batch)["broken"] = source.randrange(12), source.choice(_BROKEN)


def _null_header_key(source: random.Random, batch: Batch) -> None:
    header = _headers_of(source, batch)
    header["key"], header["key_length"] = None, source.choice((-1, -1, -2, INT32_MIN))


def _wide(source: random.Random, batch: Batch) -> None:
    """Returns varints of more bytes than needed, with the same value."""
    names = ("width", "timestamp_width", "key_width", "value_width", "header_width", "length_width")
    record = _any_record(source, batch)
    for name in source.sample(names, source.choice((1, 1, 2, 6))):
        record[name] = source.choice((2, 3, 4, 5, 6))


def _record_bits(source: random.Random, batch: Batch) -> None:
    for record in batch["records"]:
        record["attributes"] = source.choice((1, 2, 7, 8, 0x10, 0x20, -1, -128))


def _keys(source: random.Random, batch: Batch) -> None:
    for record in batch["records"]:
        if source.random() < 0.7:
            record["key"] = source.choice((None, b"k"))


DAMAGE_V2: dict[str, tuple[float, Callable[[random.Random, Batch], None]]] = {
    "nothing": (2, lambda source, batch: None),
    "base offset": (1, _set("base_offset", 1, -1, INT64_MIN, INT64_MAX, 100)),
    "length": (2, _set("length", -1, 0, 13, 14, 20, 48, 49, 60, 100, 1 << 20, *_NEAR_MAX, INT32_MIN)),
    "magic": (1, _set("magic", 0, 1, 3, -1, 127)),
    "crc": (1, _set("crc", 1, 0x80000000)),
    "codec bits": (1, _set("codec_bits", 0, 1, 2, 3, 4, 5, 6, 7)),
    "control": (2, _control),
    "append time": (1, _set("attributes", 0x08)),
    "delete horizon": (1, _set("attributes", 0x40, 0x48)),
    "unused bits": (1, _set("attributes", 0x80, 0x100, 0x4000, -0x8000)),
    "transactional": (1, _transactional),
    "last offset delta": (2, _set("last_offset_delta", -1, -2, 0, 1, 2, 4, 7, INT32_MAX, INT32_MIN)),
    "max timestamp": (1, _set("max_timestamp", *_TIMES)),
    "producer": (2, _producer),
    "record count": (2, _set("record_count", -1, 0, 1, 2, 4, 7, 100, INT32_MAX, INT32_MIN)),
    "count and delta": (1, lambda s, b: b.update(_both_counts(s))),
    "times": (3, _times),
    "records' bits": (0.5, _record_bits),
    "offsets": (2, _wrong_offsets),
    "other order": (0.5, _other_order),
    "record length": (2, _of_record("length", *_LENGTHS)),
    "record length by little": (2, _shifted("length")),
    "key length": (2, _of_record("key_length", *_LENGTHS)),
    "key length by little": (1, _shifted("key_length")),
    "value length": (2, _of_record("value_length", *_LENGTHS)),
    "value length by little": (1, _shifted("value_length")),
    "header count": (3, _of_record("header_count", *_LENGTHS)),
    "header count by little": (1, _shifted("header_count")),
    "header key length": (2, _of_header("key_length", *_LENGTHS)),
    "header value length": (2, _of_header("value_length", *_LENGTHS)),
    "null header key": (2, _null_header_key),
    "record tail": (1, _of_record("tail", b"\0", b"\1", b"\0" * 7, b"xyz")),
    "record cut": (1, _of_record("cut", 1, 2, 5)),
    "broken varint": (2, _broken),
    "wide varints": (2, _wide),
    "tail": (1, _set("tail", b"\0", b"\x0c" + bytes(6), b"tail")),
    "cut": (1, _set("cut", 1, 2, 6, 20)),
    "keys": (1, _keys),
    "trailing bytes": (2, _trailing_bytes),
    "compressed bytes": (2, _packed),
}


def _both_counts(source: random.Random) -> Batch:
    count = source.choice((-1, 0, 1, 2, 4, 7, INT32_MIN, INT32_MAX))
    return {"record_count": count, "last_offset_delta": max(count - 1, INT32_MIN)}


_NAMES = list(DAMAGE_V2)
_WEIGHTS = [weight for weight, _ in DAMAGE_V2.values()]


def _v2(source: random.Random, now_ms: int) -> tuple[bytes, tuple[str, ...]]:
    batch = _batch(source, now_ms)
    names = tuple(source.choices(_NAMES, _WEIGHTS, k=source.choice((1, 1, 1, 2))))
    for name in names:
        DAMAGE_V2[name][1](source, batch)
    return _sealed(batch), names


# Formats v0 and v1


def _message(source: random.Random, magic: int, offset: int, now_ms: int, damages: list[str]) -> bytes:
    key = source.choice((None, b"", b"key", b"k" * 200))
    value = source.choice((None, b"", b"value", b"v" * 1000))
    return _sealed_message(source, magic, offset, now_ms, key, value, 0, damages)


def _sealed_message(
    source: random.Random,
    magic: int,
    offset: int,
    now_ms: int,
    key: bytes | None,
    value: bytes | None,
    attributes: int,
    damages: list[str],
) -> bytes:
    damage = source.choice(OLD_DAMAGE) if source.random() < 0.25 else ""
    if damage:
        damages.append(damage)
    timestamp = now_ms - source.choice((0, 0, 1000, 86_400_000))
    if damage == "timestamp":
        timestamp = source.choice((*_TIMES, now_ms + 2 * HOUR_MS))
    if damage == "attributes":
        attributes |= source.choice((1, 2, 3, 4, 5, 6, 7, 8, 0x10, 0x20, 0x80))
    if damage == "offset":
        offset = source.choice((0, 1, 7, -1, INT64_MAX, INT64_MIN, offset + 1))
    if damage == "magic":
        magic = source.choice((0, 1, 2, 3, -1))
    sizes = [-1 if part is None else len(part) for part in (key, value)]
    if damage == "key length":
        sizes[0] = source.choice(_LENGTHS)
    if damage == "value length":
        sizes[1] = source.choice(_LENGTHS)
    body = struct.pack(">bB", magic, attributes)
    if magic >= 1:
        body += struct.pack(">q", timestamp)
    for size, part in zip(sizes, (key, value), strict=True):
        body += struct.pack(">i", size) + (part or b"")
    if damage == "tail":
        body += source.choice((b"\0", b"tail"))
    if damage == "cut":
        body = body[: -source.choice((1, 4))]
    crc = zlib.crc32(body) ^ (1 if damage == "crc" else 0)
    length = len(body) + 4
    if damage == "length":
        length = source.choice((-1, 0, 13, 14, length - 1, length + 1, *_NEAR_MAX))
    return struct.pack(">qiI", offset, length, crc) + body


OLD_DAMAGE = [
    "timestamp",
    "attributes",
    "offset",
    "magic",
    "key length",
    "value length",
    "tail",
    "cut",
    "crc",
    "length",
]


def _old(source: random.Random, now_ms: int) -> tuple[bytes, tuple[str, ...]]:
    magic = source.choice((0, 1, 1))
    damages: list[str] = []
    first = source.choice((0, 0, 0, 5))
    count = source.choice((1, 1, 2, 3))
    inner = b"".join(_message(source, magic, first + index, now_ms, damages) for index in range(count))
    codec = source.choice((0, 0, 1, 2, 3, 4))
    if not codec:
        return inner, tuple(damages)
    packed = compress(min(codec, 3) if codec < 4 else 4, inner, magic=magic if codec < 4 else 2)
    if source.random() < 0.1:
        damages.append("compressed bytes")
        packed = source.choice((packed[:-1], packed + b"\0", b"", packed[:10] + b"\xaa" + packed[11:]))
    last = source.choice((first + count - 1, first + count - 1, 0, count - 1, 100))
    outer = _sealed_message(source, magic, last, now_ms, None, packed, codec, damages)
    if source.random() < 0.1:
        damages.append("two wrappers")
        outer += outer
    return outer, tuple(damages)


def sound(now_ms: int) -> bytes:
    """Returns a batch that no topic and no release refuses."""
    return _sealed(
        {
            "base_offset": 0,
            "leader_epoch": -1,
            "magic": 2,
            "codec": 0,
            "attributes": 0,
            "base_timestamp": now_ms,
            "max_timestamp": now_ms,
            "producer_id": -1,
            "producer_epoch": -1,
            "base_sequence": -1,
            "records": [
                {"attributes": 0, "timestamp": 0, "offset": 0, "key": b"sound", "value": b"record", "headers": []}
            ],
        }
    )


def cases(seed: int, count: int, now_ms: int, *, old: bool) -> list[Case]:
    """Yields `count` cases; with `old`, formats v0 and v1 are among them, in Produce v0 to v2."""
    source = random.Random(seed)
    return [_case(source, now_ms, old) for _ in range(count)]


def _case(source: random.Random, now_ms: int, old: bool) -> Case:
    topic = source.choice(list(TOPICS) + ["plain"] * 3)
    if old and source.random() < 0.35:
        records, damage = _old(source, now_ms)
        version = source.choice((0, 1, 2, 2, 2, 3))
    else:
        records, damage = _v2(source, now_ms)
        version = source.choice((2, 3, 6, 7, 8, 8, 9) if old else (3, 6, 7, 8, 8, 9))
    # Produce v0-v2 have no field for it. No coordinator has the id.
    transactional_id = "transactional-id" if version >= 3 and source.random() < 0.2 else None
    beside: Any = source.choice(("before", "after")) if source.random() < 0.25 else ""
    return Case(topic, version, records, damage, transactional_id, beside)
