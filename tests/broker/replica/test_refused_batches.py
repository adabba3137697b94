"""The first batch of an idempotent producer is refused for a moment: later ones do not take its place."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.broker.faults.rule_set import Faults
from ottla.broker.replica import refused_batches
from ottla.broker.testing.faults import FaultsView
from ottla.protocol.errors import ErrorCode
from ottla.protocol.primitives import ZERO_UUID
from ottla.protocol.records import batch, legacy
from ottla.storage.errors import OutOfOrderSequence
from ottla_testing.broker.harness import Broker, only, produce, running
from ottla_testing.broker.idempotence import numbered

OUT_OF_ORDER = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
NOT_LEADER = ErrorCode.NOT_LEADER_OR_FOLLOWER


@contextlib.contextmanager
def no_leader(broker: Broker) -> Iterator[None]:
    broker.state.topology.take_offline("t", 0)
    yield
    broker.state.topology.bring_online("t", 0)


@contextlib.contextmanager
def too_few_in_sync(broker: Broker) -> Iterator[None]:
    broker.state.topology.stop_node(2)
    yield
    broker.state.topology.start_node(2)


@pytest.mark.parametrize("version", [9, 13])
@pytest.mark.parametrize(
    ("kind", "code"),
    [
        ("error", ErrorCode.REQUEST_TIMED_OUT),
        ("disk", ErrorCode.KAFKA_STORAGE_ERROR),
        ("leader", NOT_LEADER),
        ("replicas", ErrorCode.NOT_ENOUGH_REPLICAS),
    ],
)
async def test_batches_after_a_refused_first_batch_are_refused(kind: str, code: int, version: int, tmp_path: Path):
    faults = Faults()
    view = FaultsView(faults)
    async with running(tmp_path / "data", release="4.3", brokers=2, faults=faults) as broker:
        id = await broker.topic("t", 1, {"min.insync.replicas": "2"})
        client = await broker.client()

        async def send(sequence: int, producer_id: int = 9, epoch: int = 0) -> int:
            data = numbered(sequence, producer_id=producer_id, epoch=epoch)
            by_id = version >= 13
            request = produce(data, "" if by_id else "t", topic_id=id if by_id else ZERO_UUID)
            return only(await client.call(request, version)).error_code

        refusing = {
            "error": lambda: view.error("Produce", code),
            "disk": lambda: view.disk_full(topic="t"),
            "leader": lambda: no_leader(broker),
            "replicas": lambda: too_few_in_sync(broker),
        }
        with refusing[kind]():
            for producer_id, sequence in ((9, 2), (9, 0), (8, 0), (7, 4)):
                assert await send(sequence, producer_id) == code
        assert [await send(sequence) for sequence in (2, 4, 0, 4, 2, 4)] == [OUT_OF_ORDER] * 2 + [0, OUT_OF_ORDER, 0, 0]
        assert [await send(sequence, 8, epoch=1) for sequence in (2, 4)] == [0, 0]  # it gave up, and began again
        assert [await send(sequence, 7) for sequence in (6, 4, 6)] == [OUT_OF_ORDER, 0, 0]
        assert await send(2, 6) == 0  # as for a log whose beginning was deleted
        assert broker.log("t").log_end_offset == 16


def test_batches_without_a_producer_are_not_noted():
    noted = refused_batches.RefusedBatches()
    plain = batch.build([batch.Record(0, 0, None, b"a", ())])
    old = legacy.build([batch.Record(0, 0, None, b"a", ())], magic=1)
    for records in (None, b"", b"?" * 100, plain, old, numbered(0)[:20]):
        noted.note_records(records)
        assert not noted._lowest


def test_number_of_noted_producers_is_bounded(monkeypatch: pytest.MonkeyPatch):
    class Log:
        def producers(self) -> dict[int, object]:
            return {}

    monkeypatch.setattr(refused_batches, "PRODUCERS_MAX", 2)
    noted = refused_batches.RefusedBatches()
    for producer_id in (1, 2, 1, 3):
        noted.note_records(numbered(0, producer_id=producer_id))
    for producer_id, is_refused in ((1, True), (2, False), (3, True)):
        header = batch.read_header(numbered(5, producer_id=producer_id))
        if is_refused:
            with pytest.raises(OutOfOrderSequence):
                noted.check(header, Log())  # type: ignore[arg-type]
        else:
            noted.check(header, Log())  # type: ignore[arg-type]
