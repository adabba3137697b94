"""The records of consumer, share and streams groups, in Apache Kafka's format: a key begins with its type, a value with
its version, which is 0; a null value is a tombstone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

from ...protocol.compiler import build, parse
from ...protocol.errors import MalformedMessage
from ...protocol.internal_records.layouts import LAYOUTS, Layout
from ...protocol.named import NamedTuple
from ...protocol.schema import fields_of
from .common_state import AssignmentEpochSet, EpochSet

Record: TypeAlias = tuple[bytes, bytes | None]
"""Key and value."""


def leading_int16(data: bytes, what: str) -> int:
    """Returns the type of a key or the version of a value. Raises MalformedMessage."""
    if len(data) < 2:
        raise MalformedMessage(f"{what} of {len(data)} bytes")
    return int.from_bytes(data[:2], "big", signed=True)


def value_version(value: bytes, kind: str, newest: int = 0) -> int:
    """Returns the version of a value of this kind of records. Raises MalformedMessage unless it is known."""
    version = leading_int16(value, f"{kind}: value")
    if not 0 <= version <= newest:
        expected = f"0 to {newest}" if newest else "0"
        raise MalformedMessage(f"{kind}: value version {version}, expected {expected}")
    return version


class Format(NamedTuple):
    """The fields that a release writes: the epoch of each partition's assignment, and the time of the target
    assignment, both since 4.3.
    """

    assignment_epochs: bool = True
    assignment_time: bool = True


NEWEST_FORMAT = Format()
_LAYOUTS = LAYOUTS["__consumer_offsets"]


class GroupChange(NamedTuple):
    """A decoded record: the group and its class, its change, and whether the record is a tombstone."""

    group_id: str
    change: Any
    is_tombstone: bool
    group_class: type[Any]


class Form(NamedTuple):
    """The record of a class of changes. A change has the ids that the key has after the group, and then the fields that
    the value is made of: the first of them is None in a tombstone.
    """

    change: type[Any]
    key_type: int
    write: Callable[..., Any]
    """Returns the value, from the fields and the format."""
    read: Callable[[Any], tuple[Any, ...]]
    """Returns the fields of a value."""

    @property
    def layout(self) -> Layout:
        """The classes of key and value."""
        return _LAYOUTS[self.key_type]

    @property
    def ids(self) -> list[str]:
        """The fields of the key after the group."""
        return list(fields_of(self.layout.key))[1:]


def epoch_form(key_type: int) -> Form:
    """Returns the form of EpochSet."""
    value = _LAYOUTS[key_type].value

    def write(epoch: int, metadata_hash: int, _: Format) -> Any:
        return value(epoch=epoch, metadata_hash=metadata_hash)

    def read(stored: Any) -> tuple[int, int]:
        return stored.epoch, stored.metadata_hash

    return Form(EpochSet, key_type, write, read)


def assignment_epoch_form(key_type: int) -> Form:
    """Returns the form of AssignmentEpochSet."""
    value = _LAYOUTS[key_type].value

    def write(epoch: int, at_ms: int, written: Format) -> Any:
        return value(assignment_epoch=epoch, assignment_timestamp=at_ms if written.assignment_time else 0)

    def read(stored: Any) -> tuple[int, int]:
        return stored.assignment_epoch, stored.assignment_timestamp

    return Form(AssignmentEpochSet, key_type, write, read)


class Forms:
    """The records of the groups of one class. Changes without a form have no record."""

    def __init__(self, group_class: type[Any], *forms: Form) -> None:
        self._group_class = group_class
        self._of_change = {form.change: form for form in forms}
        self._of_key = {form.key_type: form for form in forms}

    def encode_all(self, group_id: str, changes: Iterable[Any], written: Format = NEWEST_FORMAT) -> list[Record]:
        """Returns the records of changes, in order. Raises MalformedMessage if a string is too long."""
        return [
            _encoded(form, group_id, change, written)
            for change in changes
            if (form := self._of_change.get(change.__class__)) is not None
        ]

    def decode(self, key_type: int, key: bytes, value: bytes | None) -> GroupChange | None:
        """Decodes a record; None for another key type. Raises MalformedMessage."""
        form = self._of_key.get(key_type)
        if form is None:
            return None
        read_key = parse(form.layout.key, 0, key[2:])
        fields: tuple[Any, ...] = (None,)
        if value is not None:
            fields = form.read(parse(form.layout.value, value_version(value, "group record"), value[2:]))
        ids = [getattr(read_key, name) for name in form.ids]
        return GroupChange(read_key.group_id, form.change(*ids, *fields), value is None, self._group_class)


def _encoded(form: Form, group_id: str, change: Any, written: Format) -> Record:
    names = form.ids
    key = build(form.layout.key(group_id=group_id, **dict(zip(names, change, strict=False))), 0)
    fields = change[len(names) :]
    value = None if fields[0] is None else b"\0\0" + build(form.write(*fields, written), 0)
    return form.key_type.to_bytes(2, "big") + key, value
