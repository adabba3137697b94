"""The metrics and the log line of each request, once it has a response.

Owns the log line, at DEBUG (`--log-level request_log=DEBUG`). The fields that identify the request are added as in all
events of a request, see `logs.Handling`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from ..logs import get_logger

if TYPE_CHECKING:
    from ..logs import Levels
    from ..metrics.counters import RequestMetrics
    from .request_runner import RequestRunner


class Noted(Protocol):
    """The metrics of requests (None if off), the log levels, and the clock for durations."""

    metrics: RequestMetrics | None
    levels: Levels
    timer: Callable[[], int]


def note_request(
    noted: Noted,
    runner: RequestRunner,
    request_bytes: int,
    begun_ns: int,
    parts: list[Any],
    error: Exception | None = None,
) -> None:
    """Counts and logs a request that has ended: with the bytes of its response, or with the error that its handler
    raised.
    """
    api_version, response = runner.context.api_version, None if error is not None else runner.response
    duration_ns, response_bytes, metrics = noted.timer() - begun_ns, sum(map(len, parts)), noted.metrics
    if metrics is not None:
        metrics.note(runner.route, api_version, request_bytes, response_bytes, duration_ns, response, error)
    if noted.levels.logs_requests:
        _log(api_version, request_bytes, response_bytes, duration_ns, _errors(response, error))


def _errors(response: Any, error: Exception | None) -> str:
    """The names of the error codes in a response."""
    from ..metrics.errors import code_of, name_of, noting  # imported late, so that a start does not need it

    codes: dict[int, int] = {}
    if error is not None:
        codes[code_of(error)] = 1
    elif response is not None:
        noting(response.__class__)(response, codes)
    return ",".join(name_of(code) for code in codes if code)


def _log(version: int, request_bytes: int, response_bytes: int, duration_ns: int, errors: str) -> None:
    get_logger().debug(
        "request",
        version=version,
        duration_us=duration_ns // 1000,
        request_bytes=request_bytes,
        response_bytes=response_bytes,
        **({"errors": errors} if errors else {}),
    )
