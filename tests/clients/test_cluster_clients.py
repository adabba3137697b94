"""The cluster and admin clients: credentials, the quorum, features; and the client metrics of librdkafka."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import kafka.errors
import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._scram import (
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from kafka.admin import KafkaAdminClient
from kafka.admin import _users as kafka_users  # type: ignore[import-untyped]

from ottla.broker import Embedded
from ottla_testing.broker.harness import Broker, running
from ottla_testing.clients.running_broker import RunningBroker
from ottla_testing.patience import PATIENCE_S


@pytest.fixture
def confluent(broker: RunningBroker) -> Any:
    return AdminClient({"bootstrap.servers": broker.address})


@pytest.fixture
def kafka_python(broker: RunningBroker) -> Iterator[Any]:
    theirs = KafkaAdminClient(bootstrap_servers=broker.address)
    yield theirs
    theirs.close()


def test_credentials_of_each_client_are_visible_to_the_other(confluent: Any, kafka_python: Any, name: str) -> None:
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 8192)
    upsertion = UserScramCredentialUpsertion(f"{name}-c", info, b"secret", b"salt")
    assert confluent.alter_user_scram_credentials([upsertion])[f"{name}-c"].result(PATIENCE_S) is None
    theirs = kafka_users.UserScramCredentialUpsertion(
        f"{name}-p", kafka_users.ScramMechanism.SCRAM_SHA_256, "secret", iterations=4096
    )
    kafka_python.alter_user_scram_credentials([theirs])
    found = kafka_python.describe_user_scram_credentials([f"{name}-c"])
    outcome = found[f"{name}-c"]
    assert outcome["error"] is None
    assert [(one["mechanism"].name, one["iterations"]) for one in outcome["credential_infos"]] == [
        ("SCRAM_SHA_512", 8192)
    ]
    described = confluent.describe_user_scram_credentials([f"{name}-p"])[f"{name}-p"].result(PATIENCE_S)
    assert [(one.mechanism, one.iterations) for one in described.scram_credential_infos] == [
        (ScramMechanism.SCRAM_SHA_256, 4096)
    ]
    everybody = confluent.describe_user_scram_credentials().result(PATIENCE_S)
    assert {f"{name}-c", f"{name}-p"} <= set(everybody)
    deletion = UserScramCredentialDeletion(f"{name}-c", ScramMechanism.SCRAM_SHA_512)
    assert confluent.alter_user_scram_credentials([deletion])[f"{name}-c"].result(PATIENCE_S) is None
    with pytest.raises(KafkaException) as caught:
        confluent.alter_user_scram_credentials([deletion])[f"{name}-c"].result(PATIENCE_S)
    assert caught.value.args[0].code() == KafkaError.RESOURCE_NOT_FOUND
    with pytest.raises(KafkaException) as caught:
        confluent.describe_user_scram_credentials([f"{name}-c"])[f"{name}-c"].result(PATIENCE_S)
    assert caught.value.args[0].code() == KafkaError.RESOURCE_NOT_FOUND


def test_kafka_python_describes_the_quorum_and_updates_a_feature() -> None:
    with Embedded(release="4.3") as broker:
        admin: Any = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
        try:
            ((quorum,),) = [topic["partitions"] for topic in admin.describe_metadata_quorum()["topics"]]
            assert quorum["leader_id"] == 1 and [one["replica_id"] for one in quorum["current_voters"]] == [1]
            assert quorum["high_watermark"] > 0
            found = admin.describe_features()["transaction.version"]
            assert found == {"supported": (0, 2), "finalized": (2, 2), "finalized_epoch": 0}
            wanted = {"transaction.version": ("SAFE_DOWNGRADE", 1)}
            assert admin.update_features(wanted, validate_only=True) == {"transaction.version": "OK"}
            assert admin.update_features(wanted) == {"transaction.version": "OK"}
            found = admin.describe_features()["transaction.version"]
            assert (found["finalized"], found["finalized_epoch"]) == ((1, 1), 1)
            with pytest.raises(kafka.errors.KafkaError, match="does not support this feature"):
                admin.update_features({"nope": 1})
        finally:
            admin.close()


# librdkafka's telemetry


@pytest.fixture
async def telling(tmp_path: Path) -> AsyncIterator[Broker]:
    """A broker with a metrics subscription for all metrics, with a push interval."""
    async with running(tmp_path, overrides={"ottla.client.telemetry": "true"}, release="4.3") as broker:
        configs = {"metrics": "*", "interval.ms": "300"}
        broker.state.named_configs.set(16, "all", configs, broker.clock.now_ms())
        yield broker


async def until(broker: Broker, holds: Callable[[], bool]) -> None:
    """Moves the clock until the condition holds."""
    end = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < end, broker.state.telemetry.instances
        await asyncio.sleep(0.02)
        broker.clock.advance(20)


@pytest.mark.parametrize("kind", [Producer, Consumer])
async def test_librdkafka_pushes_its_metrics_until_it_closes(kind: Any, telling: Broker) -> None:
    config = {"bootstrap.servers": f"127.0.0.1:{telling.ports[0]}", "client.id": "metered", "group.id": "g"}
    if kind is Producer:
        del config["group.id"]
    client: Any = await asyncio.to_thread(kind, config)
    instances = telling.state.telemetry.instances
    await until(telling, lambda: any(one.pushes >= 2 for one in instances.values()))
    (instance,) = instances.values()
    assert instance.client.client_id == "metered" and "kafka" in str(instance.client.software_name)
    assert instance.push_bytes > 0 and instance.last_error == 0
    closing = asyncio.create_task(asyncio.to_thread(client.close))
    await until(telling, closing.done)
    await until(telling, lambda: instance.is_ending)


async def test_librdkafka_pushes_nothing_without_a_subscription(tmp_path: Path) -> None:
    async with running(tmp_path, release="4.3") as broker:
        client: Any = await asyncio.to_thread(Producer, {"bootstrap.servers": f"127.0.0.1:{broker.ports[0]}"})
        await asyncio.to_thread(client.list_topics, timeout=PATIENCE_S)
        assert broker.state.telemetry.instances == {}
        assert not {71, 72} & {key for key, _ in broker.state.readers}
        await asyncio.to_thread(client.close)
