"""Removes confidential data from frames: credentials always, the contents of records on request.

A frame keeps its header and can still be decoded: bytes become zeros, texts stars, each as long as before.
Credentials are salts and salted passwords (AlterUserScramCredentials), the HMACs of delegation tokens, the tokens of
SaslAuthenticate, the whole of Envelope, and the values of configs that are sensitive or that no release has, which
Kafka hides in its logs, too. A frame that may carry credentials and cannot be decoded keeps its header alone. So does a
request of an unknown API or version: a client that uses SASL without a handshake begins with its password.

Contents are keys, values and header values in Produce requests and Fetch responses. Sizes, offsets, timestamps,
sequences, header names, codecs (compressed again, so mostly smaller) and CRCs stay correct, and control records stay.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import lru_cache, partial
from typing import Any

from ...protocol.api_key import ApiKey
from ...protocol.apis import apis
from ...protocol.compiler import build
from ...protocol.errors import ProtocolViolation
from ...protocol.headers import read_prefix
from ...protocol.messages.records.produce import ProduceRequest
from ...protocol.records import batch, compression, formats, legacy
from ...protocol.records.batch import CODEC_BITS, BatchHeader
from ...protocol.records.errors import CorruptRecords, InvalidRecords, UnsupportedCodec
from ...protocol.records.layout import LENGTH_AT, MAGIC_AT, MIN_BYTES, PREFIX_BYTES
from ...protocol.schema import spec
from ..config.definitions import broker_fact, harmless
from ..logs import Levels
from ..releases.profiles import OWN, profile
from .decoding import PROBLEMS, read_request, read_response
from .exchange import HEAD_BYTES, Buffer, client_id_of, is_header

_SCOPES: Mapping[int, str] = {2: "topic", 4: "broker", 16: "client-metrics", 32: "group"}  # by ConfigResource type
_TOPIC, _LOGGER = 2, 8
_PREFIX_BYTES = 8  # API key, version and correlation id of a request
_FIRST_BYTES = 4  # API key and version of a request, correlation id of a response

# The list in a message whose entries have credentials, in _SECRET_FIELDS or in configs; "" for the message itself.
_SECRET_FIELDS = ("salt", "salted_password", "hmac", "auth_bytes")
_REQUESTS: Mapping[int, str] = {
    ApiKey.CREATE_TOPICS: "topics",
    ApiKey.ALTER_CONFIGS: "resources",
    ApiKey.RENEW_DELEGATION_TOKEN: "",
    ApiKey.EXPIRE_DELEGATION_TOKEN: "",
    ApiKey.INCREMENTAL_ALTER_CONFIGS: "resources",
    ApiKey.SASL_AUTHENTICATE: "",
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: "upsertions",
}
_RESPONSES: Mapping[int, str] = {
    ApiKey.CREATE_TOPICS: "topics",
    ApiKey.DESCRIBE_CONFIGS: "results",
    ApiKey.CREATE_DELEGATION_TOKEN: "",
    ApiKey.SASL_AUTHENTICATE: "",
    ApiKey.DESCRIBE_DELEGATION_TOKEN: "tokens",
}
_WHOLE = {58}  # Envelope
KEYS = frozenset({*_WHOLE, *_REQUESTS, *_RESPONSES})
"""The APIs whose frames may carry credentials."""


@lru_cache(1024)
def may_carry(api_key: int, version: int) -> bool:
    """Returns whether frames of this API and version may carry credentials: those of KEYS, of an unknown API, or of an
    unknown version."""
    if api_key in KEYS:
        return True
    api = apis().get(api_key)
    return api is None or (version not in spec(api.request).versions and api_key != ApiKey.API_VERSIONS)


def blanked(frame: bytes, api_key: int, version: int, request: bool = True) -> bytes:
    """Returns a frame (without its size) without credentials; the same object if it can have none. The frame may be
    cut."""
    if api_key not in KEYS:
        return _header_of(frame, request=True) if request and may_carry(api_key, version) else frame
    entries = (_REQUESTS if request else _RESPONSES).get(api_key)
    if api_key in _WHOLE:
        return _header_of(frame, request)
    if entries is None:
        return frame
    return _changed(frame, api_key, version, request, partial(_hide_credentials, entries)) or _header_of(frame, request)


def without_contents(frame: bytes, api_key: int, version: int, request: bool) -> bytes:
    """Returns a frame with zeros for contents; the same object if the API carries no records. A frame that cannot be
    decoded keeps only its first bytes, which are part of the header."""
    if api_key != (ApiKey.PRODUCE if request else ApiKey.FETCH):
        return frame
    return _changed(frame, api_key, version, request, _zero_contents) or _cut(frame, _PREFIX_BYTES)


def _changed(frame: bytes, api_key: int, version: int, request: bool, change: Callable[[Any], None]) -> bytes | None:
    """Returns the frame with its message changed; None if it cannot be decoded."""
    try:
        found = read_request(frame) if request else read_response(frame, api_key, version)
        change(found.message)
        return frame[: found.start] + build(found.message, found.version) + bytes(len(frame) - found.end)
    except PROBLEMS:
        return None


def _cut(frame: bytes, kept: int) -> bytes:
    return frame[:kept] + bytes(max(0, len(frame) - kept))


def _header_of(frame: bytes, request: bool) -> bytes:
    """Returns the frame with zeros after the client id, or after the part of the header that can be read."""
    kept = _FIRST_BYTES
    if request:
        with suppress(ProtocolViolation):
            key, version, _, length = read_prefix(frame)
            if length == -1 or client_id_of(frame, key, version, length) is not None:
                kept = HEAD_BYTES + max(0, length)
            elif is_header(key, version):
                kept = _PREFIX_BYTES
    return _cut(frame, kept)


# Credentials


def is_secret(resource_type: int, name: str, value: str) -> bool:
    """Returns whether a config's value must not be shown. Levels of loggers are never secret."""
    if resource_type == _LOGGER:
        return value not in Levels.LEVELS
    scope = _SCOPES.get(resource_type)
    if scope is None:
        return True
    if name in harmless(scope):
        return False
    fact = broker_fact(name, profile(OWN)) if scope == "broker" else None  # the name without a listener's prefix
    return fact is None or fact.name not in harmless(scope)


