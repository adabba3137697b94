"""What the page's forms do, where the broker was started with `--control-write`. Each ends with another page.

Owns how what was typed becomes what an operation takes; what may be done is the operations' to say.
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
from .answer import Ask, Moved
from .query import url, whole_number
from .steering_view import SIMPLE
from .topics_view import topic_named


async def create_topic(ask: Ask) -> Moved:
    """Makes a topic."""
    given = ask.given
    partitions = whole_number("partitions", given.get("partitions", ""), 1, 1, PARTITIONS_MAX)
    name = given.get("name", "").strip() or None
    made = await ask.plane.operations.create_topic(name, partitions or 1, _configs(given.get("configs", "")))
    return Moved(url("topics", made), f"Topic {made} is made.")


def _configs(text: str) -> dict[str, str]:
    """Lines of NAME=VALUE."""
    found: dict[str, str] = {}
    for line in filter(None, map(str.strip, text.splitlines())):
        name, equals, value = line.partition("=")
        if not equals:
            raise Refusal(400, f"a config is NAME=VALUE, one in each line, not {line[:80]!r}")
        found[name.strip()] = value.strip()
    return found


async def delete_topic(ask: Ask) -> Moved:
    """Deletes a topic."""
    name = ask.path["topic"]
    if ask.given.get("sure") != "yes":
        raise Refusal(400, f"{name} is deleted with its records where the box is ticked")
    if topic_named(ask.plane.operations.running.state, name).is_internal:
        raise Refusal(400, f"{name} is Kafka's own: it is not deleted here")
    await ask.plane.operations.delete_topic(name)
    return Moved("/topics", f"Topic {name} is deleted.")


async def produce(ask: Ask) -> Moved:
    """Appends a record."""
    given, topic = ask.given, ask.path["topic"]
    found = topic_named(ask.plane.operations.running.state, topic)
    if found.is_internal:
        raise Refusal(400, f"{topic} is Kafka's own: what is in it only the broker writes")
    partition = whole_number("partition", given.get("partition", ""), None, 0, INT32_MAX)
    moment = given.get("timestamp", "").strip()
    record = NewRecord(
        None if given.get("tombstone") else _bytes("value", given),
        _bytes("key", given) if given.get("key") else None,
        tuple(_headers(given.get("headers", ""))),
        partition,
        _moment(moment) if moment else None,
    )
    (offset,) = await ask.plane.operations.send_many(topic, [record])
    where = f"?partition={partition}" if partition is not None else ""
    return Moved(url("messages", topic) + where, f"A record is appended at offset {offset}.")


def _bytes(name: str, given: Mapping[str, str]) -> bytes:
    """A text as UTF-8, or what it says in hex or base64. A browser sends lines that end with CR LF; one that was typed
    ends with LF."""
    text = given.get(name, "").replace("\r\n", "\n")
    way = given.get(f"{name}_as", "text")
    try:
        if way == "hex":
            return bytes.fromhex(text)
        if way == "base64":
            return base64.b64decode("".join(text.split()), validate=True)
        return text.encode()
    except (ValueError, binascii.Error) as error:
        raise Refusal(400, f"the {name} is no {way}: {error}") from error


def _headers(text: str) -> list[tuple[str, str]]:
    """Lines of NAME: VALUE."""
    found: list[tuple[str, str]] = []
    for line in filter(None, map(str.strip, text.splitlines())):
        name, colon, value = line.partition(":")
        if not colon:
            raise Refusal(400, f"a header is NAME: VALUE, one in each line, not {line[:80]!r}")
        found.append((name.strip(), value.strip()))
    return found


def _moment(text: str) -> int:
    try:
        return time_ms(text)
    except (ValueError, OverflowError) as error:
        raise Refusal(400, error) from error


async def delete_group(ask: Ask) -> Moved:
    """Deletes a group with its offsets."""
    id = ask.given.get("id", "")
    if ask.given.get("sure") != "yes":
        raise Refusal(400, f"the group {id} is deleted with its offsets where the box is ticked")
    await ask.plane.operations.delete_group(id)
    return Moved("/groups", f"Group {id} is deleted.")


async def add_fault(ask: Ask) -> Moved:
    """Puts a simple fault in force."""
    given, running = ask.given, ask.plane.operations.running
    if running.faults is None:
        raise Refusal(409, "this broker was not started with faults")
    if len(running.faults.list()) >= MAX_FAULTS:
        raise Refusal(409, f"there are {MAX_FAULTS} faults already; remove one")
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
    return Moved("/faults", f"Fault {made} is in force.")


async def remove_faults(ask: Ask) -> Moved:
    """Takes one fault out of force, or all."""
    faults = ask.plane.operations.running.faults
    if faults is None:
        raise Refusal(409, "this broker was not started with faults")
    if ask.given.get("id") == "all":
        count = len(faults.list())
        faults.clear()
        return Moved("/faults", f"{count} fault{'' if count == 1 else 's'} removed.")
    number = whole_number("id", ask.given.get("id", ""), 0, 0) or 0
    try:
        faults.remove(number)
    except UnknownFault as error:
        raise Refusal(404, error) from error
    return Moved("/faults", f"Fault {number} is removed.")


async def move_clock(ask: Ask) -> Moved:
    """Freezes the clock, lets it run, or moves it on."""
    given, operations = ask.given, ask.plane.operations
    if not isinstance(operations.running.state.clock, VirtualClock):
        raise Refusal(409, "this broker uses the machine's clock, which cannot be changed")
    what = given.get("do", "")
    if what == "freeze":
        await operations.moving(lambda clock: clock.freeze())
        return Moved("/clock", "The clock stands still.")
    if what == "run":
        await operations.moving(lambda clock: clock.run())
        return Moved("/clock", "The clock goes on.")
    if what != "advance":
        raise Refusal(400, "the clock is frozen, run or advanced")
    text = given.get("by", "").strip()
    try:
        ms = int(text) if text.isascii() and text.isdigit() and len(text) < 16 else duration_ms(text)
    except ValueError as error:
        raise Refusal(400, error) from error
    if ms > MOVE_MS_MAX:
        raise Refusal(400, f"{text} is farther than {MOVE_MS_MAX} ms, a hundred years")
    keep = bool(given.get("keep_members"))
    await operations.moving(lambda clock: clock.advance(ms, keep))
    return Moved("/clock", f"The clock is moved on by {text}; what became due is done.")
