"""Where an API's answers have errors, and which part of a request each is about: read from the declarations.

Owns the pairing of an answer's lists with the request's (both name topics, partitions, groups or the like), so that
an error can be answered for a part of a request while the rest of it is done. Only how fields are called is known
here, no API but two whose empty list of topics asks for all. Pure.
"""

from __future__ import annotations

import copy
import functools
import re
import sys
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol

from ..protocol.errors import ErrorCode
from ..protocol.primitives import ZERO_UUID, Array, Blob
from ..protocol.schema import Group, empty_value, spec, struct_of

pass

# Fields that say what an entry is about, by what it is.
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
# Lists of requests in which topics and partitions are named.
_PLACES = re.compile("topic|partition|^groups$|^transactions$|^markers$|^resources$|^dirs$")
_OF_TOPICS = {"topic", "topic id", "resource"}
_TOPIC_RESOURCE = 2
# (API key, version) in which an empty list asks for all topics; elsewhere it asks for none, and null for all.
_EMPTY_IS_ALL = {(3, 0), (75, 0)}
# What stands for nothing, where that is neither zero nor the field's default.
_NOTHING: dict[str, Any] = {"topic_id": ZERO_UUID} | dict.fromkeys(
    "base_offset committed_offset high_watermark last_stable_offset leader_id low_watermark node_id port "
    "producer_epoch producer_id".split(),
    -1,
)
# What an entry keeps of what was answered before it was made an error.
_KEPT = ("replica_nodes", "isr_nodes", "offline_replicas", "is_internal")
# Errors of a request as a whole, and those of a group or its members, which no partition is told if others can be.
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
    """A partition that is asked for; `topic` None where it is not known, `partition` None where all of a topic are."""

    topic: str | None
    partition: int | None


class Level(NamedTuple):
    """A list in an answer. `asked` is the list in the request that it answers, None if there is none such; `code` the
    field for errors of its entries, if they have one."""

    field: str
    layout: Group
    kinds: dict[str, str]
    code: str | None
    asked: str | None
    asked_layout: Group | None
    inner: tuple[Level, ...]

    @property
    def is_paired(self) -> bool:
        """Whether its entries are known from the request."""
        return self.asked is not None


Path = tuple[Level, ...]  # from the top of an answer down to a list; () is the top itself


class Shape(NamedTuple):
    """An API in one version: the class and layout of its answers, where they have errors, and the request's layout."""

    api_key: int
    version: int
    response_class: type
    layout: Group
    code: str | None
    asked_layout: Group
    levels: tuple[Level, ...]
    paths: tuple[Path, ...]


class Topics(Protocol):
    """What is looked up of a broker's topics."""

    def topic_name(self, id: bytes) -> str | None: ...

    def topic_names(self) -> list[str]: ...

    def partition_count(self, topic: str) -> int: ...


def response_class_of(request_class: type) -> type:
    """The class of an API's answers."""
    name = request_class.__name__.removesuffix("Request") + "Response"
    return getattr(sys.modules[request_class.__module__], name)


@functools.cache
def shape_of(request_class: type, version: int) -> Shape:
    """The shape of an API in a version that is declared."""
    response_class = response_class_of(request_class)
    layout, asked = struct_of(response_class, version), struct_of(request_class, version)
    levels = _levels(layout, asked)
    code = _code(layout)
    paths: list[Path] = [] if code is None else [()]
    paths += _paths(levels, ())
    return Shape(spec(request_class).api_key, version, response_class, layout, code, asked, levels, tuple(paths))


def _fields(layout: Group) -> Iterator[tuple[str, Any]]:
    yield from layout.plan
    yield from (layout.tags or {}).values()


def _code(layout: Group) -> str | None:
    names = {name for name, _ in _fields(layout)}
    return next((name for name in _CODES if name in names), None)


def _kinds(name: str, item: Any) -> dict[str, str]:
    """What an entry of a list is known by: kind -> field, "" for the entry itself."""
    if isinstance(item, Group):
        return {_IDENTITY[field]: field for field, _ in item.plan if field in _IDENTITY}
    return {_LISTS[name]: ""} if name in _LISTS else {}


def _levels(layout: Group, asked: Group | None) -> tuple[Level, ...]:
    """The lists of an answer that have errors, or lists with errors in them."""
    found: list[Level] = []
    for name, codec in _fields(layout):
        if not isinstance(codec, Array) or not isinstance(codec.item, Group):
            continue
        kinds = _kinds(name, codec.item)
        asked_name, asked_item = _asked(kinds, asked)
        asked_layout = asked_item if isinstance(asked_item, Group) else None
        inner = _levels(codec.item, asked_layout)
        code = _code(codec.item)
        if code is not None or inner:
            found.append(Level(name, codec.item, kinds, code, asked_name, asked_layout, inner))
    return tuple(found)


