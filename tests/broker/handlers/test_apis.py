"""Every served API in every served version, over the wire: a plausible request gets a meaningful response.

The table of cases is compared with the router's: an API without a case fails, and so does a case of an unserved API.
"""

from __future__ import annotations

import itertools
import struct
from pathlib import Path

import pytest

from ottla.broker.network import router
from ottla.broker.network.router import apis_of
from ottla.broker.releases.profiles import own_profile
from ottla.protocol.compiler import parse
from ottla.protocol.messages.cluster.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.protocol.messages.cluster.describe_cluster import DescribeClusterRequest
from ottla.protocol.schema import spec
from ottla_testing.broker import (
    acl_cases,
    cluster_cases,
    config_cases,
    core_cases,  # noqa: F401
    quota_cases,
    replica_cases,
    share_cases,
    streams_cases,
    transaction_cases,
)
from ottla_testing.broker.api_cases import CASES, World
from ottla_testing.broker.harness import (
    frame,
    ping,
    records,
    running,
)
from ottla_testing.broker.routes import ROUTES
from ottla_testing.each import naming, taken

EVERY_API = {"ottla.client.telemetry": "true", "unstable.api.versions.enable": "true"}
BY_ROUTE = pytest.mark.parametrize("route", ROUTES.values(), ids=lambda route: route.name)


@BY_ROUTE
async def test_every_served_version_gets_a_response(route: router.Route, tmp_path: Path) -> None:
    for version in route.versions.range():
        data = tmp_path / f"v{version}" / "data"
        async with running(data, overrides=EVERY_API) as broker:
            topic_id = await broker.topic("t", 2)
            broker.log("t").append(records(b"a", b"b", b"c"), now_ms=broker.clock.now_ms())
            with naming(f"v{version}"):
                await CASES[route.request_class](World(broker, await broker.client(), topic_id), version)


@pytest.mark.soak
@BY_ROUTE
async def test_trailing_bytes_of_a_request_are_ignored(route: router.Route, tmp_path: Path) -> None:
    """Kafka ignores them; kafka-go sends one after DescribeAcls v3, librdkafka three after Metadata v9."""
    for version, left_over in taken([*itertools.product(route.versions.range(), (b"\x01", bytes(range(256)) * 4))]):
        data = tmp_path / f"v{version} {len(left_over)}" / "data"
        async with running(data, overrides=EVERY_API) as broker:
            topic_id = await broker.topic("t", 2)
            broker.log("t").append(records(b"a", b"b", b"c"), now_ms=broker.clock.now_ms())
            client = await broker.client()
            client.left_over = left_over
            with naming(f"v{version}, {len(left_over)} bytes left over"):
                await CASES[route.request_class](World(broker, client, topic_id), version)


def test_every_served_api_has_a_case_and_every_case_an_api() -> None:
    elsewhere = acl_cases.KEYS | transaction_cases.KEYS | quota_cases.KEYS | replica_cases.KEYS | cluster_cases.KEYS
    elsewhere |= config_cases.KEYS | share_cases.KEYS | streams_cases.KEYS
    assert {spec(request_class).api_key for request_class in CASES} >= elsewhere
    assert {route.request_class for route in ROUTES.values()} == set(CASES)


def test_declared_versions_are_advertised_and_served() -> None:
    """In the own profile; test_profiles.py tests the differences of releases."""
    apis = apis_of(own_profile(), telemetry=True, unstable=True)
    assert apis.advertised == apis.served == {key: route.versions for key, route in ROUTES.items()}
    for key, route in ROUTES.items():
        declared = spec(route.request_class)
        assert (declared.api_key, declared.versions) == (key, route.versions)


async def test_unserved_versions_close_the_connection(tmp_path: Path) -> None:
    async with running(tmp_path / "data") as broker:
        for key, route in ROUTES.items():
            first, last = route.versions
            outside = {first - 1, last + 1, -1, 32767, -32768} - set(route.versions.range())
            for version in sorted(outside) if key != 18 else ():
                client = await broker.client()
                await client.send_bytes(struct.pack(">ihhih", 10, key, version, 1, -1))
                assert await client.is_closed(), (route.name, version)
        for key in sorted({*range(-1, 100), 32767} - set(ROUTES)):
            client = await broker.client()
            await client.send_bytes(struct.pack(">ihhih", 10, key, 0, 1, -1))
            assert await client.is_closed(), key


@pytest.mark.parametrize("version", [-1, 6, 7, 127, 32767])
async def test_unknown_version_of_api_versions_responds_as_v0(version: int, tmp_path: Path) -> None:
    """The response has the one range that helps the client to retry (KIP-511); the body is not read."""
    async with running(tmp_path / "data") as broker:
        client = await broker.client()
        await client.send_bytes(struct.pack(">ihhih", 14, 18, version, 77, 9000) + b"\xff\xfe\xfd\xfc")
        result = await client.receive_bytes()
        assert struct.unpack_from(">i", result) == (77,)
        response = parse(ApiVersionsResponse, 0, result, 4)
        assert response.error_code == 35
        assert [(e.api_key, e.min_version, e.max_version) for e in response.api_keys] == [(18, 0, 5)]
        assert (await client.call(ping(), 2)).error_code == 0


@pytest.mark.parametrize(
    ("name", "software_version", "code"),
    [
        ("kafka-python", "3.0.12", 0),
        ("a", "1", 0),
        ("", "1", 42),
        ("a", "", 42),
        ("-a", "1", 42),
        ("a b", "1", 42),
        ("a", "1.0-", 42),
    ],
)
async def test_api_versions_invalid_software_name_is_refused(
    name: str, software_version: str, code: int, tmp_path: Path
) -> None:
    async with running(tmp_path / "data") as broker:
        client = await broker.client()
        request = ApiVersionsRequest(client_software_name=name, client_software_version=software_version)
        for version in (3, 4, 5):
            result = await client.call(request, version)
            assert result.error_code == code and bool(result.api_keys) == (code == 0)


async def test_any_client_id_is_accepted(tmp_path: Path) -> None:
    """Null and empty ones too; tagged fields of the header are skipped."""
    async with running(tmp_path / "data") as broker:
        client = await broker.client()
        for client_id in (None, "", "ünïcode", "x" * 32767):
            assert (await client.call(ping(), 1, client_id)).error_code == 0
        whole = frame(DescribeClusterRequest(include_cluster_authorized_operations=False), 0, 5)
        tagged = b"\x02\x05\x03abc\x09\x00"
        head, body = whole[4:18], whole[19:]
        await client.send_bytes(struct.pack(">i", len(head + tagged + body)) + head + tagged + body)
        result = await client.receive_bytes()
        assert struct.unpack_from(">i", result) == (5,)
