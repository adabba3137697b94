"""The audit finds nothing in healthy directories: after any mixture of work, closed or killed, and in those of Kafka;
for damaged ones it reports the findings of `ottla verify`."""

from __future__ import annotations

import json
import random
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from ottla.pipeline.backend import ReadError
from ottla.pipeline.jobs.audit import report as report_module
from ottla.pipeline.jobs.audit.steps import Audit, run_here
from ottla.protocol.records import batch
from ottla.storage.follower_log import FollowerLog
from ottla.storage.io.files import DiskFiles
from ottla.storage.log_dir.directory import CLEAN_SHUTDOWN, DataDirectory
from ottla_testing import GOLDEN
from ottla_testing.pipeline.audit_samples import CONFIG, Story, audited, segments, shown, verified, write
from ottla_testing.storage.crash_world import Stop, World
from ottla_testing.storage.simulated_files import SimulatedFiles

RELEASES = ("2.8.2", "3.9.1", "4.3.1")
WRITTEN_BY_KAFKA = (
    *(f"directories/{release}{how}" for release in RELEASES for how in ("", "-killed")),
    "logs",
    "producers/2.8.2",
    "producers/3.9.1",
)


def on_disk(files: SimulatedFiles, root: Path) -> Path:
    """Writes the content of a simulated disk to a folder."""
    for path, content in files.contents.items():
        target = root / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(bytes(content.live))
    return next(path.parent for path in root.rglob("meta.properties"))


@pytest.mark.parametrize("name", WRITTEN_BY_KAFKA)
def test_audit_kafka_directory_is_sound(name: str) -> None:
    for records in (True, False):
        report = audited(GOLDEN / name, records=records)
        assert report.sound, shown(report.findings)
        assert report.exit_code == 0 and report.partitions
    if name in RELEASES or name == "directories/4.3.1":
        assert sum(len(one.open) for one in report.partitions) == 1


def test_audit_random_work_closed_or_killed_is_sound(tmp_path: Path, scaled: Callable[[int], int]) -> None:
    looked = 0
    for seed in range(scaled(12)):
        kept: list[Stop] = []

        def keep(stop: Stop, rng: random.Random, kept: list[Stop] = kept) -> None:
            if stop.powered and rng.random() < 0.15:
                kept.append(stop)

        world = World(seed, keep, operations=60)
        world.run()
        for number, files in enumerate([world.files, *(stop.disk for stop in kept[:2])]):
            if not any(path.endswith("meta.properties") for path in files.contents):
                continue
            root = on_disk(files, tmp_path / f"{seed}-{number}")
            if not any(root.rglob("*.log")):
                continue
            report = audited(root)
            assert report.sound, (seed, number, shown(report.findings))
            assert shown(verified(root, gaps=True)) == []
            looked += 1
    assert looked >= scaled(12)


WITHOUT_A_CLEANER = (
    "produce produce_idempotent produce_old produce_in_transaction commit_offsets end_transaction produce_big flush"
    " retain delete_records remove_files checkpoint save reopen upgrade create delete"
)


@pytest.mark.slow
def test_audit_without_cleaner_no_offset_missing(tmp_path: Path, scaled: Callable[[int], int]) -> None:
    """The topics' configs are known here, so every gap would be a finding."""
    looked = 0
    for seed in range(scaled(8)):
        world = World(seed, lambda stop, rng: None, operations=50, kinds=WITHOUT_A_CLEANER.split())
        world.run()
        if not any(path.endswith(".log") for path in world.files.contents):
            continue
        root = on_disk(world.files, tmp_path / str(seed))
        metadata = root / "__cluster_metadata-0"
        metadata.mkdir()
        (metadata / f"{0:020d}.log").touch()
        report = audited(root)
        assert report.sound, (seed, shown(report.findings))
        looked += sum(one.batches > 0 for one in report.partitions)
    assert looked


def test_audit_deleted_records_and_wrapped_sequence_are_sound(tmp_path: Path) -> None:
    story = Story(5).run(40)
    story.next[1] = 2**31 - 5  # the first batches of its epoch were deleted with everything before them
    story.epochs[1] = story.epochs.get(1, 0) + 1
    base = story.offset
    story.produce(1, 3, sequence=2**31 - 5)
    story.produce(1, 4)
    assert story.next[1] == 2
    story.run(30)
    root = write(tmp_path / "data", [story])
    assert [one.offset for one in audited(root).findings] == [base]
    directory = DataDirectory.open(DiskFiles(), root, node_id=1)
    directory.open_partition("orders", 0, config=CONFIG, now_ms=0).delete_records_before(base)
    directory.close()
    assert audited(root).findings == []


def test_audit_late_sequence_is_note_and_open_transaction_is_fact(tmp_path: Path) -> None:
    story = Story(1, transactions=False).run(10)
    at = story.offset
    story.produce(77, 2, sequence=40)
    story.produce(78, 2, transactional=True)
    report = audited(write(tmp_path / "data", [story]))
    assert report.sound
    assert [(one.offset, one.part) for one in report.notes] == [(at, "producers")]
    (facts,) = [one for one in report.partitions if one.topic == "orders"]
    assert [(one.producer_id, one.first_offset) for one in facts.open] == [(78, at + 2)]
    assert (facts.last_stable_offset, facts.end_offset) == (at + 2, at + 4)
    transactions = report.to_dict()["directories"][0]["partitions"][1]["transactions"]["open"][0]
    assert transactions["age_ms"] == 1_800_000_000_000 - transactions["since"]
    assert "producer 78 has a transaction open" in report.to_text() and report.to_text().endswith("no errors\n")


