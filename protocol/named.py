"""`NamedTuple` declares tuples as `typing.NamedTuple` does, and compiles nothing at import.

The standard library compiles the constructor of each class when it is declared, and the annotation of each field, which
takes 0.13 ms: 10 ms of each start for the 75 tuples of a broker. Here the first call of a constructor compiles it. A
module that declares one needs `from __future__ import annotations`.
"""

from __future__ import annotations

import collections
import inspect
import operator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import NamedTuple as NamedTuple
else:
    # Where it is missing, the standard library itself has the slower property.
    _reader = getattr(collections, "_tuplegetter", lambda index, doc: property(operator.itemgetter(index), doc=doc))

    def _standard(cls):
        return collections.namedtuple(cls.__name__, cls._fields, defaults=cls._field_defaults.values())

    class _Signature:
        """The signature of a constructor that may not be compiled yet, for `inspect`."""

        def __get__(self, value, cls):
            return inspect.signature(_standard(cls))

    class _Tuple(tuple):
        """The methods of all named tuples."""

        __slots__ = ()
        __signature__ = _Signature()

        def __new__(cls, /, *args, **values):
            owner = next(one for one in cls.__mro__ if "_fields" in vars(one))
            owner.__new__ = _standard(owner).__new__
            return owner.__new__(cls, *args, **values)

        @classmethod
        def _make(cls, values):
            made = tuple.__new__(cls, values)
            if len(made) != len(cls._fields):
                raise TypeError(f"Expected {len(cls._fields)} arguments, got {len(made)}")
            return made

        def _replace(self, /, **values):
            made = self._make(map(values.pop, self._fields, self))
            if values:
                raise ValueError(f"Got unexpected field names: {list(values)!r}")
            return made

        __replace__ = _replace  # for copy.replace

        def _asdict(self):
            return dict(zip(self._fields, self, strict=True))

        def __getnewargs__(self):
            return tuple(self)

        def __repr__(self):
            return f"{type(self).__name__}({', '.join(map('{}={!r}'.format, self._fields, self))})"

    class _Declaration(type):
        """The type of `NamedTuple`, and of no class that is declared with it."""

        def __new__(mcs, name, bases, namespace):
            if not bases:
                return super().__new__(mcs, name, bases, namespace)
            if len(bases) > 1:
                raise TypeError(f"{name}: a NamedTuple has no second base")
            fields = tuple(namespace.get("__annotations__", ()))
            defaults = {field: namespace.pop(field) for field in fields if field in namespace}
            if fields[len(fields) - len(defaults) :] != tuple(defaults):
                raise TypeError(f"{name}: a field without a default follows one that has a default")
            made = {field: _reader(index, None) for index, field in enumerate(fields)}
            made |= {"__slots__": (), "__match_args__": fields, "_fields": fields, "_field_defaults": defaults}
            return type(name, (_Tuple,), made | namespace)

    class NamedTuple(metaclass=_Declaration):
        """The base of a declaration."""
