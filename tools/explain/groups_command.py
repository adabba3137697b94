"""`ottla explain --group`: members without partitions, and deliveries of a record to a share group.

Members are read from any cluster, deliveries from the control plane of a broker of Ottla. `--json` prints for members
`{group, type, state, group_epoch, assignment_epoch, members}` with `member_id, epoch, partitions, target, reasons`; for
a record `{group, topic, partition, offset, start_offset, delivery_limit, record, text}`.

Why a member has no partitions: rules over the description of the group and the topics that exist. They hold for classic
groups, consumer groups (KIP-848), share groups (KIP-932) and streams groups (KIP-1071) of any broker.
"""

from __future__ import annotations

import asyncio
import json
import os
from argparse import Namespace
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ...broker.groups.classic.subscription import topics_of
from ...client.admin.admin import (
    CLASSIC,
    CONSUMER,
    SHARE,
    STREAMS,
    Admin,
    GroupDescription,
    MemberDescription,
    TopicDescription,
    checked,
)
from ...client.net.errors import ClientError
from ...protocol.mistakes import complain
from ...protocol.text import moment, visible
from ..command_line import print_text
from ..http_client import Unreachable, Wrong, control_client

PROGRAM = "ottla explain"
CONTROL_S = 10.0
NAMES_MAX = 5
WAITING = {
    "PreparingRebalance": "the group is rebalancing: it waits for its members to join again, or for their time-out",
    "CompletingRebalance": "the group is rebalancing: the leader has not sent the assignment yet",
}


def explain_group(arguments: Namespace) -> int:
    try:
        text = _record(arguments) if arguments.offset is not None else _members(arguments)
    except (ClientError, Wrong, Unreachable) as error:
        return complain(PROGRAM, error)
    return print_text(PROGRAM, text)


async def _described(bootstrap: str, name: str, security: Mapping[str, Any]) -> tuple[GroupDescription, dict[str, int]]:
    """Fetches a group and the numbers of partitions of the topics of its members. Raises ClientError."""
    async with Admin(bootstrap, **security) as admin:
        group = checked(await admin.describe_groups([name]))[name]
        topics = {topic for member in group.members for topic in subscription(group, member)}
        described = await admin.describe_topics(topics) if topics else {}
    counts = {name: len(one.partitions) for name, one in described.items() if isinstance(one, TopicDescription)}
    return group, counts


def _members(arguments: Namespace) -> str:
    """Returns the text about members. Raises ClientError, or Wrong for an unknown member."""
    group, counts = asyncio.run(_described(arguments.bootstrap_server, arguments.group, arguments.security))
    wanted = [one for one in group.members if arguments.member in (None, one.member_id)]
    if arguments.member is not None and not wanted:
        name, member = visible(group.group), visible(arguments.member)
        raise Wrong(f"group {name} has no member {member}: it has left, was fenced, or its session expired")
    why = {one.member_id: reasons(group, one, counts) for one in wanted}
    if arguments.json:
        members = [
            {
                "member_id": one.member_id,
                "epoch": one.epoch,
                "partitions": _places(one.partitions),
                "target": None if one.target is None else _places(one.target),
                "reasons": why[one.member_id],
            }
            for one in wanted
        ]
        document: dict[str, Any] = {"group": group.group, "type": group.type, "state": group.state}
        document |= {"group_epoch": group.group_epoch, "assignment_epoch": group.assignment_epoch, "members": members}
        return json.dumps(document, indent=2) + "\n"
    epochs = "" if group.group_epoch is None else f", epoch {group.group_epoch}, assignment of {group.assignment_epoch}"
    lines = [f"{group.type} group {visible(group.group)}: {group.state}{epochs}, members: {len(group.members)}"]
    for one in wanted:
        held = ", ".join(f"{topic}-{index}" for topic, index in sorted(one.partitions)) or "no partitions"
        lines += ["", f"{visible(one.member_id)} ({visible(one.client_id)} at {visible(one.host)}): {visible(held)}"]
        lines += [f"  {reason}" for reason in why[one.member_id]]
    return "\n".join(lines) + "\n"


def _places(some: tuple[tuple[str, int], ...]) -> list[dict[str, Any]]:
    return [{"topic": topic, "partition": index} for topic, index in sorted(some)]


def _record(arguments: Namespace) -> str:
    """Returns the text about a record. Raises Wrong or Unreachable."""
    query: dict[str, Any] = {"topic": arguments.topic, "partition": arguments.partition}
    client = control_client(arguments, os.environ, CONTROL_S)
    found = client.request("GET", "groups", arguments.group, "records", query=query)
    texts = _deliveries(found, arguments.offset)
    if arguments.json:
        document: dict[str, Any] = {"group": arguments.group, **query, "offset": arguments.offset}
        document |= {name: found[name] for name in ("start_offset", "delivery_limit")}
        document |= {"record": _in_flight(found, arguments.offset), "text": texts}
        return json.dumps(document, indent=2) + "\n"
    place = f"{arguments.topic}-{arguments.partition} offset {arguments.offset}"
    lines = [f"share group {visible(arguments.group)}, {visible(place)}", *(f"  {one}" for one in texts)]
    return "\n".join(lines) + "\n"


def _in_flight(found: Mapping[str, Any], offset: int) -> Mapping[str, Any] | None:
    """Returns the range with this offset of the records in flight, or None."""
    return next((one for one in found["records"] if one["first"] <= offset <= one["last"]), None)


def _deliveries(found: Mapping[str, Any], offset: int) -> list[str]:
    """Returns sentences about the deliveries of a record. `found` is the response of /groups/G/records."""
    start, limit = found["start_offset"], found["delivery_limit"]
    if start is None:
        return ["no member fetches from this share partition now: only its stored state exists"]
    if offset < start:
        return [f"it is done: the start offset is {start}. It is not delivered again"]
    one = _in_flight(found, offset)
    if one is None:
        return ["it is not in flight: it has not been delivered yet"]
    count = one["deliveries"]
    texts = [f"delivery {count} of at most {limit}" if count else "it has not been delivered yet"]
    ended = one["ended"]
    why = ended or "unknown since a restart"
    if one["state"] == "acquired":
        member = visible(one["member"] or "-")
        texts.append(f"member {member} has acquired it; its lock expires at {moment(one['lock_expires_ms'])}")
        if count > 1:
            texts.append(f"it was delivered again because of delivery {count - 1}: {why}")
    elif one["state"] == "available":
        if count:
            texts.append(f"it will be delivered again because of delivery {count}: {why}")
    elif one["state"] == "archived":
        last = ", its last delivery" if count >= limit and ended in ("released", "its lock expired") else ""
        texts.append(f"it is archived, and not delivered again: {ended or 'before a restart'}{last}")
    else:
        texts.append("it is acknowledged, and not delivered again")
    return texts


# Why a member has no partitions


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
