"""Long work on records, divided into cooperative steps so that the caller can serve other clients in between.

`run` executes all steps at once; the broker has its own driver on the event loop.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, TypeVar

# A step ends at either limit: some milliseconds of plain Python.
STEP_BYTES = 256 * 1024
STEP_RECORDS = 2000

T = TypeVar("T")

# Yields None after each step, or a long C call that may run in another thread: the driver sends its result or throws
# its exception. Returns the overall result. Work that fits into one step never yields.
Steps = Generator[Callable[[], Any] | None, Any, T]


def run(steps: Steps[T]) -> T:
    """Executes all steps at once. Raises what the work raises."""
    try:
        call = next(steps)
        while True:
            if call is None:
                call = steps.send(None)
                continue
            try:
                result = call()
            except Exception as error:
                call = steps.throw(error)
            else:
                call = steps.send(result)
    except StopIteration as done:
        return done.value


class Pace:
    """The work done in the current step. Before each piece of work the caller checks `over`.

    If `over` is True the caller yields and calls `renew`: a generator can only yield for itself.
    """

    __slots__ = ("bytes_left", "records_left")

    def __init__(self) -> None:
        self.bytes_left = STEP_BYTES
        self.records_left = STEP_RECORDS

    @property
    def is_fresh(self) -> bool:
        return self.bytes_left == STEP_BYTES and self.records_left == STEP_RECORDS

    def over(self, size_bytes: int, records: int = 1) -> bool:
        """Returns whether so much more work exceeds this step. The first piece of work of a step never does."""
        return (size_bytes > self.bytes_left or records > self.records_left) and not self.is_fresh

    def spend(self, size_bytes: int, records: int = 0) -> None:
        self.bytes_left -= size_bytes
        self.records_left -= records

    def renew(self) -> None:
        self.bytes_left = STEP_BYTES
        self.records_left = STEP_RECORDS


def in_c(size_bytes: int, call: Callable[[], T]) -> Steps[T]:
    """Makes a C call on so many bytes: at once if they fit into one step, otherwise in a worker thread."""
    if size_bytes <= STEP_BYTES:
        return call()
    return (yield call)
