"""The cluster: metadata requests and their times, dead addresses, moved leaders, coordinators, closing."""

from __future__ import annotations

import asyncio
import itertools
import random
from pathlib import Path
from typing import Any

import pytest

from ottla.client.net.cluster import TRANSACTION, Cluster
from ottla.client.net.errors import ClientClosed, ConnectionLost, KafkaError, NoSuchTopic, UnsupportedVersion
from ottla.client.net.options import ClientOptions
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.cluster.api_versions import ApiVersionsRequest
from ottla.protocol.messages.groups.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from ottla.protocol.messages.topics.metadata import MetadataRequest
from ottla_testing.broker import harness
from ottla_testing.client.scripted import CLOSE, SILENT, Later, ScriptedBroker, ScriptedNetwork, metadata
from ottla_testing.each import each

MODERN = {MetadataRequest: "0-13", FindCoordinatorRequest: "0-6"}
ONE = {1: ("one", 9092)}
TWO = {1: ("one", 9092), 2: ("two", 9092)}
ID = bytes(range(16))


@pytest.fixture
def network() -> ScriptedNetwork:
    return ScriptedNetwork()


def cluster_of(bootstrap: str = "one", **options: Any) -> Cluster:
    return Cluster(ClientOptions(bootstrap=bootstrap, **options), rng=random.Random(1))


def metadata_in_turn(broker: ScriptedBroker, *responses: Any) -> None:
    """Returns Metadata responses, one for each request, the last one again and again; the first is that of start()."""
    left = list(responses)
    broker.does[MetadataRequest] = lambda request, version, link: left.pop(0) if len(left) > 1 else left[0]


def requested_topics(broker: ScriptedBroker) -> list[list[str]]:
    """Returns the topics of each Metadata request so far."""
    return [[topic.name for topic in heard.request.topics] for heard in broker.requests_of(MetadataRequest)]


# Metadata


def test_concurrent_callers_share_one_metadata_request(network: ScriptedNetwork) -> None:
    broker = network.broker(versions=MODERN)
    topics = {"t": {0: 1}, "u": {0: 1, 1: -1}}
    metadata_in_turn(broker, metadata(ONE), Later(1, metadata(ONE, topics)))

    async def main() -> None:
        cluster = cluster_of()
        await cluster.start()
        calls = [asyncio.ensure_future(cluster.topic(name)) for name in "tutu"]
        await asyncio.sleep(0.5)  # one in flight is shared as well
        found = await asyncio.gather(*calls, cluster.topic("t"))
        assert [topic.name for topic in found] == ["t", "u", "t", "u", "t"]
        assert await cluster.topic("t") is found[0]  # known: no request is sent
        assert (cluster.leader("u", 0), cluster.leader("u", 1)) == (1, -1)
        assert (cluster.leader("u", 2), cluster.leader("nothing", 0)) == (-1, -1)
        assert found[1].partitions[1].error == ErrorCode.LEADER_NOT_AVAILABLE
        await cluster.close()

    network.run(main())
    assert requested_topics(broker) == [[], ["t", "u"]]
    assert len(broker.links) == 1


def test_cancelled_caller_does_not_affect_the_others(network: ScriptedNetwork) -> None:
    broker = network.broker(versions=MODERN)
    metadata_in_turn(broker, metadata(ONE), Later(1, metadata(ONE, {"t": {0: 1}})))

    async def main() -> None:
        cluster = cluster_of()
        await cluster.start()
        first, second = (asyncio.ensure_future(cluster.topic("t")) for _ in range(2))
        await asyncio.sleep(0.5)
        first.cancel()
        assert (await second).name == "t" and first.cancelled()
        await cluster.close()

    network.run(main())


