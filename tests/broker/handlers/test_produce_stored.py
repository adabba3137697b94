"""The stored form of records in each release, over the wire: times, offsets, formats and codecs, in place or rebuilt.

The log's own file is read back; every CRC in it is checked.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.releases.profiles import profile
from ottla.protocol.records import batch, legacy
from ottla.protocol.records.batch import Header, Record
from ottla_testing.broker.producing import (
    BEFORE_3,
    FAMILIES,
    HOUR,
    NOW,
    SAMPLE,
    WITH_BATCHES,
    WITH_BOTH,
    WITH_OLD,
    Played,
    broken,
    header_changed,
    invalid,
    made,
    message,
    newest_format,
    plain,
    playing,
    since,
    wrapper,
)
from ottla_testing.each import each, taken
from ottla_testing.protocol.batches import batch_of

TIMES, CODEC, SERVER = 32, 76, -1
APPEND_TIME_BIT = 8
WITH_TIMES = tuple(name for name in FAMILIES if since(name, "0.10.0"))
# Releases that differ in their formats only.
FEW = ("0.10.2", "2.3", "2.8", "3.9", "4.3", "ottla")
FEW_OLD = tuple(name for name in FEW if name in WITH_OLD)
FEW_BATCHES = tuple(name for name in FEW if name in WITH_BATCHES)
APPENDED = {"message_timestamp_type": "LogAppendTime"}
CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}


def sources(release: str) -> list[tuple[int, int]]:
    """(format, codec) of possible producers."""
    formats = [magic for magic in range(newest_format(release) + 1) if magic == 2 or release in WITH_OLD]
    return [(m, codec) for m in formats for codec in range(5 if m == 2 and since(release, "2.1") else 4)]


def targets(release: str) -> list[int]:
    """The formats that a topic may store, below inter.broker.protocol.version 3.0."""
    return list(range(newest_format(release) + 1)) if release in WITH_OLD and release != "0.8.2" else [2]


def version_for(played: Played, magic: int) -> int:
    return played.newest if magic == 2 else min(2, played.newest)


def expected(records: list[Record], source: int, target: int, base_offset: int) -> list[Record]:
    """The records in the stored format."""
    timed = source and target
    return [
        record._replace(offset=base_offset + index, timestamp=record.timestamp if timed else -1)
        for index, record in enumerate(records)
    ]


# ---- times

# Configs, then (age in ms, accepted) at and next to the limits.
Window = tuple[dict[str, str], list[tuple[int, bool]]]
FAR = 2**62 // 1_000_000
DIFFERENCE: list[Window] = [
    ({"message_timestamp_difference_max_ms": "1000"}, [(1000, True), (1001, False), (-1000, True), (-1001, False)]),
    ({"message_timestamp_difference_max_ms": "0"}, [(0, True), (1, False), (-1, False)]),
]
BEFORE_AFTER: list[Window] = [
    (
        {"message_timestamp_before_max_ms": "1000", "message_timestamp_after_max_ms": "500"},
        [(1000, True), (1001, False), (-500, True), (-501, False)],
    ),
    ({"message_timestamp_before_max_ms": "7"}, [(7, True), (8, False), (-HOUR, True)]),
    ({"message_timestamp_after_max_ms": "9223372036854775807"}, [(-FAR, True), (NOW, True)]),
]
OVERRIDING: list[Window] = [
    (
        {
            "message_timestamp_difference_max_ms": "10",
            "message_timestamp_before_max_ms": "1000",
            "message_timestamp_after_max_ms": "1000",
        },
        [(10, True), (11, False), (-10, True), (-11, False)],
    )
]


def windows(release: str) -> list[Window]:
    """No limits by default up to 3.9, one hour ahead from 4.0 on; "difference" up to 3.9, "before" and "after" from 3.6
    on.
    """
    ahead = since(release, "4.0.0")
    default: Window = ({}, [(0, True), (NOW, True), (-HOUR, True), (-HOUR - 1, not ahead)])
    found = [default]
    if release in WITH_OLD:
        found += DIFFERENCE
    if since(release, "3.6"):
        found += BEFORE_AFTER
    if release in WITH_OLD and since(release, "3.6"):
        found += OVERRIDING
    return found


@pytest.mark.parametrize("release", WITH_TIMES)
async def test_timestamp_limits_by_release(release: str, tmp_path: Path, stride: int) -> None:
    async with playing(tmp_path, release) as played:
        for number, (configs, cases) in taken([*enumerate(windows(release))], stride):
            created, appended = f"created-{number}", f"appended-{number}"
            await played.topic(created, None, **configs)
            await played.topic(appended, None, **configs, **APPENDED)
            for age_ms, accepted in cases:
                records = [Record(0, NOW, b"k", b"v"), Record(1, NOW - age_ms, b"k", b"v")]
                for magic, codec in sources(release):
                    data, version = made(magic, codec, records), version_for(played, magic)
                    fine = accepted or magic == 0  # which has no time
                    wanted = 0 if fine else TIMES
                    assert await played.code(data, version, created) == wanted, (configs, age_ms, magic, codec)
                    assert (await played.send(data, version, appended)).error_code == 0
                    if fine:
                        assert played.last(created).timestamp == (NOW - age_ms if magic else -1)


@pytest.mark.parametrize("release", FEW)
async def test_missing_timestamp_is_accepted_under_any_limit(release: str, tmp_path: Path) -> None:
    configs = windows(release)[1][0]
    async with playing(tmp_path, release) as played:
        await played.topic("t", None, **configs)
        records = [Record(index, -1, b"k", b"v") for index in range(2)]
        for magic, codec in sources(release):
            assert await played.code(made(magic, codec, records), version_for(played, magic)) == 0
        for header, found in played.entries():
            assert header.max_timestamp == -1 and {record.timestamp for record in found} == {-1}


@pytest.mark.parametrize("release", WITH_TIMES)
async def test_sets_marked_as_append_time_by_a_client(release: str, tmp_path: Path) -> None:
    """Refused up to 3.5; from 3.6 on topics with create time accept them and remove the mark."""
    allowed = since(release, "3.6")
    sent: list[tuple[bytes, int, bool]] = []
    if release in WITH_OLD:
        sent += [
            (message(attributes=APPEND_TIME_BIT), 2, True),
            (message(timestamp=-1, attributes=APPEND_TIME_BIT), 2, False),
            (wrapper(plain(), offset=2, attributes=APPEND_TIME_BIT), 2, True),
        ]
    async with playing(tmp_path, release) as played:
        if newest_format(release) == 2:
            for codec in (0, 1):
                sent.append(
                    (
                        bytes(batch.build(SAMPLE, batch.BatchFields(log_append_time=True), codec=codec)),
                        played.newest,
                        True,
                    )
                )
            unset = batch.build([Record(0, -1, b"k", b"v")], batch.BatchFields(log_append_time=True))
            sent.append((bytes(unset), played.newest, False))
        await played.topic("created")
        await played.topic("appended", None, **APPENDED)
        for data, version, timed in sent:
            assert await played.code(data, version, "created") == (0 if allowed and timed else TIMES)
            assert await played.code(data, version, "appended") == TIMES
        if release in WITH_OLD:
            assert (
                await played.code(message(magic=0, attributes=APPEND_TIME_BIT), 1, "appended") == 0
            )  # v0 has no such bit
        assert not any(header.log_append_time for header, _ in played.entries("created"))


@pytest.mark.parametrize("release", FEW_BATCHES)
async def test_stored_max_timestamp_of_a_batch(release: str, tmp_path: Path) -> None:
    """The CRC is computed again only if the value changes."""
    async with playing(tmp_path, release) as played:
        await played.topic()
        version = played.newest
        for codec in (0, 1):
            good = bytes(batch.build(SAMPLE, codec=codec))
            assert await played.code(good, version) == 0
            stored = played.stored()
            assert stored[-len(good) + 16 :] == good[16:]
            for lie in (-1, NOW, NOW + HOUR):
                assert await played.code(header_changed(35, ">q", lie, bytearray(good)), version) == 0
                assert played.stored()[-len(good) + 16 :] == good[16:]
        assert {header.max_timestamp for header, _ in played.entries()} == {NOW + 20}


@pytest.mark.parametrize("release", FEW_OLD)
async def test_stored_timestamp_of_a_wrapper_is_its_highest(release: str, tmp_path: Path) -> None:
    async with playing(tmp_path, release, old_formats=True) as played:
        await played.topic("t", 1)
        for claimed in (-1, NOW - 5, NOW + HOUR, NOW + 20):
            data = wrapper(plain(), offset=2, timestamp=claimed)
            assert await played.code(data, 2) == 0
            header, records = played.entries()[-1]
            assert header.max_timestamp == NOW + 20
            assert [record.timestamp for record in records] == [NOW, NOW + 20, NOW + 10]
            if claimed == NOW + 20:
                assert played.stored()[-len(data) + 8 :] == data[8:]


@pytest.mark.parametrize("release", FEW_OLD)
@pytest.mark.parametrize("magic", [0, 1])
async def test_append_time_in_old_formats(release: str, magic: int, tmp_path: Path) -> None:
    """v1: each message, or the wrapper alone; v0 has no field for it. The response has it in any case."""
    async with playing(tmp_path, release, old_formats=True) as played:
        now = played.broker.clock.now_ms() + 99
        played.broker.clock.advance(99)
        await played.topic("t", magic, **APPENDED)
        for codec in range(4):
            data = made(magic, codec)
            response = await played.send(data, 2)
            assert (response.error_code, response.base_offset, response.log_append_time_ms) == (0, 3 * codec, now)
            if codec and magic:
                header, _ = played.entries()[-1]
                position = len(played.stored()) - header.size_bytes
                inside = legacy.inner(played.stored(), position, header)
                assert bytes(inside) == plain()  # the messages inside are unchanged
        for header, records in played.entries():
            assert header.log_append_time == bool(magic)
            assert {record.timestamp for record in records} == {now if magic else -1}


@pytest.mark.parametrize("release", FEW_BATCHES)
async def test_append_time_in_batches(release: str, tmp_path: Path) -> None:
    """The bit and the batch's time; base and deltas stay as sent. So do v0 and v1 that become v2."""
    async with playing(tmp_path, release) as played:
        now = played.broker.clock.now_ms() + 99
        played.broker.clock.advance(99)
        await played.topic("t", None, **APPENDED)
        for magic, codec in sources(release):
            data = made(magic, codec)
            response = await played.send(data, version_for(played, magic))
            assert (response.error_code, response.log_append_time_ms) == (0, now)
            header, records = played.entries()[-1]
            assert header.log_append_time and header.max_timestamp == now
            assert [record.timestamp for record in records] == [now] * 3
            assert header.base_timestamp == NOW if magic == 2 else True
            if magic == 2:  # the deltas too
                assert played.stored()[-len(data) + 43 :] == data[43:]
        for name in ("gzip", "uncompressed"):  # also if it is rebuilt
            await played.topic(name, None, **APPENDED, compression_type=name)
            for magic, codec in sources(release):
                assert (await played.send(made(magic, codec), version_for(played, magic), name)).error_code == 0
            assert {header.codec for header, _ in played.entries(name)} == {int(name == "gzip")}
            for header, records in played.entries(name):
                assert header.log_append_time and {record.timestamp for record in records} == {now}


