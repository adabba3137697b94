"""Rules of faults: their conditions, how often they fire, and their JSON form. Pure: no event loop, no clock, no I/O.

A `Rule` is a value; a `StandingRule` is a rule in force, with its counters. A rule counts its matches: one for each
request (or operation of the disk), however many partitions of it match. The first `after` matches do not fire; for
later ones `nth`, `probability` and `times` decide. A rule for handshakes counts connections.
"""

from __future__ import annotations

import functools
import random
import threading
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, fields
from fnmatch import fnmatchcase
from typing import Any, TypeGuard, cast

from ...protocol.api_key import ApiKey
from ...protocol.limits import INT64_MAX
from ...protocol.names import did_you_mean
from ...protocol.narrowing import is_mapping
from ..message_parts import Place
from ..releases.profiles import api_names
from .actions import ACTIONS, DISK, HANDSHAKE, PARAMETERS, REQUEST, SOCKET, Action

COUNT_MAX = INT64_MAX
# The conditions of a rule by its scope; a rule with any other condition would never match.
_CONDITIONS = {
    REQUEST: {"api", "topic", "partition", "client_id", "listener", "node", "nth", "times", "after", "probability"},
    DISK: {"topic", "partition", "nth", "times", "after", "probability"},
    SOCKET: {"listener", "node"},
    HANDSHAKE: {"listener", "node", "nth", "times", "after", "probability"},
}
_LEAST = {"partition": 0, "node": 0, "nth": 1, "times": 1, "after": 0, "seed": -COUNT_MAX}


@functools.cache
def _api_keys() -> dict[str, int]:
    return {name: key for key, name in api_names().items()}


def _api_name(api: Any) -> str:
    """Returns the name of an API given by name or key. Raises ValueError."""
    names = api_names()
    if isinstance(api, int) and not isinstance(api, bool) and api in names:
        return names[api]
    if isinstance(api, str) and api in _api_keys():
        return api
    raise ValueError(f"no API is called {api!r}{did_you_mean(str(api), _api_keys(), 0.5)}")


def _apis(api: Any) -> tuple[str, ...] | None:
    if api is None:
        return None
    listed = [api] if isinstance(api, str | int) else api
    if not _is_collection(listed) or not listed:
        raise ValueError(f"api must be a name, a number or a list of them, not {api!r}")
    return tuple(dict.fromkeys(map(_api_name, listed)))


def _is_collection(value: object) -> TypeGuard[Collection[Any]]:
    return isinstance(value, list | tuple | set | frozenset)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """The requests (or operations of the disk, or listeners) that a fault applies to, how often, and its action.

    `api` is a name, a key or several of them. `topic` and `client_id` are names or patterns (`*`, `?`, `[...]`). `nth`
    is the one match that fires, counted from 1 after the first `after` matches. `times` is the highest number of times
    it fires. `seed` makes `probability` and the bits of `garble` repeatable. Raises ValueError.
    """

    action: Action
    api: str | int | Sequence[str | int] | None = None
    topic: str | None = None
    partition: int | None = None
    client_id: str | None = None
    listener: str | None = None
    node: int | None = None
    nth: int | None = None
    times: int | None = None
    after: int = 0
    probability: float = 1.0
    seed: int | None = None

    def __post_init__(self) -> None:
        if not isinstance(cast(object, self.action), Action):
            raise ValueError(f"action must be one of {', '.join(ACTIONS)}")
        object.__setattr__(self, "api", _apis(self.api))
        for name in ("topic", "client_id", "listener"):
            if not isinstance(getattr(self, name), str | None):
                raise ValueError(f"{name} must be a text, not {getattr(self, name)!r}")
        for name, least in _LEAST.items():
            value = getattr(self, name)
            if value is None and name != "after":
                continue
            if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= COUNT_MAX:
                raise ValueError(f"{name} must be a whole number from {least} on, not {value!r}")
        chance: Any = self.probability
        if isinstance(chance, bool) or not isinstance(chance, int | float) or not 0 < chance <= 1:
            raise ValueError(f"probability must be above 0 and at most 1, not {chance!r}")
        self._check_scope()

    def _check_scope(self) -> None:
        scope = self.action.scope
        allowed = {"action", "seed", *_CONDITIONS[scope]}
        for one in fields(self):
            if one.name not in allowed and getattr(self, one.name) != one.default:
                raise ValueError(f"{self.action.name} has no condition {one.name!r}")
        if self.action.name == "wrong_crc" and self.api not in (None, ("Fetch",)):
            raise ValueError("wrong_crc is for Fetch only")

    def matches_place(self, place: Place) -> bool:
        """Returns whether the rule's topic and partition match a place."""
        if self.partition is not None and place.partition != self.partition:
            return False
        return self.topic is None or (place.topic is not None and fnmatchcase(place.topic, self.topic))

    @property
    def is_narrow(self) -> bool:
        """Whether the rule names a topic or a partition."""
        return self.topic is not None or self.partition is not None

    def to_json(self) -> dict[str, Any]:
        """Returns the fields that differ from their defaults, in one flat object."""
        found = self.action.to_json()
        for one in fields(self):
            value = getattr(self, one.name)
            if one.name != "action" and value != one.default:
                found[one.name] = value[0] if one.name == "api" and len(value) == 1 else value
                if isinstance(found[one.name], tuple):
                    found[one.name] = list(found[one.name])
        return found

    @classmethod
    def from_json(cls, data: Any) -> Rule:
        """Reads the result of `to_json`. Raises ValueError, one line, for anything else."""
        if not is_mapping(data):
            raise ValueError("a fault must be an object with an action")
        name = data.get("action")
        if not isinstance(name, str) or name not in ACTIONS:
            raise ValueError(f"action must be one of {', '.join(ACTIONS)}, not {name!r}")
        known = {one.name for one in fields(cls)}
        parameters = PARAMETERS[name]
        for key in data:
            if key not in known and key not in parameters:
                raise ValueError(f"{name} has no {key!r}")
        try:
            action = ACTIONS[name](**{key: data[key] for key in parameters if key in data})
        except TypeError:
            missing = [key for key in parameters if key not in data]
            raise ValueError(f"{name} needs {', '.join(missing)}") from None
        return cls(action=action, **{key: data[key] for key in data if key in known and key != "action"})