def test_topic_waits_until_it_has_leaders(network: ScriptedNetwork) -> None:
    broker = network.broker(versions=MODERN)
    metadata_in_turn(
        broker, metadata(ONE), metadata(ONE, {"t": 3}), metadata(ONE, {"t": 5}), metadata(ONE, {"t": {0: 1}})
    )

    async def main() -> None:
        cluster = cluster_of()
        await cluster.start()
        assert (await cluster.topic("t")).partitions[0].leader == 1
        await cluster.close()

    network.run(main())
    times = [heard.at_s for heard in broker.requests_of(MetadataRequest)]
    assert times[1] == times[0]  # known topics do not wait for a new one
    assert times[2] - times[1] >= 0.08 and times[3] - times[2] >= 0.16  # retry.backoff.ms, then doubled


@pytest.mark.parametrize(
    ("response", "expected", "least_s"),
    [(3, NoSuchTopic, 4), (17, KafkaError, 0), (29, KafkaError, 0), (5, KafkaError, 4)],
)
def test_missing_topic_raises_after_the_timeout(
    response: int, expected: type[KafkaError], least_s: float, network: ScriptedNetwork
) -> None:
    broker = network.broker(versions=MODERN)
    metadata_in_turn(broker, metadata(ONE), metadata(ONE, {"t": response}))

    async def main() -> None:
        cluster = cluster_of()
        await cluster.start()
        started = network.loop.time()
        with pytest.raises(expected) as caught:
            await cluster.topic("t", 5.0)
        assert caught.value.code == response
        assert least_s <= network.loop.time() - started <= 5
        await cluster.close()

    network.run(main())
    assert len(broker.heard) < 20


def test_moved_leader_is_found_after_expire(network: ScriptedNetwork) -> None:
    one, two = network.broker(versions=MODERN), network.broker("two", versions=MODERN)
    metadata_in_turn(one, metadata(ONE), metadata(TWO, {"t": {0: 1}}), metadata(TWO, {"t": {0: 2}}))

    async def main() -> None:
        cluster = cluster_of()
        await cluster.start()
        await cluster.topic("t")
        changes: list[int] = []
        cluster.add_listener(lambda: changes.append(cluster.leader("t", 0)))
        cluster.expire("t")
        cluster.expire("t")
        assert not cluster.is_fresh("t") and cluster.leader("t", 0) == 1
        topic = await cluster.topic("t")
        assert topic.partitions[0].leader == cluster.leader("t", 0) == 2 and cluster.is_fresh("t")
        assert changes == [2]
        connection = await cluster.connection(2)
        assert (connection.host, connection.port) == ("two", 9092)
        await cluster.close()

    network.run(main())
    assert requested_topics(one) == [[], ["t"], ["t"]] and requested_topics(two) == []
    assert one.heard[-1].at_s - one.heard[-2].at_s >= 0.08  # repeated requests back off


def test_expire_requests_metadata_in_the_background_until_a_response(network: ScriptedNetwork) -> None:
    broker = network.broker(versions=MODERN)
    metadata_in_turn(
        broker, metadata(ONE), metadata(ONE, {"t": {0: 1}}), CLOSE, CLOSE, metadata(ONE, {"t": {0: 1, 1: 1}})
    )

    async def main() -> None:
        cluster = cluster_of()
        await cluster.start()
        await cluster.topic("t")
        cluster.expire("t")
        await asyncio.sleep(10)
        assert cluster.is_fresh("t") and len(cluster.topics["t"].partitions) == 2
        cluster.expire("unknown")  # unused topics are not requested
        await asyncio.sleep(10)
        await cluster.close()

    network.run(main())
    assert len(requested_topics(broker)) == 5


def test_refresh_ignores_the_response_to_an_older_request(network: ScriptedNetwork) -> None:
    broker = network.broker(versions=MODERN)
    metadata_in_turn(
        broker, metadata(ONE), Later(1, metadata(ONE, {"t": {0: 1}})), Later(1, metadata(ONE, {"t": {0: 1, 1: 1}}))
    )

    async def main() -> None:
        cluster = cluster_of()
        await cluster.start()
        first = asyncio.ensure_future(cluster.topic("t"))
        await asyncio.sleep(0.5)
        await cluster.refresh(["t"])
        assert len(cluster.topics["t"].partitions) == 2 and len((await first).partitions) == 1
        await cluster.close()

    network.run(main())
    assert requested_topics(broker) == [[], ["t"], ["t"]]


