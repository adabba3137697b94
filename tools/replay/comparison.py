"""The comparison of two recordings of the same requests: the differences between responses, with their reasons.

Owns the reasons. A difference is expected between the two releases, follows from an earlier one of the same topic,
group, transaction or producer, depends on timing (a concurrent request changed the same thing), concerns something that
existed before the recording was played, or is unexplained.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from ...broker.recording.decoding import request_value, response_value
from ...broker.recording.exchange import Ending, Exchange
from ...protocol.api_key import ApiKey
from ...protocol.errors import ErrorCode, error_name
from ...protocol.messages.records.fetch import FetchRequest
from ...protocol.named import NamedTuple
from ..release_table import api_name
from .expected_differences import ExpectedDifferences
from .fetched_records import Fetched
from .name_mapping import OF_TOPICS, WITH_TOPIC_NAMES, Ids, Place, error_codes, learn, learn_names
from .requests import NOT_READY
from .subjects import LISTING, changes, of_response, subjects
from .value_comparison import ABSENT, Difference, Sides, differences
from .versions import one_shape

PASSING = NOT_READY | OF_TOPICS
LOOKS_MAX = 5_000  # differences checked for concurrent changes; each check goes through all changes
FINDINGS_MAX = 10_000  # further findings are only counted
# The fields that depend on which of two concurrent requests came first, by API.
_RACES: dict[int, str] = {ApiKey.PRODUCE: r"\.base_offset$", ApiKey.JOIN_GROUP: r"^\.(leader$|members\[)"}
_MARKERS_NS = 500_000_000  # markers may be written after the response to EndTxn
_SEE_MARKERS = frozenset(
    {
        ApiKey.FETCH,
        ApiKey.LIST_OFFSETS,
        ApiKey.OFFSET_FETCH,
        ApiKey.DESCRIBE_PRODUCERS,
        ApiKey.DESCRIBE_TRANSACTIONS,
        ApiKey.LIST_TRANSACTIONS,
    }
)
_NAMES = ("name", "group_id", "transactional_id", "topic")
_ENDINGS = {Ending.RESPONDED: "responded", Ending.CLOSED: "closed", Ending.SILENT: "no response due"}


class Why(StrEnum):
    """The reason of a difference. The values are part of the JSON output."""

    UNEXPLAINED = "unexplained"
    EXPECTED = "foretold"
    FOLLOWS = "follows"
    MOMENT = "moment"
    BEFORE = "before"


class Pair(NamedTuple):
    """The exchanges of one request on both sides; `right` is None if it was not sent there."""

    left: Exchange
    right: Exchange | None
    not_sent: str = ""
    is_expected: bool = False


class Finding(NamedTuple):
    """A difference. `number` is the left's exchange, the first of `times` exchanges with the same difference."""

    number: int
    connection: int
    api: str
    version: int
    path: str
    left: Any
    right: Any
    why: Why
    reason: str
    times: int = 1


@dataclass
class Comparison:
    """The result of a comparison. `counts` also include findings above FINDINGS_MAX."""

    exchanges: int = 0
    compared: int = 0
    findings: list[Finding] = field(default_factory=list[Finding])
    counts: Counter[Why] = field(default_factory=Counter[Why])
    not_sent: Counter[str] = field(default_factory=Counter[str])
    translatable: int = 0
    """The number of requests not sent that `--translate` would try to send in another version."""
    not_compared: Counter[str] = field(default_factory=Counter[str])

    @property
    def is_same(self) -> bool:
        """Whether there is no unexplained difference."""
        return not self.counts[Why.UNEXPLAINED]


