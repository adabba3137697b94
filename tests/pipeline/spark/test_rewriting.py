"""Work in place through Spark."""

from __future__ import annotations

from pathlib import Path

import pytest
from audit_samples import audited, verified
from pyspark.sql import SparkSession
from upgrade_samples import contents, magics, old_directory, rows

import ottla.pipeline
from ottla.pipeline.backend import ReadError
from ottla.pipeline.jobs.running import JobError, Progress
from ottla.pipeline.rewriting.holding import held


def test_upgrade_in_place(spark: SparkSession, tmp_path: Path):
    """Several directories at once; a segment that is damaged stays as it is, the others are done."""
    roots = [
        old_directory(tmp_path / "a", {"orders": 2, "__consumer_offsets": 1}),
        old_directory(tmp_path / "b", {"payments": 1}),
    ]
    folders = [path for root in roots for path in sorted(root.glob("*-*")) if path.is_dir()]
    expected = {path: rows(path) for path in folders}
    paths = [str(root) for root in roots]
    before = [contents(root) for root in roots]
    told: list[str] = []
    planned = ottla.pipeline.upgrade(spark, paths, dry_run=True, tell=told.append)
    assert [contents(root) for root in roots] == before and planned.planned
    assert planned.total().segments == 12 and "12 of 12 segments hold messages" in told[0] and len(told) == 3
    with held(paths[1]), pytest.raises(ReadError, match="is in use"):
        ottla.pipeline.upgrade(spark, paths)

    log = min((tmp_path / "a" / "orders-1").glob("*.log"))
    sound = log.read_bytes()
    log.write_bytes(sound[:20] + bytes([sound[20] ^ 1]) + sound[21:])
    with pytest.raises(JobError, match=f"^{log}: {log} at byte 0: "):
        ottla.pipeline.upgrade(spark, paths, topics=["orders", "payments"])
    assert log.read_bytes()[21:] == sound[21:] and not list(tmp_path.rglob("*upgraded*"))
    log.write_bytes(sound)

    heard: list[Progress] = []
    report = ottla.pipeline.upgrade(spark, paths, say=heard.append)
    assert magics(tmp_path / "a") == magics(tmp_path / "b") == {2}
    assert {path: rows(path) for path in folders} == expected
    assert heard[-1].ended and heard[-1].items == heard[-1].all_items == report.total().segments
    assert set(report.topics) <= {"orders", "payments", "__consumer_offsets"} and report.total().records > 300
    for root in roots:
        assert not list(root.rglob("*upgraded*")) and verified(root) == [] and not audited(root).findings
    assert ottla.pipeline.upgrade(spark, paths).topics == {}
