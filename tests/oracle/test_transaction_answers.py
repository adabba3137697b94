"""The plays of transactional requests, on brokers of ours: they answer what Apache Kafka 3.9.1 and 4.3.1 answered.

`golden/transactions-*.json` has what those said; see `make_transactions.py`. Where ours answers otherwise on purpose,
DIFFERENCES says so, and why.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla_testing.broker.harness import running
from ottla_testing.clients.running_broker import RunningBroker
from ottla_testing.each import each
from ottla_testing.oracle.transaction_plays import BOTH
from ottla_testing.oracle.transaction_plays_held import HELD, HELD_NEW, HeldPlay
from ottla_testing.oracle.transaction_plays_version_2 import NEW
from ottla_testing.oracle.transaction_plays_worn import WORN, WORN_NEW, prepare, raise_epochs
from ottla_testing.oracle.transaction_script import SETTINGS, Line, Play, Stage, played
from ottla_testing.oracle.transaction_wire import Wire
from ottla_testing.patience import PATIENCE_S
from ottla_testing.storage.failing_files import FailingFiles

HERE = Path(__file__).parent
RELEASES = {"3.9": "3.9.1", "4.3": "4.3.1"}
GIVEN = {
    release: json.loads((HERE / "golden" / f"transactions-{version}.json").read_text())
    for release, version in RELEASES.items()
}
GIVEN["ottla"] = GIVEN["4.3"]  # our own profile
FIRST_SEQUENCES = ("produce_first_sequence", "new_produce_first_sequence")  # have our rules in our own profile
PLAYS = [(release, play) for release in RELEASES for play in (BOTH if release == "3.9" else BOTH + NEW)]
PLAYS += [("ottla", play) for play in BOTH + NEW if play.__name__ not in FIRST_SEQUENCES]
HELD_PLAYS = [(release, play) for release in RELEASES for play in (HELD if release == "3.9" else HELD + HELD_NEW)]
UNASKED = "Produce v9 id='produce_refused' P1/2 1 at"
DIFFERENCES: dict[tuple[str, str], object] = {
    # We keep nothing of a batch that was refused for good, so its number holds for nothing that comes later.
    ("produce_after_a_refusal", "Produce v11 id='produce_after_a_refusal' P1/0 0 at 5"): [0, 0],
    # Up to 3.9 a producer of a higher epoch than that of the open transaction is let in unasked; 4.x asks, as we do.
    ("produce_refused", f"{UNASKED} 3"): [47, -1],
    ("produce_refused", f"{UNASKED} 0"): [47, -1],
    ("produce_refused", "DescribeProducers 1"): [0, [["P1", 1, 2, -1, 2]]],
    # Up to 3.9 the coordinator is asked before the partition says that it knows a newer epoch.
    ("worn_fenced", "Produce v9 id='worn_fenced' P1/32766 0 at 1"): [47, -1],
}
"""(play, request) -> our answer in all releases, where it is not that of one of them, or of any."""

pytestmark = pytest.mark.process

OWN: dict[tuple[str, str], object] = {
    # Nothing is known of the producer, and its first batch has not the number 0.
    ("produce_after_a_refusal", "Produce v11 id='produce_after_a_refusal' P1/0 0 at 5"): [59, -1],
    ("new_produce_refused", "Produce v12 id='new_produce_refused' P1/1 0 at 5"): [59, -1],
}
"""The same for our own profile alone."""


def expected(release: str, name: str) -> list[Line]:
    lines = json.loads(json.dumps(GIVEN[release][name]))
    ours = DIFFERENCES | OWN if release == "ottla" else DIFFERENCES
    return [[asked, ours.get((name, asked), answer)] for asked, answer in lines]


def compare(found: list[Line], wanted: list[Line]) -> None:
    found = json.loads(json.dumps(found))
    differing = [
        f"{number}: {ours[0]}\n    ours {ours[1]}, Kafka's {theirs[1] if theirs[0] == ours[0] else theirs}"
        for number, (ours, theirs) in enumerate(zip(found, wanted, strict=False))
        if ours != theirs
    ]
    assert not differing, "\n".join(differing)
    assert len(found) == len(wanted)


def test_every_difference_is_one() -> None:
    for (play, asked), ours in (DIFFERENCES | OWN).items():
        theirs = [answer for given in GIVEN.values() for what, answer in given.get(play, ()) if what == asked]
        assert theirs and any(answer != ours for answer in theirs)


def spend_first_id(address: str) -> None:
    """Takes the producer id 0, which is also what is answered for an id that nobody has: no play may get it."""
    wire = Wire(address)
    try:
        given = wire.call("InitProducerId", 4, transactional_id=None, transaction_timeout_ms=1000)
        assert not given["error_code"]
    finally:
        wire.close()


class Brokers(dict[str, RunningBroker]):
    """By release, each started when it is asked for; `worn` with ids that have used nearly all epochs."""

    def __init__(self, places: pytest.TempPathFactory, worn: bool) -> None:
        self.places, self.worn = places, worn

    def __missing__(self, release: str) -> RunningBroker:
        profile = None if release == "ottla" else release
        made = self[release] = RunningBroker(self.places.mktemp("broker"), profile, **SETTINGS)
        spend_first_id(made.address)
        if self.worn:
            prepare(made.address, *WORN_PLAYS[release])
            made.stop()
            raise_epochs(made.data_dir)
            made.start()
        return made


@pytest.fixture(scope="module", params=[False])
def brokers(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brokers]:
    made = Brokers(tmp_path_factory, request.param)
    yield made
    for one in made.values():
        one.close()


@each(("release", "play"), PLAYS)
def test_a_play_is_answered_as_by_kafka(brokers: Brokers, release: str, play: Play) -> None:
    compare(played(play, brokers[release].address), expected(release, play.__name__))


WORN_PLAYS = {release: WORN if release == "3.9" else WORN + WORN_NEW for release in RELEASES}


@pytest.mark.parametrize(
    ("release", "play"),
    [(release, play) for release, plays in WORN_PLAYS.items() for play in plays],
    ids=lambda one: getattr(one, "__name__", one),
)
@pytest.mark.parametrize("brokers", [True], indirect=True)
def test_a_play_at_the_end_of_the_epochs(brokers: Brokers, release: str, play: Play) -> None:
    compare(played(play, brokers[release].address, is_prepared=True), expected(release, play.__name__))


class Gate:
    """Holds up the syncs of partition 1 of every topic, while it is closed."""

    def __init__(self, files: FailingFiles) -> None:
        self._open = threading.Event()
        self._open.set()
        files.fails = self._step

    def _step(self, operation: str, path: str) -> int:
        if operation == "sync" and path.endswith(".log") and Path(path).parent.name.endswith("held-1"):
            assert self._open.wait(PATIENCE_S)
        return 0

    def close(self) -> None:
        self._open.clear()

    def open(self) -> None:
        self._open.set()


def played_held(play: HeldPlay, address: str, gate: Gate) -> list[Line]:
    """Runs in a thread of its own, as the broker is in this process. A marker is durable where every record must be."""
    wire = Wire(address)
    try:
        stage = Stage(wire, play.__name__)
        stage.topic += "-held"
        stage.find_both()
        stage.create_topic((), flush_messages="1")
        play(stage, gate.close, gate.open)
        return json.loads(json.dumps(stage.lines).replace(stage.topic, stage.name))
    finally:
        wire.close()


@pytest.mark.parametrize(("release", "play"), HELD_PLAYS, ids=lambda one: getattr(one, "__name__", one))
async def test_a_play_with_a_marker_that_waits(tmp_path: Path, release: str, play: HeldPlay) -> None:
    files = FailingFiles()
    gate = Gate(files)
    overrides = {name.replace("_", "."): value for name, value in SETTINGS.items()}
    async with running(tmp_path, files=files, release=release, overrides=overrides) as broker:
        try:
            found = await asyncio.to_thread(played_held, play, f"127.0.0.1:{broker.ports[0]}", gate)
        finally:
            gate.open()
    compare(found, expected(release, play.__name__))
