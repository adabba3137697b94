"""Frames as plain values and back: all APIs and versions, damaged frames, records of every format and codec."""

from __future__ import annotations

import itertools
import json
import random
import struct
import sys
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.client_ledger import Origin
from ottla.broker.recording import decoding
from ottla.broker.recording.exchange import Exchange, Peer
from ottla.protocol.apis import Api, apis
from ottla.protocol.compiler import build
from ottla.protocol.errors import ErrorCode
from ottla.protocol.headers import API_VERSIONS_KEY, request_header, response_header
from ottla.protocol.messages.api_versions import ApiVersionsResponse
from ottla.protocol.messages.fetch import FetchResponse
from ottla.protocol.messages.metadata import MetadataRequest
from ottla.protocol.messages.produce import ProduceRequest
from ottla.protocol.records import batch, legacy
from ottla.protocol.records.batch import Header, Record
from ottla.protocol.schema import spec, struct_of

sys.path.insert(0, str(Path(__file__).parents[1] / "protocol"))
from values import random_value  # type: ignore[import-not-found]

CASES = [(api, version) for api in apis().values() for version in spec(api.request).versions.range()]
CODECS = range(5)


def exchange(api_key: int, version: int, request: bytes | None, response: bytes | None = None) -> Exchange:
    peer = Peer(1, 0, "PLAINTEXT", "127.0.0.1", 9092, "127.0.0.1", 50000, 0, Origin("PLAINTEXT", None, None, False))
    return Exchange(1, peer, 0, 0, api_key, version, 7, "me", request, len(request or b""), response)


def frames(api: Api, version: int, source: random.Random) -> tuple[bytes, bytes, Any, Any]:
    flexible = version in spec(api.request).flexible
    request = random_value(struct_of(api.request, version), source)
    response = random_value(struct_of(api.response, version), source)
    if api.key == API_VERSIONS_KEY and response.error_code == ErrorCode.UNSUPPORTED_VERSION:
        response.error_code = ErrorCode.NONE
    client_id = source.choice([None, b"", b"me", "Müller".encode()])
    head = request_header(api.key, version, 7, client_id, flexible)
    answer = response_header(7, api.key, flexible) + build(response, version)
    return head + build(request, version), answer, request, response


def through_json(told: Any) -> Any:
    return json.loads(json.dumps(told, allow_nan=False))


@pytest.mark.parametrize(("api", "version"), CASES, ids=lambda value: getattr(value, "name", value))
def test_a_frame_comes_back_byte_for_byte(api: Api, version: int, scaled: Any) -> None:
    source = random.Random(f"{api.name} {version}")
    for _ in range(scaled(3)):
        request, answer, request_value, response_value = frames(api, version, source)
        seen = exchange(api.key, version, request, answer)
        assert decoding.request_value(seen) == request_value
        assert decoding.response_value(seen) == response_value
        length = int.from_bytes(request[8:10], "big", signed=True)
        client_id = None if length < 0 else request[10 : 10 + length].decode()
        told = through_json(decoding.request_plain(seen))
        assert set(told) <= set(api.request._fields)
        assert decoding.encoded(api.key, version, told, True, correlation_id=7, client_id=client_id) == request
        told = through_json(decoding.response_plain(seen))
        assert decoding.encoded(api.key, version, told, False, correlation_id=7) == answer


@pytest.mark.parametrize("api", apis().values(), ids=lambda api: api.name)
def test_a_message_is_told_without_its_version(api: Api) -> None:
    version = spec(api.request).versions.last
    value = random_value(struct_of(api.request, version), random.Random(api.name), extensions=False)
    told = decoding.plain(value)
    assert {name for name, field in api.request._fields.items() if not field.extension} == set(told)
    assert decoding.message_of(api.key, version, told, True) == value