# ---- offsets, formats, codecs


def in_place(magic: int, codec: int, target: int, stored_codec: int) -> bool:
    """Whether the producer's own bytes are stored: no codec to none, or a codec to itself except in v0, in one
    format.
    """
    return magic == target and codec == stored_codec and not (codec and not magic)


def placed(data: bytes, magic: int, codec: int, base_offset: int) -> bytes:
    """The sent batch with the offsets and the leader epoch 0 of the log."""
    found = bytearray(data)
    if magic == 2:
        struct.pack_into(">qii", found, 0, base_offset, len(data) - 12, 0)
    elif codec:
        struct.pack_into(">q", found, 0, base_offset + 2)
    else:
        position = 0
        for offset in range(base_offset, base_offset + 3):
            struct.pack_into(">q", found, position, offset)
            position += 12 + struct.unpack_from(">i", found, position + 8)[0]
    return bytes(found)


@each("target", [0, 1, 2])
@each("release", ["0.9", "0.10.2", "1.1", "2.3", "2.4", "2.8", "3.5", "3.9", "4.3", "ottla"], strided=True)
async def test_batches_are_kept_or_rebuilt(release: str, target: int, tmp_path: Path) -> None:
    """Every format and codec into every other, in a log with earlier records."""
    if target not in targets(release):
        return
    async with playing(tmp_path, release, old_formats=release in WITH_OLD) as played:
        for name, configured in {"producer": None, "uncompressed": 0, "gzip": 1, "lz4": 3, "zstd": 4}.items():
            if name == "zstd" and not since(release, "2.1"):
                continue
            await played.topic(name, target, compression_type=name)
            first = made(min(target, newest_format(release)), 0, [SAMPLE[0]])
            if configured == 4 and target < 2:
                for magic, codec in sources(release):
                    assert await played.code(made(magic, codec), version_for(played, magic), name) == SERVER
                continue
            assert await played.code(first, version_for(played, target), name) == 0
            for magic, codec in sources(release):
                data, before = made(magic, codec), (played.end(name), len(played.stored(name)))
                wanted = codec if configured is None else configured
                code = SERVER if wanted == 4 and target < 2 else 0
                where = (name, magic, codec)
                assert await played.code(data, version_for(played, magic), name) == code, where
                if code:
                    continue
                entries = [(h, found) for h, found in played.entries(name) if h.last_offset >= before[0]]
                assert len(entries) == (3 if target < 2 and not wanted else 1), where
                assert {(h.magic, h.codec) for h, _ in entries} == {(target, wanted)}, where
                records = [record for _, found in entries for record in found]
                assert records == expected(SAMPLE, magic, target, before[0]), where
                written = played.stored(name)[before[1] :]
                if in_place(magic, codec, target, wanted):
                    assert written == placed(data, magic, codec, before[0]), where
                if target == 2:
                    head = entries[0][0]
                    assert (head.producer_id, head.producer_epoch, head.base_sequence) == (-1, -1, -1)
                    assert (head.base_offset, head.partition_leader_epoch, head.last_offset_delta) == (before[0], 0, 2)
                    times = (NOW, NOW + 20) if magic else (-1, -1)
                    assert (head.base_timestamp, head.max_timestamp) == times


