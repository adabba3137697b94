"""Failures of the producer in simulated time: the situations of KIP-192, many requests in flight, timeouts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

import pytest

from ottla.client.net import errors
from ottla.client.producer.producer import Producer, RecordMetadata
from ottla.protocol.errors import ErrorCode
from ottla.protocol.records import formats
from ottla_testing.client.model_history import Event
from ottla_testing.client.simulated_broker import HOST, PORT, TOPIC, SimulatedBroker
from ottla_testing.client.simulated_network import NO_FAULTS, SimulatedNetwork
from ottla_testing.each import each

FIRST_EPOCH = 32767


class World:
    """One broker with one partition, a network without failures of its own, and the producer's options."""

    def __init__(self, release: str = "ottla", **log_settings: Any) -> None:
        self.events: list[Event] = []
        self.random = Random(7)
        self.network = SimulatedNetwork(self.random, NO_FAULTS)
        self.loop = self.network.loop
        has_scan = release == "ottla"
        self.broker = SimulatedBroker(
            self.random, self.events, self.loop.time, release=release, has_scan=has_scan, **log_settings
        )
        self.network.servers[HOST, PORT] = self.broker
        self.appends: list[tuple[int, int, int]] = []  # (epoch, first sequence, error code)
        self.meddle: Callable[[int, Any], Any] = lambda count, response: response
        append = self.broker._append

        def meddled(number: int, records: Any, version: int) -> Any:
            ((_, header),) = formats.headers(records)
            response = append(number, records, version)
            self.appends.append((header.producer_epoch, header.base_sequence, response.error_code))
            return self.meddle(len(self.appends), response)

        self.broker._append = meddled  # type: ignore[method-assign]

    def run(self, main: Callable[[Producer], Coroutine[Any, Any, None]], **options: Any) -> None:
        """Runs a producer; fails if a background task raised."""

        async def life() -> None:
            settings: dict[str, Any] = {"batch_size": 0, "max_in_flight_requests_per_connection": 20, **options}
            now_ms: Callable[[], int] = lambda: int(self.loop.now_s * 1000)  # noqa: E731
            producer = Producer(f"{HOST}:{PORT}", now_ms=now_ms, random=self.random, **settings)
            await producer.start()
            await main(producer)
            await producer.stop()

        self.loop.run(asyncio.wait_for(life(), 5000))
        assert self.loop.errors == []

    def lose_responses(self) -> None:
        """Loses all responses until `hear_again`."""
        response = self.broker.respond

        def silent(frame: bytes) -> None:
            response(frame)

        self.broker.respond = silent  # type: ignore[method-assign]

    def hear_again(self) -> None:
        """Delivers responses again, on new connections."""
        del self.broker.respond
        self.network.cut_all()

    def restart(self, keep: Callable[[str, int, int], int] | None = None) -> None:
        """Kills and restarts the broker; `keep` simulates a power loss: (path, durable, live bytes) -> bytes kept."""
        self.broker.stop(clean=False)
        self.network.cut_all()
        if keep is not None:
            self.broker.files.lose_power(keep)
        self.broker.start()

    def values(self) -> list[int]:
        return [record for _, record in self.broker.final_logs()[0].records]


def value(number: int) -> bytes:
    return b"<%d>" % number


async def send(producer: Producer, *numbers: int) -> list[asyncio.Future[RecordMetadata]]:
    return [await producer.send(TOPIC, value(number), partition=0) for number in numbers]


async def sent(producer: Producer, *numbers: int) -> list[int]:
    """Returns the offsets, after the records were acknowledged."""
    return [metadata.offset for metadata in await asyncio.gather(*await send(producer, *numbers))]


# -- seed 003: the four situations


def test_records_deleted_at_the_log_start_cause_no_error() -> None:
    world = World()

    async def main(producer: Producer) -> None:
        assert await sent(producer, 1, 2) == [0, 1]
        world.broker.move_log_start(0, 2)
        assert await sent(producer, 3, 4) == [2, 3]

    world.run(main)
    assert world.appends[2] == (0, 2, ErrorCode.UNKNOWN_PRODUCER_ID)
    assert (1, 0, 0) in world.appends and world.values() == [3, 4]


def test_lost_first_batch_is_fatal() -> None:
    world = World()

    async def main(producer: Producer) -> None:
        assert await sent(producer, 1, 2) == [0, 1]
        world.restart(keep=lambda path, durable, live: durable)
        third, fourth = await send(producer, 3, 4)
        with pytest.raises(errors.UnknownProducer) as raised:
            await third
        lost = raised.value
        assert (lost.topic, lost.partition, lost.first_sequence, lost.last_sequence) == (TOPIC, 0, 2, 2)
        assert (lost.last_acked_offset, lost.log_start_offset) == (1, 0)
        with pytest.raises(errors.ProducerFailed) as second:
            await fourth
        assert second.value.__cause__ is lost
        with pytest.raises(errors.ProducerFailed) as later:
            await producer.send(TOPIC, value(5))
        assert later.value.__cause__ is lost
        assert await producer.last_committed(TOPIC, 0) is None

    world.run(main)
    assert world.values() == []


