"""Long work on records, cut into steps so that whoever runs it can do other things in between.

Owns what a step is and how such work is driven on the spot. It knows no event loop: the broker has a driver of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, TypeVar

__all__ = ["STEP_BYTES", "STEP_RECORDS", "Steps", "run"]

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
