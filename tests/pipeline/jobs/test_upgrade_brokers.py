"""Upgraded directories at a broker of release 4.0: directories of Apache Kafka 2.8.2, and directories that Ottla wrote
at releases with the old formats, as old clients encode them."""

from __future__ import annotations

import shutil
from pathlib import Path

from kafka.record.legacy_records import LegacyRecordBatchBuilder

from ottla.pipeline.jobs.in_place.directory_hold import held
from ottla.pipeline.jobs.upgrade.report import UpgradeReport
from ottla.pipeline.jobs.upgrade.steps import Upgrade
from ottla.protocol.records import batch, formats
from ottla_testing import GOLDEN
from ottla_testing.broker.forced_upgrades import committed, committing_to
from ottla_testing.broker.harness import Client, fetch, only, produce, running
from ottla_testing.each import each
from ottla_testing.oracle.stored_directories import stored
from ottla_testing.pipeline.audit_samples import audited, shown, verified
from ottla_testing.pipeline.upgrade_samples import contents, magics, rows

Row = tuple[int, bytes | None, bytes | None, int]


def upgraded(root: Path) -> UpgradeReport:
    with held(root) as directory:
        job = Upgrade([directory])
        job.look()
        job.check_space(2)
        return job.run()


async def consumed(client: Client, topic: str, end: int) -> list[Row]:
    """Returns the rows of a current consumer, fetch by fetch."""
    found: list[Row] = []
    offset = 0
    while offset < end:
        response = only(await client.call(fetch((topic, 0, offset), partition_max_bytes=900), 12))
        assert response.error_code == 0 and response.high_watermark == end
        for position, header in formats.headers(response.records):
            assert batch.crc_matches(response.records, position, header)
            records = batch.records(response.records, position)
            found += [(r.offset, r.key, r.value, r.timestamp) for r in records if r.offset >= offset]
            offset = header.next_offset
    return found


async def test_upgraded_kafka_2_8_directory_opens_at_4_0(tmp_path: Path):
    root = shutil.copytree(GOLDEN / "directories" / "2.8.2", tmp_path / "data")
    before, findings = contents(root), verified(root, gaps=True)
    expected = {topic: rows(root / f"{topic}-0") for topic in ("old-v0", "old-v1", "codecs")}
    report = upgraded(root)
    assert set(report.topics) == {"old-v0", "old-v1"} and magics(root) == {2}
    assert {topic: rows(root / f"{topic}-0") for topic in expected} == expected
    after = contents(root)
    changed = {name for name in before if after[name] != before[name]}
    assert {name.split("/")[0] for name in changed} == {"old-v0-0", "old-v1-0"}
    assert {name.rpartition(".")[2] for name in changed} == {"log", "index", "timeindex"}
    assert all(after[name][1] == before[name][1] for name in changed if name.endswith(".log"))
    assert set(after) - set(before) == {".lock"}
    assert verified(root, gaps=True) == findings == [] and shown(audited(root).findings) == []
    assert magics(root) == {2}
    async with running(root, release="4.0", overrides={"node.id": "1"}) as broker:
        client = await broker.client()
        for topic in ("old-v0", "old-v1"):
            stored_log = stored("2.8.2")[topic]
            assert broker.log(topic).cut_bytes == 0
            assert await consumed(client, topic, stored_log.high_watermark) == expected[topic]
            assert expected[topic] == [
                (offset, key, value, time) for offset, _, time, key, value, _ in stored_log.records
            ]


def test_upgraded_kafka_logs_keep_records(tmp_path: Path):
    root = tmp_path / "data"
    shutil.copytree(GOLDEN / "logs", root)
    (root / ".kafka_cleanshutdown").touch()
    folders = sorted(root.glob("*-0"))
    expected = {path: rows(path) for path in folders}
    old = {
        path
        for path in folders
        for log in path.glob("*.log")
        if any(header.magic < 2 for _, header in formats.headers(log.read_bytes()))
    }
    assert len(old) > 10
    report = upgraded(root)
    assert {f"{topic}-0" for topic in report.topics} == {path.name for path in old}
    assert magics(root) == {2} and {path: rows(path) for path in folders} == expected
    assert [one for one in verified(root, gaps=True) if "checkpoint" not in one.file] == []


# The format that the client of each release is stored in, by its version of Produce.
RELEASES = {
    "0.9": (1, 0, {}),
    "0.10.2": (2, 1, {}),
    "0.11": (2, 1, {"log.message.format.version": "0.10.2"}),
    "2.8": (2, 0, {"log.message.format.version": "0.9.0"}),
}


@each("release", RELEASES, strided=True)
async def test_upgraded_directory_of_old_release_opens_at_4_0(release: str, tmp_path: Path):
    version, magic, overrides = RELEASES[release]
    root = tmp_path / "data"
    expected: list[Row] = []
    async with running(root, release=release, overrides=overrides) as broker:
        await broker.topic("t", configs={"segment.bytes": "1200", "index.interval.bytes": "100"})
        client = await broker.client()
        for number in range(24):
            builder = LegacyRecordBatchBuilder(magic=magic, compression_type=number % 4, batch_size=1 << 20)
            for at in range(5):
                time = 1_700_000_000_000 + 10 * number + (0, 3, 1, 2, 4)[at]
                row = (None if at == 2 else b"k%d" % at, None if at == 4 else b"value %d " % number * at, time)
                builder.append(at, row[2], row[0], row[1])
                expected.append((5 * number + at, row[0], row[1], time if magic else -1))
            assert only(await client.call(produce(builder.build()), version)).error_code == 0
        assert only(await client.call(committing_to("t"), 2)).error_code == 0
    assert min(magics(root)) == magic
    report = upgraded(root)
    assert report.topics["t"].segments > 3 and report.topics["t"].records == len(expected)
    assert "__consumer_offsets" in report.topics
    assert magics(root) == {2} and verified(root) == [] and shown(audited(root).findings) == []
    async with running(root, release="4.0") as broker:
        client = await broker.client()
        assert await consumed(client, "t", len(expected)) == expected
        assert await committed(client) == 7
        assert broker.log("t").cut_bytes == 0
        assert only(await client.call(produce(batch.build([batch.Record(0, 5, None, b"new")])), 9)).base_offset == 120
    assert verified(root) == []