@pytest.mark.parametrize("release", [name for name in WITH_OLD if not since(name, "2.4")])
async def test_merged_batch_has_the_last_codec(release: str, tmp_path: Path) -> None:
    """Up to 2.3, sets of several wrappers become one; plain messages among them do not count."""
    magic = min(newest_format(release), 1)
    gzip, snappy, one = made(magic, 1), made(magic, 2), message(magic=magic)
    async with playing(tmp_path, release) as played:
        await played.topic()
        version = min(2, played.newest)
        for data, count, codec in ((gzip + snappy, 6, 2), (snappy + gzip + one, 7, 1), (one + gzip, 4, 1)):
            before = played.end()
            assert await played.code(data, version) == 0
            assert played.entries()[-1][0].codec == codec
            assert played.end() == before + count == len(played.records())


@pytest.mark.parametrize("release", [name for name in WITH_OLD if since(name, "3.0")])
async def test_releases_from_3_0_store_v2(release: str, tmp_path: Path) -> None:
    """KIP-724: regardless of the topic's config."""
    async with playing(tmp_path, release) as played:
        await played.topic("t", 0)
        for magic, codec in sources(release):
            assert await played.code(made(magic, codec), version_for(played, magic)) == 0
        assert {header.magic for header, _ in played.entries()} == {2}


