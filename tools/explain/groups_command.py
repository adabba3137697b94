"""`ottla explain --group`: members without partitions, and deliveries of a record to a share group.

Members are read from any cluster, deliveries from the control plane of a broker of Ottla. `--json` prints for members
`{group, type, state, group_epoch, assignment_epoch, members}` with `member_id, epoch, partitions, target, reasons`; for
a record `{group, topic, partition, offset, start_offset, delivery_limit, record, text}`.
"""

from __future__ import annotations

import asyncio
import json
import os
from argparse import Namespace
from collections.abc import Mapping
from typing import Any

from ...client.admin.admin import Admin, GroupDescription, TopicDescription, checked
from ...client.net.errors import ClientError
from ...protocol.mistakes import complain
from ...protocol.text import moment, visible
from ..command_line import print_text
from ..http_client import Unreachable, Wrong, control_client
from .members import reasons, subscription

PROGRAM = "ottla explain"
CONTROL_S = 10.0


def explain_group(arguments: Namespace) -> int:
    """Prints the explanation and returns the exit code."""
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
