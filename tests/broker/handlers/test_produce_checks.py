"""Produce requests with one valid partition and one whose batch is malformed: what is refused with it.

The codes are Apache Kafka's, which `make interop` compares; see also `tests/interop/refused_batches.py`.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest

from ottla.protocol.messages.records.produce import ProduceRequest
from ottla.protocol.records import batch
from ottla_testing.broker.harness import Closed
from ottla_testing.broker.producing import (
    SAMPLE,
    Played,
    broken,
    closes_for_unreadable,
    invalid,
    made,
    message,
    newest_format,
    playing,
    since,
)
from ottla_testing.each import each
from ottla_testing.protocol.batches import batch_of

RELEASES = ("0.8.2", "0.10.2", "0.11", "2.0", "2.1", "2.3", "2.7", "2.8", "3.7", "3.8", "3.9", "4.3", "ottla")
WITH_BATCHES = tuple(name for name in RELEASES if since(name, "0.11"))
WITH_SETS = tuple(name for name in RELEASES if name != "4.3")
CORRUPT, UNKNOWN = 2, -1
INT32_MAX = 2**31 - 1
V1, V2 = message(magic=1), bytes(batch.build(SAMPLE[:1]))
TOPIC = ProduceRequest.TopicProduceData


def sized(length: int, data: bytes = V2) -> bytes:
    """The set with another length in its first entry."""
    return data[:8] + struct.pack(">i", length) + data[12:]


# (reason, set, code)
UNREADABLE: list[tuple[str, bytes, int]] = [
    ("a size of 13", sized(13), CORRUPT),
    ("a size below 0", sized(-1), CORRUPT),
    ("magic 3", V2[:16] + b"\3" + V2[17:], CORRUPT),
    ("the largest size", sized(INT32_MAX), UNKNOWN),
    ("the least size that overflows", sized(INT32_MAX - 11), UNKNOWN),
    ("the largest size of a message", sized(INT32_MAX, V1), UNKNOWN),
]


async def responded(played: Played, version: int, *sets: bytes | None, **fields: Any) -> list[int] | None:
    """The codes of the partitions 0, 1, ..., None if the connection closes; a partition with an error must store
    nothing.
    """
    broker = played.broker
    topic = broker.state.topics.named("t")
    data = [TOPIC.PartitionProduceData(index=index, records=one) for index, one in enumerate(sets)]
    named = TOPIC(name="t" if version < 13 else "", topic_id=topic.id, partition_data=data)
    before = [broker.log("t", index).log_end_offset for index in range(len(sets))]
    client = await broker.client()
    try:
        request = ProduceRequest(**{"acks": 1, "timeout_ms": 1000, "topic_data": [named], **fields})
        results = (await client.call(request, version)).responses[0].partition_responses
    except Closed:
        codes = None
    else:
        codes = [response.error_code for response in results]
        if version >= 8:
            texts = {response.error_message for response in results if response.error_code == CORRUPT}
            assert codes.count(CORRUPT) < 2 or all(texts), texts
    finally:
        client.close()
    after = [broker.log("t", index).log_end_offset for index in range(len(sets))]
    stored = [end > start for start, end in zip(before, after, strict=True)]
    assert stored == [code == 0 and bool(data) for code, data in zip(codes or [None] * len(sets), sets, strict=True)]
    return codes


def versions(played: Played) -> list[int]:
    return [version for version in (3, 6, 7, played.newest) if played.versions.first <= version <= played.newest]


@each("release", WITH_BATCHES)
@each("first", [True, False])
async def test_unreadable_first_batch_is_refused_as_in_the_release(release: str, first: bool, tmp_path: Path) -> None:
    async with playing(tmp_path, release) as played:
        await played.broker.topic("t", 2)
        for version in versions(played):
            for why, data, code in UNREADABLE:
                codes = await responded(played, version, *((data, V2) if first else (V2, data)))
                assert codes == ([code, code] if since(release, "2.8") else None), (why, version)
        assert await responded(played, played.newest, V2, V2) == [0, 0]


@pytest.mark.parametrize("release", [name for name in WITH_SETS if since(name, "0.11")])
async def test_unreadable_first_entry_of_a_set_is_refused_as_in_the_release(release: str, tmp_path: Path) -> None:
    async with playing(tmp_path, release) as played:
        await played.broker.topic("t", 2)
        for version in range(min(2, played.newest) + 1):
            for why, data, code in UNREADABLE:
                codes = await responded(played, version, V1, data)
                if closes_for_unreadable(release):
                    assert codes is None, (why, version)
                else:
                    assert codes == [code if since(release, "2.8") else 0, code], (why, version)


@pytest.mark.parametrize("release", ["0.8.2", "0.10.2"])
async def test_size_near_2_to_the_31_ends_a_set_up_to_0_10(release: str, tmp_path: Path) -> None:
    """Kafka adds nothing to it there: the set counts as a cut one."""
    async with playing(tmp_path, release) as played:
        await played.topic()
        good = message(magic=newest_format(release))
        response = await played.send(good + sized(INT32_MAX, good), 0)
        assert (response.error_code, response.base_offset, played.end()) == (0, 0, 1)
        response = await played.send(sized(INT32_MAX, good), 0)
        assert (response.error_code, response.base_offset, played.end()) == (0, -1, 1)


@pytest.mark.parametrize("release", WITH_SETS)
async def test_unreadable_later_entry_of_a_set_refuses_the_request_in_3_8_and_3_9(release: str, tmp_path: Path) -> None:
    async with playing(tmp_path, release) as played:
        await played.broker.topic("t", 2)
        good = message(magic=min(newest_format(release), 1))
        whole = release in ("3.8", "3.9")
        for version in range(min(2, played.newest) + 1):
            assert await responded(played, version, good, good + sized(13, good)) == [CORRUPT if whole else 0, CORRUPT]
            if since(release, "0.11"):
                codes = await responded(played, version, good, good + sized(INT32_MAX, good))
                assert codes == [UNKNOWN if whole else 0, UNKNOWN]


@pytest.mark.parametrize(
    ("release", "code"), [("2.0", 2), ("2.7", 87), ("2.8", 87), ("3.7", 87), ("3.9", CORRUPT), ("ottla", 87)]
)
async def test_unreadable_later_entry_precedes_an_invalid_first_one_in_3_8_and_3_9(
    release: str, code: int, tmp_path: Path
) -> None:
    async with playing(tmp_path, release) as played:
        await played.topic()
        wrong_base = struct.pack(">q", 1) + V2[8:]
        assert await played.code(wrong_base + bytes(16), 2) == code


@pytest.mark.parametrize("release", WITH_BATCHES)
async def test_trailing_bytes_that_kafka_fails_on_refuse_the_request(release: str, tmp_path: Path) -> None:
    async with playing(tmp_path, release) as played:
        await played.broker.topic("t", 2)
        for version in versions(played):
            codes = await responded(played, version, V2, V2 + sized(INT32_MAX))
            assert codes == ([UNKNOWN, UNKNOWN] if since(release, "2.1") else None)
            codes = await responded(played, version, V2, V2 + sized(13))  # an expected error
            assert codes == ([0, CORRUPT] if since(release, "2.1") else None)
            codes = await responded(played, version, V2, V2 + V2)
            assert codes == ([0, invalid(release)] if since(release, "2.1") else None)
            assert await responded(played, version, V2, V2 + sized(INT32_MAX)[:16]) == [0, 0]


@pytest.mark.parametrize("release", [name for name in WITH_BATCHES if since(name, "2.1")])
async def test_unknown_codec_refuses_the_request_up_to_v6(release: str, tmp_path: Path) -> None:
    async with playing(tmp_path, release) as played:
        await played.broker.topic("t", 2)
        data = bytearray(V2)
        struct.pack_into(">h", data, 21, 5)
        batch.reseal(data, attributes=5, max_timestamp=batch.read_header(data).max_timestamp)
        for version in versions(played):
            assert await responded(played, version, V2, bytes(data)) == [UNKNOWN if version < 7 else 0, UNKNOWN]


@pytest.mark.parametrize("release", WITH_BATCHES)
async def test_batch_that_ends_before_its_producer_id_is_refused(release: str, tmp_path: Path) -> None:
    """Kafka 3.8 and later read that field of every batch, 2.1 to 2.7 while they parse the request."""
    async with playing(tmp_path, release) as played:
        await played.broker.topic("t", 2)
        for version in (*([2] if release in WITH_SETS else []), *versions(played)):
            codes = await responded(played, version, V2, sized(38)[:50])
            if closes_for_unreadable(release):
                assert codes is None
            else:
                whole = since(release, "3.8") and release != "ottla"
                assert codes == ([UNKNOWN, UNKNOWN] if whole else [0, CORRUPT])


@pytest.mark.parametrize("release", ["2.8", "3.9", "4.3", "ottla"])
async def test_transactional_batch_ends_the_search(release: str, tmp_path: Path) -> None:
    """Later batches are read with their own partition; damage to the batch itself does not matter there."""
    async with playing(tmp_path, release) as played:
        await played.broker.topic("t", 2)
        fields: dict[str, Any] = {"producer_id": 5, "producer_epoch": 0, "base_sequence": 0, "transactional": True}
        transactional = broken(bytes(batch_of(SAMPLE[:1], **fields)))
        assert await responded(played, 3, transactional, sized(13)) == [53, 53]
        assert await responded(played, 3, sized(13), transactional) == [CORRUPT, CORRUPT]
        damaged = CORRUPT if release == "2.8" else 49  # from 3.6 on the coordinator verifies it, and has no such id
        assert await responded(played, 3, transactional, sized(13), transactional_id="x") == [damaged, CORRUPT]
        codes = await responded(played, 3, transactional, V2 + sized(INT32_MAX), transactional_id="x")
        assert codes == [UNKNOWN, UNKNOWN]


@pytest.mark.parametrize("release", ["2.7", "2.8", "3.9", "4.3", "ottla"])
async def test_refused_request_with_acks_0_closes_the_connection(release: str, tmp_path: Path) -> None:
    async with playing(tmp_path, release) as played:
        await played.broker.topic("t", 2)
        client = await played.broker.client()
        data = [TOPIC.PartitionProduceData(index=0, records=V2), TOPIC.PartitionProduceData(index=1, records=sized(13))]
        request = ProduceRequest(acks=0, timeout_ms=1000, topic_data=[TOPIC(name="t", partition_data=data)])
        await client.send(request, 3)
        assert await client.is_closed()
        assert played.end() == 0


async def test_unknown_partitions_do_not_refuse_the_request(tmp_path: Path) -> None:
    """Their first batch is read, later ones are not."""
    async with playing(tmp_path, "3.9") as played:
        await played.broker.topic("t", 1)
        data = [TOPIC.PartitionProduceData(index=0, records=V2)]
        data.append(TOPIC.PartitionProduceData(index=7, records=V2 + sized(INT32_MAX)))
        client = await played.broker.client()
        request = ProduceRequest(acks=1, timeout_ms=1000, topic_data=[TOPIC(name="t", partition_data=data)])
        results = (await client.call(request, 3)).responses[0].partition_responses
        assert [response.error_code for response in results] == [0, 3]
        data[1].records = sized(INT32_MAX)
        results = (await client.call(request, 3)).responses[0].partition_responses
        assert [response.error_code for response in results] == [UNKNOWN, UNKNOWN]


async def test_large_request_of_sets_is_checked_in_steps(tmp_path: Path) -> None:
    """Other clients are served meanwhile."""
    async with playing(tmp_path, "3.9") as played:
        await played.broker.topic("t", 2)
        many = message(magic=1) * 30_000
        assert await responded(played, 2, message(magic=1), many + sized(13, V1)) == [CORRUPT, CORRUPT]
        assert await responded(played, 2, made(1, 0), many) == [0, 0]
