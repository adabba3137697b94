"""The audit finds each planted fault at its place and nothing else, alone and in combination, in agreement with `ottla
verify`."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from ottla.pipeline.jobs.audit import steps
from ottla.pipeline.jobs.audit import tasks as by_segment
from ottla.storage.check.facts import Finding
from ottla.storage.producers import txn_index
from ottla_testing.each import each
from ottla_testing.pipeline.audit_samples import (
    FAULTS,
    Fault,
    Planted,
    Segment,
    Story,
    abort_lying,
    audited,
    lying_checkpoint,
    lying_epochs,
    missing_batch,
    segments,
    shown,
    verified,
    write,
)


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("sound") / "data"
    write(root, [Story(seed).run(70) for seed in range(4)])
    report = audited(root)
    assert report.sound, shown(report.findings)
    assert sum(one.aborts for one in report.partitions) > 5
    return root


def plant(root: Path, fault: Fault, chance: random.Random, taken: set[Path]) -> Planted | None:
    """Plants a fault in a segment without a fault in it or next to it; returns None if no segment is suitable."""
    logs = segments(root)
    free = [n for n in range(len(logs)) if not {*logs[max(n - 1, 0) : n + 2]} & taken]
    chance.shuffle(free)
    for number in free:
        planted = fault(Segment(logs[number], chance))
        if planted is not None:
            taken.add(logs[number])
            return planted
    return None


def misses(planted: list[Planted], found: list[Finding]) -> list[object]:
    """Returns the faults that were not found, and the findings without a fault."""
    unmatched: list[object] = [one for one in planted if not any(one.is_in(finding) for finding in found)]
    return unmatched + [finding for finding in found if not any(one.is_in(finding) for one in planted)]


@each("fault", FAULTS, strided=True)
def test_audit_single_fault_found_in_place(
    fault: Fault, sound: Path, tmp_path: Path, scaled: Callable[[int], int]
) -> None:
    done = 0
    for seed in range(scaled(6)):
        root = shutil.copytree(sound, tmp_path / str(seed))
        planted = plant(root, fault, random.Random(seed), set())
        assert planted is not None
        found = audited(root).findings
        assert misses([planted], found) == [], (seed, planted, shown(found))
        assert shown(found) == shown(verified(root)), seed
        done += 1
    assert done


def test_audit_several_faults_each_found(sound: Path, tmp_path: Path, scaled: Callable[[int], int]) -> None:
    for seed in range(scaled(30)):
        chance = random.Random(seed)
        root = shutil.copytree(sound, tmp_path / str(seed))
        taken: set[Path] = set()
        # A log without a known end leaves the checkpoints' claims about it open; a log with missing entries, the start
        # of a later transaction.
        others = [fault for fault in FAULTS if fault not in (lying_checkpoint, lying_epochs, abort_lying)]
        kinds = chance.sample(others, chance.randint(2, 5))
        planted = [one for one in (plant(root, fault, chance, taken) for fault in kinds) if one is not None]
        found = audited(root).findings
        names = [fault.__name__ for fault in kinds]
        assert misses(planted, found) == [], (seed, names, planted, shown(found))
        assert shown(found) == shown(verified(root)), seed


@pytest.mark.parametrize("name", ["duplicate", "gap", "old_epoch", "hanging"])
def test_audit_invalid_producer_sequences_found(name: str, tmp_path: Path, scaled: Callable[[int], int]) -> None:
    for seed in range(scaled(6)):
        story = Story(seed).run(random.Random(seed).randint(0, 60))
        getattr(story, f"plant_{name}")()
        story.run(30)
        root = write(tmp_path / str(seed), [story])
        found = audited(root).findings
        assert [(one.offset, one.part) for one in found] == [(story.planted_at[0][0], "producers")], (
            seed,
            shown(found),
        )
        assert story.planted_at[0][1] in found[0].what
        log = root / found[0].file
        assert found[0].byte in [found.position for found in Segment(log, random.Random()).facts]
        assert verified(root) == []


def test_audit_sequence_gap_after_missing_offsets_found(tmp_path: Path) -> None:
    """Only offsets between two batches of a producer can explain its gap."""
    story = Story(4).run(40)
    story.produce(2)
    story.plant_gap()
    story.run(10)
    root = write(tmp_path / "data", [story])
    planted = missing_batch(Segment(segments(root)[0], random.Random(1)))
    found = audited(root).findings
    assert [one.part for one in found] == ["log", "producers"] and planted.is_in(found[0])
    assert found[1].offset == story.planted_at[0][0]


def test_audit_producer_faults_with_other_faults(tmp_path: Path, scaled: Callable[[int], int]) -> None:
    for seed in range(scaled(6)):
        chance = random.Random(seed)
        story = Story(seed).run(25)
        kinds = chance.sample(["duplicate", "gap", "old_epoch", "hanging"], 3)
        for kind in kinds:
            getattr(story, f"plant_{kind}")()
            story.run(25)
        root = write(tmp_path / str(seed), [story, Story(seed + 1000).run(60)])
        other = plant(root, chance.choice(FAULTS[:6]), chance, set(root.glob("orders-0/*.log")))
        assert other is not None
        found = audited(root).findings
        offsets = sorted(one.offset or 0 for one in found if one.part == "producers")
        assert offsets == sorted(offset for offset, _ in story.planted_at), (seed, shown(found))
        assert misses([other], [one for one in found if one.part != "producers"]) == []


def test_audit_damaged_abort_marker_is_one_fault(sound: Path, tmp_path: Path) -> None:
    """The transaction index has the abort, and the log no longer does: a consequence of the damage."""
    chance, done = random.Random(1), 0
    for log in segments(sound):
        indexed = log.with_suffix(".txnindex")
        aborts = txn_index.parse(indexed.read_bytes()) if indexed.exists() else []
        for abort in aborts[:1]:
            done += 1
            root = shutil.copytree(sound, tmp_path / f"{done}")
            segment = Segment(root / log.relative_to(sound), chance)
            found = next(one for one in segment.facts if one.header.base_offset == abort.last_offset)
            segment.patch(found.position + found.size_bytes - 2, b"\xff")
            findings = audited(root).findings
            assert misses([segment.planted(found)], findings) == [], (log, shown(findings))
    assert done > 3


def test_audit_findings_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "FINDINGS_MAX", 5)
    monkeypatch.setattr(by_segment, "FINDINGS_MAX", 5)
    story = Story(1, transactions=False).run(5)
    for number in range(12):
        story.produce(5, 1, sequence=number * 10)
    root = write(tmp_path / "data", [story])
    found = audited(root).findings
    assert len(found) == 6 and found[-1].what.endswith("more findings like this are not listed")
    log = segments(root)[0]
    data = bytearray(log.read_bytes())
    entries = Segment(log, random.Random(1)).facts
    for entry in entries[:9]:
        data[entry.position + entry.size_bytes - 1] ^= 1
    log.write_bytes(data)
    findings = [one.what for one in audited(root).findings if one.part == "log"]
    assert len(findings) == 6 and findings[-1] == "4 more findings of this file are not listed"


def test_audit_record_count_above_offsets_found_in_header(sound: Path, tmp_path: Path) -> None:
    root = shutil.copytree(sound, tmp_path / "data")
    segment = Segment(segments(root)[3], random.Random(1))
    found = segment.pick()
    segment.rewritten(found, 57, ">i", found.record_count + 5)
    for records in (True, False):
        findings = audited(root, records=records).findings
        assert misses([segment.planted(found)], findings) == [], shown(findings)
        assert shown(findings) == shown(verified(root, records=records))
