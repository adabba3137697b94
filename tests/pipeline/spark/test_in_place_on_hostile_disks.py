"""Upgrade and compact on hostile disks: results on other machines, wrong offsets, full disks."""

# pyright: reportAttributeAccessIssue=false
from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.pipeline.backend import ReadError
from ottla.pipeline.jobs.compact.configs import Settings
from ottla.pipeline.jobs.compact.job import compact
from ottla.pipeline.jobs.compact.steps import check_space, plan_partition
from ottla.pipeline.jobs.in_place import disk_space, windows
from ottla.pipeline.jobs.in_place.directory_hold import UPGRADED, distinct, held, put_in_place
from ottla.pipeline.jobs.upgrade.comparison import Different, compare
from ottla.pipeline.jobs.upgrade.steps import SegmentItem, Upgrade, Upgraded, write
from ottla.pipeline.readers.columnar.upgrade import upgraded
from ottla.storage.compaction.rewrite import Run, Source, Target, rewrite
from ottla.storage.config import LogConfig
from ottla.storage.errors import StorageError
from ottla.storage.io.files import DiskFiles
from ottla.storage.log_dir.directory import DataDirectory
from ottla.storage.producers.txn_index import AbortedTransaction, dump
from ottla_testing.pipeline.compacting_here import (
    ROOT,
    Laid,
    SimulatedFiles,
    close,
    compact_directory,
    contents,
    data,
    lay,
    live,
)
from ottla_testing.storage.old_messages import lay_down, piece, wrapper

FOLDER = "/data/orders-0"
SETTINGS = Settings(segment_bytes=1, delete_retention_ms=500)


def old_world() -> SimulatedFiles:
    files = SimulatedFiles()
    lay_down(files, [(0, [piece(1, 0, 0, (1,) * 20, (5,))]), (30, [piece(0, 0, 30, (1,), (0,))])], FOLDER)
    close(files)
    return files


def everything(files: SimulatedFiles) -> dict[str, bytes]:
    return {path: bytes(content.live) for path, content in files.contents.items()}


def test_result_on_other_disk_refused() -> None:
    files = old_world()
    before = everything(files)

    def elsewhere(items: Sequence[SegmentItem], task: Any) -> Iterator[tuple[SegmentItem, Any]]:
        other = files.fork()
        for item in items:
            found = task(item)
            yield item, (write(item, other) if isinstance(found, Upgraded) else found)
            if isinstance(found, Upgraded):
                raise AssertionError("it was taken")

    with held(ROOT, files=files) as root:
        job = Upgrade([root])
        job.look(elsewhere)
        with pytest.raises(ReadError, match=r"\.upgraded was written by a worker, but does not exist here"):
            job.run(elsewhere)
    assert {path: found for path, found in everything(files).items() if not path.endswith("lock")} == before


def test_missing_or_torn_new_segment_keeps_old_segments() -> None:
    for harm in ("missing", "torn"):
        files = old_world()
        suffix = f".abc{UPGRADED}"
        for base in (0, 10):
            file = files.open(f"{FOLDER}/{base:020d}.log{suffix}", create=True)
            file.write(0, bytes(50))
        if harm == "missing":
            files.remove(f"{FOLDER}/{10:020d}.log{suffix}")
        else:
            files.open(f"{FOLDER}/{10:020d}.log{suffix}").truncate(49)
        before = everything(files)
        with pytest.raises(ReadError, match=r"does not exist here|has 99 bytes of new segments, but 100 were written"):
            put_in_place(files, FOLDER, [0, 10], [0], suffix, 100)
        assert everything(files) == before


