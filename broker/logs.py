"""Logging: structured events to stderr, for people or as JSON lines.

Owns the one structlog configuration; stdout stays free for `ottla ready on`. structlog costs more to import than the
rest of the command line together, so it is imported when the first logger is asked for.

An embedded broker is a guest in its process: it logs warnings and errors alone, and leaves structlog as it is there.

A logger is named by the module that asks for it. Each has a level, its own or that of the root, by Kafka's names; they
can be changed while the broker runs (KIP-412), and are those of the process's start again when it starts anew.

What is logged while a request is being handled says whose request it is: see `Handling`.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Generator, Mapping
from typing import Any, Protocol

from ..protocol.names import did_you_mean

PREFIX = "ottla.broker."
REQUEST_LOGGER = PREFIX + "network.request_log"
"""Tells each request when it is answered, at DEBUG."""

LOGGERS = (
    "ottla.tools.image",
    *(
        PREFIX + module
        for module in """
    admin_api.operations background.cleaner background.log_dir_moves background.maintenance broker_state
    config.values control.app control.web.site errors groups.lookups main metadata.adoption metadata.topics
    metadata.topology metrics.client_ledger metrics.client_telemetry network.connections network.request_log
    quotas.client_quotas recording.recorder recording.tap replica.flush replica.forced_upgrade replica.log_dirs
    replica.start_progress transactions.coordinator
    """.split()
    ),
)
"""All that there are."""

_format = "console"
_configured = False
_threads = threading.local()


class Levels:
    """What is logged by whom."""

    ROOT = "root"
    LEVELS = ("DEBUG", "ERROR", "FATAL", "INFO", "TRACE", "WARN")
    _RANKS: Mapping[str, int] = {"TRACE": 0, "DEBUG": 1, "INFO": 2, "WARN": 3, "ERROR": 4, "FATAL": 5}
    _METHODS: Mapping[str, int] = {"debug": 1, "info": 2, "warning": 3, "error": 4, "exception": 4}

    def __init__(self, root: str) -> None:
        self._plain = {self.ROOT: root}
        self._beginning = self._plain
        self.reset()

    def begin(self, wanted: Mapping[str, str]) -> None:
        """What `reset` comes back to, and holds from here on, where somebody wants other levels from the start."""
        self._beginning = {**self._plain, **wanted}
        self.reset()

    def reset(self) -> None:
        """Every level is as when the process started."""
        self._own = dict(self._beginning)
        self._reckon()

    def _reckon(self) -> None:
        self.logs_requests = self.lets(REQUEST_LOGGER, "debug")
        """Whether each request is told."""

    @property
    def are_changed(self) -> bool:
        """Whether any level is not what it is where nobody asks for one."""
        return self._own != self._plain

    def of(self, name: str) -> str:
        """The level by which a logger goes."""
        return self._own.get(name, self._own[self.ROOT])

    def all(self) -> dict[str, str]:
        """Every logger's, and the root's."""
        return {name: self.of(name) for name in (self.ROOT, *LOGGERS)}

    def set(self, name: str, level: str | None) -> None:
        """Gives a logger one of LEVELS, or the root's again with None."""
        if level is None:
            self._own.pop(name, None)
        else:
            self._own[name] = level
        self._reckon()

    def lets(self, name: str, method: str) -> bool:
        """Whether what a logger says with a method, as `info`, is told."""
        return self._METHODS[method] >= self._RANKS[self.of(name)]


def level_of(text: str) -> tuple[str, str]:
    """`LEVEL`, which is the root's, or `LOGGER=LEVEL` as (logger, level); a logger's name may be without PREFIX or only
    its last part, a level in small letters. Raises ValueError, one line."""
    name, equals, level = text.rpartition("=")
    return logger_named(name) if equals else Levels.ROOT, level_named(level)


def logger_named(name: str) -> str:
    """A logger's name in full; its last part is enough if no other logger has the same.

    Raises ValueError, one line with the nearest name that exists.
    """
    known = (Levels.ROOT, *LOGGERS)
    for one in (name, PREFIX + name):
        if one in known:
            return one
    by_module = [one for one in LOGGERS if one.rpartition(".")[2] == name]
    if len(by_module) == 1:
        return by_module[0]
    hint = did_you_mean(name.removeprefix(PREFIX), [one.removeprefix(PREFIX) for one in known])
    if not hint:
        hint = did_you_mean(name, [one.rpartition(".")[2] for one in known])
    raise ValueError(f"there is no logger {name!r}{hint}")


def level_named(name: str) -> str:
    """A level as Kafka writes it. Raises ValueError, one line."""
    level = name.upper()
    if level not in Levels.LEVELS:
        hint = did_you_mean(name, Levels.LEVELS)
        raise ValueError(f"a level is one of {', '.join(Levels.LEVELS)}, not {name!r}{hint}")
    return level


