"""Fetching a range from brokers that do what the test says, in a time of the test's own: what is asked, and when."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.pipeline.backend import DataLoss, OffsetRange, ReadError, Wanted
from ottla.pipeline.readers.wire.config import MAX_PARTITION_FETCH_BYTES, client_options
from ottla.pipeline.readers.wire.connection import connected
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
Answer = Callable[[Any], Any]


def answer(
    data: bytes = b"", *, high: int = 100, stable: int = -1, error: int = 0, partition: int = 0
) -> FetchResponse:
    told = FetchResponse.FetchableTopicResponse
    one = told.PartitionData(
        partition_index=partition,
        error_code=error,
        high_watermark=high,
        last_stable_offset=stable,
        log_start_offset=0,
        aborted_transactions=[],
        records=data,
    )
    return FetchResponse(responses=[told(topic="t", partitions=[one])])


SIMULATED = {"default.api.timeout.ms": "3000"}  # of a loop whose time passes at once


class World:
    """One broker that leads t-0, and a reader of it."""

    def __init__(self, fetch: Callable[[Any], Any], versions: Any = VERSIONS) -> None:
        self.network = ScriptedNetwork()
        self.broker: ScriptedBroker = self.network.broker(versions=versions)
        self.broker.does[MetadataRequest] = lambda request, version, link: self.metadata()
        self.broker.does[FetchRequest] = lambda request, version, link: fetch(asked_of(request))
        self.broker.does[ListOffsetsRequest] = self.ends
        self.topics: dict[str, Any] = {"t": {0: 0}}
        self.first, self.last = 0, 100

    def metadata(self) -> Any:
        return metadata({0: ("one", 9092)}, self.topics)

    def ends(self, request: Any, version: int, link: Any) -> Any:
        told = ListOffsetsResponse.ListOffsetsTopicResponse
        wanted = request.topics[0].partitions[0].timestamp if request.topics else 0
        offset = self.first if wanted == -2 else self.last
        one = told.ListOffsetsPartitionResponse(partition_index=0, error_code=0, offset=offset, timestamp=-1)
        return ListOffsetsResponse(topics=[told(name="t", partitions=[one])] if request.topics else [])

    def fetches(self) -> list[Any]:
        return [asked_of(heard.request) for heard in self.broker.asked(FetchRequest)]

    def read(self, end: int, start: int = 0, *, slowly: Any = None, options: Any = None, **more: Any) -> list[Fetched]:
        """All answers of a range."""
        config = client_options({**QUICK, "bootstrap.servers": "one:9092", **SIMULATED, **(options or {})})
        more.setdefault("committed", False)
        found: list[Fetched] = []

        async def work() -> list[Fetched]:
            async with connected(config) as cluster:
                fetch = RangeFetch(cluster, config, OffsetRange("t", 0, start, end), **more)
                while (fetched := await fetch.next()) is not None:
                    found.append(fetched)
                    if slowly is not None:
                        await slowly()
            return found

        return self.network.run(work())


class Asked(NamedTuple):
    fetch_offset: int
    partition_max_bytes: int
    max_wait_ms: int


def asked_of(request: Any) -> Asked:
    """What is asked of the one partition."""
    one = request.topics[0].partitions[0]
    return Asked(one.fetch_offset, one.partition_max_bytes, request.max_wait_ms)


def batches_from(log: list[bytes]) -> Callable[[Any], Any]:
    """A log of batches, as a broker gives it: whole ones, up to the limit, but one at least."""

    def fetch(asked: Any) -> Any:
        data = b""
        for one in log:
            (_, header), *_ = formats.headers(one)
            if header.last_offset >= asked.fetch_offset and (not data or len(data + one) <= asked.partition_max_bytes):
                data += one
        return answer(data)

    return fetch


def seen(found: list[Fetched]) -> list[int]:
    return [
        record.offset
        for fetched in found
        for position, _ in formats.headers(fetched.data)
        for record in formats.records(fetched.data, position)
    ]


def patiently(*answers: Any) -> tuple[Callable[[Any], Any], list[Any]]:
    """Answers in turn, the last one again and again."""
    left = list(answers)

    def fetch(asked: Any) -> Any:
        return left.pop(0) if len(left) > 1 else left[0]

    return fetch, left


def test_the_next_is_asked_for_before_the_last_is_read() -> None:
    world = World(batches_from([plain(*range(10 * n, 10 * n + 10), value_bytes=1000) for n in range(10)]))
    seen_asked: list[int] = []

    async def look() -> None:
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        seen_asked.append(len(world.fetches()))

    options = {"max.partition.fetch.bytes": "11000"}
    assert seen(world.read(100, slowly=look, options=options)) == list(range(100))
    # One ahead, and none behind the end.
    assert seen_asked == [2, 3, 4, 5, 6, 7, 8, 9, 10, 10]
    assert [asked.fetch_offset for asked in world.fetches()] == list(range(0, 100, 10))


def test_no_more_is_asked_for_than_is_left() -> None:
    log = [plain(n, value_bytes=100_000) for n in range(200)]
    world = World(batches_from(log))
    assert seen(world.read(60)) == list(range(60))
    limits = [asked.partition_max_bytes for asked in world.fetches()]
    assert limits[0] == FIRST_BYTES and FIRST_BYTES < max(limits) <= MAX_PARTITION_FETCH_BYTES
    whole = sum(map(len, log[:60]))
    sent = sum(len(batches_from(log)(asked).responses[0].partitions[0].records) for asked in world.fetches())
    assert sent < whole * 1.3


def test_a_range_ends_where_its_offsets_do_although_there_is_more() -> None:
    world = World(batches_from([plain(*range(10 * n, 10 * n + 10)) for n in range(10)]))
    assert seen(world.read(35, 12)) == list(range(10, 40))
    assert len(world.fetches()) == 1
    nothing = World(batches_from([]))
    assert nothing.read(12, 12) == [] and not nothing.fetches()


def test_a_gap_at_the_end_is_asked_for_twice() -> None:
    fetch, _ = patiently(answer(plain(0, 1)), answer())
    world = World(fetch)
    assert seen(world.read(100)) == [0, 1]
    asked = world.fetches()
    assert [(one.fetch_offset, one.max_wait_ms) for one in asked] == [(0, 50), (2, 50), (2, 0)]


def test_an_empty_answer_by_chance_ends_nothing() -> None:
    fetch, _ = patiently(answer(plain(0, 1)), answer(), answer(plain(2, 3)), answer())
    assert seen(World(fetch).read(4)) == [0, 1, 2, 3]


def test_records_become_visible_a_little_later() -> None:
    fetch, _ = patiently(answer(high=0), answer(high=0), answer(plain(0, 1), high=2), answer(high=2))
    assert seen(World(fetch).read(2)) == [0, 1]
    fetch, _ = patiently(answer(stable=0), answer(stable=0), answer(plain(0, 1), stable=2))
    assert seen(World(fetch).read(2, committed=True)) == [0, 1]


def test_records_that_never_become_visible() -> None:
    world = World(lambda asked: answer(high=7))
    with pytest.raises(DataLoss, match=r"t-0 has lost offsets 7 to 8: it ends at offset 7 \(broker at one:9092\)"):
        world.read(9, 7)
    assert world.network.loop.time() < 1000 + 20
    assert World(lambda asked: answer(high=7)).read(9, 7, fail_on_loss=False) == []
    # A leader without the end of a compacted log: what was to be seen of it is empty.
    with pytest.raises(DataLoss, match="lost offsets 7 to 8"):
        World(lambda asked: answer(high=7)).read(9, 5)
    with pytest.raises(ReadError, match=r"up to offset 9 of one:9092: transactions are open .* 7, on"):
        World(lambda asked: answer(high=20, stable=7)).read(9, 7, committed=True)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_old_fetches_cut_the_last_entry_and_the_first(version: int) -> None:
    log = bytes(
        b"".join(
            legacy.build([Record(n, -1, None, b"v" * size)], magic=0) for n, size in enumerate((10, 300, 5000, 10))
        )
    )
    starts = [position for position, _ in formats.headers(log)]

    def fetch(asked: Any) -> Any:
        return answer(log[starts[asked.fetch_offset] :][: asked.partition_max_bytes])

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


def test_what_is_no_batch_is_told() -> None:
    with pytest.raises(ReadError, match="cannot be read at offset 2 of one:9092: what it has there is no record batch"):
        World(patiently(answer(plain(0, 1) + bytes(100)), answer(bytes(100)))[0]).read(9)


def test_offsets_out_of_range() -> None:
    world = World(lambda asked: answer(error=1) if asked.fetch_offset < 5 else answer(plain(5, 6)))
    world.first = 5
    with pytest.raises(DataLoss, match="lost offsets 0 to 4: it begins at offset 5"):
        world.read(7)
    world = World(lambda asked: answer(error=1) if asked.fetch_offset < 5 else answer(plain(5, 6)))
    world.first = 5
    assert seen(world.read(7, fail_on_loss=False)) == [5, 6]
    # In range after all: it is asked again.
    fetch, _ = patiently(answer(error=1), answer(plain(0)))
    assert seen(World(fetch).read(1)) == [0]


def test_a_partition_that_is_gone() -> None:
    world = World(lambda asked: answer(error=3))
    world.topics = {"t": 3}
    with pytest.raises(DataLoss, match=r"t-0 has lost offsets 0 to 4: it was deleted \(broker at one:9092\)"):
        world.read(5)
    # Not at once: a broker that has just started may not know it yet. And nobody has made it meanwhile.
    heard = world.broker.asked(MetadataRequest)
    assert len(heard) >= 3 and not any(one.request.allow_auto_topic_creation for one in heard)
    world = World(lambda asked: answer(error=3))
    world.topics = {"t": {1: 0}}
    with pytest.raises(DataLoss, match="it was deleted"):
        world.read(5)


def test_leaders_come_and_go() -> None:
    world = World(patiently(answer(error=6), answer(error=5), answer(plain(0)))[0])
    assert seen(world.read(1)) == [0]
    world = World(lambda asked: answer(plain(0)))
    world.topics = {"t": {0: -1}}
    with pytest.raises(ReadError, match=r"t-0 cannot be read at offset 0: LEADER_NOT_AVAILABLE .*one:9092"):
        world.read(1)
    assert 1002.8 <= world.network.loop.time() < 1003.2  # default.api.timeout.ms


def test_who_is_silent_is_left_and_asked_again() -> None:
    world = World(patiently(SILENT, answer(plain(0)))[0])
    assert seen(world.read(1)) == [0]
    assert world.network.loop.time() >= 1002  # request.timeout.ms
    world = World(lambda asked: SILENT)
    with pytest.raises(ReadError, match="one:9092 did not answer FetchRequest in time"):
        world.read(1)
    assert world.network.loop.time() < 1007


def test_an_answer_may_come_late_or_be_of_another_partition() -> None:
    assert seen(World(lambda asked: Later(1.5, answer(plain(0)))).read(1)) == [0]
    world = World(patiently(answer(plain(9), partition=7), answer(plain(0)))[0])
    assert seen(world.read(1)) == [0]


def test_a_reader_may_take_its_time() -> None:
    """Longer than any answer may take: what was under way is lost, and asked for again."""
    world = World(batches_from([plain(n, value_bytes=1000) for n in range(4)]))

    async def pause() -> None:
        await asyncio.sleep(100)

    assert seen(world.read(4, slowly=pause, options={"max.partition.fetch.bytes": "100"})) == [0, 1, 2, 3]


@each("place", [23, 26, 57, 60])
@each("limit", [1, 100_000])
@each("policy", ["skip", "emit"])
def test_a_batch_that_lies_of_its_reach_hides_no_other(place: int, limit: int, policy: Any) -> None:
    """A bit of its last offset delta, or of its number of records, is wrong."""
    log = [plain(*range(4 * n, 4 * n + 4)) for n in range(6)]
    bad = bytearray(log[2])
    bad[place] ^= 0x40 if place in (23, 57) else 2
    log[2] = bytes(bad)

    def fetch(asked: Asked) -> Any:
        """The broker has it right."""
        data = b""
        for number, one in enumerate(log):
            if 4 * number + 3 >= asked.fetch_offset and (not data or len(data + one) <= asked.partition_max_bytes):
                data += one
        return answer(data)

    decoder = Decoder(Wanted(("offset", "crcOk"), on_corrupt=policy), OffsetRange("t", 0, 1, 22))
    found = World(fetch).read(22, 1, doubting=True, options={"max.partition.fetch.bytes": str(limit)})
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
    """Entries of all formats with gaps between and within: the records of the range, each once."""
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

    def fetch(asked: Asked) -> Any:
        data = b"".join(one for last, one in made if last >= asked.fetch_offset)
        if version == 2:
            return answer(data[: asked.partition_max_bytes], high=10**6)
        whole = [position + header.size_bytes for position, header in formats.headers(data)]
        fits = [stop for stop in whole if stop <= asked.partition_max_bytes]
        return answer(data[: (fits[-1:] or whole[:1] or [0])[0]], high=10**6)

    world = World(fetch, VERSIONS | {FetchRequest: f"0-{version}"})
    want = Wanted(("offset",))
    decoder = Decoder(want, OffsetRange("t", 0, start, end))
    found = world.read(end, start, options={"max.partition.fetch.bytes": str(limit)})
    offsets = [offset for one in found for some in decoder.rows(one) for offset in some.column("offset").to_pylist()]
    assert offsets == [offset for offset in everything if start <= offset < end]