def test_metadata_is_requested_again_after_its_maximum_age(network: ScriptedNetwork) -> None:
    broker = network.broker(versions=MODERN)
    metadata_in_turn(broker, metadata(ONE), metadata(ONE, {"t": {0: 1}}))

    async def main() -> None:
        cluster = cluster_of(metadata_max_age_ms=60_000)
        await cluster.start()
        await cluster.topic("t")
        await asyncio.sleep(59)
        assert len(broker.heard) == 3
        await asyncio.sleep(62)
        await cluster.close()
        await asyncio.sleep(1000)

    network.run(main())
    assert requested_topics(broker) == [[], ["t"], ["t"], ["t"]]


@pytest.mark.parametrize(("same_topic", "leader"), [(True, 1), (False, 2)])
def test_older_leader_epoch_of_the_same_topic_is_ignored(
    same_topic: bool, leader: int, network: ScriptedNetwork
) -> None:
    broker = network.broker(versions=MODERN)
    newer, older = metadata(TWO, {"t": {0: (1, 7)}}), metadata(TWO, {"t": {0: (2, 6)}})
    newer.topics[0].topic_id = ID
    older.topics[0].topic_id = ID if same_topic else ID[::-1]
    metadata_in_turn(broker, metadata(ONE), newer, older)

    async def main() -> None:
        cluster = cluster_of()
        await cluster.start()
        await cluster.topic("t")
        await cluster.refresh()
        assert cluster.leader("t", 0) == leader
        await cluster.close()

    network.run(main())


@pytest.mark.parametrize(
    ("version", "sent", "allowed"), [(0, False, True), (3, False, True), (4, False, False), (9, True, False)]
)
def test_metadata_request_has_the_configured_fields(
    version: int, sent: bool, allowed: bool, network: ScriptedNetwork
) -> None:
    broker = network.broker(versions={MetadataRequest: f"0-{version}"})
    response = metadata(ONE, {"t": {0: 1}})
    response.topics[0].message_format_version, response.topics[0].max_message_bytes = 1, 5000
    metadata_in_turn(broker, metadata(ONE), response)

    async def main() -> None:
        cluster = cluster_of(allow_auto_create_topics=False)
        await cluster.start()
        topic = await cluster.topic("t")
        assert (topic.message_format, topic.max_message_bytes) == ((1, 5000) if sent else (None, None))
        await cluster.close()

    network.run(main())
    request = broker.requests_of(MetadataRequest)[-1].request
    assert (request.include_message_format, request.allow_auto_topic_creation) == (sent, allowed)


def test_metadata_without_names_returns_every_topic(network: ScriptedNetwork) -> None:
    broker = network.broker(versions=MODERN)
    metadata_in_turn(broker, metadata(ONE), metadata(ONE, {"t": {0: 1}, "u": 29}))

    async def main() -> None:
        cluster = cluster_of()
        await cluster.start()
        found = await cluster.metadata()
        assert {topic.name: topic.error_code for topic in found.topics} == {"t": 0, "u": 29}
        assert not cluster.topics
        await cluster.close()

    network.run(main())
    assert broker.requests_of(MetadataRequest)[-1].request.topics is None


def test_rebootstrap_required_restarts_from_the_bootstrap_addresses(network: ScriptedNetwork) -> None:
    one, two = network.broker(versions=MODERN), network.broker("two", versions=MODERN)
    metadata_in_turn(one, metadata({1: ("one", 9092)}), metadata({}, error_code=129), metadata(ONE, {"t": {0: 1}}))

    async def main() -> None:
        cluster = cluster_of()
        await cluster.start()
        assert (await cluster.topic("t")).partitions[0].leader == 1
        await cluster.close()

    network.run(main())
    assert len(one.links) == 2 and not two.links


