"""Transactions with lost connections, late copies, killed brokers and successive producers.

The runs and their checks are in `transactional_world.py`. A failure prints its seed.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from ottla.client.net import errors
from ottla.client.producer.sender import Sender
from ottla.client.producer.transactions import manager, state_machine
from ottla.client.producer.transactions.manager import Transactions
from ottla.client.producer.transactions.state_machine import Added, Event, State, TransactionStatus
from ottla.protocol.messages.transactions.end_txn import EndTxnRequest
from ottla.protocol.schema import spec
from ottla_testing.client.simulated_network import Faults
from ottla_testing.client.transactional_world import PARTITIONS, World
from ottla_testing.each import each

SCALE = float(os.environ.get("OTTLA_TEST_SCALE", "1"))
COUNT = max(1, int(3 * SCALE))
FIRST = 0 if SCALE <= 1 else random.randrange(1 << 32)
RELEASES = ("0.11", "2.4", "2.8", "3.9", "4.3", "ottla")
BAD = Faults(delay_s=0.01, cut_before=0.03, cut_after=0.03, late=0.5, late_s=1.0)
WORSE = Faults(delay_s=0.05, cut_before=0.1, cut_after=0.1, late=0.5, late_s=1.0)
KINDS: dict[str, tuple[Faults, float]] = {
    "a good network": (Faults(), 0.0),
    "a bad network": (BAD, 0.0),
    "a worse network": (WORSE, 0.0),
    "a proxy that repeats": (replace(BAD, repeated=0.1), 0.0),
    "a broker that is killed": (replace(BAD, cut_before=0.01, cut_after=0.01), 1.0),
}
# If transactions share an epoch, a copy looks like the next request.
V2 = ("4.3", "ottla")
EACH = [(release, kind) for release in RELEASES for kind in KINDS if release in V2 or "repeats" not in kind]


def live(seed: int, release: str, kind: str) -> World:
    faults, stops_every_s = KINDS[kind]
    world = World(seed, release, faults, stops_every_s=stops_every_s)
    try:
        world.run(2, 12)
    except BaseException as error:
        error.add_note(f"seed {seed}, release {release}, {kind}")
        raise
    return world


@pytest.mark.timeout(900 * max(1.0, SCALE))
@each(("release", "kind"), EACH, strided=True)
def test_transactions_stay_atomic_under_failures(release: str, kind: str) -> None:
    counts: dict[str, int] = {}
    for seed in range(FIRST, FIRST + COUNT):
        for what, count in live(seed, release, kind).counts.items():
            counts[what] = counts.get(what, 0) + count
    assert counts["committed"] > 5 * COUNT and counts["aborted"] > COUNT
    assert bool(counts.get("stop")) == (kind == "a broker that is killed")


def test_run_with_the_same_seed_is_identical() -> None:
    one, two = live(7, "ottla", "a bad network"), live(7, "ottla", "a bad network")
    assert one.sent == two.sent and one.counts == two.counts and one.loop.now_s == two.loop.now_s


@pytest.mark.parametrize("waits", [True, False])
def test_late_copy_of_a_commit_does_not_commit_the_next_transaction(
    waits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the wait it does: an EndTxn of version 1 does not identify its transaction."""
    if not waits:
        monkeypatch.setattr(manager, "COPIES_LIVE_S", 0.0)
    world = World(0, "2.8", Faults())
    response, lost = world.broker.respond, []

    def losing(frame: bytes) -> bytes | None:
        if lost or int.from_bytes(frame[:2], "big") != spec(EndTxnRequest).api_key:
            return response(frame)
        lost.append(frame)
        world.loop.call_soon(world.network.cut_all)
        world.loop.call_later(1.0, response, frame)
        return None

    world.broker.respond = losing  # type: ignore[method-assign]

    async def life() -> None:
        world.broker.start()
        world.broker.state.topics.create("t", PARTITIONS, {}, world.broker.clock.now_ms())
        async with world.producer("tx0") as producer:
            async with producer.transaction():
                await producer.send("t", b"one", partition=0)
            await producer.begin()
            await producer.send_and_wait("t", b"two", partition=0)
            await asyncio.sleep(3)
            with contextlib.nullcontext() if waits else pytest.raises(errors.ProducerFailed, match="INVALID_TXN_STATE"):
                await producer.abort()
        assert lost and (world.seen(0) == [b"one"]) == waits
        await world.broker.stop(kill=False)

    world.loop.run(asyncio.wait_for(life(), 100))


# -- mutants


def aborts_without_dropping(patch: pytest.MonkeyPatch) -> None:
    """Waiting records leave with the abort, or with the next transaction."""
    patch.setattr(Transactions, "_drop", lambda self: None)


def writes_before_a_partition_is_added(patch: pytest.MonkeyPatch) -> None:
    def use(status: TransactionStatus, event: state_machine.Use) -> Any:
        changed, effects = original(status, event)
        return replace(changed, added=changed.added | {event.partition}), effects

    original = state_machine._use
    patch.setitem(state_machine.TABLE, (State.OPEN, state_machine.Use), use)
    patch.setitem(state_machine.TABLE, (State.COMMITTING, state_machine.Use), use)


def never_adds_a_partition(patch: pytest.MonkeyPatch) -> None:
    """Partitions count as added without a request."""

    async def add(self: Transactions) -> None:
        self.process(Event.TAKE)
        self.process(Added(self.status.adding))
        self._is_adding = False

    patch.setattr(Transactions, "_add", add)


def commits_what_has_failed(patch: pytest.MonkeyPatch) -> None:
    """A batch that was given up is ignored."""
    patch.setattr(Transactions, "failed", lambda self, batch, error: None)


def commits_before_all_is_acknowledged(patch: pytest.MonkeyPatch) -> None:
    async def flush(self: Sender) -> None:
        self.wake()
        await asyncio.sleep(0)

    patch.setattr(Sender, "flush", flush)


def takes_a_lost_commit_for_done(patch: pytest.MonkeyPatch) -> None:
    """A commit without a response is not repeated."""

    async def ended(self: Transactions, is_commit: bool) -> None:
        async def end_transaction(connection: Any) -> tuple[int, Any]:
            try:
                return await manager.calls.end(connection, self.transactional_id, self.status, is_commit=is_commit)
            except manager.ConnectionLost:
                return 0, state_machine.Ended()

        found = await self._call(state_machine.Call.COMMIT, end_transaction)
        if found is not None:
            self.process(found)

    patch.setattr(Transactions, "_ended", ended)


Mistake = Callable[[pytest.MonkeyPatch], None]
MISTAKES: list[tuple[Mistake, str, str]] = [
    (aborts_without_dropping, "ottla", "a good network"),
    (writes_before_a_partition_is_added, "2.8", "a good network"),
    (never_adds_a_partition, "2.8", "a good network"),
    (commits_what_has_failed, "ottla", "a broker that is killed"),
    (commits_before_all_is_acknowledged, "ottla", "a bad network"),
    (takes_a_lost_commit_for_done, "2.8", "a worse network"),
]


@each(("mistake", "release", "kind"), MISTAKES, strided=True)
def test_mutant_is_detected(mistake: Mistake, release: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        mistake(patch)
        for seed in range(60):
            try:
                live(seed, release, kind)
            except (AssertionError, TimeoutError):
                return
    raise AssertionError("the mutant was not detected")