def _hide_credentials(entries: str, message: Any) -> None:
    for entry in getattr(message, entries) if entries else (message,):
        for name in _SECRET_FIELDS:
            if name in entry._fields:
                setattr(entry, name, bytes(len(getattr(entry, name))))
        resource_type = getattr(entry, "resource_type", _TOPIC)
        for config in getattr(entry, "configs", None) or ():
            is_sensitive = getattr(config, "is_sensitive", False)
            for one in (config, *getattr(config, "synonyms", ())):
                if one.value and (is_sensitive or is_secret(resource_type, config.name, one.value)):
                    one.value = "*" * len(one.value.encode())


# Contents of records


def _zero_contents(message: Any) -> None:
    is_request = isinstance(message, ProduceRequest)
    topics, partitions = ("topic_data", "partition_data") if is_request else ("responses", "partitions")
    for topic in getattr(message, topics):
        for partition in getattr(topic, partitions):
            if partition.records:
                partition.records = zeroed(partition.records)


def zeroed(data: Buffer) -> bytearray:
    """Returns records as they are on the wire, of any format, with zeros for contents. The last entry may be cut. An
    entry that cannot be decoded, or whose CRC is wrong, keeps only its header."""
    view = memoryview(data)
    out = bytearray()
    position, end = 0, len(view)
    while position + MAGIC_AT < end:
        size = PREFIX_BYTES + int.from_bytes(view[position + LENGTH_AT : position + LENGTH_AT + 4], signed=True)
        magic = view[position + MAGIC_AT]
        if magic >= len(MIN_BYTES) or size < MIN_BYTES[magic]:
            break
        entry = view[position : position + size]
        position += len(entry)
        try:
            out += _zeroed_entry(entry, size)
        except (CorruptRecords, InvalidRecords, UnsupportedCodec):
            out += _cut(bytes(entry), (18, 26, batch.HEADER_BYTES)[magic])
    return out + bytes(end - position)


def _zeroed_entry(entry: memoryview, size: int) -> bytearray:
    """Returns one entry of any format with zeros for contents. Raises CorruptRecords, InvalidRecords,
    UnsupportedCodec."""
    if len(entry) < size:
        raise CorruptRecords("the entry is cut")
    header = formats.read_header(entry)
    if not formats.crc_matches(entry, 0, header):
        raise CorruptRecords("the CRC does not match")
    return _zeroed_batch(entry, header) if header.magic == batch.MAGIC else _zeroed_message(entry, header)


def _zeroed_batch(entry: memoryview, header: BatchHeader) -> bytearray:
    if header.is_control:
        return bytearray(entry)
    data = bytearray(batch.payload(entry, 0, header))
    for _, _, key, key_end, value, value_end, headers in batch.entries(bytes(data), header.record_count):
        for start, end in ((key, key_end), (value, value_end), *(span[2:] for span in headers)):
            data[start:end] = bytes(end - start)
    return batch.with_payload(header, data, header.codec, bits=header.attributes & ~CODEC_BITS)


def _zeroed_message(entry: memoryview, header: BatchHeader) -> bytearray:
    """Returns a message of format v0 or v1 with zeros for contents; a message with a codec wraps others."""
    if header.codec == 0:
        return _with_value(entry, header.magic, None)
    inner = memoryview(legacy.inner(entry, 0, header))
    messages = bytearray()
    position = 0
    while position < len(inner):
        one = legacy.read_header(inner, position)
        if not legacy.crc_matches(inner, position, one):
            raise CorruptRecords("the CRC does not match")
        messages += _with_value(inner[position : position + one.size_bytes], header.magic, None)
        position += one.size_bytes
    return _with_value(entry, header.magic, compression.compress(header.codec, messages, magic=header.magic))


def _with_value(message: memoryview, magic: int, value: bytes | None) -> bytearray:
    """Returns a message with a zeroed key and another value; None stands for its own value, zeroed."""
    offset, attributes, timestamp, key, old, _ = legacy.message(message, 0, len(message), magic)
    key, old = (None if part is None else bytes(len(part)) for part in (key, old))
    made = bytearray()
    legacy.put_message(made, offset, magic, attributes, timestamp, key, old if value is None else value)
    return made