def expected_nodes(broker: ScriptedBroker) -> list[tuple[str | None, int]]:
    """Returns the cluster and the node that each connection named."""
    requests = (heard.request for heard in broker.requests_of(ApiVersionsRequest))
    return [(request.cluster_id, request.node_id) for request in requests]


@each(("last", "check", "named"), [(5, True, ("c", 1)), (5, False, (None, -1)), (4, True, (None, -1))])
def test_connection_to_a_node_names_it_where_brokers_check_it(
    last: int, check: bool, named: tuple[str | None, int]
) -> None:
    """KIP-1242. The bootstrap address may be any node of any cluster; older brokers get no second request."""
    network = ScriptedNetwork()
    broker = network.broker(versions=MODERN | {ApiVersionsRequest: f"0-{last}"})
    metadata_in_turn(broker, metadata(ONE, cluster_id="c"))

    async def main() -> None:
        cluster = cluster_of(metadata_cluster_check_enable=check)
        await cluster.start()
        await cluster.connection(1)
        await cluster.close()

    network.run(main())
    assert expected_nodes(broker) == [(None, -1), named]


def test_misrouted_connection_restarts_from_the_bootstrap_addresses(network: ScriptedNetwork) -> None:
    one, two = (network.broker(host, versions=MODERN | {ApiVersionsRequest: "0-5"}) for host in ("one", "two"))
    moved = metadata({3: ("one", 9092)}, {"t": {0: 3}}, cluster_id="new")
    metadata_in_turn(one, metadata(TWO, {"t": {0: 2}}, cluster_id="old"), moved)
    serve = two.does[ApiVersionsRequest]

    def refuse(request: Any, version: int, link: Any) -> Any:
        response = serve(request, version, link)
        response.error_code = 129 if request.cluster_id else 0
        return response

    two.does[ApiVersionsRequest] = refuse

    async def main() -> None:
        cluster = cluster_of()
        await cluster.start()
        with pytest.raises(ConnectionLost, match="two:9092 is not node 2 of cluster old"):
            await cluster.connection(2)
        assert not cluster.nodes
        assert (await cluster.topic("t")).partitions[0].leader == 3 and cluster.cluster_id == "new"
        await cluster.connection(3)
        await cluster.close()

    network.run(main())
    assert expected_nodes(one) == [(None, -1), (None, -1), ("new", 3)]


# Connections


def test_dead_bootstrap_addresses_are_skipped(network: ScriptedNetwork) -> None:
    broker = network.broker("three", versions=MODERN)
    metadata_in_turn(broker, metadata({3: ("three", 9092)}))
    network.silent.add(("two", 1))

    async def main() -> None:
        cluster = cluster_of("one:1,two:1,three", connect_timeout_ms=3000)
        started = network.loop.time()
        await cluster.start()
        assert network.loop.time() - started == pytest.approx(3)
        assert list(cluster.nodes) == [3]
        await cluster.close()

    network.run(main())
    assert [attempt[1:] for attempt in network.attempts] == [("one", 1), ("two", 1), ("three", 9092)]


def test_no_reachable_bootstrap_address_raises_connection_lost(network: ScriptedNetwork) -> None:
    async def main() -> None:
        cluster = cluster_of("one:1,two:2")
        with pytest.raises(ConnectionLost, match=r"no broker is reachable: .*one:1.*two:2"):
            await cluster.start()
        metadata_in_turn(network.broker("two", 2, MODERN), metadata({2: ("two", 2)}))
        await cluster.start()
        assert list(cluster.nodes) == [2]
        await cluster.close()

    network.run(main())


