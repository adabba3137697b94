"""How a command reports that it cannot do what it was called for: one line on stderr, and an exit code."""

from __future__ import annotations

import sys

from .text import visible

FAILED = 1
"""The command was understood, and failed."""
USAGE_ERROR = 2
"""The call is wrong, or names what does not exist or cannot be used."""


def complain(program: str, message: object, code: int = USAGE_ERROR) -> int:
    """Prints the message as one line on stderr, whatever names and values are in it. Returns the exit code."""
    print(f"{program}: {visible(message)}", file=sys.stderr)
    return code