def test_new_and_old_duplicates_are_acknowledged() -> None:
    """All are written, all responses lost; the first is deleted then: only its result is unknown."""
    world = World()

    async def main(producer: Producer) -> None:
        await sent(producer, 0)
        world.lose_responses()
        futures = await send(producer, 1, 2, 3)
        await asyncio.sleep(0.05)
        assert world.broker.logs[0].log_end_offset == 4
        world.broker.stop(clean=True)  # the broker then remembers the last batch only
        world.hear_again()
        world.broker.start()
        world.broker.move_log_start(0, 2)
        done = await asyncio.gather(*futures)
        assert [(m.has_offset, m.has_timestamp, m.offset) for m in done] == [
            (False, False, -1),
            (True, True, 2),
            (True, True, 3),
        ]
        assert await sent(producer, 4) == [4]

    world.run(main, retry_backoff_ms=100)
    assert world.values() == [2, 3, 4] and (0, 1, ErrorCode.DUPLICATE_SEQUENCE_NUMBER) in world.appends


def test_gap_is_a_loss_and_the_log_shows_where_to_continue() -> None:
    world = World()

    async def main(producer: Producer) -> None:
        assert await sent(producer, 1, 2) == [0, 1]
        world.broker.flush()
        assert await sent(producer, 3, 4) == [2, 3]
        world.restart(keep=lambda path, durable, live: durable)
        (future,) = await send(producer, 5)
        with pytest.raises(errors.OutOfOrderSequence) as raised:
            await future
        assert (raised.value.topic, raised.value.partition) == (TOPIC, 0)
        last = await producer.last_committed(TOPIC, 0)
        assert last is not None and (last.offset, last.sequence, last.ordinal, last.value) == (1, 1, 1, value(2))

    world.run(main)
    assert world.values() == [1, 2]


# -- seed 004: many in flight


@pytest.mark.parametrize("code", [ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ErrorCode.REQUEST_TIMED_OUT])
@pytest.mark.parametrize("refused", [1, 2, 7, 12])
def test_out_of_order_batches_are_resent_in_order(code: int, refused: int) -> None:
    world = World()

    async def main(producer: Producer) -> None:
        world.meddle = lambda count, response: _with_code(response, code) if count == refused else response
        assert await sent(producer, *range(12)) == list(range(12))

    world.run(main)
    assert world.values() == list(range(12))


def test_refusal_before_the_append_makes_later_batches_retry_one_by_one() -> None:
    world = World()
    append = world.broker._append
    count = 0

    def refusing(number: int, records: Any, version: int) -> Any:
        nonlocal count
        count += 1
        if count == 3:
            world.broker.refusing, kept = 1.0, world.broker.random
            world.broker.random = _Always(0.0)  # before the append
            try:
                return append(number, records, version)
            finally:
                world.broker.refusing, world.broker.random = 0.0, kept
        return append(number, records, version)

    world.broker._append = refusing  # type: ignore[method-assign]

    async def main(producer: Producer) -> None:
        assert await sent(producer, *range(8)) == list(range(8))
        assert await sent(producer, 8, 9) == [8, 9]

    world.run(main)
    assert world.values() == list(range(10))
    out_of_order = [entry for entry in world.appends if entry[2] == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER]
    assert [sequence for _, sequence, _ in out_of_order] == [3, 4, 5, 6, 7]
    # From then on each batch is sent once, alone and in order.
    assert [entry[1] for entry in world.appends[8:16]] == [2, 3, 4, 5, 6, 7, 8, 9]


def test_closed_connections_duplicate_nothing() -> None:
    world = World()

    async def main(producer: Producer) -> None:
        futures = []
        for number in range(60):
            futures += await send(producer, number)
            if number % 7 == 3:
                world.lose_responses()
                await asyncio.sleep(0.004)
                world.hear_again()
        assert [m.offset for m in await asyncio.gather(*futures)] == list(range(60))

    world.run(main, retry_backoff_ms=5)
    assert world.values() == list(range(60))


@each("release", ["0.11", "1.0", "2.4", "3.9"], strided=True)
def test_log_is_read_if_the_broker_does_not_remember_the_batch(release: str) -> None:
    """Written without a response; after a restart only the last batch is known: code 45, although nothing is lost."""
    world = World(release)

    async def main(producer: Producer) -> None:
        await sent(producer, 0)
        world.lose_responses()
        futures = await send(producer, 1, 2, 3)
        await asyncio.sleep(0.05)
        world.broker.stop(clean=True)
        world.hear_again()
        world.broker.start()
        assert [m.offset for m in await asyncio.gather(*futures)] == [1, 2, 3]
        assert await sent(producer, 4) == [4]

    world.run(main, enable_idempotence="required", retry_backoff_ms=100)
    assert world.values() == [0, 1, 2, 3, 4]
    assert ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER in {code for _, _, code in world.appends}


