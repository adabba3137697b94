"""Logging: structured events to stderr, as text or as JSON lines.

Owns the structlog configuration; stdout stays free for `ottla ready on`. structlog takes longer to import than the rest
of the command line together, so it is imported for the first logger.

An embedded broker shares its process with other code: it logs warnings and errors only, and does not change the
process's structlog configuration.

A logger has the name of its module. Each has a level, by Kafka's names: its own, or that of Kafka's logger of the same
part, which inherits from the loggers above it and the root, as in log4j. Levels can be changed while the broker runs
(KIP-412); a restart resets them to those of the process's start.

An event that is logged while a request is handled has the fields of that request: see `Handling`.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from typing import Any, Protocol

from ..protocol.names import did_you_mean

PREFIX = "ottla.broker."
KAFKA = "kafka"
"""The logger of Kafka above all of Ottla's that have none of the same part."""
REQUEST_LOGGER = PREFIX + "network.request_log"
"""Logs each request with its response, at DEBUG."""

LOGGERS = (
    "ottla.tools.image",
    *(
        PREFIX + module
        for module in """
    admin_api.operations background.cleaner background.log_dir_moves background.maintenance broker_state
    config.values control.app control.web.site errors groups.lookups main metadata.adopted_data metadata.adoption
    metadata.topics metadata.topology metrics.client_ledger metrics.client_telemetry network.connections
    network.encryption network.request_log security.tls
    quotas.client_quotas recording.recorder recording.tap replica.flush replica.forced_upgrade replica.log_dirs
    replica.start_progress security.sasl.key_sets share.dead_letters transactions.coordinator
    """.split()
    ),
)
"""The names of all loggers."""

_format = "console"
_configured = False
_owns_process = False
"""Whether `configure` was called, which no embedded broker does."""
_threads = threading.local()


class Levels:
    """The levels of all loggers: of Ottla, of Kafka for the parts that Ottla has, and of the root."""

    ROOT = "root"
    LEVELS = ("DEBUG", "ERROR", "FATAL", "INFO", "TRACE", "WARN")
    _RANKS: Mapping[str, int] = {"TRACE": 0, "DEBUG": 1, "INFO": 2, "WARN": 3, "ERROR": 4, "FATAL": 5}
    _METHODS: Mapping[str, int] = {"debug": 1, "info": 2, "warning": 3, "error": 4, "exception": 4}

    def __init__(self, root: str) -> None:
        self._plain = {self.ROOT: root}
        self._beginning = self._plain
        self._parts: Mapping[str, Sequence[str]] = {}
        self.kafka: tuple[str, ...] = ()
        """The names of Kafka's loggers."""
        self.reset()

    def begin(self, wanted: Mapping[str, str]) -> None:
        """Sets the initial levels, to which `reset` returns, and resets to them."""
        self._beginning = {**self._plain, **wanted}
        self.reset()

    def reset(self) -> None:
        """Resets every level to that of the process's start."""
        self._own = dict(self._beginning)
        self._reckon()

    def follow(self, parts: Mapping[str, Sequence[str]], kafka: Iterable[str]) -> None:
        """Sets the names of Kafka's loggers, and for each logger of Ottla (without PREFIX) those whose level it has,
        the nearest first. One without has the level of `kafka`."""
        self._parts = {PREFIX + part: names for part, names in parts.items() if names}
        self.kafka = tuple(kafka)
        self._reckon()

    def _inherited(self, name: str) -> str:
        """Returns the own level of a logger, or the first one of those that it inherits from."""
        own = self._own
        if name in own or len(own) == 1:
            return own.get(name, own[self.ROOT])
        of_kafka = (name,) if name in self.kafka else self._parts.get(name, (KAFKA,))
        above = (one[:at] for one in of_kafka for at in range(len(one) - 1, 0, -1) if one[at] == ".")
        return own[next((one for one in (*of_kafka, *above) if one in own), self.ROOT)]

    def _reckon(self) -> None:
        names = (self.ROOT, *self.kafka, *LOGGERS)
        self._levels = (
            dict.fromkeys(names, self._own[self.ROOT])
            if len(self._own) == 1
            else {name: self._inherited(name) for name in names}
        )
        self.logs_requests = self.lets(REQUEST_LOGGER, "debug")
        """Whether each request is logged."""

    @property
    def are_changed(self) -> bool:
        """Whether any level differs from the default."""
        return self._own != self._plain

    def of(self, name: str) -> str:
        """Returns the level of a logger: its own, or the one that it inherits."""
        return self._levels.get(name) or self._inherited(name)

    def all(self) -> dict[str, str]:
        """Returns the level of every logger and of the root."""
        return dict(self._levels)

    def set(self, name: str, level: str | None) -> None:
        """Sets the level of a logger to one of LEVELS; None returns it to the inherited one."""
        if level is None:
            self._own.pop(name, None)
        else:
            self._own[name] = level
        self._reckon()

    def lets(self, name: str, method: str) -> bool:
        """Returns whether the level of a logger lets events of a method, such as `info`, through."""
        return self._METHODS[method] >= self._RANKS[self.of(name)]


def level_of(text: str, kafka: Iterable[str]) -> tuple[str, str]:
    """Returns (logger, level) of `LEVEL`, which sets the root's, or `LOGGER=LEVEL`. A logger, of Ottla or one of
    `kafka`, may be named as for `logger_named`, and levels may be in lower case. Raises ValueError, one line.
    """
    name, equals, level = text.rpartition("=")
    return logger_named(name, kafka) if equals else Levels.ROOT, level_named(level)


def split_level(text: str) -> tuple[str, str]:
    """Returns (logger, level) like `level_of`, without a look at the name. Raises ValueError."""
    name, equals, level = text.rpartition("=")
    return name if equals else Levels.ROOT, level_named(level)


