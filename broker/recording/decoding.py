"""Decodes frames into messages and JSON-able dicts, and encodes the dicts into frames again.

`encoded(plain)` is the exact frame of which `request_plain` or `response_plain` was made, also if that frame is
damaged; only unknown tagged fields and tagged fields of a header are lost. A frame that cannot be decoded is described
by a dict, and raises nothing.

Numbers, texts and booleans keep their values. Bytes are text if they are UTF-8, else `{"base64": ...}`, see
`json_bytes`; ids have Kafka's form of 22 characters. Records have their bytes in base64 beside the decoded values, and
only the bytes are encoded again.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import math
import types
import typing
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from itertools import takewhile
from typing import Annotated, Any, get_args, get_origin

from ...protocol.api_key import ApiKey
from ...protocol.apis import apis
from ...protocol.compiler import build, reader
from ...protocol.errors import ErrorCode, MalformedMessage, ProtocolViolation
from ...protocol.frozen import frozen
from ...protocol.headers import read_prefix, read_response_header, read_rest, request_header, response_header
from ...protocol.messages.records.produce import ProduceRequest
from ...protocol.named import NamedTuple
from ...protocol.narrowing import is_dict, is_list
from ...protocol.primitives import Records, Uuid
from ...protocol.records import batch, formats, legacy
from ...protocol.records.batch import BatchHeader, Record
from ...protocol.records.compression import CODEC_NAMES
from ...protocol.records.errors import CorruptRecords, InvalidRecords
from ...protocol.schema import Field, fields_of, spec, types_of
from ...storage.format.partition_metadata import decode_id, encode_id
from ..json_bytes import from_json, to_json
from .exchange import Buffer, Exchange, Produced

UNDECODABLE = "undecodable"
LEFT_OVER = "left_over_base64"
WORDS = frozenset(
    "size base64 batches damaged left_over base_offset magic codec producer_id producer_epoch base_sequence "
    "is_transactional is_control count partition_leader_epoch max_timestamp records records_left_out offset timestamp "
    "key value headers name key_size value_size headers_size".split()
)
"""The names of fields in the dicts that describe records."""
_UNSUPPORTED_VERSION = ErrorCode.UNSUPPORTED_VERSION.to_bytes(2)
PROBLEMS = (MalformedMessage, ProtocolViolation)


# Frames to messages


class Read(NamedTuple):
    """A message of a frame: the version in which it is encoded, and where in the frame it begins and ends."""

    version: int
    message: Any
    start: int
    end: int


def request_value(exchange: Exchange) -> Any | None:
    """Returns the request's message; None if its bytes were not kept or cannot be decoded."""
    with contextlib.suppress(*PROBLEMS):
        return None if exchange.request is None else read_request(exchange.request).message
    return None


def response_value(exchange: Exchange) -> Any | None:
    """Returns the response's message; None if there is no response, its bytes were not kept, or they cannot be
    decoded."""
    with contextlib.suppress(*PROBLEMS):
        response = exchange.response
        return None if response is None else read_response(response, exchange.api_key, exchange.api_version).message
    return None


def read_request(frame: bytes | memoryview) -> Read:
    """Decodes a request's frame. Raises MalformedMessage, ProtocolViolation."""
    prefix = read_prefix(frame)
    cls, flexible = _declared(prefix.api_key, prefix.api_version, True)
    start = read_rest(frame, prefix, flexible)[1]
    message, end = reader(cls, prefix.api_version)(memoryview(frame), start)
    return Read(prefix.api_version, message, start, end)


def read_response(frame: bytes, api_key: int, version: int) -> Read:
    """Decodes the frame of a response to a request of this version. Raises MalformedMessage, ProtocolViolation."""
    if api_key == ApiKey.API_VERSIONS and frame[4:6] == _UNSUPPORTED_VERSION:
        version = 0  # the one layout that every client can decode (KIP-511)
    cls, flexible = _declared(api_key, version, False)
    start = read_response_header(frame, api_key, flexible)[1]
    message, end = reader(cls, version)(frame, start)
    return Read(version, message, start, end)


class _Unknown(ProtocolViolation, ValueError):
    """An API or a version that is not declared."""


def _declared(api_key: int, version: int, request: bool) -> tuple[type, bool]:
    """Returns the class of a message, and whether this version is flexible. Raises _Unknown."""
    api = apis().get(api_key)
    if api is None:
        raise _Unknown(f"API key {api_key} is not known")
    cls = api.request if request else api.response
    declared = spec(cls)
    if version not in declared.versions:
        raise _Unknown(f"{api.name} v{version} is not known")
    return cls, version in declared.flexible


