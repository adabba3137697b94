"""Crashes of a broker while requests take the short way: at each change of the disk the process is killed, or the power
is lost. A kill loses nothing that was acknowledged, and after both the log has the first records that were sent.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from ottla.storage.log.append_run import AppendRun
from ottla.storage.partition_log import PartitionLog
from ottla_testing.broker.harness import (
    Broker,
    Client,
    fetch,
    frame,
    only,
    produce,
    read_response,
    records,
    running,
    values,
)
from ottla_testing.each import each
from ottla_testing.storage.simulated_files import SimulatedFiles, Step

FOLDER = Path("/data")
OVERRIDES = {"log.roll.ms": "15", "log.index.interval.bytes": "200"}
VERSION = 9
T0 = 1_700_000_000_000
PRODUCER = 7
ROUNDS = 12


class World:
    """What was sent and acknowledged, and the disks after crashes: (disk, number acknowledged, was killed, place)."""

    def __init__(self, seed: int, chance: float) -> None:
        self.rng, self.chance = random.Random(seed), chance
        self.disk = SimulatedFiles()
        self.sent: list[bytes] = []
        self.acknowledged = 0
        self.left: list[tuple[SimulatedFiles, int, bool, str]] = []

    def fork(self, step: Step) -> None:
        if "/t-0/" not in step.path or self.rng.random() > self.chance:
            return
        size = len(step.change.data) if step.change is not None and step.change.data is not None else 0
        place = f"{step.operation} {step.path}"
        killed = self.disk.fork(step, self.rng.randint(0, size))
        killed.restart()
        self.left.append((killed, self.acknowledged, True, place))
        without_power = self.disk.fork(step, self.rng.randint(0, size))
        without_power.crash(self.rng)
        self.left.append((without_power, 0, False, place))

    async def write(self, client: Client, count: int) -> None:
        """Sends `count` requests at once, then reads their responses."""
        first = len(self.sent)
        self.sent += [b"%04d" % (first + n) for n in range(count)]
        made = [
            produce(
                records(
                    value, timestamp=T0 + first + n, producer_id=PRODUCER, producer_epoch=0, base_sequence=first + n
                ),
                acks=self.rng.choice((-1, -1, -1, 1)),
            )
            for n, value in enumerate(self.sent[first:])
        ]
        await client.send_bytes(b"".join(frame(one, VERSION, first + n) for n, one in enumerate(made)))
        for n, one in enumerate(made):
            _, response = read_response(await client.receive_bytes(), type(one), VERSION)
            assert (only(response).error_code, only(response).base_offset) == (0, first + n)
            self.acknowledged += 1


async def stored(broker: Broker, client: Client) -> list[bytes]:
    found: list[bytes] = []
    while len(found) < broker.log("t").log_end_offset:
        data = only(await client.call(fetch(("t", 0, len(found))), 11)).records
        found += [value or b"" for value in values(data)]
    return found


async def play(seed: int, chance: float) -> None:
    world = World(seed, chance)
    async with running(FOLDER, files=world.disk, overrides=OVERRIDES) as broker:
        await broker.topic("t", 1)
        client = await broker.client()
        world.disk.on_step = world.fork
        for _ in range(ROUNDS):
            await world.write(client, world.rng.randint(1, 5))
        world.disk.on_step = None
    assert world.left
    for disk, acknowledged, was_killed, place in world.left:
        where = f"seed {seed}, {'killed' if was_killed else 'no power'} at {place}"
        async with running(FOLDER, files=disk, overrides=OVERRIDES) as broker:
            client = await broker.client()
            found = await stored(broker, client)
            assert found == world.sent[: len(found)] and len(found) >= acknowledged, where
            if found:  # the producer continues
                more = records(
                    b"more", timestamp=T0 + len(found), producer_id=PRODUCER, producer_epoch=0, base_sequence=len(found)
                )
                assert only(await client.call(produce(more), VERSION)).error_code == 0, where


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of batches of each run that was written."""
    found: list[int] = []
    append = PartitionLog.append_run

    def noting(log: PartitionLog, run: AppendRun, now_ms: int) -> None:
        found.append(len(run.headers))
        append(log, run, now_ms)

    monkeypatch.setattr(PartitionLog, "append_run", noting)
    return found


async def test_acknowledged_records_survive_a_crash_of_the_short_way(
    runs: list[int], scaled: Callable[[int], int]
) -> None:
    first = random.randrange(1 << 32)
    for seed in range(first, first + scaled(10)):
        await play(seed, 0.3)
    assert max(runs) > 1, "no run of several batches was written"


@each("planted", ["last batch of a run not written", "wrong byte"])
async def test_crash_check_finds_planted_mistakes(planted: str, monkeypatch: pytest.MonkeyPatch) -> None:
    append = PartitionLog.append_run

    def wrong(log: PartitionLog, run: AppendRun, now_ms: int) -> None:
        if planted == "wrong byte":
            run.pieces[0][-1] ^= 1
        elif len(run.pieces) > 1:
            run.pieces[-1] = run.pieces[-1][:0]
        append(log, run, now_ms)

    monkeypatch.setattr(PartitionLog, "append_run", wrong)
    with pytest.raises(AssertionError):
        for seed in range(3):
            await play(seed, 1)
