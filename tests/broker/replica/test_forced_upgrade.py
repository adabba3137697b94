"""`log.record.version.force.upgrade=2`: a start converts all partitions to v2, or prints one line with the reason why
not.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from ottla.broker.clock import ManualClock
from ottla.broker.config.serve_options import StartupError
from ottla.broker.logs import get_logger
from ottla.broker.metadata.topics import GROUP_OFFSETS_TOPIC
from ottla.broker.replica.forced_upgrade import REPORT_MS, ForcedUpgrade
from ottla.protocol.records import batch, formats, legacy
from ottla.storage.log.upgrade import UpgradeProgress
from ottla_testing.broker.forced_upgrades import FORCED, Row, committed, committing_to, magics, old_log, put_log
from ottla_testing.broker.harness import COMMAND, Client, fetch, only, process, produce, records, running
from ottla_testing.patience import PATIENCE_S


async def all_rows(client: Client, topic: str, end: int, version: int) -> list[Row]:
    """The records of all fetches; nothing is repeated or out of order."""
    rows: list[Row] = []
    offset = 0
    while offset < end:
        response = only(await client.call(fetch((topic, 0, offset), partition_max_bytes=400), version))
        assert response.error_code == 0 and response.high_watermark == end
        for position, header in formats.headers(response.records):
            assert header.magic == 2 and batch.crc_matches(response.records, position, header)
            found = list(batch.records(response.records, position))
            rows += [(r.offset, r.key, r.value, r.timestamp) for r in found if r.offset >= offset]
            offset = header.next_offset
    return rows


async def old_directory(folder: Path) -> list[Row]:
    """A closed data directory: topic t with an old log, u with a new one, and old offsets of a group."""
    async with running(folder) as broker:
        await broker.topic("t")
        await broker.topic("u")
        client = await broker.client()
        assert only(await client.call(produce(records(b"a"), "u"), 9)).error_code == 0
        assert only(await client.call(committing_to("t"), 2)).error_code == 0
    data, rows = old_log()
    put_log(folder / "t-0", data)
    for path in folder.glob(f"{GROUP_OFFSETS_TOPIC}-*/{0:020d}.log"):
        found = [
            r for position, _ in formats.headers(path.read_bytes()) for r in batch.records(path.read_bytes(), position)
        ]
        put_log(path.parent, bytes(legacy.build(found, magic=1)))
    (folder / ".ottla-closed").unlink()  # as another owner leaves the directory
    return rows


async def test_upgrade_keeps_records_offsets_and_groups_in_v2(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    rows = await old_directory(folder)
    assert magics(folder) == {0, 1, 2}
    untouched = (folder / "u-0" / f"{0:020d}.log").stat()
    async with running(folder, overrides=FORCED) as broker:
        assert magics(folder) == {2}
        client = await broker.client()
        for version in (4, 11, 12):
            assert await all_rows(client, "t", 36, version) == rows
        assert await committed(client) == 7
        assert only(await client.call(produce(records(b"new"), "t"), 9)).base_offset == 36
    assert (folder / "u-0" / f"{0:020d}.log").stat() == untouched
    async with running(folder) as broker:  # the option is no longer needed
        client = await broker.client()
        assert (await all_rows(client, "t", 37, 4))[:-1] == rows
        assert await committed(client) == 7


async def test_upgrade_covers_all_data_directories_after_a_crash(tmp_path: Path) -> None:
    folders = [tmp_path / "a", tmp_path / "b"]
    data, rows = old_log()
    async with running(*folders) as broker:
        await broker.topic("t", partitions=4)
    placed = [path for folder in folders for path in folder.glob("t-*")]
    assert {path.parent for path in placed} == set(folders)
    for path in placed:
        put_log(path, data + b"torn")
    for folder in folders:
        (folder / ".kafka_cleanshutdown").unlink()
    async with running(*folders, overrides=FORCED) as broker:
        client = await broker.client()
        assert magics(*folders) == {2}
        for index in range(4):
            assert broker.log("t", index).log_end_offset == 36
        assert await all_rows(client, "t", 36, 12) == rows


def lines(error: str, text: str) -> list[str]:
    return [line for line in error.splitlines() if text in line]


@pytest.mark.process
async def test_upgrade_logs_its_progress_and_a_second_start_does_nothing(tmp_path: Path) -> None:
    await old_directory(tmp_path / "data")
    option = ("--override", "log.record.version.force.upgrade=2", "--log-format", "json")
    for _ in range(2):
        with process(tmp_path, *option) as broker:
            assert broker.end() == 0
    error = broker.error
    changed = lines(error, '"partition upgraded to v2"')
    assert len(changed) == 2  # of t and of one partition of the groups, in the first start only
    (of_t,) = lines(error, '"partition": "t-0"')
    assert '"records": 21' in of_t and '"of": 4' in of_t and '"number": ' in of_t and '"written_bytes": ' in of_t
    first, second = lines(error, '"all partitions hold v2 only"')
    assert '"partitions": 4, "upgraded": 2, "segments": 2, "records": 22, ' in first
    assert '"partitions": 4, "upgraded": 0, "segments": 0, "records": 0, ' in second


def serve(folder: Path, *overrides: str) -> subprocess.CompletedProcess[str]:
    flags = [flag for override in overrides for flag in ("--override", override)]
    command = [*COMMAND, "--listen", "127.0.0.1:0", "--data-dir", str(folder), *flags]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, cwd=folder.parent)


@pytest.mark.process
async def test_upgrade_damaged_message_refuses_the_start_with_one_line(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    rows = await old_directory(folder)
    log = folder / "t-0" / f"{0:020d}.log"
    data = bytearray(log.read_bytes())
    data[27] ^= 1
    log.write_bytes(data)
    ended = serve(folder, "log.record.version.force.upgrade=2")
    assert ended.returncode == 2 and ended.stdout == ""
    (line,) = lines(ended.stderr, "ottla serve: ")
    assert line.startswith(f"ottla serve: cannot upgrade {log.parent} to message format v2: {log} at byte 0: ")
    assert ended.stderr.endswith(line + "\n") and "Traceback" not in ended.stderr
    assert log.read_bytes() == data and not list(log.parent.glob("*.cleaned"))
    data[27] ^= 1
    log.write_bytes(data)
    async with running(folder, overrides=FORCED) as broker:
        assert await all_rows(await broker.client(), "t", 36, 4) == rows


async def test_upgrade_on_a_full_disk_refuses_the_start_and_keeps_the_segment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "data"
    rows = await old_directory(folder)
    before = (folder / "t-0" / f"{0:020d}.log").read_bytes()

    def full(fd: int, data: Any, position: int) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("ottla.storage.io.files.os.pwrite", full)
        with pytest.raises(StartupError, match=r"cannot .*No space left on device"):
            async with running(folder, overrides=FORCED):
                pass
    assert (folder / "t-0" / f"{0:020d}.log").read_bytes() == before
    async with running(folder, overrides=FORCED) as broker:
        assert await all_rows(await broker.client(), "t", 36, 4) == rows


@pytest.mark.process
@pytest.mark.parametrize("protocol", ["2.8", "0.11.0", "2.8-IV1"])
async def test_upgrade_needs_inter_broker_protocol_3(tmp_path: Path, protocol: str) -> None:
    folder = tmp_path / "data"
    await old_directory(folder)
    before = (folder / "t-0" / f"{0:020d}.log").read_bytes()
    ended = serve(folder, "log.record.version.force.upgrade=2", f"inter.broker.protocol.version={protocol}")
    assert ended.returncode == 2 and ended.stdout == ""
    assert ended.stderr.count("\n") == 1 and "inter.broker.protocol.version 3.0 or later" in ended.stderr
    assert (folder / "t-0" / f"{0:020d}.log").read_bytes() == before


# Runs the broker, which sends itself a signal when the upgrade has come this far; argv: ..., signal, position.
STOPPED = """
import os, sys
from ottla.broker.replica import forced_upgrade
from ottla.storage.compaction import rewrite
from ottla.tools import main
number, at = int(sys.argv.pop()), int(sys.argv.pop())
rewrite._WRITE_BYTES = 1
watch, reports = forced_upgrade.ForcedUpgrade.watch, iter(range(10**6))
def watched(self, topic, index):
    report = watch(self, topic, index)
    def stopping(progress):
        report(progress)
        if next(reports) == at:
            os.kill(os.getpid(), number)
    return stopping
