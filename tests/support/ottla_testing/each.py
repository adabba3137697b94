"""`each`: many small cases inside one test, where a test id for each would only cost time."""

from __future__ import annotations

import functools
import inspect
import os
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest

T = TypeVar("T")
PARAM = type(pytest.param())  # a class that pytest does not export

STRIDE = 1 if float(os.environ.get("OTTLA_TEST_SCALE", "1")) >= 0.3 else 6
"""The distance between the steps at which a test stops some work: 1 from OTTLA_TEST_SCALE 0.3 on, below it 6."""


def taken(cases: Sequence[T], stride: int = STRIDE) -> Sequence[T]:
    """Returns every `stride`-th of the cases, at least one, from a random one on."""
    return cases[random.randrange(max(1, min(stride, len(cases)))) :: stride]


def parts(cases: Sequence[T], count: int) -> list[Sequence[T]]:
    """Returns the cases one by one, in a small run in `count` neighbouring parts: a fixture takes one case of each."""
    size = 1 if STRIDE == 1 else -(-len(cases) // count)
    return [cases[at : at + size] for at in range(0, len(cases), size)]


@contextmanager
def naming(case: str) -> Iterator[None]:
    """Names the case of a loop in the error that ends it."""
    try:
        yield
    except Exception as error:
        error.add_note(f"case: {case}")
        raise


def each(
    names: str | tuple[str, ...], cases: Iterable[Any], *, strided: bool = False
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Runs a test function once for every case, as `pytest.mark.parametrize` does, but within one test.

    All cases run, whichever fail. The test then fails with the first error; a note on it names its case and counts the
    others that failed. Each case has a `tmp_path` of its own; all other fixtures are the same for all cases, so a test
    whose cases change a fixture needs `parametrize`. With `strided` the cases are steps at which some work is
    stopped: a small run takes every sixth of them, from a random one on.
    """
    parameters = tuple(name.strip() for name in names.split(",")) if isinstance(names, str) else tuple(names)
    found = [_case(parameters, one) for one in cases]
    assert found, f"no case of {names}"

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        signature = inspect.signature(function)
        assert set(parameters) <= set(signature.parameters), (function.__name__, parameters)
        runs = _Runs(parameters, found, STRIDE if strided else 1)

        @functools.wraps(function)
        def one_by_one(**fixtures: Any) -> None:
            for number in runs.numbers():
                try:
                    function(**runs.arguments(fixtures, number))
                except Exception as error:
                    runs.failed(number, error)
            runs.end()

        @functools.wraps(function)
        async def awaited(**fixtures: Any) -> None:
            for number in runs.numbers():
                try:
                    await function(**runs.arguments(fixtures, number))
                except Exception as error:
                    runs.failed(number, error)
            runs.end()

        test = awaited if inspect.iscoroutinefunction(function) else one_by_one
        left = [one for name, one in signature.parameters.items() if name not in parameters]
        if strided:
            test = pytest.mark.soak(test)
        test.__signature__ = signature.replace(parameters=left)  # type: ignore[attr-defined]
        return test

    return decorate


class _Runs:
    """The cases of one test, and the errors of those that failed."""

    def __init__(self, parameters: tuple[str, ...], cases: Sequence[tuple[str, tuple[Any, ...]]], stride: int) -> None:
        self._parameters = parameters
        self._cases = cases
        self._stride = stride
        self._errors: list[tuple[int, Exception]] = []

    def numbers(self) -> Sequence[int]:
        """Returns the cases that this run takes."""
        return taken(range(len(self._cases)), self._stride)

    def arguments(self, fixtures: dict[str, Any], number: int) -> dict[str, Any]:
        """Returns the arguments of one case."""
        own = dict(fixtures)
        if "tmp_path" in own:
            folder: Path = own["tmp_path"] / f"case{number}"
            folder.mkdir()
            own["tmp_path"] = folder
        return own | dict(zip(self._parameters, self._cases[number][1], strict=True))

    def failed(self, number: int, error: Exception) -> None:
        self._errors.append((number, error))

    def end(self) -> None:
        """Raises the first error, if there is one; the next run begins without any."""
        errors, self._errors = self._errors, []
        if errors:
            number, error = errors[0]
            error.add_note(f"case {number} of {len(self._cases)}: {self._cases[number][0]}; {len(errors)} failed")
            raise error


def _case(parameters: tuple[str, ...], case: Any) -> tuple[str, tuple[Any, ...]]:
    """Returns the words that name a case, and its values."""
    values, name = (case,) if len(parameters) == 1 else case, None
    if isinstance(case, PARAM):
        values, name = case.values, case.id
        assert not case.marks, "a mark is for a whole test"
    assert len(values) == len(parameters), (parameters, case)
    shown = ", ".join(f"{parameter}={value!r:.200}" for parameter, value in zip(parameters, values, strict=True))
    return str(name or shown), tuple(values)
