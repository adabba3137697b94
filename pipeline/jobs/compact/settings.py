"""The topics of a compaction, and the rules for their records: `CompactSettings`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .steps import Release


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactSettings:
    """The topics that a compaction of data directories cleans, and its rules.

    It cleans the topics with the policy compact; `topics` and `like` (a regular expression for full names) restrict
    them. With `force` the selected topics are compacted whatever their policy. `configs` are values of `configs.NAMES`
    for topics without an own value. Logs with a dirty ratio up to `min_dirty_ratio`, from 0 to 1, are skipped.
    `release` has the differences between the cleaners of releases. `now_ms` is the time for the deletion of tombstones,
    the clock's if None.
    """

    topics: Sequence[str] | None = None
    like: str | re.Pattern[str] | None = None
    force: bool = False
    configs: Mapping[str, str] | None = None
    min_dirty_ratio: float = 0.0
    release: Release | None = None
    now_ms: int | None = None
