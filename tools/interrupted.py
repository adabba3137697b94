"""The exit code of a command that Ctrl-C ends."""

from __future__ import annotations

INTERRUPTED = 130  # as shells count it: 128 and the number of SIGINT
