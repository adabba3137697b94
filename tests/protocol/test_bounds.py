"""Hostile bytes: every message and version, with each length wrong, cut everywhere, tags out of order, too many
items."""

from __future__ import annotations

import random
import time
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest

from ottla.protocol import schema
from ottla.protocol.compiler import EXPLAINED_ITEMS, build, parse, parser, reader
from ottla.protocol.errors import MalformedMessage
from ottla.protocol.layouts import Group, struct_of
from ottla.protocol.messages.groups.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.groups.offset_fetch import OffsetFetchRequest
from ottla.protocol.messages.topics.create_partitions import CreatePartitionsRequest
from ottla.protocol.messages.topics.metadata import MetadataRequest
from ottla.protocol.messages.transactions.init_producer_id import InitProducerIdRequest
from ottla.protocol.primitives import ITEMS_MAX, TEXT_BYTES_MAX, varint_bytes
from ottla_testing.each import each
from ottla_testing.protocol.hostile import bad_texts, crowded, sample, written, wrong_lengths
from ottla_testing.protocol.messages import MESSAGES
from ottla_testing.protocol.values import random_value

NAMES = sorted(MESSAGES)


def layouts(name: str) -> list[tuple[int, Group]]:
    return [(v, struct_of(MESSAGES[name], v)) for v in schema.spec(MESSAGES[name]).versions.range()]


def assert_malformed(name: str, version: int, data: bytes | bytearray) -> str:
    """Asserts that parsing raises MalformedMessage quickly, with a text that begins with the path of a field."""
    begun = time.process_time()
    try:
        value = parse(MESSAGES[name], version, data)
    except MalformedMessage as error:
        assert time.process_time() - begun < 2
        assert str(error).startswith(MESSAGES[name].__name__)
        return str(error)
    raise AssertionError(f"{name} v{version} reads {bytes(data[:200]).hex()} as {value!r:.300}")


@each("name", NAMES)
def test_truncated_message_is_malformed(name: str) -> None:
    for version, layout in layouts(name):
        whole = build(sample(layout, True), version)
        assert parse(MESSAGES[name], version, whole) == sample(layout, True)
        for end in range(len(whole)):
            assert_malformed(name, version, whole[:end])
        assert "1 bytes left over" in assert_malformed(name, version, whole + b"\0")
        assert parser(MESSAGES[name], version)(whole + b"\0") == sample(layout, True)
        assert reader(MESSAGES[name], version)(b"\1" + whole + bytes(1024), 1) == (sample(layout, True), len(whole) + 1)


@each("name", NAMES)
def test_impossible_length_is_malformed(name: str) -> None:
    for version, layout in layouts(name):
        for frame in wrong_lengths(layout):
            assert_malformed(name, version, frame)


@each("name", NAMES)
def test_text_that_is_not_utf8_is_malformed(name: str) -> None:
    for version, layout in layouts(name):
        for frame in bad_texts(layout):
            assert "UTF-8" in assert_malformed(name, version, frame)


@each("name", NAMES)
def test_unknown_tags_are_skipped_and_unordered_tags_are_malformed(name: str) -> None:
    for version, layout in layouts(name):
        if layout.tags is None:
            continue
        empty = build(sample(layout, False), version)
        assert empty[-1] == 0, version  # no tagged fields
        unknown = [varint_bytes(tag) + b"\x03xyz" for tag in (50, 10191, (1 << 31) - 1)]
        body, known = empty[:-1], sample(layout, False)
        assert parse(MESSAGES[name], version, body + b"\x03" + b"".join(unknown)) == known, version
        assert parse(MESSAGES[name], version, body + b"\x01" + b"\x32\x00") == known, version
        for bad in (
            b"\x02" + unknown[0] * 2,
            b"\x02" + unknown[1] + unknown[0],
            b"\x02" + unknown[0],
            b"\x01" + b"\x32\x04xyz",
            b"\x01" + b"\x32\xff\xff\xff\xff\x07xyz",
            b"\x01" + b"\xff\xff\xff\xff\x0f\x00",
            b"\xff\xff\xff\xff\x07",
            b"\xff" * 200_000,
        ):
            assert_malformed(name, version, body + bad)
        for tag, (_, codec) in layout.tags.items():
            item = written(codec, sample(codec, True))
            good = b"\x01" + varint_bytes(tag) + varint_bytes(len(item)) + item
            parse(MESSAGES[name], version, body + good)
            assert_malformed(
                name, version, body + b"\x01" + varint_bytes(tag) + varint_bytes(len(item) + 1) + item + b"\0"
            )
            if item:
                assert_malformed(name, version, body + b"\x01" + varint_bytes(tag) + varint_bytes(len(item) - 1) + item)


@pytest.mark.soak
@each("name", NAMES)
def test_damaged_bytes_are_read_or_malformed(name: str, scaled: Callable[[int], int]) -> None:
    source = random.Random()
    for version, layout in layouts(name):
        for _ in range(scaled(20)):
            data = bytearray(build(random_value(layout, source, 2), version))
            for _ in range(source.randint(1, 3)):
                position = source.randrange(len(data) + 1)
                data[position : position + source.randrange(4)] = source.choice(
                    [b"", b"\xff", b"\xff" * 5, b"\x7f\xff\xff\xff", b"\xff\xff\xff\xfe", b"\0\0", source.randbytes(2)]
                )
            try:
                value: Any = parse(MESSAGES[name], version, data)
            except MalformedMessage as error:
                assert str(error).startswith(MESSAGES[name].__name__), data.hex()
            else:  # a parsed value can be written, unless a text exceeds its former bound
                assert parse(MESSAGES[name], version, build(value, version)) is not None


