"""Rates of the counters in successive overviews of a broker.

Owns the rule by which overviews are compared: only those of the same broker process and state. The time comes from the
overviews (`uptime_ms`).
"""

from __future__ import annotations

from collections import deque
from typing import Any

TREND_MS = 10_000  # consumers commit every few seconds: over a shorter time the lag goes up and down
SHORTEST_MS = 900  # overviews closer in time than this give no meaningful rate

NAMES: dict[str, tuple[str, ...]] = {
    "topics": ("name",),
    "groups": ("id",),
    "producers": ("topic", "partition", "producer_id"),
    "clients": ("listener", "client_id", "software_name", "software_version"),
    "slow": ("number",),
    "waiting": ("number",),
    "faults": ("id",),
}
"""The key fields of the entries of each list."""

COUNTERS: dict[str, tuple[str, ...]] = {
    "topics": ("records_in", "bytes_in", "bytes_out"),
    "groups": ("committed",),
    "producers": ("last_sequence",),
    "clients": ("requests", "request_bytes", "response_bytes"),
}
TRENDS: dict[str, tuple[str, ...]] = {"groups": ("lag", "committed")}
"""The counters compared over TREND_MS; they may decrease."""
TOTALS = ("records_in", "bytes_in", "bytes_out", "requests", "request_bytes", "response_bytes")

Row = dict[str, Any]
Overview = dict[str, Any]


def key_of(kind: str, row: Row) -> tuple[Any, ...]:
    """Returns the key of an entry of the list `kind`."""
    return tuple(row[name] for name in NAMES[kind])


class History:
    """The overviews of the last seconds."""

    def __init__(self) -> None:
        self._known: deque[tuple[int, Overview, dict[str, dict[tuple[Any, ...], Row]]]] = deque()
        self._identity: tuple[Any, ...] = ()

    def add(self, overview: Overview) -> Overview:
        """Returns the overview with rates: `per_second` in the totals and in each entry with counters.

        `per_second` has a number by the counter's name, None without an earlier value. Raises LookupError or TypeError
        for a value that is not an overview.
        """
        broker = overview["broker"]
        identity = broker["instance"], broker["state"]
        now_ms: int = broker["uptime_ms"]
        if identity != self._identity or (self._known and now_ms < self._known[-1][0]):
            self._known.clear()
            self._identity = identity
        while len(self._known) > 1 and self._known[1][0] <= now_ms - TREND_MS:
            self._known.popleft()
        recent = next((one for one in reversed(self._known) if one[0] <= now_ms - SHORTEST_MS), None)
        recent = recent or (self._known[0] if self._known else None)
        oldest = self._known[0] if self._known else None
        rows = {kind: {key_of(kind, row): row for row in overview[kind]} for kind in COUNTERS}
        self._known.append((now_ms, overview, rows))
        shown = dict(overview)
        for kind, counters in COUNTERS.items():
            trends = TRENDS.get(kind, ())
            shown[kind] = []
            for key, row in rows[kind].items():
                rates = {}
                for name in dict.fromkeys((*counters, *trends)):
                    before = oldest if name in trends else recent
                    earlier = None if before is None else before[2][kind].get(key)
                    elapsed_ms = 0 if before is None else now_ms - before[0]
                    rates[name] = _rate(row, earlier, name, elapsed_ms, may_sink=name == "lag")
                shown[kind].append(row | {"per_second": rates})
        elapsed_ms = 0 if recent is None else now_ms - recent[0]
        earlier = None if recent is None else recent[1]["totals"]
        totals = overview["totals"]
        shown["totals"] = totals | {"per_second": {name: _rate(totals, earlier, name, elapsed_ms) for name in TOTALS}}
        return shown


def _rate(row: Row, earlier: Row | None, name: str, elapsed_ms: int, *, may_sink: bool = False) -> float | None:
    if earlier is None or elapsed_ms <= 0:
        return None
    grown = row[name] - earlier[name]
    if grown < 0 and not may_sink:  # a new topic, group or client of the same name
        return None
    return round(grown * 1000 / elapsed_ms, 3)
