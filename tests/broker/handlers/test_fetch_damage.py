"""A damaged header of a batch, which a look-up meets, is CORRUPT_MESSAGE, and the rest of the log can be read.

As in Kafka, whose look-up reads the header of the batch that it finds (PlaintextAdminIntegrationTest,
testDeleteRecordsAfterCorruptRecords). Values and CRC are the client's to check: they are sent as they are stored.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.logs import configure
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.records.delete_records import DeleteRecordsRequest
from ottla.protocol.messages.records.list_offsets import ListOffsetsRequest
from ottla.protocol.records import batch
from ottla.storage.errors import StorageError
from ottla_testing.broker.harness import Broker, Client, fetch, only, produce, running

CORRUPT = ErrorCode.CORRUPT_MESSAGE
FIRST = "t-0/00000000000000000000.log"
LENGTH_AT, CRC_AT = 8, 17


@pytest.fixture
def stderr(capsys: pytest.CaptureFixture[str]) -> Iterator[Callable[[], str]]:
    """Returns the log output since the last call."""
    configure("console")  # to the current stderr
    yield lambda: capsys.readouterr().err
    configure("console")


def with_length(length: int) -> Callable[[Path], None]:
    """Returns what overwrites the length of the first batch."""

    def damage(path: Path) -> None:
        with open(path, "r+b") as file:
            file.seek(LENGTH_AT)
            file.write(struct.pack(">i", length))

    return damage


def with_prefix(path: Path) -> None:
    """Writes an empty entry before the first batch, as Kafka's test does."""
    path.write_bytes(bytes(12) + path.read_bytes())


async def filled(broker: Broker) -> Client:
    """Writes a batch into each of three segments."""
    await broker.topic("t", 1, {"internal.segment.bytes": "100"})
    await broker.topic("other")
    client = await broker.client()
    for topic in ("t", "t", "t", "other"):
        value = batch.build([batch.Record(0, 5, b"k", b"v")])
        assert only(await client.call(produce(value, topic), 9)).error_code == 0
    return client


def in_time(topic: str, timestamp: int) -> ListOffsetsRequest:
    of_topic = ListOffsetsRequest.ListOffsetsTopic
    partition = of_topic.ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    return ListOffsetsRequest(replica_id=-1, topics=[of_topic(name=topic, partitions=[partition])])


async def check_refused(client: Client, *versions: int) -> None:
    for version in versions:
        response = await client.call(fetch(("t", 0, 0), ("other", 0, 0)), version)
        damaged, other = (topic.partitions[0] for topic in response.responses)
        assert (damaged.error_code, damaged.records) == (CORRUPT, b""), version
        assert (damaged.high_watermark, damaged.last_stable_offset, damaged.log_start_offset) == (-1, -1, -1)
        assert (other.error_code, other.high_watermark) == (0, 1) and other.records
    assert only(await client.call(fetch(("t", 0, 1)), 11)).error_code == 0


@pytest.mark.parametrize("damage", [with_prefix, *map(with_length, (0, 13, -1, -(2**31), 2**31 - 1, 200))])
async def test_fetch_of_a_damaged_batch_size_is_refused_and_deleted_records_end_it(
    damage: Callable[[Path], None], tmp_path: Path
) -> None:
    async with running(tmp_path) as broker:
        client = await filled(broker)
        damage(tmp_path / FIRST)
        await check_refused(client, 2, 4, 11)
        topic = DeleteRecordsRequest.DeleteRecordsTopic
        partition = topic.DeleteRecordsPartition(partition_index=0, offset=1)
        request = DeleteRecordsRequest(topics=[topic(name="t", partitions=[partition])], timeout_ms=1000)
        (deleted,) = (await client.call(request, 1)).topics
        assert deleted.partitions[0].error_code == 0
        response: Any = only(await client.call(fetch(("t", 0, 1)), 11))
        assert (response.error_code, response.log_start_offset) == (0, 1) and response.records


async def test_damaged_batch_size_after_a_restart_is_refused_and_logged(
    tmp_path: Path, stderr: Callable[[], str]
) -> None:
    async with running(tmp_path) as broker:
        await filled(broker)
    with_length(0)(tmp_path / FIRST)
    async with running(tmp_path) as broker:
        client = await broker.client()
        await check_refused(client, 4, 11)
        (topic,) = (await client.call(in_time("t", 1), 6)).topics
        assert topic.partitions[0].error_code == CORRUPT
    assert "damaged batch in a log" in (err := stderr()) and FIRST in err


async def test_append_to_a_damaged_segment_is_a_storage_error(tmp_path: Path) -> None:
    """CORRUPT_MESSAGE would blame the producer's batch. The next start recovers the log."""
    async with running(tmp_path) as broker:
        await filled(broker)
    with_length(0)(tmp_path / "other-0/00000000000000000000.log")
    with pytest.raises(StorageError, match="needs a recovery"):
        async with running(tmp_path) as broker:
            client = await broker.client()
            refused = only(await client.call(produce(batch.build([batch.Record(0, 5, b"k", b"v")]), "other"), 9))
            assert refused.error_code == ErrorCode.KAFKA_STORAGE_ERROR
            assert only(await client.call(fetch(("other", 0, 0)), 11)).error_code == CORRUPT


async def test_damaged_crc_is_sent_to_the_consumer(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        client = await filled(broker)
        path = tmp_path / FIRST
        data = bytearray(path.read_bytes())
        data[CRC_AT] ^= 1
        path.write_bytes(data)
        response: Any = only(await client.call(fetch(("t", 0, 0)), 11))
        assert (response.error_code, bytes(response.records)) == (0, bytes(data))
