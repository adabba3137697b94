"""Reading logs in the tasks of Spark without passing their bytes through its JVM: `scan(...).map_arrow(function)`."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from .backend import Piece, ReadError
from .cluster import context_of
from .options import parse
from .schemas import schema as schema_of
from .session import session
from .sources.reader import LogsReader, plainly
from .sources.source import open_backend

ArrowFunction = Callable[[Iterator[pa.RecordBatch]], Iterable[pa.RecordBatch]]


class Scan:
    """Records of logs that are to be read, in their state at the time of `map_arrow`."""

    def __init__(self, options: Mapping[str, str], spark: SparkSession) -> None:
        source = "ottla_log" if "path" in options else "ottla"
        self._options = parse(options, source, False)
        self._spark = spark

    @plainly
    def map_arrow(self, function: ArrowFunction, schema: StructType | str) -> DataFrame:
        """Returns what `function` makes of the records, with this schema.

        It is called in a task for each piece of a log (a segment, or a part of a large one) with an iterator of Arrow
        record batches in offset order, and yields record batches: only these reach Spark. Like every task it may run
        again. Raises ReadError, here or in the task.
        """
        reader = LogsReader(self._options, partial(open_backend, self._options), schema_of(self._options))
        pieces = [(pickle.dumps(piece),) for piece in reader.pieces()]
        # One partition for each piece: a task reads one piece.
        rows = context_of(self._spark).parallelize(pieces, max(1, len(pieces)))
        tasks = self._spark.createDataFrame(rows, "piece binary")
        return tasks.mapInArrow(partial(_mapped, function), schema)


def scan(path: str | None = None, options: Mapping[str, str] | None = None, **more: str) -> Scan:
    """Returns a scan of the log directories at `path`, or of the brokers of `kafka.bootstrap.servers`, with the options
    of the formats `ottla_log` and `ottla`; names with dots only fit into `options`. Without a session it starts
    `session()`. Raises OptionError.

        sizes = scan("data", subscribe="orders", columns="valueSize").map_arrow(total, "bytes long")
    """
    given = {**(options or {}), **more, **({} if path is None else {"path": path})}
    return Scan(given, SparkSession.getActiveSession() or session())


def _mapped(function: ArrowFunction, rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Runs in a task."""
    for batch in rows:
        for data in batch.column(0).to_pylist():
            piece: Piece = pickle.loads(data)
            try:
                yield from function(iter(piece.read()))
            except ReadError as error:
                raise error.with_traceback(None) from None
