"""Plots of reports: both kinds of files, and pages with the report's values, escaped."""

from __future__ import annotations

import xml.dom.minidom
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from ottla.pipeline.jobs import plot
from ottla.pipeline.jobs.audit.report import AuditReport, DirectoryAudit
from ottla.pipeline.jobs.audit.rules import RuleResult
from ottla.pipeline.jobs.census.plan import plan
from ottla.pipeline.jobs.census.report import CensusReport, report
from ottla.pipeline.jobs.census.tasks import count
from ottla.storage.check.facts import Finding
from ottla_testing.pipeline.census_samples import a_log, written

PNG = b"\x89PNG\r\n\x1a\n"


def a_census(folder: Path, topics: int = 3) -> CensusReport:
    for number in range(topics):
        written(folder / f"topic-{number}-0" / f"{0:020d}.log", a_log(number, 12) if number else [])
    made = plan([str(folder)])
    return report(made, [(piece, count(piece)) for piece in made.pieces])


def an_audit(*findings: Finding) -> AuditReport:
    directory = DirectoryAudit("/data/<kafka>", True, findings=list(findings))
    return AuditReport([directory], True, 0)


def draw(report: CensusReport | AuditReport, path: str) -> None:
    Path(path).write_bytes(plot.drawn(report, path))


def test_plot_census_png(tmp_path: Path) -> None:
    draw(a_census(tmp_path / "data"), str(tmp_path / "out.png"))
    assert (tmp_path / "out.png").read_bytes().startswith(PNG)


def test_plot_census_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plot, "TOPICS_MAX", 2)
    found = a_census(tmp_path / "data", topics=5)
    found.topics[1].notes.append("<script>alert(1)</script> $x_1$")
    draw(found, str(tmp_path / "out.HTML"))
    text = (tmp_path / "out.HTML").read_text()
    assert "<script" not in text and "&lt;script&gt;" in text
    begin, end = text.index("<svg"), text.index("</svg>") + len("</svg>")
    svg = text[begin:end]
    xml.dom.minidom.parseString(svg)
    assert "stored bytes by format and codec (3 smaller topics left out)" in svg
    assert all(f">{topic.topic}</td>" in text for topic in found.topics if topic.facts.formats)
    assert all(sentence.split("`")[0][:60] in text for sentence in found.on_4_0)


def test_plot_empty_census(tmp_path: Path) -> None:
    draw(a_census(tmp_path / "data", topics=1), str(tmp_path / "out.html"))
    assert "sizes of keys" in (tmp_path / "out.html").read_text()


def test_plot_audit(tmp_path: Path) -> None:
    wrong = Finding(file="t-0/x.log", byte=5, offset=7, part="log", what="a <batch> is missing", wrong=True)
    draw(an_audit(wrong), str(tmp_path / "out.html"))
    text = (tmp_path / "out.html").read_text()
    assert "t-0/x.log at byte 5, offset 7: a &lt;batch&gt; is missing" in text
    assert "/data/&lt;kafka&gt;" in text
    assert "1 findings" in text
    draw(an_audit(), str(tmp_path / "sound.png"))
    assert (tmp_path / "sound.png").read_bytes().startswith(PNG)


HOSTILE = "<img src=x onerror=alert(1)>\"'&]]>$x_1$"


class Parsed(HTMLParser):
    """The elements and the text of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.mark.parametrize("kind", ["census", "audit"])
def test_page_loads_nothing_and_hostile_names_stay_text(kind: str, tmp_path: Path) -> None:
    found: CensusReport | AuditReport = an_audit(Finding(f"{HOSTILE}-0", None, 1, HOSTILE, part=HOSTILE))
    if isinstance(found, AuditReport):
        found.rules.append(RuleResult(f"header {HOSTILE} required", 4, 1))
    if kind == "census":
        found = a_census(tmp_path / "data")
        found.topics[1].topic = HOSTILE
        found.paths.append(HOSTILE)
    page = plot.drawn(found, "out.html").decode()
    parsed = Parsed(page)
    assert not {"script", "img", "link", "iframe", "object", "image", "foreignobject"} & parsed.tags
    assert not [name for name, _ in parsed.attributes if name.startswith("on") or name == "src"]
    links = [value or "" for name, value in parsed.attributes if name.endswith("href")]
    assert all(link.startswith("#") for link in links) and "url(http" not in page
    assert parsed.text.count(HOSTILE) >= 2
    assert HOSTILE.partition(">")[0] in parsed.text[parsed.text.index("Census" if kind == "census" else "Audit") :]
    begin, end = page.index("<svg"), page.index("</svg>") + len("</svg>")
    xml.dom.minidom.parseString(page[begin:end])
    assert HOSTILE in Parsed(page[begin:end]).text


def patches(axes: Any) -> Any:
    """Returns the bars of a plot."""
    return axes.patches


def test_bars_have_the_numbers_of_the_report(tmp_path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure()
    found = a_census(tmp_path / "data")
    plot._census(figure, found)
    topics = sorted(found.topics, key=lambda topic: -topic.facts.bytes)
    unit, scale = plot._unit(topics[0].facts.bytes)
    bars: dict[float, float] = {}
    for bar in patches(figure.axes[0]):
        bars[bar.get_y()] = bars.get(bar.get_y(), 0.0) + bar.get_width()
    assert figure.axes[0].get_xlabel() == unit
    assert [bars[y] * scale for y in sorted(bars)] == pytest.approx([topic.facts.bytes for topic in topics])
    assert sum(bar.get_height() for bar in patches(figure.axes[2])) == found.facts.values.count

    figure = Figure()
    report = an_audit(*[Finding("t-0/x.log", None, n, "x", part="index" if n else "log") for n in range(4)])
    report.rules += [RuleResult("key required", 8, 2), RuleResult("value required", 0, 0)]
    plot._audit(figure, report)
    assert [[bar.get_width() for bar in patches(axes)] for axes in figure.axes] == [[3, 1], [25, 0]]
