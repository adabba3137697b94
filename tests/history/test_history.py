"""Clients work and crash while the broker is killed, paused and disconnected; their history is checked.
A history with a violation is kept in `out/` and its path is printed. `tests/history/check.py` reads it.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla_testing import ROOT
from ottla_testing.history import facts
from ottla_testing.history.checker import check
from ottla_testing.history.facts import Report
from ottla_testing.history.shares import MOVES
from ottla_testing.history.workload import (
    CLUSTER_FAULTS,
    FAULTS,
    GROUP_FAULTS,
    LINES,
    Client,
    Workload,
    members,
    next_crew,
    next_terrain,
    sender,
    share_crew,
    share_terrain,
    small_crew,
    terrain,
    whole_crew,
    writer,
)

pytestmark = [pytest.mark.process, pytest.mark.soak]

KEPT = ROOT / "out"
SHORT_S, LONG_S = 4.0, 62.0  # of faults; twenty long runs take half an hour
RUNS = 1
CUT = f"{LINES}-1"


def looked_through(load: Workload) -> Report:
    """Returns what the checker finds. Keeps the history if there are violations."""
    report = check(load.path)
    print(f"seed {load.seed}: {str(report)[:3000]}")
    if report.kinds or load.broken:
        KEPT.mkdir(exist_ok=True)
        print(f"the history is kept: {shutil.copy(load.path, KEPT)}")
    return report


def nodes_of(seed: int) -> int:
    """Returns the number of the broker's nodes in a run: with several, they stop, and leaders and replicas change."""
    return random.Random(seed).choice((1, 3))


def test_run_with_all_faults_has_clean_history(tmp_path: Path, scaled: Callable[[int], int]) -> None:
    """Runs one short run, or many long ones with more clients."""
    runs = scaled(RUNS)
    for number in range(runs):
        seed = random.randrange(1 << 32)
        around: dict[str, Any] = terrain(seed)
        around["nodes"] = nodes_of(seed)
        print(f"seed {seed}: {around}")
        if runs > 1:
            load = Workload(tmp_path / str(number), seed, whole_crew(), **around)
        else:
            load = Workload(tmp_path / str(number), seed, small_crew(seed), pace=0.5, hung_s=5, **around)
        try:
            load.begin()
            load.disturb(LONG_S if runs > 1 else SHORT_S, FAULTS if around["nodes"] == 1 else CLUSTER_FAULTS)
            load.finish()
        finally:
            try:
                load.close()
            finally:
                report = looked_through(load)
        assert not report.kinds, report
        assert not load.broken, load.broken[0]
        assert all(report.counts[f"faults: {fault}"] for fault in ("pause", "cut", "zombie")), report.counts
        assert report.counts["crashes"] and report.counts["faults: start"], report.counts
        assert report.counts["sends: ok"] and report.counts["transactions: committed"], report.counts
        shutil.rmtree(load.folder)
    assert set(FAULTS) == {"kill", "pause", "cut", "crash", "zombie"}


@pytest.mark.parametrize("around", [terrain, next_terrain, share_terrain])
def test_broker_starts_in_each_release_of_the_runs(around: Callable[[int], dict[str, str]], tmp_path: Path) -> None:
    """An old release refuses configs that it does not have."""
    found: dict[str, dict[str, str]] = {}
    for seed in range(50):
        chosen = around(seed)
        found.setdefault(chosen["release"], chosen)
    assert len(found) > 2
    for release, given in found.items():
        configs: dict[str, Any] = {**given}
        load = Workload(tmp_path / release, 0, [], **configs)
        load.close()


def group_runs(
    folder: Path,
    scaled: Callable[[int], int],
    crew: Callable[[int], list[Client]],
    around: Callable[[int], dict[str, str]],
) -> Iterator[Report]:
    """Runs a crew of groups under all faults: one short run, or many long ones. Yields the reports of clean runs. The
    crew may depend on the number of nodes.
    """
    runs = scaled(RUNS)
    for number in range(runs):
        seed = random.randrange(1 << 32)
        nodes = nodes_of(seed)
        possible = GROUP_FAULTS if nodes == 1 else CLUSTER_FAULTS
        configs: dict[str, Any] = around(seed) | {"nodes": nodes}
        print(f"seed {seed}: {configs}")
        load = Workload(folder / str(number), seed, crew(nodes), pace=0.5, **configs)
        try:
            load.begin()
            load.disturb(LONG_S if runs > 1 else SHORT_S, possible)
            load.finish()
        finally:
            try:
                load.close()
            finally:
                report = looked_through(load)
        assert not report.kinds, report
        assert not load.broken, load.broken[0]
        faults = {"start", *possible} - {"kill", "crash"}
        assert all(report.counts[f"faults: {fault}"] for fault in faults) and report.counts["crashes"], report.counts
        causes = sum(report.counts[f"faults: {fault}"] for fault in ("start", "cut", *MOVES))
        assert report.counts["exits: stalled"] <= causes, report.counts  # more are a defect of the broker
        yield report
        shutil.rmtree(load.folder)


def test_consumer_groups_hold_under_all_faults(tmp_path: Path, scaled: Callable[[int], int]) -> None:
    """Groups of KIP-848, and one whose members change between both group protocols."""
    for report in group_runs(tmp_path, scaled, lambda _: next_crew(), next_terrain):
        assert report.counts["records polled"] and report.counts["commits of offsets: ok"], report.counts
        assert report.counts["transactions: committed"], report.counts


def test_share_groups_hold_under_all_faults(tmp_path: Path, scaled: Callable[[int], int]) -> None:
    for report in group_runs(tmp_path, scaled, share_crew, share_terrain):
        assert report.counts["records delivered again"] and report.counts["records acknowledged: ok"], report.counts
        unsure = report.counts["records that may have reached the limit"]
        assert unsure <= report.counts["records read"] // 20, report.counts


def test_wrong_isolation_and_lost_records_found(tmp_path: Path) -> None:
    """Finds a consumer that claims read_committed but reads everything, and a log that is truncated at a restart."""
    crew = [*sender("confluent", CUT), *writer("confluent", f"{LINES}-0")]
    crew += members("confluent", in_truth="read_uncommitted")
    load = Workload(tmp_path, random.randrange(1 << 32), crew)
    try:
        load.begin()
        load.until(
            # Of some, the client has sent no record yet.
            lambda: load.path.read_text().count('"type":"ok","op":"abort"') > 10,
            lambda: "too few transactions were aborted",
        )
        load.rest(2)  # time to read them
        load.end("sender", "writer")
        load.rest(0.5)
        load.end("member")
        load.broker.stop()
        (segment,) = load.broker.data_dir.glob(f"{CUT}/*.log")
        with segment.open("r+b") as file:
            file.truncate(segment.stat().st_size * 3 // 4)
        (load.broker.data_dir / ".kafka_cleanshutdown").unlink()
        load.broker.start()
        load.finish()
    finally:
        load.close()
    kinds = check(load.path).kinds
    assert {facts.ABORTED_READ, facts.EARLY_READ} <= kinds.keys(), kinds
    assert {facts.LOST, facts.UNSEEN} & kinds.keys(), kinds
