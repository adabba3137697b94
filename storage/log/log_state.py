"""The state of a partition log that its parts read: segments, configuration, offsets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ..config import LogConfig
from ..segments.segment import Segment


class LogState(Protocol):
    """A partition log as seen by retention and the last stable offset."""

    @property
    def segments(self) -> Sequence[Segment]:
        """The segments, oldest first; never empty while the log is open."""
        ...

    @property
    def config(self) -> LogConfig: ...
    @property
    def log_start_offset(self) -> int: ...
    @property
    def log_end_offset(self) -> int: ...
    @property
    def high_watermark(self) -> int: ...
