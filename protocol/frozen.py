"""`@frozen` declares immutable values as `@dataclass(frozen=True, slots=True)` does, `@slotted` values that can be
changed as `@dataclass(slots=True)` does. Both compile nothing at import.

The standard library compiles six methods of each class when it is declared, which takes half a millisecond: 80 ms of
each start for the hundred values of the broker's state machines. Here the first call of a constructor compiles it, and
the other methods need no code of their own. `dataclasses.replace`, `fields` and `asdict` take these values as well.
"""

from __future__ import annotations

import dataclasses
import inspect
import operator
from collections.abc import Mapping
from typing import Any, TypeVar, dataclass_transform

T = TypeVar("T")
_MISSING: Any = object()


@dataclass_transform(frozen_default=True, field_specifiers=(dataclasses.field,))
def frozen(cls: type[T]) -> type[T]:
    """Makes a declared class a value class: with slots, equality and hash by its fields, and a repr.

    A field has a default, `field(default=...)` or `field(default_factory=...)`, as in a dataclass; of the other options
    there are `repr` and `compare`. `__post_init__` is called as there. Methods that the class declares itself stay.
    """
    return _made(cls, __setattr__=_refuse_change, __delattr__=_refuse_change, __reduce__=_reduce)


@dataclass_transform(field_specifiers=(dataclasses.field,))
def slotted(cls: type[T]) -> type[T]:
    """Makes a declared class as `frozen` does, but with values that can be changed and have no hash."""
    return _made(cls, __hash__=None)


def declarations(cls: Any) -> Mapping[str, dataclasses.Field[Any]]:
    """Returns the declarations of a class by name, at once: `dataclasses.fields` makes another class first."""
    return cls._declared


def _made(cls: type[T], **methods: Any) -> type[T]:
    namespace = {name: member for name, member in vars(cls).items() if name not in ("__dict__", "__weakref__")}
    own = [name for name, kind in namespace.get("__annotations__", {}).items() if "ClassVar" not in str(kind)]
    inherited = dict[str, dataclasses.Field[Any]]()
    for base in cls.__mro__[:0:-1]:
        inherited |= vars(base).get("_declared", {})
    declared = inherited | {name: _field(cls, name, namespace.pop(name, _MISSING)) for name in own}
    made: dict[str, Any] = {
        "__slots__": [name for name in own if name not in inherited],
        "__match_args__": tuple(declared),
        "__dataclass_fields__": _fields,
        "_declared": declared,
        "__init__": _first_call,
        "__repr__": _repr,
        **_comparison(*[name for name, field in declared.items() if field.compare]),
        **methods,
    }
    return type(cls)(cls.__name__, cls.__bases__, made | namespace)


def _field(cls: type, name: str, default: Any) -> dataclasses.Field[Any]:
    """Returns the declaration of a field. Raises TypeError for options that this module lacks."""
    if default.__class__ is not dataclasses.Field:
        return dataclasses.field() if default is _MISSING else dataclasses.field(default=default)
    if not default.init or default.hash is not None or default.kw_only is True:
        raise TypeError(f"{cls.__qualname__}.{name}: a field has default, default_factory, repr and compare only")
    return default


def _owner(cls: type[Any], name: str, member: Any) -> type[Any]:
    """Returns the class that has this member: `cls`, or the base that a subclass without `@frozen` has it from."""
    return next(one for one in cls.__mro__ if vars(one).get(name) is member)


def _first_call(self: Any, *args: Any, **values: Any) -> None:
    owner: Any = _owner(self.__class__, "__init__", _first_call)
    owner.__init__ = _constructor(owner)
    owner.__init__(self, *args, **values)


def _constructor(cls: Any) -> Any:
    names: dict[str, Any] = {"MISSING": _MISSING}
    head, body = ["self"], list[str]()
    for name, declared in cls._declared.items():
        names[f"set_{name}"] = getattr(cls, name).__set__
        value = name
        if declared.default_factory is not dataclasses.MISSING:
            names[f"default_{name}"] = declared.default_factory
            value = f"default_{name}() if {name} is MISSING else {name}"
            head.append(f"{name}=MISSING")
        elif declared.default is not dataclasses.MISSING:
            names[f"default_{name}"] = declared.default
            head.append(f"{name}=default_{name}")
        else:
            head.append(name)
        body.append(f"set_{name}(self, {value})")
    if hasattr(cls, "__post_init__"):
        body.append("self.__post_init__()")
    exec(f"def __init__({', '.join(head)}):\n    " + "\n    ".join(body or ["pass"]), names)  # of declared names only
    names["__init__"].__qualname__ = f"{cls.__qualname__}.__init__"
    return names["__init__"]


def _comparison(*names: str) -> dict[str, Any]:
    values_of = operator.attrgetter(*names or ("__class__",))

    def equal(self: Any, other: Any) -> bool:
        return values_of(self) == values_of(other) if other.__class__ is self.__class__ else NotImplemented

    def hash_of(self: Any) -> int:
        return hash(values_of(self))

    return {"__eq__": equal, "__hash__": hash_of}


def _repr(self: Any) -> str:
    shown = [f"{name}={getattr(self, name)!r}" for name, declared in self._declared.items() if declared.repr]
    return f"{type(self).__qualname__}({', '.join(shown)})"


def _refuse_change(self: Any, name: str, *value: Any) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot {'assign to' if value else 'delete'} field {name!r}")


def _reduce(self: Any) -> tuple[Any, ...]:
    """Copies and pickles a value by its constructor: an assignment to its slots would be refused."""
    return self.__class__, tuple(getattr(self, name) for name in self._declared)


class _Fields:
    """The fields as the standard library has them, made when `replace`, `fields` or `asdict` first need them."""

    def __get__(self, value: Any, cls: Any) -> dict[str, dataclasses.Field[Any]]:
        owner: Any = _owner(cls, "__dataclass_fields__", self)
        kinds = dict[str, Any]()
        for one in owner.__mro__[::-1]:
            kinds |= inspect.get_annotations(one)
        listed = [(name, kinds[name], declared) for name, declared in owner._declared.items()]
        described = {"__doc__": owner.__name__}  # else the standard library inspects the signature
        made: Any = dataclasses.make_dataclass(
            owner.__name__, listed, namespace=described, init=False, repr=False, eq=False
        )
        owner.__dataclass_fields__ = made.__dataclass_fields__
        return made.__dataclass_fields__


_fields = _Fields()