# -- giving up


def test_delivery_timeout_is_on_time_and_without_busy_retries() -> None:
    world = World()
    passes = 0

    async def main(producer: Producer) -> None:
        nonlocal passes
        await sent(producer, 1)
        sender = producer._sender
        assert sender is not None
        make_pass = sender._pass

        def counted() -> None:
            nonlocal passes
            passes += 1
            make_pass()

        sender._pass = counted  # type: ignore[method-assign]
        world.broker.stop(clean=True)
        world.network.cut_all()
        begun = world.loop.now_s
        first, second = await send(producer, 2, 3)
        for future in (first, second):
            with pytest.raises(errors.DeliveryTimeout):
                await future
            assert world.loop.now_s == pytest.approx(begun + 60, abs=0.01)
        world.broker.start()
        assert await sent(producer, 4) == [1]

    world.run(main, delivery_timeout_ms=60_000)
    assert world.values() == [1, 4]
    assert passes < 400


@pytest.mark.parametrize("is_written", [True, False])
def test_batch_that_was_given_up_may_be_in_the_log_or_not(is_written: bool) -> None:
    world = World()

    async def main(producer: Producer) -> None:
        await sent(producer, 1)
        if is_written:
            world.lose_responses()
        else:
            world.broker.refusing, world.broker.random = 1.0, _Always(0.0)  # each before the append
        (future,) = await send(producer, 2)
        with pytest.raises(errors.DeliveryTimeout):
            await future
        if is_written:
            world.hear_again()
        world.broker.refusing = 0.0
        assert await sent(producer, 3, 4) == ([2, 3] if is_written else [1, 2])

    world.run(main, delivery_timeout_ms=2000, request_timeout_ms=500)
    assert world.values() == ([1, 2, 3, 4] if is_written else [1, 3, 4])
    assert {epoch for epoch, _, code in world.appends if not code} == ({0} if is_written else {0, 1})


def test_new_start_after_a_gap_does_not_hide_a_loss() -> None:
    """Code 45 after a refused batch has two causes here: the refusal, and the loss of acknowledged records."""
    world = World(timestamp_before_max_ms=500_000)

    async def main(producer: Producer) -> None:
        await sent(producer, 1)
        world.broker.flush()
        await sent(producer, 2)
        with pytest.raises(errors.KafkaError, match="INVALID_TIMESTAMP"):
            await (await producer.send(TOPIC, value(3), partition=0, timestamp_ms=1))
        world.restart(keep=lambda path, durable, live: durable)
        (future,) = await send(producer, 4)
        with pytest.raises(errors.OutOfOrderSequence):
            await future

    world.run(main)
    assert (1, 0, 0) in world.appends and world.values() == [1, 4]


def test_retries_are_limited() -> None:
    world = World()

    async def main(producer: Producer) -> None:
        world.meddle = lambda count, response: _with_code(response, ErrorCode.NOT_ENOUGH_REPLICAS)
        (future,) = await send(producer, 1)
        with pytest.raises(errors.KafkaError, match="NOT_ENOUGH_REPLICAS"):
            await future
        assert len(world.appends) == 4

    world.run(main, retries=3)


def test_newer_epoch_fences() -> None:
    world = World()

    async def main(producer: Producer) -> None:
        await sent(producer, 1)
        world.meddle = lambda count, response: _with_code(response, ErrorCode.INVALID_PRODUCER_EPOCH)
        (future,) = await send(producer, 2)
        with pytest.raises(errors.ProducerFenced):
            await future

    world.run(main)


def test_after_the_last_epoch_a_new_producer_id_is_requested() -> None:
    world = World()

    async def main(producer: Producer) -> None:
        await sent(producer, 1)
        sender = producer._sender
        assert sender is not None
        sequences = sender.accumulator.queue(TOPIC, 0).sequences
        assert sequences is not None
        before = sequences.producer_id
        sequences.epoch = FIRST_EPOCH
        world.broker.move_log_start(0, 1)
        assert await sent(producer, 2, 3) == [1, 2]
        assert sequences.producer_id != before and sequences.epoch == 0
        last = await producer.last_committed(TOPIC, 0)
        assert last is not None and (last.producer_id, last.sequence, last.ordinal) == (sequences.producer_id, 1, 2)

    world.run(main)


class _Always(Random):
    """Random numbers that are all equal."""

    def __init__(self, number: float) -> None:
        super().__init__(0)
        self._number = number

    def random(self) -> float:
        return self._number


def _with_code(response: Any, code: int) -> Any:
    response.error_code = int(code)
    response.base_offset = -1
    return response
