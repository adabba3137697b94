"""The response to a scrape of Prometheus: rows in its text format, or in OpenMetrics.

Each scrape has a collector of its own over rows that are gathered already. It needs no lock, and may render in a
thread, away from the event loop. Needs the extra `http`: importing this module without prometheus-client raises
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
    from ..metrics.histogram import LoopLag
    from ..network.server import Running

GZIP_LEVEL = 1  # enough: most of the text is repeated names
# CPython lets a computing thread hold the interpreter for 5 ms while the event loop waits for it. The rendering thread
# therefore sleeps every few rows, long enough for the loop's thread to wake up.
ROWS_AT_ONCE = 200
GIVE_WAY_SECONDS = 0.0001


class _Gathered(Collector):
    """Collects gathered rows as metrics of prometheus_client."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows

    def describe(self) -> list[Metric]:
        """Returns nothing: a registry that calls it would collect twice."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Yields every family, also those without series: their help text is wanted, too."""
        for family in FAMILIES:
            metric = Metric(family.name, family.help, family.kind)
            # Samples are made one by one during rendering: tens of thousands at once would slow the garbage collector.
            metric.samples = _Samples(family, self._rows.found[family.name])  # type: ignore[assignment]
            yield metric


class _Samples:
    """The series of a family. Its iterator sleeps every ROWS_AT_ONCE rows, for the event loop."""

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
    if family.kind in (HISTOGRAM, SUMMARY):
        yield Sample(f"{family.name}_count", labels, value.count)
        yield Sample(f"{family.name}_sum", labels, value.sum)
    else:
        yield Sample(family.shown, labels, value)


async def scrape(
    running: Running, metrics: RequestMetrics, lag: LoopLag, accept: str = "", accept_encoding: str = ""
) -> tuple[bytes, dict[str, str]]:
    """Gathers all metrics and renders them; `accept` and `accept_encoding` are a request's headers. Returns the body of
    the response and its headers."""
    rows = await gather(running, metrics, lag)
    return await asyncio.get_running_loop().run_in_executor(None, _rendered, rows, accept, accept_encoding)


def _rendered(rows: Rows, accept: str, accept_encoding: str) -> tuple[bytes, dict[str, str]]:
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
    return body, headers
