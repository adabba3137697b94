"""Transaction APIs over the wire: their effects, and their errors in each version."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.clock import ManualClock
from ottla.broker.groups.classic.state import JoinRequest
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.groups.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.transactions.add_partitions_to_txn import AddPartitionsToTxnRequest
from ottla.protocol.messages.transactions.describe_transactions import DescribeTransactionsRequest
from ottla.protocol.messages.transactions.init_producer_id import InitProducerIdRequest
from ottla.protocol.messages.transactions.list_transactions import ListTransactionsRequest
from ottla.storage.errors import StorageError
from ottla_testing.broker.harness import Broker, running
from ottla_testing.broker.transacting import TIMEOUT_MS, Owner, committed, described, errors_of, read_committed

UNSTABLE = {"unstable.api.versions.enable": "true"}
T0, T1, NOWHERE = ("t", 0), ("t", 1), ("nowhere", 0)
FENCED, OLD_FENCED = ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH
MAPPING, NOT_TRIED = ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.OPERATION_NOT_ATTEMPTED
CONCURRENT, WRONG_STATE = ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.INVALID_TXN_STATE
INVALID, ABORTABLE = ErrorCode.INVALID_REQUEST, ErrorCode.TRANSACTION_ABORTABLE


@contextlib.asynccontextmanager
async def owned(folder: Path, **more: Any) -> AsyncIterator[tuple[Broker, Owner]]:
    """A broker with topic t of two partitions, and a producer that owns transactional id x."""
    async with running(folder, **more) as broker:
        if broker.state.topics.get("t") is None:
            await broker.topic("t", 2)
        owner = Owner(await broker.client())
        assert await owner.init() == 0
        yield broker, owner


# --- InitProducerId --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(6))
async def test_init_producer_id_fences_the_previous_owner(version: int, tmp_path: Path) -> None:
    async with owned(tmp_path) as (broker, first):
        second = Owner(await broker.client())
        assert await second.init(version) == 0
        assert (second.id, second.epoch) == (first.id, 1)
        assert await first.add(T0) == {T0: FENCED}
        assert await second.add(T0) == {T0: 0}


@pytest.mark.parametrize("version", range(6))
async def test_init_producer_id_refuses_invalid_requests(version: int, tmp_path: Path) -> None:
    async with owned(tmp_path, overrides={"transaction.max.timeout.ms": "5000"}) as (broker, _):
        owner = Owner(await broker.client(), "y")
        for timeout_ms, error in (
            (0, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
            (-1, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
            (5001, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
            (5000, ErrorCode.NONE),
        ):
            assert await owner.init(version, timeout_ms=timeout_ms) == error
        owner.name = ""
        assert await owner.init(version, timeout_ms=5000) == INVALID
        if version >= 3:
            owner.name, owner.epoch = "y", -1
            assert await owner.init(version, keep=True, timeout_ms=5000) == INVALID


async def init_two_phase(
    owner: Owner, *, timeout_ms: int = 1, enable: bool = True, keep: bool = False
) -> tuple[int, int, int]:
    """InitProducerId v6: returns (error, producer id and epoch of the ongoing transaction)."""
    request = InitProducerIdRequest(
        transactional_id=owner.name, transaction_timeout_ms=timeout_ms, enable2_pc=enable, keep_prepared_txn=keep
    )
    response = await owner.client.call(request, 6)
    if response.error_code == 0:
        owner.take(response.producer_id, response.producer_epoch)
    return response.error_code, response.ongoing_txn_producer_id, response.ongoing_txn_producer_epoch


async def test_two_phase_commit_needs_its_config(tmp_path: Path) -> None:
    async with owned(tmp_path, overrides=UNSTABLE) as (_, owner):
        before = owner.identity
        refused = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        assert await init_two_phase(owner) == (refused, -1, -1)
        assert await init_two_phase(owner, keep=True) == (refused, -1, -1)
        assert await init_two_phase(owner, enable=False, keep=True) == (ErrorCode.UNSUPPORTED_VERSION, -1, -1)
        assert await init_two_phase(owner, enable=False, timeout_ms=0) == (
            ErrorCode.INVALID_TRANSACTION_TIMEOUT,
            -1,
            -1,
        )
        owner.name = ""
        assert await init_two_phase(owner) == (INVALID, -1, -1)
        owner.name = "x"
        assert await init_two_phase(owner, enable=False) == (0, -1, -1)
        assert owner.identity == (before[0], before[1] + 1)


@pytest.mark.parametrize("release", ["ottla", "4.1", "4.3"])
async def test_two_phase_transaction_never_times_out_and_survives_a_restart(release: str, tmp_path: Path) -> None:
    configs = UNSTABLE | {"transaction.two.phase.commit.enable": "true", "transaction.max.timeout.ms": "5000"}
    async with running(tmp_path, release=release, overrides=configs) as broker:
        await broker.topic("t")
        owner = Owner(await broker.client())
        await owner.client.call(FindCoordinatorRequest(key="x", key_type=1), 3)
        for timeout_ms in (1, 0, -1, 5001, 2**31 - 1):
            assert await init_two_phase(owner, timeout_ms=timeout_ms) == (0, -1, -1)
        assert await init_two_phase(owner, keep=True) == (ErrorCode.UNSUPPORTED_VERSION, -1, -1)
        assert await owner.add(T0) == {T0: 0}
        assert await owner.send(b"a") == 0
        broker.clock.leap(10**8)
        broker.clock.advance(60_000)
        assert await described(owner.client) == (0, "Ongoing", {"t": [0]})
    clock = ManualClock(broker.clock.now_ms())
    async with running(tmp_path, release=release, overrides=configs, clock=clock) as broker:
        owner.client = await broker.client()
        clock.leap(10**8)
        clock.advance(60_000)
        (state,) = (await owner.client.call(DescribeTransactionsRequest(transactional_ids=["x"]), 0)).transaction_states
        assert (state.transaction_state, state.transaction_timeout_ms) == ("Ongoing", 2**31 - 1)
        assert await owner.end(True) == 0
        assert await read_committed(owner.client) == [b"a"]


@pytest.mark.parametrize(("version", "fenced"), [(3, OLD_FENCED), (4, FENCED), (5, FENCED)])
async def test_init_producer_id_of_the_current_owner_recovers(version: int, fenced: int, tmp_path: Path) -> None:
    """KIP-360: with its current producer id and epoch, or the previous ones if the response was lost."""
    async with owned(tmp_path) as (_, owner):
        before = owner.identity
        assert await owner.init(version, keep=True) == 0
        assert owner.identity == (before[0], 1)
        owner.take(*before)
        assert await owner.init(version, keep=True) == 0
        assert owner.identity == (before[0], 1)
        assert await owner.init(version) == 0  # a new owner, because it sends no producer id
        owner.take(*before)
        assert await owner.init(version, keep=True) == fenced
        owner.take(before[0] + 1, 0)
        assert await owner.init(version, keep=True) == fenced


async def test_init_producer_id_aborts_the_open_transaction(tmp_path: Path) -> None:
    async with owned(tmp_path) as (broker, first):
        assert await first.add(T0) == {T0: 0}
        assert await first.send(b"lost") == 0
        second = Owner(await broker.client())
        assert await second.init() == CONCURRENT
        assert await described(second.client) == (0, "CompleteAbort", {})
        assert await second.init() == 0
        assert await first.end(True) == FENCED
        assert await first.send(b"late") == OLD_FENCED
        assert await read_committed(second.client) == []


# --- AddPartitionsToTxn, AddOffsetsToTxn -----------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(6))
async def test_partitions_are_added_all_or_none(version: int, tmp_path: Path) -> None:
    async with owned(tmp_path) as (_, owner):
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        reported = await owner.add(T0, NOWHERE, ("t", 2), T1, version=version)
        assert reported == {T0: NOT_TRIED, NOWHERE: unknown, ("t", 2): unknown, T1: NOT_TRIED}
        assert await described(owner.client) == (0, "Empty", {})
        assert await owner.add(T0, T1, version=version) == {T0: 0, T1: 0}
        assert await described(owner.client) == (0, "Ongoing", {"t": [0, 1]})
        assert await owner.add(version=version) == {}
        assert await owner.add(T0, version=version) == {T0: 0}


@pytest.mark.parametrize("version", range(4))
@pytest.mark.parametrize("topic", ["__consumer_offsets", "__transaction_state"])
async def test_internal_topics_cannot_be_added(topic: str, version: int, tmp_path: Path) -> None:
    async with owned(tmp_path) as (broker, owner):
        broker.state.internal_topic(topic, broker.clock.now_ms())
        reported = await owner.add(T0, (topic, 0), version=version)
        assert reported == {T0: NOT_TRIED, (topic, 0): ErrorCode.TOPIC_AUTHORIZATION_FAILED}


@pytest.mark.parametrize("version", range(6))
async def test_only_the_owner_adds_partitions(version: int, tmp_path: Path) -> None:
    async with owned(tmp_path) as (broker, owner):
        other = Owner(owner.client, "x")
        other.take(owner.id + 1, 0)
        assert await other.add(T0, T1, version=version) == {T0: MAPPING, T1: MAPPING}
        for epoch in (1, -1, 32767):
            other.take(owner.id, epoch)
            assert await other.add(T0, version=version) == {T0: FENCED if version >= 2 else OLD_FENCED}
        other.name = "nobody"
        assert await other.add(T0, version=version) == {T0: MAPPING}
        other.name = ""
        assert await other.add(T0, version=version) == {T0: INVALID}
        broker.state.transactions.begin_loading(broker.state.transactions.partition_of("x"))
        assert await owner.add(T0, version=version) == {T0: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
        broker.state.transactions.resign(broker.state.transactions.partition_of("x"))
        assert await owner.add(T0, version=version) == {T0: ErrorCode.NOT_COORDINATOR}


@pytest.mark.parametrize("version", [4, 5])
async def test_several_transactions_are_verified_or_added_at_once(version: int, tmp_path: Path) -> None:
    async with owned(tmp_path) as (_, owner):
        assert await owner.add(T0) == {T0: 0}
        second = Owner(owner.client, "y")
        assert await second.init() == 0
        fenced = Owner(owner.client, "x")
        fenced.take(owner.id, 7)
        requested = [
            owner.entry(T0, T1, verify_only=True),
            second.entry(T1),
            fenced.entry(T0, verify_only=True),
        ]
        response = await owner.client.call(AddPartitionsToTxnRequest(transactions=requested), version)
        reported = [(one.transactional_id, errors_of(one.topic_results)) for one in response.results_by_transaction]
        assert reported == [("x", {T0: 0, T1: ABORTABLE}), ("y", {T1: 0}), ("x", {T0: FENCED})]
        assert await described(owner.client) == (0, "Ongoing", {"t": [0]})
        assert await described(owner.client, "y") == (0, "Ongoing", {"t": [1]})
        assert await second.add(NOWHERE, T1, version=version, verify_only=True) == {NOWHERE: 3, T1: NOT_TRIED}


@pytest.mark.parametrize("version", range(5))
async def test_only_the_owner_adds_offsets(version: int, tmp_path: Path) -> None:
    async with owned(tmp_path) as (broker, owner):
        other = Owner(owner.client, "x")
        other.take(owner.id + 1, 0)
        assert await other.add_offsets(version=version) == MAPPING
        other.take(owner.id, 1)
        assert await other.add_offsets(version=version) == (FENCED if version >= 2 else OLD_FENCED)
        other.name = ""
        assert await other.add_offsets(version=version) == INVALID
        assert await owner.add_offsets(version=version) == 0
        index = broker.state.groups.partition_of("g")
        assert await described(owner.client) == (0, "Ongoing", {"__consumer_offsets": [index]})


# --- EndTxn ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(6))
async def test_only_the_owner_ends_an_open_transaction(version: int, tmp_path: Path) -> None:
    async with owned(tmp_path) as (_, owner):
        assert await owner.end(True, version) == WRONG_STATE
        other = Owner(owner.client, "x")
        other.take(owner.id + 1, 0)
        assert await other.end(True, version) == MAPPING
        other.take(owner.id, 1)
        assert await other.end(True, version) == (FENCED if version >= 2 else OLD_FENCED)
        other.name = ""
        assert await other.end(True, version) == INVALID


@pytest.mark.parametrize("decided", [True, False])
@pytest.mark.parametrize("version", range(6))
async def test_end_txn_can_be_repeated_but_not_reversed(version: int, decided: bool, tmp_path: Path) -> None:
    async with owned(tmp_path) as (_, owner):
        before = owner.identity
        assert await owner.add(T0) == {T0: 0}
        assert await owner.end(decided, version) == 0
        after = owner.identity
        assert after == ((before[0], 1) if version >= 5 else before)
        owner.take(*before)
        assert await owner.end(not decided, version) == WRONG_STATE
        assert await owner.end(decided, version) == 0
        assert owner.identity == after
        assert await described(owner.client) == (0, "CompleteCommit" if decided else "CompleteAbort", {})


async def test_end_txn_v5_abort_without_transaction_bumps_the_epoch(tmp_path: Path) -> None:
    async with owned(tmp_path) as (_, owner):
        assert await owner.end(False, 4) == WRONG_STATE
        for epoch in (1, 2):
            assert await owner.end(False, 5) == 0
            assert owner.epoch == epoch


# --- TxnOffsetCommit, OffsetFetch ------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(6))
async def test_transactional_offsets_apply_at_commit(version: int, tmp_path: Path) -> None:
    async with owned(tmp_path) as (broker, owner):
        for offset, decided in ((5, True), (9, False), (7, True)):
            if version < 5:
                assert await owner.add_offsets() == 0
            seen = await committed(owner.client)
            assert await owner.commit_offset(offset, version=version, metadata="m") == 0
            assert await committed(owner.client) == seen
            assert await committed(owner.client, stable=True) == (ErrorCode.UNSTABLE_OFFSET_COMMIT, -1)
            assert await committed(owner.client, stable=True, partition=T1) == (0, -1)
            assert await owner.end(decided, 5 if version >= 5 else 3) == 0
            expected = (0, offset) if decided else seen
            assert await committed(owner.client) == await committed(owner.client, stable=True) == expected
        ((_, found),) = broker.state.groups.offsets("g").items()
        assert (found.offset, found.metadata, found.leader_epoch) == (7, "m", -1)


@pytest.mark.parametrize("decided", [True, False])
@pytest.mark.parametrize("restarts", ["open", "ended", "both"])
async def test_transactional_offsets_survive_a_restart(restarts: str, decided: bool, tmp_path: Path) -> None:
    async with owned(tmp_path) as (_, owner):
        assert await owner.commit_offset(3, version=5) == await owner.end(True, 5) == 0
        assert await owner.commit_offset(8, version=5) == 0
        if restarts == "ended":
            assert await owner.end(decided, 5) == 0
    async with running(tmp_path) as broker:
        owner.client = await broker.client()
        if restarts != "ended":
            assert await committed(owner.client) == (0, 3)
            assert await committed(owner.client, stable=True) == (ErrorCode.UNSTABLE_OFFSET_COMMIT, -1)
            assert await owner.end(decided, 5) == 0
        assert await committed(owner.client, stable=True) == (0, 8 if decided else 3)
    async with running(tmp_path) as broker:
        assert await committed(await broker.client(), stable=True) == (0, 8 if decided else 3)


@pytest.mark.parametrize(("version", "missing"), [*((v, WRONG_STATE) for v in range(4)), (4, ABORTABLE)])
async def test_offsets_must_have_been_added_before_v5(version: int, missing: int, tmp_path: Path) -> None:
    async with owned(tmp_path) as (_, owner):
        assert await owner.commit_offset(5, version=version) == missing
        assert await owner.add(T0) == {T0: 0}
        assert await owner.commit_offset(5, version=version) == missing
        assert await owner.add_offsets("other") == 0
        assert await owner.add_offsets() == 0
        assert await owner.commit_offset(5, version=version) == 0


async def test_txn_offset_commit_v5_is_verified_without_transaction_version_2(tmp_path: Path) -> None:
    async with owned(tmp_path, overrides={"ottla.behaviour.transaction_version": "1"}) as (_, owner):
        assert await owner.commit_offset(5, version=5) == ABORTABLE
        assert await owner.add_offsets() == 0
        assert await owner.commit_offset(5, version=5) == 0


@pytest.mark.parametrize(
    "overrides",
    [{"ottla.behaviour.verifies_offsets": "false"}, {"transaction.partition.verification.enable": "false"}],
    ids=["the release", "the config"],
)
async def test_unverified_offsets_are_written(overrides: dict[str, str], tmp_path: Path) -> None:
    async with owned(tmp_path, overrides=overrides) as (_, owner):
        assert await owner.commit_offset(5, version=4) == 0
        assert await committed(owner.client, stable=True) == (ErrorCode.UNSTABLE_OFFSET_COMMIT, -1)
        owner.take(owner.id, 3)
        assert await owner.commit_offset(6, version=4) == 0
        owner.take(owner.id, 2)
        assert await owner.commit_offset(7, version=4) == OLD_FENCED
        owner.take(-1, -1)
        assert await owner.commit_offset(7, version=4) == MAPPING


@pytest.mark.parametrize("version", range(6))
async def test_only_the_owner_commits_offsets(version: int, tmp_path: Path) -> None:
    async with owned(tmp_path) as (_, owner):
        other = Owner(owner.client, "x")
        other.take(owner.id + 1, 0)
        assert await other.commit_offset(5, version=version) == MAPPING
        other.take(owner.id, 1)
        assert await other.commit_offset(5, version=version) == OLD_FENCED
        other.name = ""
        assert await other.commit_offset(5, version=version) == INVALID


@pytest.mark.parametrize("version", range(6))
async def test_txn_offset_commit_errors(version: int, tmp_path: Path) -> None:
    async with owned(tmp_path) as (broker, owner):
        assert await owner.add_offsets() == await owner.add_offsets("full") == 0
        assert await owner.commit_offset(5, version=version, group="") == ErrorCode.INVALID_GROUP_ID
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await owner.commit_offset(5, version=version, partition=NOWHERE) == unknown
        assert await owner.commit_offset(5, version=version, partition=("t", 2)) == unknown
        assert await owner.commit_offset(5, version=version, metadata="m" * 4097) == 12
        index = broker.state.groups.partition_of("g")
        broker.state.groups.begin_loading(index)
        loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if version >= 2 else ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert await owner.commit_offset(5, version=version) == loading
        broker.state.groups.resign(index)
        assert await owner.commit_offset(5, version=version) == ErrorCode.NOT_COORDINATOR
        assert await described(owner.client) != (0, "Empty", {})


async def test_txn_offset_commit_without_a_group_is_refused_by_any_node(tmp_path: Path) -> None:
    async with running(tmp_path, brokers=3) as broker:
        await broker.topic("t", 1)
        for node in range(3):
            owner = Owner(await broker.client(node))
            assert await owner.commit_offset(5, group="") == ErrorCode.INVALID_GROUP_ID


async def test_txn_offset_commit_requires_group_membership(tmp_path: Path) -> None:
    """KIP-447: from v3 on, in the group's current generation; without a member id the check is skipped."""
    async with owned(tmp_path) as (broker, owner):
        assert await owner.add_offsets() == 0
        member_id = await member(broker, instance_id="static")
        for version in (3, 4, 5):

            async def send(version: int = version, **more: Any) -> int:
                consumer = {"generation_id_or_member_epoch": 1, "member_id": member_id, **more}
                return await owner.commit_offset(5, version=version, **consumer)

            assert await send(member_id="stranger") == ErrorCode.UNKNOWN_MEMBER_ID
            assert await send(generation_id_or_member_epoch=0) == ErrorCode.ILLEGAL_GENERATION
            assert await send(generation_id_or_member_epoch=2) == ErrorCode.ILLEGAL_GENERATION
            assert await send(member_id="stranger", group_instance_id="static") == ErrorCode.FENCED_INSTANCE_ID
            assert await send(group_instance_id="other") == ErrorCode.UNKNOWN_MEMBER_ID
            assert await send(group="gone") == ErrorCode.ILLEGAL_GENERATION
            assert await send(group_instance_id="static") == await send() == 0
            assert await owner.commit_offset(5, version=version) == 0


