"""The one reader of the wall clock in this package. Intervals are measured by the event loop's clock, never by this."""

from __future__ import annotations

import time


def now_ms() -> int:
    """Milliseconds since 1970: the timestamp of a record that is given none."""
    return time.time_ns() // 1_000_000
