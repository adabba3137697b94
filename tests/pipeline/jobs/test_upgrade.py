"""The upgrade in place, with one task after the other: changes, interruptions, early refusals."""

from __future__ import annotations

import contextlib
import json
import random
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from ottla.pipeline.backend import ReadError
from ottla.pipeline.cli import pipeline
from ottla.pipeline.jobs.in_place.directory_hold import held
from ottla.pipeline.jobs.upgrade import steps
from ottla.pipeline.jobs.upgrade.comparison import Different, compare
from ottla.pipeline.jobs.upgrade.report import UpgradeReport
from ottla.pipeline.jobs.upgrade.steps import Upgrade
from ottla.protocol.records import batch, formats
from ottla.storage.compaction.rewrite import Source, Target, rewrite
from ottla.storage.compaction.swap import Rewritten
from ottla.storage.config import LogConfig
from ottla.storage.errors import StorageError
from ottla.storage.io.files import DiskFiles
from ottla.storage.log_dir.directory import CLEAN_SHUTDOWN, DataDirectory
from ottla_testing.each import each
from ottla_testing.storage.batches import open_log
from ottla_testing.storage.old_messages import Piece, Row, lay_down, logs_of, magics_of, piece, rows_of
from ottla_testing.storage.simulated_files import Killed, SimulatedFiles

ROOT, FOLDER, OTHER = "/data", "/data/orders-0", "/data/__consumer_offsets-3"
Segments = Sequence[tuple[int, Sequence[Piece]]]

MIXED: Segments = [
    (0, [piece(0, 0, 0, (1, 1, 3), (0,)), piece(0, 1, 6, (1, 2), (0,)), piece(1, 0, 10, (1,), (30, 20))]),
    (12, [piece(2, 0, 12, (1, 1), (40,)), piece(2, 1, 15, (1,), (41,))]),
    (
        17,
        [piece(1, 2, 17, (1, 1, 1), (50, 49)), piece(2, 3, 21, (1,), (60,)), piece(1, 0, 23, (), (1,), append_time=70)],
    ),
    (24, [piece(2, 0, 24, (1,), (80,)), piece(0, 0, 26, (1,), (0,))]),
]
OFFSETS: Segments = [(0, [piece(1, 0, 0, (1,) * 20, (7,))]), (30, [])]
END = 28


def world() -> tuple[SimulatedFiles, dict[str, list[Row]]]:
    """Returns a closed data directory with two partitions, and the rows of each."""
    files = SimulatedFiles()
    files.now_ns = 77
    rows = {FOLDER: lay_down(files, MIXED, FOLDER), OTHER: lay_down(files, OFFSETS, OTHER)}
    for name, data in (
        (f"{ROOT}/{CLEAN_SHUTDOWN}", b""),
        (f"{ROOT}/recovery-point-offset-checkpoint", b"0\n1\norders 0 28\n"),
        (f"{FOLDER}/leader-epoch-checkpoint", b"0\n1\n0 12\n"),
        (f"{FOLDER}/{END:020d}.snapshot", b"a snapshot"),
        (f"{FOLDER}/{17:020d}.txnindex", bytes(34)),
    ):
        file = files.open(name, create=True)
        file.write(0, data)
        file.sync()
    for path in (FOLDER, OTHER, ROOT):
        files.sync_directory(path)
    files.restart()
    files.now_ns = 99
    return files, rows


def upgraded(files: SimulatedFiles, *, index_bytes: int = 36, **more: Any) -> UpgradeReport:
    with held(ROOT, files=files) as root:
        job = Upgrade([root], index_bytes=index_bytes, configs={"orders": {"index.interval.bytes": "60"}}, **more)
        job.look()
        return job.run()


def everything(files: SimulatedFiles) -> dict[str, bytes]:
    return {path: bytes(content.live) for path, content in files.contents.items()}


BOTH = ((True, END), (False, 0))  # whether the directory counts as closed, and the recovery point