@each("release", FAMILIES)
async def test_compressed_records_not_numbered_from_0(release: str, tmp_path: Path) -> None:
    """Up to 2.3 rebuilt; 2.4 refuses them and lists the first; later ones fail for format v2."""
    refused = release == "2.4"
    fails = profile(release).behaviour.unnumbered_fail
    gappy = [record._replace(offset=record.offset * 2) for record in SAMPLE]
    async with playing(tmp_path, release, old_formats=release in WITH_OLD) as played:
        magic = newest_format(release)
        if magic == 2:
            await played.topic("v2")
            packed = header_changed(23, ">i", 2, batch.build(gappy, codec=1))
            response = await played.send(packed, played.newest, "v2")
            named = [error.batch_index for error in response.record_errors]
            assert (response.error_code, named) == ((87, [1]) if refused else (-1, []) if fails else (0, []))
            assert await played.code(batch.build(SAMPLE, codec=1), played.newest, "v2") == 0
            assert await played.code(header_changed(23, ">i", 2, batch.build(gappy)), played.newest, "v2") == 0
            # The offsets in an uncompressed batch are ignored.
            assert played.stored("v2").endswith(bytes(batch.build(gappy))[61:])
            count = 3 if refused or fails else 6
            assert [record.offset for record in played.records("v2")][:count] == list(range(count))
        if release in WITH_OLD and magic >= 1:
            await played.topic("v1", 1)
            for offset in (4, 0):  # 0 as in old librdkafka: the base then
                data = wrapper(plain(gappy), offset=offset, timestamp=NOW + 20)
                assert await played.code(data, 2, "v1") == (invalid(release) if refused else 0)
            assert await played.code(plain(gappy), 2, "v1") == 0
            assert [record.offset for record in played.records("v1")] == list(range(3 if refused else 9))
        if release in WITH_OLD:
            await played.topic("v0", 0)
            version = min(2, played.newest)
            for data in (wrapper(plain(gappy, 0), magic=0, offset=4), wrapper(plain(gappy, 0), magic=0)):
                assert await played.code(data, version, "v0") == 0  # v0 is always rebuilt
            assert [record.offset for record in played.records("v0")] == list(range(6))


