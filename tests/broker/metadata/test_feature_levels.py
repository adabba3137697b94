"""Features of every release: their ranges and levels, changes of metadata.version, and levels in a new directory."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from ottla.broker.config.serve_options import initial_features
from ottla.broker.config.values import Config
from ottla.broker.errors import ConfigError
from ottla.broker.metadata.kraft_image import Image
from ottla.broker.releases.profiles import PROFILE_NAMES, profile
from ottla.protocol.internal_records.metadata_records import FeatureLevelRecord
from ottla.protocol.messages.cluster.api_versions import ApiVersionsRequest
from ottla.protocol.messages.cluster.update_features import UpdateFeaturesRequest
from ottla.protocol.messages.security.alter_user_scram_credentials import AlterUserScramCredentialsRequest
from ottla_testing.broker.configuring import BROKER, DELETE, SET, change, shown
from ottla_testing.broker.harness import Client, running
from ottla_testing.each import each

UP, SAFE, UNSAFE = 1, 2, 3
MV, TV, ELR = "metadata.version", "transaction.version", "eligible.leader.replicas.version"
FAILED = "The update failed for all features since the following feature had an error: "
REFUSING = "Refusing to perform the requested downgrade because it might delete metadata information."
RETRY = f"{REFUSING} Retry using UNSAFE_DOWNGRADE if you want to force the downgrade to proceed."
UNSAFE_TEXT = "Unsafe metadata downgrade is not supported in this version."

# The enumerations of Apache Kafka: first, last and last unstable level of metadata.version in each release.
METADATA_VERSIONS = {
    "3.3": (1, 7, 7),
    "3.4": (1, 8, 8),
    "3.5": (1, 11, 11),
    "3.6": (1, 14, 14),
    "3.7": (1, 19, 20),
    "3.8": (1, 20, 21),
    "3.9": (1, 21, 23),
    "4.0.0": (7, 25, 26),
    "4.0": (7, 25, 26),
    "4.1": (7, 27, 29),
    "4.2": (7, 29, 30),
    "4.3": (7, 30, 31),
    "4.4": (7, 33, 34),
    "ottla": (7, 33, 34),
}
# Those with levels from 0 on: last, last unstable, and the level of a new cluster.
OTHER_FEATURES = {
    "3.9": {"kraft.version": (1, 1, 0)},
    "4.0.0": {"kraft.version": (1, 1, 0), TV: (2, 2, 2), "group.version": (1, 1, 1), ELR: (1, 1, 0)},
    "4.1": {
        "kraft.version": (1, 1, 0),
        TV: (2, 2, 2),
        "group.version": (1, 1, 1),
        ELR: (1, 1, 1),
        "share.version": (1, 1, 0),
        "streams.version": (0, 1, 0),
    },
    "4.2": {
        "kraft.version": (1, 1, 0),
        TV: (2, 2, 2),
        "group.version": (1, 1, 1),
        ELR: (1, 1, 1),
        "share.version": (1, 1, 1),
        "streams.version": (1, 1, 1),
    },
    "ottla": {TV: (2, 2, 2), "group.version": (1, 1, 1), ELR: (1, 1, 0), "share.version": (2, 2, 2)}
    | {"streams.version": (1, 1, 1)},
}
OTHER_FEATURES["4.0"], OTHER_FEATURES["4.3"] = OTHER_FEATURES["4.0.0"], OTHER_FEATURES["4.2"]
OTHER_FEATURES["4.4"] = OTHER_FEATURES["4.3"] | {"share.version": (2, 2, 2)}


async def listed(client: Client, version: int = 4) -> tuple[dict[str, tuple[int, int]], dict[str, int]]:
    """Returns the ranges of the supported features, and the levels of the finalized ones."""
    request = ApiVersionsRequest(client_software_name="test-client", client_software_version="1.0")
    response = await client.call(request, version)
    supported = {
        one.name: (one.min_version, one.max_version)
        for one in response.supported_features
        if one.name != "ottla.duplicate.scan"
    }
    return supported, {one.name: one.max_version_level for one in response.finalized_features}


async def update(client: Client, feature: str, level: int, kind: int, *, also: dict[str, int] | None = None) -> str:
    """Returns the error message of an update, or an empty text."""
    levels = {feature: level} | (also or {})
    wanted = [
        UpdateFeaturesRequest.FeatureUpdateKey(feature=name, max_version_level=one, upgrade_type=kind)
        for name, one in levels.items()
    ]
    response = await client.call(UpdateFeaturesRequest(feature_updates=wanted), 1)
    for one in [response, *response.results]:
        if one.error_code:
            assert one.error_code == 95
            return (one.error_message or "").removeprefix(FAILED)
    return ""


@each("unstable", [False, True])
async def test_every_release_lists_its_features(unstable: bool, tmp_path: Path, stride: int) -> None:
    configs = {"unstable.feature.versions.enable": "true"} if unstable else {}
    for name in PROFILE_NAMES[random.randrange(stride) :: stride]:
        has_config = Config(profile=profile(name)).fact("unstable.feature.versions.enable") is not None
        if unstable and not has_config:
            continue
        versions, others = METADATA_VERSIONS.get(name), OTHER_FEATURES.get(name, {})
        supported = {} if versions is None else {MV: (versions[0], versions[1 + unstable])}
        supported |= {feature: (0, row[unstable]) for feature, row in others.items() if row[unstable]}
        finalized = {} if versions is None else {MV: versions[1]}
        finalized |= {feature: row[2] for feature, row in others.items() if row[2]}
        async with running(tmp_path / name, release=name, overrides=configs) as broker:
            if 3 not in broker.state.apis.advertised.get(18, ()):
                assert versions is None
                continue
            client = await broker.client()
            is_hidden = 4 not in broker.state.apis.advertised[18]
            shown_ones = {feature: row for feature, row in supported.items() if row[0] or not is_hidden}
            assert await listed(client, 3 if is_hidden else 4) == (shown_ones, finalized), name


LOSSY: list[tuple[str, int, int, int, str]] = [
    ("3.6", 13, SAFE, 14, f"Invalid metadata.version 13. {RETRY}"),
    ("3.6", 13, UNSAFE, 14, f"Invalid metadata.version 13. {UNSAFE_TEXT}"),
    ("3.9", 3, UNSAFE, 21, "Invalid metadata.version 3. Unable to set a metadata.version less than 3.3-IV0"),
    ("3.9", 16, SAFE, 21, f"Invalid metadata.version 16. {REFUSING}"),
    ("3.9", 17, SAFE, 21, ""),
    ("4.1", 22, UNSAFE, 27, f"Invalid metadata.version 22. {UNSAFE_TEXT}"),
    ("4.1", 23, SAFE, 27, ""),
    ("4.3", 29, SAFE, 30, f"Unsupported metadata.version downgrade from 30 to 29. {REFUSING}"),
    ("4.3", 29, UNSAFE, 30, f"Unsupported metadata.version downgrade from 30 to 29. {UNSAFE_TEXT}"),
    ("4.3", 30, UP, 30, ""),
    ("4.3", 31, UP, 30, "Invalid update version 31 for feature metadata.version. Local controller 1 only supports "
     "versions 7-30"),
    ("4.3", 0, UNSAFE, 30, "Invalid update version 0 for feature metadata.version. Local controller 1 only supports "
     "versions 7-30"),
    ("4.3", 25, UP, 30, "Invalid update version 25 for feature metadata.version. Can't downgrade the version of this "
     "feature without setting the upgrade type to either safe or unsafe downgrade."),
]  # fmt: skip


@each(("release", "level", "kind", "before", "problem"), LOSSY)
async def test_metadata_version_is_not_downgraded_below_a_change_of_records(
    release: str, level: int, kind: int, before: int, problem: str, tmp_path: Path
) -> None:
    async with running(tmp_path, release=release) as broker:
        client = await broker.client()
        assert await update(client, MV, level, kind) == problem
        version = 4 if release >= "3.9" else 3
        assert (await listed(client, version))[1][MV] == (before if problem else level)


async def test_kraft_version_stays(tmp_path: Path) -> None:
    async with running(tmp_path, release="4.3") as broker:
        client = await broker.client()
        assert await update(client, "kraft.version", 0, UP) == ""
        text = "Invalid upgrade of kraft.version to 1 because not all of the voters support it"
        assert await update(client, "kraft.version", 1, UP) == text


async def test_new_directory_has_the_chosen_levels(tmp_path: Path) -> None:
    first = {"ottla.features": f"{MV}=22,{TV}=0,{ELR}=0"}
    async with running(tmp_path, release="4.3", overrides=first) as broker:
        client = await broker.client()
        levels = {MV: 22, "group.version": 1, "share.version": 1, "streams.version": 1}
        assert (await listed(client))[1] == levels
        assert "ottla.features" not in broker.state.config.names()
        depends = "could not be set to 1 because it depends on metadata.version level 23"
        assert await update(client, ELR, 1, UP) == f"Invalid update version 1 for feature {ELR}. {ELR} {depends}"
        assert await update(client, ELR, 1, UP, also={MV: 23}) == ""
        assert (await listed(client))[1] == levels | {MV: 23, ELR: 1}
    for again in ({}, first):  # the config has no effect on a directory with records
        async with running(tmp_path, release="4.3", overrides=again) as broker:
            assert (await listed(await broker.client()))[1] == levels | {MV: 23, ELR: 1}


@each(
    ("text", "problem"),
    [
        ("metadata.version", "'metadata.version' is not NAME=LEVEL"),
        ("metadata.version=31", "metadata.version=31 is not supported: expected 7 to 30"),
        ("metadata.versio=30", "this release has no feature metadata.versio"),
    ],
)
def test_wrong_initial_levels_are_refused(text: str, problem: str) -> None:
    config = Config({"ottla.features": text}, profile=profile("4.3"))
    with pytest.raises(ConfigError, match=problem):
        initial_features(config)


def test_image_of_a_kafka_has_the_newest_levels() -> None:
    image = Image()
    for name, level in ((MV, 25), (ELR, 1), (ELR, 0), (MV, 30)):
        image.apply(FeatureLevelRecord(name=name, feature_level=level))
    assert image.features == {MV: 30, ELR: 0}


async def test_scram_credentials_need_a_metadata_version(tmp_path: Path) -> None:
    upsertion = AlterUserScramCredentialsRequest.ScramCredentialUpsertion(
        name="u", mechanism=1, iterations=4096, salt=b"s", salted_password=b"p" * 32
    )
    request = AlterUserScramCredentialsRequest(deletions=[], upsertions=[upsertion])
    async with running(tmp_path, release="4.3", overrides={"ottla.features": f"{MV}=10"}) as broker:
        client = await broker.client()
        (result,) = (await client.call(request, 0)).results
        text = "The current metadata.version does not support SCRAM"
        assert (result.user, result.error_code, result.error_message) == ("u", 35, text)
        assert await update(client, MV, 11, UP) == ""
        (result,) = (await client.call(request, 0)).results
        assert result.error_code == 0


async def in_sync(client: Client) -> tuple[str | None, int]:
    """Returns the value and source of min.insync.replicas of the broker."""
    return (await shown(client, BROKER, "1", "min.insync.replicas"))["min.insync.replicas"]


async def test_enabling_eligible_leaders_stores_min_insync_replicas_for_all_brokers(tmp_path: Path) -> None:
    configs = {"min.insync.replicas": "2", "ottla.features": f"{ELR}=0"}
    async with running(tmp_path, release="4.3", overrides=configs) as broker:
        client = await broker.client()
        assert await change(client, BROKER, "1", ("min.insync.replicas", SET, "3")) == (0, None)
        assert await in_sync(client) == ("3", 2)
        assert await update(client, ELR, 1, UP) == ""
        assert await in_sync(client) == ("2", 3)
        assert (await change(client, BROKER, "1", ("min.insync.replicas", SET, "3")))[0] == 40
        assert (await change(client, BROKER, "", ("min.insync.replicas", DELETE, None)))[0] == 40
    configs["min.insync.replicas"] = "1"
    async with running(tmp_path, release="4.3", overrides=configs) as broker:
        client = await broker.client()
        assert await in_sync(client) == ("2", 3)
        assert await update(client, ELR, 0, SAFE) == ""
        assert await in_sync(client) == ("2", 3)
        assert await change(client, BROKER, "", ("min.insync.replicas", DELETE, None)) == (0, None)
        assert await in_sync(client) == ("1", 4)
