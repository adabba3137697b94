"""`ottla serve` with the principals of a principal builder in Java, which a test has as its plug-in.

    serve.py FILE serve ...

The file has a line for each principal: the listener, the principal here, and that of the builder, between tabs.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from ottla.broker.connection_info import ConnectionInfo
from ottla.broker.network import connections
from ottla.broker.security.authorizer import ANONYMOUS
from ottla.tools.main import main

RULES = {
    (listener, known): built
    for listener, known, built in (line.split("\t") for line in Path(sys.argv.pop(1)).read_text().splitlines())
}


class Built(ConnectionInfo):
    """A connection whose principal is that of the builder."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.principal = ANONYMOUS  # a constructor does not use the property

    @property
    def principal(self) -> str:  # type: ignore[override]
        return self._built

    @principal.setter
    def principal(self, name: str) -> None:
        self._built = RULES.get((self.listener, name), name)


connections.ConnectionInfo = Built  # type: ignore[misc]
sys.exit(main())