@pytest.mark.parametrize("api", apis().values(), ids=lambda api: api.name)
def test_a_damaged_frame_is_told_and_comes_back(api: Api, scaled: Any) -> None:
    source = random.Random(f"damaged {api.name}")
    undecodable = 0
    for _ in range(scaled(12)):
        version = source.choice(list(spec(api.request).versions.range()))
        request, answer, _, _ = frames(api, version, source)
        for frame, is_request in ((bytearray(request), True), (bytearray(answer), False)):
            start = len(request_header(api.key, version, 7, None, False)) if is_request else 4
            for _ in range(source.randint(1, 3)):
                if len(frame) > start:
                    frame[source.randrange(start, len(frame))] = source.randrange(256)
            if source.random() < 0.5:
                del frame[source.randrange(len(frame) + 1) :]
            data = bytes(frame)
            seen = exchange(api.key, version, data if is_request else None, None if is_request else data)
            plain = decoding.request_plain(seen) if is_request else decoding.response_plain(seen)
            assert plain is not None
            value = decoding.request_value(seen) if is_request else decoding.response_value(seen)
            assert (value is None) == (decoding.UNDECODABLE in plain)
            if decoding.UNDECODABLE in plain:
                undecodable += 1
                assert decoding.encoded(api.key, version, through_json(plain), is_request, correlation_id=0) == data
    assert undecodable


def test_what_was_not_kept_is_told_by_nothing() -> None:
    seen = exchange(3, 12, None)
    assert decoding.request_value(seen) is decoding.response_value(seen) is None
    assert decoding.request_plain(seen) is decoding.response_plain(seen) is None


@pytest.mark.parametrize(
    ("frame", "why"),
    [
        (b"", "has no header"),
        (b"\x00\x03\x00\x0c\x00\x00\x00", "has no header"),
        (request_header(999, 0, 7, None, False), "API key 999 is not known"),
        (request_header(3, 99, 7, None, False), "Metadata v99 is not known"),
        (request_header(3, 12, 7, b"\xff", True), "client id is not UTF-8"),
    ],
)
def test_what_cannot_be_read_says_why(frame: bytes, why: str) -> None:
    seen = exchange(3, 12, frame)
    plain = decoding.request_plain(seen)
    assert plain is not None and why in plain[decoding.UNDECODABLE]
    assert decoding.encoded(3, 12, plain, True, correlation_id=0) == frame
    assert decoding.request_plain(seen, contents=False) == {k: v for k, v in plain.items() if k != "base64"}


@pytest.mark.parametrize(("version", "more"), [(9, 5), (10, 5), (11, 4), (12, 4)])
def test_what_librdkafka_leaves_over_comes_back(version: int, more: int) -> None:
    body = bytes(more + 3)
    frame = request_header(3, version, 7, b"rdkafka", True) + body
    seen = exchange(3, version, frame)
    request: Any = decoding.request_value(seen)
    assert request.topics is None
    plain = through_json(decoding.request_plain(seen))
    assert plain["topics"] is None
    assert decoding.encoded(3, version, plain, True, correlation_id=7, client_id="rdkafka") == frame


@pytest.mark.parametrize("left_over", [b"\x01", bytes(1024)])
def test_bytes_left_over_after_request_and_response_come_back(left_over: bytes) -> None:
    response = ApiVersionsResponse(error_code=0, api_keys=[])
    frame = request_header(3, 1, 7, b"c", False) + struct.pack(">i", -1) + left_over
    answer = response_header(7, API_VERSIONS_KEY, False) + build(response, 0) + left_over
    told = through_json(decoding.request_plain(exchange(3, 1, frame)))
    assert decoding.encoded(3, 1, told, True, correlation_id=7, client_id="c") == frame
    shown = exchange(API_VERSIONS_KEY, 0, None, answer)
    assert decoding.response_value(shown) == response
    told = through_json(decoding.response_plain(shown))
    assert decoding.encoded(API_VERSIONS_KEY, 0, told, False, correlation_id=7) == answer
    told = decoding.response_plain(shown, contents=False)
    assert told == {"error_code": 0, "api_keys": [], "left_over_bytes": len(left_over)}