forced_upgrade.ForcedUpgrade.watch = watched
sys.exit(main.main())
"""


@pytest.mark.process
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_signal_stops_an_upgrade_at_once(tmp_path: Path, number: signal.Signals) -> None:
    folder = tmp_path / "data"
    rows = await old_directory(folder)
    before = {path: path.read_bytes() for path in folder.glob("*/*.log")}
    for at in (0, 5):
        flags = ["serve", "--listen", "127.0.0.1:0", "--data-dir", str(folder), "--log-format", "json", "--override"]
        command = [sys.executable, "-c", STOPPED, *flags, "log.record.version.force.upgrade=2", str(at), str(number)]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)
        assert (ended.returncode, ended.stdout) == (0, ""), ended.stderr
        assert '"stopped during start"' in ended.stderr.splitlines()[-1]
        assert "Traceback" not in ended.stderr and "hold v2 only" not in ended.stderr
        assert not [path for path in folder.glob("*/*") if path.suffix in (".cleaned", ".swap")]
        assert {path: path.read_bytes() for path in folder.glob("*/*.log")} == before
    async with running(folder, overrides=FORCED) as broker:
        assert magics(folder) == {2}
        client = await broker.client()
        assert await all_rows(client, "t", 36, 12) == rows
        assert await committed(client) == 7


def test_upgrade_of_a_large_partition_logs_its_progress() -> None:
    clock = ManualClock()
    upgrade = ForcedUpgrade(3, clock)
    get_logger()  # configured now, before its output is captured
    with capture_logs() as events:
        assert upgrade.watch("u", 0)
        reported = upgrade.watch("t", 7)
        for step in range(100):
            reported(UpgradeProgress(step * 1000, 100_000, step * 10))
            clock.advance(REPORT_MS // 10)
        reported(UpgradeProgress(100_000, 100_000, 1000, segments=4, written_bytes=120_000, done=True))
        upgrade.finish()
    assert [event["event"] for event in events] == [
        *["upgrading to v2"] * 9, "partition upgraded to v2", "all partitions hold v2 only"
    ]  # fmt: skip
    assert events[0] == {
        "event": "upgrading to v2", "log_level": "info", "partition": "t-7", "number": 2, "of": 3,
        "records": 100, "bytes": 10_000, "of_bytes": 100_000,
    }  # fmt: skip
    assert [event["bytes"] for event in events[:9]] == [10_000 * n for n in range(1, 10)]
    assert events[-1] == {
        "event": "all partitions hold v2 only", "log_level": "info", "partitions": 2, "upgraded": 1, "segments": 4,
        "records": 1000, "bytes": 100_000, "written_bytes": 120_000,
    }  # fmt: skip
