"""The assignor `simple` of share groups: each partition is assigned to as many members as are needed to occupy all.

Balance comes first: the numbers of partitions of two members differ by one at most if all subscribe to the same topics,
and otherwise within each topic. Then members keep what they have. Rules: Kafka 4.3's `SimpleAssignor`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from ..common_state import Partitions

Place: TypeAlias = tuple[bytes, int]


def assign(
    subscriptions: Mapping[str, frozenset[bytes]], target: Mapping[str, Partitions], assignable: Partitions
) -> dict[str, Partitions]:
    """Returns the new target of each member. `subscriptions` has the topic ids of the members, `target` their present
    assignment, `assignable` the partitions that can be assigned.
    """
    made: dict[str, dict[bytes, set[int]]] = {member: {} for member in subscriptions}
    for members, topic_ids in _pools(subscriptions):
        places = [(id, index) for id in topic_ids for index in sorted(assignable.get(id, ()))]
        common = frozenset(places)
        held = {
            member: sorted(
                (id, index)
                for id, indexes in target.get(member, {}).items()
                for index in indexes
                if (id, index) in common
            )
            for member in members
        }
        for member, found in _shared(places, held).items():
            for id, index in found:
                made[member].setdefault(id, set()).add(index)
    return {member: {id: frozenset(found) for id, found in topics.items()} for member, topics in made.items()}


def _pools(subscriptions: Mapping[str, frozenset[bytes]]) -> Iterable[tuple[list[str], list[bytes]]]:
    """Members and topics that are balanced together: all, if the subscriptions are equal, else by topic."""
    topic_ids = sorted(set[bytes]().union(*subscriptions.values()))
    if len(set(subscriptions.values())) == 1:
        yield list(subscriptions), topic_ids
        return
    for id in topic_ids:
        yield [member for member, subscribed in subscriptions.items() if id in subscribed], [id]


def _shared(places: Sequence[Place], held: Mapping[str, list[Place]]) -> dict[str, list[Place]]:
    """Distributes partitions among members, of which each keeps what it holds as far as that is balanced."""
    count = len(held)
    sharing = -(-count // len(places)) if places else 0
    total = sharing * len(places)
    # The numbers of partitions of the members: their sum is `total`, and they differ by one at most.
    wanted = {
        member: -(-total * (number + 1) // count) + (-total * number // count) for number, member in enumerate(held)
    }
    owners: dict[Place, list[str]] = {place: [] for place in places}
    kept: dict[str, list[Place]] = {}
    for member, found in held.items():
        kept[member] = found[: wanted[member]]
        for place in kept[member]:
            owners[place].append(member)
    for place, members in owners.items():
        while len(members) > sharing:
            kept[members.pop()].remove(place)
    unfilled = [member for member in held if len(kept[member]) < wanted[member]]
    for place, members in sorted(owners.items(), key=lambda one: len(one[1])):
        for _ in range(sharing - len(members)):
            member = next((one for one in unfilled if one not in members), None)
            if member is None:
                break
            members.append(member)
            kept[member].append(place)
            unfilled.remove(member)
            if len(kept[member]) < wanted[member]:
                unfilled.append(member)
    return kept
