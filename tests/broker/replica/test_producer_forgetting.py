"""The expiry of producer states, by release: by time, by a new log start offset; and the wrap-around of sequences.

The clock is moved by hand. Kafka expires by a batch's own timestamps, which its producer chose.
"""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from ottla.broker.clock import ManualClock
from ottla.broker.metadata.producer_ids import COMPARING_MAX, ComparingProducers
from ottla.protocol.messages.cluster.api_versions import ApiVersionsRequest
from ottla.protocol.messages.configs.incremental_alter_configs import IncrementalAlterConfigsRequest
from ottla.protocol.messages.records.delete_records import DeleteRecordsRequest
from ottla.protocol.messages.topics.metadata import MetadataRequest
from ottla.protocol.messages.transactions.init_producer_id import InitProducerIdRequest
from ottla.protocol.records import batch
from ottla.protocol.records.batch import Record
from ottla_testing.broker.harness import only, running
from ottla_testing.broker.idempotence import MAX, T0, Sent, Writer, killed, numbered, writing
from ottla_testing.broker.stored_logs import put_log
from ottla_testing.broker.transacting import Owner
from ottla_testing.each import each

CHECK_MS = 600_000
DAY_MS = 24 * 3600 * 1000
WEEK_MS = 7 * DAY_MS
# The behaviour for a producer whose state has expired.
FORGOTTEN = {
    "0.11": 45,
    "1.0.1": 59,
    "2.3": 59,
    "2.4": 59,
    "2.5": 0,
    "2.8": 0,
    "3.3": 0,
    "3.4": 0,
    "4.3": 0,
    "ottla": 59,
}


def known(writer: Writer, topic: str = "t") -> set[int]:
    return set(writer.broker.log(topic).producers())


async def set_config(writer: Writer, name: str, value: str) -> None:
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource
    config = resource.AlterableConfig(name=name, config_operation=0, value=value)
    requested = resource(resource_type=4, resource_name="", configs=[config])
    request = IncrementalAlterConfigsRequest(resources=[requested], validate_only=False)
    assert (await writer.client.call(request, 0)).responses[0].error_code == 0


@each(
    ("release", "overrides", "limit_ms"),
    [
        ("0.11", {}, WEEK_MS),
        ("1.0.1", {}, WEEK_MS),
        ("2.4", {}, WEEK_MS),
        ("2.8", {"transactional.id.expiration.ms": "7200000"}, 7_200_000),
        ("3.3", {}, WEEK_MS),
        ("3.4", {}, DAY_MS),
        ("4.3", {"transactional.id.expiration.ms": "7200000"}, DAY_MS),
        ("4.3", {"producer.id.expiration.ms": "3600000"}, 3_600_000),
        ("ottla", {"producer.id.expiration.ms": "86400000"}, DAY_MS),
    ],
)
@each("how", ["running", "closed", "killed"])
async def test_producer_expires_after_its_last_timestamp(
    release: str, overrides: dict[str, str], limit_ms: int, how: str, tmp_path: Path
) -> None:
    """Checked every ten minutes, and when a snapshot is read. A replay of batches ignores the time."""
    folder, clock = tmp_path / "data", ManualClock(T0)
    async with writing(folder, release, overrides, clock) as writer:
        await writer.broker.topic("t")
        await writer.write((0, 1), producer_id=9, time_ms=T0)
        await writer.write((0, 1), producer_id=10, time_ms=T0 + CHECK_MS)
        assert limit_ms % CHECK_MS == 0
        if how == "running":
            clock.leap(limit_ms - CHECK_MS)
            clock.advance(CHECK_MS - 1)
            assert known(writer) == {9, 10}
            clock.advance(1)
            assert known(writer) == {10}
            expected = FORGOTTEN[release]
            assert (await writer.send(numbered(1, 1, producer_id=9)))[0] == expected
            assert (await writer.send(numbered(1, 1, producer_id=10, time_ms=T0)))[0] == 0
            clock.advance(CHECK_MS)  # the newest batch counts, though its time is older
            assert 10 not in known(writer)
            return
        copy = killed(folder)
    clock.leap(limit_ms)
    async with writing(copy if how == "killed" else folder, release, overrides, clock) as writer:
        assert known(writer) == ({9, 10} if how == "killed" else {10})
        clock.advance(CHECK_MS)
        assert known(writer) == set()


