"""The layout of tables on the screen: the columns that fit, and cells as rich texts, aligned, cut, never markup.

Owns the widths. Columns never become narrower while a tab is shown, so that the table does not jump.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from .rates import Row
from .tables import Column, Tab

GAP = 2  # between columns
LEAST_FLEXIBLE = 16  # minimum width of a name; narrower screens drop other columns first
MOST_FLEXIBLE = 60
MARK_LETTERS = 2  # the arrow after the title of the sort column
WARNING = "bold red"


def cut(shown: str, width: int) -> str:
    """Returns a text cut to `width` cells, with an ellipsis if it was cut."""
    return shown if cell_len(shown) <= width else set_cell_size(shown, max(0, width - 1)) + "…"


def joined(parts: Iterable[tuple[str, str]], width: int) -> Text:
    """Joins parts (text, style) to a line of `width` cells; parts that do not fit are dropped, except the first."""
    line, left = Text(no_wrap=True, overflow="crop", end=""), width
    for shown, style in parts:
        gap = GAP if line else 0
        if line and cell_len(shown) + gap > left:
            break
        line.append(" " * gap)
        line.append(cut(shown, left), style)
        left -= gap + cell_len(shown)
    return line


class Widths:
    """The column widths of one tab."""

    def __init__(self, tab: Tab) -> None:
        self.tab = tab
        self._natural = [cell_len(column.title) for column in tab.columns]

    def chosen(self, cells: Sequence[Sequence[str]], width: int, sorted_by: int) -> list[tuple[int, int]]:
        """Returns (index, width) of each column that fits. The sort column is never dropped."""
        for place, known in enumerate(self._natural):
            titled = cell_len(self.tab.columns[place].title) + MARK_LETTERS if place == sorted_by else 0
            self._natural[place] = max([known, titled, *(cell_len(row[place]) for row in cells)])
        least = [self._least(place) for place in range(len(self._natural))]
        kept = list(range(len(least)))
        while sum(least[place] + GAP for place in kept) > width:
            others = [place for place in kept if self.tab.columns[place].rank and place != sorted_by]
            if not others:
                break
            kept.remove(max(others, key=lambda place: self.tab.columns[place].rank))
        left = max(0, width - sum(least[place] + GAP for place in kept))
        found: list[tuple[int, int]] = []
        for place in kept:
            natural = self._natural[place]
            most = min(natural, MOST_FLEXIBLE) if self.tab.columns[place].is_flexible else natural
            more = min(left, most - least[place])
            found.append((place, least[place] + more))
            left -= more
        return found

    def _least(self, place: int) -> int:
        natural = self._natural[place]
        return min(natural, LEAST_FLEXIBLE) if self.tab.columns[place].is_flexible else natural


def head(column: Column, width: int, *, mark: str = "") -> Text:
    return _cell(column.title + mark, width, column, "bold")


def cell(column: Column, shown: str, width: int, row: Row) -> Text:
    """Returns a cell, highlighted if the column warns about the row."""
    return _cell(shown, width, column, WARNING if column.warns is not None and column.warns(row) else "")


def _cell(shown: str, width: int, column: Column, style: str) -> Text:
    fitting = cut(shown, width)
    blanks = " " * (width - cell_len(fitting))
    aligned = blanks + fitting if column.is_number else fitting + blanks
    return Text(aligned + " " * GAP, style, no_wrap=True, overflow="crop", end="")
