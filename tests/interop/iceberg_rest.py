"""An export as an Iceberg table in the REST catalog of Iceberg's own tests, which Iceberg's Java library reads."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import pyarrow as pa

from ottla.pipeline.backend import Selection
from ottla.pipeline.jobs.export import commit
from ottla.pipeline.jobs.export.commit import opener
from ottla.pipeline.jobs.export.job import ExportSettings
from ottla.pipeline.jobs.export.value_columns import Decoding
from ottla.pipeline.jobs.import_ import sources
from ottla.pipeline.jobs.verify.compare import compare
from ottla.pipeline.jobs.verify.plan import plan
from ottla.pipeline.objects.places import Place
from ottla.pipeline.readers.files import FileBackend
from ottla.protocol.records.batch import Record
from ottla_testing.interop.checks import Check, Failed, jars, java
from ottla_testing.pipeline.export_samples import DAY_MS, DISK, NOW_MS, a_log, exported
from ottla_testing.pipeline.object_server import BUCKET, KEYS, ObjectServer, object_server_process

RELEASE = "1.10.0"
JARS = [
    *(f"org.apache.iceberg:iceberg-{name}:{RELEASE}" for name in ("core", "data", "parquet")),
    f"org.apache.iceberg:iceberg-core:{RELEASE}:tests",
    "org.apache.hadoop:hadoop-client-runtime:3.4.1",
    "org.assertj:assertj-core:3.27.3",
    "org.eclipse.jetty:jetty-servlet:11.0.26",
    "org.xerial:sqlite-jdbc:3.50.3.0",
]
STORE_JARS = [f"org.apache.iceberg:iceberg-{name}:{RELEASE}" for name in ("aws", "aws-bundle")]
TABLE = "raw.kafka"


class Server:
    """The catalog, a process."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdin is not None and process.stdout is not None
        self._in, self._out = process.stdin, process.stdout
        self.url = f"http://127.0.0.1:{int(self._out.readline())}/"

    def read(self, table: str) -> tuple[list[str], int]:
        """Returns the rows of a table, and its number of snapshots."""
        print(table, file=self._in, flush=True)
        rows: list[str] = []
        for line in self._out:
            if line.startswith("end "):
                return rows, int(line.split()[1])
            rows.append(line.removesuffix("\n"))
        raise Failed("Iceberg could not read the table")


@contextmanager
def server(folder: Path, store: ObjectServer | None) -> Iterator[Server]:
    found = jars(f"iceberg-{RELEASE}", JARS) if store is None else jars(f"iceberg-{RELEASE}-store", JARS + STORE_JARS)
    where = [] if store is None else [f"s3://{BUCKET}/warehouse", store.url]
    command = java(found, Path(__file__).with_name("IcebergRest.java"), str(folder), *where)
    pipe = subprocess.PIPE
    with subprocess.Popen(command, text=True, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL) as process:
        try:
            yield Server(process)
        finally:
            process.kill()


def run(data: Path, lake: str, url: str, place: Place | None, fields: list[str], *, add: bool) -> None:
    """Exports what is new, a group of two pieces in one snapshot."""
    settings = ExportSettings(
        format="iceberg",
        table=TABLE,
        catalog={"type": "rest", "uri": url},
        decoding=Decoding.json(pa.schema([(name, pa.string()) for name in fields])),
        add_columns=add,
    )
    table = opener(lake, settings.form(), settings.catalog_table(lake), place)
    files = DISK if place is None else place.files()
    exported(data, lake, files=files, form=settings.form(), settings=settings.of_folder(), table=table)


def compared(place: Path, store: ObjectServer | None) -> str:
    commit.GROUP_PIECES = 1
    with server(place, store) as catalog:
        data = place / "data"
        objects = None if store is None else store.place("lake")
        lake = str(place / "lake") if objects is None else objects.files().root
        expected: list[str] = []
        for turn, fields in enumerate((["id"], ["id", "note"])):
            for partition in (0, 1):
                records = []
                for n in range(turn * 50, turn * 50 + 50):
                    note = f'"n{n}"' if turn else "null"
                    value = f'{{"id":"{n}","note":{note}}}'
                    records.append(Record(n, NOW_MS + n % 2 * DAY_MS, b"k", value.encode(), ()))
                    day = f"2023-11-{14 + n % 2}"
                    expected.append(f"{partition} {n:06d} {day} {value} {f'n{n}' if turn else 'null'}")
                a_log(data, "orders", partition, [records])
            for _ in range(2):
                run(data, lake, catalog.url, objects, fields, add=turn == 1)
        rows, snapshots = catalog.read(TABLE)
        if rows != sorted(expected):
            raise Failed(f"Iceberg reads other rows: {sorted(set(rows) ^ set(expected))[:4]}")
        properties = {"type": "rest", "uri": catalog.url}
        files = sources.listed(None, TABLE, properties, store.conf if store else None).files
        with FileBackend([str(data)]) as logs:
            of = ExportSettings(format="iceberg", table=TABLE, catalog=properties).catalog_table(lake)
            checks = plan(logs, lake, Selection(), of, place=objects).checks
        if sum(compare(one).differences for one in checks):
            raise Failed("the table differs from the log")
        where = "" if store is None else f", in {lake.rpartition('/')[0]}"
        return f"{len(rows)} rows, {len(files)} files in {snapshots} snapshots{where}, read by Iceberg {RELEASE}"


def check() -> str:
    with tempfile.TemporaryDirectory(prefix="iceberg-") as place:
        return compared(Path(place), None)


def check_in_store() -> str:
    with (
        tempfile.TemporaryDirectory(prefix="iceberg-") as place,
        mock.patch.dict(os.environ, KEYS),
        object_server_process() as store,
    ):
        return compared(Path(place), store)


CHECKS = [
    Check("Iceberg's REST catalog: an export, new columns, read by Java", check),
    Check("Iceberg's REST catalog: the same in an object store", check_in_store),
]