@pytest.mark.parametrize("overrides", [{}, {"transactional.id.expiration.ms": "3600000"}])
async def test_own_profile_expires_no_producer_by_default(overrides: dict[str, str], tmp_path: Path) -> None:
    folder, clock = tmp_path / "data", ManualClock(T0)
    async with writing(folder, "ottla", overrides, clock) as writer:
        await writer.broker.topic("t", configs={"retention.ms": "-1"})
        await writer.write((0, 1))
        clock.leap(30 * DAY_MS)
        clock.advance(CHECK_MS)
        assert known(writer) == {9}
    async with writing(folder, "ottla", overrides, clock) as writer:
        assert known(writer) == {9}
        await set_config(writer, "producer.id.expiration.ms", "3600000")
        clock.advance(CHECK_MS)
        assert known(writer) == set()


async def test_expiration_time_and_check_interval_are_configurable(tmp_path: Path) -> None:
    clock = ManualClock(T0)
    overrides = {"producer.id.expiration.check.interval.ms": "1000"}
    async with writing(tmp_path / "data", "4.3", overrides, clock) as writer:
        await writer.broker.topic("t")
        await writer.write((0, 1), time_ms=T0)
        await set_config(writer, "producer.id.expiration.ms", "5000")
        clock.advance(4_999)
        assert known(writer) == {9}
        clock.advance(1)
        assert known(writer) == set()


async def test_producer_state_not_loaded_yet_expires_too(tmp_path: Path) -> None:
    """A partition's producers are read when they are first needed, which may be long after the start."""
    folder, clock = tmp_path / "data", ManualClock(T0)
    async with writing(folder, "4.3", None, clock) as writer:
        await writer.broker.topic("t")
        await writer.write((0, 1), time_ms=T0)
    async with writing(folder, "4.3", None, clock) as writer:
        clock.leap(DAY_MS - CHECK_MS)
        clock.advance(CHECK_MS)
        assert writer.broker.log("t")._producers.known is None
        assert known(writer) == set()


# ---- the log start


async def delete_before(writer: Writer, offset: int) -> None:
    requested = DeleteRecordsRequest.DeleteRecordsTopic
    one = requested.DeleteRecordsPartition(partition_index=0, offset=offset)
    request = DeleteRecordsRequest(topics=[requested(name="t", partitions=[one])], timeout_ms=1000)
    assert only(await writer.client.call(request, 0)).error_code == 0


@pytest.mark.parametrize("release", FORGOTTEN)
async def test_producer_below_a_new_log_start(release: str, tmp_path: Path) -> None:
    """Up to 2.3 a producer whose last offset is below it expires; from 2.4 on, and in the own profile, none does until
    a restart finds no snapshot above the log start offset.
    """
    evicts = release in ("0.11", "1.0.1", "2.3")
    folder, clock = tmp_path / "data", ManualClock(T0)
    async with writing(folder, release, clock=clock) as writer:
        await writer.broker.topic("t")
        await writer.write((0, 2), producer_id=9)
        await writer.write((0, 2), producer_id=10)
        await delete_before(writer, 1)
        assert known(writer) == {9, 10}  # its last record is there
        await delete_before(writer, 2)
        assert known(writer) == ({10} if evicts else {9, 10})
        log_start = 2 if writer.version >= 5 else -1
        if FORGOTTEN[release] and evicts:
            response = await writer.send(numbered(2, 1, producer_id=9))
            assert response == Sent(FORGOTTEN[release], -1, -1, log_start)
        else:
            assert await writer.send(numbered(2, 1, producer_id=9)) == Sent(0, 4, -1, log_start)
        await delete_before(writer, writer.end())
        assert known(writer) == (set() if evicts else {9, 10})
        copy = killed(folder)
    for again in (folder, copy):
        async with writing(again, release, clock=clock) as writer:
            assert writer.broker.log("t").log_start_offset == writer.end()
            assert known(writer) == set()
            code = FORGOTTEN[release]
            assert (await writer.send(numbered(9, 1, producer_id=10)))[0] == code
            await writer.write((0, 1), producer_id=11)


