"""The errors in an API's responses, and the part of a request that each is about: read from the declarations.

Owns the pairing of a response's lists with the request's lists (both name topics, partitions, groups or the like), so
that an error can be returned for a part of a request while the rest is handled. Works by the names of fields; the only
APIs named here are two whose empty list of topics means all topics. Pure.
"""

from __future__ import annotations

import copy
import functools
import re
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from ..protocol.errors import ErrorCode
from ..protocol.named import NamedTuple
from ..protocol.primitives import ZERO_UUID, Array, Blob
from ..protocol.schema import Group, empty_value, group_of, response_class, spec

# Fields that identify an entry -> the kind of thing they name.
_IDENTITY = {
    "name": "topic",
    "topic": "topic",
    "topic_name": "topic",
    "topic_id": "topic id",
    "partition_index": "partition",
    "index": "partition",
    "partition": "partition",
    "partition_id": "partition",
    "group_id": "group",
    "key": "key",
    "transactional_id": "transaction",
    "producer_id": "producer",
    "member_id": "member",
    "group_instance_id": "instance",
    "resource_type": "resource type",
    "resource_name": "resource",
}
# The same for lists of names or numbers.
_LISTS = {
    "topic_names": "topic",
    "partitions": "partition",
    "partition_indexes": "partition",
    "groups": "group",
    "groups_names": "group",
    "coordinator_keys": "key",
    "transactional_ids": "transaction",
}
_CODES = ("error_code", "partition_error_code")
# Lists of requests that name topics and partitions.
_PLACES = re.compile("topic|partition|^groups$|^transactions$|^markers$|^resources$|^dirs$")
_OF_TOPICS = {"topic", "topic id", "resource"}
_TOPIC_RESOURCE = 2
# (API key, version) in which an empty list means all topics; elsewhere it means none, and null means all.
_EMPTY_IS_ALL = {(3, 0), (75, 0)}
# Values for "nothing" that are neither zero nor the field's default.
_NOTHING: dict[str, Any] = {"topic_id": ZERO_UUID} | dict.fromkeys(
    "base_offset committed_offset high_watermark last_stable_offset leader_id low_watermark node_id port "
    "producer_epoch producer_id".split(),
    -1,
)
# Fields that an entry keeps when it is overwritten with an error.
_KEPT = ("replica_nodes", "isr_nodes", "offline_replicas", "is_internal")
# Errors of a request as a whole, and of a group or its members: placed in partitions only if there is no other place.
_OF_ALL = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.INVALID_GROUP_ID,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.UNSUPPORTED_VERSION,
    ErrorCode.INVALID_REQUEST,
    ErrorCode.NON_EMPTY_GROUP,
    ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    ErrorCode.REBOOTSTRAP_REQUIRED,
}
_OF_GROUPS = {
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.FENCED_INSTANCE_ID,
    ErrorCode.FENCED_MEMBER_EPOCH,
    ErrorCode.STALE_MEMBER_EPOCH,
}


class Place(NamedTuple):
    """A partition named in a request. `topic` is None if it is unknown, `partition` is None for all partitions of a
    topic.
    """

    topic: str | None
    partition: int | None


class Level(NamedTuple):
    """A list in a response.

    `request_list` is the list in the request that it corresponds to, or None; `code` is the field for errors of its
    entries, or None.
    """

    field: str
    layout: Group
    kinds: dict[str, str]
    code: str | None
    request_list: str | None
    request_layout: Group | None
    inner: tuple[Level, ...]

    @property
    def is_paired(self) -> bool:
        """Whether its entries follow from the request."""
        return self.request_list is not None


Path = tuple[Level, ...]  # from the top of a response down to a list; () is the top itself


class Shape(NamedTuple):
    """An API in one version: the class and layout of its response, the places for errors in it, and the request's
    layout.
    """

    api_key: int
    version: int
    response_class: type
    layout: Group
    code: str | None
    request_layout: Group
    levels: tuple[Level, ...]
    paths: tuple[Path, ...]


