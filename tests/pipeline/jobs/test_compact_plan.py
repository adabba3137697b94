"""The topics and settings of a compaction, refusals, and the report."""

# pyright: reportAttributeAccessIssue=false
from __future__ import annotations

import json
import random
import re
from pathlib import Path

import pytest

from ottla.pipeline.backend import ReadError
from ottla.pipeline.jobs.compact.configs import CompactSettings, Release, Settings, compacted_topics, settings_of
from ottla.pipeline.jobs.compact.report import report_of
from ottla.pipeline.jobs.compact.steps import Outcome, PartitionPlan, plan_partition
from ottla.pipeline.jobs.in_place.directory_hold import held
from ottla.protocol.records import batch, formats
from ottla.protocol.records.batch import Record
from ottla.storage.config import LogConfig
from ottla.storage.format import checkpoint
from ottla.storage.io.files import DiskFiles
from ottla.storage.log.recovery import LogCheckpoints
from ottla.storage.log_dir.directory import DataDirectory
from ottla.storage.partition_log import PartitionLog, TopicIdPartition
from ottla_testing.pipeline.compacting_here import (
    FOLDER,
    ROOT,
    RandomLog,
    SimulatedFiles,
    close,
    compact_here,
    contents,
)

DAY_MS = 24 * 3600 * 1000
NOW = 10 * DAY_MS
COMPACT = {"cleanup.policy": "compact,delete"}
THERE = ["orders", "users", "__consumer_offsets", "__cluster_metadata"]


def test_topics_compacted_by_policy_and_internal_always() -> None:
    configs = {"users": COMPACT | {"segment.bytes": "2000"}, "orders": {"cleanup.policy": "delete"}}
    found = compacted_topics(THERE, configs, {"orders"}, CompactSettings())
    assert list(found) == ["__consumer_offsets", "users"]
    assert found["users"] == Settings(segment_bytes=2000)
    assert found["__consumer_offsets"] == Settings(segment_bytes=100 << 20)
    # Without the metadata log, the cleaner's checkpoint decides.
    assert list(compacted_topics(THERE, None, {"orders"}, CompactSettings())) == ["__consumer_offsets", "orders"]
    assert list(compacted_topics(THERE, configs, (), CompactSettings(topics=["users"]))) == ["users"]
    assert list(compacted_topics(THERE, configs, (), CompactSettings(like="__.*"))) == ["__consumer_offsets"]


def test_topic_without_compact_policy_needs_force() -> None:
    configs = {"users": COMPACT}
    with pytest.raises(ReadError, match=r"orders is not compacted, by its cleanup\.policy: force drops"):
        compacted_topics(THERE, configs, {"orders"}, CompactSettings(topics=["orders", "users"]))
    with pytest.raises(ReadError, match="according to the cleaner's checkpoint"):
        compacted_topics(THERE, None, (), CompactSettings(topics=["orders"]))
    assert list(compacted_topics(THERE, configs, (), CompactSettings(topics=["orders"], force=True))) == ["orders"]
    with pytest.raises(ReadError, match="there is no topic missing"):
        compacted_topics(THERE, configs, (), CompactSettings(topics=["missing"], force=True))
    with pytest.raises(ReadError, match="it has snapshots instead"):
        compacted_topics(THERE, configs, (), CompactSettings(topics=["__cluster_metadata"], force=True))


def test_settings_precedence_topic_caller_kafka() -> None:
    configs = {"users": {"delete.retention.ms": "7"}}
    given = {"delete.retention.ms": "8", "min.compaction.lag.ms": "9", "segment.bytes": "10000"}
    assert settings_of("users", configs, given) == Settings(10000, delete_retention_ms=7, min_compaction_lag_ms=9)
    assert settings_of("__transaction_state", None, given).segment_bytes == 10000
    assert settings_of("orders", configs, {}) == Settings()
    internal = {"users": {"segment.bytes": "1048576", "internal.segment.bytes": "2000"}}
    assert settings_of("users", internal, given).segment_bytes == 2000
    for name, value in (("segment.bytes", "1"), ("delete.retention.ms", "-1"), ("index.interval.bytes", "many")):
        with pytest.raises(ReadError, match=f"topic users: {name}={value}"):
            settings_of("users", {"users": {name: value}}, {})
    with pytest.raises(ReadError, match=r"retention\.ms has no effect on a compaction: use segment\.bytes"):
        compacted_topics(THERE, None, (), CompactSettings(configs={"retention.ms": "1"}))


def directory(root: Path, *, times: tuple[int, ...] = (1, 1, 1, 1)) -> None:
    """Writes a closed directory with a segment for each of these days, and the active one."""
    made = DataDirectory.open(DiskFiles(), root, node_id=1)
    log = made.open_partition("users", 0, config=LogConfig(segment_bytes=300), now_ms=0)
    for number, day in enumerate((*times, 1)):
        records = [Record(n, day * DAY_MS + n, b"k%d" % n, b"%d" % number + bytes(60)) for n in range(3)]
        log.append(batch.build(records), now_ms=0)
    assert len(log.segments) == len(times) + 1
    made.close()