def test_each_purpose_has_one_connection_to_a_node(network: ScriptedNetwork) -> None:
    broker = network.broker(versions=MODERN)
    metadata_in_turn(broker, metadata(ONE))

    async def main() -> None:
        cluster = cluster_of()
        await cluster.start()
        data = await asyncio.gather(*(cluster.connection(1) for _ in range(5)))
        assert len(set(map(id, data))) == 1 and await cluster.connection(1) is data[0]
        fetch = await cluster.connection(1, "fetch")
        control = await cluster.any_connection()
        assert len({id(connection) for connection in (data[0], fetch, control)}) == 3
        assert await cluster.controller() is control  # no such node in the metadata
        with pytest.raises(ConnectionLost, match="unknown node 7"):
            await cluster.connection(7)
        data[0].close()
        assert await cluster.connection(1) is not data[0]
        await cluster.close()
        assert fetch.is_closed and control.is_closed

    network.run(main())
    assert len(broker.links) == 4 and all(link.is_closing() for link in broker.links)


def test_reconnects_back_off_exponentially(network: ScriptedNetwork) -> None:
    broker = network.broker(versions=MODERN)
    metadata_in_turn(broker, metadata(TWO))

    async def main() -> None:
        cluster = cluster_of(reconnect_backoff_ms=100, reconnect_backoff_max_ms=1000)
        await cluster.start()
        for _ in range(7):
            with pytest.raises(ConnectionLost, match="cannot connect to two:9092"):
                await cluster.connection(2)
        network.broker("two", versions=MODERN)
        first = await cluster.connection(2)
        first.close()
        before = network.loop.time()
        await cluster.connection(2)  # a success resets the back-off
        assert network.loop.time() == before
        await cluster.close()

    network.run(main())
    times = [at_s for at_s, host, _ in network.attempts if host == "two"]
    gaps = [after - before for before, after in itertools.pairwise(times)]
    for gap, expected in zip(gaps, [0.1, 0.2, 0.4, 0.8, 1.0, 1.0], strict=False):
        assert 0.8 * expected <= gap <= 1.2 * expected


def test_lost_node_is_replaced_by_another_for_metadata(network: ScriptedNetwork) -> None:
    one, two = network.broker(versions=MODERN), network.broker("two", versions=MODERN)
    metadata_in_turn(one, metadata(TWO))
    metadata_in_turn(two, metadata({2: ("two", 9092)}, {"t": {0: 2}}))

    async def main() -> None:
        cluster = cluster_of()
        await cluster.start()
        data = await cluster.connection(1)
        one.stop()
        assert (await cluster.topic("t")).partitions[0].leader == 2
        assert data.is_closed
        await cluster.close()

    network.run(main())


def test_connections_to_a_moved_node_are_closed(network: ScriptedNetwork) -> None:
    one, two = network.broker(versions=MODERN), network.broker("two", versions=MODERN)
    metadata_in_turn(one, metadata(ONE), metadata({1: ("two", 9092)}))

    async def main() -> None:
        cluster = cluster_of()
        await cluster.start()
        before = await cluster.connection(1)
        await cluster.refresh()
        assert before.is_closed
        assert (await cluster.connection(1)).host == "two"
        await cluster.close()

    network.run(main())
    assert len(two.links) == 1


def test_controller_returns_a_connection_to_the_controller(network: ScriptedNetwork) -> None:
    one, two = network.broker(versions=MODERN), network.broker("two", versions=MODERN)
    metadata_in_turn(one, metadata(TWO, controller_id=2), metadata(TWO, controller_id=1))

    async def main() -> None:
        cluster = cluster_of()
        await cluster.start()
        assert (await cluster.controller()).host == "two"
        await cluster.refresh()
        assert await cluster.controller() is await cluster.any_connection()
        await cluster.close()

    network.run(main())
    assert len(two.links) == 1


def test_node_with_negotiated_versions_is_not_old_after_a_close(network: ScriptedNetwork) -> None:
    broker = network.broker(versions=MODERN)
    metadata_in_turn(broker, metadata(ONE))

    async def main() -> None:
        cluster = cluster_of()
        await cluster.start()
        broker.versions = None
        with pytest.raises(ConnectionLost):
            await cluster.connection(1)
        await cluster.close()

    network.run(main())


# Coordinators


