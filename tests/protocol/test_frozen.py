"""`@frozen`, compared with the dataclasses that it stands for."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, TypeVar

import pytest

from ottla.protocol.frozen import frozen, slotted

T = TypeVar("T")


def untyped(cls: Any) -> Any:
    return cls


@frozen
class Point:
    """Two numbers, a name and a list."""

    kind: ClassVar[str] = "point"
    x: int
    y: int = 2
    name: str = field(default="p", repr=False)
    tags: list[str] = field(default_factory=list[str])

    @property
    def total(self) -> int:
        return self.x + self.y


@dataclass(frozen=True, slots=True)
class StandardPoint:
    kind: ClassVar[str] = "point"
    x: int
    y: int = 2
    name: str = field(default="p", repr=False)
    tags: list[str] = field(default_factory=list[str])


@slotted
class Counter:
    name: str
    seen: int = 0
    note: object = field(default=None, compare=False)


@slotted
class DetailedCounter(Counter):
    names: list[str] = field(default_factory=list[str])


@frozen
class Empty:
    pass


@frozen
class One:
    value: int


@frozen
class Corner(Point):
    z: int = 5


class Subclass(One):
    """A subclass without the decorator."""


@frozen
class Box(Generic[T]):
    content: T


@frozen
class Checked:
    value: int

    def __post_init__(self) -> None:
        if self.value < 0:
            raise ValueError("negative")


def test_constructor_takes_what_that_of_a_dataclass_takes() -> None:
    point, standard_point, empty = (untyped(cls) for cls in (Point, StandardPoint, Empty))
    for arguments, named in (((1,), {}), ((1, 3, "q"), {}), ((), {"x": 1, "tags": ["a"]}), ((1,), {"name": "n"})):
        made, other = point(*arguments, **named), standard_point(*arguments, **named)
        assert dataclasses.asdict(made) == dataclasses.asdict(other)
        assert repr(made) == repr(other).replace("StandardPoint", "Point")
    for bad in (lambda: point(), lambda: point(1, w=2), lambda: point(1, 2, "n", [], 5), lambda: empty(1)):
        with pytest.raises(TypeError):
            bad()
    assert (Point(1).total, Point.kind, Box("b").content, Subclass(3).value, Corner(1).z) == (3, "point", "b", 3, 5)
    assert Point(1).tags is not Point(1).tags
    with pytest.raises(ValueError, match="negative"):
        Checked(-1)


def test_values_are_equal_by_their_class_and_fields() -> None:
    assert Point(1) == Point(1) and Point(1) != Point(1, 3) and Point(1) != StandardPoint(1) and Point(1) != Corner(1)
    subclass = untyped(Subclass)
    assert One(1) == One(1) and One(1) != One(2) and One(1) != subclass(1) and Empty() == Empty()
    assert len({One(1), One(1), One(2), Empty(), Empty()}) == 3
    with pytest.raises(TypeError):
        hash(Point(1))  # its list


@pytest.mark.parametrize("made", [Point(1), Corner(1), One(1), Empty()], ids=repr)
def test_values_cannot_be_changed(made: Any) -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        made.x = 3
    with pytest.raises(dataclasses.FrozenInstanceError):
        del made.x
    assert not hasattr(made, "__dict__")


def test_slotted_values_can_be_changed_and_have_no_hash() -> None:
    made = Counter("c")
    made.seen += 1
    assert made == Counter("c", 1, "other note") and made != Counter("c") and repr(made).startswith("Counter(name='c'")
    with pytest.raises(TypeError):
        hash(made)
    with pytest.raises(AttributeError):
        untyped(made).other = 1
    for other in (copy.copy(made), copy.deepcopy(made), pickle.loads(pickle.dumps(made)), dataclasses.replace(made)):
        assert other == made and other is not made
    detailed = DetailedCounter("d", names=["n"])
    assert dataclasses.asdict(detailed) == {"name": "d", "seen": 0, "note": None, "names": ["n"]} and detailed != made


def test_values_are_copied_pickled_replaced_and_matched() -> None:
    made = Corner(1, tags=["a"])
    for other in (copy.copy(made), copy.deepcopy(made), pickle.loads(pickle.dumps(made))):
        assert other == made and other is not made and type(other) is Corner
    assert dataclasses.replace(made, z=6) == Corner(1, 2, "p", ["a"], 6)
    assert [one.name for one in dataclasses.fields(Corner)] == ["x", "y", "name", "tags", "z"]
    assert [one.type for one in dataclasses.fields(Corner)] == ["int", "int", "str", "list[str]", "int"]
    assert [one.name for one in dataclasses.fields(Subclass(1))] == ["value"] and dataclasses.is_dataclass(Point)
    match made:
        case Corner(x, y, z=5):
            assert (x, y) == (1, 2)
        case _:
            raise AssertionError


def test_methods_of_the_class_itself_stay() -> None:
    @frozen
    class Named:
        name: str

        def __repr__(self) -> str:
            return self.name

        def __eq__(self, other: object) -> bool:
            return True

        def __hash__(self) -> int:
            return 7

    assert (repr(Named("n")), Named("n") == 3, hash(Named("m"))) == ("n", True, 7)


@pytest.mark.parametrize("options", [{"init": False}, {"hash": True}, {"kw_only": True}], ids=str)
def test_options_that_are_lacking_are_refused(options: dict[str, bool]) -> None:
    with pytest.raises(TypeError, match=r"value: a field has"):

        @frozen
        class Bad:  # pyright: ignore[reportUnusedClass]
            value: int = untyped(field)(default=1, **options)