class Comparing:
    """Compares all pairs in their order.

    `texts` maps addresses of the left to those of the right. `same_times` is False for two recordings of different
    sessions, whose record timestamps differ.
    """

    def __init__(
        self,
        pairs: Sequence[Pair],
        *,
        nodes: Mapping[int, int] | None = None,
        texts: Mapping[str, str] | None = None,
        expected: ExpectedDifferences | None = None,
        same_times: bool = True,
    ) -> None:
        self._pairs = pairs
        self._texts = dict(texts or {})
        self._expected = expected
        self._ids = Ids(nodes)
        self._fetched = Fetched(self._ids, same_times=same_times)
        self._topics: dict[bytes, str] = {}
        self._sources: dict[str, int] = {}  # subject -> the exchange that caused its later differences
        self._looks = LOOKS_MAX
        self._names: set[str] | None = None  # all names in requests and responses of the left
        self._changes: list[tuple[int, int, Exchange, frozenset[str]]] | None = None
        self._translated = {
            pair.left.number: pair.right.api_version
            for pair in pairs
            if pair.right is not None and pair.right.api_version != pair.left.api_version
        }
        self._known: dict[tuple[Any, ...], int] = {}
        self._found = Comparison()

    def run(self) -> Comparison:
        for pair in self._pairs:
            self._learn(pair)
        self._ids.shifts.clear()  # they may change during the recording, so they are learned again
        self._topics = self._ids.topic_names | {
            right: self._ids.topic_names[left]
            for left, right in self._ids.topic_ids.items()
            if left in self._ids.topic_names
        }
        self._texts |= {one: other for one, other in self._ids.members.items() if one and one != other}
        for pair in self._pairs:
            self._learn(pair)
            self._compare(pair)
        by_number = {pair.left.number: pair.left for pair in self._pairs}
        for unread in self._fetched.unread():
            where = f"{unread.first}-{unread.last}" if unread.last > unread.first else str(unread.first)
            sides = ("read", "not read") if unread.is_left else ("not read", "read")
            found = Difference(f".responses[{unread.topic}].partitions[{unread.partition}].records[{where}]", *sides)
            left = by_number[unread.number]
            self._note(left, found, *self._judge(left, request_value(left), found))
        self._found.findings.sort(key=lambda one: one.number)
        return self._found

    def _learn(self, pair: Pair) -> None:
        left, right = pair.left, pair.right
        if left.api_key in WITH_TOPIC_NAMES and left.response is not None:
            learn_names(self._ids, response_value(left))
        if right is None or left.response is None or right.response is None:
            return
        values = request_value(left), response_value(left), response_value(right)
        if all(value is not None for value in values):
            learn(self._ids, *values)

    def _compare(self, pair: Pair) -> None:
        self._found.exchanges += 1
        left, right = pair.left, pair.right
        request = request_value(left)
        if right is None:
            self._found.not_sent[pair.not_sent] += 1
            if pair.is_expected:
                by_table = self._expected is not None and self._expected.unserved(left.api_key, left.api_version)
                reason = f"versions of {api_name(left.api_key)}" if by_table else "ApiVersions"
                self._note(left, Difference("", "sent", f"not sent: {pair.not_sent}"), Why.EXPECTED, reason)
                self._taint(left, request)
            return
        found = self._endings(left, right)
        if found is None:
            if left.ending is not Ending.RESPONDED:
                return
            found = self._responses(left, right, request)
            if found is None:
                return
        self._found.compared += 1
        judged = [(one, *self._judge(left, request, one)) for one in found]
        for one, why, reason in judged:
            self._note(left, one, why, reason)
        if any(is_other_state(one, why) or left.api_key in _RACES for one, why, _ in judged):
            self._taint(left, request)

    def _endings(self, left: Exchange, right: Exchange) -> list[Difference] | None:
        """Returns a difference in the endings; None if both ended alike or the recording does not show the end."""
        if left.ending is Ending.PENDING or (left.ending is Ending.CLOSED and is_clients_end(left.reason)):
            self._found.not_compared["the recording has no end of the request"] += 1
            return None
        if left.ending is right.ending:
            return None
        endings = [_ENDINGS.get(one.ending, one.reason or str(one.ending)) for one in (left, right)]
        for index, one in enumerate((left, right)):
            if one.ending is Ending.CLOSED and one.reason:
                endings[index] += f": {one.reason}"
            elif one.response is not None and (value := response_value(one)) is not None:
                codes = {name for code in error_codes(value) if code and (name := error_name(code))}
                endings[index] += f": {', '.join(sorted(codes))}" if codes else ""
        return [Difference("", *endings)]

    def _responses(self, left: Exchange, right: Exchange, request: Any) -> list[Difference] | None:
        """Returns the differences between two responses; None if they cannot be compared."""
        if left.response is None or right.response is None:
            self._found.not_compared["a response was not recorded"] += 1
            return None
        is_same = left.response[4:] == right.response[4:] and left.api_version == right.api_version
        if is_same and not isinstance(request, FetchRequest):  # the records of each Fetch must be registered
            return []
        one, other = response_value(left), response_value(right)
        if one is None or other is None or request is None:
            return [] if is_same else [Difference("", left.response[4:], right.response[4:])]
        if left.api_version != right.api_version:
            one, other = one_shape(request, one), one_shape(request_value(right) or request, other)
        mapped = self._ids.message(one, Place(group=getattr(request, "group_id", "")))
        if isinstance(request, FetchRequest):
            return self._fetched.compare(left.peer.number, left.number, mapped, other, self._topics)
        newest = max(left.api_version, right.api_version)
        versions = (
            (newest, newest) if one_shape(request, mapped) is not mapped else (left.api_version, right.api_version)
        )
        found = differences(mapped, other, Sides(*versions, self._texts, self._topics))
        return [one for one in found if not self._is_shifted(one)]

    def _is_shifted(self, difference: Difference) -> bool:
        """Returns whether an offset differs only by the records that the right had before."""
        return any(
            shift and isinstance(difference.left, int) and difference.left - shift == difference.right
            for shift in set(self._ids.shifts.values())
        )

    # Reasons

    def _judge(self, left: Exchange, request: Any, one: Difference) -> tuple[Why, str]:
        about = self._about(left, request)
        expected = self._expected
        if expected is not None and (name := expected.why(left.api_key, left.api_version, one)):
            return Why.EXPECTED, name
        if one.path.endswith("error_code") and one.left in PASSING and one.right == ErrorCode.NONE:
            return Why.MOMENT, "the recorded broker was not ready"
        if (source := self._source(left, about, one)) is not None:
            return Why.FOLLOWS, f"#{source}"
        if expected is not None and (name := expected.perhaps(left.api_key, left.api_version, one)):
            return Why.EXPECTED, name
        if left.fault:
            return Why.FOLLOWS, f"the fault {left.fault}"
        if re.search(_RACES.get(left.api_key, ""), one.path) and self._overlaps(left, request, about):
            return Why.MOMENT, "a concurrent request changed it"
        if one.left == ABSENT and left.api_key in LISTING and self._is_unknown(one.right):
            return Why.BEFORE, ""
        if left.number in self._translated:
            return Why.EXPECTED, f"sent as v{self._translated[left.number]}"
        return Why.UNEXPLAINED, ""

    def _about(self, left: Exchange, request: Any) -> frozenset[str]:
        if request is None:
            return frozenset()
        about = subjects(request, self._ids)
        if left.api_key in (ApiKey.INIT_PRODUCER_ID, ApiKey.END_TXN) and left.response is not None:
            about |= of_response(response_value(left))
        return about

    def _source(self, left: Exchange, about: Iterable[str], one: Difference) -> int | None:
        """Returns the exchange that caused a difference: by a common subject, or by a name in the difference."""
        numbers = [self._sources[name] for name in about if name in self._sources]
        if not numbers:
            text = f"{one.path} {one.left} {one.right}"
            named = ((name.partition(" ")[2], number) for name, number in self._sources.items())
            numbers = [number for name, number in named if len(name) > 1 and name in text]
        return min((number for number in numbers if number < left.number), default=None)

    def _taint(self, left: Exchange, request: Any) -> None:
        """Marks the subjects of a request: later differences about them follow from it."""
        if request is not None and changes(request, left.api_key):
            for name in self._about(left, request):
                self._sources.setdefault(name, left.number)

    def _overlaps(self, left: Exchange, request: Any, about: frozenset[str]) -> bool:
        """Returns whether a request of another connection changed the same subjects meanwhile, on the left."""
        is_change = changes(request, left.api_key) if request is not None else True
        if (is_change and left.api_key not in _RACES) or self._looks == 0:
            return False
        self._looks -= 1
        if self._changes is None:
            self._changes = list(self._changes_of_left())
        begun, ended = left.begun_ns, left.begun_ns + max(left.duration_ns, 0)
        return any(
            first <= ended
            and last >= begun
            and one.peer is not left.peer
            and (not is_change or one.api_key == left.api_key)
            and (
                left.api_key in _SEE_MARKERS
                if one.api_key == ApiKey.END_TXN
                else not about or not names or names & about
            )
            for first, last, one, names in self._changes
        )

    def _is_unknown(self, value: Any) -> bool:
        """Returns whether a topic, group or transaction was never named on the left."""
        if self._names is None:
            self._names = {name.partition(" ")[2] for pair in self._pairs for name in self._all_subjects(pair.left)}
        names = [getattr(value, name) for name in _NAMES if name in getattr(value, "_fields", ())]
        return bool(names) and names[0] not in self._names

    def _all_subjects(self, one: Exchange) -> frozenset[str]:
        values = request_value(one), response_value(one) if one.response is not None else None
        return frozenset[str]().union(*(subjects(value, self._ids) for value in values if value is not None))

    def _changes_of_left(self) -> Iterator[tuple[int, int, Exchange, frozenset[str]]]:
        for one in (pair.left for pair in self._pairs):
            request = request_value(one)
            if request is not None and changes(request, one.api_key):
                is_end = one.api_key == ApiKey.END_TXN
                ended = one.begun_ns + max(one.duration_ns, 0) + (_MARKERS_NS if is_end else 0)
                yield one.begun_ns, ended, one, frozenset() if is_end else subjects(request, self._ids)

    # Findings

    def _note(self, left: Exchange, one: Difference, why: Why, reason: str) -> None:
        key = left.api_key, left.api_version, one.path, repr(one.left), repr(one.right), why
        findings = self._found.findings
        known = self._known.get(key)
        if known is not None:
            findings[known] = findings[known]._replace(times=findings[known].times + 1)
            return
        self._found.counts[why] += 1
        if len(findings) < FINDINGS_MAX:
            self._known[key] = len(findings)
            place = left.number, left.peer.number, api_name(left.api_key), left.api_version
            findings.append(Finding(*place, one.path, one.left, one.right, why, reason))