@pytest.mark.parametrize("version", spec(ApiVersionsResponse).versions.range())
def test_a_refused_version_of_api_versions_is_answered_in_v0(version: int) -> None:
    response = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[])
    answer = response_header(7, API_VERSIONS_KEY, False) + build(response, 0)
    for asked in (version, 99):
        seen = exchange(API_VERSIONS_KEY, asked, None, answer)
        assert decoding.response_value(seen) == response
        told = through_json(decoding.response_plain(seen))
        assert told == {"error_code": 35, "api_keys": []}
        assert decoding.encoded(API_VERSIONS_KEY, asked, told, False, correlation_id=7) == answer


# Records

HEADERS = (Header("trace", b"1"), Header("bin", b"\xff"), Header("none", None))
RECORDS = [Record(10, 1000, b"k", b"v" * 50, HEADERS), Record(11, 1001, None, b"\xff\xfe"), Record(12, 1002, b"", None)]


def records_of(magic: int, codec: int) -> bytes:
    if magic == 2:
        return bytes(batch.build(RECORDS, base_offset=10, codec=codec))
    return bytes(legacy.build([record._replace(headers=()) for record in RECORDS], magic=magic, codec=codec))


def told_of(records: Any, **more: Any) -> dict[str, Any]:
    answer = FetchResponse(
        responses=[
            FetchResponse.FetchableTopicResponse(
                topic="t",
                partitions=[
                    FetchResponse.FetchableTopicResponse.PartitionData(
                        partition_index=0, error_code=0, high_watermark=13, records=records
                    )
                ],
            )
        ]
    )
    return decoding.plain(answer, version=11, **more)["responses"][0]["partitions"][0]["records"]


@pytest.mark.parametrize(("magic", "codec"), [(m, c) for m in (0, 1, 2) for c in CODECS if m == 2 or c < 4])
def test_records_are_told_in_every_format_and_codec(magic: int, codec: int) -> None:
    data = records_of(magic, codec)
    told = through_json(told_of(data))
    assert told["size"] == len(data) and "damaged" not in told and "left_over" not in told
    assert {entry["magic"] for entry in told["batches"]} == {magic}
    assert {entry["codec"] for entry in told["batches"]} == {["none", "gzip", "snappy", "lz4", "zstd"][codec]}
    assert sum(entry["count"] for entry in told["batches"]) == 3
    found = list(itertools.chain.from_iterable(entry["records"] for entry in told["batches"]))
    assert [one["offset"] for one in found] == [10, 11, 12]
    assert [one["timestamp"] for one in found] == ([-1] * 3 if magic == 0 else [1000, 1001, 1002])
    assert [one["key"] for one in found] == ["k", None, ""]
    assert [one["value"] for one in found] == ["v" * 50, {"base64": "//4="}, None]
    headers = [
        {"name": "trace", "value": "1"},
        {"name": "bin", "value": {"base64": "/w=="}},
        {"name": "none", "value": None},
    ]
    assert [one["headers"] for one in found] == [headers if magic == 2 else [], [], []]
    assert decoding.records_of(told, "records") == data


def test_a_batch_tells_its_producer() -> None:
    data = batch.build(RECORDS, base_offset=10, transactional=True, producer_id=5, producer_epoch=1, base_sequence=7)
    (entry,) = told_of(data)["batches"]
    wanted = {"producer_id": 5, "producer_epoch": 1, "base_sequence": 7, "is_transactional": True, "is_control": False}
    assert wanted.items() <= entry.items()
    assert entry["base_offset"] == 10 and entry["count"] == 3 and entry["size"] == len(data)


def test_contents_can_be_left_out() -> None:
    told = through_json(told_of(records_of(2, 3), contents=False))
    assert "base64" not in told
    assert [set(one) for one in told["batches"][0]["records"]] == [
        {"offset", "timestamp", "key_size", "value_size", "headers_size"}
    ] * 3
    sizes = [(one["key_size"], one["value_size"], one["headers_size"]) for one in told["batches"][0]["records"]]
    assert sizes == [(1, 50, 14), (None, 2, 0), (0, None, 0)]
    for secret in ("vvv", "trace", "base64"):
        assert secret not in json.dumps(told)
    with pytest.raises(ValueError, match="were left out"):
        decoding.records_of(told, "records")


