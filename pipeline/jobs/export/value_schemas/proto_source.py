"""Protobuf schemas in source form (`.proto`): messages with their fields, and enums. No compiler is needed.

Reads proto2, proto3 and editions. Options, services, extensions and reserved ranges do not change messages on the wire
and are skipped, but for the default of a field's presence. Groups are refused. Types are resolved as protoc does: from
the innermost scope outwards.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from ..manifest import ExportError

SCALARS = frozenset(
    "double float int32 int64 uint32 uint64 sint32 sint64 fixed32 fixed64 sfixed32 sfixed64 bool string bytes".split()
)
DEPTH_MAX = 32
TEXT_MAX = 4 << 20

WRAPPED = ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
"""The scalars that have a message with a value of that type, such as StringValue."""

WELL_KNOWN = {
    "google/protobuf/timestamp.proto": "message Timestamp { int64 seconds = 1; int32 nanos = 2; }",
    "google/protobuf/duration.proto": "message Duration { int64 seconds = 1; int32 nanos = 2; }",
    "google/protobuf/any.proto": "message Any { string type_url = 1; bytes value = 2; }",
    "google/protobuf/wrappers.proto": " ".join(
        f"message {kind}Value {{ {kind.lower()} value = 1; }}" for kind in WRAPPED
    ),
}
"""Files that every compiler brings along."""

_TOKEN = re.compile(
    r"""\s+|//[^\n]*|/\*.*?\*/|(?P<text>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')|(?P<word>[\w.+-]+)|(?P<mark>[{}()\[\];,=<>:/])""",
    re.DOTALL,
)


@dataclass(slots=True)
class Field:
    """A field. `type` is a scalar, or the full name of a message or enum. `key` is the type of keys of a map, None for
    other fields. `has_presence`: an absent one is distinguished from the default. `oneof` is its name, or empty."""

    name: str
    number: int
    type: str
    repeated: bool = False
    key: str | None = None
    has_presence: bool = False
    oneof: str = ""


@dataclass(slots=True)
class Message:
    """A message; `nested` are the messages in it, in the order of the source."""

    full_name: str
    fields: list[Field] = field(default_factory=list)
    nested: list[Message] = field(default_factory=list)


@dataclass(slots=True)
class Source:
    """A parsed file with everything that it imports: its own top messages in order, and all types by full name."""

    messages: list[Message]
    by_name: dict[str, Message]
    enums: dict[str, dict[int, str]]

    def at(self, indexes: tuple[int, ...]) -> Message:
        """Returns the message at a path of indexes, as in Confluent's wire format. Raises ValueError."""
        level, found = self.messages, None
        for index in indexes:
            if not 0 <= index < len(level):
                raise ValueError(f"its schema has no message with the indexes {list(indexes)}")
            found = level[index]
            level = found.nested
        assert found is not None
        return found

    def named(self, name: str) -> Message:
        """Returns a message by its full name, or by its last part if that is unambiguous. Raises ExportError."""
        if name in self.by_name:
            return self.by_name[name]
        fitting = [one for full, one in self.by_name.items() if full.endswith(f".{name}")]
        if len(fitting) != 1:
            known = ", ".join(one.full_name for one in self.messages)
            raise ExportError(f"the Protobuf schema has no message {name}: it has {known}")
        return fitting[0]


def parse(text: str, imports: Mapping[str, str]) -> Source:
    """Parses the source of a schema; `imports` has others by their names in import statements. Raises ExportError."""
    found = Source([], {}, {})
    pending: list[tuple[Field, str]] = []
    seen: set[str] = set()

    def add(name: str, source: str, depth: int) -> _File:
        file = _File(source, name, found, pending)
        if depth > DEPTH_MAX:
            raise ExportError(f"the Protobuf schema has more than {DEPTH_MAX} imports in a chain")
        for other in file.imports:
            if other not in seen and (known := WELL_KNOWN.get(other)) is not None:
                seen.add(other)
                _File(f'syntax = "proto3"; package google.protobuf; {known}', other, found, pending)
            elif other not in seen and other in imports:
                seen.add(other)
                add(other, imports[other], depth + 1)
            # Any other one may hold options only, such as confluent/meta.proto; a missing type is found below.
        return file

    found.messages = add("the Protobuf schema", text, 0).messages
    if not found.messages:
        raise ExportError("the Protobuf schema has no message")
    for one, scope in pending:
        one.type = _resolved(found, one, scope)
        if one.type in found.by_name and not one.repeated and one.key is None:
            one.has_presence = True
    return found


def _resolved(found: Source, of: Field, scope: str) -> str:
    if of.type in SCALARS:
        return of.type
    if of.type.startswith("."):
        candidates = [of.type[1:]]
    else:
        parts = scope.split(".") if scope else []
        candidates = [".".join([*parts[:end], of.type]) for end in range(len(parts), -1, -1)]
    for name in candidates:
        if name in found.by_name or name in found.enums:
            return name
    raise ExportError(f"the Protobuf schema has no type {of.type}, that of {scope}.{of.name}: is an import missing?")