def coordinator(node_id: int, host: str, error_code: int = 0, key: str = "g", version: int = 4) -> Any:
    response = {"node_id": node_id, "host": host, "port": 9092, "error_code": error_code, "error_message": None}
    if version < 4:
        return FindCoordinatorResponse(**response)
    return FindCoordinatorResponse(coordinators=[FindCoordinatorResponse.Coordinator(key=key, **response)])


def finding(broker: ScriptedBroker, *responses: Any) -> None:
    left = list(responses)
    broker.does[FindCoordinatorRequest] = lambda request, version, link: left.pop(0) if len(left) > 1 else left[0]


def test_coordinator_is_looked_up_once_and_again_after_expire(network: ScriptedNetwork) -> None:
    one, two = network.broker(versions=MODERN), network.broker("two", versions=MODERN)
    metadata_in_turn(one, metadata(TWO))
    finding(one, coordinator(2, "two"), coordinator(1, "one"))

    async def main() -> None:
        cluster = cluster_of()
        await cluster.start()
        found = await asyncio.gather(*(cluster.coordinator("g") for _ in range(4)))
        assert {(id(connection), connection.host) for connection in found} == {(id(found[0]), "two")}
        assert found[0] is not await cluster.connection(2)  # a waiting join would delay Produce requests
        cluster.expire_coordinator("g")
        assert (await cluster.coordinator("g")).host == "one"
        await cluster.close()

    network.run(main())
    requests = [heard.request for heard in one.requests_of(FindCoordinatorRequest)]
    assert [(request.coordinator_keys, request.key_type) for request in requests] == [(["g"], 0)] * 2
    assert len(two.links) == 2


def test_coordinator_that_is_not_available_is_looked_up_again(network: ScriptedNetwork) -> None:
    broker = network.broker(versions=MODERN)
    metadata_in_turn(broker, metadata(ONE))
    finding(
        broker, coordinator(-1, "", 15), coordinator(-1, "", 14), CLOSE, coordinator(1, "one", key="x"),
        coordinator(1, "one"),
    )  # fmt: skip

    async def main() -> None:
        cluster = cluster_of()
        await cluster.start()
        assert (await cluster.coordinator("g")).host == "one"
        await cluster.close()

    network.run(main())
    times = [heard.at_s for heard in broker.requests_of(FindCoordinatorRequest)]
    assert len(times) == 5
    assert all(after - before >= 0.08 for before, after in itertools.pairwise(times))


@pytest.mark.parametrize(("code", "in_time"), [(15, False), (30, True)])
def test_coordinator_lookup_raises_after_the_timeout(code: int, in_time: bool, network: ScriptedNetwork) -> None:
    broker = network.broker(versions=MODERN)
    metadata_in_turn(broker, metadata(ONE))
    finding(broker, coordinator(-1, "", code))

    async def main() -> None:
        cluster = cluster_of()
        await cluster.start()
        started = network.loop.time()
        with pytest.raises(KafkaError) as caught:
            await cluster.coordinator("g", timeout_s=3.0)
        assert caught.value.code == code
        assert (network.loop.time() == started) is in_time and network.loop.time() - started <= 3
        finding(broker, SILENT)
        with pytest.raises(ConnectionLost, match="no coordinator of 'g' within the timeout"):
            await cluster.coordinator("g", timeout_s=3.0)
        await cluster.close()

    network.run(main())


@pytest.mark.parametrize("version", [0, 1, 3])
def test_find_coordinator_before_v4_sends_one_key_per_request(version: int, network: ScriptedNetwork) -> None:
    broker = network.broker(versions={MetadataRequest: "0-1", FindCoordinatorRequest: f"0-{version}"})
    metadata_in_turn(broker, metadata(ONE))
    finding(broker, coordinator(9, "one", version=version))

    async def main() -> None:
        cluster = cluster_of()
        await cluster.start()
        assert (await cluster.coordinator("g")).host == "one"  # of a node that the metadata did not have
        if version == 0:
            with pytest.raises(UnsupportedVersion):
                await cluster.coordinator("tid", TRANSACTION)
        else:
            await cluster.coordinator("tid", TRANSACTION)
            assert broker.requests_of(FindCoordinatorRequest)[-1].request.key_type == TRANSACTION
        await cluster.close()

    network.run(main())