@pytest.mark.parametrize(("release", "kept"), [("ottla", True), ("2.3", False), ("2.4", True), ("4.3", True)])
@pytest.mark.parametrize("how", ["closed", "killed"])
async def test_producer_below_a_new_log_start_after_a_restart(
    release: str, kept: bool, how: str, tmp_path: Path
) -> None:
    """The snapshot at the end of the log still has the producer; the rule that expires it applies to it too."""
    folder, clock = tmp_path / "data", ManualClock(T0)
    async with writing(folder, release, clock=clock) as writer:
        await writer.broker.topic("t")
        await writer.write((0, 2), producer_id=9)
        await writer.write((0, 2), producer_id=10)
        await delete_before(writer, 2)
        copy = killed(folder)
    async with writing(folder if how == "closed" else copy, release, clock=clock) as writer:
        # After a kill there are only the batches above the log start offset.
        assert known(writer) == ({9, 10} if kept and how == "closed" else {10})


async def producer_id(writer: Writer, version: int, transactional_id: str | None = None) -> int:
    request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000)
    response = await writer.client.call(request, version)
    assert response.error_code == 0
    return response.producer_id


async def introduce(writer: Writer, software: str) -> None:
    """Names the client library, if it does so; `ottla` requests the fields of KIP-192 in Metadata."""
    if software:
        request = ApiVersionsRequest(client_software_name=software, client_software_version="1.2.3")
        assert (await writer.client.call(request, 3)).error_code == 0
    if software == "ottla":
        await writer.client.call(MetadataRequest(topics=[], include_message_format=True), 9)


# Software, version of InitProducerId, and whether it is known to compare the log start offset.
CLIENTS = [
    ("apache-kafka-java", 2, True),
    ("apache-kafka-java", 3, False),
    ("librdkafka", 4, False),
    ("librdkafka", 2, False),
    ("", 0, False),  # aiokafka, kafkajs and Java before 2.4 do not name themselves
    ("", 1, False),
    ("ottla", 4, True),
]


@each(
    ("release", "produce_version", "client"),
    itertools.product(["2.4", "4.3", "ottla"], [3, 4, 5, 7, 8], CLIENTS),
    strided=True,
)
async def test_unknown_producer_below_the_log_start_only_for_comparing_clients(
    release: str, produce_version: int, client: tuple[str, int, bool], tmp_path: Path
) -> None:
    """Apache Kafka from 2.4 on accepts the batch from all of them."""
    software, init_version, compares = client
    if release == "2.4":
        init_version = min(init_version, 2)
    async with writing(tmp_path / "data", release) as writer:
        await writer.broker.topic("t")
        await introduce(writer, software)
        id = await producer_id(writer, init_version)
        await writer.write((0, 2), producer_id=id)
        await writer.write((0, 2), producer_id=id + 1000)
        await delete_before(writer, 2)
        response = await writer.send(numbered(2, 1, producer_id=id), version=produce_version)
        if release == "ottla" and compares and produce_version >= 5:
            assert response == Sent(59, -1, -1, 2)
            # Then it begins again with 0, since its last acknowledged offset is below the log start offset.
            assert (await writer.send(numbered(0, 1, producer_id=id), version=produce_version))[:2] == (0, 4)
            assert (await writer.send(numbered(1, 1, producer_id=id), version=produce_version))[:2] == (0, 5)
        else:
            assert response[:2] == (0, 4)
        assert (await writer.send(numbered(2, 1, producer_id=id + 1000), version=produce_version))[0] == 0


async def test_transactional_producer_is_never_unknown_below_the_log_start(tmp_path: Path) -> None:
    async with writing(tmp_path / "data", "ottla") as writer:
        await writer.broker.topic("t")
        await introduce(writer, "ottla")
        id = await producer_id(writer, 2, "x")
        await writer.write((0, 1), producer_id=id)
        await delete_before(writer, 1)
        assert (await writer.send(numbered(1, 1, producer_id=id)))[0] == 0


