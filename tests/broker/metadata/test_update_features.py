"""UpdateFeatures: validation, and effect and persistence of transaction.version."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ottla.broker import Embedded
from ottla.protocol.acls import AclOperation
from ottla.protocol.messages.cluster.api_versions import ApiVersionsRequest
from ottla.protocol.messages.cluster.update_features import UpdateFeaturesRequest
from ottla.protocol.messages.transactions.init_producer_id import InitProducerIdRequest
from ottla_testing.broker.denying import OnlyAllowed
from ottla_testing.broker.dumping import Run, runner
from ottla_testing.broker.harness import Client, produce, records, running
from ottla_testing.each import each

TV = "transaction.version"
NEW = {  # levels of a new cluster of Apache Kafka 4.3.1
    "metadata.version": 30,
    TV: 2,
    "group.version": 1,
    "eligible.leader.replicas.version": 1,
    "share.version": 1,
    "streams.version": 1,
}
WITHOUT = {name: level for name, level in NEW.items() if name != TV}
UP, SAFE, UNSAFE = 1, 2, 3
FAILED = "The update failed for all features since the following feature had an error: "
NO_SUCH = "Local controller 1 does not support this feature."
NO_KIND = "The controller does not support the given upgrade type."
LOWER = (
    "Can't downgrade the version of this feature without setting the upgrade type to either safe or unsafe downgrade."
)
Update = tuple[str, int, int]  # feature, level, kind
Result = tuple[int, str | None, list[tuple[str, int, str | None]]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    return runner(capsys)


async def update(client: Client, *updates: Update, version: int = 1, validate_only: bool = False) -> Result:
    """Returns (code, message, [(feature, code, message)])."""
    wanted = [
        UpdateFeaturesRequest.FeatureUpdateKey(feature=feature, max_version_level=level)
        if version == 0
        else UpdateFeaturesRequest.FeatureUpdateKey(feature=feature, max_version_level=level, upgrade_type=kind)
        for feature, level, kind in updates
    ]
    request = UpdateFeaturesRequest(feature_updates=wanted, validate_only=validate_only)
    response = await client.call(request, version)
    return (
        response.error_code,
        response.error_message,
        [(one.feature, one.error_code, one.error_message) for one in response.results],
    )


async def announced(client: Client) -> tuple[int, dict[str, int]]:
    """Returns (epoch, level by feature)."""
    request = ApiVersionsRequest(client_software_name="test-client", client_software_version="1.0")
    response = await client.call(request, 3)
    for one in response.finalized_features:
        assert one.min_version_level == one.max_version_level
    return response.finalized_features_epoch, {one.name: one.max_version_level for one in response.finalized_features}


def invalid(feature: str, level: int, reason: str) -> str:
    return f"Invalid update version {level} for feature {feature}. {reason}"


# Results of Apache Kafka 4.3.1 with transaction.version 2.
REFUSED: list[tuple[list[Update], str]] = [
    ([("nope", 1, UP)], invalid("nope", 1, NO_SUCH)),
    ([("nope", 0, UP)], invalid("nope", 0, "Feature nope not found.")),
    ([("", 1, UP)], invalid("", 1, NO_SUCH)),
    ([(TV, -1, UP)], invalid(TV, -1, "A feature version cannot be less than 0.")),
    ([(TV, 7, UP)], invalid(TV, 7, "Local controller 1 only supports versions 0-2")),
    ([(TV, 1, UP)], invalid(TV, 1, LOWER)),
    ([(TV, 1, 0)], invalid(TV, 1, NO_KIND)),
    ([(TV, 1, 4)], invalid(TV, 1, NO_KIND)),
    ([(TV, 1, SAFE), ("nope", 1, UP)], invalid("nope", 1, NO_SUCH)),
]


@each("version", [1, 2])
@each(("updates", "problem"), REFUSED)
async def test_one_invalid_update_refuses_all(
    updates: list[Update], problem: str, version: int, tmp_path: Path
) -> None:
    async with running(tmp_path, release="4.3") as broker:
        client = await broker.client()
        assert await update(client, *updates, version=version) == (95, FAILED + problem, [])
        assert await announced(client) == (0, NEW)


async def test_level_changes_are_reported_to_clients(tmp_path: Path) -> None:
    async with running(tmp_path, release="4.3") as broker:
        client = await broker.client()
        done: Result = (0, None, [(TV, 0, "NONE")])
        assert await update(client) == (0, None, [])
        assert await update(client, (TV, 1, SAFE), validate_only=True) == done
        assert await update(client, (TV, 2, SAFE)) == done  # the current level
        assert await announced(client) == (0, NEW)
        assert await update(client, (TV, 1, SAFE), version=2) == (0, None, [])
        assert await announced(client) == (1, {**NEW, TV: 1})
        problem = invalid(TV, 2, "Can't downgrade to a newer version.")
        assert await update(client, (TV, 2, UNSAFE)) == (95, FAILED + problem, [])
        assert await update(client, (TV, 0, UP), version=0) == (95, FAILED + invalid(TV, 0, LOWER), [])
        assert await update(client, (TV, 0, UNSAFE)) == done
        assert await announced(client) == (2, WITHOUT)
        assert await update(client, (TV, 2, UP), version=0) == done
        assert await announced(client) == (3, NEW)
        # Of two updates of one feature the last one applies, and both have a result.
        assert await update(client, (TV, 1, SAFE), (TV, 0, SAFE)) == (0, None, [(TV, 0, "NONE")] * 2)
        assert await announced(client) == (4, WITHOUT)


@pytest.mark.parametrize("release", ["3.3", "3.9"])
async def test_updates_before_4_0_have_individual_results(release: str, tmp_path: Path) -> None:
    """Like Apache Kafka 3.9.1."""
    async with running(tmp_path, release=release) as broker:
        client = await broker.client()
        assert await update(client) == (0, "", [])
        updates = [("z", 0, UP), (TV, 1, UP), (TV, 2, UP), ("a", 1, 9), ("b", -1, UP)]
        assert await update(client, *updates) == (
            0,
            "",
            [
                ("a", 95, invalid("a", 1, NO_KIND)),
                ("b", 95, invalid("b", -1, "A feature version cannot be less than 0.")),
                (TV, 95, invalid(TV, 2, NO_SUCH)),
                ("z", 0, None),
            ],
        )


@pytest.mark.parametrize("release", ["2.7", "3.2"])
async def test_zookeeper_releases_support_no_feature(release: str, tmp_path: Path) -> None:
    async with running(tmp_path, release=release) as broker:
        client = await broker.client()
        not_one = (
            "Can not provide maxVersionLevel: 0 less than 1 without setting the allowDowngrade flag to true in the "
        )
        assert await update(client, (TV, 2, UP), ("", 1, UP), ("a", 0, UP), version=0) == (
            0,
            None,
            [
                ("", 42, "Feature name can not be empty."),
                ("a", 42, not_one + "request."),
                (TV, 42, "Could not apply finalized feature update because the provided feature is not supported."),
            ],
        )
        gone = UpdateFeaturesRequest.FeatureUpdateKey(feature="a", max_version_level=0, allow_downgrade=True)
        (result,) = (await client.call(UpdateFeaturesRequest(feature_updates=[gone]), 0)).results
        assert (result.error_code, result.error_message) == (42, "Can not delete non-existing finalized feature.")


async def test_level_survives_a_restart_and_is_in_the_dump(run: Run, tmp_path: Path) -> None:
    async with running(tmp_path, release="4.3") as broker:
        client = await broker.client()
        assert (await update(client, (TV, 1, SAFE)))[0] == 0
    reported = [run("--records", path) for path in sorted(tmp_path.glob("__cluster_metadata-0/*.log"))]
    assert {(code, err) for code, _, err in reported} == {(0, "")}
    assert 'name: "transaction.version"' in "".join(out for _, out, _ in reported)
    for release, expected in (
        ("4.3", (1, {**NEW, TV: 1})),
        ("3.9", (0, {"metadata.version": 21})),
        ("2.8", (-1, {})),
        ("4.3", (1, {**NEW, TV: 1})),
    ):
        async with running(tmp_path, release=release) as broker:
            assert await announced(await broker.client()) == expected, "another release ignores what it does not have"
    async with running(tmp_path, release="4.3") as broker:
        assert (await update(await broker.client(), (TV, 2, UP)))[0] == 0
    async with running(tmp_path, release="4.3") as broker:
        assert await announced(await broker.client()) == (2, NEW)


async def test_restored_level_has_a_new_epoch() -> None:
    """Clients that have seen a higher epoch would ignore it."""
    async with Embedded(release="4.3") as broker:
        host, _, port = broker.bootstrap.rpartition(":")

        async def reported(*updates: Update) -> tuple[int, dict[str, int]]:
            client = await Client.connect(int(port), host)
            try:
                if updates:
                    assert (await update(client, *updates))[0] == 0
                return await announced(client)
            finally:
                client.close()

        snapshot = broker.snapshot()
        assert await reported() == (0, NEW)
        assert await reported((TV, 1, SAFE)) == (1, {**NEW, TV: 1})
        broker.restore(snapshot)
        assert await reported() == (2, NEW)
        assert await reported((TV, 1, SAFE)) == (3, {**NEW, TV: 1})
        broker.reset()
        assert await reported() == (4, NEW)


async def test_level_applies_at_once(tmp_path: Path) -> None:
    """With level 2 a write adds its partition to the transaction; with level 1 it is refused until the partition is
    added.
    """
    async with running(tmp_path, release="4.3") as broker:
        client = await broker.client()
        await broker.topic("t")

        async def written(transactional_id: str) -> int:
            requested = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000)
            given = await client.call(requested, 5)
            assert given.error_code == 0
            fields: Any = {
                "producer_id": given.producer_id,
                "producer_epoch": given.producer_epoch,
                "base_sequence": 0,
                "transactional": True,
            }
            data = records(b"a", **fields)
            response = await client.call(produce(data, transactional_id=transactional_id), 12)
            return response.responses[0].partition_responses[0].error_code

        assert await written("x") == 0
        assert (await update(client, (TV, 1, SAFE)))[0] == 0
        assert await written("y") != 0
        assert (await update(client, (TV, 2, UP)))[0] == 0
        assert await written("z") == 0


@pytest.mark.parametrize("operation", [AclOperation.DESCRIBE, AclOperation.ALTER])
async def test_update_features_requires_alter_on_the_cluster(operation: AclOperation, tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        broker.state.authorizer = OnlyAllowed(operation)
        client = await broker.client()
        is_allowed = operation is AclOperation.ALTER
        wanted: Result = (0, None, [(TV, 0, "NONE")]) if is_allowed else (31, "Cluster authorization failed.", [])
        assert await update(client, (TV, 1, SAFE)) == wanted
        assert (await announced(client))[1][TV] == (1 if is_allowed else 2)
