"""Members as the workload runs them, which get an error for the committed offsets of their partitions."""

from __future__ import annotations

import importlib
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

import pytest

from ottla.broker import Embedded
from ottla_testing.clients.running_broker import OVERRIDES
from ottla_testing.history import life_aiokafka, life_confluent, life_kafka_python, life_ottla
from ottla_testing.history.history import Recorder
from ottla_testing.history.life import Polled
from ottla_testing.history.ports import Final, Joining, Receiving, Stalled
from ottla_testing.patience import PATIENCE_S

pytestmark = pytest.mark.slow

QUICK = {**OVERRIDES, "group.consumer.heartbeat.interval.ms": "100"}
VALUES = [b"a", b"b", b"c"]
PROTOCOLS = ("classic", "consumer")
PASSING = ("NOT_COORDINATOR", "COORDINATOR_NOT_AVAILABLE", "COORDINATOR_LOAD_IN_PROGRESS")


@pytest.fixture(scope="session", autouse=True)
def no_open_loop() -> Iterator[None]:
    yield
    for library in (life_aiokafka, life_ottla):
        library.LOOP.close()


@pytest.fixture(scope="module")
def shared() -> Iterator[Embedded]:
    with Embedded(configs=QUICK) as embedded:
        yield embedded


@pytest.fixture
def broker(shared: Embedded) -> Iterator[Embedded]:
    yield shared
    shared.faults.clear()


@pytest.fixture
def topic(broker: Embedded) -> str:
    """A topic with three records."""
    topic = broker.create_topic()
    for value in VALUES:
        broker.send(topic, value)
    return topic


class Member:
    """A member of the group with the name of its topic."""

    def __init__(self, broker: Embedded, topic: str, protocol: str, library: str) -> None:
        self.taken: list[bytes] = []
        joining = Joining(topic, [topic], "read_committed", protocol)
        make = importlib.import_module(f"ottla_testing.history.life_{library}").Receiving
        self.receiving: Receiving = make(broker.bootstrap, joining, self._took, lambda *gets: None, lambda loses: None)

    def _took(self, partition: str, records: list[tuple[int, bytes]]) -> None:
        self.taken += [data for _, data in records]

    def read(self, last: bytes = VALUES[-1]) -> list[bytes]:
        end = time.monotonic() + PATIENCE_S
        while last not in self.taken and time.monotonic() < end:
            self.poll()
        return self.taken

    def poll(self) -> None:
        self.receiving.poll(0.1)

    def close(self) -> None:
        self.receiving.close()


@contextmanager
def member(broker: Embedded, topic: str, protocol: str = "classic", library: str = "confluent") -> Iterator[Member]:
    one = Member(broker, topic, protocol, library)
    try:
        yield one
    finally:
        one.close()


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("code", ["NOT_COORDINATOR", "COORDINATOR_NOT_AVAILABLE"])
def test_stalled_member_ends(code: str, protocol: str, broker: Embedded, topic: str) -> None:
    """Its next life reads. This fails as soon as librdkafka requests the offsets again: then `look_at` can go."""
    fault = broker.faults.error("OffsetFetch", code, times=1)
    with member(broker, topic, protocol) as one, pytest.raises(Stalled, match="librdkafka: Failed to"):
        one.read()
    assert fault.fired == 1
    with member(broker, topic, protocol) as one:
        assert one.read() == VALUES


def test_loading_coordinator_is_awaited(broker: Embedded, topic: str) -> None:
    fault = broker.faults.error("OffsetFetch", "COORDINATOR_LOAD_IN_PROGRESS", times=2)
    with member(broker, topic) as one:
        assert one.read() == VALUES
    assert fault.fired == 2


def test_other_error_excuses_no_member(broker: Embedded, topic: str, capfd: pytest.CaptureFixture[str]) -> None:
    """It does nothing more, which the workload finds, and its log has the error."""
    fault = broker.faults.error("OffsetFetch", "UNKNOWN_SERVER_ERROR", times=1)
    with member(broker, topic) as one:
        text = ""
        end = time.monotonic() + PATIENCE_S
        while "Failed to fetch committed offset" not in text and time.monotonic() < end:
            one.poll()
            text += capfd.readouterr().err
    assert fault.fired == 1
    assert "Unknown broker error" in text and one.taken == []


