"""Logs in files as a place to read from, with a row for each batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...backend import OffsetRange, Offsets, Piece, Selection, TopicPartition, Wanted
from .pieces import FileBackend


class BatchBackend:
    """Logs in files as `FileBackend` has them, whose pieces give a row for each batch."""

    def __init__(self, paths: Sequence[str]) -> None:
        self._logs = FileBackend(paths)

    def __enter__(self) -> BatchBackend:
        self._logs.__enter__()
        return self

    def __exit__(self, *told: object) -> None:
        self._logs.__exit__(*told)

    def partitions(self, selection: Selection) -> list[TopicPartition]:
        """As `Backend`."""
        return self._logs.partitions(selection)

    def earliest(self, of: Sequence[TopicPartition]) -> Offsets:
        """As `Backend`."""
        return self._logs.earliest(of)

    def latest(self, of: Sequence[TopicPartition], *, committed: bool) -> Offsets:
        """As `Backend`."""
        return self._logs.latest(of, committed=committed)

    def at_times(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        """As `Backend`."""
        return self._logs.at_times(times)

    def pieces(self, ranges: Sequence[OffsetRange], wanted: Wanted, *, at_least: int | None) -> Sequence[Piece]:
        """As `Backend`, of batches."""
        return self._logs.batch_pieces(ranges, wanted, at_least=at_least)
