"""Logs that were copied to an object store: their records, ends and times are those of the files."""

from __future__ import annotations

import pickle
import random
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from ottla.pipeline.backend import OffsetRange, ReadError, Selection, TopicPartition, Wanted
from ottla.pipeline.jobs.audit.rules import Rules, check, evaluated, items
from ottla.pipeline.jobs.audit.steps import Audit
from ottla.pipeline.jobs.audit.tasks import Packed, SegmentItem, look_over
from ottla.pipeline.jobs.census import plan as census
from ottla.pipeline.jobs.census.facts import merge
from ottla.pipeline.jobs.census.tasks import count
from ottla.pipeline.objects.files import AHEAD_BYTES
from ottla.pipeline.objects.logs import files_of, is_missing, places_of
from ottla.pipeline.readers.files import BatchBackend, FileBackend
from ottla_testing.pipeline.export_samples import NOW_MS, a_log
from ottla_testing.pipeline.object_server import BUCKET, KEYS, ObjectServer, object_server
from ottla_testing.pipeline.read_samples import some
from ottla_testing.pipeline.web_server import web_server

RECORDS = ("offset", "timestamp", "key", "value", "headers")


@pytest.fixture(scope="module")
def store(directory: Path) -> Iterator[ObjectServer]:
    """Starts a server with a copy of the directory."""
    with pytest.MonkeyPatch.context() as patch, object_server() as found:
        for name, value in KEYS.items():
            patch.setenv(name, value)
        copied(directory, found, "data")
        yield found


def copied(folder: Path, store: ObjectServer, prefix: str) -> str:
    """Copies the files of a folder, as `aws s3 sync` does, and returns the URL."""
    objects = store.files(prefix)
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            objects.put(f"{objects.root}/{path.relative_to(folder).as_posix()}", path.read_bytes())
    store.reset()
    return objects.root


def everything(backend: FileBackend | BatchBackend, columns: tuple[str, ...], *, committed: bool = True) -> Any:
    """Returns partitions, their offsets, and the rows of each."""
    keys = backend.partitions(Selection())
    starts, ends = backend.earliest(keys), backend.latest(keys, committed=committed)
    found: dict[TopicPartition, list[Any]] = {}
    ranges = [OffsetRange(*key, starts[key], ends[key]) for key in keys]
    for piece in backend.pieces(ranges, Wanted(columns, committed=committed), at_least=20):
        for rows in piece.read():
            of: Any = getattr(piece, "of", piece)
            found.setdefault(of.key, []).extend(rows.to_pylist())
    return keys, starts, ends, found


@pytest.mark.parametrize("committed", [True, False])
def test_objects_equal_files(directory: Path, store: ObjectServer, committed: bool) -> None:
    here = everything(FileBackend([str(directory)]), RECORDS, committed=committed)
    there = FileBackend([f"s3://{BUCKET}/data/"], store_conf=store.conf)
    assert everything(there, RECORDS, committed=committed) == here
    small = FileBackend([f"s3://{BUCKET}/data"], store_conf=store.conf, part_bytes=2000, window_bytes=300)
    assert everything(small, RECORDS, committed=committed) == here


def test_batches_of_objects_equal_files(directory: Path, store: ObjectServer) -> None:
    columns = ("baseOffset", "lastOffset", "crcOk", "codec")
    here = everything(BatchBackend([str(directory)]), columns)
    assert everything(BatchBackend([f"s3://{BUCKET}/data"], store_conf=store.conf), columns) == here


def test_times_and_ids_equal_files(directory: Path, store: ObjectServer) -> None:
    here, there = FileBackend([str(directory)]), FileBackend([f"s3://{BUCKET}/data"], store_conf=store.conf)
    keys = here.partitions(Selection())
    assert there.partitions(Selection()) == keys
    for time_ms in (0, 1_700_000_000_000, 1_700_000_000_050, 1 << 60):
        assert there.at_times(dict.fromkeys(keys, time_ms)) == here.at_times(dict.fromkeys(keys, time_ms))
    assert [there.topic_id(key.topic) for key in keys] == [here.topic_id(key.topic) for key in keys]


