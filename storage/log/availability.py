"""Availability of a log: refuses calls when it is closed or offline, and reports disk errors to its owner.

The owner of the disk decides what an error means for other logs on it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Concatenate, ParamSpec, Self, TypeVar

from ..errors import StorageError

CLOSED = "is closed"

_Log = TypeVar("_Log", bound="LogAvailability")
_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


class LogAvailability:
    """Base of a log: refuses calls when closed or offline."""

    __slots__ = ("_directory", "_unusable", "on_failure")

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._unusable: str | None = None
        self.on_failure: Callable[[Self, OSError], None] | None = None
        """Called with every disk error, in the thread that met it, before StorageError is raised."""

    @property
    def directory(self) -> str:
        """The path of the log's folder."""
        return self._directory

    def fail(self, reason: str) -> None:
        """Takes the log offline until it is opened again: its disk cannot be trusted."""
        self._unusable = self._unusable or f"is offline: {reason}"

    def check_usable(self) -> None:
        """Raises StorageError if the log is closed or offline."""
        if self._unusable is not None:
            raise StorageError(f"{self._directory} {self._unusable}")

    def report(self, error: StorageError) -> None:
        """Reports an error to the owner of the disk, if the disk is its cause."""
        if self.on_failure is not None and self._unusable is None and isinstance(error.__cause__, OSError):
            self.on_failure(self, error.__cause__)


def when_available(
    method: Callable[Concatenate[_Log, _Arguments], _Result],
) -> Callable[Concatenate[_Log, _Arguments], _Result]:
    """Decorates a method of a log: it is refused when the log is closed or offline, and its disk errors are
    reported."""

    @functools.wraps(method)
    def wrapper(log: _Log, *args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Result:
        log.check_usable()
        try:
            return method(log, *args, **kwargs)
        except StorageError as error:
            log.report(error)
            raise

    return wrapper