class Topics(Protocol):
    """The lookups of a broker's topics that are needed here."""

    def topic_name(self, id: bytes) -> str | None: ...

    def topic_names(self) -> list[str]: ...

    def partition_count(self, topic: str) -> int: ...


@functools.cache
def shape_of(request_class: type, version: int) -> Shape:
    """Returns the shape of an API in a declared version."""
    responses = response_class(request_class)
    layout, request_layout = group_of(responses, version), group_of(request_class, version)
    levels = _levels(layout, request_layout)
    code = _code(layout)
    paths: list[Path] = [] if code is None else [()]
    paths += _paths(levels, ())
    return Shape(spec(request_class).api_key, version, responses, layout, code, request_layout, levels, tuple(paths))


def _fields(layout: Group) -> Iterator[tuple[str, Any]]:
    yield from layout.plan
    yield from (layout.tags or {}).values()


def _code(layout: Group) -> str | None:
    names = {name for name, _ in _fields(layout)}
    return next((name for name in _CODES if name in names), None)


def _kinds(name: str, item: Any) -> dict[str, str]:
    """The fields that identify an entry of a list: kind -> field, "" for the entry itself."""
    if isinstance(item, Group):
        return {_IDENTITY[field]: field for field, _ in item.plan if field in _IDENTITY}
    return {_LISTS[name]: ""} if name in _LISTS else {}


def _levels(layout: Group, request_layout: Group | None) -> tuple[Level, ...]:
    """The lists of a response that have errors, or contain lists with errors."""
    found: list[Level] = []
    for name, codec in _fields(layout):
        if not isinstance(codec, Array) or not isinstance(codec.item, Group):
            continue
        kinds = _kinds(name, codec.item)
        list_name, list_item = _request_list(kinds, request_layout)
        item_layout = list_item if isinstance(list_item, Group) else None
        inner = _levels(codec.item, item_layout)
        code = _code(codec.item)
        if code is not None or inner:
            found.append(Level(name, codec.item, kinds, code, list_name, item_layout, inner))
    return tuple(found)


def _request_list(kinds: dict[str, str], request_layout: Group | None) -> tuple[str | None, Any]:
    """The request's list with entries of one of these kinds."""
    for name, codec in _fields(request_layout) if request_layout is not None else ():
        if isinstance(codec, Array) and kinds.keys() & _kinds(name, codec.item).keys():
            return name, codec.item
    return None, None


def _paths(levels: tuple[Level, ...], above: Path) -> Iterator[Path]:
    for level in levels:
        path = (*above, level)
        if level.code is not None:
            yield path
        yield from _paths(level.inner, path)


def place_of_error(shape: Shape, code: int, *, topic: bool = False, partition: bool = False) -> Path | None:
    """Returns the place of an error in a response. `topic` and `partition` mean that only some topics or partitions get
    it.

    As in brokers: errors go into the requested partitions, topics or other entries, and errors of the whole request to
    the top. Returns None if the response has no place for an error.
    """
    paths = sorted(shape.paths, key=len)
    paired = [path for path in paths if path and all(level.is_paired for level in path)]
    if partition or topic:
        kinds = {"partition"} if partition else {"partition", *_OF_TOPICS}
        of_topics = [path for path in paths if path and kinds & path[-1].kinds.keys()]
        known = [path for path in of_topics if path in paired]
        if of_topics:
            return (of_topics if partition else known or of_topics)[-1]
        return paths[0] if paths else None
    if code in _OF_ALL:
        return paths[0] if paths else None
    if code in _OF_GROUPS:
        others = [path for path in paths if not path or path in paired]
        others = [path for path in others if not path or not {"partition", *_OF_TOPICS} & path[-1].kinds.keys()]
        if others:
            return others[-1]
    if paired:
        return paired[-1]
    return paths[0] if paths else None  # the entries of such a list are unknown before the response is built


