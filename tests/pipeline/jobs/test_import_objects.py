"""The files of an import in an object store: the same rows and the same identity as from a folder."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import deltalake
import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog

from ottla.pipeline.backend import ReadError, TopicPartition
from ottla.pipeline.jobs.import_ import files, plan, sources
from ottla.pipeline.objects.files import TAIL_BYTES, ObjectFiles, ObjectReader
from ottla.pipeline.objects.places import Place
from ottla_testing.pipeline.import_samples import put_records, some
from ottla_testing.pipeline.object_server import BUCKET, KEYS, ObjectServer, object_server_process
from ottla_testing.pipeline.web_server import web_server


@pytest.fixture(scope="module")
def server() -> Iterator[ObjectServer]:
    """Starts a server in a process of its own, for deltalake."""
    with pytest.MonkeyPatch.context() as patch, object_server_process() as found:
        for name, value in KEYS.items():
            patch.setenv(name, value)
        yield found


@pytest.fixture
def store(server: ObjectServer) -> ObjectServer:
    server.reset()
    return server


def sync(folder: Path, objects: ObjectFiles) -> None:
    """Copies the files of a folder, as `aws s3 sync` does."""
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            objects.put(f"{objects.root}/{path.relative_to(folder).as_posix()}", path.read_bytes())


def listed(url: str, store: ObjectServer) -> list[files.ParquetFile]:
    return files.listed(url, store.conf)


def rows_of(found: list[files.Found], **options: Any) -> dict[TopicPartition, list[Any]]:
    rows: dict[TopicPartition, list[Any]] = {}
    for piece in plan.plan(found, **options).pieces:
        for batch in piece.read():
            rows.setdefault(piece.key, []).extend(batch.to_pylist())
    return rows


def test_objects_equal_files(tmp_path: Path, store: ObjectServer) -> None:
    put_records(tmp_path, "a", 0, some(2000), "large")
    put_records(tmp_path, "b.c", 3, some(20))
    for name in ("_ottla/x.parquet", "topic=a/.hidden/x.parquet", "topic=a/_x.parquet", "topic=a/x.parquet.tmp"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"no")
    objects = store.files("equal")
    sync(tmp_path, objects)
    here = [files.look(file) for file in files.listed(tmp_path)]
    there = [files.look(file) for file in listed(f"{objects.root}/", store)]
    assert [(one.file.name, *one.file[2:4]) for one in there] == [(one.file.name, *one.file[2:4]) for one in here]
    assert [one.size_bytes for one in there] == [one.file.size_bytes for one in there]
    assert files.identity(there) == files.identity(here)
    assert rows_of(there) == rows_of(here)
    (alone,) = listed(there[1].file.path, store)
    assert (alone.topic, alone.partition, alone.size_bytes) == ("b.c", 3, there[1].size_bytes)
    assert rows_of([files.look(alone)]) == {TopicPartition("b.c", 3): rows_of(here)[TopicPartition("b.c", 3)]}


def test_objects_are_read_in_few_requests(tmp_path: Path, store: ObjectServer) -> None:
    put_records(tmp_path, "a", 0, some(2000))
    objects = store.files("few")
    sync(tmp_path, objects)
    found = [files.look(file) for file in listed(objects.root, store)]
    store.reset()
    assert sum(len(rows) for rows in rows_of(found).values()) == 2000
    log = store.reset()
    assert len(log) <= 8 and {line.partition(" ")[0] for line in log} == {"HEAD", "GET"}


def test_delta_table_newest_version(store: ObjectServer) -> None:
    place = store.place("tables/la ke")
    table = pa.table({"value": pa.array([b"old"]), "topic": ["t"], "partition": pa.array([1], pa.int32())})
    options = place.options()
    deltalake.write_deltalake(place.url, table, partition_by=["topic", "partition"], storage_options=options)
    newer = table.set_column(0, "value", pa.array([b"new"]))
    deltalake.write_deltalake(place.url, newer, mode="overwrite", storage_options=options)
    found = [files.look(file) for file in listed(place.url, store)]
    assert [row["value"] for row in rows_of(found)[TopicPartition("t", 1)]] == [b"new"]
    with pytest.raises(ReadError, match=r"la ke is a Delta table: import it alone"):
        listed(f"s3://{BUCKET}/tables", store)


@pytest.mark.parametrize(
    ("url", "message"),
    [
        (f"s3://{BUCKET}/nothing", "has no Parquet file"),
        (f"s3://{BUCKET}/nothing/x.parquet", "cannot read s3://lake/nothing/x.parquet: there is no such object"),
        ("s3://no-such-bucket/x", "cannot read s3://no-such-bucket/x: NoSuchBucket"),
        ("s3:///x", "names no bucket"),
        ("s3://user:pw@bucket/x", "with a password or a query is not supported"),
        ("https://host/x.parquet?sig=abc", "with a password or a query is not supported"),
    ],
)
def test_invalid_places_refused(store: ObjectServer, url: str, message: str) -> None:
    conf = store.conf if url.startswith("s3") else {}
    with pytest.raises(ReadError, match=re.escape(message)) as raised:
        files.listed(url, conf)
    assert "abc" not in str(raised.value) and "pw" not in str(raised.value)


@pytest.mark.parametrize(
    ("conf", "message"),
    [
        ({"aws_secret_access_key": "x"}, "aws_secret_access_key is not a setting: credentials come from"),
        ({"sas_token": "x"}, "sas_token is not a setting"),
        ({"color": "x"}, "'color' is not valid"),
        ({"max_retries": "many"}, "cannot be used with these settings"),
    ],
)
def test_invalid_settings_refused(conf: dict[str, str], message: str) -> None:
    with pytest.raises(ReadError, match=re.escape(message)):
        files.listed(f"s3://{BUCKET}/x", conf)


def test_settings_for_other_libraries() -> None:
    place = Place.of("s3://lake/x/", {"endpoint": "http://h:1", "anonymous": "true", "max_retries": "2"})
    assert place.url == "s3://lake/x"
    assert place.options() == {"endpoint": "http://h:1", "skip_signature": "true", "allow_http": "true"}


def test_settings_without_objects_refused(tmp_path: Path) -> None:
    with pytest.raises(ReadError, match="do not apply to the folder"):
        files.listed(tmp_path, {"region": "x"})


def test_damaged_and_missing_objects_named(tmp_path: Path, store: ObjectServer) -> None:
    objects = store.files("damaged")
    objects.put(f"{objects.root}/x.parquet", b"PAR1 but not really PAR1")
    (file,) = listed(objects.root, store)
    with pytest.raises(ReadError, match=r"s3://lake/damaged/x\.parquet is not a readable Parquet file"):
        files.look(file)
    objects.remove(file.path)
    with pytest.raises(ReadError, match=r"s3://lake/damaged/x\.parquet cannot be read: .*no such object"):
        files.look(file)


def test_reader_reads_by_position(store: ObjectServer) -> None:
    data = bytes(n % 251 for n in range(3 * TAIL_BYTES))
    objects = store.files("reader")
    path = f"{objects.root}/x"
    objects.put(path, data)
    reader = ObjectReader(objects, path)
    assert (reader.seek(-8, 2), reader.read(), reader.read()) == (len(data) - 8, data[-8:], b"")
    assert (reader.seek(5), reader.read(7), reader.tell()) == (5, data[5:12], 12)
    assert reader.seek(-2, 1) == 10 and reader.read(len(data)) == data[10:]


def test_web_server_files_equal_the_folders(tmp_path: Path) -> None:
    """One file by its name, and a folder by the lists that the server shows."""
    put_records(tmp_path, "t", 0, some(5))
    put_records(tmp_path / "a b%20c", "u", 1, some(7))
    first, *_ = paths = sorted(tmp_path.rglob("*.parquet"))
    with web_server(tmp_path) as server:
        (one,) = files.listed(f"{server.url}/{quote(first.relative_to(tmp_path).as_posix())}")
        assert one.size_bytes == first.stat().st_size
        found = files.listed(server.url)
        assert [file.size_bytes for file in found] == [path.stat().st_size for path in paths]
        here, there = files.listed(tmp_path), rows_of([files.look(file) for file in found])
    assert there == rows_of([files.look(file) for file in here])
    assert sum(map(len, there.values())) == 12


def test_delta_table_of_web_server_refused(tmp_path: Path) -> None:
    deltalake.write_deltalake(tmp_path / "table", pa.table({"value": [b"a"]}))
    with (
        web_server(tmp_path) as server,
        pytest.raises(ReadError, match="is a Delta table: it can be read in a folder"),
    ):
        files.listed(f"{server.url}/table")


def test_table_of_a_catalog_in_store_equals_its_folder(tmp_path: Path, store: ObjectServer) -> None:
    """An Iceberg table whose files are objects: written by pyiceberg, and read with the settings of the store."""
    more = {"s3.endpoint": store.url, "s3.region": "us-east-1"}
    conf = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog"}
    catalog = load_catalog("ottla", **conf, **more, warehouse=f"s3://{BUCKET}/iceberg")
    data = pa.table({"value": [b"a", b"b"], "topic": ["t", "t"], "offset": pa.array([3, 4], pa.int64())})
    try:
        catalog.create_namespace("raw")
        table = catalog.create_table("raw.kafka", data.schema)
        table.append(data)
        location = table.location()
    finally:
        catalog.close()
    found = sources.listed(None, "raw.kafka", conf, store.conf)
    looked = [files.look(one) for one in found.files]
    assert [(one.place and one.place.url, one.size_bytes > 0) for one in found.files] == [(location, True)]
    (rows,) = rows_of(looked).values()
    assert [row["value"] for row in rows] == [b"a", b"b"]
    assert sources.listed(location, "raw.kafka", conf, store.conf).files == found.files
    with pytest.raises(ReadError, match=r"is an Iceberg table: name its catalog"):
        sources.listed(location, store_conf=store.conf)
    with pytest.raises(ReadError, match=r"^the table raw.kafka needs its catalog$"):
        sources.listed(location, "raw.kafka", store_conf=store.conf)
