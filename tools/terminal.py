"""Colours on stdout and progress bars on stderr: on a terminal only, so that pipes and files receive plain text.

NO_COLOR and TERM=dumb switch colours off (no-color.org).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Collection, Iterator
from typing import Any, TextIO, TypeVar

T = TypeVar("T")

RED, GREEN, YELLOW = 31, 32, 33


def is_terminal(stream: TextIO | None) -> bool:
    return stream is not None and not stream.closed and stream.isatty()


def painted(text: str, colour: int) -> str:
    """Returns the text in a colour if stdout is a terminal that shows colours."""
    if not is_terminal(sys.stdout) or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return text
    return f"\x1b[{colour}m{text}\x1b[0m"


class Progress:
    """A progress bar on stderr, removed at the end; none if stderr is not a terminal."""

    def __init__(self, what: str, unit: str) -> None:
        self._what, self._unit = what, unit
        self._bar: Any = None

    def each(self, items: Collection[T]) -> Iterator[T]:
        """Yields the items; the bar shows how many are done."""
        if not is_terminal(sys.stderr):
            yield from items
            return
        from tqdm import tqdm  # 30 ms, which a pipe saves

        total = len(items)
        self._bar = tqdm(total=total, desc=self._what, unit=f" {self._unit}", leave=False, file=sys.stderr)
        try:
            for item in items:
                yield item
                self._bar.update()
        finally:
            self._bar.close()
            self._bar = None

    def around(self, write: Callable[[str], object]) -> Callable[[str], object]:
        """Returns a `write` that clears the bar first: the terminal may be that of stdout, too."""

        def write_text(text: str) -> object:
            if self._bar is not None:
                self._bar.clear()
            return write(text)

        return write_text
