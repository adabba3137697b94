"""The page docs/internals/speed.md: its tables and plots, made from the results of `make bench`.

    python -m ottla_testing.bench.pictures out/bench.json [MORE.json ...]

Writes what the page includes: docs/snippets/speed/figures.json, which has the medians with their spread, the table made
from it, and docs/assets/speed-*.svg. A later file replaces figures of an earlier one.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ottla_testing import ROOT
from ottla_testing.bench.growth import Grown
from ottla_testing.bench.growth import draw as draw_growth
from ottla_testing.bench.stats import OTTLA, number

FIGURES = ROOT / "docs" / "snippets" / "speed" / "figures.json"
TABLE = FIGURES.with_name("table.md")
PICTURES = ROOT / "docs" / "assets"
PEERS = (OTTLA, "kafka", "tansu", "mock")
NOT_SHOWN = ("interpreter", "data_in", "system", "load_before")
COLOURS = ("#1f6feb", "#57606a", "#bf8700", "#8250df")


class Plot(NamedTuple):
    """One picture: its measures, by the labels under their bars."""

    name: str
    unit: str
    measures: Mapping[str, str]
    is_logarithmic: bool = True


_SIZES = ("100 B", "1 KiB", "100 KiB")
PLOTS = (
    Plot(
        "throughput",
        "MB/s",
        {f"{what}\n{size}": f"{what} {size}" for what in ("produce", "consume") for size in _SIZES}
        | {"idempotent\n100 B": "produce idempotent 100 B"},
    ),
    Plot(
        "processor",
        "MB per second of the broker's processor time",
        {f"{what}\n{size}": f"{what} {size} cpu" for what in ("produce", "consume") for size in _SIZES},
    ),
    Plot(
        "requests",
        "thousands of small requests per second",
        {
            "Produce,\nmany": "pipelined produce",
            "Metadata,\nmany": "pipelined metadata",
            "Produce,\n1 in flight": "in-flight 1 on 1",
            "64 in flight": "in-flight 64 on 1",
            "32 clients,\n2 each": "in-flight 2 on 32",
        },
    ),
    Plot("delay", "us, one request at a time", {"p50": "latency p50", "p99": "latency p99"}, is_logarithmic=False),
)


def figures_of(results: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Returns what the page shows of some results: the environment of the first, medians with their spread."""
    measures: dict[str, Any] = {}
    growth: list[Any] = []
    for result in results:
        for one in result["measures"]:
            peers = {
                peer: {key: float(f"{values[key]:.4g}") for key in ("median", "low", "high")}
                for peer, values in one["peers"].items()
            }
            measures[one["name"]] = {"unit": one["unit"], "peers": peers}
        growth = result["growth"]["figures"] or growth
    kept = {name: value for name, value in results[0]["environment"].items() if name not in NOT_SHOWN}
    return {"environment": kept, "rounds": results[0]["rounds"], "measures": measures, "growth": growth}


def table(figures: Mapping[str, Any]) -> str:
    """Returns the table of all measures with a peer that is a broker, in Markdown."""
    lines = [f"| measure | unit | {' | '.join(PEERS)} |", "|---|---|" + "--:|" * len(PEERS)]
    for name, one in figures["measures"].items():
        peers = one["peers"]
        if len(peers.keys() & set(PEERS)) < 2:
            continue
        cells = [
            f"{number(peers[peer]['median'])} ({number(peers[peer]['low'])} to {number(peers[peer]['high'])})"
            if peer in peers
            else "-"
            for peer in PEERS
        ]
        lines.append(f"| {name} | {one['unit']} | {' | '.join(cells)} |")
    environment = ", ".join(f"{name} {value}" for name, value in figures["environment"].items())
    lines += ["", f"Medians of {figures['rounds']} rounds, with the lowest and the highest. {environment}."]
    return "\n".join(lines) + "\n"


def draw(figures: Mapping[str, Any], folder: Path) -> None:
    """Writes the pictures. Raises ImportError without matplotlib."""
    import matplotlib
    from matplotlib.figure import Figure
    from matplotlib.ticker import NullFormatter, ScalarFormatter

    # Text as text, and the same bytes for the same figures.
    settings: Any = {"svg.fonttype": "none", "svg.hashsalt": "ottla", "font.size": 9}
    with matplotlib.rc_context(settings):
        for plot in PLOTS:
            shown = {label: figures["measures"][name] for label, name in plot.measures.items()}
            figure = Figure(figsize=(8, 3.4), layout="constrained")
            axes = figure.subplots()
            for index, (peer, colour) in enumerate(zip(PEERS, COLOURS, strict=True)):
                places = [place for place, one in enumerate(shown.values()) if peer in one["peers"]]
                taken = [one["peers"][peer] for one in shown.values() if peer in one["peers"]]
                middle = [one["median"] for one in taken]
                spread = [
                    [one["median"] - one["low"] for one in taken],
                    [one["high"] - one["median"] for one in taken],
                ]
                at = [place + (index - 1.5) * 0.2 for place in places]
                axes.bar(at, middle, 0.19, yerr=spread, color=colour, label=peer, error_kw={"linewidth": 0.8})
            axes.set_xticks(range(len(shown)), list(shown))
            axes.set(ylabel=plot.unit)
            if plot.is_logarithmic:
                axes.set(yscale="log")
                axes.yaxis.set_major_formatter(ScalarFormatter())
                axes.yaxis.set_minor_formatter(NullFormatter())
            axes.grid(axis="y", alpha=0.3)
            axes.legend(ncols=len(PEERS), frameon=False, fontsize=8)
            figure.savefig(folder / f"speed-{plot.name}.svg", metadata={"Date": None})
        if figures["growth"]:
            draw_growth([Grown(**one) for one in figures["growth"]], folder / "speed-growth.svg")


def main(arguments: Sequence[str]) -> None:
    figures = figures_of([json.loads(Path(one).read_text()) for one in arguments])
    FIGURES.write_text(json.dumps(figures, indent=1) + "\n")
    TABLE.write_text(table(figures))
    draw(figures, PICTURES)


if __name__ == "__main__":
    main(sys.argv[1:])
