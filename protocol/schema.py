"""Message declarations: each message is declared once, as a class, and has one `construct.Struct` per version.

    @message(api_key=0, versions="0-13", flexible="9+")
    class ProduceRequest:
        transactional_id: Text | None = field("3+", default=None)
        acks: Int16

A value has no version: a field that a version lacks is parsed as its default, and writing a set field into a version
that lacks it is an error unless the field is `ignorable` (the rules of Apache's message generator). `X | None` may be
null in the versions that `nullable` names, all by default. Fields with a `tag` are tagged fields (KIP-482).

The classes are plain slotted values with keyword constructors, equality and a repr, like dataclasses. Creating some 250
dataclasses would take 100 ms at every start; this takes 5.
"""

from __future__ import annotations

import functools
import sys
import types
import typing
from collections.abc import Mapping
from typing import Annotated, Any, dataclass_transform, get_args, get_origin

from .limits import INT16_MAX
from .named import NamedTuple
from .primitives import ZERO_UUID, Array, Codec, Length, Nullable, Uuid, Variable, int32

VERSION_MAX = INT16_MAX


class Versions(NamedTuple):
    """A closed range of versions; empty if last < first."""

    first: int
    last: int

    @classmethod
    def of(cls, text: str) -> Versions:
        """Parses `"3"`, `"3-7"`, `"3+"` or `"none"`."""
        if text == "none":
            return NEVER
        if text.endswith("+"):
            return cls(int(text[:-1]), VERSION_MAX)
        first, _, last = text.partition("-")
        return cls(int(first), int(last or first))

    def __contains__(self, version: object) -> bool:
        return isinstance(version, int) and self.first <= version <= self.last

    def range(self) -> range:
        """Returns all versions, lowest first."""
        return range(self.first, self.last + 1)


NEVER = Versions(0, -1)
ALWAYS = Versions(0, VERSION_MAX)
REQUIRED: Any = object()


class Field(NamedTuple):
    """The declaration of one field. `make_default` is None for a required field.

    `extension` marks a field that Apache's definition lacks: a tagged field of Ottla, which other brokers and clients
    skip.
    """

    versions: Versions
    make_default: Any
    nullable: Versions
    tag: int | None
    ignorable: bool
    extension: bool = False


def field(
    versions: str = "0+",
    *,
    default: Any = REQUIRED,
    nullable: str = "0+",
    tag: int | None = None,
    ignorable: bool = False,
    extension: bool = False,
) -> Any:
    """Declares a field. `default` is a value, or a class (a `@group`, `list`, ...) whose empty value is the default.

    An `extension` is not in Apache's definition; it must be tagged and ignorable, so that other implementations skip
    it.
    """
    if extension and (tag is None or not ignorable):
        raise TypeError("an extension must be tagged and ignorable")
    if default is REQUIRED:
        make_default = None
    elif default is list:
        make_default = list
    elif isinstance(default, type):
        # One shared value: on the hot path an identity check finds out whether the field is set. Defaults are never
        # modified.
        make_default = functools.cache(default)
    else:
        make_default = functools.partial(_same, default)
    return Field(Versions.of(versions), make_default, Versions.of(nullable), tag, ignorable, extension)


def _same(value: Any) -> Any:
    return value


PLAIN = field()


class Value:
    """Base of all declared classes: keyword construction, equality by fields, repr."""

    __slots__ = ()
    _fields: typing.ClassVar[dict[str, Field]]

    def __init__(self, **values: Any) -> None:
        # The first construction compiles the constructor of the class, which keeps the start fast.
        cls = type(self)
        cls.__init__ = _make_init(cls)
        cls.__init__(self, **values)

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self._fields)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"{type(self).__qualname__}({', '.join(f'{n}={getattr(self, n)!r}' for n in self._fields)})"


def fields_of(declared: Any) -> dict[str, Field]:
    """Returns the fields of a class made by `@message` or `@group`, or of a value of such a class, by name and in
    order."""
    return declared._fields  # pyright: ignore[reportPrivateUsage]


def _make_init(cls: type[Value]) -> Any:
    names: dict[str, Any] = {"MISSING": REQUIRED}
    head, body = ["self"], list[str]()
    declared_fields = fields_of(cls)
    if declared_fields:
        head.append("*")
    for name, declared in declared_fields.items():
        if declared.make_default is None:
            head.append(name)
            body.append(f"self.{name} = {name}")
        elif declared.make_default is list:
            head.append(f"{name}=MISSING")
            body.append(f"self.{name} = [] if {name} is MISSING else {name}")
        else:
            names["default_" + name] = declared.make_default()
            head.append(f"{name}=default_{name}")
            body.append(f"self.{name} = {name}")
    source = f"def __init__({', '.join(head)}):\n    " + "\n    ".join(body or ["pass"])
    exec(source, names)  # source consists of declared field names only
    return names["__init__"]


class Spec(NamedTuple):
    """The arguments of `@message`: the API (or record type) key, -1 for none, the existing versions, and the flexible
    ones."""

    api_key: int
    versions: Versions
    flexible: Versions


_specs: dict[type, Spec] = {}


def spec(cls: type) -> Spec:
    """Returns the key and versions of a class made by `@message`. Raises KeyError for another class."""
    return _specs[cls]


def is_message(cls: Any) -> bool:
    """Returns whether this is a class made by `@message`."""
    return isinstance(cls, type) and cls in _specs


def response_class(request_class: type) -> type:
    """Returns the response class of a request class, which is in the same module."""
    name = request_class.__name__.removesuffix("Request") + "Response"
    return getattr(sys.modules[request_class.__module__], name)


