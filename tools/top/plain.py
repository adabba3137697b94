"""One look at a broker as lines of text, for a terminal that is none, a log or a script; also `ottla ctl overview`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ...protocol.text import table
from .rates import History, Overview, Row
from .tables import TABS, Tab, clock_line, first_line, totals_line, warnings

HIGHEST_RANK = 5  # columns beyond are for details


def overview(told: Overview) -> list[str]:
    """The lines for what the control plane answered once, without rates."""
    return list(page(History().add(told)))


def page(shown: Overview) -> Iterator[str]:
    """The lines for an overview that a `History` has looked at."""
    yield "  ".join(first_line(shown)) + "\n"
    yield "  ".join([clock_line(shown), *warnings(shown)]) + "\n"
    yield "  ".join(totals_line(shown)) + "\n"
    for tab in TABS:
        rows = tab.sorted(shown[tab.kind], tab.columns[tab.column(tab.sort)], is_falling=tab.is_falling)
        yield "\n"
        yield from _table(tab, rows) if rows else (f"{tab.none}\n",)


def _table(tab: Tab, rows: Sequence[Row]) -> list[str]:
    columns = [column for column in tab.columns if column.rank <= HIGHEST_RANK]
    numbers = [place for place, column in enumerate(columns) if column.is_number]
    cells = [[column.shown(row) for column in columns] for row in rows]
    return table(cells, [column.title for column in columns], numbers=numbers)
