"""A backend over files with one row for each batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...backend import OffsetRange, Offsets, Piece, Selection, TopicPartition, Wanted
from .pieces import FileBackend


class BatchBackend:
    """The logs of a `FileBackend`, with pieces that return one row for each batch."""

    def __init__(self, paths: Sequence[str], *, store_conf: Mapping[str, str] | None = None) -> None:
        self._logs = FileBackend(paths, store_conf=store_conf)

    def __enter__(self) -> BatchBackend:
        self._logs.__enter__()
        return self

    def __exit__(self, *details: object) -> None:
        self._logs.__exit__(*details)

    def partitions(self, selection: Selection) -> list[TopicPartition]:
        return self._logs.partitions(selection)

    def earliest(self, of: Sequence[TopicPartition]) -> Offsets:
        return self._logs.earliest(of)

    def latest(self, of: Sequence[TopicPartition], *, committed: bool) -> Offsets:
        return self._logs.latest(of, committed=committed)

    def at_times(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        return self._logs.at_times(times)

    def pieces(self, ranges: Sequence[OffsetRange], wanted: Wanted, *, at_least: int | None) -> Sequence[Piece]:
        """Returns the work that covers the ranges, like `Backend.pieces`, with one row for each batch."""
        return self._logs.batch_pieces(ranges, wanted, at_least=at_least)