def is_of_topics(path: Path) -> bool:
    """Returns whether the entries at a place are topics or partitions."""
    return any({"partition", *_OF_TOPICS} & level.kinds.keys() for level in path)


# The topics and partitions of a request


def _place(kinds: dict[str, str], entry: Any, above: Place, topics: Topics) -> Place:
    """The topic and the partition of an entry, as far as it names them."""
    topic, partition = above
    found = {kind: entry if field == "" else getattr(entry, field) for kind, field in kinds.items()}
    if found.get("resource type", _TOPIC_RESOURCE) == _TOPIC_RESOURCE:
        topic = found.get("topic") or found.get("resource") or topic
    if topic is None and found.get("topic id", ZERO_UUID) != ZERO_UUID:
        topic = topics.topic_name(found["topic id"])
    return Place(topic, found.get("partition", partition))


def places(request: Any, shape: Shape, topics: Topics) -> list[Place]:
    """Returns the topics and partitions that a request names; all topics if it requests all. The partitions of a topic
    are listed if the response has errors for them, also where the request does not name them.
    """
    found = list(_places(request, shape.request_layout, Place(None, None), shape, topics))
    if not any("partition" in path[-1].kinds for path in shape.paths if path):
        return found
    spread: list[Place] = []
    for place in found:
        spread.append(place)
        if place.topic is not None and place.partition is None:
            spread += [Place(place.topic, index) for index in range(topics.partition_count(place.topic))]
    return spread


def _places(value: Any, layout: Group, above: Place, shape: Shape, topics: Topics) -> Iterator[Place]:
    for name, codec in layout.plan:
        if not isinstance(codec, Array) or not _PLACES.search(name):
            continue
        entries, kinds = getattr(value, name), _kinds(name, codec.item)
        if _is_open(entries, shape) and _OF_TOPICS & kinds.keys():
            yield from (Place(topic, None) for topic in topics.topic_names())
        for entry in entries or ():
            here = _place(kinds, entry, above, topics)
            below = []
            if isinstance(codec.item, Group):
                below = list(_places(entry, codec.item, here, shape, topics))
            if below:
                yield from below
            elif here != above:
                yield here


def _is_open(entries: Any, shape: Shape) -> bool:
    """Whether a list of a request means all that exist."""
    return entries is None or (not entries and (shape.api_key, shape.version) in _EMPTY_IS_ALL)


# Errors for a part of a request


class Divided(NamedTuple):
    """A request in two parts: the `rest` to be handled (None if nothing is left), and the response to the `refused`
    part (None if the response has no place for it).
    """

    rest: Any
    refused: Any


def divide(
    request: Any, shape: Shape, path: Path, code: int, chosen: Callable[[Place], bool], topics: Topics
) -> Divided:
    """Removes the chosen entries from a request and returns an error response for them at `path`, whose lists are all
    paired.
    """
    if not path:
        return Divided(None, whole_error(request, shape, code))
    rest = copy.copy(request)
    refused = empty_value(shape.response_class)
    left = _divide(rest, refused, path, code, chosen, Place(None, None), topics)
    if not getattr(refused, path[0].field):
        return Divided(request, None)
    return Divided(rest if left else None, refused)


def _divide(
    rest: Any,
    refused: Any,
    path: Path,
    code: int,
    chosen: Callable[[Place], bool],
    above: Place,
    topics: Topics,
) -> bool:
    """Moves the chosen entries from a copy of the request to the response. Returns whether any entries are left."""
    level, inner = path[0], path[1:]
    kept: list[Any] = []
    errors: list[Any] = []
    name = level.request_list or ""
    kinds = _kinds(name, level.request_layout)
    for entry in getattr(rest, name) or ():
        here = _place(kinds, entry, above, topics)
        if not inner:
            if chosen(here):
                errors.append(_error(level, kinds, entry, code))
            else:
                kept.append(entry)
            continue
        entry = copy.copy(entry)
        response = _error(level, kinds, entry, 0)
        left = _divide(entry, response, inner, code, chosen, here, topics)
        refuses = bool(getattr(response, inner[0].field))
        if refuses:
            errors.append(response)
        if left or not refuses:
            kept.append(entry)
    setattr(rest, name, kept)
    setattr(refused, level.field, errors)
    return bool(kept)


