"""Widgets that textual lacks: the line of tabs, and a page of text over the screen."""

from __future__ import annotations

from rich.cells import cell_len
from rich.text import Text
from textual import events
from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.message import Message
from textual.screen import ModalScreen
from textual.widgets import DataTable, Static

from ...protocol.text import count
from .rates import Overview
from .tables import TABS

ENDING = ("escape", "q", "enter", "question_mark", "h", "space")


class Rows(DataTable[Text]):
    """The table of the current tab."""


class TabBar(Static):
    """The line of tabs; a click chooses one."""

    class Chosen(Message):
        """Posted when a tab is clicked."""

        def __init__(self, place: int) -> None:
            super().__init__()
            self.place = place

    def __init__(self, id: str) -> None:
        super().__init__(id=id, markup=False)
        self._ends: list[int] = []

    def show(self, at: int, overview: Overview | None, width: int) -> None:
        """Draws the tabs, with the number of their entries if it fits."""
        labels = [f" {place} {tab.title} " for place, tab in enumerate(TABS, 1)]
        if overview is not None:
            counts = [overview["totals"].get(tab.kind, len(overview[tab.kind])) for tab in TABS]
            longer = [f"{label}{count(number)} " for label, number in zip(labels, counts, strict=True)]
            labels = longer if cell_len("".join(longer)) <= width else labels
        self._ends = [sum(map(cell_len, labels[:place])) for place in range(1, len(labels) + 1)]
        line = Text(no_wrap=True, overflow="crop", end="")
        for place, label in enumerate(labels):
            line.append(label, "reverse bold" if place == at else "")
        self.update(line)

    def on_click(self, event: events.Click) -> None:
        x = event.x - self.styles.padding.left
        place = next((place for place, end in enumerate(self._ends) if 0 <= x < end), None)
        if place is not None:
            self.post_message(self.Chosen(place))


class Page(VerticalScroll):
    """The scrolled text of a page. It handles the closing keys itself: the screen below has other actions for them."""

    def on_key(self, event: events.Key) -> None:
        if event.key in ENDING:
            event.stop()
            self.post_message(Words.Ended())


class Words(ModalScreen[None]):
    """A page of text over the screen; a key of ENDING or a click closes it."""

    class Ended(Message):
        """Posted when the page is to be closed."""

    CSS = """
    Words { align: center middle; }
    Words Page {
        width: auto; min-width: 40; max-width: 100%; height: auto; max-height: 100%;
        border: round $accent; background: $surface; padding: 0 1;
    }
    Words Static { width: auto; height: auto; }
    """

    def __init__(self, title: str, words: Text) -> None:
        super().__init__()
        self._title = title
        self._words = words

    def compose(self) -> ComposeResult:
        """Yields the scrollable text."""
        with Page() as page:
            page.border_title = Text(self._title)  # type: ignore[assignment]
            page.border_subtitle = "Escape"
            yield Static(self._words, markup=False)

    def on_words_ended(self) -> None:
        """Closes the page once: a second key may be queued before the page is gone."""
        if self.is_active:
            self.dismiss()

    def on_click(self) -> None:
        self.on_words_ended()
