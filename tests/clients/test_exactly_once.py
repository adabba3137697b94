"""Exactly once, from one topic to another, by loops of real clients: each input is copied once, whatever is killed.

A loop reads, writes the records to another topic and commits its offsets, all in one transaction; its processes and the
broker are killed (-9) at random moments, and started again. A reader of committed records must then find the copy of
each input exactly once and in order, and the committed offsets at the end of the input.
"""

from __future__ import annotations

import contextlib
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from ottla_testing.clients.copier import Settings, transformed
from ottla_testing.clients.copying import (
    NEVER,
    Input,
    Loop,
    Pipelines,
    committed_offsets,
    end_offsets,
    faults,
    pipelines,
    random_death,
)
from ottla_testing.clients.four_clients import create_topic
from ottla_testing.clients.running_broker import RunningBroker
from ottla_testing.clients.transactional import librdkafka

pytestmark = [pytest.mark.slow, pytest.mark.soak]

ROUNDS, MOVES, MOST_ROUNDS = 5, 1, 100
RELEASES = (None, "2.8", "3.9", "4.3")
CLIENTS = ("confluent-kafka", "kafka-python", "aiokafka", "ottla")
MEMBERS = ("confluent-kafka", "kafka-python", "ottla")  # aiokafka sends no metadata with the offsets
SOURCE, PARTITIONS = "source", 3
QUICK = {
    "transaction_abort_timed_out_transaction_cleanup_interval_ms": "100",
    "transaction_state_log_num_partitions": "5",
    "offsets_topic_num_partitions": "5",
    "auto_create_topics_enable": "false",
}


def loop(client: str, group: str, transactional_id: str, address: str, **more: object) -> Settings:
    return Settings(
        client=client,
        address=address,
        group=group,
        source=SOURCE,
        target=f"copied-{group}",
        transactional_id=transactional_id,
        **more,  # type: ignore[arg-type]
    )


def all_loops(address: str) -> list[Settings]:
    """Returns loops by group id only (`alone`), and as members of groups, which send their metadata with the offsets
    (KIP-447).
    """
    every = list(range(PARTITIONS))
    return [
        *(loop(client, f"{client}-alone", f"{client}-alone", address, assigned=every) for client in CLIENTS),
        *(loop(client, f"{client}-member", f"{client}-member", address, instance="one") for client in MEMBERS),
    ]


# -- the verifier detects errors

WHOLE = {0: [b"0", b"2", b"4"], 1: [b"1", b"3"]}


def copies() -> dict[int, list[bytes]]:
    return {partition: [transformed(value) for value in values] for partition, values in WHOLE.items()}


def test_verifier_accepts_correct_copies() -> None:
    assert faults(WHOLE, copies()) == []


def test_verifier_finds_a_missing_input() -> None:
    found = copies()
    del found[0][1]
    assert faults(WHOLE, found) == ["0: b'copy of 2' is missing"]
    assert faults(WHOLE, {0: copies()[0]}) == ["1: b'copy of 1' is missing", "1: b'copy of 3' is missing"]


def test_verifier_finds_a_duplicated_input() -> None:
    found = copies()
    found[1].append(transformed(b"1"))
    assert faults(WHOLE, found) == ["1: b'copy of 1' is there twice"]


def test_verifier_finds_an_input_out_of_order_or_in_another_partition() -> None:
    found = copies()
    found[0].append(found[0].pop(0))
    assert faults(WHOLE, found) == ["0: b'copy of 0' comes late"]
    found = copies()
    found[1].append(found[0].pop())
    assert faults(WHOLE, found) == ["0: b'copy of 4' is missing", "1: b'copy of 4' is no copy of any input"]


# -- the loops


class Chaos:
    """Starts loops, kills them and the broker, and restarts them; all choices depend on one seed."""

    def __init__(self, running: Pipelines, seed: int) -> None:
        self.running = running
        self.chooser = random.Random(seed)

    def start(self, loop: Loop, mortal: bool = True) -> None:
        loop.start(self.chooser.randrange(1 << 32), random_death(self.chooser) if mortal else None)

    def wait_for_progress(self) -> None:
        """Returns when each loop has copied more; restarts the ones that ended."""
        before = {loop.name: loop.committed for loop in self.running.loops}

        def is_done() -> bool:
            for loop in self.running.loops:
                if not loop.alive:
                    loop.gone()
                    self.start(loop)
            return all(loop.committed > before[loop.name] for loop in self.running.loops)

        self.running.wait_for(is_done, "a loop copies nothing more")

    def round(self) -> None:
        """Kills some loops, or the broker, or both, at any moment."""
        chooser, loops, broker = self.chooser, self.running.loops, self.running.broker
        self.wait_for_progress()
        time.sleep(chooser.random() / 5)
        victims = [loop for loop in loops if chooser.random() < 0.4]
        takes_broker = not victims or chooser.random() < 0.4
        deeds: list[Callable[[], None]] = [loop.kill for loop in victims]
        if takes_broker:
            deeds.append(broker.kill)
        chooser.shuffle(deeds)
        for deed in deeds:
            deed()
        if takes_broker:
            while chooser.random() < 0.2:  # once more, during its recovery
                broker.launch()
                time.sleep(chooser.random() / 2)
                broker.kill()
            broker.start()
        for one in victims:
            self.start(one)

    def finish(self, source: Input) -> None:
        """Copies the rest, without kills."""
        source.stop()
        assert not source.failures, source.failures[:3]
        address = self.running.broker.address
        ends = end_offsets(address, SOURCE, PARTITIONS)
        admin = AdminClient(librdkafka(address))
        left = {loop.settings.group for loop in self.running.loops}

        def is_done() -> bool:
            for loop in self.running.loops:
                if not loop.alive:
                    loop.gone()
                    self.start(loop, mortal=False)
            left.difference_update([group for group in left if committed_offsets(admin, group, SOURCE) == ends])
            return not left and all(loop.is_ready for loop in self.running.loops)

        self.running.wait_for(is_done, "not all is copied")
        for loop in self.running.loops:
            loop.stop()