def _asked(kinds: dict[str, str], asked: Group | None) -> tuple[str | None, Any]:
    """The request's list that has entries of one of these kinds."""
    for name, codec in _fields(asked) if asked is not None else ():
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
    """Where in an answer an error goes; `topic` and `partition` say that only some of these are to have it.

    As brokers do: into the partitions, topics or other entries that were asked for; an error of the whole to the top.
    None where the answer has no place for any error.
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
    return paths[0] if paths else None  # what an entry holds is not known before it is answered


def is_of_topics(path: Path) -> bool:
    """Whether the entries at a place are about topics or partitions."""
    return any({"partition", *_OF_TOPICS} & level.kinds.keys() for level in path)


# What a request is about


def _place(kinds: dict[str, str], entry: Any, above: Place, topics: Topics) -> Place:
    """The topic and the partition of an entry, where it names them."""
    topic, partition = above
    found = {kind: entry if field == "" else getattr(entry, field) for kind, field in kinds.items()}
    if found.get("resource type", _TOPIC_RESOURCE) == _TOPIC_RESOURCE:
        topic = found.get("topic") or found.get("resource") or topic
    if topic is None and found.get("topic id", ZERO_UUID) != ZERO_UUID:
        topic = topics.topic_name(found["topic id"])
    return Place(topic, found.get("partition", partition))


def places(request: Any, shape: Shape, topics: Topics) -> list[Place]:
    """The topics and partitions that a request names; of one that asks for all topics, all. A topic's partitions are
    listed where they have errors of their own in the answer though the request does not name them."""
    found = list(_places(request, shape.asked_layout, Place(None, None), shape, topics))
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
    """Whether a list of a request asks for whatever there is."""
    return entries is None or (not entries and (shape.api_key, shape.version) in _EMPTY_IS_ALL)


# Errors for a part of a request


class Divided(NamedTuple):
    """A request in two: what is left to do (None when that is nothing), and the answer to the other part (None when
    that has no place in an answer)."""

    rest: Any
    refused: Any


def divide(
    request: Any, shape: Shape, path: Path, code: int, chosen: Callable[[Place], bool], topics: Topics
) -> Divided:
    """Takes what is chosen out of a request, and answers it with an error at `path`, all of which is paired."""
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
    """Moves what is chosen from a copy to its answer; whether anything is left."""
    level, inner = path[0], path[1:]
    kept: list[Any] = []
    errors: list[Any] = []
    asked = level.asked or ""
    kinds = _kinds(asked, level.asked_layout)
    for entry in getattr(rest, asked) or ():
        here = _place(kinds, entry, above, topics)
        if not inner:
            if chosen(here):
                errors.append(_error(level, kinds, entry, code))
            else:
                kept.append(entry)
            continue
        entry = copy.copy(entry)
        answer = _error(level, kinds, entry, 0)
        left = _divide(entry, answer, inner, code, chosen, here, topics)
        refuses = bool(getattr(answer, inner[0].field))
        if refuses:
            errors.append(answer)
        if left or not refuses:
            kept.append(entry)
    setattr(rest, asked, kept)
    setattr(refused, level.field, errors)
    return bool(kept)


def whole_error(request: Any, shape: Shape, code: int) -> Any:
    """The answer that says no to all of a request, at its top."""
    answer = empty_value(shape.response_class)
    _set_nothing(answer, shape.layout)
    for name, _ in shape.layout.plan:
        if name in _IDENTITY and hasattr(request, name):
            setattr(answer, name, getattr(request, name))
    setattr(answer, shape.code or "", code)
    return answer


def _error(level: Level, kinds: dict[str, str], entry: Any, code: int) -> Any:
    """An entry of the answer that names what the request's entry does, and holds nothing but an error."""
    answer = empty_value(level.layout.cls)
    _set_nothing(answer, level.layout)
    codecs = dict(level.layout.plan)
    for kind, field in level.kinds.items():
        if kind in kinds:
            value = entry if kinds[kind] == "" else getattr(entry, kinds[kind])
            codec = codecs[field]
            if value is None and isinstance(codec, Blob) and not codec.length.nullable:
                value = ""
            setattr(answer, field, value)
    if level.code is not None:
        setattr(answer, level.code, code)
    return answer


def _set_nothing(answer: Any, layout: Group) -> None:
    for name, _ in layout.plan:
        if name in _NOTHING:
            setattr(answer, name, _NOTHING[name])


def merge(answer: Any, refused: Any, levels: tuple[Level, ...]) -> None:
    """Adds the answer to one part of a request to that to another."""
    for level in levels:
        there = getattr(answer, level.field)
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


def overwrite(answer: Any, path: Path, code: int, chosen: Callable[[Place], bool], topics: Topics) -> bool:
    """Makes errors of the entries of an answer that are chosen; whether there were any."""
    return bool(path) and _overwrite(answer, path, code, chosen, Place(None, None), topics)


def _overwrite(
    answer: Any, path: Path, code: int, chosen: Callable[[Place], bool], above: Place, topics: Topics
) -> bool:
    level, inner = path[0], path[1:]
    entries = getattr(answer, level.field)
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
            if not level.kinds:  # what it is about has a name that is only its own
                for name, codec in level.layout.plan:
                    if isinstance(codec, Blob) and codec.text and name != "error_message":
                        setattr(error, name, getattr(entry, name))
    return found


def is_known(request: Any, shape: Shape, path: Path) -> bool:
    """Whether the request itself says what the entries at `path` will be."""
    return all(level.is_paired for level in path) and not _leaves_open(request, path, shape)


def _leaves_open(value: Any, path: Path, shape: Shape) -> bool:
    if not path:
        return False
    asked = getattr(value, path[0].asked or "")
    if _is_open(asked, shape):
        return True
    return path[0].asked_layout is not None and any(_leaves_open(entry, path[1:], shape) for entry in asked)