def is_other_state(difference: Difference, why: Why) -> bool:
    """Returns whether the brokers' states may differ now: one refused the request, or the reason is unknown."""
    refused = not difference.path or difference.path.endswith("error_code")
    return why is Why.UNEXPLAINED or (refused and why is not Why.MOMENT)


def is_clients_end(reason: str) -> bool:
    """Returns whether the client closed the connection, so that the broker refused nothing."""
    return not reason or reason == "the client closed the connection" or reason.startswith("the connection broke")


def matched(left: Sequence[Exchange], right: Sequence[Exchange]) -> tuple[list[Pair], list[str]]:
    """Pairs the exchanges of two recordings of the same session.

    Connections are paired in the order in which they were opened, the exchanges of a connection in order by API.
    Returns the pairs, and a line for each exchange or connection that only one recording has.
    """
    notes: list[str] = []
    there = _by_connection(right)
    here = _by_connection(left)
    pairs: list[Pair] = []
    if len(here) != len(there):
        notes.append(f"{len(here)} connections in one recording, {len(there)} in the other")
    for number, ours in enumerate(here):
        theirs = _best(ours, there)
        if theirs is None:
            notes.append(f"connection {number + 1} of the first recording ({len(ours)} exchanges) is not in the other")
            continue
        there.remove(theirs)
        found, only = _aligned(ours, theirs)
        pairs += found
        notes += [f"connection {number + 1}: {text}" for text in only]
    notes += [f"a connection of the second recording ({len(rest)} exchanges) is not in the first" for rest in there]
    pairs.sort(key=lambda pair: pair.left.number)
    return pairs, notes