def planned(root: Path, settings: Settings | None = None, **more: float) -> PartitionPlan:
    with held(root) as holding:
        return plan_partition(holding, "users", 0, settings or Settings(), now_ms=NOW, **more)  # type: ignore[arg-type]


def test_plan_ends_before_uncleanable_records(tmp_path: Path) -> None:
    """The last stable offset, the high watermark of a replica, and min.compaction.lag.ms bound the range."""
    directory(tmp_path, times=(1, 1, 9, 1))
    plan = planned(tmp_path)
    assert plan.task.end_offset == 12 and plan.task.first_dirty_offset == 0 and len(plan.groups) == 1
    plan = planned(tmp_path, Settings(min_compaction_lag_ms=2 * DAY_MS))
    assert plan.task.end_offset == 6
    plan = planned(tmp_path, min_dirty_ratio=1.0)
    assert plan.groups == []
    path = str(tmp_path / checkpoint.REPLICATION_OFFSET)
    checkpoint.write_offsets(DiskFiles(), path, {("users", 0): 10})
    plan = planned(tmp_path)
    assert plan.task.end_offset == 9
    path = str(tmp_path / checkpoint.CLEANER_OFFSET)
    checkpoint.write_offsets(DiskFiles(), path, {("users", 0): 6})
    plan = planned(tmp_path)
    assert plan.task.first_dirty_offset == 6 and plan.dirty.clean_bytes > 0


def test_compact_directory_on_disk_and_report(tmp_path: Path) -> None:
    directory(tmp_path)
    with held(tmp_path) as holding:
        plan = plan_partition(holding, "users", 0, Settings(), now_ms=NOW, release=Release(keep_empty_at_end=False))
        outcomes = compact_here(holding.files, [plan])
        with pytest.raises(ReadError, match="in use"), held(tmp_path):
            pass
    assert outcomes[0].records_before == 12 and outcomes[0].records_after == 3
    assert checkpoint.read_offsets(DiskFiles(), str(tmp_path / checkpoint.CLEANER_OFFSET)) == {("users", 0): 12}
    log = PartitionLog.open(
        DiskFiles(),
        tmp_path / "users-0",
        TopicIdPartition("users", 0),
        config=LogConfig(),
        now_ms=0,
        checkpoints=LogCheckpoints(clean_shutdown=True),
    )
    assert [header.base_offset for _, header in formats.headers(bytes(log.read(0, 1 << 20).records))] == [9]
    log.close()
    report = report_of([str(tmp_path)], ["empty", "users"], [plan], outcomes)
    found = json.loads(report.to_json())
    assert found["topics"][1]["segments"] == {"before": 5, "after": 2}
    assert found["topics"][1]["records"] == {"before": 12, "after": 3}
    assert found["topics"][1]["bytes"]["before"] - found["topics"][1]["bytes"]["after"] == 3 * plan.bytes // 5
    text = report.to_text()
    assert "users: 1 of 1 partitions compacted: 12 -> 3 records (0 -> 0 tombstones), 5 -> 2 segments" in text
    assert "empty: 0 partitions, nothing to compact" in text
    report = report_of([], ["users"], [plan], [Outcome(plan.segments, plan.bytes)])
    report.dry_run = True
    assert "users: 1 of 1 partitions would be compacted" in report.to_text()
    assert json.loads(report.to_json())["topics"][0]["records"] == {"before": None, "after": None}


def test_compact_damaged_partition_left_unchanged() -> None:
    rng = random.Random(1)
    for _ in range(5):
        files, log = SimulatedFiles(), RandomLog(rng)
        log.segment(6)
        log.segment(2, closing=True)
        log.segment(1)
        log.lay(files)
        close(files)
        path = f"{FOLDER}/{log.laid[0].base_offset:020d}.log"
        data = bytearray(files.read_bytes(path))
        data[rng.randrange(17, len(data))] ^= 1
        file = files.open(path)
        file.write(0, data)
        file.sync()
        with held(ROOT, files=files) as holding:
            plan = plan_partition(holding, "orders", 0, Settings(), now_ms=NOW)
            before = contents(files)
            (outcome,) = compact_here(files, [plan])
            assert contents(files) == before and not outcome.done
            assert outcome.problem is not None
            assert re.match(rf"orders-0: {re.escape(path)}, in the window from byte \d+: ", outcome.problem)
    report = report_of([], ["orders"], [plan], [outcome], [("orders", "orders-1 cannot be compacted: it is gone")])
    assert report.problems == ["orders-1 cannot be compacted: it is gone", outcome.problem]
    assert report.to_text().startswith(
        "left unchanged: orders-1 cannot be compacted: it is gone\nleft unchanged: orders-0"
    )
    assert report.topics[0].compacted == 0 and report.topics[0].partitions == 2
