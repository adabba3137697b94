"""The records of an import, and how they are written: `ImportSettings`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ....protocol.records.compression import Codec
from ...backend import ReadError
from . import tasks

CODECS = tuple(codec.name.lower() for codec in Codec)
MIN_SEGMENT_BYTES = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportSettings:
    """The records that an import reads from Parquet files, and how it writes them.

    `topics` lists the topics; `like` is a regular expression that full names must match. With neither: all but internal
    topics. `to_topic` is the target if one topic is imported, or if the files name none. Batches are compressed with
    `codec`.

    `catalog` are pyiceberg's properties of the catalog that has the Iceberg table `table`, if the rows are in one.

    To brokers: a topic that is created has `partitions`, or more if the rows need more; `config` are configs of Kafka's
    producer. To a data directory: segments roll at `segment_bytes`.

    `store_conf` are settings of the object store that has the files, such as `endpoint` and `region`; credentials are
    none of them.
    """

    topics: Sequence[str] | None = None
    like: str | None = None
    to_topic: str | None = None
    partitions: int | None = None
    codec: str | None = None
    segment_bytes: int = tasks.SEGMENT_BYTES
    table: str | None = None
    catalog: Mapping[str, str] | None = field(default=None, repr=False)  # may have passwords
    config: Mapping[str, str] | None = field(default=None, repr=False)  # may have passwords
    store_conf: Mapping[str, str] | None = None

    def check(self) -> None:
        """Raises ReadError for an invalid value."""
        if self.codec is not None and self.codec not in CODECS:
            raise ReadError(f"codec is {self.codec!r}: it must be one of {', '.join(CODECS)}")
        if self.partitions is not None and self.partitions < 1:
            raise ReadError(f"partitions is {self.partitions}: it must be 1 or more")
        if self.segment_bytes < MIN_SEGMENT_BYTES:
            raise ReadError(f"segment_bytes is {self.segment_bytes}: it must be {MIN_SEGMENT_BYTES} or more")