def opened(files: SimulatedFiles, folder: str, rows: list[Row], ways: Sequence[tuple[bool, int]] = BOTH) -> None:
    """Opens the folder with the broker's storage, after a clean stop and after a crash, and checks its records."""
    for clean, recovery_point in ways:
        copy, config = files.fork(), LogConfig(index_interval_bytes=60)
        log = open_log(copy, folder, clean=clean, recovery_point=recovery_point, config=config)
        assert log.cut_bytes == 0 and log.log_end_offset >= rows[-1][0] + 1
        found: list[Row] = []
        offset = log.log_start_offset
        while offset < log.log_end_offset and (data := bytes(log.read(offset, 1000).records)):
            for position, header in formats.headers(data):
                found += [(r.offset, r.key, r.value, r.timestamp) for r in formats.records(data, position)]
                offset = header.next_offset
        assert found == rows
        log.abandon()


def test_upgrade_converts_old_segments_only():
    files, rows = world()
    before = everything(files)
    report = upgraded(files)
    after = everything(files)
    for folder, expected in rows.items():
        assert rows_of(files, folder) == expected and magics_of(files, folder) <= {2}
        opened(files, folder, expected)
    old = [f"{FOLDER}/{base:020d}" for base in (0, 17, 24)] + [f"{OTHER}/{0:020d}"]
    untouched = {path for path in before if not any(path.startswith(f"{front}.") for front in old)}
    assert {path: after[path] for path in untouched} == {path: before[path] for path in untouched}
    assert after[f"{FOLDER}/{17:020d}.txnindex"] == bytes(34)
    logs = [path for path in after if path.endswith(".log")]
    assert {files.modified_ns(path) for path in logs} == {77}
    assert not [path for path in after if not path.endswith(("log", "index", "snapshot", "checkpoint", "shutdown"))]
    orders, offsets = report.topics["orders"], report.topics["__consumer_offsets"]
    assert (orders.segments, orders.records, offsets.segments, offsets.records) == (3, 9 + 5 + 2, 1, 21)
    assert orders.segments_after > 3 and orders.segments_after + 1 == len(logs_of(files, FOLDER))
    assert orders.bytes_before == sum(len(before[f"{front}.log"]) for front in old[:3])
    sizes = sum(len(after[f"{FOLDER}/{name}"]) for name in logs_of(files, FOLDER)) - len(
        before[f"{FOLDER}/{12:020d}.log"]
    )
    assert orders.bytes_after == sizes
    assert report.all_segments == 6 and not report.planned
    assert json.loads(report.to_json())["topics"]["orders"]["records"] == 16
    assert "orders: 3 segments -> " in report.to_text() and "in all 4 segments" in report.to_text()


def test_upgrade_second_run_changes_nothing():
    files, _ = world()
    upgraded(files)
    before = everything(files)
    files.restart()
    report = upgraded(files)
    assert everything(files) == before and files.log == [] and report.topics == {}
    assert report.to_text() == f"/data: {report.all_segments} segments, none has messages of format v0 or v1\n"


def test_upgrade_dry_run_changes_nothing_and_estimates():
    files, _ = world()
    before = everything(files)
    with held(ROOT, files=files, looking=True) as root:
        job = Upgrade([root])
        report = job.look()
        (space,) = job.check_space(2, free=lambda path: 10**9)
    assert report.planned and files.log == [] and everything(files) == before
    assert report.topics["orders"].segments == 3 and report.total().segments == 4
    assert "orders: 3 segments, " in report.to_text() and "to be upgraded" in report.to_text()
    done = upgraded(files, index_bytes=10**7)
    for name, topic in done.topics.items():
        assert topic.bytes_before == report.topics[name].bytes_before
        assert topic.bytes_after <= report.topics[name].bytes_after <= 1.3 * topic.bytes_after + 200
    assert space[1] >= report.total().bytes_after - report.total().bytes_before


def test_upgrade_named_topics_only():
    files, _ = world()
    assert list(upgraded(files, topics=["orders"]).topics) == ["orders"]
    assert magics_of(files, OTHER) == {1}
    with pytest.raises(ReadError, match=r"^there is no topic nothing in /data$"):
        upgraded(files, topics=["orders", "nothing"])


def test_upgrade_without_disk_space_refused_before_work():
    files, _ = world()
    before = everything(files)
    with held(ROOT, files=files) as root:
        job = Upgrade([root])
        job.look()
        needed = job.check_space(8, free=lambda path: 10**9)[0][1]
        with pytest.raises(
            ReadError, match=f"the disk of /data has {needed - 1} bytes free, .* may need {needed}: free some"
        ):
            job.check_space(8, free=lambda path: needed - 1)
    assert everything(files) == before


