"""The assignors of the broker: `uniform` and `range` (KIP-848).

Pure functions from the members' subscriptions and their previous target assignment to a new one. Like Kafka's, they are
not rack-aware. A member without subscriptions gets no partitions.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence, Set
from typing import TypeAlias

from ....protocol.named import NamedTuple
from ..common_state import Partitions
from .state import NOTHING

UNIFORM, RANGE = "uniform", "range"
_NONE = frozenset[int]()


class Subscription(NamedTuple):
    """What a member takes part with: its topics, its instance id, and its previous target assignment."""

    topics: Set[bytes]
    instance_id: str | None = None
    previous: Partitions = NOTHING


class Spec(NamedTuple):
    """A group to assign. `counts` has the number of partitions of each subscribed topic; with `is_homogeneous` all
    members subscribe to the same topics. `owners` has the partitions of the previous targets, where it is known that
    only members have targets: it saves a look at each partition.
    """

    members: Mapping[str, Subscription]
    counts: Mapping[bytes, int]
    is_homogeneous: bool
    owners: Mapping[bytes, Mapping[int, str]] | None = None


Assignor: TypeAlias = Callable[[Spec], dict[str, Partitions]]


def assign_range(spec: Spec) -> dict[str, Partitions]:
    """Gives every subscriber of a topic a contiguous range, static members first.

    Members that subscribe to the same topics with equal numbers of partitions get the same partitions of each.
    """
    ordered = sorted(spec.members, key=lambda name: _range_order(name, spec.members[name].instance_id))
    if spec.is_homogeneous:
        return _same_ranges(spec, ordered)
    subscribers: dict[bytes, int] = {}
    for name in ordered:
        for topic in spec.members[name].topics:
            subscribers[topic] = subscribers.get(topic, 0) + 1
    quotas = {topic: divmod(spec.counts[topic], subscribers[topic]) for topic in subscribers}
    ranked = dict.fromkeys(subscribers, 0)  # subscribers that have their range
    assignment: dict[str, Partitions] = {}
    for name in ordered:
        found: dict[bytes, frozenset[int]] = {}
        for topic in spec.members[name].topics:
            quota, extra = quotas[topic]
            rank = ranked[topic]
            ranked[topic] = rank + 1
            start = rank * quota + min(rank, extra)
            end = start + quota + (rank < extra)
            if start < end:
                found[topic] = frozenset(range(start, end))
        assignment[name] = found
    return assignment


def _same_ranges(spec: Spec, ordered: Sequence[str]) -> dict[str, Partitions]:
    """Gives ranges of all topics to all members. Topics with equal numbers of partitions are taken together."""
    by_count: dict[int, list[bytes]] = {}
    for topic in spec.members[ordered[0]].topics:
        by_count.setdefault(spec.counts[topic], []).append(topic)
    found: dict[str, dict[bytes, frozenset[int]]] = {name: {} for name in ordered}
    for count, topics in by_count.items():
        quota, extra = divmod(count, len(ordered))
        start = 0
        for rank, name in enumerate(ordered[: count if quota == 0 else len(ordered)]):
            end = start + quota + (rank < extra)
            found[name] |= dict.fromkeys(topics, frozenset(range(start, end)))
            start = end
    return {**found}


def _range_order(member_id: str, instance_id: str | None) -> tuple[bool, str]:
    return (instance_id is None, member_id if instance_id is None else instance_id)


def assign_uniform(spec: Spec) -> dict[str, Partitions]:
    """Balances the number of partitions over the members, then moves as few as possible."""
    return _homogeneous(spec) if spec.is_homogeneous else _heterogeneous(spec)


def _homogeneous(spec: Spec) -> dict[str, Partitions]:
    """All members get the same number of partitions or one more."""
    topics = next(iter(spec.members.values())).topics
    if not topics:
        return dict.fromkeys(spec.members, NOTHING)
    total = sum(spec.counts[topic] for topic in topics)
    quota, extras = divmod(total, len(spec.members))
    kept: dict[str, Partitions] = {}
    sizes = [sum(map(len, member.previous.values())) for member in spec.members.values()]
    free_of = _free(spec, topics, sum(sizes))
    are_apart = free_of is not None
    if free_of is None:
        free_of = {topic: set(range(spec.counts[topic])) for topic in topics}
    unfilled: list[tuple[str, int]] = []
    left = len(spec.members)
    for (name, member), size in zip(spec.members.items(), sizes, strict=True):
        room = quota + (extras > 0)
        mine = member.previous
        if not are_apart or size > room:
            mine, size = _some(mine, room, free_of, given_up=are_apart)
        room -= size
        has_extra = extras > 0
        if room > 0 and has_extra and left > extras:
            room -= 1  # another member may keep one more instead
            has_extra = False
        extras -= has_extra
        left -= 1
        if room > 0:
            unfilled.append((name, room))
        kept[name] = mine
    unassigned = ((topic, index) for topic in sorted(topics) for index in sorted(free_of[topic]))
    for name, room in unfilled:
        more: dict[bytes, list[int]] = {}
        for _, (topic, index) in zip(range(room), unassigned, strict=False):
            more.setdefault(topic, []).append(index)
        kept[name] = {**kept[name], **{topic: kept[name].get(topic, _NONE).union(new) for topic, new in more.items()}}
    return kept


def _free(spec: Spec, topics: Set[bytes], size: int) -> dict[bytes, set[int]] | None:
    """Returns the partitions without an owner, or None if it is not known that the members have `size` different ones,
    all of them partitions of the topics. After a static member was replaced, for example, some may be in two targets.
    """
    owners = spec.owners
    if owners is None or not owners.keys() <= topics or sum(map(len, owners.values())) != size:
        return None
    found: dict[bytes, set[int]] = {}
    for topic in topics:
        owned, count = owners.get(topic, {}), spec.counts[topic]
        if owned and max(owned) >= count:
            return None
        found[topic] = set() if len(owned) == count else set(range(count)).difference(owned)
    return found


def _some(
    previous: Partitions, most: int, free_of: Mapping[bytes, set[int]], *, given_up: bool
) -> tuple[Partitions, int]:
    """Returns at most so many partitions that a member keeps, and their number. The others are free then: with
    `given_up` they were not before, else those that it keeps were."""
    found: dict[bytes, frozenset[int]] = {}
    room = most
    for topic, indexes in previous.items():
        free = free_of.get(topic)
        if free is None:
            continue  # the member does not subscribe to it any more
        mine = frozenset(sorted(indexes if given_up else indexes & free)[:room])
        if given_up:
            free |= indexes - mine
        else:
            free -= mine
        if mine:
            found[topic] = indexes if len(mine) == len(indexes) else mine
            room -= len(mine)
    return found, most - room


def _frozen(mine: Mapping[bytes, Sequence[int]], previous: Partitions) -> Partitions:
    """Returns the previous sets where they are unchanged: most are."""
    found: dict[bytes, frozenset[int]] = {}
    for topic, indexes in mine.items():
        before = previous.get(topic)
        now = frozenset(indexes)
        found[topic] = before if before is not None and before == now else now
    return previous if found == previous else found


def _heterogeneous(spec: Spec) -> dict[str, Partitions]:
    """Balances topic by topic over members with different subscriptions.

    Partitions without an owner go to the subscriber with the fewest partitions; then each topic moves partitions
    from its most to its least loaded subscribers while that helps.
    """
    names = list(spec.members)
    alike: dict[Set[bytes], list[int]] = {}
    for number, name in enumerate(names):
        alike.setdefault(spec.members[name].topics, []).append(number)
    subscribers: dict[bytes, list[int]] = {}
    for topics, numbers in alike.items():
        for topic in topics:
            subscribers.setdefault(topic, []).extend(numbers)
    owners = {topic: [-1] * spec.counts[topic] for topic in subscribers}
    loads = [0] * len(names)
    for number, name in enumerate(names):
        member = spec.members[name]
        for topic, indexes in member.previous.items():
            if topic in member.topics:
                of_topic = owners[topic]
                for index in indexes:
                    if index < len(of_topic) and of_topic[index] < 0:
                        of_topic[index] = number
                        loads[number] += 1
    order = sorted(
        subscribers,
        key=lambda topic: (-spec.counts[topic] / len(subscribers[topic]), len(subscribers[topic]), topic),
    )
    for topic in order:
        _fill(owners[topic], subscribers[topic], loads)
    shared = [topic for topic in order if len(subscribers[topic]) > 1]
    for _ in range(ROUNDS_MAX):
        moved = [_even_out(owners[topic], subscribers[topic], loads) for topic in shared]
        if not any(moved):
            break
    found: list[dict[bytes, list[int]]] = [{} for _ in names]
    for topic in order:
        for index, number in enumerate(owners[topic]):
            found[number].setdefault(topic, []).append(index)
    return {name: _frozen(found[number], spec.members[name].previous) for number, name in enumerate(names)}


ROUNDS_MAX = 16  # as in Kafka: topics with common subscribers may need several rounds


def _fill(owners: list[int], subscribers: Sequence[int], loads: list[int]) -> None:
    """Gives each free partition to the subscriber with the fewest partitions."""
    if -1 not in owners:
        return
    least = [(loads[number], number) for number in subscribers]
    heapq.heapify(least)
    for index, owner in enumerate(owners):
        if owner < 0:
            load, number = least[0]
            owners[index] = number
            loads[number] = load + 1
            heapq.heapreplace(least, (load + 1, number))


def _even_out(owners: list[int], subscribers: Sequence[int], loads: list[int]) -> bool:
    """Moves partitions of one topic from its most to its least loaded subscribers. Returns whether any moved."""
    found = [loads[number] for number in subscribers]
    if max(found) - min(found) <= 1:
        return False
    owned: dict[int, list[int]] = {}
    for index, number in enumerate(owners):
        owned.setdefault(number, []).append(index)
    most = [(-loads[number], -number) for number in owned]
    least = [(loads[number], number) for number in subscribers]
    heapq.heapify(most)
    heapq.heapify(least)
    moved = False
    while most:
        giver = -most[0][1]
        if -most[0][0] != loads[giver]:
            heapq.heapreplace(most, (-loads[giver], -giver))
            continue
        taker = least[0][1]
        if least[0][0] != loads[taker]:
            heapq.heapreplace(least, (loads[taker], taker))
            continue
        if loads[giver] - loads[taker] <= 1:
            break
        owners[owned[giver].pop()] = taker
        loads[giver] -= 1
        loads[taker] += 1
        moved = True
        if owned[giver]:
            heapq.heapreplace(most, (-loads[giver], -giver))
        else:
            heapq.heappop(most)
        heapq.heapreplace(least, (loads[taker], taker))
    return moved


ASSIGNORS: dict[str, Assignor] = {UNIFORM: assign_uniform, RANGE: assign_range}
"""The assignors by name; the first is the default."""