class _File:
    """The imports and top messages of one file. All its types are added to `found`, and to `pending` its fields with
    the scope in which their types are resolved."""

    def __init__(self, text: str, name: str, found: Source, pending: list[tuple[Field, str]]) -> None:
        self.imports: list[str] = []
        self.messages: list[Message] = []
        self._found, self._pending = found, pending
        self._name = name
        self._package = ""
        self._implicit = False  # whether a plain field has no presence: proto3
        if len(text) > TEXT_MAX:
            raise ExportError(f"{name} is longer than {TEXT_MAX} characters")
        self._tokens = list(_tokens(text, name))
        self._at = 0
        while self._at < len(self._tokens):
            self._top()

    # -- tokens

    def _next(self) -> str:
        if self._at >= len(self._tokens):
            raise ExportError(f"{self._name} ends within a declaration")
        self._at += 1
        return self._tokens[self._at - 1]

    def _expect(self, *marks: str) -> str:
        found = self._next()
        if found not in marks:
            raise self._wrong(f"{found} where {' or '.join(marks)} must be")
        return found

    def _peek(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def _wrong(self, what: str) -> ExportError:
        return ExportError(f"{self._name} is not a .proto file: {what}")

    def _skip(self) -> None:
        """Skips to the end of a statement: a semicolon, or the block that closes it."""
        depth = 0
        while True:
            found = self._next()
            if found in ("{", "[", "("):
                depth += 1
            elif found in ("}", "]", ")"):
                depth -= 1
                if not depth and found == "}":
                    if self._peek() == ";":
                        self._at += 1
                    return
            elif found == ";" and not depth:
                return

    def _statements(self, *skipped: str) -> Iterator[str]:
        """Yields the first word of each statement of a block, but skips those that begin with these words."""
        self._expect("{")
        while (word := self._next()) != "}":
            if word in skipped:
                self._skip()
            elif word != ";":
                yield word

    # -- declarations

    def _top(self) -> None:
        word = self._next()
        if word in ("syntax", "edition"):
            self._expect("=")
            self._implicit = _unquoted(self._next()) == "proto3"
            self._expect(";")
        elif word == "package":
            self._package = self._next()
            self._expect(";")
        elif word == "import":
            name = self._next()
            self.imports.append(_unquoted(self._next() if name in ("public", "weak", "option") else name))
            self._expect(";")
        elif word == "message":
            self.messages.append(self._message(self._package, 0))
        elif word == "enum":
            self._enum(self._package)
        elif word in ("option", "service", "extend"):
            if self._tokens[self._at : self._at + 3] == ["features.field_presence", "=", "IMPLICIT"]:
                self._implicit = True
            self._skip()
        elif word != ";":
            raise self._wrong(f"{word} at its top")

    def _message(self, scope: str, depth: int) -> Message:
        if depth > DEPTH_MAX:
            raise ExportError(f"{self._name} has messages nested deeper than {DEPTH_MAX}")
        name = self._next()
        made = Message(f"{scope}.{name}" if scope else name)
        self._found.by_name[made.full_name] = made
        for word in self._statements("option", "reserved", "extensions", "extend"):
            is_block = self._tokens[self._at + 1 : self._at + 2] == ["{"]  # else a field with a type of that name
            if word == "message" and is_block:
                made.nested.append(self._message(made.full_name, depth + 1))
            elif word == "enum" and is_block:
                self._enum(made.full_name)
            elif word == "oneof" and is_block:
                oneof = self._next()
                for inner in self._statements("option"):
                    self._field(made, inner, oneof)
            else:
                self._field(made, word)
        return made

    def _field(self, made: Message, word: str, oneof: str = "") -> None:
        label, key = "", None
        if word in ("optional", "required", "repeated"):
            label, word = word, self._next()
        if word == "group":
            raise ExportError(f"{made.full_name} has a group, which is not supported")
        if word == "map" and self._peek() == "<":
            self._next()
            key = self._next()
            self._expect(",")
            word = self._next()
            self._expect(">")
        name = self._next()
        self._expect("=")
        number = _number(self._next())
        if number is None or not 0 < number < 1 << 29:
            raise self._wrong(f"{made.full_name}.{name} has no valid number")
        presence = self._options() if self._expect("[", ";") == "[" else ""
        repeated = label == "repeated"
        explicit = presence == "EXPLICIT" or (not self._implicit and presence != "IMPLICIT")
        has_presence = not repeated and key is None and (bool(oneof) or label != "" or explicit)
        found = Field(name, number, word, repeated, key, has_presence, oneof)
        made.fields.append(found)
        self._pending.append((found, made.full_name))

    def _options(self) -> str:
        """Skips the options of a field. Returns the value of `features.field_presence`."""
        depth, presence = 1, ""
        while depth:
            found = self._next()
            depth += (found in ("[", "{")) - (found in ("]", "}"))
            if found == "features.field_presence":
                self._expect("=")
                presence = self._next()
        self._expect(";")
        return presence

    def _enum(self, scope: str) -> None:
        name = self._next()
        names: dict[int, str] = {}
        for word in self._statements("option", "reserved"):
            self._expect("=")
            number = _number(self._next())
            if number is None:
                raise self._wrong(f"{word} of the enum {name} has no number")
            names.setdefault(number, word)  # the first of several names for a number
            self._skip()
        self._found.enums[f"{scope}.{name}" if scope else name] = names


def _tokens(text: str, name: str) -> Iterator[str]:
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            line = text.count("\n", 0, position) + 1
            raise ExportError(f"{name} is not a .proto file: {text[position]!r} in line {line}")
        position = match.end()
        if match.lastgroup is not None:
            yield match[0]


def _unquoted(text: str) -> str:
    return text[1:-1] if text[:1] in ("'", '"') else text


def _number(text: str) -> int | None:
    try:
        return int(text, 0) if not re.fullmatch(r"[+-]?0[0-7]+", text) else int(text, 8)
    except ValueError:
        return None
