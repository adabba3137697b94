"""Features in ApiVersions: `transaction.version` in releases that have it, and Ottla's own feature in its
own profile. `test_feature_levels.py` has the others.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ottla.broker.releases.profiles import PROFILE_NAMES, profile
from ottla.protocol.messages.cluster.api_versions import ApiVersionsRequest
from ottla_testing.broker.harness import Client, running
from ottla_testing.each import each

NAMES = ("ottla.duplicate.scan", "transaction.version")
SCAN = ("ottla.duplicate.scan", 1, 1)
TRANSACTIONS = ("transaction.version", 0, 2)
FINALIZED = [("transaction.version", 2, 2)]
WITH_FEATURES = [name for name in PROFILE_NAMES if 3 in profile(name).served.get(18, ())][:-1]
FROM_4 = ("4.0.0", "4.0", "4.1", "4.2", "4.3", "4.4")


async def api_versions(client: Client, version: int) -> Any:
    request = ApiVersionsRequest(client_software_name="test-client", client_software_version="1.0")
    response = await client.call(request, version)
    assert response.error_code == 0
    return response


async def features(client: Client, version: int) -> list[tuple[str, int, int]]:
    response = await api_versions(client, version)
    return [(one.name, one.min_version, one.max_version) for one in response.supported_features if one.name in NAMES]


async def finalized(client: Client, version: int) -> tuple[int, list[tuple[str, int, int]]]:
    response = await api_versions(client, version)
    found = [
        (one.name, one.min_version_level, one.max_version_level)
        for one in response.finalized_features
        if one.name in NAMES
    ]
    return response.finalized_features_epoch, found


async def test_own_profile_announces_the_duplicate_scan_from_v3_on(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        client = await broker.client()
        wanted = [[], [], [], [SCAN], [SCAN, TRANSACTIONS]]
        assert [await features(client, version) for version in range(5)] == wanted
        assert [await finalized(client, version) for version in range(5)] == [(-1, [])] * 3 + [(0, FINALIZED)] * 2


@pytest.mark.parametrize(
    "overrides",
    [{"producer.duplicate.scan.bytes": "0"}, {"ottla.behaviour.below_cache": "out_of_order"}],
    ids=["turned off", "without effect"],
)
async def test_inactive_feature_is_not_announced(overrides: dict[str, str], tmp_path: Path) -> None:
    async with running(tmp_path, overrides=overrides) as broker:
        assert await features(await broker.client(), 4) == [TRANSACTIONS]


@each("release", WITH_FEATURES)
async def test_transaction_version_is_announced_from_4_0_on(release: str, tmp_path: Path) -> None:
    async with running(tmp_path, release=release) as broker:
        client = await broker.client()
        assert await features(client, 3) == []  # its minimum level is 0
        assert await finalized(client, 3) == (
            0 if profile(release).features else -1,
            FINALIZED if release in FROM_4 else [],
        )
        if 4 in profile(release).served[18]:
            assert await features(client, 4) == ([TRANSACTIONS] if release in FROM_4 else [])


@pytest.mark.parametrize(("release", "level", "newest"), [("4.3", 1, 4), ("4.3", 0, 4), ("3.9", 2, 4), ("ottla", 0, 4)])
async def test_unusable_transaction_version_is_not_announced(
    release: str, level: int, newest: int, tmp_path: Path
) -> None:
    overrides = {"ottla.behaviour.transaction_version": str(level)}
    async with running(tmp_path, release=release, overrides=overrides) as broker:
        client = await broker.client()
        response = await api_versions(client, 4)
        assert (await finalized(client, 4))[1] == []
        assert "transaction.version" not in [one.name for one in response.supported_features]
        assert {one.api_key: one.max_version for one in response.api_keys}[26] == newest
