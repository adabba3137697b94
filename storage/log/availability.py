"""What a log that is closed or offline answers, and who is told of errors of its disk.

Owns why nothing can be done with a log any more. The owner of the disk decides what an error means for the other logs
on it; here it is only handed on.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Concatenate, ParamSpec, Self, TypeVar

from ..errors import StorageError

CLOSED = "is closed"

_Log = TypeVar("_Log", bound="Watched")
_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


class Watched:
    """The part of a log that knows whether it can be used."""

    __slots__ = ("_directory", "_unusable", "on_failure")

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._unusable: str | None = None
        self.on_failure: Callable[[Self, OSError], None] | None = None
        """Told of every error of the disk, in the thread that met it, before StorageError is raised."""

    @property
    def directory(self) -> str:
        """The path of its folder."""
        return self._directory

    def fail(self, reason: str) -> None:
        """The log takes and gives nothing any more, until it is opened anew: its disk cannot be trusted."""
        self._unusable = self._unusable or f"is offline: {reason}"

    def check_usable(self) -> None:
        """Raises StorageError if nothing can be done with the log."""
        if self._unusable is not None:
            raise StorageError(f"{self._directory} {self._unusable}")

    def report(self, error: StorageError) -> None:
        """Tells the owner of the disk of an error, if the disk is its cause."""
        if self.on_failure is not None and self._unusable is None and isinstance(error.__cause__, OSError):
            self.on_failure(self, error.__cause__)


def watched(
    method: Callable[Concatenate[_Log, _Arguments], _Result],
) -> Callable[Concatenate[_Log, _Arguments], _Result]:
    """A method of a log: refused if that cannot be used, and its errors of the disk are reported."""

    @functools.wraps(method)
    def wrapper(log: _Log, *args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Result:
        log.check_usable()
        try:
            return method(log, *args, **kwargs)
        except StorageError as error:
            log.report(error)
            raise

    return wrapper