def test_records_are_told_up_to_a_bound() -> None:
    data = batch.build(RECORDS, base_offset=10) + batch.build(RECORDS, base_offset=13)
    told = told_of(data, records_max=4)
    assert [len(entry["records"]) for entry in told["batches"]] == [3, 1]
    assert [entry["count"] for entry in told["batches"]] == [3, 3]
    assert [entry.get("records_left_out") for entry in told["batches"]] == [None, 2]
    assert decoding.records_of(told, "records") == data


def test_damage_in_records_is_told_where_it_is() -> None:
    whole = batch.build(RECORDS, base_offset=10)
    spoilt = bytearray(whole)
    spoilt[-2] ^= 1
    told = told_of(bytes(spoilt + whole))
    assert [entry.get("damaged") for entry in told["batches"]] == ["the CRC is another one", None]
    assert [len(entry["records"]) for entry in told["batches"]] == [0, 3]
    cut = told_of(bytes(whole + whole[:-1]))
    assert len(cut["batches"]) == 1 and cut["left_over"] == len(whole) - 1
    assert "damaged" in told_of(bytes(whole) + bytes(40))
    assert told_of(b"")["batches"] == []


def test_damaged_records_never_raise(scaled: Any) -> None:
    source = random.Random("damaged records")
    sets = [records_of(m, c) for m in (0, 1, 2) for c in CODECS if m == 2 or c < 4]
    told_damage = 0
    for data in sets * scaled(20):
        spoilt = bytearray(data)
        for _ in range(source.randint(1, 4)):
            spoilt[source.randrange(len(spoilt))] = source.randrange(256)
        told = through_json(told_of(bytes(spoilt)))
        told_damage += "damaged" in json.dumps(told) or "left_over" in told
        assert decoding.records_of(told, "records") == spoilt
    assert told_damage


def test_no_records_are_null_in_both_directions() -> None:
    request = ProduceRequest(
        acks=1,
        timeout_ms=5,
        topic_data=[
            ProduceRequest.TopicProduceData(
                name="t",
                partition_data=[ProduceRequest.TopicProduceData.PartitionProduceData(index=0, records=None)],
            )
        ],
    )
    told = decoding.plain(request, version=9)
    assert told["topic_data"][0] == {"name": "t", "partition_data": [{"index": 0, "records": None}]}
    assert decoding.message_of(0, 9, told, True) == request


# What is no message


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({}, "ProduceRequest: acks is missing"),
        ({"acks": "1", "timeout_ms": 1, "topic_data": []}, "ProduceRequest.acks: no whole number"),
        ({"acks": True, "timeout_ms": 1, "topic_data": []}, "ProduceRequest.acks: no whole number"),
        ({"acks": 1 << 40, "timeout_ms": 1, "topic_data": []}, "acks"),
        ({"acks": 1, "timeout_ms": 1, "topic_data": {}}, "ProduceRequest.topic_data: no list"),
        ({"acks": 1, "timeout_ms": 1, "topic_data": [1]}, r"ProduceRequest.topic_data\[0\]: no object"),
        ({"acks": 1, "timeout_ms": 1, "topic_data": [], "transactional_id": 5}, "transactional_id: no text"),
    ],
)
def test_values_that_are_no_message_are_refused(values: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        decoding.encoded(0, 9, values, True, correlation_id=1)


def test_an_unknown_api_or_version_is_refused() -> None:
    with pytest.raises(ValueError, match="API key 999 is not known"):
        decoding.encoded(999, 0, {}, True, correlation_id=1)
    told = decoding.plain(MetadataRequest(topics=[]))
    with pytest.raises(ValueError, match="v99 is not known"):
        decoding.encoded(3, 99, told, True, correlation_id=1)