def logger_named(name: str, kafka: Iterable[str]) -> str:
    """Returns the full name of a logger, of Ottla or one of `kafka`. PREFIX may be left out, and the last part is
    enough if no other logger of Ottla has the same.

    Raises ValueError, one line with the nearest name that exists.
    """
    known = (Levels.ROOT, *LOGGERS, *kafka)
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
    """Returns a level by the name that Kafka uses. Raises ValueError, one line."""
    level = name.upper()
    if level not in Levels.LEVELS:
        hint = did_you_mean(name, Levels.LEVELS)
        raise ValueError(f"a level is one of {', '.join(Levels.LEVELS)}, not {name!r}{hint}")
    return level


_levels = Levels("INFO")


def levels() -> Levels:
    """Returns the levels of the broker that runs in this thread."""
    return getattr(_threads, "levels", _levels)


class HandledConnection(Protocol):
    """A connection, for log lines."""

    @property
    def number(self) -> int: ...
    @property
    def principal(self) -> str | None:
        """None until the client has one."""
        ...


class _Named(Protocol):
    @property
    def name(self) -> str: ...


class HandledCall(Protocol):
    """A request, for log lines; `header` is the header of its response."""

    @property
    def route(self) -> _Named: ...
    @property
    def client_id(self) -> str: ...
    @property
    def header(self) -> bytes: ...


class Handling:
    """The request that a thread is handling, if any.

    It is set around each step of a handler, so that events logged by the handler have the request's fields, also after
    a wait, and events of background work do not. `call` is None while only the connection is known.
    """

    __slots__ = ("call", "connection")

    def __init__(self) -> None:
        self.connection: HandledConnection | None = None
        self.call: HandledCall | None = None

    @contextlib.contextmanager
    def aside(self) -> Generator[None]:
        """Restores the current request at exit: within it, other requests may be handled."""
        connection, call = self.connection, self.call
        try:
            yield
        finally:
            self.connection, self.call = connection, call

    def event_fields(self) -> dict[str, Any]:
        """The fields of the current request for a log event."""
        if self.connection is None:
            return {}
        found: dict[str, Any] = {"connection": self.connection.number}
        if (principal := self.connection.principal) is not None:
            found["principal"] = principal
        if (call := self.call) is not None:
            found |= {
                "api": call.route.name,
                "client_id": call.client_id,
                "correlation_id": int.from_bytes(call.header[:4], "big", signed=True),
            }
        return found


def handling() -> Handling:
    """Returns the current request of this thread."""
    found = getattr(_threads, "handling", None)
    if found is None:
        found = _threads.handling = Handling()
    return found


def _with_request(logger: Any, method: str, event: dict[str, Any]) -> dict[str, Any]:
    """A structlog processor that adds the fields of the current request unless the event has them."""
    found = getattr(_threads, "handling", None)
    return {**found.event_fields(), **event} if found is not None and found.connection is not None else event


def _silent(event: object, **values: object) -> None:
    """Replaces a logger's method whose level lets nothing through."""


class _Leveled:
    """A logger that drops the events below its level, and is made only for the others."""

    def __init__(self, made: Callable[[], Any], name: str) -> None:
        self._made = made
        self._name = name

    def __getattr__(self, method: str) -> Any:
        return getattr(self._made(), method) if levels().lets(self._name, method) else _silent


def configure(log_format: str, wanted: Mapping[str, str] = {}) -> None:
    """Sets the log format, "console" or "json", and the levels of loggers other than INFO for this process. Call it
    before the first event.
    """
    global _format, _configured, _owns_process
    _format, _configured, _owns_process = log_format, False, True
    _levels.begin(wanted)


def quieten_thread() -> None:
    """Restricts logging in this thread to warnings and errors, with a configuration of its own."""
    _threads.is_quiet = True
    _threads.levels = Levels("WARN")


def _loud() -> Any:
    """Returns a logger that writes all events to stderr."""
    structlog = _structlog()
    # Not cached: sys.stderr is another object in each test.
    by_level = structlog.make_filtering_bound_logger(0)  # 0 lets all levels through
    return structlog.wrap_logger(structlog.PrintLogger(sys.stderr), _processors(), by_level)


def _structlog() -> Any:
    """Imports structlog: in a process whose logs are Ottla's own, without packages that it uses if they are there.
    The tracebacks of rich are not used, and colorama is for Windows; rich takes as long to import as the broker.
    """
    unused = [name for name in ("rich", "colorama") if _owns_process and name not in sys.modules]
    for name in unused if "structlog" not in sys.modules else ():
        sys.modules[name] = None  # type: ignore[assignment]  an import of it raises ImportError
    try:
        import structlog
    finally:
        for name in unused:
            if name in sys.modules and sys.modules[name] is None:  # pyright: ignore[reportUnnecessaryComparison]
                del sys.modules[name]
    return structlog


def _processors() -> list[Any]:
    structlog = _structlog()
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
    """Returns a structlog logger with `context` bound to each of its events."""
    global _configured
    name = sys._getframe(1).f_globals["__name__"]  # pyright: ignore[reportPrivateUsage]  the one way to a caller
    if getattr(_threads, "is_quiet", False):
        return _Leveled(_loud, name)  # which imports structlog for an event that is written
    structlog = _structlog()
    if not _configured:
        structlog.configure(
            processors=_processors(),
            logger_factory=structlog.PrintLoggerFactory(file=sys.stderr),
            cache_logger_on_first_use=True,
        )
        _configured = True
    logger = structlog.get_logger(**context)
    return _Leveled(lambda: logger, name) if levels().are_changed else logger
