"""Histograms that count values by upper bounds, as Prometheus shows them."""

from __future__ import annotations

from bisect import bisect_left

SECONDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""The bounds of requests' times, in seconds."""
NS = 1_000_000_000
SECONDS_NS = tuple(round(bound * NS) for bound in SECONDS)


class Histogram:
    """A histogram. `bounds` are ascending, in the unit that is shown, of which a counted value is `1 / per_unit`.

    `buckets` has a count for each bound, and a last one for larger values.
    """

    __slots__ = ("bounds", "buckets", "limits", "per_unit", "sum")

    def __init__(self, bounds: tuple[float, ...] = SECONDS, per_unit: int = NS) -> None:
        self.bounds = bounds
        self.per_unit = per_unit
        self.limits = SECONDS_NS if bounds is SECONDS else tuple(round(bound * per_unit) for bound in bounds)
        self.buckets = [0] * (len(bounds) + 1)
        self.sum = 0

    def add(self, value: int) -> None:
        """Counts a value."""
        self.buckets[bisect_left(self.limits, value)] += 1
        self.sum += value
