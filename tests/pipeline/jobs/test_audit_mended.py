"""The audit of repaired directories: they are sound, and lost records show as missing offsets."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from ottla_testing.pipeline.audit_samples import (
    Fault,
    Segment,
    Story,
    audited,
    flip,
    missing_batch,
    missing_segment,
    segments,
    shown,
    write,
)
from ottla_testing.storage.repairing import repair


@pytest.mark.parametrize("skip", [False, True])
@pytest.mark.parametrize("fault", [flip, missing_batch, missing_segment])
def test_audit_after_repair_is_sound(fault: Fault, skip: bool, tmp_path: Path, scaled: Callable[[int], int]) -> None:
    """A repair puts an empty batch in the place of lost records, whose sequences and offsets are missing."""
    changed = 0
    for seed in range(scaled(3)):
        root = write(tmp_path / str(seed), [Story(seed).run(60)])
        chance = random.Random(seed)
        planted = fault(Segment(chance.choice(segments(root)), chance))
        if planted is None:
            continue
        assert not audited(root).sound
        repair(root, skip=skip)
        report = audited(root)
        assert report.sound, (seed, shown(report.findings))
        changed += sum(one.missing_offsets for one in report.partitions)
        shutil.rmtree(root)
    assert changed or not skip


@pytest.mark.parametrize("number", [0, 1, 2, -1])
def test_audit_missing_first_batch_is_one_fault(number: int, tmp_path: Path, scaled: Callable[[int], int]) -> None:
    """The findings of the indexes are part of it."""
    for seed in range(scaled(3)):
        story = Story(seed, transactions=False)
        for _ in range(60):
            story.add()
        segment = Segment(segments(write(tmp_path / str(seed), [story]))[number], random.Random(seed))
        first = segment.facts[0]
        segment.log.write_bytes(segment.log.read_bytes()[first.size_bytes :])
        (finding,) = audited(tmp_path / str(seed)).findings
        assert segment.planted(first, first.header.next_offset).is_in(finding)
