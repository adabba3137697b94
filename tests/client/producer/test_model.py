"""The producer in a world where requests, answers, connections, brokers and disks are lost: thousands of seeded runs.

Nothing acknowledged may be lost, doubled or out of order; every fatal error has to be a real loss, and every real loss
a fatal error. `make soak` makes 20,000 runs of that. The same runs without idempotence must show all of these, so that
the check is known to see; and each release is held to what its own rules can give.

A failure prints its seed and the whole history. `OTTLA_MODEL_SEED=n` runs that seed alone; `-s` shows its history even
if all is well.
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
    LOST_UNTOLD,
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
pytestmark = [pytest.mark.soak, pytest.mark.timeout(900 * max(1.0, SCALE))]

Scaled = Callable[[int], int]


def seeds(first: int, count: int) -> Iterable[int]:
    """So many of them, or the one that was asked for."""
    return [int(ONLY)] if ONLY else range(first, first + count)


def check_runs(
    kind: Kind, numbers: Iterable[int], allowed: Set[str] = frozenset(), look: Callable[[Outcome], object] = id
) -> Counter[str]:
    """Runs these seeds; fails at the first that shows anything but what is allowed. How many runs showed what."""
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


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("mode", ["required", "requested"])
def test_nothing_acknowledged_is_lost_doubled_or_out_of_order(mode: str, part: int, scaled: Scaled) -> None:
    """Each mode has one half of the runs."""
    count = scaled(RUNS) // (2 * PARTS)
    number = part + (PARTS if mode == "requested" else 0)
    check_runs(Kind(idempotence=mode), seeds(number * count, count))


def test_the_check_sees_what_idempotence_prevents(scaled: Scaled) -> None:
    shown = check_runs(Kind(idempotence="off"), seeds(0, scaled(100)), {DOUBLED, REORDERED, LOST_UNTOLD})
    assert ONLY or min(shown[DOUBLED], shown[REORDERED], shown[LOST_UNTOLD]) > 0


# Up to 2.4 a producer of which nothing is known is refused, from 2.5 on any sequence of it is taken (KIP-360).
REFUSING = ("1.0.1", "1.1", "2.0", "2.4")
ACCEPTING = ("2.5", "3.9", "4.3")


@pytest.mark.parametrize("release", REFUSING)
def test_releases_that_refuse_unknown_producers_are_held_to_the_same(release: str, scaled: Scaled) -> None:
    """Also where a retried batch is refused whose copy is no longer remembered: the producer looks into the log."""
    check_runs(Kind(release, in_flight_max=5), seeds(0, scaled(30)))


@pytest.mark.parametrize("release", ACCEPTING)
def test_releases_that_accept_unknown_producers_lose_records_untold_and_no_more(release: str, scaled: Scaled) -> None:
    """Whoever comes back empty takes what follows, so that a loss need not be seen. Without losses all is well."""
    check_runs(Kind(release, in_flight_max=5, losses=False), seeds(0, scaled(30)))
    check_runs(Kind(release, in_flight_max=5), seeds(0, scaled(30)), {LOST_UNTOLD, LOST_AT_NEW_START})


@pytest.mark.parametrize("release", ["1.1", "2.4", OWN])
def test_expiry_looks_like_a_loss_where_unknown_producers_are_refused(release: str, scaled: Scaled) -> None:
    """And what was written before the expiry, and is sent again after it, cannot be told from something new. The own
    profile does that only if `producer.id.expiration.ms` is set."""
    kind = Kind(release, in_flight_max=5, losses=False, expires=True)
    shown = check_runs(kind, seeds(0, scaled(60)), {FATAL_WITHOUT_LOSS, DOUBLED})
    assert ONLY or shown[FATAL_WITHOUT_LOSS] > 0


@pytest.mark.parametrize("release", ACCEPTING)
def test_expiry_goes_unnoticed_where_unknown_producers_are_accepted(release: str, scaled: Scaled) -> None:
    """Nothing is fatal. Records in doubt at that time may be doubled, may change places or, if the broker put one off
    and took the next one for the first, get lost: "the log holds what is behind it, so it was there" is wrong then."""
    kind = Kind(release, in_flight_max=5, losses=False, expires=True)
    shown = check_runs(kind, seeds(0, scaled(60)), {DOUBLED, REORDERED, UNTRUE_OFFSET})
    assert ONLY or shown[DOUBLED] > 0


def traits(event: Event) -> Iterable[str]:
    """What of an event counts as having met a rule."""
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
def test_the_runs_meet_what_they_are_about(scaled: Scaled) -> None:
    """The world is not too kind: all that can happen does, in a hundred runs."""
    met: Counter[str] = Counter()

    def look(outcome: Outcome) -> None:
        met.update({trait for event in outcome.history.events for trait in traits(event)})

    check_runs(Kind(), seeds(0, scaled(100)), look=look)
    wanted = {"Cut", "Started", "Fatal", "Acknowledged", "no offset", "new start", TIMED_OUT, REFUSED, *WORDS}
    assert ONLY or wanted <= set(met), met


def test_a_run_can_be_repeated() -> None:
    first, second = (run(3, Kind(), verbose=True).describe() for _ in range(2))
    assert first == second