@pytest.mark.parametrize("release", FEW_OLD)
async def test_wrapper_of_old_librdkafka_has_offset_0(release: str, tmp_path: Path) -> None:
    async with playing(tmp_path, release, old_formats=True) as played:
        for magic in targets(release):
            name = f"v{magic}"
            await played.topic(name, magic)
            for codec in (1, 2, 3):
                data = wrapper(plain(), codec, offset=0, timestamp=NOW + 20)
                response = await played.send(data, 2, name)
                assert (response.error_code, response.base_offset) == (0, 3 * (codec - 1))
                if magic == 1:
                    assert played.stored(name).endswith(placed(data, 1, codec, response.base_offset))
            assert [record.offset for record in played.records(name)] == list(range(9))


@pytest.mark.parametrize("release", FEW_BATCHES)
async def test_rebuilt_batch_keeps_its_producer(release: str, tmp_path: Path) -> None:
    """Its times are relative to the first record."""
    async with playing(tmp_path, release) as played:
        await played.topic("t", compression_type="gzip")
        headers = (Header("h", b"x"), Header("n", None))
        rows = [record._replace(headers=headers) for record in SAMPLE]
        fields: dict[str, Any] = {"producer_id": 4, "producer_epoch": 3, "base_sequence": 0}
        sent = batch_of(rows, delete_horizon_ms=NOW - 1000, **fields)
        assert await played.code(header_changed(21, ">h", 0, sent), played.newest) == 0
        ((header, records),) = played.entries()
        assert (header.producer_id, header.producer_epoch, header.base_sequence, header.codec) == (4, 3, 0, 1)
        assert (header.base_timestamp, header.max_timestamp, header.partition_leader_epoch) == (NOW, NOW + 20, 0)
        assert records == rows
        assert (await played.send(header_changed(21, ">h", 0, sent), played.newest)).base_offset == 0  # a duplicate
        assert played.end() == 3