def test_logs_of_web_server_equal_files(directory: Path, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    for path in ("v2-zstd-0", "v1-gzip-0", "transactions-0"):
        shutil.copytree(directory / path, folder / path)
    with web_server(folder) as server:
        server.failing = {"GET /", "GET /v2-zstd-0/", "HEAD /v2-zstd-0/00000000000000000000.log"}
        assert everything(FileBackend([server.url]), RECORDS) == everything(FileBackend([str(folder)]), RECORDS)
        assert not server.failing
        small = FileBackend([f"{server.url}/v2-zstd-0"], part_bytes=2000, window_bytes=300)
        assert everything(small, RECORDS) == everything(FileBackend([str(folder / "v2-zstd-0")]), RECORDS)
        there, here = (Audit([place]).report(as_tasks, now_ms=NOW_MS).to_json() for place in (server.url, str(folder)))
        assert there.replace(server.url, str(folder)) == here
        with pytest.raises(ReadError, match=rf"cannot read {server.url}/none: there is no object"):
            FileBackend([f"{server.url}/none"]).partitions(Selection())
    with pytest.raises(ReadError, match=rf"cannot read {server.url}: .*refused"):
        FileBackend([server.url]).partitions(Selection())


def test_folder_of_one_partition(directory: Path, store: ObjectServer) -> None:
    here = everything(FileBackend([str(directory / "v2-zstd-0")]), RECORDS)
    assert everything(FileBackend([f"s3://{BUCKET}/data/v2-zstd-0"], store_conf=store.conf), RECORDS) == here


def test_large_segment_read_in_few_requests(tmp_path: Path, store: ObjectServer) -> None:
    a_log(tmp_path / "data", "t", 0, [some(at, 100, 2) for at in range(0, 20_000, 100)])
    size = sum(path.stat().st_size for path in (tmp_path / "data").rglob("*.log"))
    url = copied(tmp_path / "data", store, "large")
    backend = FileBackend([url], store_conf=store.conf, window_bytes=size // 8)
    key = TopicPartition("t", 0)
    backend.partitions(Selection())
    (piece,) = backend.pieces([OffsetRange(*key, 0, 20_000)], Wanted(("offset",)))
    store.reset()
    assert sum(rows.num_rows for rows in piece.read()) == 20_000
    log = [line for line in store.reset() if ".log" in line]
    assert len(log) <= 12, log


def test_reads_ahead_return_the_bytes_and_end_with_the_object(store: ObjectServer) -> None:
    data = random.Random(1).randbytes(5 * AHEAD_BYTES)
    files = store.files("ahead")
    files.put(f"{files.root}/x.log", data)
    (place,) = places_of([files.root], store.conf)
    file = files_of(f"{place.url}/x.log").open(f"{place.url}/x.log")
    assert file.size() == len(data)
    rng = random.Random()
    for _ in range(200):
        position, length = rng.randrange(len(data) + 10), rng.choice((1, 61, 1000, 3 * AHEAD_BYTES))
        if position + length <= len(data):
            assert file.read(position, length) == data[position : position + length]
            continue
        with pytest.raises(OSError, match=f"object ends {position + length - len(data)} bytes early"):
            file.read(position, length)


def test_missing_objects_and_places(store: ObjectServer) -> None:
    with pytest.raises(ReadError, match=r"cannot read s3://lake/none: there is no object"):
        FileBackend([f"s3://{BUCKET}/none"], store_conf=store.conf).partitions(Selection())
    with pytest.raises(ReadError, match="cannot read s3://no-such-bucket/x: NoSuchBucket"):
        FileBackend(["s3://no-such-bucket/x"], store_conf=store.conf).partitions(Selection())
    with pytest.raises(ReadError, match="is in an object store, where this cannot read"):
        files_of("s3://elsewhere/data")
    places_of([f"s3://{BUCKET}/data"], store.conf)
    assert is_missing(f"s3://{BUCKET}/data/none-0") and not is_missing(f"s3://{BUCKET}/data/v2-zstd-0")


def test_objects_removed_meanwhile_are_lost_data(tmp_path: Path, store: ObjectServer) -> None:
    a_log(tmp_path / "data", "t", 0, [some(at, 10, 2) for at in range(0, 100, 10)], segment_bytes=3000)
    url = copied(tmp_path / "data", store, "removed")
    backend = FileBackend([url], store_conf=store.conf)
    backend.partitions(Selection())
    pieces = backend.pieces([OffsetRange("t", 0, 0, 100)], Wanted(("offset",)))
    assert len(pieces) > 3
    files = store.files("removed")
    first = min(name for name in files.list(f"{url}/t-0") if name.endswith(".log"))
    files.remove(f"{url}/t-0/{first}")
    with pytest.raises(ReadError, match=r"t-0: offsets 0 to \d+ no longer exist: the log now begins at offset"):
        list(pieces[0].read())
    assert sum(rows.num_rows for rows in pieces[1].read()) > 0


def test_census_of_objects_equals_files(directory: Path, store: ObjectServer) -> None:
    url = f"s3://{BUCKET}/data"
    made = [census.plan([str(directory)], piece_bytes=3000)]
    made.append(census.plan([url], piece_bytes=3000, store_conf=store.conf))
    facts = [merge([count(pickle.loads(pickle.dumps(piece))) for piece in one.pieces]) for one in made]
    assert facts[0].damaged == facts[1].damaged and facts[0] == facts[1]
    partitions = [[(piece.topic, piece.partition) for piece in one.pieces] for one in made]
    assert partitions[0] == partitions[1]
    assert made[0].configs == made[1].configs


def test_audit_of_objects_equals_files(directory: Path, store: ObjectServer) -> None:
    url = f"s3://{BUCKET}/data"
    there = Audit([url], store_conf=store.conf).report(as_tasks, now_ms=NOW_MS).to_json()
    here = Audit([str(directory)]).report(as_tasks, now_ms=NOW_MS).to_json()
    assert there.replace(url, str(directory)) == here and '"topic": "transactions"' in here


def test_rules_of_objects_equal_files(directory: Path, store: ObjectServer) -> None:
    url, made = f"s3://{BUCKET}/data", Rules.of(["key at least 1 GB", "header a required"])
    found = []
    for path, conf in ((url, store.conf), (str(directory), None)):
        pieces = [pickle.loads(pickle.dumps(one)) for one in items(Audit([path], store_conf=conf).places(), made, conf)]
        found.append(evaluated(made, [(one, check(one)) for one in pieces]))
    assert found[0] == found[1] and all(result.broken for result in found[0].results)


def as_tasks(items: Sequence[SegmentItem]) -> Iterator[tuple[SegmentItem, Packed]]:
    for item in items:
        yield item, look_over(pickle.loads(pickle.dumps(item)))
