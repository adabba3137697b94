"""The exit code of a command that Ctrl-C interrupts."""

from __future__ import annotations

INTERRUPTED = 130  # the convention of shells: 128 + SIGINT
