"""The tables as lines of text, for pipes, logs and scripts; also used by `ottla ctl overview`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ...protocol.text import table
from .rates import History, Overview, Row
from .tables import TABS, Tab, clock_line, first_line, totals_line, warnings

HIGHEST_RANK = 5  # columns with a higher rank are left to the screen


def overview(response: Overview) -> list[str]:
    """Returns the lines for a single response of the control plane, without rates."""
    return list(page(History().add(response)))


def page(shown: Overview) -> Iterator[str]:
    """Yields the lines of an overview with rates, as `History.add` returns it."""
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
