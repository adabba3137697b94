"""`NamedTuple` of `protocol/named.py`, compared with `typing.NamedTuple`."""

from __future__ import annotations

import copy
import inspect
import pickle
import typing
from typing import Any, ClassVar

import pytest

from ottla.protocol.named import NamedTuple


class Point(NamedTuple):
    """Two numbers and a name."""

    x: int
    y: int = 2
    name: str = "p"

    @property
    def total(self) -> int:
        return self.x + self.y


class Standard(typing.NamedTuple):
    """Two numbers and a name."""

    x: int
    y: int = 2
    name: str = "p"


class Unused(NamedTuple):
    x: int


class Special(Point):
    """A subclass, whose class the constructor of its base makes."""

    __slots__ = ()
    kind: ClassVar[str] = "special"


def result(call: Any) -> Any:
    """Returns the value of a call, or the type and the text of its error without the name of the class."""
    try:
        return call()
    except (AttributeError, TypeError, ValueError) as error:
        return type(error), str(error).replace("Standard", "Point")


CALLS: list[Any] = [
    lambda kind: tuple(kind(1)),
    lambda kind: tuple(kind(1, name="q")),
    lambda kind: kind(),
    lambda kind: kind(1, 2, "p", 4),
    lambda kind: kind(1, z=2),
    lambda kind: repr(kind(1, 3)).replace("Standard", "Point"),
    lambda kind: tuple(kind(1)._replace(y=5)),
    lambda kind: kind(1)._replace(z=5),
    lambda kind: tuple(kind._make((1, 2, "n"))),
    lambda kind: kind._make((1, 2)),
    lambda kind: kind(1)._asdict(),
    lambda kind: (kind._fields, kind._field_defaults, kind.__match_args__, kind.__doc__, kind.__bases__[0] is object),
    lambda kind: setattr(kind(1), "x", 2),
    lambda kind: setattr(kind(1), "other", 2),
    lambda kind: (kind(1) == kind(1), kind(1) == (1, 2, "p"), hash(kind(1)), kind(1) < kind(2)),
    lambda kind: typing.get_type_hints(kind),
    lambda kind: [(one.name, one.kind, one.default) for one in inspect.signature(kind).parameters.values()],
    lambda kind: [type(made(kind(1))) is kind for made in (copy.copy, copy.deepcopy, unpickled)],
    lambda kind: [made(kind(1)) == kind(1) for made in (copy.copy, copy.deepcopy, unpickled)],
]


def unpickled(value: Any) -> Any:
    return pickle.loads(pickle.dumps(value))


@pytest.mark.parametrize("call", CALLS)
def test_named_tuple_is_that_of_the_standard_library(call: Any) -> None:
    assert result(lambda: call(Point)) == result(lambda: call(Standard))


def test_first_construction_compiles_the_constructor() -> None:
    assert "__new__" not in vars(Unused)
    assert (Unused(1), Unused(x=1)) == ((1,), (1,))
    assert "__new__" in vars(Unused)


def test_subclass_and_members_stay() -> None:
    assert (type(Special(1)), Special(1).total, Special(1)._replace(x=4).total) == (Special, 3, 6)
    assert type(Special) is type
    declare: Any = type(NamedTuple)
    with pytest.raises(TypeError, match="without a default follows"):
        declare("Wrong", (NamedTuple,), {"__annotations__": {"x": "int", "y": "int"}, "x": 1})
    with pytest.raises(TypeError, match="no second base"):
        declare("Wrong", (NamedTuple, Point), {})