def test_audit_empty_batch_left_by_cleaner_is_no_transaction(tmp_path: Path) -> None:
    """The last batch of a producer, without records, whose marker was removed."""
    story = Story(1, transactions=False).run(3)
    emptied = batch.build(
        [],
        batch.BatchFields(last_offset_delta=2, producer_id=8, producer_epoch=0, base_sequence=0, transactional=True),
        base_offset=story.offset,
        leader_epoch=story.leader_epoch,
    )
    story.batches.append(bytes(emptied))
    story.offset += 3
    story.run(2)
    report = audited(write(tmp_path / "data", [story], metadata=False))
    assert report.sound, shown(report.findings)
    assert [one.open for one in report.partitions] == [[]]


def test_audit_facts_match_log(tmp_path: Path) -> None:
    story = Story(3).run(80)
    root = write(tmp_path / "data", [story])
    (facts,) = audited(root, topics=["orders"]).partitions
    assert (facts.batches, facts.end_offset, facts.first_offset) == (len(story.batches), story.offset, 0)
    assert (facts.records, facts.missing_offsets) == (story.offset, 0)
    assert (
        facts.bytes == sum(map(len, story.batches)) == sum(path.stat().st_size for path in root.glob("orders-0/*.log"))
    )
    assert facts.leader_epochs and facts.commits and facts.aborts


def test_audit_report_matches_documentation(tmp_path: Path) -> None:
    root = write(tmp_path / "data", [Story(3).run(80)])
    log = segments(root)[0]
    log.write_bytes(log.read_bytes()[:-1] + b"\xff")
    report = audited(root)
    transactions = json.loads(report.to_json())
    assert (transactions["sound"], transactions["records"], report.exit_code) == (False, True, 1)
    (finding,) = transactions["findings"]
    assert set(finding) == {"directory", "file", "byte", "offset", "part", "what"}
    assert finding["directory"] == str(root) and finding["file"] == f"orders-0/{log.name}"
    assert [directory["path"] for directory in transactions["directories"]] == [str(root)]
    words = {*re.findall(r"[a-z_]+", report_module.__doc__ or "")}
    for partition in transactions["directories"][0]["partitions"]:
        assert {*partition, *partition["transactions"], *transactions} <= words
    text = report.to_text()
    assert f"\n! orders-0/{log.name} at byte {finding['byte']}, offset {finding['offset']}: CRC " in text
    assert text.endswith("\n1 wrong: log 1\n")


def test_audit_directory_in_use_is_sound(tmp_path: Path) -> None:
    """The directory is open for writing and never faulty; partition folders can be named as well."""
    story = Story(9).run(60)
    directory = DataDirectory.open(DiskFiles(), tmp_path, node_id=1)
    log = directory.open_partition("orders", 0, topic_id=bytes(16), config=CONFIG, now_ms=0, kind=FollowerLog)
    assert isinstance(log, FollowerLog)
    for number, data in enumerate(story.batches):
        log.append_fetched(data, now_ms=0)
        if number % 7 == 0:
            report = audited(tmp_path)
            assert report.sound, shown(report.findings)
    named = Audit([str(tmp_path / "orders-0")]).report(now_ms=0)
    assert named.sound and len(named.partitions) == 1
    directory.close()


def test_audit_fault_in_directory_in_use_checked_twice(tmp_path: Path) -> None:
    """A finding is reported only if both checks have it."""
    root = write(tmp_path / "data", [Story(1).run(60), Story(2).run(60)])
    (root / CLEAN_SHUTDOWN).unlink()
    audit = Audit([str(root)])
    log = segments(root)[0]
    sound = log.read_bytes()
    log.write_bytes(sound[:100] + b"\xff" + sound[101:])
    other = next(path for path in segments(root) if path.parent != log.parent)
    other.write_bytes(other.read_bytes()[:100] + b"\xff" + other.read_bytes()[101:])
    looks = 0

    def mending(items):
        nonlocal looks
        yield from list(run_here(items))
        looks += 1
        log.write_bytes(sound[:-1] + b"\xff")

    found = audit.report(mending, now_ms=0).findings
    assert looks == 2
    assert {one.file for one in found} == {f"{other.parent.name}/{other.name}"}


def test_audit_partition_deleted_meanwhile_is_no_fault(tmp_path: Path) -> None:
    root = write(tmp_path / "data", [Story(1).run(60), Story(2).run(60)])
    (root / CLEAN_SHUTDOWN).unlink()
    audit = Audit([str(root)])
    shutil.rmtree(root / "orders-1")
    report = audit.report(now_ms=0)
    assert report.sound and len(report.partitions) == 2


def test_audit_invalid_path_or_topic_raises(tmp_path: Path) -> None:
    with pytest.raises(ReadError):
        Audit([str(tmp_path / "nowhere")])
    with pytest.raises(ReadError, match="no data directory"):
        Audit([str(tmp_path)])
    root = write(tmp_path / "data", [Story(1).run(5)])
    with pytest.raises(ReadError, match="there is no topic absent"):
        Audit([str(root)], topics=["orders", "absent"])