def produced_by(frame: bytes | memoryview) -> Produced | None:
    """Returns the facts about the producer in a Produce request's frame; None if it cannot be decoded."""
    with contextlib.suppress(*PROBLEMS):
        return produced_of(read_request(frame).message)
    return None


# Frames to plain values


def request_plain(exchange: Exchange, *, contents: bool = True, room: Room | None = None) -> dict[str, Any] | None:
    """Returns the request as a JSON-able dict with the fields of its version, or None if its bytes were not kept.

    A frame that cannot be decoded becomes `{"undecodable": reason, "size": bytes, "base64": the whole frame}`. Bytes
    after the message, which Kafka ignores, become `left_over_base64`. See `plain` for the rest.
    """
    return _frame_plain(exchange.request, read_request, contents, room)


def response_plain(exchange: Exchange, *, contents: bool = True, room: Room | None = None) -> dict[str, Any] | None:
    """Returns the response in the form of `request_plain`; None also if there is no response."""
    read = partial(read_response, api_key=exchange.api_key, version=exchange.api_version)
    return _frame_plain(exchange.response, read, contents, room)


def _frame_plain(
    frame: bytes | None, read: Callable[[bytes], Read], contents: bool, room: Room | None
) -> dict[str, Any] | None:
    if frame is None:
        return None
    try:
        version, message, _, end = read(frame)
    except PROBLEMS as error:
        undecodable = {UNDECODABLE: str(error), "size": len(frame)}
        return undecodable | {"base64": _base64(frame)} if contents else undecodable
    fields = plain(message, contents=contents, version=version, room=room)
    if end < len(frame):
        fields |= {LEFT_OVER: _base64(frame[end:])} if contents else {"left_over_bytes": len(frame) - end}
    return fields


def _base64(data: Buffer) -> str:
    return base64.b64encode(data).decode()


def plain(
    message: Any, *, contents: bool = True, version: int | None = None, room: Room | None = None
) -> dict[str, Any]:
    """Returns a message as a JSON-able dict: its fields by their declared names; with a version, only the fields of
    that version.

    Without `contents`, keys, values and headers of records are replaced by their sizes. `room` limits the records.
    """
    return _group_plain(message, _Options(version, contents, room or Room()))


class _Options(NamedTuple):
    version: int | None
    contents: bool
    room: Room


@frozen
class _Kind:
    """The conversion of one type: `to_plain` for JSON, None where JSON has the same value, and `from_plain` back.

    `from_plain` gets the plain value, the version, and the place that an error names. Both are for values other than
    None, which stays None if it `is_nullable`.
    """

    to_plain: Callable[[Any, _Options], Any] | None
    from_plain: Callable[[Any, int, str], Any]
    is_nullable: bool = False


@cache
def _parts(cls: Any) -> tuple[tuple[str, _Kind, Field], ...]:
    """Returns the name, the conversion and the declaration of each field of a declared class."""
    hints = types_of(cls)
    return tuple((name, _kind(hints[name]), declared) for name, declared in fields_of(cls).items())


def _group_plain(value: Any, options: _Options) -> dict[str, Any]:
    shown: dict[str, Any] = {}
    version = options.version
    for name, kind, declared in _parts(value.__class__):
        first, last = declared.versions
        if version is not None and not first <= version <= last:
            continue
        item = getattr(value, name)
        if declared.extension and item == declared.make_default():
            continue
        shown[name] = item if kind.to_plain is None or item is None else kind.to_plain(item, options)
    return shown


def _group_made(cls: Any, values: Any, version: int, where: str) -> Any:
    if not isinstance(values, dict):
        raise ValueError(f"{where}: no object")
    made: dict[str, Any] = {}
    for name, kind, declared in _parts(cls):
        first, last = declared.versions
        if name in values and first <= version <= last:
            is_null = kind.is_nullable and values[name] is None
            made[name] = None if is_null else kind.from_plain(values[name], version, f"{where}.{name}")
        elif declared.make_default is None:
            raise ValueError(f"{where}: {name} is missing")
    return cls(**made)