_levels = Levels("INFO")


def levels() -> Levels:
    """Those of the broker that runs in this thread."""
    return getattr(_threads, "levels", _levels)


class HandledConnection(Protocol):
    """A connection as log lines name it."""

    @property
    def number(self) -> int: ...


class _Named(Protocol):
    @property
    def name(self) -> str: ...


class HandledCall(Protocol):
    """A request as log lines name it; `header` is that of its response."""

    @property
    def route(self) -> _Named: ...
    @property
    def client_id(self) -> str: ...
    @property
    def header(self) -> bytes: ...


class Handling:
    """Whose request a thread is handling at this moment, if any: set around each step of a handler, so that what is
    logged there says it, also behind a wait, and what goes on in the background does not.

    `call` is None while only the connection is known.
    """

    __slots__ = ("call", "connection")

    def __init__(self) -> None:
        self.connection: HandledConnection | None = None
        self.call: HandledCall | None = None

    @contextlib.contextmanager
    def aside(self) -> Generator[None]:
        """In it the requests of others may be handled; behind it, whose it was before."""
        connection, call = self.connection, self.call
        try:
            yield
        finally:
            self.connection, self.call = connection, call

    def told(self) -> dict[str, Any]:
        """What an event says of it."""
        if self.connection is None:
            return {}
        found: dict[str, Any] = {"connection": self.connection.number}
        if (call := self.call) is not None:
            found |= {
                "api": call.route.name,
                "client_id": call.client_id,
                "correlation_id": int.from_bytes(call.header[:4], "big", signed=True),
            }
        return found


def handling() -> Handling:
    """That of this thread."""
    found = getattr(_threads, "handling", None)
    if found is None:
        found = _threads.handling = Handling()
    return found


def _with_request(logger: Any, method: str, event: dict[str, Any]) -> dict[str, Any]:
    """As structlog's processors are: adds whose request it is, unless the event says so itself."""
    found = getattr(_threads, "handling", None)
    return {**found.told(), **event} if found is not None and found.connection is not None else event


def _silent(event: object, **values: object) -> None:
    """A method of a logger whose level lets nothing through."""


class _Leveled:
    """A logger of which the levels let through what they do."""

    def __init__(self, logger: Any, name: str) -> None:
        self._logger = logger
        self._name = name

    def __getattr__(self, method: str) -> Any:
        if levels().lets(self._name, method):
            return getattr(self._logger, method)
        return _silent


def configure(log_format: str, wanted: Mapping[str, str] = {}) -> None:
    """Chooses "console" or "json" for this process, and the levels of loggers that are not to have INFO. Call it before
    the first event."""
    global _format, _configured
    _format, _configured = log_format, False
    _levels.begin(wanted)


def quieten_thread() -> None:
    """From here on this thread logs warnings and errors alone, by a configuration of its own."""
    _threads.logger = _Quiet()
    _threads.levels = Levels("WARN")


class _Quiet:
    """A logger of an embedded broker."""

    def debug(self, event: str, **values: Any) -> None:
        """Says nothing."""

    info = debug

    def warning(self, event: str, **values: Any) -> None:
        """Tells it on stderr."""
        self.loud().warning(event, **values)

    def error(self, event: str, **values: Any) -> None:
        """Tells it on stderr."""
        self.loud().error(event, **values)

    def exception(self, event: str, **values: Any) -> None:
        """Tells it on stderr, with the exception that is being handled."""
        self.loud().exception(event, **values)

    @staticmethod
    def loud() -> Any:
        """One that tells everything on stderr."""
        import structlog

        # Not kept: what stands for stderr changes from test to test.
        by_level = structlog.make_filtering_bound_logger(0)  # of all levels; it knows what `exception` tells
        return structlog.wrap_logger(structlog.PrintLogger(sys.stderr), _processors(), by_level)


def _processors() -> list[Any]:
    import structlog

    colors = sys.stderr.isatty()
    processors: list[Any] = [
        _with_request,
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
    name = sys._getframe(1).f_globals["__name__"]  # pyright: ignore[reportPrivateUsage]  the one way to a caller
    quiet = getattr(_threads, "logger", None)
    if quiet is not None:
        return _Leveled(quiet.loud(), name) if levels().are_changed else quiet
    import structlog

    if not _configured:
        structlog.configure(
            processors=_processors(),
            logger_factory=structlog.PrintLoggerFactory(file=sys.stderr),
            cache_logger_on_first_use=True,
        )
        _configured = True
    logger = structlog.get_logger(**context)
    return _Leveled(logger, name) if levels().are_changed else logger
