"""The request and the possible responses of a view. Independent of the HTTP server and of templates.

The query of a page's URL is read within bounds, and written for links to the same list in another order.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from urllib.parse import quote, unquote, urlencode

from ....protocol.limits import INT64_MAX
from ....protocol.text import time_ms
from ..refusal import Refusal, shown

if TYPE_CHECKING:
    from ..plane import Plane

MAX_TEXT = 1000
MAX_DIGITS = 19
PAGE_ROWS = 100

T = TypeVar("T")


class Query(dict[str, str]):
    """The parameters by name; the last one counts, and empty ones are ignored. Its methods raise Refusal (400), one
    line, for invalid values."""

    def __init__(self, pairs: Iterable[tuple[str, str]] = ()) -> None:
        super().__init__((name, text) for name, text in pairs if text)

    def text(self, name: str) -> str:
        """Returns a text, empty by default."""
        found = self.get(name, "")
        if len(found) > MAX_TEXT:
            raise Refusal(400, f"{name} has {len(found)} characters, more than {MAX_TEXT}")
        return found

    def whole(self, name: str, default: int | None = None, least: int = 0, most: int = INT64_MAX) -> int | None:
        """Returns a whole number."""
        return whole_number(name, self.get(name, ""), default, least, most)

    def choice(self, name: str, of: Sequence[str]) -> str:
        """Returns one of several words, by default the first."""
        found = self.get(name, of[0])
        if found not in of:
            raise Refusal(400, f"{name} is {shown(found)}, not one of {', '.join(of)}")
        return found

    def flag(self, name: str) -> bool:
        """Returns whether a box was ticked."""
        return name in self

    def moment(self, name: str) -> int | None:
        """Returns a time in ms since 1970, given as a number or in ISO 8601."""
        found = self.get(name, "").strip()
        return moment(found) if found else None

    def link(self, **changes: object) -> str:
        """Returns the same query with other values; None removes one."""
        found: dict[str, Any] = dict(self)
        for name, value in changes.items():
            found.pop(name, None)
            if value is not None:
                found[name] = value
        return "?" + urlencode(found, errors="surrogatepass")


def whole_number(name: str, text: str, default: int | None = None, least: int = 0, most: int = INT64_MAX) -> int | None:
    """Returns a whole number from a text field, `default` for an empty field. Raises Refusal (400)."""
    text = text.strip()
    if not text:
        return default
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) <= MAX_DIGITS):
        raise Refusal(400, f"{name} is {shown(text)}, not a whole number")
    value = int(text)
    if not least <= value <= most:
        raise Refusal(400, f"{name} is {text}, not {least} to {most}")
    return value


def moment(text: str) -> int:
    """Returns a time in ms since 1970, given as a number or in ISO 8601. Raises Refusal (400)."""
    try:
        return time_ms(text)
    except (ValueError, OverflowError) as error:
        raise Refusal(400, error) from error


QUOTED = "quoted."
"""The prefix of hidden fields with percent-encoded values: HTML has no NUL, browsers change line breaks, and pages
escape control characters."""


def quoted(text: str) -> str:
    """Returns the percent-encoded value of such a field."""
    return quote(text.encode("utf-8", "surrogatepass"), safe="")


def unquoted(fields: Mapping[str, str]) -> dict[str, str]:
    """Returns the fields of a form; percent-encoded ones are decoded, and lose the prefix."""
    return {
        name.removeprefix(QUOTED): unquote(text, errors="surrogatepass") if name.startswith(QUOTED) else text
        for name, text in fields.items()
    }


def url(*parts: str | int) -> str:
    """Returns the path of a page with these parts."""
    return "/" + "/".join(quote(str(part).encode("utf-8", "surrogatepass"), safe="") for part in parts)


@dataclass(frozen=True, slots=True)
class PageRequest:
    """A request: the parts of its path, its query, and the fields of a form. `problem` is why the form was refused; its
    view is then shown again with the fields in `given`."""

    plane: Plane
    path: Mapping[str, str]
    query: Query
    given: Mapping[str, str] = field(default_factory=dict[str, str])
    problem: str | None = None
    last_event: str = ""
    """The id of the last event that a script received from a stream, when it reconnects."""


@dataclass(frozen=True, slots=True)
class Page:
    """A page: its template, its title, and the values for the template. `part` is the entry of the navigation."""

    template: str
    title: str
    part: str
    values: Mapping[str, Any] = field(default_factory=dict[str, Any])
    status: int = 200


@dataclass(frozen=True, slots=True)
class Download:
    """Bytes for a file; a browser never displays them."""

    data: bytes
    file_name: str


@dataclass(frozen=True, slots=True)
class Moved:
    """A redirect to another page after a change; `done` describes the change."""

    url: str
    done: str = ""


@dataclass(frozen=True, slots=True)
class Stream:
    """Bytes in steps, for a file, or without a `file_name` for the page's own script. An empty step is not sent: it
    lets the server notice that the client has disconnected."""

    steps: AsyncGenerator[bytes, None]
    content_type: str
    file_name: str | None = None


PageResponse = Page | Download | Moved | Stream


# Lists in pages

Columns = Mapping[str, Callable[[T], Any]]
"""The keys by which rows are sorted, by the names of columns; the first is the default."""


@dataclass(frozen=True, slots=True)
class Listing(Generic[T]):
    """One page of a sorted list of `total` rows."""

    rows: Sequence[T]
    total: int
    first: int  # number of the first of these rows, counted from 1
    query: Query
    sort: str
    is_falling: bool
    page: int
    pages: int

    def order(self, name: str) -> str:
        """Returns how a column is sorted, as a value of `aria-sort`."""
        if name != self.sort:
            return "none"
        return "descending" if self.is_falling else "ascending"

    def sort_link(self, name: str) -> str:
        """Returns a link to the list sorted by a column, in reverse if it is sorted by it already."""
        falls = name == self.sort and not self.is_falling
        return self.query.link(sort=f"-{name}" if falls else name, page=None, done=None)

    def page_link(self, page: int) -> str:
        """Returns a link to another page of the list."""
        return self.query.link(page=page, done=None)


def listing(
    rows: Iterable[T],
    query: Query,
    keys: Columns[T],
    page_rows: int = PAGE_ROWS,
    default: str = "",
) -> Listing[T]:
    """Returns the page of rows that the parameter `page` selects. The parameter `sort` is the name of one of `keys`,
    with a minus for descending order; without it `default`, or the first key. Raises Refusal (400)."""
    wanted = query.text("sort") or default or next(iter(keys))
    name = wanted.removeprefix("-")
    if name not in keys:
        raise Refusal(400, f"sort is {shown(name)}, not one of {', '.join(keys)}")
    falls = wanted.startswith("-")
    found = sorted(rows, key=keys[name], reverse=falls)
    pages = max(1, -(-len(found) // page_rows))
    page = min(query.whole("page", 1, least=1) or 1, pages)
    first = (page - 1) * page_rows
    return Listing(found[first : first + page_rows], len(found), first + 1, query, name, falls, page, pages)