@cache
def _kind(hint: Any) -> _Kind:
    if get_origin(hint) in (typing.Union, types.UnionType):
        return replace(_kind(next(arg for arg in get_args(hint) if arg is not type(None))), is_nullable=True)
    if get_origin(hint) is list:
        return _list(_kind(get_args(hint)[0]))
    if get_origin(hint) is Annotated:
        return _LEAVES.get(hint) or _LEAVES[get_args(hint)[0]]
    return _Kind(_group_plain, partial(_group_made, hint))


def _list(kind: _Kind) -> _Kind:
    def to_plain(values: list[Any], options: _Options) -> list[Any]:
        one = kind.to_plain
        return list(values) if one is None else [one(value, options) for value in values]

    def from_plain(values: Any, version: int, where: str) -> list[Any]:
        if not is_list(values):
            raise ValueError(f"{where}: not a list")
        return [kind.from_plain(value, version, f"{where}[{index}]") for index, value in enumerate(values)]

    return _Kind(to_plain, from_plain)


def _checked(kind: type, name: str) -> _Kind:
    def from_plain(value: Any, version: int, where: str) -> Any:
        if type(value) is not kind:
            raise ValueError(f"{where}: no {name}")
        return value

    return _Kind(None, from_plain)


def _float_made(value: Any, version: int, where: str) -> float:
    with contextlib.suppress(ValueError):
        if not isinstance(value, bool) and isinstance(value, int | float | str):
            return float(value)
    raise ValueError(f"{where}: no number")


def _id_made(value: Any, version: int, where: str) -> bytes:
    with contextlib.suppress(ValueError, TypeError):
        return decode_id(value)
    raise ValueError(f"{where}: no id of 22 characters")


def _bytes_made(value: Any, version: int, where: str) -> bytes:
    with contextlib.suppress(TypeError, KeyError, AttributeError):
        if (found := from_json(value, where)) is not None:
            return found
    raise ValueError(f"{where}: neither text nor base64")


def _records_made(value: Any, version: int, where: str) -> bytes:
    return _decoded(value.get("base64") if is_dict(value) else None, f"{where}: the records")


# By annotation, or else by its Python type.
_LEAVES: dict[Any, _Kind] = {
    int: _checked(int, "whole number"),
    bool: _checked(bool, "boolean"),
    str: _checked(str, "text"),
    float: _Kind(lambda value, _: value if math.isfinite(value) else str(value), _float_made),  # JSON has no inf
    bytes: _Kind(lambda value, _: to_json(value), _bytes_made),
    Uuid: _Kind(lambda value, _: encode_id(value), _id_made),
    Records: _Kind(lambda value, options: plain_records(value, options.room, contents=options.contents), _records_made),
}


# Records


class Room:
    """The number of records of one message that may still be shown, and the bytes of their keys, values and headers;
    None for no limit. A few bytes on the wire may be very many once they are decompressed."""

    def __init__(self, records: int | None = None, size_bytes: int | None = None) -> None:
        self.left = records
        self._bytes_max = size_bytes
        self.size_bytes = 0
        """The bytes of all records that were passed to `take`, up to and including the first refused one."""

    def take(self, record: Record, contents: bool) -> bool:
        """Returns whether one more record may be shown; after a refusal, none."""
        if self.left is not None and self.left <= 0:
            return False
        if contents and self._bytes_max is not None:
            self.size_bytes += len(record.key or b"") + len(record.value or b"")
            self.size_bytes += sum(len(name) + len(value or b"") for name, value in record.headers)
            if self.size_bytes > self._bytes_max:
                self.left = 0
                return False
        if self.left is not None:
            self.left -= 1
        return True


def plain_records(data: Buffer, room: Room, *, contents: bool = True) -> dict[str, Any]:
    """Returns `{"size": bytes, "base64": the records, "batches": [...]}`, with `"damaged": reason` at damage, and
    `"left_over": bytes` for a last batch that is cut, as Kafka cuts it in Fetch responses.

    Without `contents` there is no base64, and keys, values and headers are replaced by their sizes.
    """
    whole = {"base64": _base64(data)} if contents else {}
    shown: dict[str, Any] = {"size": len(data), **whole, "batches": []}
    end = 0
    try:
        for position, header in formats.headers(data):
            shown["batches"].append(_batch(data, position, header, room, contents))
            end = position + header.size_bytes
        if end < len(data):
            shown["left_over"] = len(data) - end
    except (CorruptRecords, InvalidRecords) as error:
        shown["damaged"] = str(error)
    return shown


