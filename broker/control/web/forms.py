"""The actions of the forms, for a broker with `--control-write`. Each ends with a redirect.

Converts fields of forms into arguments of operations, which decide what is allowed.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any

from ....protocol.limits import INT32_MAX
from ....protocol.text import duration_ms, time_ms
from ...admin_api.views import NewRecord
from ...faults import Rule, UnknownFault
from ...virtual_clock import VirtualClock
from ..models.steering import MOVE_MS_MAX
from ..models.topics import PARTITIONS_MAX
from ..refusal import Refusal
from ..steering import MAX_FAULTS
from .answer import Moved, PageRequest
from .query import url, whole_number
from .steering_view import SIMPLE
from .topics_view import topic_named


async def create_topic(request: PageRequest) -> Moved:
    """Creates a topic."""
    given = request.given
    partitions = whole_number("partitions", given.get("partitions", ""), 1, 1, PARTITIONS_MAX)
    name = given.get("name", "").strip() or None
    made = await request.plane.operations.create_topic(name, partitions or 1, _configs(given.get("configs", "")))
    return Moved(url("topics", made), f"Topic {made} was created.")


def _configs(text: str) -> dict[str, str]:
    """Parses lines of NAME=VALUE. Raises Refusal."""
    found: dict[str, str] = {}
    for line in filter(None, map(str.strip, text.splitlines())):
        name, equals, value = line.partition("=")
        if not equals:
            raise Refusal(400, f"a config is NAME=VALUE, one per line, not {line[:80]!r}")
        found[name.strip()] = value.strip()
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
    moment = given.get("timestamp", "").strip()
    record = NewRecord(
        None if given.get("tombstone") else _bytes("value", given),
        _bytes("key", given) if given.get("key") else None,
        tuple(_headers(given.get("headers", ""))),
        partition,
        _moment(moment) if moment else None,
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


def _headers(text: str) -> list[tuple[str, str]]:
    """Parses lines of NAME: VALUE. Raises Refusal."""
    found: list[tuple[str, str]] = []
    for line in filter(None, map(str.strip, text.splitlines())):
        name, colon, value = line.partition(":")
        if not colon:
            raise Refusal(400, f"a header is NAME: VALUE, one per line, not {line[:80]!r}")
        found.append((name.strip(), value.strip()))
    return found


def _moment(text: str) -> int:
    try:
        return time_ms(text)
    except (ValueError, OverflowError) as error:
        raise Refusal(400, error) from error


async def delete_group(request: PageRequest) -> Moved:
    """Deletes a group with its committed offsets."""
    id = request.given.get("id", "")
    if request.given.get("sure") != "yes":
        raise Refusal(400, f"tick the box to delete group {id} with its offsets")
    await request.plane.operations.delete_group(id)
    return Moved("/groups", f"Group {id} was deleted.")


async def add_fault(request: PageRequest) -> Moved:
    """Adds a simple fault."""
    given, running = request.given, request.plane.operations.running
    if running.faults is None:
        raise Refusal(409, "this broker was started without fault injection")
    if len(running.faults.list()) >= MAX_FAULTS:
        raise Refusal(409, f"there are {MAX_FAULTS} faults, the maximum; remove one")
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
    try:
        made = running.faults.add(Rule.from_json({name: value for name, value in rule.items() if value is not None}))
    except ValueError as error:
        raise Refusal(400, error) from error
    return Moved("/faults", f"Fault {made} was added.")


async def remove_faults(request: PageRequest) -> Moved:
    """Removes one fault, or all."""
    faults = request.plane.operations.running.faults
    if faults is None:
        raise Refusal(409, "this broker was started without fault injection")
    if request.given.get("id") == "all":
        count = len(faults.list())
        faults.clear()
        return Moved("/faults", f"{count} fault{' was' if count == 1 else 's were'} removed.")
    number = whole_number("id", request.given.get("id", ""), 0, 0) or 0
    try:
        faults.remove(number)
    except UnknownFault as error:
        raise Refusal(404, error) from error
    return Moved("/faults", f"Fault {number} was removed.")


async def move_clock(request: PageRequest) -> Moved:
    """Freezes the clock, runs it, or advances it."""
    given, operations = request.given, request.plane.operations
    if not isinstance(operations.running.state.clock, VirtualClock):
        raise Refusal(409, "this broker uses the machine's clock, which cannot be changed")
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