def test_upgrade_full_disk_leaves_old_or_upgraded_segments():
    for room in range(0, 4000, 150):
        files, rows = world()
        files.capacity = files.used() + room
        try:
            upgraded(files)
        except (StorageError, ReadError) as error:
            assert "no space" in str(error) and "\n" not in str(error)
        else:
            assert room > 1000
            break
        files.capacity = 1 << 40
        assert not [name for name in files.list(FOLDER) if name.endswith("upgraded")]
        for folder, expected in rows.items():
            opened(files, folder, expected)


# -- damage


def test_upgrade_damaged_segment_raises_and_stays():
    files, rows = world()
    path = f"{FOLDER}/{17:020d}.log"
    files.contents[path].live[30] ^= 1
    before = bytes(files.contents[path].live)
    with pytest.raises(ReadError, match=f"^{path}: at byte 0: "):
        upgraded(files)
    assert files.read_bytes(path) == before and not [n for n in files.list(FOLDER) if n.endswith("upgraded")]
    files.contents[path].live[30] ^= 1
    upgraded(files)
    assert rows_of(files, FOLDER) == rows[FOLDER] and magics_of(files, FOLDER) == {2}


def test_upgrade_damaged_headers_found_by_look():
    files, _ = world()
    path = f"{FOLDER}/{12:020d}.log"
    files.contents[path].live[16] = 9
    with pytest.raises(ReadError, match=f"^{path}: at byte 0: "):
        upgraded(files)


@pytest.mark.parametrize("at", [0, 8, 13, 16, 18, 22, 26, 34, 42, 50, 52, 55, 60, 64, 76, -1, -3])
@pytest.mark.parametrize("codec", [0, 1])
def test_upgrade_different_result_not_swapped_in(monkeypatch: Any, at: int, codec: int):
    """Even with a matching CRC."""
    files = SimulatedFiles()
    lay_down(files, [(0, [piece(1, codec, 0, (1,) * 12, (5, 6), append_time=None)])], FOLDER)
    files.open(f"{ROOT}/{CLEAN_SHUTDOWN}", create=True).close()
    before = everything(files)

    def wrong(files: SimulatedFiles, sources: list[Source], target: Target, **more: Any) -> list[Rewritten]:
        made = rewrite(files, sources, target, **more)
        live = files.contents[f"{FOLDER}/{0:020d}.log{target.suffix}"].live
        header = batch.read_header(live)
        live[at if at >= 0 else header.size_bytes + at] ^= 2
        if at >= 21 or at < 0:
            batch.reseal(
                memoryview(live)[: header.size_bytes],
                attributes=int.from_bytes(live[21:23], "big"),
                max_timestamp=int.from_bytes(live[35:43], "big"),
            )
        return made

    monkeypatch.setattr(steps, "rewrite", wrong)
    with pytest.raises(ReadError, match=f"^{FOLDER}/{0:020d}.log: ") as caught:
        upgraded(files)
    assert isinstance(caught.value.__cause__, Different)
    assert everything(files) == before


def test_upgrade_result_of_other_length_refused():
    for change in (lambda live: live.__delitem__(slice(-1, None)), lambda live: live.extend(live[-70:])):
        files = SimulatedFiles()
        lay_down(files, [(0, [piece(1, 0, 0, (1,) * 3, (5,))]), (9, [piece(1, 0, 9, (1,) * 3, (5,))])], FOLDER)
        paths = [f"{FOLDER}/{base:020d}.log" for base in (0, 9)]
        sources = [Source(path, files.size(path)) for path in paths]
        for source, base in zip(sources, (0, 9), strict=True):
            rewrite(files, [source], Target(FOLDER, base, 60, suffix=".new"))
        made = [Source(f"{path}.new", files.size(f"{path}.new")) for path in paths]
        assert compare(files, sources[0], made[:1]) == 4
        with pytest.raises(Different, match="has entries after its end"):
            compare(files, sources[0], made)
        with pytest.raises(Different, match="ends before"):
            compare(files, sources[0], [])
        change(files.contents[made[0].log_path].live)
        with pytest.raises(Different):
            compare(files, sources[0], [Source(made[0].log_path, files.size(made[0].log_path))])