@pytest.mark.parametrize("offset", [0, 3, 7, 40, 2**62])
def test_compact_wrong_batch_offset_drops_nothing(offset: int) -> None:
    """No CRC covers the offset of a batch."""
    files = SimulatedFiles()
    batches = [data(at, (b"k%d" % (at // 2 % 2), b"v"), (b"k2", b"w")) for at in range(0, 10, 2)]
    laid = [Laid(base, 1000, [bytes(made)]) for base, made in zip(range(0, 10, 2), batches, strict=True)]
    lay(files, [*laid, Laid(10, 1000, [])], {})
    close(files)
    with held(ROOT, files=files):
        pass
    live = files.contents[f"{FOLDER}/{4:020d}.log"].live
    live[:8] = offset.to_bytes(8, "big")
    before = everything(files)
    (outcome,) = compact_directory(files, SETTINGS)
    assert outcome.problem is not None and f"{FOLDER}/{4:020d}.log" in outcome.problem
    assert everything(files) == before
    live[:8] = (4).to_bytes(8, "big")
    (outcome,) = compact_directory(files, SETTINGS)
    assert outcome.done and outcome.problem is None


def keyed(segments: int = 4) -> SimulatedFiles:
    """Returns a closed log of small segments, of which only the last records of two keys will be kept."""
    files = SimulatedFiles()
    ends = [*range(0, 2 * segments, 2)]
    laid = [Laid(at, 1000, [bytes(data(at, (b"k", b"v%d" % at), (b"l", b"w")))]) for at in ends]
    lay(files, [*laid, Laid(2 * segments, 1000, [])], {})
    close(files)
    return files


def test_compact_without_disk_space_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    files = keyed()
    with held(ROOT, files=files, looking=True) as holding:
        plan = plan_partition(holding, "orders", 0, SETTINGS, now_ms=10_000)
    sizes = [segment.size_bytes for segment in plan.task.segments]
    assert check_space([plan], 2, lambda path: sum(sizes)) == [(ROOT, sum(sizes), sum(sizes))]
    with pytest.raises(ReadError, match=f"^the disk of {ROOT} has {sum(sizes) - 1} bytes free, and the compaction may"):
        check_space([plan], 2, lambda path: sum(sizes) - 1)
    monkeypatch.setattr(disk_space, "LARGEST_BUNDLE_BYTES", 0)
    assert check_space([plan], 2, lambda path: 10**9)[0].needed_bytes == 2 * max(sizes)
    other = plan_partition(holding, "orders", 0, SETTINGS, now_ms=10_000)
    other.root = "/data2"  # on the same disk
    with pytest.raises(ReadError, match=f"^the disk of /data2 .* may need {4 * max(sizes)}:"):
        check_space([plan, other], 2, lambda path: 4 * max(sizes) - 1)
    plan.groups = []
    assert check_space([plan], 2, lambda path: 0) == []
    assert disk_space.free_bytes("/") > 0


def test_compact_disk_full_at_any_byte_loses_nothing() -> None:
    whole = keyed()
    compact_directory(whole, SETTINGS)
    for free in range(0, 3000, 90):
        files = keyed()
        before, files.capacity = live(files), files.used() + free
        try:
            compact_directory(files, SETTINGS)
        except (StorageError, ReadError, OSError) as error:
            assert "no space" in str(error).lower()
        else:
            assert free > 200
            break
        files.capacity = 1 << 40
        assert live(files) == before and not [n for n in files.list(FOLDER) if n.endswith(".compacted")]
        compact_directory(files, SETTINGS)
        assert contents(files) == contents(whole)
    else:
        raise AssertionError("never done")


def test_compact_unrewritable_group_leaves_only_its_partition() -> None:
    """Its CRCs match, but its timestamps are too far apart for one v2 batch."""
    inner = wrapper(1, 1, [(4, b"k", b"v", -(2**63)), (5, b"x", b"v", 2**62)])
    files = SimulatedFiles()
    first = [bytes(data(0, (b"k", b"v"), (b"m", b"w"), (b"k", b"w"), (b"n", b"n")))]
    lay(files, [Laid(0, 1000, first), Laid(4, 1000, [bytes(inner)]), Laid(6, 1000, [])], {})
    close(files)
    before = files.read_bytes(f"{FOLDER}/{4:020d}.log")
    (outcome,) = compact_directory(files, SETTINGS)
    assert not outcome.done and outcome.problem is not None and f"{FOLDER}/{4:020d}.log" in outcome.problem
    assert files.read_bytes(f"{FOLDER}/{4:020d}.log") == before
    assert live(files) == {b"k": b"v", b"m": b"w", b"n": b"n", b"x": b"v"}
    assert not [name for name in files.list(FOLDER) if name.endswith(".compacted")]


def test_directory_named_twice_processed_once(tmp_path: Path) -> None:
    directory, link = tmp_path / "data", tmp_path / "link"
    directory.mkdir()
    link.symlink_to(directory)
    assert distinct([str(directory), f"{directory}/", f"{directory}/.", str(link)]) == [str(link)]
    report = compact(cast("Any", SimpleNamespace(sparkContext=SimpleNamespace(defaultParallelism=1))), kept(directory))
    assert [topic.partitions for topic in report.topics] == [1]


def kept(directory: Path) -> list[str]:
    """Returns two paths of one directory with nothing to compact."""
    opened = DataDirectory.open(DiskFiles(), directory, node_id=0)
    opened.open_partition("__consumer_offsets", 0, config=LogConfig(), now_ms=0)
    opened.close()
    return [str(directory), f"{directory}/../{directory.name}"]


@pytest.mark.parametrize("kind", ["index", "timeindex", "txnindex"])
def test_upgrade_wrong_index_not_put_in_place(kind: str) -> None:
    """Records after a wrong index position would not be found: each byte counts."""
    files = SimulatedFiles()
    lay_down(files, [(7, [piece(1, 0, 7, (1,) * 5, (5, 9, 6)), piece(1, 1, 20, (1, 1), (11, 8))])], FOLDER)
    source = Source(f"{FOLDER}/{7:020d}.log", files.size(f"{FOLDER}/{7:020d}.log"))
    transactions = files.open(f"{FOLDER}/{7:020d}.txnindex", create=True)
    transactions.write(0, dump([AbortedTransaction(3, 7, 8, 9)]) + b"torn")
    made = rewrite(files, [source], Target(FOLDER, 7, 0, suffix=".new"))
    result = Source(f"{source.log_path}.new", made[0].size_bytes)
    live = files.contents[f"{FOLDER}/{7:020d}.{kind}.new"].live
    assert compare(files, source, [result]) == 9 and len(live) >= 24
    for at in range(len(live)):
        live[at] ^= 2
        with pytest.raises(Different):
            compare(files, source, [result])
        live[at] ^= 2
    for shorter in (live[:-1], live + live[-1:]):
        kept, live[:] = bytes(live), shorter
        if kind != "txnindex" or len(shorter) < len(kept):
            with pytest.raises(Different):
                compare(files, source, [result])
        live[:] = kept
    assert compare(files, source, [result], 100) == 9


@pytest.mark.parametrize("field", ["bounds", "last_offsets", "max_timestamps"])
def test_upgrade_wrong_fast_path_result_refused(monkeypatch: pytest.MonkeyPatch, field: str) -> None:
    """Even if only the indexes are wrong."""
    files = SimulatedFiles()
    lay_down(files, [(0, [piece(1, 0, 0, (1,) * 20, tuple(range(5, 40)))])], FOLDER)
    close(files)
    before = everything(files)

    def wrong(*arguments: Any, **more: Any) -> Iterator[Any]:
        for made in upgraded(*arguments, **more):
            if isinstance(made, Run):
                values = list(getattr(made, field))
                values[1:-1] = [one - 1 for one in values[1:-1]]
                made = made._replace(**{field: values})
            yield made

    monkeypatch.setattr(windows, "upgraded", wrong)
    with held(ROOT, files=files) as root:
        job = Upgrade([root], configs={"orders": {"index.interval.bytes": "60"}})
        job.look()
        with pytest.raises(ReadError, match=r"^/data/orders-0/0{20}\.log: .*index"):
            job.run()
    assert {path: found for path, found in everything(files).items() if not path.endswith("lock")} == before
