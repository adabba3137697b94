"""The producer in a simulation where requests, responses, connections, brokers and disks are lost: thousands of seeded
runs.

No acknowledged record may be lost, duplicated or reordered; every fatal error must be a real loss, and every real loss
a fatal error. `make soak` makes 20,000 of these runs. The same runs without idempotence must show all of these errors,
which proves that the check detects them. Each release is held to the guarantees that its own rules can give.

A failure prints its seed and the whole history. `OTTLA_MODEL_SEED=n` runs that seed alone; `-s` prints its history even
on success.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Set

import pytest

from ottla.broker.releases.profiles import OWN
from ottla_testing.client.model_history import (
    DOUBLED,
    FATAL_WITHOUT_LOSS,
    LOST_AT_NEW_START,
    LOST_SILENTLY,
    REFUSED,
    REORDERED,
    TIMED_OUT,
    UNTRUE_OFFSET,
    Acknowledged,
    Appended,
    Event,
    Failed,
    Note,
)
from ottla_testing.client.model_run import Kind, Outcome, run

SCALE = float(os.environ.get("OTTLA_TEST_SCALE", "1"))
ONLY = os.environ.get("OTTLA_MODEL_SEED")
PARTS = 10  # so that several processes share the work
RUNS = 1000
ENOUGH = 100  # seeds within which each finding that is possible occurs
pytestmark = [pytest.mark.soak, pytest.mark.timeout(900 * max(1.0, SCALE))]

Scaled = Callable[[int], int]


def seeds(first: int, count: int) -> Iterable[int]:
    """Returns `count` seeds, or the one of OTTLA_MODEL_SEED."""
    return [int(ONLY)] if ONLY else range(first, first + count)


def check_runs(
    kind: Kind, numbers: Iterable[int], allowed: Set[str] = frozenset(), look: Callable[[Outcome], object] = id
) -> Counter[str]:
    """Runs seeds and returns the number of runs by finding. Fails at the first finding that is not allowed."""
    shown: Counter[str] = Counter()
    for seed in numbers:
        outcome = run(seed, kind)
        look(outcome)
        kinds = {violation.kind for violation in outcome.violations}
        shown.update(kinds)
        if ONLY or kinds - allowed:
            text = run(seed, kind, verbose=True).describe()
            assert not kinds - allowed, f"OTTLA_MODEL_SEED={seed} shows it again, {kind}:\n{text}"
            print(text)
    return shown


def check_shows(kind: Kind, count: int, allowed: Set[str], wanted: Iterable[str]) -> None:
    """Runs `count` seeds, and more until the wanted findings occurred; a few seeds alone need not have a rare one."""
    shown = check_runs(kind, seeds(0, count), allowed)
    for seed in range(count, ENOUGH):
        if ONLY or all(shown[finding] for finding in wanted):
            return
        shown += check_runs(kind, [seed], allowed)
    assert all(shown[finding] for finding in wanted), shown


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("mode", ["required", "requested"])
def test_no_acknowledged_record_is_lost_duplicated_or_reordered(mode: str, part: int, scaled: Scaled) -> None:
    """Each mode has half of the runs."""
    count = scaled(RUNS) // (2 * PARTS)
    number = part + (PARTS if mode == "requested" else 0)
    check_runs(Kind(idempotence=mode), seeds(number * count, count))


def test_check_detects_what_idempotence_prevents(scaled: Scaled) -> None:
    findings = {DOUBLED, REORDERED, LOST_SILENTLY}
    check_shows(Kind(idempotence="off"), scaled(100), findings, findings)


# Up to 2.4 unknown producers are refused; from 2.5 on any sequence of theirs is accepted (KIP-360).
REFUSING = ("1.0.1", "1.1", "2.0", "2.4")
ACCEPTING = ("2.5", "3.9", "4.3")


@pytest.mark.parametrize("release", REFUSING)
def test_releases_that_refuse_unknown_producers_give_the_same_guarantees(release: str, scaled: Scaled) -> None:
    """Also if a retried batch is refused because its copy is no longer remembered: the producer reads the log."""
    check_runs(Kind(release, in_flight_max=5), seeds(0, scaled(30)))


@pytest.mark.parametrize("release", ACCEPTING)
def test_releases_that_accept_unknown_producers_only_lose_records_silently(release: str, scaled: Scaled) -> None:
    """A broker that comes back with an empty disk accepts any batch, so a loss may go unnoticed. Without losses all is
    well.
    """
    check_runs(Kind(release, in_flight_max=5, losses=False), seeds(0, scaled(30)))
    check_runs(Kind(release, in_flight_max=5), seeds(0, scaled(30)), {LOST_SILENTLY, LOST_AT_NEW_START})


@pytest.mark.parametrize("release", ["1.1", "2.4", OWN])
def test_expiry_looks_like_a_loss_if_unknown_producers_are_refused(release: str, scaled: Scaled) -> None:
    """A retry, after the expiry, of a batch written before it looks like a new batch. In the own profile this happens
    only if `producer.id.expiration.ms` is set.
    """
    kind = Kind(release, in_flight_max=5, losses=False, expires=True)
    check_shows(kind, scaled(60), {FATAL_WITHOUT_LOSS, DOUBLED}, [FATAL_WITHOUT_LOSS])


@pytest.mark.parametrize("release", ACCEPTING)
def test_expiry_goes_unnoticed_if_unknown_producers_are_accepted(release: str, scaled: Scaled) -> None:
    """No error is fatal. Records in doubt at that time may be duplicated or reordered. They may even be lost, if the
    broker refused a batch and took the next one for the first: a later batch in the log is then no proof.
    """
    kind = Kind(release, in_flight_max=5, losses=False, expires=True)
    check_shows(kind, scaled(60), {DOUBLED, REORDERED, UNTRUE_OFFSET}, [DOUBLED])


def traits(event: Event) -> Iterable[str]:
    """Yields the traits of an event by which a run counts as an example of a rule."""
    yield type(event).__name__
    if isinstance(event, Appended) and event.epoch:
        yield "new start"
    if isinstance(event, Acknowledged) and event.offset is None:
        yield "no offset"
    if isinstance(event, Failed):
        yield event.why
    if isinstance(event, Note):
        yield from (word for word in WORDS if word in event.text)


WORDS = (
    "a copy of",
    "found by a scan",
    "UNKNOWN_PRODUCER_ID",
    "OUT_OF_ORDER_SEQUENCE_NUMBER",
    "DUPLICATE_SEQUENCE_NUMBER",
    "INVALID_TIMESTAMP",
    "the broker is killed",
    "the broker stops",
    "power is lost",
    "the disk is lost",
)


@pytest.mark.slow
def test_runs_cover_all_kinds_of_events(scaled: Scaled) -> None:
    """The simulation is hard enough: a hundred runs have all kinds of events."""
    met: Counter[str] = Counter()

    def look(outcome: Outcome) -> None:
        met.update({trait for event in outcome.history.events for trait in traits(event)})

    check_runs(Kind(), seeds(0, scaled(100)), look=look)
    wanted = {"Cut", "Started", "Fatal", "Acknowledged", "no offset", "new start", TIMED_OUT, REFUSED, *WORDS}
    assert ONLY or wanted <= set(met), met


def test_run_with_the_same_seed_is_identical() -> None:
    first, second = (run(3, Kind(), verbose=True).describe() for _ in range(2))
    assert first == second
