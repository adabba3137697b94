"""The coordinators of groups, transactions and share partitions, which are made when they are first needed."""

from __future__ import annotations

from pathlib import Path

from ottla.broker.metadata.topics import GROUP_OFFSETS_TOPIC, SHARE_STATE_TOPIC, TRANSACTION_STATE_TOPIC
from ottla.protocol.errors import ErrorCode
from ottla_testing.broker.harness import running

MADE = ("groups", "transactions", "share_state", "share_partitions", "share_sessions")


def made(state: object) -> set[str]:
    return {name for name in MADE if name in vars(state)}


async def test_start_makes_the_coordinators_whose_logs_exist(tmp_path: Path) -> None:
    async with running(tmp_path / "data") as broker:
        assert made(broker.state) == set()
        for name in (GROUP_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC, SHARE_STATE_TOPIC):
            broker.state.internal_topic(name, 0)
    async with running(tmp_path / "data") as broker:
        assert made(broker.state) == {"groups", "transactions", "share_state"}


async def test_coordinators_keep_the_partition_counts_of_their_logs(tmp_path: Path) -> None:
    counts = {"offsets.topic.num.partitions": "3", "transaction.state.log.num.partitions": "5"}
    async with running(tmp_path / "data", overrides=counts) as broker:
        assert (broker.state.groups.partitions, broker.state.transactions.partitions) == (3, 5)
        for name in (GROUP_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC):
            broker.state.internal_topic(name, 0)
    async with running(tmp_path / "data") as broker:
        assert (broker.state.groups.partitions, broker.state.transactions.partitions) == (3, 5)


async def test_coordinators_of_a_stopping_broker_are_not_available(tmp_path: Path) -> None:
    async with running(tmp_path / "data") as broker:
        broker.state.begin_stop()
        assert broker.state.groups.unavailable("g") is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert broker.state.transactions.describe("t")[0] is ErrorCode.COORDINATOR_NOT_AVAILABLE
