"""ApiVersions' list of supported features: one of ours in our own profile, where it acts; nothing for a release."""

from __future__ import annotations

from pathlib import Path

import pytest
from harness import Client, running

from ottla.broker.releases import PROFILE_NAMES, profile
from ottla.protocol.messages.api_versions import ApiVersionsRequest

SCAN = [("ottla.duplicate.scan", 1, 1)]


async def features(client: Client, version: int) -> list[tuple[str, int, int]]:
    request = ApiVersionsRequest(client_software_name="test-client", client_software_version="1.0")
    answer = await client.call(request, version)
    assert (answer.error_code, answer.finalized_features, answer.finalized_features_epoch) == (0, [], -1)
    return [(one.name, one.min_version, one.max_version) for one in answer.supported_features]


async def test_the_own_profile_announces_the_scan_from_v3_on(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        client = await broker.client()
        assert [await features(client, version) for version in range(5)] == [[], [], [], SCAN, SCAN]


@pytest.mark.parametrize(
    "overrides",
    [{"producer.duplicate.scan.bytes": "0"}, {"ottla.behaviour.below_cache": "out_of_order"}],
    ids=["turned off", "without effect"],
)
async def test_what_does_not_act_is_not_announced(overrides: dict[str, str], tmp_path: Path) -> None:
    async with running(tmp_path, overrides=overrides) as broker:
        assert await features(await broker.client(), 4) == []


@pytest.mark.parametrize("release", [name for name in PROFILE_NAMES if 3 in profile(name).served.get(18, ())][:-1])
async def test_a_release_announces_nothing(release: str, tmp_path: Path) -> None:
    async with running(tmp_path, release=release) as broker:
        assert await features(await broker.client(), 3) == []