def whole_error(request: Any, shape: Shape, code: int) -> Any:
    """Returns a response with an error at its top."""
    response = empty_value(shape.response_class)
    _set_nothing(response, shape.layout)
    for name, _ in shape.layout.plan:
        if name in _IDENTITY and hasattr(request, name):
            setattr(response, name, getattr(request, name))
    setattr(response, shape.code or "", code)
    return response


def _error(level: Level, kinds: dict[str, str], entry: Any, code: int) -> Any:
    """Returns a response entry that names the same thing as the request's entry, with an error and no other values."""
    response = empty_value(level.layout.cls)
    _set_nothing(response, level.layout)
    codecs = dict(level.layout.plan)
    for kind, field in level.kinds.items():
        if kind in kinds:
            value = entry if kinds[kind] == "" else getattr(entry, kinds[kind])
            codec = codecs[field]
            if value is None and isinstance(codec, Blob) and not codec.length.nullable:
                value = ""
            setattr(response, field, value)
    if level.code is not None:
        setattr(response, level.code, code)
    return response


def _set_nothing(response: Any, layout: Group) -> None:
    for name, _ in layout.plan:
        if name in _NOTHING:
            setattr(response, name, _NOTHING[name])


def merge(response: Any, refused: Any, levels: tuple[Level, ...]) -> None:
    """Adds the response to one part of a request to the response to another part."""
    for level in levels:
        there = getattr(response, level.field)
        for entry in getattr(refused, level.field):
            is_error = level.code is not None and getattr(entry, level.code) != 0
            may_hold = level.inner and not is_error
            same = next((one for one in there if may_hold and _is_same(one, entry, level)), None)
            if same is not None:
                merge(same, entry, level.inner)
            else:
                there.append(entry)


def _is_same(one: Any, other: Any, level: Level) -> bool:
    return all(getattr(one, field) == getattr(other, field) for field in level.kinds.values())


def overwrite(response: Any, path: Path, code: int, chosen: Callable[[Place], bool], topics: Topics) -> bool:
    """Overwrites the chosen entries of a response with an error. Returns whether there were any."""
    return bool(path) and _overwrite(response, path, code, chosen, Place(None, None), topics)


def _overwrite(
    response: Any, path: Path, code: int, chosen: Callable[[Place], bool], above: Place, topics: Topics
) -> bool:
    level, inner = path[0], path[1:]
    entries = getattr(response, level.field)
    found = False
    for number, entry in enumerate(entries):
        here = _place(level.kinds, entry, above, topics)
        if inner:
            found = _overwrite(entry, inner, code, chosen, here, topics) or found
        elif chosen(here):
            found = True
            entries[number] = error = _error(level, level.kinds, entry, code)
            for name in _KEPT:
                if hasattr(entry, name):
                    setattr(error, name, getattr(entry, name))
            if not level.kinds:  # identified by a field that only this list has
                for name, codec in level.layout.plan:
                    if isinstance(codec, Blob) and codec.text and name != "error_message":
                        setattr(error, name, getattr(entry, name))
    return found


def is_known(request: Any, shape: Shape, path: Path) -> bool:
    """Returns whether the request determines the entries at `path`."""
    return all(level.is_paired for level in path) and not _leaves_open(request, path, shape)


def _leaves_open(value: Any, path: Path, shape: Shape) -> bool:
    if not path:
        return False
    entries = getattr(value, path[0].request_list or "")
    if _is_open(entries, shape):
        return True
    return path[0].request_layout is not None and any(_leaves_open(entry, path[1:], shape) for entry in entries)
