"""Expectations of the requests that clients made: their words, the text of a difference, and waiting."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Iterator
from typing import Any

import pytest

from ottla.broker import Embedded
from ottla.broker.admin_api.expectations import WORDS, Expected, Words, verdict
from ottla.broker.admin_api.seen_requests import SeenRequest, TopicNames
from ottla.broker.metrics.client_ledger import ClientLibrary
from ottla.broker.recording.exchange import Ending, Exchange, Peer
from ottla.protocol.compiler import build
from ottla.protocol.headers import response_header
from ottla.protocol.messages.groups.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.records.produce import ProduceResponse
from ottla.protocol.messages.topics.metadata import MetadataRequest
from ottla.protocol.records import legacy
from ottla.protocol.records.batch import Record
from ottla_testing.broker.harness import Client, frame, produce, records

TOPIC_ID = bytes(range(16))
NAMES = TopicNames({TOPIC_ID: "by-id"})


def seen(
    request: Any, version: int, /, number: int = 1, client_id: str | None = "orders", response: Any = None, **more: Any
) -> SeenRequest:
    library = ClientLibrary("PLAINTEXT", more.pop("software", None), "1.0", True)
    peer = Peer(1, more.pop("node", 0), "PLAINTEXT", "127.0.0.1", 9092, "127.0.0.1", 5000, 0, library)
    data = frame(request, version, number, client_id)[4:]
    one = Exchange(number, peer, 1000, 0, *struct.unpack_from(">hhi", data), client_id, data, len(data))
    if response is not None:
        one.response = response_header(number, one.api_key, version >= 9) + build(response, version)
        one.response_bytes, one.duration_ns, one.ending = len(one.response), 1_500_000, Ending.RESPONDED
    for name, value in more.items():
        setattr(one, name, value)
    return SeenRequest(one, NAMES)


def produced(code: int = 0) -> ProduceResponse:
    part = ProduceResponse.TopicProduceResponse.PartitionProduceResponse(index=0, error_code=code, base_offset=0)
    return ProduceResponse(
        responses=[ProduceResponse.TopicProduceResponse(name="t", partition_responses=[part])], throttle_time_ms=7
    )


IDEMPOTENT = records(b"a", codec=3, producer_id=9, producer_epoch=0, base_sequence=0)
GOOD = seen(produce(IDEMPOTENT), 9, 1, response=produced())
PLAIN = seen(produce(records(b"a"), acks=1), 8, 2, response=produced(6))
SILENT = seen(produce(records(b"a", b"b"), acks=0), 3, 3, ending=Ending.SILENT, duration_ns=5)
PENDING = seen(produce(records(b"a")), 9, 4)
CUT = seen(produce(records(b"a")), 9, 5, ending=Ending.CLOSED, reason="the client closed the connection")
OTHER = seen(
    MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name="x")]),
    1,
    6,
    "reader",
    node=2,
    principal="User:ann",
)
LARGE = seen(produce(records(b"a")), 9, 7, request=None, request_bytes=2_000_000)
ALL = [GOOD, PLAIN, SILENT, PENDING, CUT, OTHER, LARGE]


def test_seen_request_has_the_facts_of_its_exchange() -> None:
    assert (GOOD.api, GOOD.version, GOOD.client_id, GOOD.software) == ("Produce", 9, "orders", None)
    assert (GOOD.ending, GOOD.errors, GOOD.topics, GOOD.duration_ms) == ("responded", (), ("t",), 1.5)
    assert GOOD.request is not None and GOOD.request["acks"] == -1
    assert GOOD.response is not None and GOOD.response["throttle_time_ms"] == 7
    facts = GOOD.produced
    assert facts is not None and (facts.acks, facts.codecs, facts.magics, facts.records) == (-1, ("lz4",), (2,), 1)
    assert facts.is_idempotent and not facts.is_transactional and facts.producer_ids == (9,)
    assert PLAIN.errors == ("NOT_LEADER_OR_FOLLOWER",) and "NOT_LEADER_OR_FOLLOWER" in repr(PLAIN)
    assert SILENT.produced is not None and SILENT.produced.records == 2
    assert (PENDING.ending, PENDING.duration_ms, PENDING.response) == ("pending", None, None)
    assert (OTHER.produced, OTHER.topics, OTHER.node) == (None, ("x",), 2)
    assert (LARGE.request, LARGE.produced, LARGE.topics) == (None, None, ())


def test_topic_of_a_request_by_id_is_shown_by_name() -> None:
    one = seen(produce(records(b"a"), "", topic_id=TOPIC_ID), 13)
    assert one.topics == ("by-id",)
    unknown = seen(produce(records(b"a"), "", topic_id=bytes(15) + b"\1"), 13)
    assert unknown.topics == ("AAAAAAAAAAAAAAAAAAAAAQ",)


def test_pending_request_stays_pending_in_the_list() -> None:
    one = seen(produce(records(b"a")), 9)
    exchange = PENDING.exchange
    looked_at = SeenRequest(exchange)
    exchange_ending, exchange.ending = exchange.ending, Ending.RESPONDED
    try:
        assert looked_at.ending == "pending" and one.ending == "pending"
    finally:
        exchange.ending = exchange_ending


def test_produced_facts_of_old_formats_have_no_producer_id() -> None:
    data = bytes(legacy.build([Record(0, 5, None, b"v")], magic=1, codec=1))
    facts = seen(produce(data), 2).produced
    assert facts is not None and (facts.codecs, facts.magics, facts.is_idempotent) == (("gzip",), (1,), False)
    broken = seen(produce(b"x" * 40), 2).produced
    assert broken is not None and broken.codecs == () and not broken.is_idempotent


class _AboveZero:
    """A condition whose name is the same in each process of a test run."""

    def __call__(self, value: int) -> bool:
        return value > 0

    def __repr__(self) -> str:
        return "above_zero"


above_zero = _AboveZero()


@pytest.mark.parametrize(
    ("words", "numbers"),
    [
        ({}, [1, 2, 3, 4, 5, 6, 7]),
        ({"api": "Produce"}, [1, 2, 3, 4, 5, 7]),
        ({"api": "produce"}, [1, 2, 3, 4, 5, 7]),
        ({"api": ["Metadata", "Fetch"]}, [6]),
        ({"client_id": "reader"}, [6]),
        ({"client_id": "r*"}, [6]),
        ({"software": "lib"}, []),
        ({"principal": "User:ann"}, [6]),
        ({"principal": "User:A*", "api": "Produce"}, [1, 2, 3, 4, 5, 7]),
        ({"node": 2}, [6]),
        ({"topic": "t"}, [1, 2, 3, 4, 5]),
        ({"topic": "?"}, [1, 2, 3, 4, 5, 6]),
        ({"since": 5}, [5, 6, 7]),
        ({"version": 9}, [1, 4, 5, 7]),
        ({"min_version": 9}, [1, 4, 5, 7]),
        ({"max_version": 3}, [3, 6]),
        ({"acks": -1}, [1, 4, 5]),
        ({"acks": "all"}, [1, 4, 5]),
        ({"acks": 0}, [3]),
        ({"codec": "lz4"}, [1]),
        ({"codec": "none"}, [2, 3, 4, 5]),
        ({"magic": 2}, [1, 2, 3, 4, 5]),
        ({"magic": 1}, []),
        ({"idempotent": True}, [1]),
        ({"idempotent": False}, [2, 3, 4, 5]),
        ({"transactional": True}, []),
        ({"error": "NOT_LEADER_OR_FOLLOWER"}, [2]),
        ({"error": 6}, [2]),
        ({"error": "NONE"}, [1, 3]),
        ({"ending": "pending"}, [4, 6, 7]),
        ({"ending": "closed", "version": 9}, [5]),
        ({"fields": {"topic_data.name": "t"}}, [1, 2, 3, 4, 5]),
        ({"fields": {"topics.name": "x"}}, [6]),
        ({"fields": {"request.acks": 1}}, [2]),
        ({"fields": {"acks": True}}, []),
        ({"fields": {"acks": above_zero}}, [2]),
        ({"fields": {"topic_data.partition_data.records.batches.records.value": "b"}}, [3]),
        ({"fields": {"response.throttle_time_ms": 7, "acks": -1}}, [1]),
        ({"fields": {"response.responses.partition_responses.error_code": 6}}, [2]),
        ({"fields": {"transactional_id": None}}, [1, 2, 3, 4, 5]),
    ],
    ids=str,
)
def test_word_selects_the_requests_that_match(words: dict[str, Any], numbers: list[int]) -> None:
    wanted = Expected.filter(**words)
    assert [one.number for one in ALL if wanted.is_met_by(one)] == numbers
    found = verdict(Expected.of(**words, none=True), ALL)
    assert found.passed == (not numbers)
    if "ending" not in words:  # every selected request matches if only this one is in the list
        fitting = [one for one in ALL if one.number in numbers]
        assert verdict(Expected.of(**words, count=len(numbers)), fitting).passed


def test_every_word_of_an_expectation_has_a_case() -> None:
    tried = {
        name
        for mark in test_word_selects_the_requests_that_match.pytestmark
        for words, _ in mark.args[1]
        for name in words
    }  # type: ignore[attr-defined]
    assert tried | {"count", "min_count", "max_count", "none"} == set(WORDS) == set(Words.__annotations__)


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ({"api": "Produc"}, "ValueError: no API is called 'Produc'; did you mean Produce?"),
        ({"api": 5}, "TypeError"),
        ({"api": ["Fetch", "x"]}, "ValueError: no API is called 'x'"),
        ({"client_id": 5}, "TypeError: client_id is a str, not 5"),
        ({"node": "0"}, "TypeError: node is a whole number, not '0'"),
        ({"version": True}, "TypeError: version is a whole number, not True"),
        ({"acks": "some"}, "TypeError: acks is a whole number, not 'some'"),
        ({"codec": "lz5"}, "ValueError: no codec is called 'lz5'; there are none, gzip, snappy, lz4, zstd"),
        ({"api": "Fetch", "acks": 1}, "ValueError: acks applies only to Produce requests"),
        ({"error": "NOT_LEADER"}, "ValueError: no error is called 'NOT_LEADER'; did you mean"),
        ({"error": 5000}, "ValueError: no error is called 5000"),
        ({"ending": "ended"}, "ValueError: no ending is called 'ended'; there are pending, responded"),
        ({"api": "Produce", "fields": {"topics.name": 1}}, "ValueError: no Produce request has a field topics.name"),
        ({"fields": {"nothing": 1}}, "ValueError: no request has a field nothing"),
        ({"fields": {"response.acks.x": 1}}, "ValueError: no response has a field response.acks.x"),
        ({"fields": {"response": 1}}, "ValueError: no response has a field response"),
        ({"fields": {"topic_data.partition_data.records.codec_name": 1}}, "ValueError: no request has a field"),
        ({"fields": {5: 1}}, "TypeError: the path of a field is a str, not 5"),
        ({"colour": "red"}, "TypeError: unknown word colour; there are api, client_id"),
        ({"count": 1, "min_count": 1}, "ValueError: count is exact"),
        ({"count": -1}, "ValueError: count is 0 or more, not -1"),
        ({"count": 1.5}, "TypeError: count is a whole number, not 1.5"),
        ({"none": True, "max_count": 1}, "ValueError: none expects no request: it cannot be combined with max_count"),
        ({"min_count": 3, "max_count": 2}, "ValueError: min_count 3 is greater than max_count 2"),
    ],
    ids=str,
)
def test_invalid_words_are_refused(words: dict[str, Any], error: str) -> None:
    with pytest.raises((TypeError, ValueError)) as caught:
        Expected.of(**words)
    verdict_text = f"{type(caught.value).__name__}: {caught.value}"
    assert verdict_text.startswith(error) or error == "TypeError", verdict_text


def test_count_words_bound_the_number_of_requests() -> None:
    for words, passes in [
        ({}, True),
        ({"count": 7}, True),
        ({"count": 6}, False),
        ({"min_count": 7}, True),
        ({"min_count": 8}, False),
        ({"max_count": 7}, True),
        ({"max_count": 6}, False),
        ({"min_count": 2, "max_count": 7}, True),
    ]:
        assert verdict(Expected.of(**words), ALL).passed == passes, words
    for words, passes in [({}, False), ({"count": 0}, True), ({"min_count": 0}, True), ({"max_count": 0}, True)]:
        assert verdict(Expected.of(**words), []).passed == passes, words
    assert not verdict(Expected.of(max_count=3), []).passed, "where something may be, something has to be"


def verdict_text(words: dict[str, Any], some: list[SeenRequest] = ALL, forgotten: int = 0) -> str:
    found = verdict(Expected.of(**words), some, forgotten)
    assert found.passed == (not found.text)
    return found.text


def test_passing_verdict_has_no_text_and_the_selected_requests() -> None:
    found = verdict(Expected.of(api="Produce", since=1, codec="lz4"), [GOOD, OTHER])
    assert (found.passed, found.text, found.selected) == (True, "", [GOOD])


def test_verdict_text_names_violations_of_each_request() -> None:
    words = {"client_id": "orders", "acks": -1, "idempotent": True, "codec": "lz4", "max_version": 8, "error": "NONE"}
    assert verdict_text(words, [GOOD, PLAIN, SILENT, PENDING, CUT, LARGE]).splitlines() == [
        "expected at least 1 Produce request of client 'orders', each with version at most 8, acks -1, codec lz4, "
        "idempotence, no error in the response",
        "  6 of 6 do not match:",
        "    #1 Produce v9 of orders: version is 9",
        "    #2 Produce v8 of orders: acks is 1; codec is none; batches have no producer id; "
        "the response has NOT_LEADER_OR_FOLLOWER",
        "    #3 Produce v3 of orders: acks is 0; codec is none; batches have no producer id",
        "    #4 Produce v9 of orders: version is 9; codec is none; batches have no producer id; it has no response yet",
        "    #5 Produce v9 of orders: version is 9; codec is none; batches have no producer id; "
        "it has no response: the client closed the connection",
        "    and 1 more",
    ]


def test_verdict_text_without_matches_names_the_seen_requests() -> None:
    assert verdict_text({"api": "Produce", "client_id": "order"}).splitlines() == [
        "expected at least 1 Produce request of client 'order'",
        "  saw 0 among 7 requests",
        "    of other clients: 'orders' (6)",
    ]
    assert verdict_text({"api": "Metadata", "topic": "y", "min_count": 2}).splitlines() == [
        "expected at least 2 Metadata request for topic 'y'",
        "  saw 0 among 7 requests",
        "    for other topics: x (1)",
    ]
    assert verdict_text({"api": "Fetch"}).splitlines()[2] == "    of other APIs: Produce (6), Metadata (1)"
    assert (
        verdict_text({"api": "Fetch", "client_id": "nobody"}).splitlines()[2]
        == "    requests seen: Produce (6), Metadata (1)"
    )
    assert verdict_text({"api": "Fetch"}, []).splitlines() == [
        "expected at least 1 Fetch request",
        "  saw 0 among 0 requests",
    ]


def test_verdict_text_of_too_many_requests_lists_them() -> None:
    assert verdict_text({"api": "Produce", "count": 1}).splitlines() == [
        "expected 1 Produce request",
        "  saw 6 among 7 requests:",
        *(f"    #{one.number} Produce v{one.version} of orders, {one.ending}" for one in ALL[:5]),
        "    and 1 more",
    ]
    assert verdict_text({"acks": 0, "none": True}).splitlines() == [
        "expected no Produce request with acks 0, saw 1 of 7 requests",
        "    #3 Produce v3 of orders, silent",
    ]


def test_evicted_requests_make_the_verdict_fail() -> None:
    for words in ({"acks": 5, "none": True}, {"api": "Metadata", "count": 1}, {"api": "Metadata"}):
        assert verdict(Expected.of(**words), ALL).passed
        found = verdict(Expected.of(**words), ALL, 12)
        assert not found.passed and not found.may_come
        assert "12 older requests are no longer kept" in found.text


def test_verdict_text_is_bounded() -> None:
    many = [seen(produce(records(*[b"x" * 500] * 50), acks=1), 9, n, "c" * 300) for n in range(1, 200)]
    text = verdict_text({"acks": -1, "fields": {"topic_data.partition_data.records.batches.records.offset": 99}}, many)
    assert len(text) < 5_000


# A broker


@pytest.fixture(scope="module")
def shared() -> Iterator[Embedded]:
    with Embedded() as broker:
        broker.create_topic("t")
        yield broker


@pytest.fixture
def broker(shared: Embedded) -> Embedded:
    shared.requests.clear()
    return shared


async def connect(broker: Embedded) -> Client:
    return await Client.connect(int(broker.bootstrap.rpartition(":")[2]))


async def test_requests_of_a_broker_are_listed_and_cleared(broker: Embedded) -> None:
    assert broker.requests() == []
    client = await connect(broker)
    await client.call(MetadataRequest(topics=[]), 12, "one")
    mark = broker.requests.mark()
    await client.call(produce(records(b"x")), 9, "two")
    client.close()
    assert [(one.api, one.client_id, one.ending) for one in broker.requests()] == [
        ("Metadata", "one", "responded"),
        ("Produce", "two", "responded"),
    ]
    assert [one.number for one in broker.requests(since=mark)] == [mark]
    assert [one.client_id for one in broker.requests(api="Metadata", version=12)] == ["one"]
    assert broker.requests(topic="t", error="NONE")[0].number == mark
    with pytest.raises(ValueError, match="count applies only to an assertion"):
        broker.requests(count=1)
    broker.requests.clear()
    assert broker.requests() == [] and broker.requests.mark() == mark + 1


async def test_assertion_returns_the_selected_requests_or_raises_with_the_reason(broker: Embedded) -> None:
    client = await connect(broker)
    await client.call(produce(records(b"x")), 9, "orders")
    client.close()
    (one,) = broker.assert_requests(api="Produce", client_id="orders", acks="all", max_version=9, error="NONE")
    assert one.topics == ("t",)
    with pytest.raises(AssertionError, match=f"#{one.number} Produce v9 of orders: codec is none"):
        broker.assert_requests(codec="gzip")
    with pytest.raises(ValueError, match="no codec"):
        broker.assert_requests(codec="zip")


async def test_assertion_waits_for_missing_requests(broker: Embedded) -> None:
    client = await connect(broker)
    requested = asyncio.create_task(
        asyncio.to_thread(lambda: broker.assert_requests(api="Metadata", count=3, error="NONE", within_ms=15_000))
    )
    for _ in range(3):
        assert not requested.done()
        await client.call(MetadataRequest(topics=[]), 12)
    assert len(await requested) == 3
    client.close()


async def test_assertion_that_cannot_be_met_fails_without_waiting(broker: Embedded) -> None:
    client = await connect(broker)
    await client.call(MetadataRequest(topics=[]), 12)
    client.close()
    for words in ({"max_version": 5}, {"none": True}, {"count": 0}):
        with pytest.raises(AssertionError):
            broker.assert_requests(api="Metadata", within_ms=100_000, **words)  # type: ignore[arg-type]
    with pytest.raises(AssertionError):
        broker.assert_requests(api="Fetch", within_ms=20)


async def test_reset_clears_requests_and_restore_keeps_them(broker: Embedded) -> None:
    snapshot = broker.snapshot()
    client = await connect(broker)
    await client.call(FindCoordinatorRequest(key="g", key_type=0), 2)
    broker.restore(snapshot)
    client.close()
    (one,) = broker.requests()
    client = await connect(broker)
    await client.call(MetadataRequest(topics=[]), 12)
    assert [found.number for found in broker.requests()] == [one.number, one.number + 1]
    broker.reset()
    client.close()
    assert broker.requests() == []
    broker.assert_requests(none=True)
    broker.create_topic("t")
