"""Record values of `__cluster_metadata`: encoding, decoding, and the topic configs that they set.

A value has a frame (KIP-631: frame version, record type and record version as varints), then the message in flexible
encoding. Record versions are those of metadata.version 3.9-IV0, unless a record has fields of a later one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from ..compiler import build, parse
from ..errors import MalformedMessage
from ..primitives import read_varint, varint_bytes
from ..schema import is_message, spec
from . import metadata_records

TOPIC = "__cluster_metadata"
TOPIC_ID = bytes(15) + b"\x01"  # Kafka's Uuid.METADATA_TOPIC_ID
FRAME_VERSION = 1

WRITTEN_VERSIONS: dict[type, int] = {
    **{cls: 0 for cls in vars(metadata_records).values() if is_message(cls)},
    metadata_records.PartitionRecord: 1,
    metadata_records.PartitionChangeRecord: 1,
}
ELIGIBLE_SINCE = 2  # record version with eligible leader replicas, of metadata.version 4.0-IV1 (KIP-966)
_WITH_ELIGIBLE = (metadata_records.PartitionRecord, metadata_records.PartitionChangeRecord)
_CLASSES: dict[int, type[Any]] = {spec(cls).api_key: cls for cls in WRITTEN_VERSIONS}


def encode(record: object) -> bytes:
    """Returns the value bytes of one metadata record."""
    version = WRITTEN_VERSIONS[type(record)]
    if isinstance(record, _WITH_ELIGIBLE) and (record.eligible_leader_replicas, record.last_known_elr) != (None, None):
        version = ELIGIBLE_SINCE
    key = spec(type(record)).api_key
    return varint_bytes(FRAME_VERSION) + varint_bytes(key) + varint_bytes(version) + build(record, version)


def frame_of(value: bytes) -> tuple[int, int, int]:
    """Returns the type, the version and the position of the message in a value. Raises MalformedMessage."""
    try:
        frame_version, position = read_varint(value, 0)
        key, position = read_varint(value, position)
        version, position = read_varint(value, position)
    except (IndexError, ValueError):
        raise MalformedMessage("metadata record: its frame is cut short") from None
    if frame_version != FRAME_VERSION:
        raise MalformedMessage(f"metadata record: frame version {frame_version}")
    return key, version, position


def decode(value: bytes) -> Any | None:
    """Returns the record of a value, or None for a type that Ottla does not use. Raises MalformedMessage."""
    return decode_one_of(_CLASSES, value)


def decode_one_of(classes: Mapping[int, type[Any]], value: bytes) -> Any | None:
    """Returns the record of a value by its type, or None for a type without a class. Raises MalformedMessage."""
    key, version, position = frame_of(value)
    cls = classes.get(key)
    if cls is None:
        return None
    if version not in spec(cls).versions:
        raise MalformedMessage(f"{cls.__name__}: version {version}")
    return parse(cls, version, value, position)


TOPIC_RESOURCE = 2  # KIP-133's number for a topic

Configs = dict[str, dict[str, str]]


def topic_configs(values: Iterable[bytes] | None) -> Configs | None:
    """Returns the configs of each topic after these values are applied, oldest first; None without values.

    Unreadable values are skipped: a broker may be writing the last one.
    """
    if values is None:
        return None
    configs: Configs = {}
    names: dict[bytes, str] = {}
    for record in _readable(values):
        if isinstance(record, metadata_records.TopicRecord):
            names[record.topic_id] = record.name
        elif isinstance(record, metadata_records.RemoveTopicRecord):
            configs.pop(names.pop(record.topic_id, ""), None)
        elif isinstance(record, metadata_records.ConfigRecord) and record.resource_type == TOPIC_RESOURCE:
            of_topic = configs.setdefault(record.resource_name, {})
            if record.value is None:
                of_topic.pop(record.name, None)
            else:
                of_topic[record.name] = record.value
    return configs


def gaps_by_config(configs: Configs | None) -> Callable[[str], bool]:
    """Returns whether a cleaner may have left gaps in a topic's logs: it is compacted, or the configs are unknown."""
    return lambda topic: configs is None or "compact" in configs.get(topic, {}).get("cleanup.policy", "")


def number_in(configs: Mapping[str, str], name: str, default: int) -> int:
    """Returns the number that a topic has for a config; the default if it has none, or no valid one."""
    text = configs.get(name, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else default


def topic_ids(values: Iterable[bytes] | None) -> dict[str, bytes]:
    """Returns the id of each topic that exists after these values, oldest first. Unreadable values are skipped."""
    names: dict[bytes, str] = {}
    for record in _readable(values or ()):
        if isinstance(record, metadata_records.TopicRecord):
            names[record.topic_id] = record.name
        elif isinstance(record, metadata_records.RemoveTopicRecord):
            names.pop(record.topic_id, None)
    return {name: topic_id for topic_id, name in names.items()}


def _readable(values: Iterable[bytes]) -> Iterator[Any]:
    for value in values:
        try:
            yield decode(value)
        except MalformedMessage:
            continue
