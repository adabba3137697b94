"""The response of each release to Produce, over the wire: splitting, limits, and the rules of requests, batches and
records.

Covers every refusal of Kafka's releases with its code. Stored formats are tested in `test_produce_stored.py`, damage in
`test_produce_damage.py`.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.config.values import Config
from ottla.broker.errors import ConfigError
from ottla.broker.releases.profiles import profile
from ottla.protocol.messages.records.produce import ProduceRequest
from ottla.protocol.messages.topics.create_topics import CreateTopicsRequest
from ottla.protocol.records import batch
from ottla.protocol.records.batch import Record
from ottla.protocol.schema import spec
from ottla_testing.broker.harness import Client, Closed, new_topic, produce
from ottla_testing.broker.producing import (
    FAMILIES,
    HOUR,
    NOW,
    SAMPLE,
    WITH_BATCHES,
    WITH_BOTH,
    WITH_OLD,
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
from ottla_testing.each import each
from ottla_testing.protocol.batches import batch_of

CORRUPT, TOO_LARGE, LIST_TOO_LARGE, TIMES, FORMAT, CODEC = 2, 10, 18, 32, 43, 76
INVALID_CONFIG = 40
Configured = CreateTopicsRequest.CreatableTopic.CreatableTopicConfig
PRODUCER: dict[str, Any] = {"producer_id": 9, "producer_epoch": 0, "base_sequence": 0}
V0, V1, V2 = message(magic=0), message(magic=1), bytes(batch.build(SAMPLE[:1]))


def old(release: str) -> bytes:
    """One message in the newest old format of the release."""
    return message(magic=min(newest_format(release), 1))


def batch_versions(played: Played) -> list[int]:
    """Some versions of Produce with batches: the first, the newest, and those around changes."""
    return [version for version in (3, 6, 7, played.newest) if 3 <= version <= played.newest]


# ---- splitting a set


@pytest.mark.parametrize("release", WITH_OLD)
async def test_empty_set_has_no_offset_and_no_error(release: str, tmp_path: Path) -> None:
    """Produce v0-v2 without a set, or with one whose only message is cut; Kafka 2.1 to 2.7 fail while they parse it."""
    async with playing(tmp_path, release) as played:
        topics = ["t"]
        await played.topic("t")
        if since(release, "0.10.0"):
            await played.topic("appended", message_timestamp_type="LogAppendTime")
            topics.append("appended")
        for topic in topics:
            for version in range(min(2, played.newest) + 1):
                cut = [one[:end] for one in (V0, V1, V2) for end in (11, 16, len(one) - 1)]
                for data in (None, b"", *cut):
                    if closes_for_unreadable(release):
                        assert await played.code(data, version, topic) is None
                        continue
                    response = await played.send(data, version, topic)
                    assert (response.error_code, response.base_offset, response.log_append_time_ms) == (0, -1, -1)
                if closes_for_unreadable(release):
                    continue
                response = await played.send(b"", version, topic, acks=1)
                assert (response.error_code, response.base_offset) == (0, -1)
            assert (played.end(topic), played.stored(topic)) == (0, b"")
        # No connection closes, not even with acks=0; whole entries before the cut are appended.
        client = await played.broker.client()
        if not closes_for_unreadable(release):
            await client.send(produce(None, acks=0), 0)
        newest = min(2, played.newest)
        response = await played.send(old(release) + old(release)[:-1], newest)
        assert (response.error_code, response.base_offset, played.end()) == (0, 0, 1)
        if not closes_for_unreadable(release):
            await client.send(produce(b"", acks=0), newest)
        assert (await client.call(produce(old(release)), 0)).responses[0].partition_responses[0].base_offset == 1


UNSPLITTABLE: list[tuple[str, bytes]] = [
    ("a size of 13", struct.pack(">qi", 0, 13) + bytes(40)),
    ("a size below 0", struct.pack(">qi", 0, -1) + bytes(40)),
    ("a size of 13, cut", struct.pack(">qi", 0, 13)),
    ("magic 3", V1[:16] + b"\x03" + V1[17:]),
    ("magic -1", V1[:16] + b"\xff" + V1[17:]),
    ("magic 3 of a cut entry", V1[:16] + b"\x03"),
]
DAMAGED: list[tuple[str, bytes]] = [
    ("v0, wrong CRC", broken(V0)),
    ("v1, wrong CRC", broken(V1)),
    ("v2, wrong CRC", broken(V2)),
    ("v0 wrapper, wrong CRC", broken(made(0, 1))),
    ("v1 wrapper, wrong CRC", broken(made(1, 1))),
    ("the second message has a wrong CRC", V1 + broken(V1)),
    ("the second has a size of 13", V1 + struct.pack(">qi", 0, 13) + bytes(40)),
    ("the second has magic 3", V1 + V1[:16] + b"\x03" + V1[17:]),
]


@each("release", FAMILIES)
async def test_malformed_sets_are_corrupt(release: str, tmp_path: Path) -> None:
    """Up to 2.0 the sets of Produce v3 and later, up to 2.7 the first batch of any, are parsed with the request: there
    such a set closes the connection.
    """
    async with playing(tmp_path, release) as played:
        await played.topic()
        for why, data in UNSPLITTABLE:
            closes = closes_for_unreadable(release)
            if release in WITH_OLD:
                assert await played.code(data, min(2, played.newest)) == (None if closes else CORRUPT), why
            for version in batch_versions(played):
                assert await played.code(data, version) == (CORRUPT if since(release, "2.8") else None), why
                if since(release, "2.1"):
                    assert (await played.send(V2 + data[:12] + data[12:], version)).error_code == CORRUPT, why
        for why, data in DAMAGED:
            if release in WITH_OLD:
                assert await played.code(data, min(2, played.newest)) == CORRUPT, why
        for version in batch_versions(played):
            assert await played.code(broken(V2), version) == CORRUPT


# ---- limits


@each("release", FAMILIES)
async def test_default_limit_of_a_batch(release: str, tmp_path: Path) -> None:
    """1000012 bytes, and 1048588 since 2.5; checked before the CRC."""
    largest = 1_048_588 if since(release, "2.5") else 1_000_012
    async with playing(tmp_path, release) as played:
        await played.topic()
        version = played.newest
        if version < 3:
            magic = newest_format(release)
            exact = message(value=bytes(largest - len(message(value=b"", magic=magic))), magic=magic)
            above = message(value=bytes(largest - len(message(value=b"", magic=magic)) + 1), magic=magic)
        else:
            room = largest - len(batch.build([Record(0, NOW, None, bytes(1 << 19))])) + (1 << 19)
            exact = bytes(batch.build([Record(0, NOW, None, bytes(room))]))
            above = bytes(batch.build([Record(0, NOW, None, bytes(room + 1))]))
        assert (len(exact), len(above)) == (largest, largest + 1)
        assert await played.code(above, version) == TOO_LARGE
        assert await played.code(broken(above), version) == TOO_LARGE
        assert await played.code(broken(exact), version) == CORRUPT
        assert await played.code(exact, version) == 0


@pytest.mark.parametrize("release", WITH_OLD)
async def test_messages_and_converted_batches_have_a_limit(release: str, tmp_path: Path) -> None:
    magic = newest_format(release)
    one = message(value=bytes(300), magic=min(magic, 1))
    async with playing(tmp_path, release) as played:
        version = min(2, played.newest)
        await played.topic("t", max_message_bytes=str(len(one)))
        larger = message(value=bytes(301), magic=min(magic, 1))
        assert await played.code(one + broken(larger), version) == TOO_LARGE  # the size of each one, before its CRC
        assert await played.code(broken(one) + larger, version) == CORRUPT
        assert await played.code(one, version) == (0 if magic < 2 else TOO_LARGE)  # a batch has a larger header
        # Each fits alone; as one batch they do not.
        assert await played.code(one * 3, version) == (0 if magic < 2 else TOO_LARGE)
        # They fit compressed, but not in their stored form.
        inner = b"".join(message(index, value=bytes(300), magic=min(magic, 1)) for index in range(9))
        packed = wrapper(inner, magic=min(magic, 1), offset=8)
        await played.topic("plain", max_message_bytes=str(len(one) - 1), compression_type="uncompressed")
        assert len(packed) < len(one) - 1
        assert await played.code(packed, version, "plain") == TOO_LARGE
        await played.topic("packed", max_message_bytes=str(len(one)), compression_type="gzip")
        assert await played.code(inner, version, "packed") == 0


@pytest.mark.parametrize("release", WITH_BATCHES)
async def test_batch_too_large_after_recompression_is_refused(release: str, tmp_path: Path) -> None:
    one = [Record(0, NOW, b"k", bytes(5000))]
    packed, size = batch.build(one, codec=1), len(batch.build(one))
    assert len(packed) < 500
    async with playing(tmp_path, release) as played:
        for name, limit, code in (("small", 500, TOO_LARGE), ("just", size - 1, TOO_LARGE), ("enough", size, 0)):
            await played.topic(name, max_message_bytes=str(limit), compression_type="uncompressed")
            assert await played.code(packed, played.newest, name) == code
            assert await played.code(packed, 3, name) == code
        assert len(played.stored("enough")) == 2 * size


@each("release", FAMILIES)
async def test_set_larger_than_a_segment_is_refused(release: str, tmp_path: Path) -> None:
    async with playing(tmp_path, release) as played:
        await played.topic("t", segment_bytes="1048576", max_message_bytes="2000000")
        if newest_format(release) < 2:  # of messages that are small each
            data = message(value=bytes(350_000), magic=newest_format(release)) * 3
            assert await played.code(data, played.newest) == LIST_TOO_LARGE
            assert await played.code(data[: len(data) * 2 // 3], played.newest) == 0
        else:
            data = batch.build([Record(0, NOW, None, bytes(1_048_576))])
            assert await played.code(data, played.newest) == LIST_TOO_LARGE


@each("release", [name for name in FAMILIES if since(name, "0.11")] + ["4.0", "4.1"])
async def test_smallest_segment_accepts_a_batch(release: str, tmp_path: Path) -> None:
    """14 bytes; one megabyte for the broker's config since 4.0, and for a topic's since 4.1."""
    for size, taken in ((13, False), (14, not since(release, "4.1")), (1_048_575, not since(release, "4.1"))):
        async with playing(tmp_path, release) as played:
            client = await played.broker.client()
            version = profile(release).served[spec(CreateTopicsRequest).api_key].first
            topic = new_topic(f"t{size}", configs=[Configured(name="segment.bytes", value=str(size))])
            response = (await client.call(CreateTopicsRequest(topics=[topic], timeout_ms=1000), version)).topics[0]
            assert response.error_code == (0 if taken else INVALID_CONFIG)
        overrides = {"log.segment.bytes": str(size)}
        if size == 13 or since(release, "4.0.0"):
            with pytest.raises(ConfigError):
                Config.load(overrides, profile=profile(release))
        else:
            assert Config.load(overrides, profile=profile(release))["log.segment.bytes"] == size


# ---- what a version of the request may carry

WRONG: list[tuple[str, bytes | None]] = [
    ("null", None),
    ("nothing", b""),
    ("a cut batch", V2[:-1]),
    ("less than a magic", V2[:16]),
    ("v0", V0),
    ("v1", V1),
    ("v0 wrapper", made(0, 1)),
    ("v1 wrapper", made(1, 2)),
    ("two batches", V2 + V2),
    ("a batch and a message", V2 + V1),
    ("a message and a batch", V1 + V2),
]


NO_FIRST_BATCH = ("null", "nothing", "a cut batch", "less than a magic")


def wrong_batches(release: str, why: str = "") -> int | None:
    """The code, or None for a closed connection."""
    if not since(release, "2.1") or (closes_for_unreadable(release) and why in NO_FIRST_BATCH):
        return None
    return invalid(release)


@pytest.mark.parametrize("release", WITH_BATCHES)
async def test_produce_from_v3_takes_one_batch_v2(release: str, tmp_path: Path) -> None:
    async with playing(tmp_path, release) as played:
        await played.topic()
        for version in batch_versions(played):
            for why, data in WRONG:
                assert await played.code(data, version) == wrong_batches(release, why), (why, version)
            assert await played.code(V2 + V2[:-1], version) == 0
            if wrong_batches(release) is not None and version >= 5:
                # Refused before the log is read.
                assert (await played.send(V1, version)).log_start_offset == -1


def several(*parts: bytes) -> ProduceRequest:
    """A request for partitions 0, 1, ... of "t"."""
    topic = ProduceRequest.TopicProduceData
    data = [topic.PartitionProduceData(index=index, records=part) for index, part in enumerate(parts)]
    return ProduceRequest(acks=-1, timeout_ms=1, topic_data=[topic(name="t", partition_data=data)])


@pytest.mark.parametrize("release", WITH_BATCHES)
async def test_wrong_batches_have_the_error_of_the_release(release: str, tmp_path: Path) -> None:
    """A refusal while the request is parsed applies to all of it; later, to its own partition only."""
    async with playing(tmp_path, release) as played:
        await played.broker.topic("t", 3)
        client = await played.broker.client()
        request = several(V2, V2 + V2, V2)
        if wrong_batches(release) is None:
            with pytest.raises(Closed):
                await client.call(request, 3)
        else:
            (topic,) = (await client.call(request, 3)).responses
            codes = [response.error_code for response in topic.partition_responses]
            assert codes == [0, wrong_batches(release), 0]
        ends = [played.broker.log("t", index).log_end_offset for index in range(3)]
        assert ends == ([0, 0, 0] if wrong_batches(release) is None else [1, 0, 1])
        assert await played.code(V2, 3) == 0


@pytest.mark.parametrize("release", WITH_OLD)
async def test_produce_v0_to_v2_take_any_number_of_any_format(release: str, tmp_path: Path) -> None:
    """Also v2 batches, as of clients with a wrong version. From 2.4 on: one format, and batches one by one."""
    merged = 0 if not since(release, "2.4") else 87
    newest = newest_format(release)
    packed, packed_v0 = made(1, 1), made(0, 1)
    sets: list[tuple[str, bytes, int, int]] = [
        ("messages", old(release) * 5, 5, 0),
        ("v0", V0 * 2, 2, 0),
        ("a wrapper", packed_v0 if not newest else packed, 3, 0),
        ("two v0 wrappers", packed_v0 * 2, 6, merged),
    ]
    if newest >= 1:
        sets += [
            ("v0 and v1", V0 + V1, 2, merged),
            ("two wrappers", packed + packed, 6, merged),
            ("a wrapper and a message", packed + V1, 4, merged),
            ("a message and a wrapper", V1 + packed, 4, merged),
        ]
    if newest == 2:
        sets += [
            ("a batch", V2, 1, 0),
            ("two batches", V2 + V2, 2, merged),
            ("a message and a batch", V1 + V2, 2, merged),
            ("a batch and a message", V2 + V0, 2, merged),
        ]
    async with playing(tmp_path, release) as played:
        await played.topic()
        for version in range(min(2, played.newest) + 1):
            for why, data, count, code in sets:
                end = played.end()
                assert await played.code(data, version) == code, (why, version)
                assert played.end() == end + (count if code == 0 else 0), why
        assert [record.offset for record in played.records()] == list(range(played.end()))
        assert {header.magic for header, _ in played.entries()} == {newest}


@pytest.mark.parametrize("release", [name for name in FAMILIES if name not in WITH_OLD])
async def test_produce_v0_to_v2_close_from_4_0_on(release: str, tmp_path: Path) -> None:
    async with playing(tmp_path, release) as played:
        await played.topic()
        assert played.broker.state.apis.advertised[0].first == 0
        for version in (0, 1, 2):
            for data in (V0, V1, V2, made(1, 1), b"", None):
                assert await played.code(data, version) is None
        assert await played.code(V2, 3) == 0


@pytest.mark.parametrize("release", [name for name in WITH_BATCHES if since(name, "2.1")])
async def test_zstd_needs_produce_v7(release: str, tmp_path: Path) -> None:
    data = made(2, 4)
    async with playing(tmp_path, release) as played:
        await played.topic()
        await played.topic("zstd", compression_type="zstd")
        for version in range(played.versions.first, min(played.newest, 13) + 1):
            refused = 3 <= version < 7
            assert await played.code(data, version) == (CODEC if refused else 0), version
            if refused and version >= 5:
                assert (await played.send(data, version)).log_start_offset == -1
            assert await played.code(made(2, 1), version, "zstd") == 0  # stored formats are tested elsewhere
        assert {header.codec for header, _ in played.entries("zstd")} == {4}


# ---- each batch

BATCHES: list[tuple[str, bytes | bytearray]] = [
    ("base offset", header_changed(0, ">q", 1)),
    ("offsets that end before they begin", header_changed(23, ">i", -2)),
    ("no records", header_changed(57, ">i", 0)),
    ("a count below 0", header_changed(57, ">i", -1)),
    ("a count that the offsets belie", header_changed(57, ">i", 2)),
    ("a control batch", batch.build(SAMPLE, batch.BatchFields(control=True))),
    ("no sequence with a producer", header_changed(43, ">q", 9)),
    ("more records than declared", header_changed(57, ">i", 2, header_changed(23, ">i", 1))),
    ("fewer records than declared", header_changed(57, ">i", 4, header_changed(23, ">i", 3))),
    ("bytes after the last", header_changed(8, ">i", len(batch.build(SAMPLE)) - 11, batch.build(SAMPLE) + b"\0")),
    ("a varint of six bytes", header_changed(61, ">q", -1)),
]


@pytest.mark.parametrize("release", WITH_BATCHES)
async def test_batch_fields_are_kept_or_overwritten(release: str, tmp_path: Path) -> None:
    """Codes changed with 2.4: before it clients retry for them, since then they do not."""
    async with playing(tmp_path, release) as played:
        await played.topic()
        versions = [2, *batch_versions(played)] if release in WITH_BOTH else batch_versions(played)
        for version in versions:
            for why, data in BATCHES:
                assert await played.code(data, version) == invalid(release), (why, version)
            if version >= 5:
                response = await played.send(BATCHES[0][1], version)
                # Up to 2.3 it counts as corrupt, without a log start offset.
                assert response.log_start_offset == (0 if since(release, "2.4") else -1)


@each("release", WITH_BOTH)
@each("magic", [0, 1])
async def test_producers_and_transactions_need_format_v2(release: str, magic: int, tmp_path: Path) -> None:
    async with playing(tmp_path, release, old_formats=True) as played:
        await played.topic("t", magic)
        await played.topic("v2", 2)
        for codec in (0, 1):
            for version in (2, *batch_versions(played)):
                for fields in (PRODUCER, {"transactional": True}, {**PRODUCER, "transactional": True}):
                    data = batch_of(SAMPLE, codec=codec, **fields)
                    named = {"transactional_id": "x"} if version >= 3 else {}
                    if version >= 3 or "transactional" not in fields:
                        assert await played.code(data, version, **named) == FORMAT, (version, fields)
        assert await played.code(batch_of(SAMPLE, **PRODUCER), 3, "v2") == 0


# ---- each record


def shown(response: Any) -> tuple[int, list[int], bool]:
    """(code, listed records, whether there is a message); there is no field before v8."""
    return (
        response.error_code,
        [error.batch_index for error in response.record_errors],
        response.error_message is not None,
    )


LATE = NOW + 2 * HOUR
# (key, time) of each record; from 2.5 on (code, listed), in 2.4 (code, listed), before that the code.
RECORDS: list[tuple[str, list[tuple[bytes | None, int]], tuple[int, list[int]], tuple[int, list[int]]]] = [
    ("no key", [(b"k", NOW), (None, NOW), (b"k", NOW), (None, NOW)], (87, [1, 3]), (87, [1])),
    ("late", [(b"k", NOW), (b"k", LATE), (b"k", LATE)], (32, [1, 2]), (32, [1])),
    ("no key, then late", [(None, NOW), (b"k", LATE), (None, NOW)], (32, [0, 1, 2]), (87, [0])),
    ("late, then no key", [(b"k", LATE), (None, NOW)], (32, [0, 1]), (32, [0])),
    ("both at once", [(b"k", NOW), (None, LATE)], (87, [1]), (87, [1])),
]


def window(release: str) -> dict[str, str]:
    """A limit of one hour ahead, in a compacted topic."""
    name = "message_timestamp_after_max_ms" if since(release, "3.6") else "message_timestamp_difference_max_ms"
    return {name: str(HOUR), "cleanup_policy": "compact"}


@pytest.mark.parametrize("release", WITH_BATCHES)
async def test_refused_records_are_listed_as_in_the_release(release: str, tmp_path: Path) -> None:
    """KIP-467: all of them from 2.5 on, the first one in 2.4; before, another code alone."""
    async with playing(tmp_path, release) as played:
        await played.topic("t", None, **window(release))
        for codec in (0, 1):
            for why, rows, new, of_2_4 in RECORDS:
                made_of = [Record(index, time, key, b"v") for index, (key, time) in enumerate(rows)]
                data = batch.build(made_of, codec=codec)
                code, named = new if since(release, "2.5") else of_2_4
                code = code if code == TIMES else invalid(release)
                for version in batch_versions(played):
                    wanted = (code, named, True) if version >= 8 else (code, [], False)
                    response = await played.send(data, version)
                    assert shown(response) == wanted, (why, version)
                    texts = [error.batch_index_error_message for error in response.record_errors]
                    assert all(texts) if since(release, "2.5") else not any(texts)
                    if version >= 5:
                        assert response.log_start_offset == (0 if since(release, "2.4") else -1)
        assert (played.end(), played.stored()) == (0, b"")
        for version in batch_versions(played):  # refused as a whole: none is listed
            if version >= 8:
                assert shown(await played.send(header_changed(57, ">i", 2), version)) == (87, [], False)


@pytest.mark.parametrize("release", [name for name in WITH_OLD if since(name, "0.10.0")])
async def test_refused_messages_stop_at_the_first_but_wrappers_do_not(release: str, tmp_path: Path) -> None:
    """Each plain message is a batch of its own; those in a wrapper are judged together from 2.5 on."""
    keyless_late = [Record(0, NOW, b"k", b""), Record(1, NOW, None, b""), Record(2, LATE, b"k", b"")]
    late_keyless = [Record(0, LATE, b"k", b""), Record(1, NOW, None, b"")]
    together = TIMES if since(release, "2.5") else invalid(release)
    async with playing(tmp_path, release) as played:
        await played.topic("t", None, **window(release))
        assert await played.code(plain(keyless_late), 2) == invalid(release)
        assert await played.code(plain(late_keyless), 2) == TIMES
        assert await played.code(wrapper(plain(keyless_late), offset=2), 2) == together
        assert await played.code(wrapper(plain(late_keyless), offset=1), 2) == TIMES
        assert await played.code(plain([Record(0, NOW, b"k", b"")]), 2) == 0


@pytest.mark.parametrize("release", WITH_OLD)
async def test_messages_in_a_wrapper_are_validated(release: str, tmp_path: Path) -> None:
    bad = invalid(release)
    magic = min(newest_format(release), 1)
    keyless_broken = message(0, None, magic=magic) + broken(message(1, magic=magic))
    cases: list[tuple[str, bytes, int]] = [
        ("nested", wrapper(wrapper(plain(magic=magic), magic=magic, offset=2), magic=magic), bad),
        (
            "one with a codec in its attributes",
            wrapper(message(0, magic=magic) + message(1, magic=magic, attributes=2), magic=magic, offset=1),
            bad,
        ),
        ("null", message(0, None, None, magic=magic, attributes=1), bad),
        ("empty", wrapper(b"", magic=magic), bad),
        ("wrong CRC inside", wrapper(broken(message(magic=magic)), magic=magic), CORRUPT),
        # Where the first invalid record ends it, that is the one without a key; else the CRC decides first.
        ("no key, then a wrong CRC", wrapper(keyless_broken, magic=magic, offset=1), 87 if release == "2.4" else 2),
    ]
    if magic:
        cases += [
            ("another format inside", wrapper(plain(magic=0), offset=2), bad),
            ("an offset below its messages'", wrapper(plain(), offset=1), bad),
        ]
    if since(release, "2.1"):
        cases.append(("zstd", sealed(0, struct.pack(">bbqii", 1, 4, NOW, -1, 0)), bad))
    async with playing(tmp_path, release) as played:
        await played.topic("t", cleanup_policy="compact")
        version = min(2, played.newest)
        for why, data, code in cases:
            assert await played.code(data, version) == code, why
        assert await played.code(wrapper(message(magic=magic), magic=magic), version) == 0


# ---- the response


@each("release", FAMILIES)
async def test_refused_set_with_acks_0_closes_the_connection(release: str, tmp_path: Path) -> None:
    async with playing(tmp_path, release) as played:
        await played.topic()
        version = played.newest
        good = old(release) if version < 3 else V2
        for data in (broken(good), good[:8] + struct.pack(">i", 13) + good[12:]):
            client = await played.broker.client()
            await client.send(produce(data, topic_id=played.broker.state.topics.named("t").id, acks=0), version)
            assert await client.is_closed()
        assert played.end() == 0
        assert (await played.send(good, version)).base_offset == 0


@each("release", FAMILIES)
async def test_storage_error_has_another_code_for_old_clients(release: str, tmp_path: Path) -> None:
    """Before Produce v4 it is NOT_LEADER_OR_FOLLOWER, for which clients retry, in releases that serve such old
    clients.
    """
    async with playing(tmp_path, release) as played:
        await played.topic()
        played.broker.log("t").close()
        for version in range(played.versions.first, played.newest + 1):
            response = await played.send(V2 if version >= 3 else old(release), version)
            rewritten = version <= 3 and release in WITH_OLD
            assert response.error_code == (6 if rewritten else 56), version
            assert response.log_start_offset == -1


async def test_closed_client_may_reconnect(tmp_path: Path) -> None:
    async with playing(tmp_path, "4.3") as played:
        await played.topic()
        client = await Client.connect(played.broker.ports[0])
        await client.send(produce(V1), 2)
        assert await client.is_closed()
        client.close()
        assert await played.code(V2, 12) == 0
