"""Exchanges as values, and values as exchanges: messages, plain JSON-able dicts, and bytes again.

Owns both directions. `encoded(plain)` is the very frame that `request_plain` or `response_plain` was made of, also
where that frame is damaged; what is lost is what no declaration knows (unknown tagged fields, tagged fields of a
header). A frame that cannot be read is told in its place, never raised.

Numbers, texts and booleans stand as they are; bytes as `json_bytes` has them, text where they are UTF-8, else
`{"base64": ...}`; ids as Kafka writes them, in 22 letters; records as `record_sets.py` tells them.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import math
import struct
import types
import typing
from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, get_args, get_origin

from ...protocol.api_key import ApiKey
from ...protocol.apis import Api, apis
from ...protocol.compiler import build, reader
from ...protocol.errors import ErrorCode, MalformedMessage, ProtocolViolation
from ...protocol.headers import read_prefix, read_response_header, read_rest, request_header, response_header
from ...protocol.primitives import Fixed, Mark, Scalar, UuidLeaf, Variable
from ...protocol.schema import VERSION_MAX, spec, types_of
from ...storage.format.partition_metadata import decode_id, encode_id
from ..json_bytes import from_json, to_json
from .record_sets import WORDS, Room, plain_records, records_of

if TYPE_CHECKING:
    from .exchange import Exchange

UNDECODABLE = "undecodable"
LEFT_OVER = "left_over_base64"
_ERROR = struct.Struct(">h")
_PROBLEMS = (MalformedMessage, ProtocolViolation)


# Frames to messages


def request_value(exchange: Exchange) -> Any | None:
    """The request as its message; None where its bytes were not kept or are no such message."""
    with contextlib.suppress(*_PROBLEMS):
        return None if exchange.request is None else read_request(exchange.request)[1]
    return None


def response_value(exchange: Exchange) -> Any | None:
    """The answer as its message; None where there is none, its bytes were not kept, or they are no such message."""
    with contextlib.suppress(*_PROBLEMS):
        response = exchange.response
        return None if response is None else read_response(response, exchange.api_key, exchange.api_version)[1]
    return None


def read_request(frame: bytes | memoryview) -> tuple[int, Any, bytes]:
    """(version, message, the bytes after it) of a request's frame. Raises MalformedMessage, ProtocolViolation."""
    prefix = read_prefix(frame)
    key, version = prefix.api_key, prefix.api_version
    api = _api(key)
    declared = spec(api.request)
    if version not in declared.versions:
        raise ProtocolViolation(f"{api.name} v{version} is not known")
    _, position = read_rest(frame, prefix, version in declared.flexible)
    message, end = reader(api.request, version)(memoryview(frame), position)
    return version, message, bytes(frame[end:])


def read_response(frame: bytes, api_key: int, version: int) -> tuple[int, Any, bytes]:
    """(version in which it is written, message, the bytes after it) of a response's frame. Raises MalformedMessage,
    ProtocolViolation."""
    api = _api(api_key)
    version = _answered_version(api_key, version, frame)
    declared = spec(api.response)
    if version not in declared.versions:
        raise ProtocolViolation(f"{api.name} v{version} is not known")
    _, position = read_response_header(frame, api_key, version in declared.flexible)
    message, end = reader(api.response, version)(frame, position)
    return version, message, frame[end:]


def _api(key: int) -> Api:
    api = apis().get(key)
    if api is None:
        raise ProtocolViolation(f"API key {key} is not known")
    return api


def _answered_version(api_key: int, version: int, frame: bytes) -> int:
    """ApiVersions answers a version that is not served in the one layout that every client knows (KIP-511)."""
    is_refused = api_key == ApiKey.API_VERSIONS and frame[4:6] == _ERROR.pack(ErrorCode.UNSUPPORTED_VERSION)
    return 0 if is_refused else version


# Frames to plain values


def request_plain(
    exchange: Exchange, *, contents: bool = True, records_max: int | None = None, room: Room | None = None
) -> dict[str, Any] | None:
    """The request as a JSON-able dict with the fields of its version, None where its bytes were not kept.

    One that cannot be read is `{"undecodable": why, "size": bytes, "base64": the whole frame}`. Bytes after the
    message, which Kafka ignores, are `left_over_base64`. See `plain` for the rest.
    """
    frame = exchange.request
    if frame is None:
        return None
    try:
        version, message, left_over = read_request(frame)
    except _PROBLEMS as error:
        return _undecodable(frame, error, contents)
    told = plain(message, contents=contents, version=version, records_max=records_max, room=room)
    return told | _left_over(left_over, contents)