AMPLIFICATION_MAX = 60
"""The most bytes of Python objects per byte of a frame. The worst measured is 52: CreatePartitions v2, whose array of
assignments has items of two bytes, each an object and a list of 104 bytes. ITEMS_MAX bounds the sum."""


@pytest.mark.parametrize("name", NAMES)
def test_memory_is_proportional_to_the_frame(name: str) -> None:
    for version, layout in layouts(name):
        for value in crowded(layout, 100):
            frame = build(value, version)
            parse(MESSAGES[name], version, frame)  # compiles the parser
            tracemalloc.start()
            try:
                parse(MESSAGES[name], version, frame)
                peak = tracemalloc.get_traced_memory()[1]
            finally:
                tracemalloc.stop()
            assert peak < AMPLIFICATION_MAX * len(frame) + 2048, (version, peak, len(frame))


def test_too_many_items_are_refused_before_memory_is_allocated() -> None:
    topics = MetadataRequest(topics=[])
    head, tail = build(topics, 13).split(b"\x01", 1)
    too_many = head + varint_bytes(ITEMS_MAX + 2) + b"\x01" * (19 * (ITEMS_MAX + 1)) + tail
    tracemalloc.start()
    try:
        error = assert_malformed("MetadataRequest", 13, too_many)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert f"more than {ITEMS_MAX} items" in error
    assert peak < 3 * len(too_many)


def test_item_limit_counts_all_arrays_and_tags_and_half_for_numbers() -> None:
    """Many arrays, none of which is too long by itself."""
    group = OffsetFetchRequest.OffsetFetchRequestGroup  # type: ignore[attr-defined]
    topic = group.OffsetFetchRequestTopics
    numbers = [0] * (ITEMS_MAX // 2)

    def request(topics: int) -> bytes:
        many = [topic(name="", partition_indexes=numbers) for _ in range(topics)]
        return build(OffsetFetchRequest(groups=[group(group_id="g", topics=many)], require_stable=False), 8)

    parse(OffsetFetchRequest, 8, request(3))
    with pytest.raises(MalformedMessage, match="items"):
        parse(OffsetFetchRequest, 8, request(4))
    tags = b"".join(varint_bytes(tag) + b"\0" for tag in range(100, 101 + ITEMS_MAX))
    body = build(MetadataRequest(topics=[]), 13)[:-1]
    assert "items" in assert_malformed("MetadataRequest", 13, body + varint_bytes(ITEMS_MAX + 1) + tags)


def test_search_for_the_invalid_field_ends_early_in_a_large_frame() -> None:
    """The readable parser is some twenty times slower: it must not parse megabytes of items for the text of an
    error."""
    kind = CreatePartitionsRequest.CreatePartitionsTopic  # type: ignore[attr-defined]
    assignment = kind.CreatePartitionsAssignment
    topic = kind(name="t", count=1, assignments=[assignment(broker_ids=[])] * (EXPLAINED_ITEMS + 5))
    frame = build(CreatePartitionsRequest(topics=[topic], timeout_ms=1, validate_only=False), 3)
    error = assert_malformed("CreatePartitionsRequest", 3, frame[:-1])
    place = f"CreatePartitionsRequest.topics[0].assignments[{EXPLAINED_ITEMS - 1}]"
    assert error == f"{place} or after it: index out of range"


@pytest.mark.parametrize(
    ("name", "fault"),
    [("\ud800", "UTF-8"), ("x" * 32768, "32767"), (None, "null"), (7, "MetadataRequest"), (b"x", "MetadataRequest")],
)
def test_error_for_an_unencodable_value_has_its_field(name: Any, fault: str) -> None:
    topic: Any = MetadataRequest.MetadataRequestTopic  # type: ignore[attr-defined]
    with pytest.raises(MalformedMessage, match=fault) as caught:
        build(MetadataRequest(topics=[topic(name="good"), topic(name=name)]), 1)
    if isinstance(name, str | None):
        assert str(caught.value).startswith("MetadataRequest.topics[1].name: ")


LONG_TEXTS = [
    (InitProducerIdRequest, {"transaction_timeout_ms": 1}, "transactional_id", range(0, 7)),
    (FindCoordinatorRequest, {}, "key", range(0, 4)),
]


@pytest.mark.parametrize(("message", "more", "field", "versions"), LONG_TEXTS)
def test_string_longer_than_kafka_allows_is_malformed_in_every_version(
    message: type, more: dict[str, Any], field: str, versions: range
) -> None:
    """The compact length could be larger than int16, but Kafka accepts 32,767 bytes at the most."""
    text = "\u00e9" * (TEXT_BYTES_MAX // 2) + "x"
    for version in versions:
        longest = build(message(**more, **{field: text}), version)
        assert getattr(parse(message, version, longest), field) == text
        with pytest.raises(MalformedMessage, match=field):
            build(message(**more, **{field: text + "x"}), version)
        with pytest.raises(MalformedMessage, match=field):
            struct_of(message, version).build(message(**more, **{field: text + "x"}))
        if version not in schema.spec(message).flexible:
            continue
        declared, one_more = varint_bytes(TEXT_BYTES_MAX + 1), varint_bytes(TEXT_BYTES_MAX + 2)
        longer = longest.replace(declared + text.encode(), one_more + text.encode() + b"x")
        assert len(longer) == len(longest) + 1
        assert field in assert_malformed(message.__qualname__, version, longer)
