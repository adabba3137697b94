"""Logging: structured events to stderr, for people or as JSON lines.

Owns the one structlog configuration; stdout stays free for `ottla ready on`. structlog costs more to import than the
rest of the command line together, so it is imported when the first logger is asked for.
"""

from __future__ import annotations

import sys
from typing import Any

_format = "console"
_configured = False


def configure(log_format: str) -> None:
    """Chooses "console" or "json" for this process. Call it before the first event."""
    global _format, _configured
    _format, _configured = log_format, False


def get_logger(**context: Any) -> Any:
    """A structlog logger with `context` bound to each of its events."""
    global _configured
    import structlog

    if not _configured:
        colors = sys.stderr.isatty()
        renderer = (
            structlog.processors.JSONRenderer()
            if _format == "json"
            else structlog.dev.ConsoleRenderer(colors=colors, exception_formatter=structlog.dev.plain_traceback)
        )
        processors: list[Any] = [
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
        ]
        if _format == "json":
            processors.append(structlog.processors.format_exc_info)
        structlog.configure(
            processors=[*processors, renderer],
            logger_factory=structlog.PrintLoggerFactory(file=sys.stderr),
            cache_logger_on_first_use=True,
        )
        _configured = True
    return structlog.get_logger(**context)
