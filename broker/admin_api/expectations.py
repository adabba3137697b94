"""Expectations of the requests that clients made, their check, and the text of the difference, which is bounded.

An expectation consists of named words, in Python as over HTTP. Some words select requests, others are conditions on
each selected request, the rest count the selected requests. Pure: requests are passed in as values.
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from typing import Annotated, Any, TypedDict, get_args, get_origin

from ...protocol.api_key import ApiKey
from ...protocol.apis import api_keys, apis, name_of
from ...protocol.errors import ErrorCode
from ...protocol.named import NamedTuple
from ...protocol.names import did_you_mean
from ...protocol.narrowing import is_dict, is_list
from ...protocol.primitives import Variable
from ...protocol.records.compression import CODEC_NAMES
from ...protocol.schema import types_of
from ..metrics.errors import name_of as error_name
from ..recording import decoding
from ..recording.exchange import Ending, Produced
from .seen_requests import SeenRequest
from .views import checked_text, whole

SHOWN_REQUESTS = 5
SHOWN_VALUES = 8
SHOWN_LETTERS = 60  # characters of a value
NO_ERROR = "NONE"
ACKS = {"all": -1}
CODECS = tuple(CODEC_NAMES.values())
ENDINGS = tuple(map(str, Ending))

WHICH = ("api", "client_id", "software", "principal", "node", "topic", "since")
OF_PRODUCE = ("acks", "codec", "idempotent", "transactional", "magic")
HOW = ("version", "min_version", "max_version", *OF_PRODUCE, "error", "ending", "fields")
HOW_MANY = ("count", "min_count", "max_count", "none")
WORDS = (*WHICH, *HOW, *HOW_MANY)


class Words(TypedDict, total=False):
    """The words of an expectation.

    Words that select requests: `api` (Kafka's name, or several names), `client_id`, `software`, `principal` (such as
    "User:ann") and `topic` (in these `*` and `?` are wildcards), `node`, and `since`, a mark.

    Conditions on each selected request: `version`, `min_version` and `max_version`; of Produce requests `acks`, the
    `codec` of all batches ("none" if uncompressed), `idempotent`, `transactional`, and the `magic` of the message
    format; `error`, the name of an error anywhere in the response ("NONE": no error at all); `ending` ("responded",
    "silent", "closed", "pending"); and `fields` by path, such as {"topics.name": "orders",
    "response.throttle_time_ms": 0}. In lists one matching entry is enough; in Python a value may be a predicate.

    The number of selected requests: `count`, or `min_count` (default 1) and `max_count`. With `none`, no request may
    match all of the words.
    """

    api: str | Collection[str]
    client_id: str
    software: str
    principal: str
    node: int
    topic: str
    since: int
    version: int
    min_version: int
    max_version: int
    acks: int | str
    codec: str
    idempotent: bool
    transactional: bool
    magic: int
    error: str | int
    ending: str
    fields: Mapping[str, Any]
    count: int
    min_count: int
    max_count: int
    none: bool


class Which(NamedTuple):
    """The words that select requests. Texts may contain `*` and `?`, as in fault rules."""

    keys: frozenset[int] | None = None
    client_id: str | None = None
    software: str | None = None
    principal: str | None = None
    node: int | None = None
    topic: str | None = None
    since: int = 1

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Which:
        """Returns the selection that these words describe. Raises ValueError, TypeError."""
        texts = ("client_id", "software", "principal", "topic")
        found: dict[str, Any] = {name: checked_text(name, given[name]) for name in texts if name in given}
        if "api" in given:
            api = given["api"]
            found["keys"] = frozenset(map(_api_key, [api] if isinstance(api, str) else api))
        found |= {name: whole(name, given[name]) for name in ("node", "since") if name in given}
        return cls(**found)

    def fits(self, seen: SeenRequest) -> bool:
        """Returns whether a request is selected."""
        return (
            seen.number >= self.since
            and (self.keys is None or seen.exchange.api_key in self.keys)
            and (self.node is None or seen.node == self.node)
            and _matches(self.client_id, seen.client_id)
            and _matches(self.software, seen.software)
            and _matches(self.principal, seen.principal)
            and (self.topic is None or any(fnmatchcase(topic, self.topic) for topic in seen.topics))
        )

    @property
    def text(self) -> str:
        """The selection in words, such as `Produce request of client 'orders'`."""
        found = [] if self.keys is None else [" or ".join(name_of(key) for key in sorted(self.keys))]
        found.append("request")
        named = (
            ("of client", self.client_id),
            ("by", self.software),
            ("as", self.principal),
            ("to node", self.node),
            ("for topic", self.topic),
        )
        found += [f"{words} {value!r}" for words, value in named if value is not None]
        if self.since > 1:
            found.append(f"since #{self.since}")
        return " ".join(found)


def _matches(pattern: str | None, text: str | None) -> bool:
    return pattern is None or (text is not None and fnmatchcase(text, pattern))


def _api_key(name: Any) -> int:
    key = api_keys().get(name.lower()) if isinstance(name, str) else None
    if key is None:
        hint = did_you_mean(str(name), [api.name for api in apis().values()], 0.5)
        raise ValueError(f"no API is called {name!r}{hint}")
    return key


class Condition(NamedTuple):
    """A condition on each selected request: its text, and a function that returns why a request violates it, None if it
    does not."""

    text: str
    violation: Callable[[SeenRequest], str | None]


@dataclass(frozen=True)
class Expected:
    """An expectation. `most` None is no upper bound; `is_none` expects that no request matches."""

    which: Which
    conditions: tuple[Condition, ...]
    least: int
    most: int | None
    is_none: bool

    @classmethod
    def of(cls, **words: Any) -> Expected:
        """Returns the expectation that these words describe; None stands for an omitted word. Raises ValueError,
        TypeError, one line."""
        given = {name: value for name, value in words.items() if value is not None}
        if unknown := given.keys() - set(WORDS):
            raise TypeError(f"unknown word {', '.join(sorted(unknown))}; there are {', '.join(WORDS)}")
        which = Which.of(given)
        if of_produce := [name for name in OF_PRODUCE if name in given]:
            if which.keys is None:
                which = which._replace(keys=frozenset((ApiKey.PRODUCE,)))
            elif which.keys != frozenset[int]((ApiKey.PRODUCE,)):
                raise ValueError(f"{of_produce[0]} applies only to Produce requests: omit api, or set it to Produce")
        conditions: list[Condition] = []
        for name in HOW:
            if name in given and name != "fields":
                conditions.append(_CONDITIONS[name](given[name]))
        conditions += [_field(which, path, value) for path, value in given.get("fields", {}).items()]
        return cls(which, tuple(conditions), *_how_many(given))

    @classmethod
    def filter(cls, **words: Any) -> Expected:
        """`of` without words that count. Raises ValueError, TypeError."""
        if counted := [name for name in HOW_MANY if words.get(name) is not None]:
            raise ValueError(f"{counted[0]} applies only to an assertion, not to a list of requests")
        return cls.of(**words)

    def is_met_by(self, seen: SeenRequest) -> bool:
        """Returns whether a request is selected and meets all conditions."""
        return self.which.fits(seen) and all(condition.violation(seen) is None for condition in self.conditions)

    def violations(self, seen: SeenRequest) -> list[str]:
        """Returns why a selected request does not match."""
        found = (condition.violation(seen) for condition in self.conditions)
        return [why for why in found if why is not None]

    @property
    def text(self) -> str:
        """The expectation in words."""
        how = ", ".join(condition.text for condition in self.conditions)
        if self.is_none:
            return f"no {self.which.text}" + (f" with {how}" if how else "")
        if self.most is None:
            many = f"at least {self.least}"
        else:
            many = str(self.least) if self.most == self.least else f"{self.least} to {self.most}"
        return f"{many} {self.which.text}" + (f", each with {how}" if how else "")


def _how_many(given: Mapping[str, Any]) -> tuple[int, int | None, bool]:
    counts = {name: whole(name, given[name]) for name in ("count", "min_count", "max_count") if name in given}
    for name, value in counts.items():
        if value < 0:
            raise ValueError(f"{name} is 0 or more, not {value}")
    if given.get("none"):
        if counts:
            raise ValueError(f"none expects no request: it cannot be combined with {', '.join(counts)}")
        return 0, 0, True
    if "count" in counts:
        if len(counts) > 1:
            raise ValueError("count is exact: it cannot be combined with min_count or max_count")
        return counts["count"], counts["count"], False
    most = counts.get("max_count")
    least = counts.get("min_count", 1 if most is None or most > 0 else 0)
    if most is not None and most < least:
        raise ValueError(f"min_count {least} is greater than max_count {most}")
    return least, most, False


# Conditions


def _of_version(name: str, words: str, fits: Callable[[int, int], bool]) -> Callable[[Any], Condition]:
    """Returns the maker of a condition on the version, which it compares with a given one."""

    def condition(value: Any) -> Condition:
        given = whole(name, value)

        def look(seen: SeenRequest) -> str | None:
            return None if fits(seen.version, given) else f"version is {seen.version}"

        return Condition(f"{words} {given}", look)

    return condition


def _of_produce(text: str, fits: Callable[[Produced], bool], problem: Callable[[Produced], str]) -> Condition:
    def look(seen: SeenRequest) -> str | None:
        if seen.produced is None:
            return _unreadable(seen)
        return None if fits(seen.produced) else problem(seen.produced)

    return Condition(text, look)


def _unreadable(seen: SeenRequest) -> str:
    if seen.exchange.request is None:
        return f"its {seen.exchange.request_bytes} bytes were too large to be kept"
    return "it cannot be decoded"


def _acks(value: Any) -> Condition:
    wanted = whole("acks", ACKS.get(value, value) if isinstance(value, str) else value)
    return _of_produce(f"acks {wanted}", lambda found: found.acks == wanted, lambda found: f"acks is {found.acks}")


def _codec(value: Any) -> Condition:
    if value not in CODECS:
        raise ValueError(f"no codec is called {value!r}; there are {', '.join(CODECS)}")
    return _of_produce(
        f"codec {value}",
        lambda found: found.codecs == (value,),
        lambda found: f"codec is {_listed(found.codecs) or 'none: no records'}",
    )


def _magic(value: Any) -> Condition:
    wanted = whole("magic", value)
    return _of_produce(
        f"message format v{wanted}",
        lambda found: found.magics == (wanted,),
        lambda found: f"message format is {_listed(f'v{magic}' for magic in found.magics) or 'none: no records'}",
    )


def _idempotent(value: Any) -> Condition:
    def problem(found: Produced) -> str:
        return "batches have no producer id" if value else f"batches have producer id {_listed(found.producer_ids)}"

    text = "idempotence" if value else "no idempotence"
    return _of_produce(text, lambda found: found.is_idempotent is bool(value), problem)


def _transactional(value: Any) -> Condition:
    text, problem = ("a transaction", "no") if value else ("no transaction", "a")
    return _of_produce(
        text, lambda found: found.is_transactional is bool(value), lambda _: f"it has {problem} transactional id"
    )


def _error(value: Any) -> Condition:
    wanted = error_name(value) if isinstance(value, int) and not isinstance(value, bool) else value
    if wanted not in ErrorCode.__members__:
        raise ValueError(f"no error is called {value!r}{did_you_mean(str(wanted), ErrorCode.__members__, 0.5)}")

    def look(seen: SeenRequest) -> str | None:
        if seen.exchange.ending is Ending.PENDING:
            return "it has no response yet"
        if seen.exchange.ending is Ending.CLOSED:
            return f"it has no response: {seen.reason}"
        if seen.exchange.response is None and seen.exchange.response_bytes:
            return f"the {seen.exchange.response_bytes} bytes of its response were too large to be kept"
        fits = not seen.errors if wanted == NO_ERROR else wanted in seen.errors
        return None if fits else f"the response has {_listed(seen.errors) or 'no error'}"

    return Condition("no error in the response" if wanted == NO_ERROR else f"{wanted} in the response", look)


def _ending(value: Any) -> Condition:
    if value not in ENDINGS:
        raise ValueError(f"no ending is called {value!r}; there are {', '.join(ENDINGS)}")

    def look(seen: SeenRequest) -> str | None:
        if seen.ending == value:
            return None
        return f"it is {seen.ending}" + (f": {seen.reason}" if seen.reason else "")

    return Condition(f"ending {value}", look)


_CONDITIONS: dict[str, Callable[[Any], Condition]] = {
    "version": _of_version("version", "version", operator.eq),
    "min_version": _of_version("min_version", "version at least", operator.ge),
    "max_version": _of_version("max_version", "version at most", operator.le),
    "acks": _acks,
    "codec": _codec,
    "idempotent": _idempotent,
    "transactional": _transactional,
    "magic": _magic,
    "error": _error,
    "ending": _ending,
}


def _field(which: Which, path: Any, value: Any) -> Condition:
    """Returns a condition on a field of the request or, after `response.`, of the response; in lists one matching entry
    is enough."""
    if not isinstance(path, str) or not path:
        raise TypeError(f"the path of a field is a str, not {path!r}")
    names = path.split(".")
    is_request = names[0] != "response"
    names = names if is_request and names[0] != "request" else names[1:]
    _check_path(which, path, names, is_request)
    fits = value if callable(value) else partial(_same, value)
    wanted = getattr(value, "__name__", "a function") if callable(value) else repr(value)

    def look(seen: SeenRequest) -> str | None:
        message = seen.request if is_request else seen.response
        if message is None:
            return f"{path} is unknown: " + ("the bytes were not kept" if is_request else f"it is {seen.ending}")
        found = _values(message, names)
        if any(fits(one) for one in found):
            return None
        return f"{path} is {_listed(map(repr, found))}" if found else f"{path} is absent"

    return Condition(f"{path} {wanted}", look)


def _check_path(which: Which, path: str, names: Sequence[str], is_request: bool) -> None:
    """Raises ValueError for a path that no request can have: it would never match, and with `none` always pass."""
    known = [api for api in apis().values() if which.keys is None or api.key in which.keys]
    if names and any(_has_path(api.request if is_request else api.response, names) for api in known):
        return
    whose = "" if which.keys is None else " or ".join(api.name for api in known) + " "
    raise ValueError(f"no {whose}{'request' if is_request else 'response'} has a field {path}")


def _has_path(cls: type, names: Sequence[str]) -> bool:
    """Returns whether a message has this path of field names in some version; lists on the way are skipped."""
    hint: Any = cls
    for index, name in enumerate(names):
        if not isinstance(hint, type):
            marker = get_args(hint)[1]
            return isinstance(marker, Variable) and marker.view and set(names[index:]) <= decoding.WORDS
        hint = types_of(hint).get(name)
        if hint is None:
            return False
        while get_origin(hint) is not Annotated and not isinstance(hint, type):  # unwraps list[...] and ... | None
            hint = next(arg for arg in get_args(hint) if arg is not type(None))
    return bool(names)


def _same(wanted: Any, value: Any) -> bool:
    return value == wanted and isinstance(value, bool) is isinstance(wanted, bool)


def _values(message: Any, names: Sequence[str]) -> list[Any]:
    """Returns the values at a path: several, if there are lists on the way."""
    found: list[Any] = [message]
    for name in names:
        found = [one[name] for one in _flat(found) if is_dict(one) and name in one]
    return list(_flat(found))


def _flat(values: Sequence[Any]) -> list[Any]:
    flat: list[Any] = []
    for value in values:
        flat += _flat(value) if is_list(value) else [value]
    return flat


def _listed(values: Any) -> str:
    texts = [_cut(text) for text in dict.fromkeys(map(str, values))]
    more = len(texts) - SHOWN_VALUES
    return ", ".join(texts[:SHOWN_VALUES]) + (f" and {more} more" if more > 0 else "")


def _cut(text: str) -> str:
    return text if len(text) <= SHOWN_LETTERS else text[: SHOWN_LETTERS - 3] + "..."


# The verdict


class Verdict(NamedTuple):
    """Whether the expectation is met, the reasons in a few lines if not, and the selected requests.

    `may_come`: more requests, or the response to a pending one, could still meet it.
    """

    passed: bool
    text: str
    selected: list[SeenRequest]
    may_come: bool = False


def verdict(expected: Expected, seen: Sequence[SeenRequest], forgotten: int = 0) -> Verdict:
    """Checks requests, oldest first, against an expectation. `forgotten` further requests were evicted that it might
    have selected: then it fails, since it cannot be decided."""
    selected = [one for one in seen if expected.which.fits(one)]
    if expected.is_none:
        fitting = [one for one in selected if expected.is_met_by(one)]
        lines = [f"expected {expected.text}, saw {len(fitting)} of {len(seen)} requests", *_shown(fitting)]
        passed, may_come = not fitting, False
    else:
        unfit = [(one, why) for one in selected if (why := expected.violations(one))]
        passed, lines, may_come = _checked(expected, seen, selected, unfit)
    if passed and forgotten:
        passed, lines = False, [f"expected {expected.text}, which cannot be decided:"]
    if forgotten:
        lines.append(
            f"  {forgotten} older requests are no longer kept; clear the requests before the test, or give `since`"
        )
    return Verdict(passed, "" if passed else "\n".join(lines), selected, may_come and not forgotten)


def _checked(
    expected: Expected,
    seen: Sequence[SeenRequest],
    selected: Sequence[SeenRequest],
    unfit: Sequence[tuple[SeenRequest, list[str]]],
) -> tuple[bool, list[str], bool]:
    count = len(selected)
    lines = [f"expected {expected.text}"]
    too_few, too_many = count < expected.least, expected.most is not None and count > expected.most
    if too_few or too_many:
        lines.append(f"  saw {count} among {len(seen)} requests" + (":" if count else ""))
        lines += _shown(selected) if count else _near(expected.which, seen)
    if unfit:
        lines.append(f"  {len(unfit)} of {count} do not match:")
        lines += [f"    {one.text}: {'; '.join(why)}" for one, why in unfit[:SHOWN_REQUESTS]]
        lines += _more(len(unfit))
    waits = all(one.exchange.ending is Ending.PENDING for one, _ in unfit)
    return not (too_few or too_many or unfit), lines, not too_many and waits


def _shown(some: Sequence[SeenRequest]) -> list[str]:
    return [f"    {one.text}, {one.ending}" for one in some[:SHOWN_REQUESTS]] + _more(len(some))


def _more(count: int) -> list[str]:
    return [f"    and {count - SHOWN_REQUESTS} more"] if count > SHOWN_REQUESTS else []


def _near(which: Which, seen: Sequence[SeenRequest]) -> list[str]:
    """Returns the requests that were seen instead: for each word that selects, those that only this word excluded."""
    looks: list[tuple[str, Which, Callable[[SeenRequest], Any]]] = [
        ("of other clients", which._replace(client_id=None), lambda one: repr(one.client_id)),
        ("by other software", which._replace(software=None), lambda one: repr(one.software)),
        ("as other principals", which._replace(principal=None), lambda one: one.principal),
        ("to other nodes", which._replace(node=None), lambda one: f"node {one.node}"),
        ("for other topics", which._replace(topic=None), lambda one: _listed(one.topics) or "no topic"),
        ("of other APIs", which._replace(keys=None), lambda one: one.api),
    ]
    lines: list[str] = []
    for text, wider, name in looks:
        if wider != which and (found := Counter(name(one) for one in seen if wider.fits(one))):
            values = _listed(f"{value} ({count})" for value, count in found.most_common())
            lines.append(f"    {text}: {values}")
    if lines or not seen:
        return lines
    by_api = Counter(one.api for one in seen).most_common()
    return [f"    requests seen: {_listed(f'{api} ({count})' for api, count in by_api)}"]