@pytest.mark.parametrize("library", ["aiokafka", "kafka_python", "ottla"])
@pytest.mark.parametrize("code", PASSING)
def test_error_of_group_is_not_taken_for_no_offset(code: str, library: str, broker: Embedded, topic: str) -> None:
    """A member continues where its group is, after a rewind and in its next life."""
    place = f"{topic}-0"
    with member(broker, topic, library=library) as one:
        assert one.read() == VALUES
        one.receiving.commit({place: len(VALUES)})
        fault = broker.faults.error("OffsetFetch", code, times=1)
        assert one.receiving.rewind() == {place: len(VALUES)}
        assert fault.fired == 1
    broker.send(topic, b"d")
    fault = broker.faults.error("OffsetFetch", code, times=1)
    with member(broker, topic, library=library) as one:
        assert one.read(b"d") == [b"d"]
    assert fault.fired == 1


def test_polled_before_a_rebalance_is_committed_after_it(broker: Embedded, tmp_path: Path) -> None:
    """kafka-python keeps its position where a partition stays with the member, and polls nothing again."""
    topic, other = broker.create_topic(), broker.create_topic()
    broker.send(topic, b"1:")
    recorder = Recorder(tmp_path / "history.jsonl", "member")
    polled, rebalances = Polled(recorder, topic), list[list[str]]()

    def assigned(partitions: list[str], kept: list[str]) -> None:
        rebalances.append(partitions)
        polled.assigned(partitions, kept)

    joining = Joining(topic, [topic], "read_committed", "classic")
    one = life_kafka_python.Receiving(broker.bootstrap, joining, polled.took, assigned, polled.revoked)
    place, end = f"{topic}-0", time.monotonic() + PATIENCE_S
    while polled.uncommitted() != {place: 1} and time.monotonic() < end:
        one.poll(0.1)
    joining = Joining(topic, [other], "read_committed", "classic")
    two = life_kafka_python.Receiving(broker.bootstrap, joining, polled.took, lambda *gets: None, lambda loses: None)
    joins, before = Thread(target=two.poll, args=[0.1]), len(rebalances)
    joins.start()
    while len(rebalances) == before and time.monotonic() < end:
        one.poll(0.1)
    joins.join()
    assert len(rebalances) > before and rebalances[-1] == [place]
    assert polled.uncommitted() == {place: 1}
    two.close()
    one.close()


def test_aiokafka_reads_all_again(broker: Embedded, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """This fails as soon as aiokafka heeds the error of a whole group: then its life needs no check of its own."""
    with member(broker, topic, library="aiokafka") as one:
        assert one.read() == VALUES
        one.receiving.commit({f"{topic}-0": len(VALUES)})
    monkeypatch.setattr(life_aiokafka, "heed_error_of_group", lambda consumer: None)
    broker.faults.error("OffsetFetch", "NOT_COORDINATOR", times=1)
    with member(broker, topic, library="aiokafka") as one:
        assert one.read() == VALUES


@pytest.fixture
def unanswered(broker: Embedded, topic: str) -> Iterator[tuple[life_confluent.Sending, list[int | None]]]:
    """A transaction of librdkafka with a record that was written and whose response was lost, and the offsets of what
    is acknowledged from here on.
    """
    sending, acknowledged = life_confluent.Sending(broker.bootstrap, topic, 6000), list[int | None]()
    sending.init()
    sending.begin()
    fault = broker.faults.disconnect("Produce", "after")
    sending.send(f"{topic}-0", b"lost", lambda offset, error: broker.faults.clear())
    end = time.monotonic() + PATIENCE_S
    while not fault.fired and time.monotonic() < end:
        sending.work(0.01)
    # Without a connection the record is in the queue: one in flight is not purged, and expires, for which there is a
    # new epoch. The callback of the purge lets librdkafka connect again.
    unconnected = broker.faults.disconnect("ApiVersions")
    while not unconnected.fired and time.monotonic() < end:
        sending.work(0.01)
    assert fault.fired and unconnected.fired
    yield sending, acknowledged


def test_life_with_purged_records_ends(unanswered: tuple[life_confluent.Sending, list[int | None]]) -> None:
    with pytest.raises(Final, match="records were purged"):
        unanswered[0].abort()


def test_librdkafka_loses_records_after_a_purge(
    broker: Embedded, topic: str, unanswered: tuple[life_confluent.Sending, list[int | None]]
) -> None:
    """This fails as soon as librdkafka takes another epoch after it has purged what it had sent: then lives may
    continue after such an abort.
    """
    sending, acknowledged = unanswered
    sending._producer.abort_transaction(PATIENCE_S)
    sending.begin()
    sending.send(f"{topic}-0", b"next", lambda offset, error: acknowledged.append(offset))
    sending.commit()
    assert acknowledged == [len(VALUES)], "the offset of the record that was purged"
    assert [one.value for one in broker.records(topic)] == VALUES
