"""Work in place through Spark."""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import ottla.pipeline
from ottla.pipeline.backend import ReadError
from ottla.pipeline.jobs.compact.configs import CompactSettings, Settings
from ottla.pipeline.jobs.compact.job import compact
from ottla.pipeline.jobs.in_place.directory_hold import held
from ottla.pipeline.jobs.spark_tasks import JobError, Progress
from ottla.storage.format.checkpoint import CLEANER_OFFSET, read_offsets
from ottla.storage.io.files import DiskFiles
from ottla_testing.pipeline.audit_samples import audited, verified
from ottla_testing.pipeline.compacting_here import RandomLog, SimulatedFiles, clean_as_a_broker, disk_contents, on_disk  # type: ignore
from ottla_testing.pipeline.upgrade_samples import contents, magics, old_directory, rows


def test_upgrade_in_place(spark: SparkSession, tmp_path: Path):
    """Several directories at once; a damaged segment stays unchanged, the others are upgraded."""
    roots = [
        old_directory(tmp_path / "a", {"orders": 2, "__consumer_offsets": 1}),
        old_directory(tmp_path / "b", {"payments": 1}),
    ]
    folders = [path for root in roots for path in sorted(root.glob("*-*")) if path.is_dir()]
    expected = {path: rows(path) for path in folders}
    paths = [str(root) for root in roots]
    before = [contents(root) for root in roots]
    plan_lines: list[str] = []
    planned = ottla.pipeline.upgrade(spark, paths, dry_run=True, on_plan=plan_lines.append)
    assert [contents(root) for root in roots] == before and planned.planned
    assert (
        planned.total().segments == 12 and "12 of 12 segments have messages" in plan_lines[0] and len(plan_lines) == 3
    )
    with held(paths[1]), pytest.raises(ReadError, match="is in use"):
        ottla.pipeline.upgrade(spark, paths)

    log = min((tmp_path / "a" / "orders-1").glob("*.log"))
    sound = log.read_bytes()
    log.write_bytes(sound[:20] + bytes([sound[20] ^ 1]) + sound[21:])
    with pytest.raises(JobError, match=f"^{log}: at byte 0: "):
        ottla.pipeline.upgrade(spark, paths, topics=["orders", "payments"])
    assert log.read_bytes()[21:] == sound[21:] and not list(tmp_path.rglob("*upgraded*"))
    log.write_bytes(sound)

    heard: list[Progress] = []
    report = ottla.pipeline.upgrade(spark, paths, on_progress=heard.append)
    assert magics(tmp_path / "a") == magics(tmp_path / "b") == {2}
    assert {path: rows(path) for path in folders} == expected
    assert heard[-1].ended and heard[-1].items == heard[-1].all_items == report.total().segments
    assert set(report.topics) <= {"orders", "payments", "__consumer_offsets"} and report.total().records > 300
    for root in roots:
        assert not list(root.rglob("*upgraded*")) and verified(root) == []
        # The records in __consumer_offsets are not those of groups, which the audit reports.
        assert not [one for one in audited(root).findings if not one.file.startswith("__consumer_offsets-0/")]
    assert ottla.pipeline.upgrade(spark, paths).topics == {}


def test_compact_in_place(spark: SparkSession, tmp_path: Path):
    """Several directories at once get the result of the broker's cleaner on copies; a damaged segment is left alone."""
    rng, now_ms = random.Random(5), 10_000
    places = [("a", "__consumer_offsets", 0), ("a", "orders", 0), ("b", "orders", 1), ("b", "users", 0)]
    settings = Settings(segment_bytes=2000, delete_retention_ms=500)
    ends: dict[tuple[str, int], int] = {}
    for name, topic, partition in places:
        files, log = SimulatedFiles(), RandomLog(rng, 30)
        for batches in (20, 20, 0):
            log.segment(batches, closing=True)
        log.segment(1)
        log.lay(files)
        on_disk(files, tmp_path / name / f"{topic}-{partition}")
        ends[topic, partition] = log.end_offset
    roots = [str(tmp_path / "a"), str(tmp_path / "b")]
    shutil.copytree(tmp_path / "b", tmp_path / "copy" / "b")
    shutil.copytree(tmp_path / "a", tmp_path / "copy" / "a")
    for name, topic, partition in places:
        clean_as_a_broker(tmp_path / "copy" / name, topic, partition, settings, now_ms)
    before = [disk_contents(tmp_path / name / f"{topic}-{partition}") for name, topic, partition in places]

    # Without metadata, the caller names the topics to compact.
    configs = {"segment.bytes": "2000", "delete.retention.ms": "500"}
    named = CompactSettings(topics=["orders", "__consumer_offsets"], force=True, configs=configs, now_ms=now_ms)
    with pytest.raises(ReadError, match="topic orders is not compacted"):
        compact(spark, roots, CompactSettings(topics=["orders"]))
    plan_lines: list[str] = []
    planned = compact(spark, roots, named, dry_run=True, on_plan=plan_lines.append)
    assert planned.dry_run and len(plan_lines) == 4 and planned.topics[1].compacted == 2
    assert [disk_contents(tmp_path / name / f"{topic}-{partition}") for name, topic, partition in places] == before
    with held(roots[1]), pytest.raises(ReadError, match="is in use"):
        compact(spark, roots, named)

    damaged = max((tmp_path / "b" / "orders-1").glob("*.log"), key=lambda path: path.stat().st_size)
    sound, modified_ns = damaged.read_bytes(), damaged.stat().st_mtime_ns
    damaged.write_bytes(sound[:-1] + bytes([sound[-1] ^ 1]))
    heard: list[Progress] = []
    report = compact(spark, roots, named, on_progress=heard.append)
    assert heard[-1].ended and heard[-1].items == heard[-1].all_items > 0
    assert [topic.topic for topic in report.topics] == ["__consumer_offsets", "orders"]
    assert all(0 < topic.records_after < topic.records_before for topic in report.topics)
    assert len(report.problems) == 1 and report.problems[0].startswith(f"orders-1: {damaged}, in the window")
    damaged.write_bytes(sound)
    os.utime(damaged, ns=(modified_ns, modified_ns))
    assert disk_contents(tmp_path / "b" / "orders-1") == before[2]
    report = compact(spark, roots, named)
    assert [topic.compacted for topic in report.topics] == [0, 1] and not report.problems
    for (name, topic, partition), untouched in zip(places, before, strict=True):
        found = disk_contents(tmp_path / name / f"{topic}-{partition}")
        if topic == "users":
            assert found == untouched
        else:
            assert found == disk_contents(tmp_path / "copy" / name / f"{topic}-{partition}")
    assert read_offsets(DiskFiles(), f"{roots[1]}/{CLEANER_OFFSET}") == {("orders", 1): ends["orders", 1]}
    assert not any(topic.compacted for topic in compact(spark, roots, CompactSettings(configs=configs)).topics)
