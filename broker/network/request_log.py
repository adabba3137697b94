"""What is noted of each request when it is answered: the metrics, and a line in the log for whoever asks for it.

Owns the line, at DEBUG (`--log-level request_log=DEBUG`). Whose request it is stands in it as in all that is logged
while a request is handled, see `logs.Handling`.
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
    """Where requests are noted: the metrics, if any, the log levels, and the clock of durations."""

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
    """A request that was begun then has its answer: the response in bytes, or what its handler raised."""
    api_version, response = runner.context.api_version, None if error is not None else runner.response
    duration_ns, response_bytes, metrics = noted.timer() - begun_ns, sum(map(len, parts)), noted.metrics
    if metrics is not None:
        metrics.note(runner.route, api_version, request_bytes, response_bytes, duration_ns, response, error)
    if noted.levels.logs_requests:
        _tell(api_version, request_bytes, response_bytes, duration_ns, _errors(response, error))


def _errors(response: Any, error: Exception | None) -> str:
    """The names of the error codes in an answer."""
    from ..metrics.errors import code_of, name_of, noting  # nobody needs them at a start

    codes: dict[int, int] = {}
    if error is not None:
        codes[code_of(error)] = 1
    elif response is not None:
        noting(response.__class__)(response, codes)
    return ",".join(name_of(code) for code in codes if code)


def _tell(version: int, request_bytes: int, response_bytes: int, duration_ns: int, errors: str) -> None:
    get_logger().debug(
        "request",
        version=version,
        duration_us=duration_ns // 1000,
        request_bytes=request_bytes,
        response_bytes=response_bytes,
        **({"errors": errors} if errors else {}),
    )
