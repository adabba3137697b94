"""Which topics a compaction takes, and how it judges their records: `CompactSettings`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .steps import Release


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactSettings:
    """The topics that a compaction of data directories cleans, and its rules.

    It cleans the topics whose policy is compact; `topics` and `like` (a regular expression that whole names match)
    choose from them. With `force` the chosen topics are compacted whatever their policy is. `configs` are values of
    `configs.NAMES` for topics that have none of their own. Logs that are dirty by no more than `min_dirty_ratio`, from
    0 to 1, are left alone. `release` is what the cleaners of releases differ in. Deletes are judged by the time
    `now_ms`, the clock's if None.
    """

    topics: Sequence[str] | None = None
    like: str | re.Pattern[str] | None = None
    force: bool = False
    configs: Mapping[str, str] | None = None
    min_dirty_ratio: float = 0.0
    release: Release | None = None
    now_ms: int | None = None