@each("release", FAMILIES)
async def test_records_that_cannot_be_rewritten(release: str, tmp_path: Path) -> None:
    """A time below -1, or headers in an old format: Kafka's record writer throws there, and the response has Kafka's
    error.
    """
    async with playing(tmp_path, release, old_formats=release in WITH_OLD) as played:
        early = [Record(0, -2, b"k", b"v")]
        if newest_format(release) == 2:
            await played.topic("kept")
            await played.topic("rebuilt", compression_type="gzip")
            for codec, topic, code in ((0, "kept", 0), (1, "kept", 0), (0, "rebuilt", SERVER), (1, "rebuilt", 0)):
                data = batch.build(early, codec=codec)
                assert await played.code(data, played.newest, topic) == code
        if release in WITH_BOTH:
            for magic in (0, 1):
                name = f"v{magic}"
                await played.topic(name, magic)
                with_headers = [SAMPLE[0]._replace(headers=(Header("h", None),))]
                for codec in (0, 1):
                    data = batch.build(with_headers, codec=codec)
                    for version in (2, played.newest):
                        assert await played.code(data, version, name) == SERVER
                        assert await played.code(batch.build(early, codec=codec), version, name) == SERVER
        if release in WITH_OLD and since(release, "0.10.0"):
            await played.topic("t1", 1)
            assert await played.code(plain(early), 2, "t1") == 0
            if newest_format(release) == 2:
                await played.topic("t2", 2)
                assert await played.code(plain(early), 2, "t2") == SERVER


@pytest.mark.parametrize("release", ["2.1", "2.8", "3.9", "ottla"])
@pytest.mark.parametrize("protocol", ["0.11.0", "2.0", "2.1"])
async def test_zstd_needs_protocol_version_2_1(release: str, protocol: str, tmp_path: Path) -> None:
    code = 0 if protocol == "2.1" else CODEC
    async with playing(tmp_path, release, {"inter.broker.protocol.version": protocol}) as played:
        await played.topic("zstd", compression_type="zstd")
        await played.topic("producer")
        await played.topic("gzip", compression_type="gzip")
        version = played.newest
        for data in (made(2, 4), made(2, 0), made(2, 1)):
            assert await played.code(data, version, "zstd") == code
        assert await played.code(made(1, 0), 2, "zstd") == await played.code(made(1, 1), 2, "zstd") == code
        assert await played.code(made(2, 4), version, "producer") == code
        assert await played.code(made(2, 1), version, "producer") == 0
        assert await played.code(made(2, 4), version, "gzip") == 0  # reading it is tested elsewhere
        if code:  # the log was read, so the response has the log start offset
            assert (await played.send(made(2, 4), version, "producer")).log_start_offset == 0
            assert await played.code(broken(made(2, 4)), version, "producer") == 2


@pytest.mark.parametrize("release", ["0.11", "2.8", "3.9", "ottla"])
async def test_old_messages_after_batches_clear_the_leader_epochs(release: str, tmp_path: Path) -> None:
    async with playing(tmp_path, release, old_formats=True) as played:
        await played.topic("t", 2)
        checkpoint = tmp_path / "data" / "t-0" / "leader-epoch-checkpoint"
        assert await played.code(made(2, 0), played.newest) == 0
        assert checkpoint.read_text() == "0\n1\n0 0\n"
        topics = played.broker.state.topics
        for number, (version, data, text) in enumerate(
            [("0.10.0", V1, "0\n0\n"), ("0.11.0", V1, "0\n1\n0 4\n"), ("0.11.0", V1, "0\n1\n0 4\n")]
        ):
            topics.set_configs(topics.named("t"), {"message.format.version": version}, NOW)
            assert await played.code(data, 2) == 0
            assert checkpoint.read_text() == text, number


