"""Fetching a range from scripted brokers in simulated time: the requests and their times."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.pipeline.backend import DataLoss, OffsetRange, ReadError, Wanted
from ottla.pipeline.readers.wire.config import MAX_PARTITION_FETCH_BYTES, client_options
from ottla.pipeline.readers.wire.connection import open_cluster
from ottla.pipeline.readers.wire.decoding import Decoder
from ottla.pipeline.readers.wire.fetch import FIRST_BYTES, Fetched, RangeFetch
from ottla.protocol.messages.records.fetch import FetchRequest, FetchResponse
from ottla.protocol.messages.records.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from ottla.protocol.messages.topics.metadata import MetadataRequest
from ottla.protocol.records import formats, legacy
from ottla.protocol.records.batch import Record
from ottla_testing.client.scripted import CLASSES, SILENT, Later, ScriptedBroker, ScriptedNetwork, metadata
from ottla_testing.each import each
from ottla_testing.pipeline.columnar_samples import FORMATS, entries, some_records
from ottla_testing.pipeline.wire_world import QUICK, plain

if FetchRequest not in CLASSES:
    CLASSES.append(FetchRequest)
VERSIONS = {MetadataRequest: "0-12", FetchRequest: "0-12", ListOffsetsRequest: "1-7"}
Responder = Callable[[Any], Any]


def response(
    data: bytes = b"", *, high: int = 100, stable: int = -1, error: int = 0, partition: int = 0
) -> FetchResponse:
    topic_response = FetchResponse.FetchableTopicResponse
    one = topic_response.PartitionData(
        partition_index=partition,
        error_code=error,
        high_watermark=high,
        last_stable_offset=stable,
        log_start_offset=0,
        aborted_transactions=[],
        records=data,
    )
    return FetchResponse(responses=[topic_response(topic="t", partitions=[one])])


SIMULATED = {"default.api.timeout.ms": "3000"}  # of a loop with simulated time


class World:
    """A broker that leads t-0, and a reader of it."""

    def __init__(self, fetch: Callable[[Any], Any], versions: Any = VERSIONS) -> None:
        self.network = ScriptedNetwork()
        self.broker: ScriptedBroker = self.network.broker(versions=versions)
        self.broker.does[MetadataRequest] = lambda request, version, link: self.metadata()
        self.broker.does[FetchRequest] = lambda request, version, link: fetch(partition_of(request))
        self.broker.does[ListOffsetsRequest] = self.ends
        self.topics: dict[str, Any] = {"t": {0: 0}}
        self.first, self.last = 0, 100

    def metadata(self) -> Any:
        return metadata({0: ("one", 9092)}, self.topics)

    def ends(self, request: Any, version: int, link: Any) -> Any:
        topic_response = ListOffsetsResponse.ListOffsetsTopicResponse
        wanted = request.topics[0].partitions[0].timestamp if request.topics else 0
        offset = self.first if wanted == -2 else self.last
        one = topic_response.ListOffsetsPartitionResponse(partition_index=0, error_code=0, offset=offset, timestamp=-1)
        return ListOffsetsResponse(topics=[topic_response(name="t", partitions=[one])] if request.topics else [])

    def fetches(self) -> list[Any]:
        return [partition_of(heard.request) for heard in self.broker.requests_of(FetchRequest)]

    def read(self, end: int, start: int = 0, *, slowly: Any = None, options: Any = None, **more: Any) -> list[Fetched]:
        """Returns all responses of a range."""
        config = client_options({**QUICK, "bootstrap.servers": "one:9092", **SIMULATED, **(options or {})})
        found: list[Fetched] = []

        async def work() -> list[Fetched]:
            cluster = await open_cluster(config)
            try:
                fetch = RangeFetch(cluster, config, OffsetRange("t", 0, start, end), Wanted(("offset",), **more))
                while (fetched := await fetch.next()) is not None:
                    found.append(fetched)
                    if slowly is not None:
                        await slowly()
            finally:
                await cluster.close()
            return found

        return self.network.run(work())


class FetchedPartition(NamedTuple):
    fetch_offset: int
    partition_max_bytes: int
    max_wait_ms: int


def partition_of(request: Any) -> FetchedPartition:
    """Returns the requested fields of the one partition."""
    one = request.topics[0].partitions[0]
    return FetchedPartition(one.fetch_offset, one.partition_max_bytes, request.max_wait_ms)


def batches_from(log: list[bytes]) -> Callable[[Any], Any]:
    """Returns a log of batches as a broker does: whole ones, up to the limit, but at least one."""

    def fetch(part: Any) -> Any:
        data = b""
        for one in log:
            (_, header), *_ = formats.headers(one)
            if header.last_offset >= part.fetch_offset and (not data or len(data + one) <= part.partition_max_bytes):
                data += one
        return response(data)

    return fetch


def seen(found: list[Fetched]) -> list[int]:
    return [
        record.offset
        for fetched in found
        for position, _ in formats.headers(fetched.data)
        for record in formats.records(fetched.data, position)
    ]


def patiently(*results: Any) -> tuple[Callable[[Any], Any], list[Any]]:
    """Returns the results one by one, and then the last one again and again."""
    left = list(results)

    def fetch(part: Any) -> Any:
        return left.pop(0) if len(left) > 1 else left[0]

    return fetch, left


def test_next_fetch_sent_before_last_is_read() -> None:
    world = World(batches_from([plain(*range(10 * n, 10 * n + 10), value_bytes=1000) for n in range(10)]))
    seen_offsets: list[int] = []

    async def look() -> None:
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        seen_offsets.append(len(world.fetches()))

    options = {"max.partition.fetch.bytes": "11000"}
    assert seen(world.read(100, slowly=look, options=options)) == list(range(100))
    # One request ahead, and none after the end.
    assert seen_offsets == [2, 3, 4, 5, 6, 7, 8, 9, 10, 10]
    assert [part.fetch_offset for part in world.fetches()] == list(range(0, 100, 10))


def test_fetch_size_limited_to_rest_of_range() -> None:
    log = [plain(n, value_bytes=100_000) for n in range(90)]
    world = World(batches_from(log))
    assert seen(world.read(60)) == list(range(60))
    limits = [part.partition_max_bytes for part in world.fetches()]
    assert limits[0] == FIRST_BYTES and FIRST_BYTES < max(limits) <= MAX_PARTITION_FETCH_BYTES
    whole = sum(map(len, log[:60]))
    sent = sum(len(batches_from(log)(part).responses[0].partitions[0].records) for part in world.fetches())
    assert sent < whole * 1.3


def test_range_ends_at_its_end_offset() -> None:
    world = World(batches_from([plain(*range(10 * n, 10 * n + 10)) for n in range(10)]))
    assert seen(world.read(35, 12)) == list(range(10, 40))
    assert len(world.fetches()) == 1
    nothing = World(batches_from([]))
    assert nothing.read(12, 12) == [] and not nothing.fetches()


def test_gap_at_end_fetched_twice() -> None:
    fetch, _ = patiently(response(plain(0, 1)), response())
    world = World(fetch)
    assert seen(world.read(100)) == [0, 1]
    part = world.fetches()
    assert [(one.fetch_offset, one.max_wait_ms) for one in part] == [(0, 50), (2, 50), (2, 0)]


def test_single_empty_response_does_not_end_range() -> None:
    fetch, _ = patiently(response(plain(0, 1)), response(), response(plain(2, 3)), response())
    assert seen(World(fetch).read(4)) == [0, 1, 2, 3]


def test_records_visible_after_delay_returned() -> None:
    fetch, _ = patiently(response(high=0), response(high=0), response(plain(0, 1), high=2), response(high=2))
    assert seen(World(fetch).read(2)) == [0, 1]
    fetch, _ = patiently(response(stable=0), response(stable=0), response(plain(0, 1), stable=2))
    assert seen(World(fetch).read(2, committed=True)) == [0, 1]


def test_records_never_visible_raise() -> None:
    world = World(lambda part: response(high=7))
    with pytest.raises(DataLoss, match=r"t-0 has lost offsets 7 to 8: it ends at offset 7 \(broker at one:9092\)"):
        world.read(9, 7)
    assert world.network.loop.time() < 1000 + 20
    assert World(lambda part: response(high=7)).read(9, 7, fail_on_loss=False) == []
    # A leader without the end of a compacted log: the rest of the range is empty.
    with pytest.raises(DataLoss, match="lost offsets 7 to 8"):
        World(lambda part: response(high=7)).read(9, 5)
    with pytest.raises(ReadError, match=r"up to offset 9 of one:9092: transactions are open .* 7, on"):
        World(lambda part: response(high=20, stable=7)).read(9, 7, committed=True)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_old_fetch_versions_truncated_entries(version: int) -> None:
    log = bytes(
        b"".join(
            legacy.build([Record(n, -1, None, b"v" * size)], magic=0) for n, size in enumerate((10, 300, 5000, 10))
        )
    )
    starts = [position for position, _ in formats.headers(log)]

    def fetch(part: Any) -> Any:
        return response(log[starts[part.fetch_offset] :][: part.partition_max_bytes])

    versions = VERSIONS | {FetchRequest: f"0-{version}"}
    for limit in (1, 12, 20, 100, 10_000):
        world = World(fetch, versions)
        assert seen(world.read(4, options={"max.partition.fetch.bytes": str(limit)})) == [0, 1, 2, 3]
        assert len(world.fetches()) < 30
    tight = {"max.partition.fetch.bytes": "100", "fetch.max.bytes": "4000"}
    with pytest.raises(ReadError, match=r"offset 2 of one:9092: an entry there has 50\d\d bytes, .*fetch.max.bytes"):
        World(fetch, versions).read(4, options=tight)
    with pytest.raises(ReadError, match=r"an entry there is larger, and kafka.fetch.max.bytes is 5"):
        World(fetch, versions).read(4, options={"fetch.max.bytes": "5"})


def test_bytes_without_batch_raise() -> None:
    with pytest.raises(ReadError, match="cannot be read at offset 2 of one:9092: no record batch begins there"):
        World(patiently(response(plain(0, 1) + bytes(100)), response(bytes(100)))[0]).read(9)


def test_offset_out_of_range_skips_or_raises() -> None:
    world = World(lambda part: response(error=1) if part.fetch_offset < 5 else response(plain(5, 6)))
    world.first = 5
    with pytest.raises(DataLoss, match="lost offsets 0 to 4: it begins at offset 5"):
        world.read(7)
    world = World(lambda part: response(error=1) if part.fetch_offset < 5 else response(plain(5, 6)))
    world.first = 5
    assert seen(world.read(7, fail_on_loss=False)) == [5, 6]
    # In range by now: it is fetched again.
    fetch, _ = patiently(response(error=1), response(plain(0)))
    assert seen(World(fetch).read(1)) == [0]


def test_deleted_partition_raises_data_loss() -> None:
    world = World(lambda part: response(error=3))
    world.topics = {"t": 3}
    with pytest.raises(DataLoss, match=r"t-0 has lost offsets 0 to 4: it was deleted \(broker at one:9092\)"):
        world.read(5)
    # Not at once: a broker that has just started may not have its metadata yet. And the requests created no topic.
    heard = world.broker.requests_of(MetadataRequest)
    assert len(heard) >= 3 and not any(one.request.allow_auto_topic_creation for one in heard)
    world = World(lambda part: response(error=3))
    world.topics = {"t": {1: 0}}
    with pytest.raises(DataLoss, match="it was deleted"):
        world.read(5)


def test_leader_changes_followed() -> None:
    world = World(patiently(response(error=6), response(error=5), response(plain(0)))[0])
    assert seen(world.read(1)) == [0]
    world = World(lambda part: response(plain(0)))
    world.topics = {"t": {0: -1}}
    with pytest.raises(ReadError, match=r"t-0 cannot be read at offset 0: LEADER_NOT_AVAILABLE .*one:9092"):
        world.read(1)
    assert 1002.8 <= world.network.loop.time() < 1003.2  # default.api.timeout.ms


def test_silent_broker_times_out_and_is_retried() -> None:
    world = World(patiently(SILENT, response(plain(0)))[0])
    assert seen(world.read(1)) == [0]
    assert world.network.loop.time() >= 1002  # request.timeout.ms
    world = World(lambda part: SILENT)
    with pytest.raises(ReadError, match="no response to FetchRequest from one:9092 within"):
        world.read(1)
    assert world.network.loop.time() < 1007


def test_late_response_and_response_of_other_partition() -> None:
    assert seen(World(lambda part: Later(1.5, response(plain(0)))).read(1)) == [0]
    world = World(patiently(response(plain(9), partition=7), response(plain(0)))[0])
    assert seen(world.read(1)) == [0]


def test_slow_reader_sends_fetch_again() -> None:
    """Longer than the request timeout: the response in flight is lost, and fetched again."""
    world = World(batches_from([plain(n, value_bytes=1000) for n in range(4)]))

    async def pause() -> None:
        await asyncio.sleep(100)

    assert seen(world.read(4, slowly=pause, options={"max.partition.fetch.bytes": "100"})) == [0, 1, 2, 3]


@each("place", [23, 26, 57, 60])
@each("limit", [1, 100_000])
@each("policy", ["skip", "emit"])
def test_wrong_last_offset_delta_hides_no_batch(place: int, limit: int, policy: Any) -> None:
    """A bit of the last offset delta, or of the record count, is wrong."""
    log = [plain(*range(4 * n, 4 * n + 4)) for n in range(6)]
    bad = bytearray(log[2])
    bad[place] ^= 0x40 if place in (23, 57) else 2
    log[2] = bytes(bad)

    def fetch(part: FetchedPartition) -> Any:
        """Returns the batch as the broker has it, undamaged."""
        data = b""
        for number, one in enumerate(log):
            if 4 * number + 3 >= part.fetch_offset and (not data or len(data + one) <= part.partition_max_bytes):
                data += one
        return response(data)

    decoder = Decoder(Wanted(("offset", "crcOk"), on_corrupt=policy), OffsetRange("t", 0, 1, 22))
    found = World(fetch).read(22, 1, on_corrupt="skip", options={"max.partition.fetch.bytes": str(limit)})
    rows = [row for one in found for some in decoder.rows(one) for row in some.to_pylist()]
    assert [row["offset"] for row in rows if row["crcOk"]] == [1, 2, 3, 4, 5, 6, 7, *range(12, 22)]
    shown = [row["offset"] for row in rows if not row["crcOk"]]
    assert len(set(shown)) == len(shown) and shown == ([] if policy == "skip" else sorted(shown))
    assert decoder.skipped > 0 or policy == "emit"


entry = st.tuples(st.sampled_from(FORMATS), st.integers(1, 6), st.integers(1, 40))


@given(
    st.lists(entry, min_size=1, max_size=12),
    st.integers(0, 60),
    st.integers(0, 400),
    st.sampled_from([1, 50, 300, 2000, 100_000]),
    st.sampled_from([2, 12]),
)
def test_any_range_of_any_log(log: list[Any], start: int, size: int, limit: int, version: int) -> None:
    """Entries of all formats with gaps between and within them: the records of the range, each once."""
    made: list[tuple[int, bytes]] = []  # last offset, entry
    everything: list[int] = []
    first = 0
    for number, ((magic, codec), count, gap) in enumerate(log):
        if magic < 2 and not codec:
            count = 1  # plain messages are entries of their own
        records = some_records(count, number, first=first, headers=magic == 2)
        everything += [record.offset for record in records]
        made.append((records[-1].offset, entries(records, magic, codec)))
        first = records[-1].offset + gap
    end = start + size

    def fetch(part: FetchedPartition) -> Any:
        data = b"".join(one for last, one in made if last >= part.fetch_offset)
        if version == 2:
            return response(data[: part.partition_max_bytes], high=10**6)
        whole = [position + header.size_bytes for position, header in formats.headers(data)]
        fits = [stop for stop in whole if stop <= part.partition_max_bytes]
        return response(data[: (fits[-1:] or whole[:1] or [0])[0]], high=10**6)

    world = World(fetch, VERSIONS | {FetchRequest: f"0-{version}"})
    want = Wanted(("offset",))
    decoder = Decoder(want, OffsetRange("t", 0, start, end))
    found = world.read(end, start, options={"max.partition.fetch.bytes": str(limit)})
    offsets = [offset for one in found for some in decoder.rows(one) for offset in some.column("offset").to_pylist()]
    assert offsets == [offset for offset in everything if start <= offset < end]
