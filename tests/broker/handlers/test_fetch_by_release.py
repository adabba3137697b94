"""Fetch v0-v4 in each family of releases: how many bytes are returned, what is converted, what is refused.

The expectations for 2.8.2, 3.9.1 and their families are Kafka's responses to the same requests; the others are from the
brokers' source. Responses are compared with bytes that the tests' own code cuts or builds.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.config.values import Config
from ottla.broker.releases.profiles import profile
from ottla.protocol.records import batch, formats, legacy
from ottla.protocol.records.batch import Header, Record
from ottla.protocol.records.compression import Codec
from ottla_testing.broker.harness import fetch, only, produce, running
from ottla_testing.broker.stored_logs import (
    T0,
    entries,
    fetch_partition,
    marker,
    message,
    offsets,
    place,
    plain,
    rows,
    stored,
    wrapper,
)
from ottla_testing.protocol.batches import batch_of

# The response of Fetch v0-v2 for an entry above the requested size: its beginning, as stored (by KIP-74 clients report
# that it is too large), or nothing if the bytes were converted; our default is the first.
CUT = {
    **dict.fromkeys(("0.9", "0.10.2", "0.11", "1.1", "2.0", "2.8"), "as stored"),
    **dict.fromkeys(("3.0", "3.9"), "nothing"),
    "ottla": "beginning",
}
OVERFLOW = struct.pack(">qi", -1, 61)


def cut(data: bytes, max_bytes: int, how: str) -> bytes:
    """The part of stored bytes that the client can parse."""
    whole = b"".join(entries(data[:max_bytes]))
    if how == "as stored" or (how == "beginning" and not whole):
        return data[:max_bytes]
    return whole


# ---- sizes


@pytest.mark.parametrize("release", CUT)
async def test_fetch_before_v3_has_an_exact_bound_for_old_formats(release: str, tmp_path: Path) -> None:
    """A slice of the file, its last message cut; if all is converted, the whole messages of that slice."""
    logs = {"v0": plain(rows(3), 0)} | ({"v1": plain(rows(3), 1)} if release != "0.9" else {})
    await place(tmp_path, logs)
    async with running(tmp_path, release=release) as broker:
        client = await broker.client()
        for topic, versions in (("v0", (0, 1, 2)), ("v1", (2,))):
            if topic not in logs:
                continue
            for offset in (0, 1):
                data = b"".join(entries(logs[topic])[offset:])
                first = len(entries(data)[0])
                for bound in (0, 1, 11, 12, 17, first - 1, first, first + 1, len(data) - 1, len(data), len(data) + 99):
                    for version in versions if release != "0.9" else (0, 1):
                        response = await fetch_partition(client, version, topic, offset, partition_max_bytes=bound)
                        assert (response.error_code, response.high_watermark) == (0, 3)
                        assert response.records == cut(data, bound, CUT[release]), (topic, version, offset, bound)


@pytest.mark.parametrize("release", [release for release in CUT if release not in ("0.9", "0.10.2")])
async def test_fetch_before_v3_may_return_no_whole_batch(release: str, tmp_path: Path) -> None:
    """A v2 batch that does not fit is cut as stored, or left out; one that fits is converted."""
    data = stored(2, rows(2)) + stored(2, rows(2, 2))
    first = len(entries(data)[0])
    await place(tmp_path, {"t": data})
    async with running(tmp_path, release=release) as broker:
        client = await broker.client()
        for version in (0, 1, 2):
            for bound in (0, 1, 17, 61, first - 1):
                response = await fetch_partition(client, version, partition_max_bytes=bound)
                expected = b"" if CUT[release] == "nothing" else data[:bound]
                assert (response.error_code, response.records) == (0, expected), (version, bound)
            for bound in (first, first + 70):
                response = await fetch_partition(client, version, partition_max_bytes=bound)
                assert response.records == plain(rows(2), 0 if version < 2 else 1)


@pytest.mark.parametrize("release", [*(release for release in CUT if release != "0.9"), "4.3"])
async def test_fetch_from_v3_returns_the_first_entry_whole(release: str, tmp_path: Path) -> None:
    magics = (0, 1) if release == "0.10.2" else (0, 1, 2)
    logs = {f"v{magic}": stored(magic, rows(1)) + stored(magic, rows(1, 1)) for magic in magics}
    await place(tmp_path, logs)
    async with running(tmp_path, release=release) as broker:
        client = await broker.client()
        for version in (4, 12) if release == "4.3" else (3,) if release == "0.10.2" else (3, 4):
            for topic, data in logs.items():
                first, second = entries(data)
                # From 3.0 on all records of a topic with format v2 are converted, which leaves no cut one.
                is_converted = version == 3 and (topic == "v2" or release in ("3.0", "3.9", "ottla"))
                for bounds, cut in (
                    ({"partition_max_bytes": 0}, b""),
                    ({"max_bytes": 1}, b""),
                    ({"partition_max_bytes": len(first) + 20}, second[:20]),  # the second is cut, as in Kafka
                    ({"partition_max_bytes": len(data) - 1}, second[:-1]),
                    ({"partition_max_bytes": len(first)}, b""),
                ):
                    whole = plain(rows(1), 1) if version == 3 and topic == "v2" else first
                    expected = whole if is_converted else whole + cut
                    response = await fetch_partition(client, version, topic, **bounds)
                    assert (response.error_code, response.records) == (0, expected), (version, topic, bounds)


@pytest.mark.parametrize("release", ["0.10.2", "2.8", "3.9", "ottla"])
async def test_fetch_from_v3_has_one_bound_for_the_response(release: str, tmp_path: Path) -> None:
    """Stored bytes count, in the order of the request. Before v3 each partition has its own bound only."""
    magic = 1 if release == "0.10.2" else 2
    data = stored(magic, rows(1)) + stored(magic, rows(1, 1))
    size = len(entries(data)[0])
    await place(tmp_path, {"a": data, "b": data, "c": b""})
    async with running(tmp_path, release=release) as broker:
        client = await broker.client()
        wanted: list[Any] = [("c", 0, 0), ("b", 0, 0), ("a", 0, 0)]

        async def counts(version: int, max_bytes: int, **more: Any) -> list[int]:
            response = await client.call(fetch(*wanted, max_bytes=max_bytes, **more), version)
            assert [topic.topic for topic in response.responses] == ["c", "b", "a"]
            return [len(offsets(topic.partitions[0].records)) for topic in response.responses]

        assert await counts(3, 4 * size) == [0, 2, 2]
        assert await counts(3, 4 * size - 1) == [0, 2, 1]
        assert await counts(3, 2 * size) == [0, 2, 0]
        for max_bytes in (0, size - 1, size):
            assert await counts(3, max_bytes) == [0, 1, 0]
        assert await counts(3, 4 * size, partition_max_bytes=1) == [0, 1, 0]
        for version in (0, 1, 2):
            assert await counts(version, 0) == [0, 2, 2]
            assert await counts(version, 0, partition_max_bytes=size) == [0, 1, 1]


@pytest.mark.parametrize(("release", "sizes"), [("2.8", [700, 324, 0]), ("3.9", [700, 0, 0]), ("ottla", [700, 324, 0])])
async def test_fetch_max_bytes_of_the_broker_bounds_old_versions(
    release: str, sizes: list[int], tmp_path: Path
) -> None:
    assert Config.load({}, profile=profile(release))["fetch.max.bytes"] == 55 << 20
    data = plain([Record(0, T0, None, b"v" * (700 - 34))], 1)
    assert len(data) == 700
    await place(tmp_path, {"a": data, "b": data, "c": data})
    async with running(tmp_path, overrides={"fetch.max.bytes": "1024"}, release=release) as broker:
        client = await broker.client()
        response = await client.call(fetch(("a", 0, 0), ("b", 0, 0), ("c", 0, 0)), 2)
        assert [len(topic.partitions[0].records) for topic in response.responses] == sizes


@pytest.mark.parametrize("release", CUT)
async def test_fetch_out_of_range_is_refused_in_old_versions(release: str, tmp_path: Path) -> None:
    """Below the log start and above the end; at the end the response is empty, without an error."""
    await place(tmp_path, {"t": plain(rows(4), 0)})
    async with running(tmp_path, release=release) as broker:
        client = await broker.client()
        broker.log("t").delete_records_before(2)
        for version in range(broker.state.profile.served[1].first, min(broker.state.profile.served[1].last, 3) + 1):
            for offset in (-1, 0, 1, 5, 2**63 - 1):
                response = await fetch_partition(client, version, offset=offset)
                assert (response.error_code, response.high_watermark, response.records) == (1, -1, b"")
            response = await fetch_partition(client, version, offset=4)
            assert (response.error_code, response.high_watermark, response.records) == (0, 4, b"")
            assert (await fetch_partition(client, version, offset=2)).records == b"".join(
                entries(plain(rows(4), 0))[2:]
            )


# ---- what conversion keeps and drops

CONVERTING = ["0.11", "1.1", "2.0", "2.8", "3.0", "3.9", "ottla"]
PRODUCER: dict[str, Any] = {"producer_id": 5, "producer_epoch": 1, "base_sequence": 3, "leader_epoch": 4}


@pytest.mark.parametrize("release", CONVERTING)
async def test_conversion_drops_markers_and_leaves_a_gap(release: str, tmp_path: Path) -> None:
    """If a window holds nothing else, 0.11 to 1.1 return it as stored, later ones the header of an entry that does not
    follow.
    """
    markers = marker(2, commit=False) + marker(3)
    data = batch_of(rows(2), transactional=True, **PRODUCER) + markers + stored(2, rows(2, 4))
    await place(tmp_path, {"t": bytes(data)})
    async with running(tmp_path, release=release) as broker:
        client = await broker.client()
        for version in (0, 1, 2, 3):
            magic = 0 if version < 2 else 1
            assert (await fetch_partition(client, version)).records == plain(rows(2) + rows(2, 4), magic)
            assert (await fetch_partition(client, version, offset=2)).records == plain(rows(2, 4), magic)
            nothing = await fetch_partition(client, version, offset=2, partition_max_bytes=len(markers))
            assert (nothing.error_code, nothing.high_watermark) == (0, 6)
            assert nothing.records == (markers if release in ("0.11", "1.1") else OVERFLOW)
        assert (await fetch_partition(client, 4)).records == data


@pytest.mark.parametrize("release", CONVERTING)
async def test_conversion_returns_earlier_records_only_if_compressed(release: str, tmp_path: Path) -> None:
    """librdkafka relies on it. Gaps of the cleaner stay; a batch without records left is skipped."""
    kept = [record for record in rows(9) if record.offset in (1, 2, 6)]
    logs = {
        codec.name: bytes(batch.build(kept, batch.BatchFields(last_offset_delta=8), codec=codec))
        for codec in list(Codec)[:4]
    }
    await place(tmp_path, logs)
    async with running(tmp_path, release=release) as broker:
        client = await broker.client()
        for codec in list(Codec)[:4]:
            for version in (0, 1, 2, 3):
                for offset in (0, 2, 3, 6):
                    found = (await fetch_partition(client, version, codec.name, offset)).records
                    wanted = kept if codec else [record for record in kept if record.offset >= offset]
                    assert offsets(found) == [record.offset for record in wanted]
                    assert {header.codec for _, header in formats.headers(found)} == {codec}
                    if codec:  # the wrapper has the offset of its last message, not of the batch
                        assert [header.base_offset for _, header in formats.headers(found)] == [6]
                    else:
                        assert found == plain(wanted, 0 if version < 2 else 1)
                after = (await fetch_partition(client, version, codec.name, 7)).records
                if codec:
                    assert offsets(after) == [1, 2, 6]
                else:
                    assert after == (logs["NONE"] if release in ("0.11", "1.1") else OVERFLOW)


@pytest.mark.parametrize("release", CONVERTING)
async def test_conversion_drops_headers_and_producers_but_not_append_times(release: str, tmp_path: Path) -> None:
    sent = [record._replace(headers=(Header("h", b"1"), Header("n", None))) for record in rows(3)]
    sent[1] = sent[1]._replace(key=b"", value=None)
    timed = [record._replace(timestamp=T0 + 77, headers=()) for record in sent]
    logs = {}
    for codec in (Codec.NONE, Codec.LZ4):
        logs[f"created-{codec.name}"] = batch_of(sent, codec=codec, **PRODUCER)
        logs[f"appended-{codec.name}"] = batch.build(
            sent, batch.BatchFields(log_append_time=True, max_timestamp=T0 + 77), codec=codec
        )
    await place(tmp_path, logs)
    async with running(tmp_path, release=release) as broker:
        client = await broker.client()
        for version in (1, 3):
            magic = version // 2
            mark = 8 * magic
            results = {name: bytes((await fetch_partition(client, version, name)).records) for name in logs}
            assert results["created-NONE"] == plain([record._replace(headers=()) for record in sent], magic)
            marked = [message(r.offset, r.key, r.value, magic=magic, timestamp=T0 + 77, attributes=mark) for r in timed]
            assert results["appended-NONE"] == b"".join(marked)
            # lz4 frames have an invalid header checksum in v0 (KIP-57), and a valid one in v1.
            frame = bytes.fromhex("04224d186040") + (b"\x1a" if magic == 0 else b"\x82")
            start = 12 + (14 if magic == 0 else 22)
            for name, time, set_of in (
                ("created-LZ4", T0 + 2, plain(sent, magic)),
                ("appended-LZ4", T0 + 77, b"".join(marked)),
            ):
                assert results[name][start : start + 7] == frame
                ((_, header),) = formats.headers(results[name])
                assert (header.base_offset, header.codec) == (2, Codec.LZ4)
                assert header.max_timestamp == (time if magic else -1)
                assert header.log_append_time == (magic == 1 and name.startswith("appended"))
                assert legacy.inner(results[name], 0, header) == set_of
        whole = (await fetch_partition(client, 4, "created-NONE")).records
        assert whole == logs["created-NONE"]


@pytest.mark.parametrize("release", ["0.10.2", *CONVERTING])
async def test_conversion_from_v1_to_v0(release: str, tmp_path: Path) -> None:
    """Wrapped again, with absolute offsets; uncompressed earlier messages are dropped."""
    data = plain(rows(2), 1) + wrapper(plain(rows(3), 1), Codec.GZIP, offset=4)
    await place(tmp_path, {"t": data})
    async with running(tmp_path, release=release) as broker:
        client = await broker.client()
        for version in (0, 1):
            found = (await fetch_partition(client, version, offset=1)).records
            first, second = entries(found)
            assert first == plain(rows(1, 1), 0)
            inside = [record._replace(offset=record.offset + 2) for record in rows(3)]
            assert legacy.inner(second, 0, formats.read_header(second)) == plain(inside, 0)
        for version in (2, 3):
            assert (await fetch_partition(client, version)).records == data


@pytest.mark.parametrize("release", ["0.11", "2.8", "3.9", "4.0", "4.3", "ottla"])
async def test_fetch_from_v4_returns_old_formats_as_stored(release: str, tmp_path: Path) -> None:
    """Byte for byte, also with wrappers of the oldest kinds; nothing is converted up."""
    parts = [
        plain(rows(3), 0),
        wrapper(plain(rows(2, 3), 0), Codec.LZ4, magic=0, offset=4),
        message(5, None, b"x", magic=0, attributes=0x40),
        plain(rows(2, 6), 1),
        wrapper(plain(rows(2), 1), Codec.SNAPPY, offset=9),
        stored(2, rows(3, 10), Codec.GZIP),
        message(13, b"k", None, magic=0),
    ]
    data = b"".join(parts)
    await place(tmp_path, {"t": data})
    async with running(tmp_path, release=release) as broker:
        client = await broker.client()
        newest = min(broker.state.profile.served[1].last, 12)
        for version in {4, min(9, newest), newest}:
            assert (await fetch_partition(client, version)).records == data
            assert (await fetch_partition(client, version, offset=9)).records == b"".join(parts[4:])


@pytest.mark.parametrize(("release", "magic"), [("0.9", 0), ("0.10.2", 1), ("2.8", 2), ("3.9", 2), ("ottla", 2)])
async def test_old_sets_sent_twice_are_stored_twice(release: str, magic: int, tmp_path: Path) -> None:
    """They have no producer: a retry and a new message look the same."""
    async with running(tmp_path, release=release) as broker:
        await broker.topic("t")
        client = await broker.client()
        for version in range(min(broker.state.profile.served[0].last, 2) + 1):
            base_offset = broker.log("t").log_end_offset
            for again in (0, 2):
                response = only(await client.call(produce(plain(rows(2), 0)), version))
                assert (response.error_code, response.base_offset) == (0, base_offset + again)
        end_offset = broker.log("t").log_end_offset
        newest = min(broker.state.profile.served[1].last, 4)
        response = await fetch_partition(client, newest)
        assert offsets(response.records) == list(range(end_offset)) and end_offset >= 8
        for _, header in formats.headers(response.records):
            assert (header.magic, header.producer_id, header.base_sequence) == (magic, -1, -1)
            assert header.max_timestamp == -1


@pytest.mark.parametrize("release", ["4.0.0", "4.0", "4.1", "4.3"])
async def test_release_4_closes_on_old_versions(release: str, tmp_path: Path) -> None:
    await place(tmp_path, {"t": plain(rows(1), 0)})
    async with running(tmp_path, release=release) as broker:
        for version in (0, 1, 2, 3):
            client = await broker.client()
            await client.send(fetch(("t", 0, 0)), version)
            assert await client.is_closed()
        assert (await fetch_partition(await broker.client(), 4)).error_code == 0


@pytest.mark.parametrize(
    ("release", "protocol", "is_converted"), [("2.8", None, False), ("3.9", "2.8", False), ("3.9", None, True)]
)
async def test_topic_in_an_older_format_is_not_scanned(
    release: str, protocol: str | None, is_converted: bool, tmp_path: Path
) -> None:
    """Kafka uses the topic's format: older data in a newer format is returned as stored, to any client."""
    data = stored(2, rows(2))
    await place(tmp_path, {"t": data}, {"message.format.version": "0.10.2"})
    overrides = {"inter.broker.protocol.version": protocol} if protocol else {}
    async with running(tmp_path, release=release, overrides=overrides) as broker:
        client = await broker.client()
        assert (await fetch_partition(client, 3)).records == (plain(rows(2), 1) if is_converted else data)
        assert (await fetch_partition(client, 1)).records == plain(rows(2), 0)