def response_plain(
    exchange: Exchange, *, contents: bool = True, records_max: int | None = None, room: Room | None = None
) -> dict[str, Any] | None:
    """The same of the answer, None also where there is none."""
    frame = exchange.response
    if frame is None:
        return None
    try:
        version, message, left_over = read_response(frame, exchange.api_key, exchange.api_version)
    except _PROBLEMS as error:
        return _undecodable(frame, error, contents)
    told = plain(message, contents=contents, version=version, records_max=records_max, room=room)
    return told | _left_over(left_over, contents)


def _left_over(left_over: bytes, contents: bool) -> dict[str, Any]:
    if not left_over:
        return {}
    return {LEFT_OVER: _base64(left_over)} if contents else {"left_over_bytes": len(left_over)}


def _undecodable(frame: bytes, error: Exception, contents: bool) -> dict[str, Any]:
    told = {UNDECODABLE: str(error), "size": len(frame)}
    return told | {"base64": _base64(frame)} if contents else told


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def plain(
    message: Any,
    *,
    contents: bool = True,
    version: int | None = None,
    records_max: int | None = None,
    room: Room | None = None,
) -> dict[str, Any]:
    """A message as a JSON-able dict: its fields by their declared names, with a version only those that it has.

    Without `contents` the keys, values and headers of records are left out, and told by their sizes. At most
    `records_max` records are told, or what `room` has room for.
    """
    return _group_plain(message, _Telling(version, contents, room or Room(records_max)))


class _Telling(NamedTuple):
    version: int | None
    contents: bool
    room: Room


Told = Callable[[Any, _Telling], Any]
Made = Callable[[Any, int, str], Any]


class _Kind(NamedTuple):
    """How values of a type are told, and made of what was told; None for both: they stand as they are."""

    told: Told | None
    made: Made


class _Part(NamedTuple):
    """A field of a declared class."""

    name: str
    kind: _Kind
    first: int
    last: int
    is_extension: bool


@cache
def _parts(cls: Any) -> tuple[_Part, ...]:
    hints = types_of(cls)
    return tuple(
        _Part(name, _kind(hints[name]), declared.versions.first, declared.versions.last, declared.extension)
        for name, declared in cls._fields.items()
    )


def _group_plain(value: Any, telling: _Telling) -> dict[str, Any]:
    told: dict[str, Any] = {}
    version = telling.version
    for name, kind, first, last, is_extension in _parts(type(value)):
        if version is not None and not first <= version <= last:
            continue
        item = getattr(value, name)
        if is_extension and item == value._fields[name].make_default():
            continue
        told[name] = item if kind.told is None or item is None else kind.told(item, telling)
    return told


@cache
def _kind(hint: Any) -> _Kind:
    if get_origin(hint) in (typing.Union, types.UnionType):
        inner = [arg for arg in get_args(hint) if arg is not type(None)]
        return _nullable(_kind(inner[0]))
    if get_origin(hint) is Annotated:
        return _leaf(hint)
    if get_origin(hint) is list:
        return _list(_kind(get_args(hint)[0]))
    return _Kind(_group_plain, lambda value, version, where: _group_made(hint, value, version, where))


def _leaf(hint: Any) -> _Kind:
    marker = get_args(hint)[1]
    if isinstance(marker, Variable):
        if marker.view:
            return _RECORDS
        return _TEXT if marker.text else _BYTES
    assert isinstance(marker, Scalar)
    if isinstance(marker.leaf, UuidLeaf):
        return _ID
    if isinstance(marker.leaf, Mark):
        return _FLAG
    assert isinstance(marker.leaf, Fixed)
    return {"?": _FLAG, "d": _FLOAT}.get(marker.leaf.fmt, _NUMBER)


def _nullable(kind: _Kind) -> _Kind:
    return _Kind(kind.told, lambda value, version, where: None if value is None else kind.made(value, version, where))


def _list(kind: _Kind) -> _Kind:
    def told(values: list[Any], telling: _Telling) -> list[Any]:
        one = kind.told
        return list(values) if one is None else [one(value, telling) for value in values]

    def made(values: Any, version: int, where: str) -> list[Any]:
        if not isinstance(values, list):
            raise ValueError(f"{where}: no list")
        return [kind.made(value, version, f"{where}[{index}]") for index, value in enumerate(values)]

    return _Kind(told, made)


def _float_told(value: float, telling: _Telling) -> float | str:
    return value if math.isfinite(value) else str(value)  # which JSON has not