class StandingRule:
    """A rule in force: its id, its matches and how often it fired. The counters may be used in any thread."""

    def __init__(self, id: int, rule: Rule) -> None:
        self.id = id
        self.rule = rule
        self.matched = 0
        self.fired = 0
        self.is_removed = False
        self.on_removed: list[Callable[[], None]] = []
        """Called on the event loop when the rule is removed, so that stalled requests resume."""
        self.random = random.Random(rule.seed)
        self._keys = None if rule.api is None else frozenset(_api_keys()[name] for name in rule.api)  # type: ignore[index]
        if rule.action.name == "wrong_crc":
            self._keys = frozenset((ApiKey.FETCH,))
        self._changed = threading.Condition()

    def matches_request(self, api_key: int, client_id: str, listener: str, node_id: int) -> bool:
        """Returns whether a request matches, apart from its topics and partitions."""
        rule = self.rule
        return (
            (self._keys is None or api_key in self._keys)
            and (rule.client_id is None or fnmatchcase(client_id, rule.client_id))
            and (rule.listener is None or rule.listener == listener)
            and (rule.node is None or rule.node == node_id)
        )

    def matches_connection(self, listener: str, node_id: int) -> bool:
        """Returns whether a connection matches."""
        rule = self.rule
        return rule.listener in (None, listener) and rule.node in (None, node_id)

    def matches_places(self, places: Iterable[Place]) -> bool:
        """Returns whether any of the places matches."""
        return any(map(self.rule.matches_place, places))

    def take(self) -> bool:
        """Counts a match. Returns whether the rule fires for it."""
        rule = self.rule
        with self._changed:
            self.matched += 1
            number = self.matched - rule.after
            fires = number > 0 and rule.nth in (None, number) and (rule.times is None or self.fired < rule.times)
            if fires and rule.probability < 1:
                fires = self.random.random() < rule.probability
            self.fired += fires
            self._changed.notify_all()
        return fires

    def wait_fired(self, times: int, seconds: float) -> bool:
        """Waits, in a thread other than the broker's, until the rule has fired `times` times. Returns whether it
        has.
        """
        with self._changed:
            return self._changed.wait_for(lambda: self.fired >= times, seconds)

    def removed(self) -> None:
        """Marks the rule as removed and resumes stalled requests."""
        self.is_removed = True
        waiting, self.on_removed = self.on_removed, []
        for call in waiting:
            call()

    def to_json(self) -> dict[str, Any]:
        """Returns the rule with its id and its counters."""
        return {"id": self.id, "matched": self.matched, "fired": self.fired, **self.rule.to_json()}
