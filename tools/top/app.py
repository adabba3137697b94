"""The screen of `ottla top`, with textual: tabs with live tables that can be sorted, filtered and paused.

Owns keys, mouse and drawing; the contents of the tables are in `tables.py`. Names are never parsed as markup. Requests
run in daemon threads, so that `q` quits at once even if the broker hangs. After an error the request is repeated at
each interval until the broker is back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, ClassVar

from rich.text import Text
from textual import events, on
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import Screen
from textual.widgets import DataTable, Footer, Input, Static

from ...client.net.threads import in_thread
from ...protocol.text import visible
from ..http_client import Unreachable, Wrong
from .layout import GAP, WARNING, Widths, cell, head, joined
from .rates import History, Overview, Row, key_of
from .tables import TABS, Column, Tab, clock_line, details, first_line, totals_line, warnings
from .widgets import Rows, TabBar, Words

INTERVALS = (0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
FILTER_LETTERS = 249  # the limit of the control plane

HELP = """\
1 - 7            choose a tab; Tab and Shift+Tab choose the next and the previous one
Up, Down, Enter  choose a row, and show its details (or click it)
< >              sort by the column to the left or to the right (or click its title)
r                reverse the order
/                filter by a text in the name; Escape clears the filter
p, Space         pause or resume
+ -              update less often or more often
? h              show this help
q                quit

