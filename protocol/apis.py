"""A table of all declared APIs: key, name, and the classes of request and response.

The modules of `messages` are found by walking the package when the table is first used: there is no list to add to.
"""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

from . import messages
from .named import NamedTuple
from .schema import is_message, spec


class Api(NamedTuple):
    """An API: its key, its name, and the classes of its messages."""

    key: int
    name: str
    request: type
    response: type


@cache
def apis() -> dict[int, Api]:
    """Returns the declared APIs by key."""
    found: dict[int, dict[str, type]] = {}
    for module in pkgutil.walk_packages(messages.__path__, f"{messages.__name__}."):
        members = vars(importlib.import_module(module.name))
        for name, cls in members.items():
            for kind in ("Request", "Response"):
                if name.endswith(kind) and is_message(cls):
                    found.setdefault(spec(cls).api_key, {})[kind] = cls
    return {
        key: Api(key, pair["Request"].__name__.removesuffix("Request"), pair["Request"], pair["Response"])
        for key, pair in sorted(found.items())
        if len(pair) == 2
    }


@cache
def api_keys() -> dict[str, int]:
    """Returns the API keys by name in lower case."""
    return {api.name.lower(): key for key, api in apis().items()}


def name_of(key: int) -> str:
    """Returns the name of an API, or the key as text if no such API is declared."""
    api = apis().get(key)
    return str(key) if api is None else api.name
