"""The request and the possible responses of a view. Independent of the HTTP server and of templates."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .query import Query

if TYPE_CHECKING:
    from ..plane import Plane


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
