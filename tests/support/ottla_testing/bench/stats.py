"""Evaluates the samples: medians, spreads, ratios, aims, and the printed table. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

OTTLA = "ottla"


class Measure(NamedTuple):
    """A figure: its name, its unit, and whether more is better."""

    name: str
    unit: str
    more_is_better: bool = True


class Summary(NamedTuple):
    """The median, minimum and maximum of one peer's samples."""

    median: float
    low: float
    high: float


class Aim(NamedTuple):
    """A target for a figure: Ottla's median, or (with a peer) the ratio of Ottla's median to the peer's."""

    measure: str
    peer: str | None
    bound: float
    at_least: bool


class Verdict(NamedTuple):
    """An aim with its figure; both are None if it was not measured, which is never "met"."""

    aim: Aim
    value: float | None
    met: bool | None


Samples = Mapping[str, Mapping[str, Sequence[float]]]  # measure -> peer -> one sample per round


def summarize(samples: Sequence[float]) -> Summary:
    """Raises ValueError without samples."""
    if not samples:
        raise ValueError("no samples")
    return Summary(statistics.median(samples), min(samples), max(samples))


def percentile(samples: Sequence[float], percent: float) -> float:
    """Returns the smallest sample that at least `percent` of the samples do not exceed (nearest rank)."""
    if not samples or not 0 < percent <= 100:
        raise ValueError(f"no {percent}th percentile of {len(samples)} samples")
    return sorted(samples)[math.ceil(len(samples) * percent / 100) - 1]


def ratio(samples: Mapping[str, Sequence[float]], peer: str) -> float | None:
    """Returns Ottla's median divided by the peer's; None unless both were measured."""
    own, other = samples.get(OTTLA), samples.get(peer)
    if not own or not other or not (divisor := summarize(other).median):
        return None
    return summarize(own).median / divisor


def judge(aim: Aim, samples: Samples) -> Verdict:
    """Compares an aim with the measurement, if there is one."""
    taken = samples.get(aim.measure, {})
    if aim.peer is None:
        own = taken.get(OTTLA)
        value = summarize(own).median if own else None
    else:
        value = ratio(taken, aim.peer)
    if value is None:
        return Verdict(aim, None, None)
    return Verdict(aim, value, value >= aim.bound if aim.at_least else value <= aim.bound)


def number(value: float) -> str:
    """Formats with three significant digits, a comma for thousands, never an exponent."""
    if value == 0:
        return "0"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.{max(0, 2 - math.floor(math.log10(abs(value))))}f}"


def table(rows: Sequence[Sequence[str]]) -> str:
    """Formats aligned columns, the first to the left and the others to the right; the first row is the heading."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines: list[str] = []
    for row in rows:
        cells = [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        lines.append("  ".join(cells).rstrip())
    lines.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join(lines)


def figures(measures: Sequence[Measure], peers: Sequence[str], samples: Samples) -> str:
    """Returns the table of medians with their spread, and of the ratios of medians."""
    others = [peer for peer in peers if peer != OTTLA]
    rows = [["measure", "unit", *peers, *(f"/{peer}" for peer in others)]]
    for measure in measures:
        if not (taken := samples.get(measure.name)):
            continue
        row = [measure.name, measure.unit]
        for peer in peers:
            if values := taken.get(peer):
                median, low, high = summarize(values)
                row.append(f"{number(median)} ({number(low)}..{number(high)})")
            else:
                row.append("-")
        row += [f"{r:.2f}" if (r := ratio(taken, peer)) is not None else "-" for peer in others]
        rows.append(row)
    return table(rows)


def verdicts(aims: Sequence[Aim], measures: Sequence[Measure], samples: Samples) -> str:
    """Returns the table of aims with their figures."""
    units = {measure.name: measure.unit for measure in measures}
    rows = [["aim", "wanted", "measured", ""]]
    for aim in aims:
        verdict = judge(aim, samples)
        unit = f" {units[aim.measure]}" if aim.peer is None else f" x {aim.peer}"
        wanted = f"{'at least' if aim.at_least else 'at most'} {aim.bound:g}{unit}"
        if verdict.value is None:
            rows.append([aim.measure, wanted, "-", "not measured"])
        else:
            rows.append([aim.measure, wanted, number(verdict.value), "met" if verdict.met else "missed"])
    return table(rows)


def as_json(measures: Sequence[Measure], aims: Sequence[Aim], samples: Samples) -> dict[str, Any]:
    """Returns the contents of the tables with all samples."""
    taken = [measure for measure in measures if samples.get(measure.name)]
    return {
        "measures": [
            {
                "name": measure.name,
                "unit": measure.unit,
                "more_is_better": measure.more_is_better,
                "peers": {
                    peer: {**summarize(values)._asdict(), "samples": list(values)}
                    for peer, values in samples[measure.name].items()
                    if values
                },
                "ottla_over": {
                    peer: r
                    for peer in samples[measure.name]
                    if peer != OTTLA and (r := ratio(samples[measure.name], peer)) is not None
                },
            }
            for measure in taken
        ],
        "aims": [
            {**aim._asdict(), "value": verdict.value, "met": verdict.met}
            for aim, verdict in ((aim, judge(aim, samples)) for aim in aims)
        ],
    }