# The end


def test_close_fails_all_waiting_calls(network: ScriptedNetwork) -> None:
    broker = network.broker(versions=MODERN)
    metadata_in_turn(broker, metadata(ONE), SILENT)
    finding(broker, SILENT)
    network.silent.add(("two", 9092))

    async def main() -> None:
        cluster = cluster_of()
        await cluster.start()
        cluster.nodes.update(cluster.nodes | {2: cluster.nodes[1]._replace(node_id=2, host="two")})
        waiting = [
            asyncio.ensure_future(call)
            for call in (
                cluster.topic("t"), cluster.refresh(), cluster.coordinator("g"), cluster.connection(2),
                cluster.metadata(),
            )
        ]  # fmt: skip
        await asyncio.sleep(1)
        await cluster.close()
        async with asyncio.timeout(5):
            outcomes = await asyncio.gather(*waiting, return_exceptions=True)
        assert all(isinstance(outcome, ClientClosed | ConnectionLost) for outcome in outcomes), outcomes
        for call in (cluster.topic("t"), cluster.refresh(), cluster.coordinator("g"), cluster.connection(1)):
            with pytest.raises(ClientClosed):
                await call
        await cluster.close()

    network.run(main())
    assert all(link.is_closing() for link in broker.links)


def test_cluster_that_is_not_started_raises_client_closed() -> None:
    with pytest.raises(ClientClosed, match="not started"):
        asyncio.run(cluster_of().topic("t"))


# Over real sockets


@each("release", ["0.8.2", "0.9", "0.10.0", "2.3", "4.3", "ottla"], strided=True)
async def test_cluster_of_each_release_over_sockets(release: str, tmp_path: Path, unused_tcp_port: int) -> None:
    async with harness.running(tmp_path, release=release) as broker:
        await broker.topic("made", 3, {"max.message.bytes": "5000"})
        cluster = cluster_of(f"127.0.0.1:{unused_tcp_port},127.0.0.1:{broker.ports[0]}")
        await cluster.start()
        made, auto = await asyncio.gather(cluster.topic("made"), cluster.topic("auto"))
        assert list(made.partitions) == [0, 1, 2] and list(auto.partitions) == [0]
        assert [cluster.leader("made", n) for n in range(3)] == [1, 1, 1]
        is_new = release in ("4.3", "ottla")
        assert (made.message_format, made.max_message_bytes) == ((2, 5000) if is_new else (None, None))
        connection = await cluster.connection(1)
        assert connection.version_of(ApiVersionsRequest if is_new else MetadataRequest) >= 0
        assert (await cluster.coordinator("group", timeout_s=15)).port == broker.ports[0]
        assert {topic.name for topic in (await cluster.metadata()).topics} >= {"made", "auto"}
        await cluster.close()


async def test_cluster_finds_another_one_at_its_address(tmp_path: Path, unused_tcp_port: int) -> None:
    cluster = cluster_of(f"127.0.0.1:{unused_tcp_port}")
    listening = {"listeners": f"PLAINTEXT://127.0.0.1:{unused_tcp_port}"}
    ids: list[str | None] = []
    for folder in ("one", "two"):
        async with harness.running(tmp_path / folder, overrides=listening) as broker:
            if not ids:
                await cluster.start()
            else:
                with pytest.raises(ConnectionLost, match=f"is not node 1 of cluster {ids[0]}"):
                    await cluster.connection(1)
            await broker.topic(folder)
            assert (await cluster.topic(folder)).partitions[0].leader == 1
            await cluster.connection(1)
            ids.append(cluster.cluster_id)
    await cluster.close()
    assert len(set(ids)) == 2