def _by_connection(exchanges: Sequence[Exchange]) -> list[list[Exchange]]:
    found: dict[int, list[Exchange]] = {}
    for one in sorted(exchanges, key=lambda one: one.number):
        found.setdefault(one.peer.number, []).append(one)
    return list(found.values())


def _best(ours: list[Exchange], there: list[list[Exchange]]) -> list[Exchange] | None:
    """Returns the first connection of the same client id, preferably one with the same APIs."""
    keys = {one.api_key for one in ours}
    same = [one for one in there if one[0].client_id == ours[0].client_id]
    return next((one for one in same if {other.api_key for other in one} == keys), next(iter(same), None))


def _aligned(ours: list[Exchange], theirs: list[Exchange]) -> tuple[list[Pair], list[str]]:
    """Pairs the exchanges of two connections by API, in order, and counts those on one connection only."""
    pairs: list[Pair] = []
    there: dict[int, list[Exchange]] = {}
    for one in theirs:
        there.setdefault(one.api_key, []).append(one)
    missing: Counter[int] = Counter()
    for one in ours:
        if there.get(one.api_key):
            pairs.append(Pair(one, there[one.api_key].pop(0)))
        else:
            missing[one.api_key] += 1
    notes = [f"{count} more {api_name(key)} in the first" for key, count in sorted(missing.items())]
    notes += [f"{len(rest)} more {api_name(key)} in the second" for key, rest in sorted(there.items()) if rest]
    return pairs, notes