def _float_made(value: Any, version: int, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError(f"{where}: no number")
    try:
        return float(value)
    except ValueError:
        raise ValueError(f"{where}: no number") from None


def _checked(kind: type, name: str) -> Made:
    def made(value: Any, version: int, where: str) -> Any:
        if type(value) is not kind:
            raise ValueError(f"{where}: no {name}")
        return value

    return made


def _id_made(value: Any, version: int, where: str) -> bytes:
    try:
        return decode_id(value)
    except (ValueError, TypeError):
        raise ValueError(f"{where}: no id of 22 characters") from None


def _bytes_made(value: Any, version: int, where: str) -> bytes:
    try:
        found = from_json(value, where)
    except (TypeError, KeyError, AttributeError):
        found = None
    if found is None:
        raise ValueError(f"{where}: neither text nor base64")
    return found


def _records_told(value: Any, telling: _Telling) -> dict[str, Any]:
    return plain_records(value, telling.room, contents=telling.contents)


_NUMBER = _Kind(None, _checked(int, "whole number"))
_FLAG = _Kind(None, _checked(bool, "boolean"))
_TEXT = _Kind(None, _checked(str, "text"))
_FLOAT = _Kind(_float_told, _float_made)
_ID = _Kind(lambda value, telling: encode_id(value), _id_made)
_BYTES = _Kind(lambda value, telling: to_json(value), _bytes_made)
_RECORDS = _Kind(_records_told, lambda value, version, where: records_of(value, where))


def has_path(cls: type, names: Sequence[str]) -> bool:
    """Whether a message, in any version, has such a field in a field, whatever lists are on the way."""
    hint: Any = cls
    for index, name in enumerate(names):
        if isinstance(hint, type):
            found = types_of(hint).get(name)
            if found is None:
                return False
            hint = _item(found)
        else:
            marker = get_args(hint)[1]
            return isinstance(marker, Variable) and marker.view and set(names[index:]) <= WORDS
    return bool(names)


def _item(hint: Any) -> Any:
    """The type in a list or beside None."""
    while get_origin(hint) is not Annotated and not isinstance(hint, type):
        hint = next(arg for arg in get_args(hint) if arg is not type(None))
    return hint


# Plain values to messages and frames


def message_of(api_key: int, version: int, values: dict[str, Any], request: bool) -> Any:
    """The message that `plain` made this of; fields that are missing have their defaults, names that the version has
    not are passed over. Raises ValueError, one line that names the place."""
    api = apis().get(api_key)
    if api is None:
        raise ValueError(f"API key {api_key} is not known")
    cls = api.request if request else api.response
    return _group_made(cls, values, version, cls.__name__)


def _group_made(cls: Any, values: Any, version: int, where: str) -> Any:
    if not isinstance(values, dict):
        raise ValueError(f"{where}: no object")
    made: dict[str, Any] = {}
    for name, kind, first, last, _ in _parts(cls):
        if name in values and first <= version <= last:
            made[name] = kind.made(values[name], version, f"{where}.{name}")
        elif cls._fields[name].make_default is None:
            raise ValueError(f"{where}: {name} is missing")
    return cls(**made)


def encoded(
    api_key: int,
    version: int,
    values: dict[str, Any],
    request: bool,
    *,
    correlation_id: int,
    client_id: str | None = None,
) -> bytes:
    """The frame, header first and without its size, that `request_plain` or `response_plain` made this of.

    One that could not be read is given back as it was, its own header in it. Raises ValueError, one line.
    """
    if UNDECODABLE in values:
        return _decoded(values.get("base64"), "a frame that cannot be read")
    message = message_of(api_key, version, values, request)
    declared = spec(type(message))
    if not request and api_key == ApiKey.API_VERSIONS and message.error_code == ErrorCode.UNSUPPORTED_VERSION:
        version = 0
    if not declared.versions.first <= version <= min(declared.versions.last, VERSION_MAX):
        raise ValueError(f"{type(message).__name__} v{version} is not known")
    flexible = version in declared.flexible
    left_over = _decoded(values[LEFT_OVER], LEFT_OVER) if LEFT_OVER in values else b""
    if not request:
        return response_header(correlation_id, api_key, flexible) + build(message, version) + left_over
    name = None if client_id is None else client_id.encode()
    return request_header(api_key, version, correlation_id, name, flexible) + build(message, version) + left_over


def _decoded(value: Any, what: str) -> bytes:
    if not isinstance(value, str):
        raise ValueError(f"{what}: its bytes were left out")
    try:
        return base64.b64decode(value.encode("ascii"), validate=True)
    except (UnicodeEncodeError, binascii.Error) as error:
        raise ValueError(f"{what}: no base64") from error
