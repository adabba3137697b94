"""Scrapes of a control plane for tests: parsed by prometheus_client, and checked with the rules of `promtool check
metrics`.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

import aiohttp
from prometheus_client import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text
from prometheus_client.samples import Sample

OPENMETRICS = "application/openmetrics-text; version=1.0.0"
# From promtool: units must be base units and spelled out, and names must not repeat the type.
SHORT_UNITS = {"s", "ms", "us", "ns", "sec", "b", "kb", "mb", "gb", "tb", "pb", "m", "h", "d"}
NO_BASE_UNITS = {"milliseconds", "microseconds", "nanoseconds", "minutes", "hours", "days", "kilobytes", "megabytes"}
TYPES = {"counter", "gauge", "histogram", "summary", "untyped"}
RESERVED = {"_bucket": {"histogram"}, "_count": {"histogram", "summary"}, "_sum": {"histogram", "summary"}}
NAME = re.compile(r"[a-z][a-z0-9_]*")


class Scrape:
    """A scrape."""

    def __init__(self, text: str, content_type: str) -> None:
        self.text = text
        self.content_type = content_type
        parse = parse_openmetrics if content_type.startswith("application/openmetrics-text") else parse_text
        self.families: dict[str, Metric] = {family.name: family for family in parse(text)}

    def samples(self) -> Iterator[Sample]:
        """Returns all samples."""
        return (sample for family in self.families.values() for sample in family.samples)

    def all(self, name: str) -> dict[tuple[str, ...], float]:
        """Returns the values of a name by the values of its labels, in the order of label names."""
        found = [sample for sample in self.samples() if sample.name == name]
        return {tuple(sample.labels[label] for label in sorted(sample.labels)): sample.value for sample in found}

    def value(self, name: str, **labels: object) -> float | None:
        """Returns the value of one series; None if there is none."""
        wanted = {label: str(value) for label, value in labels.items()}
        found = [sample.value for sample in self.samples() if sample.name == name and sample.labels == wanted]
        assert len(found) < 2, (name, labels)
        return found[0] if found else None

    def problems(self) -> list[str]:
        """Returns violations of promtool's rules and of Prometheus's text format."""
        return [*self._order(), *itertools.chain.from_iterable(map(_lint, self.families.values()))]

    def _order(self) -> Iterator[str]:
        """Each family has one HELP and one TYPE before its samples, which are consecutive."""
        seen: list[str] = []
        for line in self.text.splitlines():
            if line.startswith("# HELP "):
                seen.append(line.split(" ")[2])
            elif line.startswith("# TYPE ") and seen[-1:] != [line.split(" ")[2]]:
                yield f"{line}: without its HELP in front"
            elif line and not line.startswith("#") and not line.startswith(tuple(seen[-1:])):
                yield f"{line}: not below its HELP"
        yield from (f"{name}: two HELPs" for name in seen if seen.count(name) > 1)


async def scraped(url: str, **headers: str) -> Scrape:
    """Scrapes the control plane at a URL."""
    async with aiohttp.ClientSession() as http, http.get(f"{url}/metrics", headers=headers) as response:
        assert response.status == 200
        return Scrape(await response.text(), response.headers["Content-Type"])


def _lint(family: Metric) -> Iterator[str]:
    name, words = family.name, set(family.name.split("_"))
    if not NAME.fullmatch(name) or not family.documentation:
        yield f"{name}: no snake_case, or no help"
    yield from (f"{name}: {word}" for word in words & (SHORT_UNITS | NO_BASE_UNITS | TYPES))
    if family.type not in TYPES or (family.type != "counter" and name.endswith("_total")):
        yield f"{name}: a {family.type}"
    yield from (f"{name}: {end}" for end, types in RESERVED.items() if name.endswith(end) and family.type not in types)
    keys = [(sample.name, tuple(sorted(sample.labels.items()))) for sample in family.samples]
    yield from (f"{key} twice" for key in set(keys) if keys.count(key) > 1)
    for sample in family.samples:
        if family.type == "counter" and sample.name != f"{name}_total":
            yield f"{sample.name}: a counter without _total"
        yield from (f"{name}: label {label}" for label in sample.labels if not NAME.fullmatch(label))
        if not sample.value >= 0:
            yield f"{sample}: below 0"
    if family.type == "histogram":
        yield from _histogram(family)


def _histogram(family: Metric) -> Iterator[str]:
    """Bucket counts increase with their bounds, and the last bucket counts all."""
    buckets: dict[tuple[tuple[str, str], ...], list[tuple[float, float]]] = {}
    counts: dict[tuple[tuple[str, str], ...], float] = {}
    for sample in family.samples:
        labels = tuple(sorted((k, v) for k, v in sample.labels.items() if k != "le"))
        if sample.name.endswith("_bucket"):
            buckets.setdefault(labels, []).append((float(sample.labels["le"]), sample.value))
        elif sample.name.endswith("_count"):
            counts[labels] = sample.value
    for labels, found in buckets.items():
        values = [value for _, value in found]
        if found != sorted(found) or values != sorted(values) or found[-1] != (float("inf"), counts.get(labels)):
            yield f"{family.name}{labels}: {found}, {counts.get(labels)} in all"
