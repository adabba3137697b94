"""Error reports of commands: one line on stderr, and an exit code."""

from __future__ import annotations

import sys

from .text import visible

FAILED = 1
"""Exit code of a command that was valid and failed."""
USAGE_ERROR = 2
"""Exit code of an invalid command line, or of one that names something missing or unusable."""


def complain(program: str, message: object, code: int = USAGE_ERROR) -> int:
    """Prints the message as one line on stderr, with control characters escaped, and returns the exit code."""
    print(f"{program}: {visible(message)}", file=sys.stderr)
    return code
