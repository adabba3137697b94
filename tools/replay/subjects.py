"""The subjects of a request (topics, groups, transactions, producers) by name, and whether it changes them.

Owns the extraction of names from requests of any API, by which a difference is traced to an earlier one.
"""

from __future__ import annotations

from typing import Any

from ...protocol.api_key import ApiKey
from ...protocol.messages.topics.metadata import MetadataRequest
from ...protocol.primitives import ZERO_UUID
from ...protocol.records import formats
from ...protocol.schema import Value, fields_of
from .name_mapping import PARTITION_FIELDS, TOPIC_FIELDS, Ids, values_in

# Requests that change nothing: those that Kafka calls Describe or List, and these.
READING = frozenset(
    {
        ApiKey.FETCH,
        ApiKey.OFFSET_FETCH,
        ApiKey.FIND_COORDINATOR,
        ApiKey.HEARTBEAT,
        ApiKey.API_VERSIONS,
        ApiKey.OFFSET_FOR_LEADER_EPOCH,
        ApiKey.GET_TELEMETRY_SUBSCRIPTIONS,
        ApiKey.PUSH_TELEMETRY,
        *(key for key in ApiKey if {"DESCRIBE", "LIST"} & set(key.name.split("_"))),
    }
)
# Requests for all items of a kind: their responses include items from before the recording.
LISTING = frozenset(
    {
        ApiKey.METADATA,
        ApiKey.LIST_GROUPS,
        ApiKey.DESCRIBE_LOG_DIRS,
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        ApiKey.LIST_TRANSACTIONS,
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
    }
)
_OF_TOPICS = frozenset(
    """partitions partition_data partition_indexes topic_id num_partitions count assignments""".split()
) | frozenset(PARTITION_FIELDS)
_TOPIC = 2  # resource types of configs and ACLs
_GROUP = 32


def changes(request: Any, api_key: int) -> bool:
    """Returns whether a request may change the responses to later ones."""
    if isinstance(request, MetadataRequest):
        return bool(request.topics) and request.allow_auto_topic_creation
    return api_key not in READING


def subjects(request: Any, ids: Ids) -> frozenset[str]:
    """Returns the subjects of a request; none if it is about all items of a kind."""
    found: set[str] = set()
    for value in values_in(request):
        _add(value, ids, found)
    return frozenset(found)


def of_response(response: Any) -> frozenset[str]:
    """Returns the producer in a response, as a subject."""
    producer_id = getattr(response, "producer_id", -1)
    return frozenset({f"producer {producer_id}"} if isinstance(producer_id, int) and producer_id >= 0 else ())


def _add(value: Value, ids: Ids, found: set[str]) -> None:
    fields = fields_of(value)
    if not _OF_TOPICS.isdisjoint(fields):
        for name in TOPIC_FIELDS:
            if name in fields and isinstance(topic := getattr(value, name), str) and topic:
                found.add(f"topic {topic}")
        topic_id = bytes(getattr(value, "topic_id", ZERO_UUID))
        if topic_id in ids.topic_names:
            found.add(f"topic {ids.topic_names[topic_id]}")
    resource = getattr(value, "resource_type", None)
    if resource in (_TOPIC, _GROUP):
        kind = "topic" if resource == _TOPIC else "group"
        found.add(f"{kind} {getattr(value, 'resource_name', '')}")
    for name in fields:
        _add_field(name, getattr(value, name), found)


def _add_field(name: str, value: Any, found: set[str]) -> None:
    if name in ("group_id", "transactional_id", "v3_and_below_transactional_id"):
        if value:
            found.add(f"{'group' if name == 'group_id' else 'transactional id'} {value}")
    elif name in ("producer_id", "v3_and_below_producer_id"):
        if value >= 0:
            found.add(f"producer {value}")
    elif name in ("groups_names", "topic_names", "transactional_ids") or (name == "groups" and value):
        kind = {"topic_names": "topic", "transactional_ids": "transactional id"}.get(name, "group")
        found.update(f"{kind} {one}" for one in value or () if isinstance(one, str))
    elif name == "records":
        headers = formats.sound_headers(value or b"")
        found.update(f"producer {header.producer_id}" for _, header in headers if header.producer_id >= 0)
