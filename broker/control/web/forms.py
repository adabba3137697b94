"""The actions of the forms, for a broker with `--control-write`. Each ends with a redirect.

Converts fields of forms into arguments of operations, which decide what is allowed.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any

from ....protocol.limits import INT32_MAX, INT64_MAX
from ....protocol.text import duration_ms, places, plural
from ...admin_api.views import AclEntry, NewRecord
from ...groups.resets import CURRENT, EARLIEST, LATEST, OFFSET, SCENARIOS, SHIFT, TIME
from ..models.steering import MOVE_MS_MAX
from ..models.topics import PARTITIONS_MAX
from ..refusal import Refusal
from ..steering import add_rule, faults_of, faults_with_room, known_fault
from .administration_view import ACL_WORDS, SIMPLE, WAYS
from .page import Moved, Page, PageRequest, moment, url, whole_number
from .records import topic_named

MAX_PLACES = 10_000  # partitions and topics that one form names


async def create_topic(request: PageRequest) -> Moved:
    """Creates a topic."""
    given = request.given
    partitions = whole_number("partitions", given.get("partitions", ""), 1, 1, PARTITIONS_MAX)
    name = given.get("name", "").strip() or None
    configs = dict(_pairs(given.get("configs", ""), "=", "a config is NAME=VALUE"))
    made = await request.plane.operations.create_topic(name, partitions or 1, configs)
    return Moved(url("topics", made), f"Topic {made} was created.")


def _pairs(text: str, separator: str, form: str) -> list[tuple[str, str]]:
    """Parses lines of a name, the separator and a value. Raises Refusal."""
    found: list[tuple[str, str]] = []
    for line in filter(None, map(str.strip, text.splitlines())):
        name, is_pair, value = line.partition(separator)
        if not is_pair:
            raise Refusal(400, f"{form}, one per line, not {line[:80]!r}")
        found.append((name.strip(), value.strip()))
    return found


async def delete_topic(request: PageRequest) -> Moved:
    """Deletes a topic."""
    name = request.path["topic"]
    if request.given.get("sure") != "yes":
        raise Refusal(400, f"tick the box to delete {name} with its records")
    if topic_named(request.plane.operations.running.state, name).is_internal:
        raise Refusal(400, f"{name} is an internal topic: it cannot be deleted here")
    await request.plane.operations.delete_topic(name)
    return Moved("/topics", f"Topic {name} was deleted.")


async def produce(request: PageRequest) -> Moved:
    """Appends a record."""
    given, topic = request.given, request.path["topic"]
    found = topic_named(request.plane.operations.running.state, topic)
    if found.is_internal:
        raise Refusal(400, f"{topic} is an internal topic: only the broker writes to it")
    partition = whole_number("partition", given.get("partition", ""), None, 0, INT32_MAX)
    time = given.get("timestamp", "").strip()
    record = NewRecord(
        None if given.get("tombstone") else _bytes("value", given),
        _bytes("key", given) if given.get("key") else None,
        tuple(_pairs(given.get("headers", ""), ":", "a header is NAME: VALUE")),
        partition,
        moment(time) if time else None,
    )
    (offset,) = await request.plane.operations.send_many(topic, [record])
    where = f"?partition={partition}" if partition is not None else ""
    return Moved(url("messages", topic) + where, f"The record was appended at offset {offset}.")


def _bytes(name: str, given: Mapping[str, str]) -> bytes:
    """Returns a text as UTF-8, or decoded from hex or base64. Browsers send line breaks as CR LF; they are stored as
    LF."""
    text = given.get(name, "").replace("\r\n", "\n")
    way = given.get(f"{name}_as", "text")
    try:
        if way == "hex":
            return bytes.fromhex(text)
        if way == "base64":
            return base64.b64decode("".join(text.split()), validate=True)
        return text.encode()
    except (ValueError, binascii.Error) as error:
        raise Refusal(400, f"the {name} is not valid {way}: {error}") from error


async def delete_group(request: PageRequest) -> Moved:
    """Deletes a group with its committed offsets."""
    id = request.given.get("id", "")
    if request.given.get("sure") != "yes":
        raise Refusal(400, f"tick the box to delete group {id} with its offsets")
    await request.plane.operations.delete_group(id)
    return Moved("/groups", f"Group {id} was deleted.")


async def add_fault(request: PageRequest) -> Moved:
    """Adds a simple fault."""
    given, faults = request.given, faults_with_room(request.plane)
    rule: dict[str, Any] = {"action": given.get("action", "")}
    if rule["action"] not in SIMPLE:
        raise Refusal(400, f"a fault is one of {', '.join(SIMPLE)}")
    if rule["action"] == "error":
        rule["code"] = given.get("code", "")
    if rule["action"] in ("delay", "throttle"):
        rule["ms"] = whole_number("ms", given.get("ms", ""), None, 1, INT32_MAX)
    for name in ("api", "topic", "client_id"):
        if text := given.get(name, "").strip():
            rule[name] = text
    for name in ("times", "partition"):
        number = whole_number(name, given.get(name, ""))
        if number is not None:
            rule[name] = number
    made = add_rule(faults, {name: value for name, value in rule.items() if value is not None})
    return Moved("/faults", f"Fault {made.id} was added.")


async def remove_faults(request: PageRequest) -> Moved:
    """Removes one fault, or all."""
    faults = faults_of(request.plane)
    if request.given.get("id") == "all":
        count = faults.clear()
        return Moved("/faults", f"{count} fault{' was' if count == 1 else 's were'} removed.")
    number = whole_number("id", request.given.get("id", ""), 0, 0) or 0
    with known_fault():
        faults.remove(number)
    return Moved("/faults", f"Fault {number} was removed.")


async def move_clock(request: PageRequest) -> Moved:
    """Freezes the clock, runs it, or advances it."""
    given, operations = request.given, request.plane.operations
    what = given.get("do", "")
    if what == "freeze":
        await operations.moving(lambda clock: clock.freeze())
        return Moved("/clock", "The clock is frozen.")
    if what == "run":
        await operations.moving(lambda clock: clock.run())
        return Moved("/clock", "The clock runs.")
    if what != "advance":
        raise Refusal(400, "do is one of freeze, run, advance")
    text = given.get("by", "").strip()
    try:
        ms = int(text) if text.isascii() and text.isdigit() and len(text) < 16 else duration_ms(text)
    except ValueError as error:
        raise Refusal(400, error) from error
    if ms > MOVE_MS_MAX:
        raise Refusal(400, f"{text} is more than {MOVE_MS_MAX} ms, a hundred years")
    keep = bool(given.get("keep_members"))
    await operations.moving(lambda clock: clock.advance(ms, keep))
    return Moved("/clock", f"The clock was advanced by {text}; everything that became due is done.")


# Resets of offsets, configs, access control lists


async def reset_offsets(request: PageRequest) -> Page | Moved:
    """Previews the new offsets of a group, or sets them."""
    given = request.given
    id = given.get("id", "")
    (to, number), of = _scenario(given), _places(given.get("of", ""))
    if given.get("do") != "reset":
        preview = await request.plane.operations.reset_offsets(id, to, number, of, dry_run=True)
        names = ("id", "to", "number", "time", "of")
        values = {"reset": preview, "form": {name: given.get(name, "") for name in names}}
        return Page("reset.html", f"New offsets of {id}", "groups", values)
    done = await request.plane.operations.reset_offsets(id, to, number, of)
    where = url("groups", id) if id not in ("", ".", "..") else "/groups"
    return Moved(where, f"The offsets of {plural(len(done.offsets), 'partition')} were reset.")


def _scenario(given: Mapping[str, str]) -> tuple[str, int]:
    """Returns the chosen scenario with its number. Raises Refusal."""
    to = given.get("to", "")
    if to not in SCENARIOS:
        raise Refusal(400, f"offsets are reset to one of {', '.join(SCENARIOS)}")
    if to in (EARLIEST, LATEST, CURRENT):
        return to, 0
    if to == TIME:
        return to, moment(given.get("time", "").strip())
    least = 0 if to == OFFSET else -INT64_MAX
    number = whole_number("the number", given.get("number", ""), None, least)
    if number is None:
        raise Refusal(400, "an offset is needed" if to == OFFSET else f"{SHIFT} needs a number, negative to go back")
    return to, number


def _places(text: str) -> list[tuple[str, int | None]] | None:
    """Returns the partitions in lines of TOPIC or TOPIC:0,1; None without lines. Raises Refusal."""
    found: list[tuple[str, int | None]] = []
    for line in filter(None, map(str.strip, text.splitlines())):
        try:
            found += [(place["topic"], place.get("partition")) for place in places(line)]
        except ValueError as error:
            raise Refusal(400, error) from error
        if len(found) > MAX_PLACES:
            raise Refusal(400, f"more than {MAX_PLACES} partitions are given")
    return found or None


async def change_topic_config(request: PageRequest) -> Moved:
    """Changes a config of a topic, or checks the change."""
    name, changes = request.path["topic"], _changes(request.given)
    is_check = request.given.get("do") == "check"
    await request.plane.operations.change_topic_configs(name, **changes, validate_only=is_check)
    return Moved(url("topics", name, "configs"), _done(request.given, is_check))


async def change_broker_config(request: PageRequest) -> Moved:
    """Changes a dynamic config of the broker, or checks the change."""
    changes, is_check = _changes(request.given), request.given.get("do") == "check"
    for_all = bool(request.given.get("for_all"))
    await request.plane.operations.change_broker_configs(**changes, for_all=for_all, validate_only=is_check)
    return Moved("/broker", _done(request.given, is_check))


def _changes(given: Mapping[str, str]) -> dict[str, Any]:
    """Returns the change that a form describes. Raises Refusal."""
    name, how, value = given.get("name", "").strip(), given.get("how", ""), given.get("value", "")
    if not name:
        raise Refusal(400, "the name of a config is needed")
    if how not in WAYS:
        raise Refusal(400, f"the change of a config is one of {', '.join(WAYS)}")
    return {"delete": [name]} if how == "delete" else {how: {name: value.strip()}}


def _done(given: Mapping[str, str], is_check: bool) -> str:
    name = given.get("name", "").strip()
    return f"The change of {name} is allowed; nothing was changed." if is_check else f"{name} was changed."


async def add_acl(request: PageRequest) -> Moved:
    """Adds an access control entry."""
    entry = AclEntry(
        principal=request.given.get("principal", "").strip(),
        resource_name=request.given.get("resource_name", "").strip(),
        host=request.given.get("host", "").strip() or None,
        **{name: request.given.get(name, "") for name in ACL_WORDS},
    )
    await request.plane.operations.add_acls([entry])
    return Moved("/acls", f"An entry for {entry.principal} was added.")


async def remove_acl(request: PageRequest) -> Moved:
    """Removes one access control entry."""
    names = (*ACL_WORDS, "resource_name", "principal", "host")
    missing = [name for name in names if name not in request.given]
    if missing:  # a filter with fewer parts could remove several entries
        raise Refusal(400, f"all parts of the entry are needed to remove it; {missing[0]} is missing")
    removed = await request.plane.operations.remove_acls(AclEntry(**{name: request.given[name] for name in names}))
    return Moved("/acls", f"{len(removed)} entr{'y was' if len(removed) == 1 else 'ies were'} removed.")