V1 = message()


@pytest.mark.parametrize("release", ["3.0", "3.9", "ottla"])
async def test_format_config_needs_a_protocol_below_3_0(release: str, tmp_path: Path) -> None:
    for overrides, magic in ((BEFORE_3, 0), ({"inter.broker.protocol.version": "3.0"}, 2)):
        async with playing(tmp_path / str(magic), release, overrides) as played:
            await played.topic("t", 0)
            assert await played.code(V1, 2) == 0
            assert {header.magic for header, _ in played.entries()} == {magic}


# ---- single behaviours

UNNUMBERED = bytes(header_changed(23, ">i", 2, batch.build([r._replace(offset=r.offset * 2) for r in SAMPLE], codec=1)))
MARKED = bytes(batch.build(SAMPLE, batch.BatchFields(log_append_time=True)))
KEYLESS = bytes(batch.build([Record(index, NOW, None, b"v") for index in range(3)]))
IDEMPOTENT = bytes(batch.build(SAMPLE, batch.BatchFields(producer_id=1, producer_epoch=0, base_sequence=0)))
BEFORE = {"message_timestamp_before_max_ms": "5", "cleanup_policy": "compact"}
BOTH = {**BEFORE, "message_timestamp_difference_max_ms": "50"}
EARLY = bytes(batch.build([Record(0, NOW - 20, b"k", b"v")]))
Expected = tuple[int, list[int]] | None
# (behaviour, value, set, version, response without it, response with it)
ALONE: list[tuple[str, str, bytes, int, Expected, Expected]] = [
    ("invalid_record_code", "2", bytes(header_changed(57, ">i", 2)), 9, (87, []), (2, [])),
    ("wrong_batches", "corrupt", V1, 9, (87, []), (2, [])),
    ("wrong_batches", "close", V1, 9, (87, []), None),
    ("record_errors", "first", KEYLESS, 9, (87, [0, 1, 2]), (87, [0])),
    ("record_errors", "none", KEYLESS, 9, (87, [0, 1, 2]), (87, [])),
    ("refuse_unnumbered", "true", UNNUMBERED, 9, (-1, []), (87, [1, 2])),
    ("unnumbered_fail", "false", UNNUMBERED, 9, (-1, []), (0, [])),
    ("one_magic", "false", V1 + message(magic=0), 2, (87, []), (0, [])),
    ("append_time_bit_allowed", "false", MARKED, 9, (0, []), (32, [0, 1, 2])),
    ("timestamp_range", "before_after", EARLY, 9, (0, []), (32, [0])),
    ("timestamp_range", "difference", EARLY, 9, (32, [0]), (0, [])),
    ("old_formats", "false", V1, 2, (0, []), (87, [])),
    ("newest_magic", "1", IDEMPOTENT, 9, (0, []), (43, [])),
]


@pytest.mark.parametrize(("name", "value", "data", "version", "without", "alone"), ALONE)
async def test_single_behaviour_of_a_profile(
    name: str, value: str, data: bytes, version: int, without: Expected, alone: Expected, tmp_path: Path
) -> None:
    """The own profile with one behaviour of an old release."""
    for number, (overrides, wanted) in enumerate([({}, without), ({f"ottla.behaviour.{name}": value}, alone)]):
        async with playing(tmp_path / str(number), "ottla", overrides) as played:
            await played.topic("t", None, **(BEFORE if value == "difference" else BOTH))
            response = await played.send(data, version)
            found = None if response is None else (response.error_code, [e.batch_index for e in response.record_errors])
            assert found == wanted
            assert bool(played.end()) == (wanted == (0, []))