async def test_own_profile_expires_a_producer_below_the_log_start_after_a_day(tmp_path: Path) -> None:
    folder, clock = tmp_path / "data", ManualClock(T0)
    async with writing(folder, "ottla", clock=clock) as writer:
        await writer.broker.topic("t", configs={"retention.ms": "-1"})
        await writer.write((0, 1), producer_id=9, time_ms=T0)
        await writer.write((0, 1), producer_id=10, time_ms=T0)
        await delete_before(writer, 1)
        clock.leap(DAY_MS - 2 * CHECK_MS)
        clock.advance(CHECK_MS)
        assert known(writer) == {9, 10}
        clock.advance(CHECK_MS)
        assert known(writer) == {10}
        assert (await writer.send(numbered(1, 1, producer_id=9)))[0] == 59


async def test_transactional_producer_continues_after_its_records_were_deleted(tmp_path: Path) -> None:
    """Its marker is above the log start offset. librdkafka ends the transaction at UNKNOWN_PRODUCER_ID."""
    async with running(tmp_path, release="ottla") as broker:
        await broker.topic("t")
        owner = Owner(await broker.client(), "x")
        assert await owner.init(version=4) == 0
        for _ in range(3):
            assert await owner.add(("t", 0)) == {("t", 0): 0}
            assert await owner.send(b"a", b"b") == 0
            assert await owner.end(committed=True) == 0
            broker.log("t").delete_records_before(broker.log("t").log_end_offset - 1)


def test_producer_ids_of_comparing_clients_are_bounded() -> None:
    ids = ComparingProducers()
    assert not ids and 1 not in ids
    for id in range(COMPARING_MAX + 1):
        ids.note(id, True)
    assert 0 not in ids and 1 in ids and COMPARING_MAX in ids
    ids.note(1, False)
    assert 1 not in ids and ids


# ---- the wrap-around of sequences


@each("release", ["0.11", "2.0", "2.8", "4.3", "ottla"])
@each("how", ["running", "closed", "killed"])
async def test_sequences_wrap_around_on_a_real_log(release: str, how: str, tmp_path: Path) -> None:
    """0 comes after 2147483647, within a batch and between two, also for a producer from a snapshot alone."""
    folder, clock = tmp_path / "data", ManualClock(T0)
    async with writing(folder, release, clock=clock) as writer:
        await writer.broker.topic("t")
    rows = [Record(n, T0, None, b"v") for n in range(4)]
    data = batch.build(rows, batch.BatchFields(producer_id=9, producer_epoch=0, base_sequence=MAX - 6))
    put_log(folder / "t-0", bytes(data))
    async with writing(folder, release, clock=clock) as writer:
        await writer.write((MAX - 2, 2), (MAX, 4))
        assert (await writer.send(numbered(MAX, 4)))[:2] == (0, 6)
        copy = killed(folder)
        if how == "running":
            await check_after_the_end(writer, release)
            return
    async with writing(folder if how == "closed" else copy, release, clock=clock) as writer:
        (found,) = writer.broker.log("t").producers().values()
        assert found.batches[-1][:4] == (MAX, 2, 6, 9)
        await check_after_the_end(writer, release)


async def check_after_the_end(writer: Writer, release: str) -> None:
    """The newest batch has the sequences 2147483647, 0, 1, 2, at offsets 6 to 9."""
    own = release == "ottla"
    assert (await writer.send(numbered(MAX, 4)))[:2] == (0, 6)
    assert (await writer.send(numbered(0, 3)))[0] == 45  # a part of it
    assert (await writer.send(numbered(MAX, 5)))[0] == 45
    assert (await writer.send(numbered(4, 1)))[0] == 45
    if own:
        assert (await writer.send(numbered(MAX - 2, 2)))[:2] == (0, 4)
        (found,) = writer.broker.log("t").producers().values()
        is_below = len(found.batches) == 1  # from a snapshot alone
        assert (await writer.send(numbered(MAX - 1, 1)))[0] == (46 if is_below else 45)
    await writer.write((3, 2), (5, 1))
