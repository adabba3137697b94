"""The parts of the screen that textual has not: the line of tabs, and a page of words over everything else."""

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
    """The one table."""


class TabBar(Static):
    """The tabs by number; a click chooses one."""

    class Chosen(Message):
        """A tab was clicked."""

        def __init__(self, place: int) -> None:
            super().__init__()
            self.place = place

    def __init__(self, id: str) -> None:
        super().__init__(id=id, markup=False)
        self._ends: list[int] = []

    def show(self, at: int, told: Overview | None, width: int) -> None:
        """Draws them, with how many entries they have where there is room for that."""
        labels = [f" {place} {tab.title} " for place, tab in enumerate(TABS, 1)]
        if told is not None:
            counts = [told["totals"].get(tab.kind, len(told[tab.kind])) for tab in TABS]
            longer = [f"{label}{count(number)} " for label, number in zip(labels, counts, strict=True)]
            labels = longer if cell_len("".join(longer)) <= width else labels
        self._ends = [sum(map(cell_len, labels[:place])) for place in range(1, len(labels) + 1)]
        line = Text(no_wrap=True, overflow="crop", end="")
        for place, label in enumerate(labels):
            line.append(label, "reverse bold" if place == at else "")
        self.update(line)

    def on_click(self, event: events.Click) -> None:
        """Chooses what is under the pointer."""
        x = event.x - self.styles.padding.left
        place = next((place for place, end in enumerate(self._ends) if 0 <= x < end), None)
        if place is not None:
            self.post_message(self.Chosen(place))


class Page(VerticalScroll):
    """What of a page there is room for. Takes the keys that end it itself: on their way further up they might come to
    what lies under it."""

    def on_key(self, event: events.Key) -> None:
        """Ends the page."""
        if event.key in ENDING:
            event.stop()
            self.post_message(Words.Ended())


class Words(ModalScreen[None]):
    """A page of words over everything else; any of the keys that end things ends it."""

    class Ended(Message):
        """Somebody has seen enough."""

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
        """The words, to be scrolled where they are many."""
        with Page() as page:
            page.border_title = Text(self._title)  # type: ignore[assignment]
            page.border_subtitle = "Escape"
            yield Static(self._words, markup=False)

    def on_words_ended(self) -> None:
        """Ends it, once, however many keys were pressed until it is gone."""
        if self.is_active:
            self.dismiss()

    def on_click(self) -> None:
        """A click ends it, too."""
        self.on_words_ended()
