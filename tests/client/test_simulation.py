"""The simulated event loop, network and broker, with a minimal client."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Coroutine
from random import Random
from typing import Any

import pytest

from ottla.protocol.compiler import builder, parse
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.cluster.api_versions import ApiVersionsRequest
from ottla.protocol.messages.records.produce import ProduceRequest
from ottla.protocol.messages.topics.metadata import MetadataRequest
from ottla.protocol.messages.transactions.init_producer_id import InitProducerIdRequest
from ottla.protocol.records import batch
from ottla.protocol.schema import spec
from ottla_testing.client.model_history import Appended, Cut, Event, FinalLog, Started
from ottla_testing.client.simulated_broker import HOST, PORT, SERVED, TOPIC, SimulatedBroker, shown, value_of
from ottla_testing.client.simulated_loop import STARTED_AT_S, NothingLeft, SimulatedLoop
from ottla_testing.client.simulated_network import Faults, SimulatedNetwork
from ottla_testing.protocol.batches import batch_of

TopicData = ProduceRequest.TopicProduceData


def request(message: Any, version: int, correlation_id: int = 7) -> bytes:
    """Returns a request without its size."""
    declared = spec(type(message))
    parts: list[Any] = [struct.pack(">hhih", declared.api_key, version, correlation_id, -1)]
    parts += [b"\0"] if version in declared.flexible else []
    builder(type(message), version)(message, parts.append)
    return b"".join(parts)


def response_of(message: Any, version: int, frame: bytes) -> Any:
    """Decodes the response to that request."""
    declared = spec(type(message))
    skipped = 5 if version in declared.flexible and declared.api_key != 18 else 4
    return parse(SERVED[declared.api_key][1], version, frame, skipped)


def produce(sequence: int, *records: int, producer_id: int = 1, epoch: int = 0, partition: int = 0) -> ProduceRequest:
    made = [batch.Record(n, 5000, None, value_of(record)) for n, record in enumerate(records)]
    fields: dict[str, Any] = {"producer_id": producer_id, "producer_epoch": epoch, "base_sequence": sequence}
    data = TopicData.PartitionProduceData(index=partition, records=batch_of(made, **fields))
    return ProduceRequest(acks=1, timeout_ms=1000, topic_data=[TopicData(name=TOPIC, partition_data=[data])])


class Peer(asyncio.Protocol):
    """A client that keeps all received bytes."""

    def __init__(self) -> None:
        self.heard = bytearray()
        self.lost: list[Exception | None] = []

    def data_received(self, data: bytes) -> None:
        self.heard += data

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.append(exc)

    @property
    def frames(self) -> list[bytes]:
        found, start = [], 0
        while start < len(self.heard):
            end = start + 4 + struct.unpack_from(">i", self.heard, start)[0]
            found.append(bytes(self.heard[start + 4 : end]))
            start = end
        return found


class BufferedPeer(Peer, asyncio.BufferedProtocol):
    """The same with a small buffer of its own (BufferedProtocol)."""

    buffer = memoryview(bytearray(5))

    def get_buffer(self, sizehint: int) -> memoryview:
        return self.buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.heard += self.buffer[:nbytes]


class World:
    """One network with one broker."""

    def __init__(self, seed: int = 1, faults: Faults | None = None, **broker: Any) -> None:
        self.events: list[Event] = []
        self.network = SimulatedNetwork(Random(seed), faults or Faults())
        self.loop = self.network.loop
        self.broker = SimulatedBroker(Random(seed), self.events, self.loop.time, **broker)
        self.network.servers[HOST, PORT] = self.broker
        self.seen: list[str] = []
        self.network.trace = lambda link, what, frame: self.seen.append(f"{what} {shown(frame)}")

    def run(self, main: Coroutine[Any, Any, Any]) -> Any:
        result = self.loop.run(main)
        assert self.loop.errors == []
        return result

    async def connect(self, kind: type[Peer] = Peer) -> tuple[asyncio.Transport, Any]:
        return await self.loop.create_connection(kind, HOST, PORT)

    async def exchange(self, message: Any, version: int) -> Any:
        transport, peer = await self.connect()
        send(transport, request(message, version))
        await asyncio.sleep(1)
        transport.close()
        return response_of(message, version, peer.frames[0])

    @property
    def appended(self) -> list[tuple[int, ...]]:
        return [event.records for event in self.events if isinstance(event, Appended)]


def send(transport: asyncio.Transport, *frames: bytes) -> None:
    transport.write(b"".join(struct.pack(">i", len(frame)) + frame for frame in frames))


def test_timers_fire_in_order_without_real_time() -> None:
    loop = SimulatedLoop()
    order: list[tuple[str, float]] = []

    async def main() -> None:
        for name, delay_s in (("late", 86400.0), ("early", 0.5)):
            loop.call_later(delay_s, lambda name=name: order.append((name, loop.time())))
        await asyncio.sleep(100_000)
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(asyncio.Event().wait(), 5)

    loop.run(main())
    assert order == [("early", STARTED_AT_S + 0.5), ("late", STARTED_AT_S + 86400.0)]
    assert loop.time() == pytest.approx(STARTED_AT_S + 100_005)


def test_wait_without_pending_events_ends_the_run() -> None:
    loop = SimulatedLoop()
    with pytest.raises(NothingLeft):
        loop.run_until_complete(asyncio.Event().wait())
    for task in asyncio.all_tasks(loop):
        task.cancel()
        loop.run_until_complete(asyncio.gather(task, return_exceptions=True))
    loop.close()


def test_errors_of_callbacks_and_tasks_are_kept() -> None:
    loop = SimulatedLoop()

    async def main() -> None:
        loop.call_soon(lambda: 1 / 0)
        await asyncio.sleep(1)

    loop.run(main())
    assert isinstance(loop.errors[0]["exception"], ZeroDivisionError)


@pytest.mark.parametrize("kind", [Peer, BufferedPeer])
def test_requests_and_responses_keep_their_order(kind: type[Peer]) -> None:
    world = World(faults=Faults(delay_s=5))

    async def main() -> None:
        transport, peer = await world.connect(kind)
        message = ApiVersionsRequest(client_software_name="x", client_software_version="1")
        frames = [request(message, 3, number) for number in range(20)]
        send(transport, *frames)
        send(transport, request(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0), 4, 20))
        await asyncio.sleep(200)
        assert [struct.unpack_from(">i", frame)[0] for frame in peer.frames] == list(range(21))
        assert peer.lost == []
        transport.close()
        await asyncio.sleep(0)
        assert peer.lost == [None]

    world.run(main())


def test_connect_fails_while_the_broker_is_down() -> None:
    world = World()

    async def main() -> None:
        transport, peer = await world.connect()
        world.broker.stop(clean=True)
        send(transport, request(produce(0, 1), 9))
        world.network.cut_all()
        with pytest.raises(ConnectionRefusedError):
            await world.connect()
        world.broker.start()
        await world.connect()
        await asyncio.sleep(9)
        assert isinstance(peer.lost[0], ConnectionResetError)
        assert transport.is_closing()

    world.run(main())
    assert world.appended == []


def test_cut_before_delivery_loses_the_request() -> None:
    world = World(faults=Faults(cut_before=1))

    async def main() -> None:
        transport, peer = await world.connect()
        send(transport, request(produce(0, 1), 9), request(produce(1, 2), 9))
        await asyncio.sleep(9)
        assert peer.heard == b"" and len(peer.lost) == 1

    world.run(main())
    assert world.appended == []
    assert [line.split(" [")[0] for line in world.seen] == ["cut before Produce 7"]


def test_cut_after_delivery_loses_the_response() -> None:
    world = World(faults=Faults(cut_after=1))

    async def main() -> None:
        transport, peer = await world.connect()
        send(transport, request(produce(0, 1), 9), request(produce(1, 2), 9))
        await asyncio.sleep(9)
        assert peer.heard == b"" and len(peer.lost) == 1

    world.run(main())
    assert world.appended == [(1,)]


@pytest.mark.parametrize("cut_by_client", [False, True])
def test_frames_in_flight_may_arrive_late(cut_by_client: bool) -> None:
    world = World(faults=Faults(late=1, late_s=20, delay_s=0.1))

    async def main() -> None:
        transport, _ = await world.connect()
        send(transport, *(request(produce(number, number), 9) for number in range(5)))
        if cut_by_client:
            transport.abort()
        else:
            world.network.cut_all()
        await asyncio.sleep(0.2)
        again, peer = await world.connect()
        send(again, request(produce(0, 0), 9))
        await asyncio.sleep(50)
        (frame,) = peer.frames
        assert response_of(produce(0, 0), 9, frame).responses[0].partition_responses[0].error_code == 0

    world.run(main())
    late = [line for line in world.seen if line.startswith("late")]
    assert 1 <= len(late) <= 5
    # In order, and 0 only once, whichever of its copies came first.
    assert world.appended == [(number,) for number in range(max(len(late), 1))]


def test_repeated_request_is_detected_by_its_sequences() -> None:
    world = World(faults=Faults(repeated=1))

    async def main() -> None:
        transport, peer = await world.connect()
        send(transport, request(produce(0, 1), 9), request(produce(-1, 2, producer_id=-1, epoch=-1), 9))
        await asyncio.sleep(9)
        assert len(peer.frames) == 2

    world.run(main())
    assert sorted(world.appended) == [(1,), (2,), (2,)]


def test_frames_to_the_old_process_never_reach_the_new_one() -> None:
    world = World(faults=Faults(late=1, late_s=20, repeated=1))

    async def main() -> None:
        transport, _ = await world.connect()
        send(transport, request(produce(0, 1), 9))
        world.broker.stop(clean=False)
        world.network.cut_all()
        world.broker.start()
        await asyncio.sleep(50)

    world.run(main())
    assert world.appended == []


def test_broker_responds_as_its_release() -> None:
    message = ApiVersionsRequest(client_software_name="x", client_software_version="1")
    world = World(release="1.0.1")
    response = world.run(world.exchange(message, 1))
    assert {api.api_key: api.max_version for api in response.api_keys}[0] == 5
    world = World()
    response = world.run(world.exchange(message, 3))
    assert [feature.name for feature in response.supported_features] == ["ottla.duplicate.scan"]
    world = World(has_scan=False, partitions=3)
    assert world.run(world.exchange(message, 3)).supported_features == []


def test_unserved_version_closes_the_connection() -> None:
    world = World(release="4.3")

    async def main() -> None:
        transport, peer = await world.connect()
        send(transport, request(produce(0, 1), 2))
        await asyncio.sleep(1)
        assert peer.heard == b"" and len(peer.lost) == 1

    world.run(main())


def test_metadata_and_producer_ids_are_served() -> None:
    world = World(partitions=3)
    metadata_request = MetadataRequest(
        topics=[MetadataRequest.MetadataRequestTopic(name=TOPIC)], include_message_format=True
    )
    (topic,) = world.run(world.exchange(metadata_request, 12)).topics
    assert [partition.leader_id for partition in topic.partitions] == [1, 1, 1]
    assert topic.message_format_version == 2
    world = World()
    ids = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)

    async def two() -> list[int]:
        return [(await world.exchange(ids, 4)).producer_id for _ in range(2)]

    first, second = world.run(two())
    assert second > first > 0


def test_journal_equals_the_logs() -> None:
    world = World(partitions=2, refusing=0.0)
    broker = world.broker

    async def main() -> None:
        for number in range(6):
            response = await world.exchange(produce(2 * number, 2 * number, 2 * number + 1), 9)
            (part,) = response.responses[0].partition_responses
            assert (part.error_code, part.base_offset, part.log_start_offset) == (0, 2 * number, 0)
        broker.flush()
        broker.move_log_start(0, 3)
        await world.exchange(produce(12, 12), 9)
        broker.stop(clean=False)
        broker.files.lose_power(lambda path, durable, live: durable)
        broker.start()

    world.run(main())
    records = [(offset, offset) for offset in range(3, 12)]
    assert broker.final_logs() == {0: FinalLog(3, records), 1: FinalLog(0, [])}
    assert world.appended == [*((n, n + 1) for n in range(0, 12, 2)), (12,)]
    (cut,) = (event for event in world.events if isinstance(event, Cut))
    assert cut[1:] == (0, 12)
    (moved,) = (event for event in world.events if isinstance(event, Started))
    assert moved[1:] == (0, 3)


def test_new_disk_is_empty() -> None:
    world = World()
    broker = world.broker

    async def main() -> ErrorCode:
        await world.exchange(produce(0, 0), 9)
        broker.stop(clean=True)
        broker.lose_power(everything=True)
        broker.start()
        response = await world.exchange(produce(1, 1), 9)
        return ErrorCode(response.responses[0].partition_responses[0].error_code)

    assert world.run(main()) is ErrorCode.UNKNOWN_PRODUCER_ID
    assert broker.final_logs() == {0: FinalLog(0, [])}
    assert [event[1:] for event in world.events if isinstance(event, Cut)] == [(0, 0)]


def test_retriable_refusals_come_before_and_after_the_append() -> None:
    world = World(refusing=1.0)

    async def main() -> set[tuple[int, bool]]:
        seen = set()
        for number in range(30):
            response = await world.exchange(produce(-1, number, producer_id=-1, epoch=-1), 9)
            code = response.responses[0].partition_responses[0].error_code
            seen.add((code, (number,) in world.appended))
        return seen

    assert world.run(main()) == {(6, False), (19, False), (7, True), (20, True)}


def test_run_with_the_same_seed_is_identical() -> None:
    def once() -> list[str]:
        world = World(seed=5, faults=Faults(delay_s=0.5, cut_before=0.2, cut_after=0.2, late=0.5, repeated=0.3))

        async def main() -> None:
            for number in range(20):
                transport, _ = await world.connect()
                send(transport, request(produce(number, number), 9))
                await asyncio.sleep(world.network.random.random())
                transport.close()

        world.run(main())
        return world.seen + [str(event) for event in world.events]

    assert once() == once()
