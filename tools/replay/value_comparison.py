"""The comparison of two responses, field by field.

Owns the fields that are compared: values of a broker's own (addresses, paths, times, free bytes) are ignored, or only
their presence is compared. Elements of lists are matched by their key fields, since Kafka guarantees no order.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeGuard

from ...protocol.named import NamedTuple
from ...protocol.narrowing import is_list
from ...protocol.primitives import ZERO_UUID
from ...protocol.schema import Value, fields_of

ABSENT = "<absent>"
OF_ITSELF = frozenset(
    """throttle_time_ms host port rack client_host finalized_features_epoch session_id subscription_id
    zk_migration_ready log_dir path log_dir_path voter_directory_id replica_directory_id""".split()
)
"""Fields that are not compared."""
WHETHER = frozenset(
    """log_append_time_ms issue_timestamp_ms expiry_timestamp_ms max_timestamp_ms issue_timestamp expiry_timestamp
    max_timestamp hmac token_id client_instance_id transaction_start_time_ms usable_bytes total_bytes last_timestamp
    last_fetch_timestamp last_caught_up_timestamp""".split()
)
"""Fields of which only the presence is compared: negative numbers, zero bytes, "" and null count as absent."""
ORDERED = frozenset(("replica_nodes", "replicas"))  # the first is the preferred leader
# The key fields of list elements, in this order.
IDENTITIES = tuple(
    """name topic_name topic partition_index partition index partition_id group_id group_name resource_type
    resource_name key user entity entity_type pattern_type mechanism node_id broker_id replica_id topic_partition
    principal host operation permission_type transactional_id api_key feature member_id producer_id
    batch_index""".split()
)
# Configs with addresses and ids of a broker.
OWN_CONFIGS = frozenset(
    """listeners advertised.listeners advertised.host.name advertised.port host.name port log.dirs log.dir broker.id
    node.id zookeeper.connect process.roles controller.listener.names controller.quorum.voters
    controller.quorum.bootstrap.servers listener.security.protocol.map inter.broker.listener.name""".split()
)


class Difference(NamedTuple):
    """A difference between two responses; in `path` list elements have their keys in brackets."""

    path: str
    left: Any
    right: Any


class Sides(NamedTuple):
    """The versions of both responses, texts of the left -> right, and topic names by ids of the right."""

    left_version: int
    right_version: int
    texts: Mapping[str, str]
    topics: Mapping[bytes, str]


def differences(left: Any, right: Any, sides: Sides, path: str = "", name: str = "") -> list[Difference]:
    """Returns the differences between two values; the ids of `left` are mapped to the right's already."""
    if name in OF_ITSELF:
        return []
    if name in WHETHER:
        return [] if _is_set(left) == _is_set(right) else [Difference(path, left, right)]
    if isinstance(left, Value) and isinstance(right, Value):
        return _of_values(left, right, sides, path)
    if is_list(left) and is_list(right):
        return _of_lists(left, right, sides, path, name)
    if _plain(left) == _plain(right):
        return []
    if isinstance(left, str) and isinstance(right, str) and _with_texts(left, sides.texts) == right:
        return []
    return [Difference(path, left, right)]


def _of_values(left: Value, right: Value, sides: Sides, path: str) -> list[Difference]:
    if type(left) is not type(right):
        return [Difference(path, left, right)]
    if getattr(left, "name", "") in OWN_CONFIGS and "config_source" in fields_of(left):
        return []
    found: list[Difference] = []
    for name, field in fields_of(left).items():
        if sides.left_version not in field.versions or sides.right_version not in field.versions:
            continue
        if name == "topic_id" and _named(left, right):
            both_set = (left.topic_id == ZERO_UUID) == (right.topic_id == ZERO_UUID)  # type: ignore[attr-defined]
            if both_set and not sides.topics.get(bytes(right.topic_id)):  # type: ignore[attr-defined]
                continue  # no name is known for the id
        here = differences(getattr(left, name), getattr(right, name), sides, f"{path}.{name}", name)
        if here and name in ("error_code", "partition_error_code"):
            return here  # the other fields of an error response add nothing
        found += here
    return found


def _named(left: Any, right: Any) -> bool:
    names = ("name", "topic")
    return any(getattr(left, name, None) and getattr(left, name) == getattr(right, name, None) for name in names)


def _of_lists(left: list[Any], right: list[Any], sides: Sides, path: str, name: str) -> list[Difference]:
    if name in ORDERED:
        return [] if left == right else [Difference(path, left, right)]
    if not any(isinstance(one, Value) for one in (*left, *right)):
        one, other = sorted(map(_plain, left), key=repr), sorted(map(_plain, right), key=repr)
        return [] if one == other else [Difference(path, left, right)]
    there: dict[str, list[Any]] = {}
    for one in right:
        there.setdefault(identity(one, sides.topics), []).append(one)
    found: list[Difference] = []
    for one in left:
        same = there.get(identity(one, sides.topics))
        where = f"{path}[{shown_identity(one, sides.topics)}]"
        if same:
            found += differences(one, same.pop(0), sides, where)
        else:
            found.append(Difference(where, one, ABSENT))
    for rest in there.values():
        found += [Difference(f"{path}[{shown_identity(one, sides.topics)}]", ABSENT, one) for one in rest]
    return found


def identity(one: Any, topics: Mapping[bytes, str]) -> str:
    """Returns the key of a list element."""
    return repr(_identity(one, topics)) if isinstance(one, Value) else repr(_plain(one))


def _identity(one: Value, topics: Mapping[bytes, str]) -> list[Any]:
    found = [getattr(one, name) for name in IDENTITIES if name in fields_of(one) and name not in OF_ITSELF]
    topic_id = bytes(getattr(one, "topic_id", ZERO_UUID))
    if topic_id != ZERO_UUID and not (found and found[0]):
        found = [topics.get(topic_id, topic_id.hex()), *found[1:]]
    if not found:
        found = [getattr(one, name) for name in fields_of(one) if name not in OF_ITSELF]
    return found


def shown_identity(one: Any, topics: Mapping[bytes, str]) -> str:
    """Returns the key of a list element for output."""
    parts = _identity(one, topics) if isinstance(one, Value) else [one]
    return ",".join(str(part)[:60] for part in parts if not isinstance(part, Value | list))


def _is_set(value: Any) -> bool:
    if is_bytes_like(value):
        return any(bytes(value))
    return value is not None and value != "" and not (isinstance(value, int) and value < 0)


def _plain(value: Any) -> Any:
    return bytes(value) if is_bytes_like(value) else value


def is_bytes_like(value: object) -> TypeGuard[bytes | bytearray | memoryview]:
    return isinstance(value, bytes | bytearray | memoryview)


def _with_texts(text: str, texts: Mapping[str, str]) -> str:
    for one, other in texts.items():
        text = text.replace(one, other)
    return text
