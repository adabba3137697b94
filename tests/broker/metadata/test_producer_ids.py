"""InitProducerId, and unique producer ids after crashes."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from ottla.broker.metadata import producer_ids
from ottla.broker.metadata.log import MetadataLog
from ottla.broker.metadata.producer_ids import ProducerIds
from ottla.protocol.internal_records.metadata_records import FeatureLevelRecord, ProducerIdsRecord
from ottla.protocol.internal_records.metadata_values import TOPIC, TOPIC_ID
from ottla.protocol.messages.transactions.init_producer_id import InitProducerIdRequest
from ottla.storage.config import LogConfig
from ottla.storage.errors import StorageError
from ottla.storage.log_dir.directory import DataDirectory
from ottla.storage.partition_log import PartitionLog
from ottla_testing.broker.harness import Client, process, running
from ottla_testing.storage.simulated_files import Killed, SimulatedFiles

NO_ID = (-1, -1)


def asking(
    given: tuple[int, int] = NO_ID, transactional_id: str | None = None, timeout_ms: int = 1000
) -> InitProducerIdRequest:
    producer_id, epoch = given
    return InitProducerIdRequest(
        transactional_id=transactional_id,
        transaction_timeout_ms=timeout_ms,
        producer_id=producer_id,
        producer_epoch=epoch,
    )


@pytest.mark.parametrize("version", range(6))
async def test_every_version_returns_the_next_id_with_epoch_0(version: int, tmp_path: Path) -> None:
    async with running(tmp_path / "data") as broker:
        client = await broker.client()
        for expected in range(3):
            # The timeout belongs to transactions; it is ignored without one.
            response = await client.call(asking(timeout_ms=(1000, -1, 2**31 - 1)[expected]), version)
            assert (response.error_code, response.throttle_time_ms) == (0, 0)
            assert (response.producer_id, response.producer_epoch) == (expected, 0)


@pytest.mark.parametrize("version", [3, 4, 5])
async def test_request_with_a_producer_id(version: int, tmp_path: Path) -> None:
    """From v3 on (KIP-360) a producer may send both its id and epoch. Only with a transactional id does it get a new
    epoch of its id; otherwise it gets a new id.
    """
    async with running(tmp_path / "data") as broker:
        client = await broker.client()
        for expected, given in enumerate([NO_ID, (0, 0), (0, 5), (77, 3), (2**63 - 1, 2**15 - 1), (0, 2**15 - 1)]):
            response = await client.call(asking(given), version)
            assert (response.error_code, response.producer_id, response.producer_epoch) == (0, expected, 0)
        for given in ((-1, 0), (-1, 5), (0, -1), (5, -1)):
            response = await client.call(asking(given), version)
            assert (response.error_code, response.producer_id, response.producer_epoch) == (42, -1, -1)
        for given, name, code in ((NO_ID, "", 42), ((0, 0), "", 42), ((-1, 0), "orders", 42), ((5, -1), "orders", 42)):
            response = await client.call(asking(given, name), version)
            assert (response.error_code, response.producer_id, response.producer_epoch) == (code, -1, -1)
        assert (await client.call(asking(), version)).producer_id == 6  # refused requests use no id


async def test_disk_failure_returns_no_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(tmp_path / "data") as broker:
        client = await broker.client()
        log = broker.state.metadata_log._log

        def failing(flushed: PartitionLog) -> int:
            assert flushed is log
            raise StorageError("no space left")

        with monkeypatch.context() as patch:
            patch.setattr(PartitionLog, "flush", failing)
            response = await client.call(asking(), 4)
            assert (response.error_code, response.producer_id, response.producer_epoch) == (56, -1, -1)
        assert (await client.call(asking(), 4)).producer_id == 0


async def test_restart_continues_after_the_block(tmp_path: Path) -> None:
    """Unused ids of a block are skipped, as in Kafka."""
    for first in (0, 1000, 2000):
        async with running(tmp_path / "data") as broker:
            client = await broker.client()
            assert [(await client.call(asking(), 4)).producer_id for _ in range(2)] == [first, first + 1]
    async with running(tmp_path / "data") as broker:
        blocks = [r.next_producer_id for r in broker.state.metadata_log.replay() if isinstance(r, ProducerIdsRecord)]
        assert blocks == [1000, 2000, 3000]


@pytest.mark.process
async def test_ids_are_unique_across_blocks_and_kills(tmp_path: Path) -> None:
    """The process is killed during allocations, with requests in progress."""
    given: list[int] = []
    for life in range(4):
        with process(tmp_path) as broker:
            client = await Client.connect(broker.ports[0])
            count = (1001, 700, 5, 1200)[life]
            for _ in range(count):
                await client.send(asking(), 4)
            for _ in range(count if life % 2 else count - 3):
                given.append((await client.receive())[1].producer_id)
            broker.process.kill()
            broker.process.wait()
            client.close()
    assert len(set(given)) == len(given) > 2800


# ---- on a simulated disk with crashes


Lose = Callable[[str, int, int], int]


def open_ids(files: SimulatedFiles) -> tuple[ProducerIds, DataDirectory]:
    """Opens the log and the allocator like a broker start."""
    directory = DataDirectory.open(files, "/data", node_id=1)
    first = [FeatureLevelRecord(name="metadata.version", feature_level=21)]
    log = MetadataLog(directory.open_partition(TOPIC, 0, topic_id=TOPIC_ID, config=LogConfig(), now_ms=0), first)
    ids = ProducerIds(log, 1)
    for record in log.replay():
        if isinstance(record, ProducerIdsRecord):
            ids.replay(record)
    return ids, directory


def hand_out(files: SimulatedFiles, given: list[int], count: int = 8) -> None:
    ids, directory = open_ids(files)
    for _ in range(count):
        given.append(ids.allocate(0))
    directory.close()


@pytest.mark.parametrize("keep", ["killed", "nothing", "part", "all"])
def test_ids_are_unique_after_a_crash_at_any_step(keep: str, stride: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kills and power losses at every step of two runs, with any part of the last write done."""
    monkeypatch.setattr(producer_ids, "BLOCK_IDS", 3)
    whole = SimulatedFiles()
    hand_out(whole, [])
    rng = random.Random(1)
    losses: dict[str, Lose] = {
        "nothing": lambda path, durable, live: durable,
        "part": lambda path, durable, live: rng.randint(min(durable, live), max(durable, live)),
        "all": lambda path, durable, live: live,
    }
    stopped = 0
    for first in range(random.randrange(stride), whole.steps, stride):
        for second in (1, 7, 19, 10**6):
            for portion in (0.0, 0.4, 1.0):
                files, given = SimulatedFiles(), []
                for step in (first, second):
                    files.fail_at, files.killing, files.portion = step, True, portion
                    try:
                        hand_out(files, given)
                    except Killed:
                        stopped += 1
                    if keep != "killed":
                        files.lose_power(losses[keep])
                    files.restart()
                hand_out(files, given)
                assert len(set(given)) == len(given), (first, second, portion)
                assert given[-8:] == list(range(given[-8], given[-8] + 8)) and given[-8] % 3 == 0
    assert stopped > whole.steps / stride


def test_ids_are_unique_after_a_disk_failure_at_any_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process continues, allocates again, and is restarted at the end."""
    monkeypatch.setattr(producer_ids, "BLOCK_IDS", 3)
    files = SimulatedFiles()
    ids, _ = open_ids(files)
    begin = files.steps
    for _ in range(8):
        ids.allocate(0)
    for step in range(begin, files.steps):
        files = SimulatedFiles()
        ids, directory = open_ids(files)
        files.fail_at, given, refused = step, [], 0
        for _ in range(9):
            try:
                given.append(ids.allocate(0))
            except StorageError:
                refused += 1
        assert refused
        directory.abandon()
        files.restart()
        hand_out(files, given)
        assert len(set(given)) == len(given)
