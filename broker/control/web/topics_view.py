"""Topics, a topic with its partitions, and a partition with its segments."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ....protocol.narrowing import is_list, is_tuple
from ....storage.errors import StorageError
from ....storage.format.partition_metadata import encode_id
from ...admin_api.operations import partition_info
from ...admin_api.overview import topic_row
from .logs import format_name, formats_of, segments_of
from .page import Columns, Page, PageRequest, listing
from .records import partition_of, topic_named

if TYPE_CHECKING:
    from ...admin_api.views import PartitionInfo
    from ...broker_state import BrokerState
    from ...metadata.topics import Topic
    from ...replica.partition import Partition

AT_ONCE = 500  # partitions in one step on the event loop
SHOWN_SEGMENTS = 50
LOOKED_PARTITIONS = 8  # of a topic in a list, whose first and last batches are read for their formats
_TOPICS: Columns[dict[str, Any]] = {
    "name": lambda row: row["name"],
    "partitions": lambda row: (row["partitions"], row["name"]),
    "records": lambda row: (row["records"], row["name"]),
    "size": lambda row: (row["size_bytes"], row["name"]),
}
_PARTITIONS: Columns[PartitionRow] = {
    "partition": lambda row: row.partition.index,
    "records": lambda row: (row.records, row.partition.index),
    "size": lambda row: (row.info.size_bytes, row.partition.index),
    "segments": lambda row: (row.segments, row.partition.index),
    "leader": lambda row: (row.partition.leader, row.partition.index),
}


@dataclass(frozen=True, slots=True)
class PartitionRow:
    """A partition of a topic, with its present offsets."""

    partition: Partition
    info: PartitionInfo
    segments: int

    @property
    def records(self) -> int:
        """The number of its offsets."""
        return max(0, self.info.end_offset - self.info.start_offset)


def partition_row(partition: Partition) -> PartitionRow:
    """Returns the present facts of a partition."""
    info = partition_info(partition)
    return PartitionRow(partition, info, len(partition.log.segments) if info.offline is None else 0)


async def topics(request: PageRequest) -> Page:
    """Lists the topics, with the form that creates one."""
    state = request.plane.operations.running.state
    wanted, kind = request.query.text("q"), request.query.choice("kind", ("yours", "internal", "all"))
    rows: list[dict[str, Any]] = []
    looked = counted = 0
    for topic in list(state.topics):
        counted += 1
        if kind != "all" and topic.is_internal is not (kind == "internal"):
            continue
        if wanted.casefold() not in topic.name.casefold():
            continue
        rows.append(topic_row(topic) | {"policy": _policy(topic)})
        looked += len(topic.partitions)
        if looked >= AT_ONCE:
            looked = 0
            await asyncio.sleep(0)
    found = listing(rows, request.query, _TOPICS, 50)
    stored = {row["name"]: await _stored(state, row["name"]) for row in found.rows}
    values = {"list": found, "stored": stored, "q": wanted, "kind": kind, "counted": counted}
    return Page("topics.html", "Topics", "topics", values)


def _policy(topic: Topic) -> str:
    policy = topic.config["cleanup.policy"]
    return ",".join(policy) if is_list(policy) or is_tuple(policy) else str(policy)


async def _stored(state: BrokerState, name: str) -> list[str]:
    """Returns the formats of the first and last batches of a topic's first logs."""
    topic = state.topics.get(name)
    found: dict[str, None] = {}
    for partition in topic.partitions[:LOOKED_PARTITIONS] if topic is not None else ():
        try:
            found |= dict.fromkeys(formats_of(partition.log))
        except StorageError:
            continue
    await asyncio.sleep(0)
    return list(found)


async def topic(request: PageRequest) -> Page:
    """Shows one topic: its partitions and its configs."""
    state = request.plane.operations.running.state
    found = topic_named(state, request.path["topic"])
    rows = [partition_row(partition) for partition in found.partitions]
    listed = listing(rows, request.query, _PARTITIONS)
    formats: dict[int, list[str]] = {}
    for row in listed.rows:
        try:
            formats[row.partition.index] = formats_of(row.partition.log)
        except StorageError:
            formats[row.partition.index] = []
        await asyncio.sleep(0)
    values = {
        "name": found.name,
        "id": encode_id(found.id),
        "is_internal": found.is_internal,
        "list": listed,
        "formats": formats,
        "records": sum(row.records for row in rows),
        "size_bytes": sum(max(0, row.info.size_bytes) for row in rows),
        "offline": sum(row.info.leader < 0 for row in rows),
        "configs": sorted(found.config.overrides.items()),
        "written": _written(found),
    }
    return Page("topic.html", found.name, "topics", values)


def _written(topic: Topic) -> str:
    """Returns the message format of new records, if a log is online."""
    for partition in topic.partitions:
        try:
            return format_name(partition.log.config.rules.target_magic, 0)
        except StorageError:
            continue
    return "unknown"


async def partition(request: PageRequest) -> Page:
    """Shows one partition: its offsets, its segments, its producers."""
    state = request.plane.operations.running.state
    name, index = request.path["topic"], int(request.path["partition"][:10])
    found = partition_of(state, name, index)
    row = partition_row(found)
    values: dict[str, Any] = {"topic": name, "row": row, "directory": None, "segments": [], "from": 0, "failure": None}
    values |= {"producers": [], "more_producers": 0, "newest": 0, "older": None, "newer": None, "open": {}}
    if row.info.offline is None:
        try:
            log = found.log
            count = len(log.segments)
            first = request.query.whole("from", max(0, count - SHOWN_SEGMENTS)) or 0
            first = max(0, min(first, count - 1))
            known = sorted(log.producers().items())
            values |= {
                "segments": await segments_of(log, first, SHOWN_SEGMENTS),
                "from": first,
                "older": max(0, first - SHOWN_SEGMENTS) if first else None,
                "newer": first + SHOWN_SEGMENTS if first + SHOWN_SEGMENTS < count else None,
                "directory": log.directory,
                "producers": known[:20],
                "more_producers": max(0, len(known) - 20),
                "open": log.open_transactions(),
                "failure": log.failure,
            }
        except StorageError as error:
            values["failure"] = str(error)
    return Page("partition.html", f"{name}-{index}", "topics", values)
