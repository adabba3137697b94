"""What a view of the page is asked, and what it may answer with. Knows no HTTP server and no template."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .query import Query

if TYPE_CHECKING:
    from ..plane import Plane


@dataclass(frozen=True, slots=True)
class Ask:
    """A request: the parts of its path, its query, and what a form sent. `problem` is what the form was refused for,
    whose view is then shown again with what was `given`."""

    plane: Plane
    path: Mapping[str, str]
    query: Query
    given: Mapping[str, str] = field(default_factory=dict)
    problem: str | None = None
    last_event: str = ""
    """The id of the last event that a page's script has read of a stream, when it connects again."""


@dataclass(frozen=True, slots=True)
class Page:
    """A page: its template, its title, and what the template is given. `part` is the entry of the navigation."""

    template: str
    title: str
    part: str
    values: Mapping[str, Any] = field(default_factory=dict)
    status: int = 200


@dataclass(frozen=True, slots=True)
class Download:
    """Bytes to be kept in a file, never to be shown."""

    data: bytes
    file_name: str


@dataclass(frozen=True, slots=True)
class Moved:
    """Another page, after something was done; `told` says what."""

    url: str
    told: str = ""


@dataclass(frozen=True, slots=True)
class Stream:
    """Bytes that come in steps, to be kept in a file, or without a `file_name` to be read by the page's own script. An
    empty step is not sent: it is there so that a client which has gone is noticed."""

    steps: AsyncGenerator[bytes, None]
    content_type: str
    file_name: str | None = None


Answer = Page | Download | Moved | Stream
