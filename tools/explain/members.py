"""Why a member of a group has no partitions: rules over the description of the group and the topics that exist.

Pure functions. They hold for classic groups, consumer groups (KIP-848), share groups (KIP-932) and streams groups
(KIP-1071) of any broker.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ...broker.groups.classic.subscription import topics_of
from ...client.admin.admin import CLASSIC, CONSUMER, SHARE, STREAMS, GroupDescription, MemberDescription
from ...protocol.text import visible

NAMES_MAX = 5
WAITING = {
    "PreparingRebalance": "the group is rebalancing: it waits for its members to join again, or for their time-out",
    "CompletingRebalance": "the group is rebalancing: the leader has not sent the assignment yet",
}


def subscription(group: GroupDescription, member: MemberDescription) -> Sequence[str]:
    """Returns the topics that a member subscribes to by name."""
    if group.type == CLASSIC:
        return sorted(topics_of(member.metadata) or ()) if group.protocol_type == CONSUMER else ()
    return sorted(member.topics)


def reasons(group: GroupDescription, member: MemberDescription, counts: Mapping[str, int]) -> list[str]:
    """Returns why the member has no partitions, most direct first; nothing if it has some. `counts` has the numbers of
    partitions of the topics that exist.
    """
    if member.partitions:
        return []
    if group.type == CLASSIC:
        return _classic(group, member, counts)
    found = _epochs(group)
    if member.target:
        found += _to_come(group, member)
    if found:
        return found
    if group.type == STREAMS:
        return _streams(group, member)
    return _subscribed(group, member, counts) or _shared(group, member, counts)


def _classic(group: GroupDescription, member: MemberDescription, counts: Mapping[str, int]) -> list[str]:
    if group.state in WAITING:
        return [WAITING[group.state]]
    if group.protocol_type != CONSUMER:
        kind = visible(group.protocol_type)
        return [f"the assignments of the protocol type {kind} are not partitions of a consumer"]
    return _subscribed(group, member, counts) or _shared(group, member, counts)


def _streams(group: GroupDescription, member: MemberDescription) -> list[str]:
    if group.state == "NotReady":
        return ["topics of the topology are missing or incorrectly partitioned: heartbeats have the status"]
    count = sum(len(found) for one in group.members if one.target_tasks for found in one.target_tasks.active.values())
    found = [f"the {count} active tasks of the group are those of other members"]
    if member.tasks is not None and member.tasks.standby:
        found.append("it has standby tasks")
    return found


def _epochs(group: GroupDescription) -> list[str]:
    """An assignment that is still to be computed."""
    if group.group_epoch is None or group.assignment_epoch is None or group.assignment_epoch >= group.group_epoch:
        return []
    return [
        f"the group is in state {group.state}: its assignment is that of epoch {group.assignment_epoch}, "
        f"and the one of epoch {group.group_epoch} is computed with a next heartbeat"
    ]


def _to_come(group: GroupDescription, member: MemberDescription) -> list[str]:
    """Partitions of its target that others have still to revoke, or that its next heartbeat returns."""
    owners: dict[str, list[str]] = {}
    free: list[str] = []
    for topic, index in member.target or ():
        owner = next((one for one in group.members if (topic, index) in one.partitions), None)
        place = f"{topic}-{index}"
        if owner is None:
            free.append(place)
        else:
            owners.setdefault(owner.member_id, []).append(place)
    epochs = {one.member_id: one.epoch for one in group.members}
    found = [
        f"its target has {_names(places)}: it waits until member {visible(name)}, at epoch {epochs[name]} of "
        f"{group.group_epoch}, has revoked {'them' if len(places) > 1 else 'it'}"
        for name, places in owners.items()
    ]
    if free:
        found.append(f"its target has {_names(free)}, which no member holds: its next heartbeat returns them")
    return found


def _subscribed(group: GroupDescription, member: MemberDescription, counts: Mapping[str, int]) -> list[str]:
    """A subscription that matches no topic."""
    topics = subscription(group, member)
    if member.regex and not topics:
        pattern = visible(member.regex)
        return [f"no topic matches the regular expression {pattern}, or other members have their partitions"]
    if not topics:
        return ["it subscribes to no topic"]
    missing = [topic for topic in topics if topic not in counts]
    if len(missing) == len(topics):
        return [f"none of its topics exists, or it is not authorized to describe them: {_names(missing)}"]
    return []


def _shared(group: GroupDescription, member: MemberDescription, counts: Mapping[str, int]) -> list[str]:
    topics = [topic for topic in subscription(group, member) if topic in counts]
    total = sum(counts[topic] for topic in topics)
    others = sum(bool(set(topics) & set(subscription(group, one))) for one in group.members)
    if group.type == SHARE:
        return ["the state of its share partitions is not initialized yet: a next heartbeat returns the assignment"]
    if others > total:
        return [
            f"{others} members subscribe to its topics, which have {total} partitions in all: "
            "a partition has one member at most"
        ]
    held = [one for one in group.members if set(topics) & {topic for topic, _ in one.partitions}]
    return [f"the assignor {group.protocol} has given the partitions of its topics to {len(held)} other members"]


def _names(names: Iterable[str]) -> str:
    shown = [visible(name) for name in names]
    more = f" and {len(shown) - NAMES_MAX} more" if len(shown) > NAMES_MAX else ""
    return ", ".join(shown[:NAMES_MAX]) + more
