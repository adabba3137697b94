"""What a scrape is answered: rows as Prometheus reads them, in its text format or in OpenMetrics.

Owns the collector, made anew for each scrape from rows that are gathered already: so it needs no lock, and may render
in a thread, away from the event loop. Needs the extra `http`: importing this module without prometheus-client raises
ImportError.
"""

from __future__ import annotations

import asyncio
import gzip
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from prometheus_client import GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.core import Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector, CollectorRegistry
from prometheus_client.samples import Sample

from ..metrics.families import FAMILIES, HISTOGRAM, SUMMARY, Family
from .metrics import Labels, Rows, gather

if TYPE_CHECKING:
    from ..metrics.counters import RequestMetrics
    from ..metrics.loop_lag import LoopLag
    from ..network.server import Running

GZIP_LEVEL = 1  # most of what there is are names that come again
# A thread that computes keeps the loop waiting for 5 ms whenever that has had nothing to do for a moment. So it lets go
# of the interpreter more often, for long enough that the loop's thread wakes up.
ROWS_AT_ONCE = 200
GIVE_WAY_SECONDS = 0.0001


class _Gathered(Collector):
    """Rows as metrics."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows

    def describe(self) -> list[Metric]:
        """Nothing: a registry that asked for it would collect twice."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Every family, those without series too: whoever looks for a name finds what it means."""
        for family in FAMILIES:
            metric = Metric(family.name, family.help, family.kind)
            # Made one by one as they are written: tens of thousands at once would keep the garbage collector busy.
            metric.samples = _Samples(family, self._rows.found[family.name])  # type: ignore[assignment]
            yield metric


class _Samples:
    """The series of a family. Who iterates over them gives way to the event loop now and then."""

    def __init__(self, family: Family, rows: list[tuple[Labels, Any]]) -> None:
        self._family = family
        self._rows = rows

    def __iter__(self) -> Iterator[Sample]:
        family = self._family
        for number, (labels, value) in enumerate(self._rows, 1):
            yield from _samples(family, dict(zip(family.labels, labels, strict=False)), value)
            if number % ROWS_AT_ONCE == 0:
                time.sleep(GIVE_WAY_SECONDS)


def _samples(family: Family, labels: dict[str, str], value: Any) -> Iterator[Sample]:
    if family.kind == HISTOGRAM:
        for bound, count in value.buckets:
            yield Sample(f"{family.name}_bucket", {**labels, "le": bound}, count)
        yield Sample(f"{family.name}_count", labels, value.count)
        yield Sample(f"{family.name}_sum", labels, value.sum_seconds)
    elif family.kind == SUMMARY:
        yield Sample(f"{family.name}_count", labels, value.count)
        yield Sample(f"{family.name}_sum", labels, value.sum)
    else:
        yield Sample(family.shown, labels, value)


class Scraped:
    """An answer: its bytes, and the headers that say what they are."""

    def __init__(self, body: bytes, headers: dict[str, str]) -> None:
        self.body = body
        self.headers = headers


async def scrape(
    running: Running, metrics: RequestMetrics, lag: LoopLag, accept: str = "", accept_encoding: str = ""
) -> Scraped:
    """All that there is to tell; `accept` and `accept_encoding` are a request's headers."""
    rows = await gather(running, metrics, lag)
    return await asyncio.get_running_loop().run_in_executor(None, _rendered, rows, accept, accept_encoding)


def _rendered(rows: Rows, accept: str, accept_encoding: str) -> Scraped:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Gathered(rows))
    for collector in (ProcessCollector, PlatformCollector, GCCollector):
        collector(registry=registry)
    encode, content_type = choose_encoder(accept)
    body = encode(registry)
    headers = {"Content-Type": content_type, "Vary": "Accept, Accept-Encoding"}
    if "gzip" in (part.partition(";")[0].strip() for part in accept_encoding.split(",")):
        body = gzip.compress(body, GZIP_LEVEL)
        headers["Content-Encoding"] = "gzip"
    return Scraped(body, headers)
