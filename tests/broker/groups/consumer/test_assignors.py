"""Laws of the assignors `uniform` and `range`, for random groups, previous targets and topics."""

from __future__ import annotations

from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from ottla.broker.groups.common_state import Partitions
from ottla.broker.groups.consumer.assignors import Spec, Subscription, assign_range, assign_uniform

TOPICS = [bytes([number]) * 16 for number in range(1, 5)]


@st.composite
def groups(draw: st.DrawFn, *, alike: bool, overlapping: bool = True) -> Spec:
    """Draws a group. Previous targets may have partitions that are gone, and with `overlapping` common ones."""
    counts = {topic: draw(st.integers(1, 12)) for topic in TOPICS}
    some = st.sets(st.sampled_from(TOPICS), min_size=1).map(frozenset)
    common = draw(some)
    left = {topic: list(range(count + 2 * overlapping)) for topic, count in counts.items()}
    members: dict[str, Subscription] = {}
    for number in range(draw(st.integers(1, 8))):
        topics = common if alike else draw(some)
        previous: dict[bytes, frozenset[int]] = {}
        for topic in draw(st.lists(st.sampled_from(sorted(topics if not overlapping else TOPICS)), unique=True)):
            if overlapping:
                owned = draw(st.frozensets(st.sampled_from(left[topic]), max_size=6))
            else:
                owned = frozenset(left[topic].pop() for _ in range(min(len(left[topic]), draw(st.integers(0, 5)))))
            if owned:
                previous[topic] = owned
        instance = draw(st.sampled_from([None, f"i{number}"]))
        members[f"m{draw(st.integers(0, 999))}-{number}"] = Subscription(topics, instance, previous)
    return Spec(members, counts, alike)


def check_each_once(spec: Spec, assignment: Mapping[str, Partitions]) -> None:
    """Each partition of a subscribed topic has one owner, which subscribes to it."""
    found = [
        (topic, index)
        for name, partitions in assignment.items()
        for topic, indexes in partitions.items()
        for index in indexes
        if topic in spec.members[name].topics
    ]
    subscribed = frozenset[bytes]().union(*(member.topics for member in spec.members.values()))
    wanted = [(topic, index) for topic in subscribed for index in range(spec.counts[topic])]
    assert sorted(found) == sorted(wanted) and assignment.keys() == spec.members.keys()
    assert sum(len(indexes) for owned in assignment.values() for indexes in owned.values()) == len(found)


def sizes(assignment: Mapping[str, Partitions]) -> list[int]:
    return [sum(map(len, partitions.values())) for partitions in assignment.values()]


@given(groups(alike=True))
def test_uniform_balances_members_that_subscribe_alike(spec: Spec) -> None:
    assignment = assign_uniform(spec)
    check_each_once(spec, assignment)
    assert max(sizes(assignment)) - min(sizes(assignment)) <= 1


@given(groups(alike=True, overlapping=False))
def test_uniform_moves_no_more_than_it_must(spec: Spec) -> None:
    assignment = assign_uniform(spec)
    moved = sum(
        len(indexes - assignment[name].get(topic, frozenset()))
        for name, member in spec.members.items()
        for topic, indexes in member.previous.items()
    )
    before = sorted(sizes({name: member.previous for name, member in spec.members.items()}), reverse=True)
    after = sorted(sizes(assignment), reverse=True)
    assert moved == sum(max(0, had - has) for had, has in zip(before, after, strict=True))


@given(groups(alike=True) | groups(alike=True, overlapping=False))
def test_uniform_is_the_same_with_known_owners(spec: Spec) -> None:
    owners: dict[bytes, dict[int, str]] = {}
    for name, member in spec.members.items():
        for topic, indexes in member.previous.items():
            owners.setdefault(topic, {}).update(dict.fromkeys(indexes, name))
    assert assign_uniform(spec._replace(owners=owners)) == assign_uniform(spec)


@given(groups(alike=False))
def test_uniform_gives_partitions_to_subscribers_alone(spec: Spec) -> None:
    check_each_once(spec, assign_uniform(spec))


@given(groups(alike=True))
def test_range_of_members_that_subscribe_alike(spec: Spec) -> None:
    assignment = assign_range(spec)
    check_each_once(spec, assignment)
    assert assignment == assign_range(spec._replace(is_homogeneous=False))
    place = {name: (one.instance_id is None, one.instance_id or name) for name, one in spec.members.items()}
    for topic in next(iter(spec.members.values())).topics:
        ranges = [sorted(assignment[name].get(topic, ())) for name in sorted(place, key=place.__getitem__)]
        assert [index for one in ranges for index in one] == list(range(spec.counts[topic]))
        assert [len(one) for one in ranges] == sorted(map(len, ranges), reverse=True)


@given(groups(alike=False))
def test_range_gives_partitions_to_subscribers_alone(spec: Spec) -> None:
    check_each_once(spec, assign_range(spec))