def test_upgrade_changed_copied_batch_refused(monkeypatch: Any):
    files, _ = world()
    copied = f"{FOLDER}/{17:020d}.log"

    def wrong(files: SimulatedFiles, sources: list[Source], target: Target, **more: Any) -> list[Rewritten]:
        made = rewrite(files, sources, target, **more)
        if target.base_offset == 17:
            path = f"{copied}{target.suffix}"
            (at,) = [p for p, header in formats.headers(files.read_bytes(path)) if header.base_offset == 21] or [-1]
            if at >= 0:
                files.contents[path].live[at + 15] ^= 1
        return made

    monkeypatch.setattr(steps, "rewrite", wrong)
    with pytest.raises(ReadError, match="batches of format v2 differ"):
        upgraded(files, index_bytes=10**7)


@pytest.mark.parametrize("window_bytes", [100, 700, 1 << 20])
def test_upgrade_comparison_any_window_size(window_bytes: int):
    files, _ = world()
    path = f"{FOLDER}/{0:020d}.log"
    source = Source(path, files.size(path))
    rewrite(files, [source], Target(FOLDER, 0, 60, suffix=".new"))
    made = Source(f"{path}.new", files.size(f"{path}.new"))
    assert compare(files, source, [made], window_bytes) == 9


# -- interrupted


def lose(files: SimulatedFiles, loss: str, rng: random.Random) -> None:
    if loss == "kill":
        files.restart()
    else:
        files.crash(rng)


@each("loss", ["kill", "power"], strided=True)
def test_upgrade_interrupted_anywhere_second_run_completes(loss: str, stride: int):
    files, rows = world()
    upgraded(files)
    whole = everything(files)
    rng, step = random.Random(5), 0
    for step in count(random.randrange(stride), stride):
        files, rows = world()
        files.fail_at, files.killing, files.portion = step, True, rng.random()
        try:
            upgraded(files)
            break
        except Killed:
            lose(files, loss, rng)
        for number, (folder, expected) in enumerate(rows.items()):
            opened(files, folder, expected, [BOTH[(step // stride + number) % 2]])
        upgraded(files)
        assert everything(files) == whole
    assert step > 80


def test_upgrade_interrupted_twice(scaled: Callable[[int], int]):
    files, rows = world()
    upgraded(files)
    whole = everything(files)
    rng = random.Random(6)
    for _ in range(scaled(20)):
        files, rows = world()
        for _ in range(2):
            files.fail_at, files.killing, files.portion = rng.randrange(110), True, rng.random()
            with contextlib.suppress(Killed):
                upgraded(files)
            lose(files, rng.choice(("kill", "power")), rng)
            for folder, expected in rows.items():
                opened(files, folder, expected, [rng.choice(BOTH)])
        upgraded(files)
        assert everything(files) == whole


def test_upgrade_disk_errors_lose_nothing(stride: int):
    rng, step = random.Random(8), 0
    while True:
        files, rows = world()
        files.fail_at = step
        try:
            upgraded(files)
            break
        except (ReadError, StorageError) as error:
            assert "\n" not in str(error)
        files.restart()
        for folder, expected in rows.items():
            opened(files, folder, expected)
        upgraded(files)
        assert {folder: rows_of(files, folder) for folder in rows} == rows and magics_of(files, FOLDER) == {2}
        step += rng.randint(1, 5 * stride)
    assert step > 80


# -- the command


def test_upgrade_command_refuses_before_spark_starts(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    directory = DataDirectory.open(DiskFiles(), tmp_path, node_id=0)
    directory.open_partition("a", 0, config=LogConfig(), now_ms=0)

    def message(*arguments: str) -> str:
        assert pipeline(["upgrade", *arguments]) == 2
        captured = capsys.readouterr()
        assert captured.out == ""
        return captured.err

    assert (
        message(str(tmp_path))
        == f"ottla pipeline upgrade: {tmp_path} is in use by a broker, or by another job: stop that first\n"
    )
    directory.abandon()
    assert message("--dry-run", str(tmp_path)).startswith(
        f"ottla pipeline upgrade: {tmp_path} was not closed cleanly: start"
    )
    directory = DataDirectory.open(DiskFiles(), tmp_path, node_id=0)
    directory.open_partition("a", 0, config=LogConfig(), now_ms=0)
    directory.close()
    assert "there is no topic b in" in message("--topic", "b", str(tmp_path))
    assert "is the folder of a partition" in message(str(tmp_path / "a-0"))
