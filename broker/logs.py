"""Logging: structured events to stderr, for people or as JSON lines.

Owns the one structlog configuration; stdout stays free for `ottla ready on`. structlog costs more to import than the
rest of the command line together, so it is imported when the first logger is asked for.

An embedded broker is a guest in its process: it logs warnings and errors alone, and leaves structlog as it is there.
"""

from __future__ import annotations

import sys
import threading
from typing import Any

_format = "console"
_configured = False
_threads = threading.local()


def configure(log_format: str) -> None:
    """Chooses "console" or "json" for this process. Call it before the first event."""
    global _format, _configured
    _format, _configured = log_format, False


def quieten_thread() -> None:
    """From here on this thread logs warnings and errors alone, by a configuration of its own."""
    _threads.logger = _Quiet()


class _Quiet:
    """A logger of an embedded broker."""

    def debug(self, event: str, **values: Any) -> None:
        """Says nothing."""

    info = debug

    def warning(self, event: str, **values: Any) -> None:
        """Tells it on stderr."""
        self._logger().warning(event, **values)

    def error(self, event: str, **values: Any) -> None:
        """Tells it on stderr."""
        self._logger().error(event, **values)

    @staticmethod
    def _logger() -> Any:
        import structlog

        # Not kept: what stands for stderr changes from test to test.
        return structlog.wrap_logger(structlog.PrintLogger(sys.stderr), _processors(), structlog.BoundLogger)


def _processors() -> list[Any]:
    import structlog

    colors = sys.stderr.isatty()
    processors: list[Any] = [
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    if _format == "json":
        return [*processors, structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    plain = structlog.dev.ConsoleRenderer(colors=colors, exception_formatter=structlog.dev.plain_traceback)
    return [*processors, plain]


def get_logger(**context: Any) -> Any:
    """A structlog logger with `context` bound to each of its events."""
    global _configured
    quiet = getattr(_threads, "logger", None)
    if quiet is not None:
        return quiet
    import structlog

    if not _configured:
        structlog.configure(
            processors=_processors(),
            logger_factory=structlog.PrintLoggerFactory(file=sys.stderr),
            cache_logger_on_first_use=True,
        )
        _configured = True
    return structlog.get_logger(**context)
