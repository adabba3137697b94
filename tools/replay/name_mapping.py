"""The mapping of ids between two brokers, learned from pairs of responses and applied to requests and comparisons.

Owns the fields of Kafka's messages whose values a broker chooses (ids, epochs, generations, offsets), and their values
on the other side. An unknown value is mapped to itself. `learned_names.py` fills the mapping; fetch sessions have state
and are in `fetch_sessions.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from crc32c import crc32c

from ...protocol.limits import INT16_MAX
from ...protocol.named import NamedTuple
from ...protocol.narrowing import is_list
from ...protocol.primitives import ZERO_UUID
from ...protocol.records import batch, formats
from ...protocol.records.errors import CorruptRecords
from ...protocol.records.layout import CRC_AT, CRC_FROM, PRODUCER_EPOCH_AT, PRODUCER_ID_AT
from ...protocol.schema import Value, fields_of

OF_NODES = (4, 8)  # the resource types whose names are numbers of nodes: BROKER and BROKER_LOGGER
NO_ID = -1

NODES = frozenset(
    """leader_id node_id broker_id controller_id preferred_read_replica replica_nodes isr_nodes offline_replicas
    eligible_leader_replicas last_known_elr replicas adding_replicas removing_replicas broker_ids voter_id
    replica_id""".split()
)
LEADER_EPOCHS = frozenset("leader_epoch current_leader_epoch committed_leader_epoch last_fetched_epoch epoch".split())
OFFSETS = frozenset(
    """fetch_offset offset committed_offset base_offset high_watermark last_stable_offset low_watermark end_offset
    first_offset current_txn_start_offset old_style_offsets""".split()
)
TOPIC_FIELDS = ("topic", "topic_name", "name")
PARTITION_FIELDS = ("partition_index", "partition", "index", "partition_id")


class Place(NamedTuple):
    """The group, topic and partition that a field refers to."""

    group: str = ""
    topic: str = ""
    partition: int = -1


NOWHERE = Place()


class Ids:
    """The mapping of ids: each dict maps values of the left to values of the right.

    `shifts`: (topic, partition) -> difference of offsets, if the right had other records before.
    `topic_names`: topic id of the left -> name.
    """

    def __init__(self, nodes: Mapping[int, int] | None = None) -> None:
        self.nodes = dict(nodes or {})
        self.clusters: dict[str, str] = {}
        self.producers: dict[int, int] = {}
        self.epochs: dict[tuple[int, int], int] = {}
        self.members: dict[str, str] = {}
        self.generations: dict[tuple[str, int], int] = {}
        self.topic_ids: dict[bytes, bytes] = {}
        self.topic_names: dict[bytes, str] = {}
        self.leader_epochs: dict[tuple[str, int, int], int] = {}
        self.shifts: dict[tuple[str, int], int] = {}
        self.tokens: dict[Any, Any] = {}  # ids (text) and secrets (bytes) of delegation tokens
        self.newest_token: bytes | None = None  # the right's; recordings have no secrets
        self.instances: dict[bytes, bytes] = {}  # client instance ids of telemetry (KIP-714)
        self.subscriptions: dict[int, int] = {}

    def place_in(self, value: Value, place: Place) -> Place:
        """Returns the place that the fields of `value` refer to; `place` is that of the enclosing value."""
        fields = fields_of(value)
        for name in TOPIC_FIELDS:
            if name in fields:
                topic = getattr(value, name)
                if isinstance(topic, str) and topic:
                    place = place._replace(topic=topic)
                break
        else:
            name = ""
        topic_id = getattr(value, "topic_id", ZERO_UUID)
        if topic_id != ZERO_UUID and not (name and getattr(value, name)):
            place = place._replace(topic=self.topic_names.get(bytes(topic_id), bytes(topic_id).hex()))
        for name in PARTITION_FIELDS:
            if name in fields and isinstance(partition := getattr(value, name), int):
                place = place._replace(partition=partition)
                break
        group = getattr(value, "group_id", None)
        return place._replace(group=group) if isinstance(group, str) else place

    def field(self, name: str, value: Any, owner: Value, place: Place) -> Any:
        """Returns the value of a field on the right for its value on the left."""
        found = _KINDS.get(name)
        if found is None or value is None:
            return value
        if is_list(value):
            return [found(self, one, name, owner, place) for one in value]
        return found(self, value, name, owner, place)

    def epoch(self, producer_id: int, epoch: int) -> int:
        """Returns the producer epoch on the right; an unknown one has the same distance from the last known epoch."""
        known = self.epochs.get((producer_id, epoch))
        if known is not None or epoch < 0:
            return epoch if known is None else known
        below = [one for (found, one) in self.epochs if found == producer_id and one < epoch]
        return min(epoch - max(below) + self.epochs[producer_id, max(below)], INT16_MAX) if below else epoch

    def name_on_right(self, topic_id: bytes) -> str:
        """Returns the name of a topic of the right, or "" if unknown."""
        left = next((one for one, other in self.topic_ids.items() if other == topic_id), topic_id)
        return self.topic_names.get(left, "")

    def id_on_right(self, topic: str) -> bytes:
        """Returns the id of a topic of the right, or zeros if unknown."""
        found = [
            self.topic_ids[one] for one, name in self.topic_names.items() if name == topic and one in self.topic_ids
        ]
        return found[-1] if found else ZERO_UUID

    def shift(self, place: Place) -> int:
        """Returns the difference of offsets between right and left."""
        return self.shifts.get((place.topic, place.partition), 0)

    def message(self, value: Any, place: Place = NOWHERE) -> Any:
        """Maps a message of the left to the right; returns a copy if any field changes."""
        if is_list(value):
            made = [self.message(one, place) for one in value]
            return value if all(one is other for one, other in zip(made, value, strict=True)) else made
        if not isinstance(value, Value):
            return value
        here = self.place_in(value, place)
        found: dict[str, Any] = {}
        changed = False
        for name in fields_of(value):
            old = getattr(value, name)
            new = self.message(old, here) if isinstance(old, Value | list) else old
            new = self.field(name, new, value, here)
            changed = changed or (new is not old and new != old)
            found[name] = new
        return type(value)(**found) if changed else value

    def records(self, records: Any) -> Any:
        """Replaces the producer ids and epochs in record batches; other bytes are returned unchanged."""
        made: bytearray | None = None
        try:
            for position, header in formats.headers(records):
                if header.magic != batch.MAGIC or header.producer_id < 0:
                    continue
                producer_id = self.producers.get(header.producer_id, header.producer_id)
                epoch = self.epoch(header.producer_id, header.producer_epoch)
                if (producer_id, epoch) != (header.producer_id, header.producer_epoch):
                    made = bytearray(records) if made is None else made
                    _rewrite(made, position, header, producer_id, epoch)
        except CorruptRecords:
            pass
        return records if made is None else bytes(made)


def _rewrite(data: bytearray, position: int, header: batch.BatchHeader, producer_id: int, epoch: int) -> None:
    """Replaces the producer of a batch, and its CRC unless that was wrong before."""
    was_right = batch.crc_matches(data, position, header)
    data[position + PRODUCER_ID_AT : position + PRODUCER_EPOCH_AT] = producer_id.to_bytes(8, "big", signed=True)
    data[position + PRODUCER_EPOCH_AT : position + PRODUCER_EPOCH_AT + 2] = epoch.to_bytes(2, "big", signed=True)
    if was_right:
        crc = crc32c(memoryview(data)[position + CRC_FROM : position + header.size_bytes])
        data[position + CRC_AT : position + CRC_AT + 4] = crc.to_bytes(4, "big")


Kind = Callable[[Ids, Any, str, Value, Place], Any]


def _node(ids: Ids, value: Any, name: str, owner: Value, place: Place) -> Any:
    return ids.nodes.get(value, value) if isinstance(value, int) else value


def _producer(ids: Ids, value: int, name: str, owner: Value, place: Place) -> int:
    return ids.producers.get(value, value)


def _producer_epoch(ids: Ids, value: int, name: str, owner: Value, place: Place) -> int:
    return ids.epoch(getattr(owner, name.removesuffix("epoch") + "id", NO_ID), value)


def _member(ids: Ids, value: str, name: str, owner: Value, place: Place) -> str:
    return ids.members.get(value, value)


def _generation(ids: Ids, value: int, name: str, owner: Value, place: Place) -> int:
    return ids.generations.get((place.group, value), value)


def _topic_id(ids: Ids, value: bytes, name: str, owner: Value, place: Place) -> bytes:
    return ids.topic_ids.get(bytes(value), value)


def _leader_epoch(ids: Ids, value: int, name: str, owner: Value, place: Place) -> int:
    return ids.leader_epochs.get((place.topic, place.partition, value), value)


def _offset(ids: Ids, value: Any, name: str, owner: Value, place: Place) -> Any:
    return value + ids.shift(place) if isinstance(value, int) and value >= 0 else value


def _cluster(ids: Ids, value: str, name: str, owner: Value, place: Place) -> str:
    return ids.clusters.get(value, value)


def _resource(ids: Ids, value: str, name: str, owner: Value, place: Place) -> str:
    if getattr(owner, "resource_type", 0) not in OF_NODES or not (value.isascii() and value.isdigit()):
        return value
    return str(ids.nodes.get(int(value), int(value)))


def _token(ids: Ids, value: Any, name: str, owner: Value, place: Place) -> Any:
    if isinstance(value, str):
        return ids.tokens.get(value, value)
    if bytes(value) in ids.tokens:
        return ids.tokens[bytes(value)]
    # Recordings have zeros for secrets.
    return value if ids.newest_token is None or any(value) else ids.newest_token


def _instance(ids: Ids, value: bytes, name: str, owner: Value, place: Place) -> bytes:
    return ids.instances.get(bytes(value), value)


def _subscription(ids: Ids, value: int, name: str, owner: Value, place: Place) -> int:
    return ids.subscriptions.get(value, value)


def _records(ids: Ids, value: Any, name: str, owner: Value, place: Place) -> Any:
    return ids.records(value)


_KINDS: dict[str, Kind] = {
    **dict.fromkeys(NODES, _node),
    **dict.fromkeys(LEADER_EPOCHS, _leader_epoch),
    **dict.fromkeys(OFFSETS, _offset),
    **dict.fromkeys(("producer_id", "v3_and_below_producer_id", "ongoing_txn_producer_id"), _producer),
    **dict.fromkeys(("producer_epoch", "v3_and_below_producer_epoch", "ongoing_txn_producer_epoch"), _producer_epoch),
    **dict.fromkeys(("member_id", "leader"), _member),
    **dict.fromkeys(("generation_id", "generation_id_or_member_epoch"), _generation),
    **dict.fromkeys(("hmac", "token_id"), _token),
    "producer_id_filters": _producer,
    "topic_id": _topic_id,
    "cluster_id": _cluster,
    "resource_name": _resource,
    "client_instance_id": _instance,
    "subscription_id": _subscription,
    "records": _records,
}
