"""Templates made into pages. Importing this needs Jinja2: done when the first page is asked for.

Owns what is shown of names and contents that somebody else chose: Jinja2 escapes them, and letters that a page shows as
nothing, or that turn others around (control characters, marks of direction), stand as Python writes them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from ....protocol import text
from ....protocol.text import duration, moment, time_text
from .letters import HIDDEN
from .query import quoted, url


def shown(value: Any) -> Any:
    """A value as a template may print it."""
    if isinstance(value, str) and not hasattr(value, "__html__"):
        return HIDDEN.sub(_escape, value)
    return "" if value is None else value


def _escape(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape", "surrogatepass").decode("ascii")


def number(value: int | None) -> str:
    """A number in groups of three digits, by narrow blanks that no line is broken at."""
    return "–" if value is None else f"{value:,}".replace(",", "\N{NARROW NO-BREAK SPACE}")


def size(value: int | None) -> str:
    """Bytes, in one piece that no line is broken in; a dash for none and below 0."""
    return "–" if value is None or value < 0 else text.size(value).replace(" ", "\N{NO-BREAK SPACE}")


def time(ms: int | None) -> str | Markup:
    """A time in UTC as an element that says it to machines as well; a dash for none, the number where it is no date."""
    if ms is None or ms < 0:
        return "–" if ms in (None, -1) else str(ms)
    found = time_text(ms)
    return Markup('<time datetime="{}">{}</time>').format(found, moment(ms)) if found else str(ms)


def elapsed(ms: int | None) -> str:
    """How long something took or is ago; a dash for none."""
    return "–" if ms is None else text.elapsed(ms)


def micros(ns: int) -> str:
    """Nanoseconds of a request; a dash below 0."""
    return "–" if ns < 0 else text.elapsed(ns / 1e6)


def percent(part: float, whole: float) -> int:
    """How much of the whole, 0 to 100."""
    return max(0, min(100, round(100 * part / whole))) if whole else 0


class Renderer:
    """The templates, read once."""

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
        self._environment.filters |= {
            "duration": duration,
            "elapsed": elapsed,
            "json": lambda value: json.dumps(value, ensure_ascii=False),
            "micros": micros,
            "number": number,
            "percent": percent,
            "quoted": quoted,
            "size": size,
            "time": time,
        }
        self._environment.globals |= {"url": url}

    def load(self, template: str) -> None:
        """Compiles a template with those that all have in them."""
        for name in (template, "base.html", "macros.html"):
            self._environment.get_template(name)

    def page(self, template: str, values: Mapping[str, Any]) -> bytes:
        """The bytes of a page."""
        return self._environment.get_template(template).render(values).encode("utf-8", "backslashreplace")
