"""Long work on records, cut into steps so that whoever runs it can do other things in between.

Owns what a step is and how such work is driven on the spot. It knows no event loop: the broker has a driver of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, TypeVar

__all__ = ["STEP_BYTES", "STEP_RECORDS", "Pace", "Steps", "in_c", "run"]

# A step ends when either is reached: some milliseconds of plain Python.
STEP_BYTES = 256 * 1024
STEP_RECORDS = 2000

T = TypeVar("T")

# Yields None after each step, or a call into C that is long and may run in another thread: its result is sent back in,
# what it raises is thrown in. Returns the result of the whole. Work that fits into one step never yields.
Steps = Generator[Callable[[], Any] | None, Any, T]


def run(steps: Steps[T]) -> T:
    """Does all the work here and now. Raises what the work raises."""
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
    """Counts what a step has done so far; `over` asks before each piece of work whether it goes into the next step.

    The one who asks then yields and calls `renew`: a generator can only yield for itself.
    """

    __slots__ = ("bytes_left", "records_left")

    def __init__(self) -> None:
        self.bytes_left = STEP_BYTES
        self.records_left = STEP_RECORDS

    @property
    def is_fresh(self) -> bool:
        return self.bytes_left == STEP_BYTES and self.records_left == STEP_RECORDS

    def over(self, size_bytes: int, records: int = 1) -> bool:
        """Whether so much more is too much for this step. The first piece of work of a step never is."""
        return (size_bytes > self.bytes_left or records > self.records_left) and not self.is_fresh

    def spend(self, size_bytes: int, records: int = 0) -> None:
        self.bytes_left -= size_bytes
        self.records_left -= records

    def renew(self) -> None:
        self.bytes_left = STEP_BYTES
        self.records_left = STEP_RECORDS


def in_c(size_bytes: int, call: Callable[[], T]) -> Steps[T]:
    """A call into C that goes over so many bytes: made here if they go into one step, else handed out."""
    if size_bytes <= STEP_BYTES:
        return call()
    return (yield call)
