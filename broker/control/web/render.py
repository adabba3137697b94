"""Renders templates into pages. Importing this needs Jinja2, at the first request for a page.

Names and contents come from clients: Jinja2 escapes them, and characters that are invisible or reorder others (control
characters, marks of direction) become escapes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from ....protocol import text
from ....protocol.text import duration, moment, time_text
from .page import quoted, url

HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u0600-\u0605\u061c\u06dd\u070f\u0890-\u0891\u08e2\u180e\u200b\u200e-\u200f"
    "\u2028-\u202e\u2060-\u2064\u2066-\u206f\ud800-\udfff\ufeff\ufff9-\ufffb\U000110bd\U000110cd"
    "\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0001\U000e0020-\U000e007f]"
)
"""Characters that a page must escape: those of Unicode's categories Cc, Cf, Cs, Zl and Zp, except newline, tab and the
two joiners, which are parts of words and of emoji."""


def shown(value: Any) -> Any:
    """Returns a value in the form that a template may print."""
    if isinstance(value, str) and not hasattr(value, "__html__"):
        return HIDDEN.sub(_escape, value)
    return "" if value is None else value


def _escape(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape", "surrogatepass").decode("ascii")


def number(value: int | None) -> str:
    """Returns a number in groups of three digits, separated by narrow no-break spaces."""
    return "–" if value is None else f"{value:,}".replace(",", "\N{NARROW NO-BREAK SPACE}")


def size(value: int | None) -> str:
    """Returns a number of bytes with its unit, joined by a no-break space; a dash for None and negative numbers."""
    return "–" if value is None or value < 0 else text.size(value).replace(" ", "\N{NO-BREAK SPACE}")


def time(ms: int | None) -> str | Markup:
    """Returns a time in UTC as a `time` element; a dash for None and -1, the number if it is not a date."""
    if ms is None or ms < 0:
        return "–" if ms in (None, -1) else str(ms)
    found = time_text(ms)
    return Markup('<time datetime="{}">{}</time>').format(found, moment(ms)) if found else str(ms)


def elapsed(ms: int | None) -> str:
    """Returns a duration; a dash for None."""
    return "–" if ms is None else text.elapsed(ms)


def micros(ns: int) -> str:
    """Returns the duration of a request, given in nanoseconds; a dash for negative ones."""
    return "–" if ns < 0 else text.elapsed(ns / 1e6)


def percent(part: float, whole: float) -> int:
    """Returns the part of the whole in percent, 0 to 100."""
    return max(0, min(100, round(100 * part / whole))) if whole else 0


class Renderer:
    """The templates, compiled once."""

    def __init__(self) -> None:
        self._environment = Environment(
            loader=FileSystemLoader(Path(__file__).parent / "templates"),
            autoescape=True,
            auto_reload=False,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            finalize=shown,
        )
        environment: Any = self._environment  # jinja2's filters and globals have no types
        environment.filters |= {
            "duration": duration,
            "elapsed": elapsed,
            "json": partial(json.dumps, ensure_ascii=False),
            "micros": micros,
            "number": number,
            "percent": percent,
            "quoted": quoted,
            "size": size,
            "time": time,
        }
        environment.globals |= {"url": url}

    def load(self, template: str) -> None:
        """Compiles a template with those that it includes."""
        for name in (template, "base.html", "macros.html"):
            self._environment.get_template(name)

    def page(self, template: str, values: Mapping[str, Any]) -> bytes:
        """Returns the bytes of a page."""
        return self._environment.get_template(template).render(values).encode("utf-8", "backslashreplace")