def run_loops(broker: RunningBroker, loops: list[Settings], rounds: int, seed: int) -> None:
    create_topic(broker.address, SOURCE, PARTITIONS)
    for target in {loop.target for loop in loops}:
        create_topic(broker.address, target, PARTITIONS)
    source = Input(broker.address, SOURCE, PARTITIONS)
    try:
        with pipelines(broker, SOURCE, PARTITIONS, loops) as running:
            chaos = Chaos(running, seed)
            for one in running.loops:
                chaos.start(one)
            for _ in range(rounds):
                chaos.round()
            chaos.finish(source)
            for settings in loops:
                running.check(settings)
            for one in running.loops:
                print(f"{one.name}: {one.lives} lives, {one.committed} records, {dict(one.complaints)}")
                assert not [reason for reason in one.complaints if NEVER.search(reason)]
    finally:
        source.stop()


@pytest.mark.parametrize(
    ("apart", "step", "fault"), [("after", "ended", "is there twice"), ("before", "ending", "is missing")]
)
def test_loop_committing_offsets_outside_its_transaction_is_detected(
    tmp_path: Path, apart: str, step: str, fault: str
) -> None:
    """A deliberate error: killed between the two, it copies records again, or never."""
    broker = RunningBroker(tmp_path, **QUICK)
    try:
        settings = loop("confluent-kafka", "apart", "apart", broker.address, assigned=[0], apart=apart, aborts=0.0)
        for topic in (SOURCE, settings.target):
            create_topic(broker.address, topic)
        source = Input(broker.address, SOURCE, 1)
        with pipelines(broker, SOURCE, 1, [settings]) as running:
            (one,) = running.loops
            one.start(0, (2, step, 0.0))
            running.wait_for(lambda: not one.alive, "it does not die")
            one.gone()
            source.stop()
            one.start(0)
            ends = end_offsets(broker.address, SOURCE, 1)
            admin = AdminClient(librdkafka(broker.address))
            running.wait_for(lambda: committed_offsets(admin, "apart", SOURCE) == ends, "not all is copied")
            one.stop()
            with pytest.raises(AssertionError, match=fault):
                running.check(settings)
    finally:
        broker.close()


@contextlib.contextmanager
def any_broker(folder: Path) -> Iterator[tuple[RunningBroker, int]]:
    """A broker as one of the releases, which differ in their checks of transactions, and a seed; both are printed.

    Its data directory is verified at the end.
    """
    seed = random.randrange(1 << 32)
    release = random.Random(seed).choice(RELEASES)
    print(f"seed {seed}, release {release}")
    broker = RunningBroker(folder, release, **QUICK)
    try:
        yield broker, seed
    finally:
        broker.close()
    command = [sys.executable, "-m", "ottla.tools", "verify", str(broker.data_dir)]
    outcome = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert outcome.returncode == 0, outcome.stdout[-3000:] + outcome.stderr[-3000:]


def test_each_input_is_copied_exactly_once_despite_kills(tmp_path: Path, scaled: Callable[[int], int]) -> None:
    with any_broker(tmp_path) as (broker, seed):
        run_loops(broker, all_loops(broker.address), min(scaled(ROUNDS), MOST_ROUNDS), seed)


def test_partitions_moving_between_members_are_copied_exactly_once(
    tmp_path: Path, scaled: Callable[[int], int]
) -> None:
    """Three clients in one group, with an id each: the open transaction of a killed one blocks the others."""
    with any_broker(tmp_path) as (broker, seed):
        short = {"session_timeout_ms": 1000}
        members = [loop(client, "shared", f"{client}-shared", broker.address, **short) for client in MEMBERS]
        run_loops(broker, members, min(scaled(MOVES), MOST_ROUNDS), seed)
