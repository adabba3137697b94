"""Plots of the reports: amounts, sizes and times of a census, findings of an audit.

Owns the drawing with matplotlib, without a display, and the HTML page around it. A `.png` is the picture alone; a
`.html` embeds it as SVG, with the tables of its data. Needs the extra `plot`, imported on use.
"""

from __future__ import annotations

import html
import io
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

from ...protocol.text import moment
from ..extras import needed
from .audit.report import AuditReport, text_of
from .census.facts import Sizes, Times
from .census.report import CensusReport, TopicCensus, codec_name

TOPICS_MAX = 25  # the largest ones; the others are left out
FINDINGS_MAX = 500
_MS = 1000.0
_TIMES_MS = (0, 253_402_300_799_000)  # 1970 to 9999: the range of Python's datetime
_COLOURS = {0: "Reds", 1: "Oranges", 2: "Blues"}  # by format
_STYLE = """
body { font: 14px/1.4 system-ui, sans-serif; margin: 2em auto; max-width: 70em; color: #222 }
table { border-collapse: collapse; margin: 1em 0 } td, th { padding: .2em .8em; border-bottom: 1px solid #ddd }
th { text-align: left } td.n { text-align: right; font-variant-numeric: tabular-nums } svg { max-width: 100% }
.wrong { color: #a00 }
"""


def drawn(report: CensusReport | AuditReport, path: str) -> bytes:
    """Returns the plot of a report: an HTML page if the path ends in `.html`, else PNG. Raises MissingExtra."""
    is_page = path.lower().endswith(".html")
    with needed():
        from matplotlib import rc_context
        from matplotlib.figure import Figure
    out = io.BytesIO()
    # Topic names are not parsed as math, and text in SVG stays text.
    with rc_context({"text.parse_math": False, "svg.fonttype": "none", "axes.axisbelow": True, "font.size": 9}):
        figure = Figure(layout="constrained")
        if isinstance(report, CensusReport):
            _census(figure, report)
        else:
            _audit(figure, report)
        figure.savefig(out, format="svg" if is_page else "png", dpi=120)
    return page(report, out.getvalue().decode()).encode() if is_page else out.getvalue()


# -- plots


def _census(figure: Any, report: CensusReport) -> None:
    topics = sorted(report.topics, key=lambda topic: -topic.facts.bytes)[:TOPICS_MAX]
    timed = [topic for topic in topics if _calendar(topic.facts.create) or _calendar(topic.facts.append)]
    rows = [max(len(topics), 1), 8, max(len(timed), 1)]
    figure.set_size_inches(11, 3 + 0.32 * (rows[0] + rows[2]) + 3)
    grid = figure.add_gridspec(3, 2, height_ratios=[rows[0] + 3, 9, rows[2] + 3])
    _by_topic(figure.add_subplot(grid[0, :]), topics, len(report.topics) - len(topics))
    _histogram(figure.add_subplot(grid[1, 0]), report.facts.keys, "keys")
    _histogram(figure.add_subplot(grid[1, 1]), report.facts.values, "values")
    _times(figure.add_subplot(grid[2, :]), timed)


def _by_topic(axes: Any, topics: Sequence[TopicCensus], others: int) -> None:
    """Draws the stored bytes of each topic, by format and codec."""
    from matplotlib import colormaps

    kinds = sorted({kind for topic in topics for kind in topic.facts.formats})
    unit, scale = _unit(max((topic.facts.bytes for topic in topics), default=0))
    left = [0.0] * len(topics)
    for magic, codec in kinds:
        amounts = [topic.facts.formats.get((magic, codec)) for topic in topics]
        sizes = [0.0 if amount is None else amount.bytes / scale for amount in amounts]
        colour = colormaps[_COLOURS[magic]](0.35 + 0.12 * codec)
        axes.barh(range(len(topics)), sizes, left=left, color=colour, label=f"v{magic} {codec_name(codec)}")
        left = [start + size for start, size in zip(left, sizes, strict=True)]
    _named(axes, [topic.topic for topic in topics])
    axes.set_title("stored bytes by format and codec" + (f" ({others} smaller topics left out)" if others else ""))
    axes.set_xlabel(unit)
    if kinds:
        axes.legend(loc="lower right", ncols=2, fontsize=8)


