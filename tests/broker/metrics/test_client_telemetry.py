"""Client metrics (KIP-714): subscriptions, intervals, and pushes."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.broker.errors import Refused
from ottla.broker.metrics.client_telemetry import INSTANCES_MAX, ClientInfo, Telemetry
from ottla.broker.network.router import apis_of
from ottla.broker.releases.profiles import RELEASES, profile
from ottla.protocol.messages.cluster.api_versions import ApiVersionsRequest
from ottla.protocol.messages.cluster.get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from ottla.protocol.messages.cluster.push_telemetry import PushTelemetryRequest
from ottla.protocol.records.compression import compress
from ottla.storage.format.partition_metadata import encode_id
from ottla_testing.broker.harness import Broker, Client, ping, running

ON = {"ottla.client.telemetry": "true"}
ID = bytes(range(1, 17))
ZERO = bytes(16)
MINUTE_MS = 60_000
CLIENT_METRICS = 16
OK, INVALID_REQUEST, NO_CODEC, DAMAGED, EARLY, NO_SUCH, TOO_LARGE = 0, 42, 76, 87, 89, 117, 118


def want(broker: Broker, name: str = "all", **configs: str) -> None:
    """Creates or replaces a subscription: `interval_ms`, `metrics`, `match`."""
    given = {key.replace("_", "."): value for key, value in configs.items()}
    broker.state.named_configs.set(CLIENT_METRICS, name, given, broker.clock.now_ms())


async def subscribe(client: Client, instance_id: bytes = ID) -> Any:
    return await client.call(GetTelemetrySubscriptionsRequest(client_instance_id=instance_id), 0)


async def push(
    client: Client,
    subscription: int,
    metrics: bytes = b"m",
    codec: int = 0,
    last: bool = False,
    instance_id: bytes = ID,
) -> int:
    request = PushTelemetryRequest(
        client_instance_id=instance_id,
        subscription_id=subscription,
        terminating=last,
        compression_type=codec,
        metrics=metrics,
    )
    return (await client.call(request, 0)).error_code


async def advertised(client: Client) -> set[int]:
    return {one.api_key for one in (await client.call(ping(), 0)).api_keys}


def test_telemetry_apis_are_served_from_3_7_on_if_enabled() -> None:
    for name in (*RELEASES, "ottla"):
        has = name == "ottla" or RELEASES.index(name) >= RELEASES.index("3.7")
        on, off = (set(apis_of(profile(name), telemetry=telemetry).advertised) for telemetry in (True, False))
        assert on - off == ({71, 72} if has else set()), name
        assert not {71, 72} & off


@pytest.mark.parametrize(("release", "overrides"), [("ottla", {}), ("3.6", ON)])
async def test_disabled_telemetry_closes_the_connection(
    release: str, overrides: dict[str, str], tmp_path: Path
) -> None:
    async with running(tmp_path, release=release, overrides=overrides) as broker:
        assert not {71, 72} & await advertised(await broker.client())
        for request in (
            GetTelemetrySubscriptionsRequest(client_instance_id=ID),
            PushTelemetryRequest(
                client_instance_id=ID, subscription_id=0, terminating=False, compression_type=0, metrics=b""
            ),
        ):
            client = await broker.client()
            await client.send(request, 0)
            assert await client.is_closed()


async def test_client_gets_an_id_and_an_empty_subscription_by_default(tmp_path: Path) -> None:
    async with running(tmp_path, overrides=ON, release="4.3") as broker:
        client = await broker.client()
        assert {71, 72} <= await advertised(client)
        first, second = await subscribe(client, ZERO), await subscribe(client, ZERO)
        assert len({ZERO, first.client_instance_id, second.client_instance_id}) == 3
        assert (first.requested_metrics, first.push_interval_ms, first.telemetry_max_bytes) == ([], 300_000, 1 << 20)
        assert first.subscription_id != second.subscription_id
        assert (await subscribe(client, ID)).client_instance_id == ID


async def test_matching_subscriptions_are_merged_at_the_shortest_interval(tmp_path: Path) -> None:
    async with running(tmp_path, overrides=ON) as broker:
        client = await broker.client()
        want(broker, "a", metrics="org.b, org.a", interval_ms="60000")
        want(broker, "b", metrics="org.c,org.a", interval_ms="90000", match="client_id=te.*")
        want(broker, "other", metrics="*", interval_ms="100", match="client_id=te")
        reported = await subscribe(client)
        assert (reported.requested_metrics, reported.push_interval_ms) == (["org.a", "org.b", "org.c"], MINUTE_MS)
        want(broker, "c", metrics="*,org.d")
        reported = await subscribe(client)  # at once, because the subscription has changed
        assert (reported.error_code, reported.requested_metrics, reported.push_interval_ms) == (OK, ["*"], MINUTE_MS)


async def test_selector_with_exponential_backtracking_matches_fast(tmp_path: Path) -> None:
    """`re` needs 2^50 steps for it, on the event loop, at the request of any client."""
    async with running(tmp_path, overrides=ON) as broker:
        client = await broker.client()
        want(broker, metrics="org.a", match="client_software_name=(a+)+b")
        await client.call(ApiVersionsRequest(client_software_name="a" * 50, client_software_version="1"), 3)
        assert (await subscribe(client)).requested_metrics == []


@pytest.mark.parametrize(
    ("match", "matches"),
    [
        ("client_id=test", True),
        ("client_id=tes", False),
        ("client_id=.*s.", True),
        ("client_software_name=test-client,client_software_version=1\\..*", True),
        ("client_software_name=test-client, client_software_version=2.*", False),
        ("client_source_address=127\\.0\\.0\\.1", True),
        (f"client_instance_id={encode_id(ID)}", True),
        ("client_instance_id=other", False),
        ("client_source_port=[0-9]+", True),
        ("client_source_port=1", False),
        ("client_id=(", False),
        ("client_id=(?=test)test", False),  # needs backtracking: refused as a config, and a stored one matches nothing
        ("unknown=.*", False),
    ],
)
async def test_selectors(match: str, matches: bool, tmp_path: Path) -> None:
    async with running(tmp_path, overrides=ON) as broker:
        client = await broker.client()
        await client.call(ApiVersionsRequest(client_software_name="test-client", client_software_version="1.2"), 3)
        want(broker, metrics="org.a", match=match)
        assert (await subscribe(client)).requested_metrics == (["org.a"] if matches else [])


async def test_requests_before_the_interval_are_refused(tmp_path: Path) -> None:
    async with running(tmp_path, overrides=ON) as broker:
        client = await broker.client()
        want(broker, metrics="*", interval_ms=str(MINUTE_MS))
        reported = await subscribe(client)
        early = await subscribe(client)
        assert (early.error_code, early.client_instance_id, early.subscription_id) == (EARLY, ZERO, 0)
        assert (early.accepted_compression_types, early.push_interval_ms, early.requested_metrics) == ([], 0, [])
        subscription = reported.subscription_id
        assert await push(client, subscription) == OK  # the first push may come at any time
        assert await push(client, subscription) == EARLY
        broker.clock.advance(MINUTE_MS - 1)
        assert await push(client, subscription) == EARLY
        broker.clock.advance(1)
        assert await push(client, subscription) == OK
        assert (await subscribe(client)).error_code == EARLY
        broker.clock.advance(MINUTE_MS)
        again = await subscribe(client)
        assert (again.error_code, again.subscription_id) == (OK, subscription)
        assert broker.state.telemetry.instances[ID].pushes == 2


async def test_changed_subscription_can_be_requested_at_once(tmp_path: Path) -> None:
    async with running(tmp_path, overrides=ON) as broker:
        client = await broker.client()
        want(broker, metrics="a", interval_ms=str(MINUTE_MS))
        first = (await subscribe(client)).subscription_id
        assert await push(client, first) == OK
        want(broker, metrics="b", interval_ms=str(MINUTE_MS))
        assert await push(client, first) == NO_SUCH
        second = await subscribe(client)
        assert (second.error_code, second.requested_metrics) == (OK, ["b"]) and second.subscription_id != first
        assert await push(client, second.subscription_id) == OK


async def test_unknown_codec_is_refused(tmp_path: Path) -> None:
    async with running(tmp_path, overrides=ON) as broker:
        client = await broker.client()
        subscription = (await subscribe(client)).subscription_id
        assert await push(client, subscription, codec=5) == NO_CODEC
        assert (await subscribe(client)).error_code == OK  # at once
        assert await push(client, subscription, codec=-1) == NO_CODEC


@pytest.mark.parametrize("codec", range(5))
async def test_push_is_decompressed_and_counted(codec: int, tmp_path: Path) -> None:
    async with running(tmp_path, overrides=ON) as broker:
        client = await broker.client()
        subscription = (await subscribe(client)).subscription_id
        assert await push(client, subscription, compress(codec, b"metrics" * 100), codec) == OK
        found = broker.state.telemetry.instances[ID]
        assert (found.pushes, found.push_bytes) == (1, 700)


@pytest.mark.parametrize("codec", range(1, 5))
async def test_damaged_metrics_and_compression_bombs_are_refused(codec: int, tmp_path: Path) -> None:
    async with running(tmp_path, overrides={**ON, "telemetry.max.bytes": "2000"}) as broker:
        client = await broker.client()
        subscription = (await subscribe(client)).subscription_id
        damaged = compress(codec, b"metrics" * 100)[:-3]
        assert await push(client, subscription, damaged, codec, instance_id=ID) == DAMAGED
        other = ID[::-1]
        subscription = (await subscribe(client, other)).subscription_id
        bomb = compress(codec, bytes(30_000))
        assert len(bomb) < 2000
        assert await push(client, subscription, bomb, codec, instance_id=other) == TOO_LARGE
        assert {one.pushes for one in broker.state.telemetry.instances.values()} == {0}


async def test_push_above_telemetry_max_bytes_is_refused(tmp_path: Path) -> None:
    async with running(tmp_path, overrides={**ON, "telemetry.max.bytes": "10"}) as broker:
        client = await broker.client()
        reported = await subscribe(client)
        assert reported.telemetry_max_bytes == 10
        assert await push(client, reported.subscription_id, bytes(11)) == TOO_LARGE
        broker.clock.advance(reported.push_interval_ms)
        assert await push(client, reported.subscription_id, bytes(10)) == OK


async def test_terminating_push_may_be_early_and_is_the_last(tmp_path: Path) -> None:
    async with running(tmp_path, overrides=ON) as broker:
        client = await broker.client()
        subscription = (await subscribe(client)).subscription_id
        assert await push(client, subscription) == OK
        assert await push(client, subscription, last=True) == OK
        assert await push(client, subscription, last=True) == INVALID_REQUEST
        assert broker.state.telemetry.instances[ID].pushes == 2
        assert await push(client, subscription, b"", last=True, instance_id=ID[::-1]) == NO_SUCH


@pytest.mark.parametrize("number", [0, 1, 99])
async def test_reserved_instance_ids_are_refused(number: int, tmp_path: Path) -> None:
    async with running(tmp_path, overrides=ON) as broker:
        assert await push(await broker.client(), 0, instance_id=number.to_bytes(16)) == INVALID_REQUEST
        assert await push(await broker.client(), 0, instance_id=(100).to_bytes(16)) == NO_SUCH


async def test_empty_push_is_not_counted(tmp_path: Path) -> None:
    async with running(tmp_path, overrides=ON) as broker:
        client = await broker.client()
        assert await push(client, (await subscribe(client)).subscription_id, b"", codec=1) == OK
        assert broker.state.telemetry.instances[ID].pushes == 0


CLIENT = ClientInfo("c", None, None, "127.0.0.1", 1)


def telemetry(configs: dict[str, dict[str, str]] | None = None) -> Telemetry:
    return Telemetry(lambda: configs or {}, 1000)


def test_instance_expires_after_three_intervals() -> None:
    made = telemetry({"a": {"interval.ms": "100000", "metrics": "*"}})
    _, wanted = made.subscribe(ID, CLIENT, 0)

    def pushed(now_ms: int, *, last: bool = False) -> None:
        made.push(ID, CLIENT, subscription_id=wanted.id, is_ending=last, codec=0, metrics=b"m", now_ms=now_ms)

    pushed(1, last=True)
    pushed(300_002)  # otherwise the instance would have terminated
    assert made.instances[ID].pushes == 1


def test_instances_are_limited_and_the_newest_are_kept() -> None:
    made = telemetry()
    for number in range(INSTANCES_MAX + 5):
        made.subscribe((1000 + number).to_bytes(16), CLIENT, number)
        if number == 10:
            made.push(
                (1000).to_bytes(16),
                CLIENT,
                subscription_id=made.instances[(1000).to_bytes(16)].subscription.id,
                is_ending=False,
                codec=0,
                metrics=b"",
                now_ms=number,
            )
    assert len(made.instances) == INSTANCES_MAX
    assert (1000).to_bytes(16) in made.instances and (1001).to_bytes(16) not in made.instances


@given(st.binary(min_size=16, max_size=16), st.binary(max_size=200), st.integers(-128, 127), st.booleans())
def test_random_pushes_are_accepted_or_refused(instance_id: bytes, metrics: bytes, codec: int, last: bool) -> None:
    made = telemetry()
    given_id, wanted = made.subscribe(instance_id, CLIENT, 0)
    assert -(1 << 31) <= wanted.id < 1 << 31
    try:
        made.push(given_id, CLIENT, subscription_id=wanted.id, is_ending=last, codec=codec, metrics=metrics, now_ms=1)
    except Refused as refused:
        assert refused.code in (INVALID_REQUEST, NO_CODEC, DAMAGED, TOO_LARGE)
    else:
        assert made.instances[given_id].pushes == bool(metrics)


def test_push_is_logged(monkeypatch: pytest.MonkeyPatch) -> None:
    reported: list[dict[str, Any]] = []

    class Logger:
        def debug(self, event: str, **values: Any) -> None:
            reported.append({"event": event, **values})

    monkeypatch.setattr("ottla.broker.metrics.client_telemetry.get_logger", Logger)
    made = telemetry()
    who = ClientInfo("c", "librdkafka", "2.16", "127.0.0.1", 1)
    _, wanted = made.subscribe(ID, who, 0)
    made.push(ID, who, subscription_id=wanted.id, is_ending=False, codec=0, metrics=b"metrics", now_ms=1)
    assert reported == [
        {
            "event": "client metrics received",
            "client_instance_id": encode_id(ID),
            "client_id": "c",
            "software": "librdkafka 2.16",
            "push_bytes": 7,
            "pushes": 1,
        }
    ]


def test_gzip_of_another_implementation() -> None:
    made = telemetry()
    _, wanted = made.subscribe(ID, CLIENT, 0)
    data = gzip.compress(b"metrics")
    made.push(ID, CLIENT, subscription_id=wanted.id, is_ending=False, codec=1, metrics=data, now_ms=1)
    assert made.instances[ID].push_bytes == 7