def _batch(data: Buffer, position: int, header: BatchHeader, room: Room, contents: bool) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "base_offset": header.base_offset,
        "magic": header.magic,
        "codec": _codec_name(header),
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "base_sequence": header.base_sequence,
        "is_transactional": header.is_transactional,
        "is_control": header.is_control,
        "count": header.record_count,
        "size": header.size_bytes,
        "records": [],
    }
    if header.magic == batch.MAGIC:
        shown |= {"partition_leader_epoch": header.partition_leader_epoch, "max_timestamp": header.max_timestamp}
    try:
        if not formats.crc_matches(data, position, header):
            shown["damaged"] = "the CRC is another one"
            return shown
        if room.left != 0:
            is_batch = header.magic == batch.MAGIC
            found = batch.records(data, position) if is_batch else legacy.records(data, position, produced=True)
            taken = takewhile(lambda record: room.take(record, contents), found)
            shown["records"] = [_record(record, contents) for record in taken]
    except (CorruptRecords, InvalidRecords) as error:
        shown["damaged"] = str(error)
    records = shown["records"]
    if header.record_count < 0:  # the header of a wrapper (v0, v1) has no count of its messages
        shown["count"] = len(records)
    if room.left == 0 and len(records) < header.record_count:
        shown["records_left_out"] = header.record_count - len(records)
    return shown


def _record(record: Record, contents: bool) -> dict[str, Any]:
    shown: dict[str, Any] = {"offset": record.offset, "timestamp": record.timestamp}
    key, value = record.key, record.value
    headers = [(name.encode("utf-8", "surrogateescape"), content) for name, content in record.headers]
    if contents:
        shown["key"], shown["value"] = to_json(key), to_json(value)
        shown["headers"] = [{"name": to_json(name), "value": to_json(content)} for name, content in headers]
    else:
        shown["key_size"], shown["value_size"] = (None if part is None else len(part) for part in (key, value))
        shown["headers_size"] = sum(len(name) + len(content or b"") for name, content in headers)
    return shown


def produced_of(request: ProduceRequest) -> Produced:
    """Returns the facts about the producer in a Produce request. Partitions with damaged records do not count."""
    headers: list[BatchHeader] = []
    for topic in request.topic_data:
        for data in topic.partition_data:
            with contextlib.suppress(CorruptRecords, InvalidRecords):
                headers += [header for _, header in formats.headers(data.records or b"")]
    return Produced(
        request.acks,
        tuple(dict.fromkeys(topic.name or topic.topic_id for topic in request.topic_data)),
        tuple(dict.fromkeys(_codec_name(one) for one in headers)),
        tuple(dict.fromkeys(one.magic for one in headers)),
        bool(headers) and all(one.has_producer for one in headers),
        request.transactional_id is not None,
        tuple(dict.fromkeys(one.producer_id for one in headers if one.has_producer)),
        sum(max(1, one.record_count) for one in headers),
    )


def _codec_name(header: BatchHeader) -> str:
    return CODEC_NAMES.get(header.codec, str(header.codec))


# Plain values to messages and frames


def encoded(
    api_key: int,
    version: int,
    values: dict[str, Any],
    request: bool,
    *,
    correlation_id: int,
    client_id: str | None = None,
) -> bytes:
    """Returns the frame, header first and without its size, of which `request_plain` or `response_plain` made these
    values.

    Missing fields get their defaults; names that the version lacks are ignored. A frame that could not be decoded is
    returned unchanged, with its own header. Raises ValueError, one line that names the field.
    """
    if UNDECODABLE in values:
        return _decoded(values.get("base64"), "a frame that cannot be read: its bytes")
    if not request and api_key == ApiKey.API_VERSIONS and values.get("error_code") == ErrorCode.UNSUPPORTED_VERSION:
        version = 0
    cls, flexible = _declared(api_key, version, request)
    message = _group_made(cls, values, version, cls.__name__)
    if request:
        name = None if client_id is None else client_id.encode()
        header = request_header(api_key, version, correlation_id, name, flexible)
    else:
        header = response_header(correlation_id, api_key, flexible)
    left_over = _decoded(values[LEFT_OVER], LEFT_OVER) if LEFT_OVER in values else b""
    return header + build(message, version) + left_over


def _decoded(value: Any, what: str) -> bytes:
    if not isinstance(value, str):
        raise ValueError(f"{what} were left out")
    try:
        return base64.b64decode(value.encode("ascii"), validate=True)
    except (UnicodeEncodeError, binascii.Error) as error:
        raise ValueError(f"{what} are no base64") from error