def _unit(size_bytes: int) -> tuple[str, float]:
    """Returns a suitable unit for a size, and its bytes."""
    units = [("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)]
    return next(((unit, scale) for unit, scale in units if size_bytes >= scale), ("bytes", 1.0))


def _histogram(axes: Any, sizes: Sizes, what: str) -> None:
    """Draws a histogram of sizes by powers of two."""
    by_end = {high: (low, high, number) for low, high, number in sizes.octaves()}
    bits = [high.bit_length() for high in by_end]
    ends = [(1 << bit) - 1 for bit in range(min(bits, default=0), max(bits, default=-1) + 1)]
    octaves = [by_end.get(high, (high + 1 >> 1, high, 0)) for high in ends]
    axes.bar(range(len(octaves)), [number for *_, number in octaves], color="tab:blue")
    names = [str(low) if low == high else f"{low}-{high}" for low, high, _ in octaves]
    axes.set_xticks(range(len(octaves)), names, rotation=60, ha="right", fontsize=7)
    axes.set_title(f"sizes of {what}" + (f", {sizes.nulls} null" if sizes.nulls else ""))
    axes.set_xlabel("bytes")
    axes.set_ylabel("records")


def _times(axes: Any, topics: Sequence[TopicCensus]) -> None:
    """Draws the time range of each topic's records."""
    from matplotlib import dates

    for row, topic in enumerate(topics):
        for times, colour in ((topic.facts.create, "tab:green"), (topic.facts.append, "tab:purple")):
            if span := _calendar(times):
                ends = [dates.date2num(datetime.fromtimestamp(at / _MS, UTC)) for at in span]
                axes.plot(ends, [row, row], "o-", color=colour, linewidth=5, markersize=6)
    _named(axes, [topic.topic for topic in topics])
    if topics:
        axes.xaxis_date()
        axes.xaxis.set_major_formatter(dates.ConciseDateFormatter(axes.xaxis.get_major_locator()))
        axes.set_ylim(len(topics) - 0.5, -0.5)
    axes.set_title("times of records, UTC: by the producers (green), by the broker (purple)")


def _audit(figure: Any, report: AuditReport) -> None:
    rules = sorted(report.rules, key=lambda rule: -rule.broken)[:TOPICS_MAX]
    figure.set_size_inches(9, 4 + (2 + 0.32 * len(rules)) * bool(rules))
    wrong = Counter(finding.part for finding in report.findings).most_common()
    axes = figure.add_subplot(2 if rules else 1, 1, 1)
    axes.barh(range(len(wrong)), [number for _, number in wrong], color="tab:red")
    _named(axes, [part for part, _ in wrong])
    axes.set_title(f"{len(report.findings)} findings" if wrong else "no errors")
    axes.set_xlabel("findings")
    if rules:
        axes = figure.add_subplot(2, 1, 2)
        shares = [100 * rule.broken / rule.records if rule.records else 0.0 for rule in rules]
        axes.barh(range(len(rules)), shares, color="tab:orange")
        _named(axes, [rule.text for rule in rules])
        axes.set_title("records that break a rule")
        axes.set_xlabel("%")


def _named(axes: Any, names: Sequence[str]) -> None:
    """Labels the rows of bars, the first at the top."""
    axes.set_yticks(range(len(names)), [name if len(name) <= 40 else name[:37] + "..." for name in names])
    axes.invert_yaxis()
    axes.grid(axis="x", alpha=0.3)


def _calendar(times: Times) -> tuple[int, int] | None:
    """Returns the first and the last time, clamped to the range of datetime, or None."""
    first_ms, last_ms = times.first_ms, times.last_ms
    if first_ms is None or last_ms is None or first_ms > _TIMES_MS[1] or last_ms < _TIMES_MS[0]:
        return None
    return max(first_ms, _TIMES_MS[0]), min(last_ms, _TIMES_MS[1])


# -- pages


def page(report: CensusReport | AuditReport, svg: str) -> str:
    """Returns a self-contained page with the plot and its tables."""
    title = "Census" if isinstance(report, CensusReport) else "Audit"
    picture = svg[svg.index("<svg") :]
    body = _census_tables(report) if isinstance(report, CensusReport) else _audit_tables(report)
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f"<style>{_STYLE}</style></head><body>\n<h1>{title}</h1>\n{picture}\n" + "\n".join(body) + "\n</body></html>\n"
    )


def _census_tables(report: CensusReport) -> Iterator[str]:
    yield f"<p>{_safe(', '.join(report.paths))}: {report.partitions} partitions, {report.segments} segments</p>"
    rows = [
        (topic.topic, f"v{magic}", codec_name(codec), amount.records, amount.entries, amount.bytes, amount.raw_bytes)
        for topic in report.topics
        for (magic, codec), amount in sorted(topic.facts.formats.items())
    ]
    yield _table("topic,format,codec,records,entries,bytes,uncompressed".split(","), rows)
    sizes = [
        (topic.topic, what, one.count, one.nulls, one.least, one.percentile(50), one.percentile(99), one.most)
        for topic in report.topics
        for what, one in (("keys", topic.facts.keys), ("values", topic.facts.values))
    ]
    yield _table("topic,of,number,null,smallest,half up to,99% up to,largest".split(","), sizes)
    times = [
        (topic.topic, who, one.records, moment(one.first_ms), moment(one.last_ms))
        for topic in report.topics
        for who, one in (("the producers", topic.facts.create), ("the broker", topic.facts.append))
        if one.records
    ]
    yield _table("topic,times by,records,first,last".split(","), times)
    for topic in report.topics:
        yield f"<h2>{_safe(topic.topic)}</h2>"
        yield _list(topic.notes, "wrong")
        yield _list(topic.on_4_0)
    yield "<h2>On Kafka 4.0, whatever the format</h2>"
    yield _list(report.on_4_0)


def _audit_tables(report: AuditReport) -> Iterator[str]:
    if report.rules:
        yield _table("rule,records,records that break it".split(","), report.rules)
    for directory in report.directories:
        yield f"<h2>{_safe(directory.path)}</h2>"
        for found, style in ((directory.findings, "wrong"), (directory.notes, "")):
            yield _list([text_of(finding) for finding in found[:FINDINGS_MAX]], style)
            if len(found) > FINDINGS_MAX:
                yield f"<p>and {len(found) - FINDINGS_MAX} more</p>"
        rows = [
            (one.topic, one.partition, one.segments, one.bytes, one.batches, one.records, one.producers, len(one.open))
            for one in directory.partitions
        ]
        yield _table("topic,partition,segments,bytes,batches,records,producers,open transactions".split(","), rows)


def _table(names: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    lines = ["<table><tr>" + "".join(f"<th>{_safe(name)}</th>" for name in names) + "</tr>"]
    for row in rows:
        cells = (f'<td class="n">{cell}</td>' if isinstance(cell, int) else f"<td>{_safe(cell)}</td>" for cell in row)
        lines.append("<tr>" + "".join(cells) + "</tr>")
    return "\n".join([*lines, "</table>"])


def _list(sentences: Sequence[str], style: str = "") -> str:
    if not sentences:
        return ""
    items = "".join(f"<li>{_safe(sentence)}</li>" for sentence in sentences)
    return f'<ul class="{style}">{items}</ul>' if style else f"<ul>{items}</ul>"


def _safe(text: object) -> str:
    return html.escape("" if text is None else re.sub(r"[\x00-\x1f\x7f]", "?", str(text)))