T = typing.TypeVar("T")


@dataclass_transform(kw_only_default=True, field_specifiers=(field,))
def group(cls: type[T]) -> type[T]:
    """Makes a declared class a value class for a part of a message."""
    namespace = {k: v for k, v in vars(cls).items() if k not in ("__dict__", "__weakref__")}
    fields: dict[str, Field] = {}
    for name in namespace.get("__annotations__", {}):
        declared = namespace.pop(name, PLAIN)
        fields[name] = declared if isinstance(declared, Field) else field(default=declared)
    namespace |= {"__slots__": tuple(fields), "_fields": fields}
    return type(cls.__name__, (Value,), namespace)  # type: ignore[return-value]


@dataclass_transform(kw_only_default=True, field_specifiers=(field,))
def message(*, api_key: int = -1, versions: str, flexible: str = "none") -> typing.Callable[[type[T]], type[T]]:
    """Makes a declared class a message of these versions; those in `flexible` have compact forms and tagged fields."""

    def declare(cls: type[T]) -> type[T]:
        made = group(cls)
        _specs[made] = Spec(api_key, Versions.of(versions), Versions.of(flexible))
        return made

    return declare


class Group(Codec):
    """The layout of one class in one version: fields in order, then (flexible) tagged fields.

    `plan` is [(name, codec)], `tags` {tag: (name, codec)} or None if the version is not flexible, `absent` the names of
    fields that the version lacks and that may not be dropped silently.
    """

    def __init__(
        self,
        cls: type[Value],
        plan: list[tuple[str, Codec]],
        tags: dict[int, tuple[str, Codec]] | None,
        absent: list[str],
    ) -> None:
        super().__init__()
        self.cls = cls
        self.plan = plan
        self.tags = tags
        self.absent = absent
        self.min_size = sum(codec.min_size for _, codec in plan) + (tags is not None)


def default_of(cls: type[Value], name: str) -> Any:
    """Returns the value of a field in a version that lacks it."""
    make_default = fields_of(cls)[name].make_default
    if make_default is None:
        raise TypeError(f"{cls.__qualname__}.{name} is missing from a version and needs a default")
    return make_default()


def empty_value(cls: type[Value]) -> Any:
    """Returns a value of `cls` with its defaults, and with empty values in required fields."""
    hints = types_of(cls)
    required = {name: field for name, field in fields_of(cls).items() if field.make_default is None}
    return cls(**{name: _empty(hints[name], field) for name, field in required.items()})


def _empty(hint: Any, field: Field = PLAIN) -> Any:
    if get_origin(hint) in (typing.Union, types.UnionType):
        if field.nullable == ALWAYS:
            return None
        return _empty(next(arg for arg in get_args(hint) if arg is not type(None)))
    if get_origin(hint) is Annotated:
        if hint == Uuid:
            return ZERO_UUID
        kind = get_args(hint)[0]
        return kind() if isinstance(kind, type) else b""
    return [] if get_origin(hint) is list else empty_value(hint)


@functools.cache
def group_of(cls: type, version: int) -> Group:
    """Returns the layout of a message in one version. The `construct.Struct` of it is that of `layouts.struct_of`.

    Raises KeyError for a class that is not a message, ValueError for a version that does not exist.
    """
    declared = spec(cls)
    if version not in declared.versions:
        raise ValueError(f"{cls.__qualname__} has no version {version}")
    return _group_codec(cls, version, version in declared.flexible)


@functools.cache
def _group_codec(cls: type[Value], version: int, flexible: bool) -> Group:
    plan: list[tuple[str, Codec]] = []
    tags: dict[int, tuple[str, Codec]] = {}
    absent: list[str] = []
    hints = types_of(cls)
    for name, declared in fields_of(cls).items():
        if version not in declared.versions:
            default_of(cls, name)  # fails early if the declaration lacks a default
            if not declared.ignorable:
                absent.append(name)
            continue
        codec = _codec(hints[name], version, flexible, declared.nullable)
        if isinstance(codec, Nullable) and declared.tag is not None:
            codec = Nullable(codec.inner, is_tagged=True)
        if declared.tag is None:
            plan.append((name, codec))
        elif flexible:
            tags[declared.tag] = (name, codec)
        elif not declared.ignorable:
            absent.append(name)
    return Group(cls, plan, dict(sorted(tags.items())) if flexible else None, absent)


def _codec(hint: Any, version: int, flexible: bool, nullable_versions: Versions) -> Codec:
    nullable = False
    if get_origin(hint) in (typing.Union, types.UnionType):
        inner = [arg for arg in get_args(hint) if arg is not type(None)]
        nullable = len(inner) < len(get_args(hint)) and version in nullable_versions
        hint = typing.Union[tuple(inner)]  # noqa: UP007 - its members are a value
    if get_origin(hint) is Annotated:
        marker = get_args(hint)[1]
        assert isinstance(marker, Codec | Variable)
        return marker if isinstance(marker, Codec) else marker.codec(flexible, nullable)
    if get_origin(hint) is list:
        item = _codec(get_args(hint)[0], version, flexible, NEVER)
        return Array(Length(None if flexible else int32, nullable), item)
    inner_group = _group_codec(hint, version, flexible)
    return Nullable(inner_group) if nullable else inner_group


@functools.cache
def types_of(cls: type) -> Mapping[str, Any]:
    """Returns the declared type of each field."""
    names = dict(vars(sys.modules[cls.__module__]))
    names.update(vars(cls))
    return typing.get_type_hints(cls, localns=names, include_extras=True)
