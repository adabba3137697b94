"""Which records an import takes, and how it writes them: `ImportSettings`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ....protocol.records.compression import Codec
from ...backend import ReadError
from . import tasks

CODECS = tuple(codec.name.lower() for codec in Codec)
MIN_SEGMENT_BYTES = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportSettings:
    """What is imported of Parquet files, and how.

    `topics`, or a pattern that whole names are `like`; all but the brokers' own if neither. `to_topic` names the topic
    that one of them is written to, or all where the files name none. Batches are compressed with `codec`.

    To brokers: topics that are made have `partitions` if that is more than the rows need, and `config` are settings of
    Kafka's producer. Into a data directory: segments have `segment_bytes`.
    """

    topics: Sequence[str] | None = None
    like: str | None = None
    to_topic: str | None = None
    partitions: int | None = None
    codec: str | None = None
    segment_bytes: int = tasks.SEGMENT_BYTES
    config: Mapping[str, str] | None = None

    def check(self) -> None:
        """Raises ReadError for a value that cannot be."""
        if self.codec is not None and self.codec not in CODECS:
            raise ReadError(f"codec is {self.codec!r}: it must be one of {', '.join(CODECS)}")
        if self.partitions is not None and self.partitions < 1:
            raise ReadError(f"partitions is {self.partitions}: it must be 1 or more")
        if self.segment_bytes < MIN_SEGMENT_BYTES:
            raise ReadError(f"segments of {self.segment_bytes} bytes: they must have {MIN_SEGMENT_BYTES} or more")