Rates are over about the last second, the trend of the lag is over ten seconds. READ/S is the
rate of committed offsets of a group. SLOW lists the slowest requests of the last minute.
Requests in purgatory (a Fetch within its max.wait, members that wait for a rebalance) are not
slow: they are in WAITING. IN and OUT are bytes from and to clients. `ottla ctl requests` lists
the requests."""


class Top(App[None]):
    """The application of `ottla top`."""

    ENABLE_COMMAND_PALETTE = False
    TITLE = "ottla top"
    CSS = """
    #head { height: 3; padding: 0 1; background: $panel; }
    #tabs { height: 1; padding: 0 1; background: $panel-darken-1; }
    #rows { height: 1fr; scrollbar-size: 1 1; }
    #none { height: 1fr; padding: 1 2; color: $text-muted; display: none; }
    #filter { height: 1; border: none; padding: 0 1; display: none; }
    #filter:focus { border: none; }
    .stale DataTable { opacity: 60%; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "quit", "Quit"),
        Binding("question_mark,h", "help", "Help", key_display="?"),
        Binding("slash", "filter", "Filter", key_display="/"),
        Binding("less_than_sign,comma", "sort(-1)", "Sort", key_display="<"),
        Binding("greater_than_sign,full_stop", "sort(1)", "Sort", key_display=">"),
        Binding("r", "reverse", "Reverse"),
        Binding("p,space", "pause", "Pause"),
        Binding("plus,equals_sign", "interval(1)", "Slower", key_display="+"),
        Binding("minus", "interval(-1)", "Faster", key_display="-"),
        Binding("tab,right_square_bracket", "next(1)", "Next tab", show=False, priority=True),
        Binding("shift+tab,left_square_bracket", "next(-1)", "Tab before", show=False, priority=True),
        Binding("escape", "clear", "All", show=False),
        *(Binding(str(number), f"tab({number - 1})", show=False) for number in range(1, len(TABS) + 1)),
    ]

    def __init__(
        self, fetch: Callable[[str], Overview], address: str, interval_seconds: float = 1.0, contains: str = ""
    ) -> None:
        """`fetch` is called with a filter, in a thread; it may raise Wrong or Unreachable."""
        super().__init__()
        self._fetch = fetch
        self._address = address
        self._interval_seconds = interval_seconds
        self._history = History()
        self._shown: Overview | None = None
        self._trouble = ""
        self._is_paused = False
        self._at = 0
        self._wanted = [contains] * len(TABS)
        self._sorts = [(tab.column(tab.sort), tab.is_falling) for tab in TABS]
        self._columns: list[Column] = []
        self._rows: list[Row] = []
        self._widths = Widths(TABS[0])
        self._letters = 80  # width of the screen
        self._drawn = ""  # the kind of the tab that was drawn last
        self._wake = asyncio.Event()

    def compose(self) -> ComposeResult:
        """Yields the head, the tabs, one table for all tabs, and the line of keys."""
        yield Static(id="head", markup=False)
        yield TabBar(id="tabs")
        yield Rows(id="rows", cell_padding=0, cursor_type="row")
        yield Static(id="none", markup=False)
        yield Input(id="filter", placeholder="only names that contain this", max_length=FILTER_LETTERS, compact=True)
        yield Footer(compact=True)

    def on_mount(self) -> None:
        """Starts the periodic updates."""
        self._under.query_one(Rows).focus()
        self._letters = self.size.width
        self._draw()
        self.run_worker(self._follow())

    # Updates

    async def _follow(self) -> None:
        while True:
            self._wake.clear()
            if not self._is_paused:
                await self._look()
            try:
                async with asyncio.timeout(None if self._is_paused else self._interval_seconds):
                    await self._wake.wait()
            except TimeoutError:
                continue

    async def _look(self) -> None:
        try:
            response = await in_thread(lambda: self._fetch(self._wanted[self._at]), "ottla-top")
            if self._is_paused:  # paused during the request
                return
            self._shown = self._history.add(response)
            self._trouble = ""
        except (Unreachable, Wrong) as error:
            self._trouble = visible(error)
        except (AttributeError, LookupError, TypeError, ValueError):
            self._trouble = f"unexpected response from {visible(self._address)}: not a control plane of this version"
        self._draw()

    # Drawing

    @property
    def tab(self) -> Tab:
        return TABS[self._at]

    @property
    def _under(self) -> Screen[Any]:
        """The screen with the table, also below a page."""
        return self.screen_stack[0]

    def _draw(self) -> None:
        stack = self.screen_stack
        parts = stack[0].query("#head, #tabs, #rows, #none") if stack else ()
        if len(parts) < 4:  # a response that arrives during start or exit
            return
        width = max(20, self._letters - 2)
        self._under.set_class(bool(self._trouble), "stale")
        self._under.query_one("#head", Static).update(self._head(width))
        self._under.query_one(TabBar).show(self._at, self._shown, width)
        self._draw_rows()

    def _head(self, width: int) -> Text:
        shown, trouble = self._shown, self._trouble
        if shown is None:
            return joined([(trouble, WARNING) if trouble else (f"connecting to {visible(self._address)}", "")], width)
        state = "PAUSED" if self._is_paused else f"every {self._interval_seconds:g} s"
        first = joined([(part, "bold") for part in first_line(shown)], width - len(state) - GAP)
        first.append(" " * (width - first.cell_len - len(state)))
        first.append(state, "reverse" if self._is_paused else "dim")
        if trouble:
            second = [(f"{trouble}; retrying", WARNING)]
        else:
            frozen = "bold cyan" if shown["clock"]["is_frozen"] else ""
            second = [*((one, WARNING) for one in warnings(shown)), (clock_line(shown), frozen)]
        third = joined([(part, "") for part in totals_line(shown)], width)
        return Text("\n", no_wrap=True).join([first, joined(second, width), third])

    def _draw_rows(self) -> None:
        tab, table, none = self.tab, self._under.query_one(Rows), self._under.query_one("#none", Static)
        place, is_falling = self._sorts[self._at]
        key = self._key_under_cursor(table)
        wanted = self._wanted[self._at]
        rows = [] if self._shown is None else [row for row in self._shown[tab.kind] if tab.fits(row, wanted)]
        if self._drawn != tab.kind:
            self._widths, self._drawn = Widths(tab), tab.kind
        self._rows = tab.sorted(rows, tab.columns[place], is_falling=is_falling)
        table.display, none.display = bool(self._rows), not self._rows
        why = f"no name contains {wanted!r}" if wanted else tab.none
        none.update(Text("" if self._shown is None else why))
        cells = [[column.shown(row) for column in tab.columns] for row in self._rows]
        chosen = self._widths.chosen(cells, max(20, self._letters - 1), place)  # 1: the scroll bar
        self._columns = [tab.columns[index] for index, _ in chosen]
        scrolled = table.scroll_offset
        with self.batch_update():
            table.clear(columns=True)
            for index, width in chosen:
                mark = "" if index != place else " ▼" if is_falling else " ▲"
                table.add_column(head(tab.columns[index], width, mark=mark), width=width + GAP)
            for row, texts in zip(self._rows, cells, strict=True):
                table.add_row(*(cell(tab.columns[index], texts[index], width, row) for index, width in chosen))
            if key is not None:
                keys = [key_of(tab.kind, row) for row in self._rows]
                table.move_cursor(row=keys.index(key) if key in keys else 0, animate=False, scroll=False)
            table.scroll_to(y=scrolled.y, animate=False, force=True)

    def _key_under_cursor(self, table: Rows) -> tuple[Any, ...] | None:
        """Returns the key of the chosen row; None for the first row: the cursor stays at the top when rows change."""
        if self._drawn != self.tab.kind or not 0 < table.cursor_row < len(self._rows):
            return None
        return key_of(self.tab.kind, self._rows[table.cursor_row])

    # Keys and mouse

    def action_tab(self, place: int) -> None:
        if place == self._at:
            return
        is_filtered = self._wanted[place] != self._wanted[self._at]
        self._at = place
        self._close_filter()
        self._draw()
        self._under.query_one(Rows).move_cursor(row=0, animate=False)
        if is_filtered:
            self._wake.set()

    def action_next(self, step: int) -> None:
        self.action_tab((self._at + step) % len(TABS))

    def action_sort(self, step: int) -> None:
        """Sorts by the next or the previous visible column."""
        columns = [self.tab.columns.index(column) for column in self._columns] or list(range(len(self.tab.columns)))
        place, is_falling = self._sorts[self._at]
        at = columns.index(place) if place in columns else 0
        self._sort_by(columns[(at + step) % len(columns)], is_falling)

    def action_reverse(self) -> None:
        place, is_falling = self._sorts[self._at]
        self._sort_by(place, not is_falling)

    def _sort_by(self, place: int, is_falling: bool) -> None:
        self._sorts[self._at] = place, is_falling
        self._draw_rows()

    @on(DataTable.HeaderSelected)
    def sort_by_clicked(self, event: DataTable.HeaderSelected) -> None:
        """Sorts by the clicked column; a second click reverses the order."""
        column = self._columns[event.column_index]
        place = self.tab.columns.index(column)
        now, is_falling = self._sorts[self._at]
        self._sort_by(place, not is_falling if place == now else column.is_number)

    def action_pause(self) -> None:
        self._is_paused = not self._is_paused
        self._wake.set()
        self._draw()

    def action_interval(self, step: int) -> None:
        """Changes the interval of the updates."""
        now = self._interval_seconds
        others = [one for one in INTERVALS if (one > now if step > 0 else one < now)]
        if others:
            self._interval_seconds = min(others) if step > 0 else max(others)
            self._wake.set()
            self._draw()

    def action_filter(self) -> None:
        """Opens the input of the filter."""
        field = self._under.query_one("#filter", Input)
        field.value = self._wanted[self._at]
        field.display = True
        field.focus()

    def action_clear(self) -> None:
        self._filter_by("")
        self._close_filter()

    @on(Input.Changed)
    def filter_typed(self, event: Input.Changed) -> None:
        if event.input.display:
            self._filter_by(event.value)

    @on(Input.Submitted)
    def filter_done(self) -> None:
        """Returns the focus to the table."""
        self._close_filter()

    def _filter_by(self, wanted: str) -> None:
        if wanted != self._wanted[self._at]:
            self._wanted[self._at] = wanted
            self._draw()
            self._wake.set()

    def _close_filter(self) -> None:
        self._under.query_one("#filter", Input).display = False
        self._under.query_one(Rows).focus()

    @on(TabBar.Chosen)
    def show_clicked(self, event: TabBar.Chosen) -> None:
        self.action_tab(event.place)

    @on(DataTable.RowSelected)
    def show_row(self, event: DataTable.RowSelected) -> None:
        if event.cursor_row < len(self._rows):
            self._show_page(self.tab.title, "\n".join(details(self.tab, self._rows[event.cursor_row])))

    def action_help(self) -> None:
        self._show_page("Keys", HELP)

    def _show_page(self, title: str, words: str) -> None:
        if self.screen is self._under:  # a double click would open it twice
            self.push_screen(Words(title, Text(words)))

    def on_resize(self, event: events.Resize) -> None:
        """Recomputes the columns that fit."""
        self._letters = event.size.width  # `size` is not updated yet
        self._widths = Widths(self.tab)
        self._draw()
