"""The scripts of transactional requests, run against Ottla: its responses are those of Apache Kafka 3.9.1 and 4.3.1.

`golden/transactions-*.json` has the recorded responses; see `make_transactions.py`. DIFFERENCES lists intended
differences, with reasons.
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
GIVEN["ottla"] = GIVEN["4.3"]  # Ottla's own profile
FIRST_SEQUENCES = ("produce_first_sequence", "new_produce_first_sequence")  # follow Ottla's rules in its own profile
PLAYS = [(release, play) for release in RELEASES for play in (BOTH if release == "3.9" else BOTH + NEW)]
PLAYS += [("ottla", play) for play in BOTH + NEW if play.__name__ not in FIRST_SEQUENCES]
HELD_PLAYS = [(release, play) for release in RELEASES for play in (HELD if release == "3.9" else HELD + HELD_NEW)]
UNASKED = "Produce v9 id='produce_refused' P1/2 1 at"
DIFFERENCES: dict[tuple[str, str], object] = {
    # A refused batch leaves no state, so its sequence has no effect on later ones.
    ("produce_after_a_refusal", "Produce v11 id='produce_after_a_refusal' P1/0 0 at 5"): [0, 0],
    # Up to 3.9 a producer with a higher epoch than that of the open transaction is not verified; 4.x verifies it, like
    # Ottla.
    ("produce_refused", f"{UNASKED} 3"): [47, -1],
    ("produce_refused", f"{UNASKED} 0"): [47, -1],
    ("produce_refused", "DescribeProducers 1"): [0, [["P1", 1, 2, -1, 2]]],
    # Up to 3.9 the coordinator is queried before the partition checks for a newer epoch.
    ("worn_fenced", "Produce v9 id='worn_fenced' P1/32766 0 at 1"): [47, -1],
}
"""(script, request) -> Ottla's response in all releases, if it differs from that of one of them, or of any."""

pytestmark = pytest.mark.process

OWN: dict[tuple[str, str], object] = {
    # The producer is unknown, and its first batch does not have sequence 0.
    ("produce_after_a_refusal", "Produce v11 id='produce_after_a_refusal' P1/0 0 at 5"): [59, -1],
    ("new_produce_refused", "Produce v12 id='new_produce_refused' P1/1 0 at 5"): [59, -1],
}
"""The same for Ottla's own profile alone."""


def expected(release: str, name: str) -> list[Line]:
    lines = json.loads(json.dumps(GIVEN[release][name]))
    ours = DIFFERENCES | OWN if release == "ottla" else DIFFERENCES
    return [[request, ours.get((name, request), response)] for request, response in lines]


def compare(found: list[Line], wanted: list[Line]) -> None:
    found = json.loads(json.dumps(found))
    differing = [
        f"{number}: {ours[0]}\n    ours {ours[1]}, Kafka's {theirs[1] if theirs[0] == ours[0] else theirs}"
        for number, (ours, theirs) in enumerate(zip(found, wanted, strict=False))
        if ours != theirs
    ]
    assert not differing, "\n".join(differing)
    assert len(found) == len(wanted)


def test_every_listed_difference_occurs() -> None:
    for (play, request), ours in (DIFFERENCES | OWN).items():
        theirs = [response for given in GIVEN.values() for what, response in given.get(play, ()) if what == request]
        assert theirs and any(response != ours for response in theirs)


def spend_first_id(address: str) -> None:
    """Uses up producer id 0, which is also in responses for unknown ids: no script may get it."""
    wire = Wire(address)
    try:
        given = wire.call("InitProducerId", 4, transactional_id=None, transaction_timeout_ms=1000)
        assert not given["error_code"]
    finally:
        wire.close()


class Brokers(dict[str, RunningBroker]):
    """Brokers by release, each started on first use; `worn` with ids that have used nearly all epochs."""

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
def test_script_gets_kafkas_responses(brokers: Brokers, release: str, play: Play) -> None:
    compare(played(play, brokers[release].address), expected(release, play.__name__))


WORN_PLAYS = {release: WORN if release == "3.9" else WORN + WORN_NEW for release in RELEASES}


@pytest.mark.parametrize(
    ("release", "play"),
    [(release, play) for release, plays in WORN_PLAYS.items() for play in plays],
    ids=lambda one: getattr(one, "__name__", one),
)
@pytest.mark.parametrize("brokers", [True], indirect=True)
def test_script_with_exhausted_epochs_gets_kafkas_responses(brokers: Brokers, release: str, play: Play) -> None:
    compare(played(play, brokers[release].address, is_prepared=True), expected(release, play.__name__))


class Gate:
    """Delays the syncs of partition 1 of every topic while it is closed."""

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
    """Runs a script in a thread of its own, since the broker is in this process. A marker is durable where every record
    must be."""
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
async def test_script_with_delayed_marker_gets_kafkas_responses(tmp_path: Path, release: str, play: HeldPlay) -> None:
    files = FailingFiles()
    gate = Gate(files)
    overrides = {name.replace("_", "."): value for name, value in SETTINGS.items()}
    async with running(tmp_path, files=files, release=release, overrides=overrides) as broker:
        try:
            found = await asyncio.to_thread(played_held, play, f"127.0.0.1:{broker.ports[0]}", gate)
        finally:
            gate.open()
    compare(found, expected(release, play.__name__))