async def member(broker: Broker, instance_id: str | None = None) -> str:
    """Returns the id of the only member of group g, in generation 1."""
    groups = broker.state.groups
    task = asyncio.get_running_loop().create_task(
        groups.join(
            "g",
            JoinRequest(
                member_id="",
                instance_id=instance_id,
                client_id="test",
                client_host="/127.0.0.1",
                session_timeout_ms=10_000,
                rebalance_timeout_ms=10_000,
                protocol_type="consumer",
                protocols=(("range", b""),),
            ),
        )
    )
    await broker.settle()
    broker.clock.advance(3_000)
    member_id = (await task).member_id
    reply = await groups.sync(
        "g",
        member_id=member_id,
        instance_id=instance_id,
        generation_id=1,
        protocol_type=None,
        protocol_name=None,
        assignments=[],
    )
    assert reply.error is ErrorCode.NONE
    return member_id


# --- describing, listing and finding ----------------------------------------------------------------------------------


async def test_describe_transactions(tmp_path: Path) -> None:
    async with owned(tmp_path) as (broker, owner):
        broker.clock.advance(1000)
        assert await owner.add(T1, T0) == {T0: 0, T1: 0}
        assert await owner.add_offsets() == 0
        begun_ms = broker.clock.now_ms()
        broker.clock.advance(1000)
        ids = ["x", "", "nobody", "x"]
        response = await owner.client.call(DescribeTransactionsRequest(transactional_ids=ids), 0)
        found = {one.transactional_id: one for one in response.transaction_states}
        assert [one.transactional_id for one in response.transaction_states] == ids
        assert (found[""].error_code, found["nobody"].error_code) == (INVALID, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
        assert (found["nobody"].transaction_state, found["nobody"].topics) == ("", [])
        one = found["x"]
        assert (one.error_code, one.transaction_state, one.transaction_timeout_ms) == (0, "Ongoing", TIMEOUT_MS)
        assert (one.producer_id, one.producer_epoch, one.transaction_start_time_ms) == (*owner.identity, begun_ms)
        topics = {topic.topic: topic.partitions for topic in one.topics}
        assert topics == {"t": [1, 0], "__consumer_offsets": [broker.state.groups.partition_of("g")]}
        assert (await owner.client.call(DescribeTransactionsRequest(transactional_ids=[]), 0)).transaction_states == []
        broker.state.transactions.resign(broker.state.transactions.partition_of("x"))
        assert (await described(owner.client))[0] == ErrorCode.NOT_COORDINATOR


async def test_list_transactions_filters_of_each_version(tmp_path: Path) -> None:
    async with owned(tmp_path) as (broker, owner):
        assert await owner.add(T0) == {T0: 0}
        broker.clock.advance(1000)
        second = Owner(owner.client, "xy")
        assert await second.init() == 0
        assert await second.add(T1) == {T1: 0}
        idle = Owner(owner.client, "y")
        assert await idle.init() == 0

        async def listed(version: int = 0, **more: Any) -> tuple[int, list[str], list[str]]:
            request = ListTransactionsRequest(**{"state_filters": [], "producer_id_filters": [], **more})
            response = await owner.client.call(request, version)
            ids = sorted(one.transactional_id for one in response.transaction_states)
            return response.error_code, response.unknown_state_filters, ids

        for version in range(3):
            assert await listed(version) == (0, [], ["x", "xy", "y"])
            assert await listed(version, state_filters=["Ongoing"]) == (0, [], ["x", "xy"])
            assert await listed(version, state_filters=["Empty", "PrepareCommit"]) == (0, [], ["y"])
            assert await listed(version, state_filters=["Empty", "ongoing", "No"]) == (0, ["ongoing", "No"], ["y"])
            assert await listed(version, state_filters=["No"]) == (0, ["No"], [])
            assert await listed(version, producer_id_filters=[second.id, 99]) == (0, [], ["xy"])
            assert await listed(version, producer_id_filters=[idle.id], state_filters=["Ongoing"]) == (0, [], [])
        for version in (1, 2):
            assert await listed(version, duration_filter=-1) == (0, [], ["x", "xy", "y"])
            assert await listed(version, duration_filter=999, state_filters=["Ongoing"]) == (0, [], ["x"])
            assert await listed(version, duration_filter=1000, state_filters=["Ongoing"]) == (0, [], [])
        assert await listed(2, transactional_id_pattern="x.") == (0, [], ["xy"])
        assert await listed(2, transactional_id_pattern="x?y") == (0, [], ["xy", "y"])
        assert await listed(2, transactional_id_pattern="") == (0, [], ["x", "xy", "y"])
        assert await listed(2, transactional_id_pattern="(") == (ErrorCode.INVALID_REGULAR_EXPRESSION, [], [])
        broker.state.transactions.begin_loading(3)
        assert await listed() == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, [], [])


@pytest.mark.parametrize("version", range(1, 7))
async def test_find_coordinator_requires_a_writable_log(version: int, tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        client = await broker.client()

        async def found(name: str) -> tuple[int, int, str | None]:
            where: dict[str, Any] = {"coordinator_keys": [name]} if version >= 4 else {"key": name}
            response = await client.call(FindCoordinatorRequest(key_type=1, **where), version)
            one = response.coordinators[0] if version >= 4 else response
            return one.error_code, one.node_id, one.error_message

        with pytest.MonkeyPatch.context() as patch:

            def refused(name: str, now_ms: int) -> None:
                raise StorageError("full")

            patch.setattr(broker.state, "internal_topic", refused)
            reported = "" if version >= 4 else "The coordinator is not available."
            unavailable = (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1, reported)
            assert await found("x") == unavailable
        assert await found("x") == (0, 1, "" if version >= 4 else "NONE")
        assert len(broker.state.topics.named("__transaction_state").partitions) == 4
        assert await found("") == (0, 1, "" if version >= 4 else "NONE")
        broker.state.transactions.resign(broker.state.transactions.partition_of("x"))
        assert await found("x") == unavailable
