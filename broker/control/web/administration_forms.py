"""The forms of resets of offsets, configs and access control lists.

Owns how a form becomes what an operation takes. What may be done is the operations' to say.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ....protocol.limits import INT64_MAX
from ....protocol.text import places, time_ms
from ...admin_api.views import AclEntry
from ...groups.resets import CURRENT, EARLIEST, LATEST, OFFSET, SCENARIOS, SHIFT, TIME
from ..refusal import Refusal
from .administration_view import ACL_WORDS, WAYS
from .answer import Ask, Moved, Page
from .query import url, whole_number

MAX_PLACES = 10_000  # partitions and topics that one form names


async def reset_offsets(ask: Ask) -> Page | Moved:
    """Shows the new offsets of a group, or sets them."""
    given = ask.given
    id = given.get("id", "")
    (to, number), of = _scenario(given), _places(given.get("of", ""))
    if given.get("do") != "reset":
        preview = await ask.plane.operations.reset_offsets(id, to, number, of, dry_run=True)
        names = ("id", "to", "number", "time", "of")
        values = {"reset": preview, "form": {name: given.get(name, "") for name in names}}
        return Page("reset.html", f"New offsets of {id}", "groups", values)
    done = await ask.plane.operations.reset_offsets(id, to, number, of)
    count = len(done.offsets)
    where = url("groups", id) if id not in ("", ".", "..") else "/groups"
    return Moved(where, f"The offsets of {count} partition{'' if count == 1 else 's'} are set.")


def _scenario(given: Mapping[str, str]) -> tuple[str, int]:
    """The scenario that was chosen, with its number. Raises Refusal."""
    to = given.get("to", "")
    if to not in SCENARIOS:
        raise Refusal(400, f"offsets are set to one of {', '.join(SCENARIOS)}")
    if to in (EARLIEST, LATEST, CURRENT):
        return to, 0
    if to == TIME:
        try:
            return to, time_ms(given.get("time", "").strip())
        except (ValueError, OverflowError) as error:
            raise Refusal(400, error) from error
    least = 0 if to == OFFSET else -INT64_MAX
    number = whole_number("the number", given.get("number", ""), None, least)
    if number is None:
        raise Refusal(400, "an offset is needed" if to == OFFSET else f"{SHIFT} needs a number; below 0 goes back")
    return to, number


def _places(text: str) -> list[tuple[str, int | None]] | None:
    """Lines of TOPIC or TOPIC:0,1; None where there is none. Raises Refusal."""
    found: list[tuple[str, int | None]] = []
    for line in filter(None, map(str.strip, text.splitlines())):
        try:
            found += [(place["topic"], place.get("partition")) for place in places(line)]
        except ValueError as error:
            raise Refusal(400, error) from error
        if len(found) > MAX_PLACES:
            raise Refusal(400, f"more than {MAX_PLACES} partitions are named")
    return found or None


async def change_topic_config(ask: Ask) -> Moved:
    """Changes a config of a topic."""
    name, changes = ask.path["topic"], _changes(ask.given)
    is_check = ask.given.get("do") == "check"
    await ask.plane.operations.change_topic_configs(name, **changes, validate_only=is_check)
    return Moved(url("topics", name, "configs"), _told(ask.given, is_check))


async def change_broker_config(ask: Ask) -> Moved:
    """Changes a dynamic config of the broker."""
    changes, is_check = _changes(ask.given), ask.given.get("do") == "check"
    for_all = bool(ask.given.get("for_all"))
    await ask.plane.operations.change_broker_configs(**changes, for_all=for_all, validate_only=is_check)
    return Moved("/broker", _told(ask.given, is_check))


def _changes(given: Mapping[str, str]) -> dict[str, Any]:
    """What a form changes. Raises Refusal."""
    name, how, value = given.get("name", "").strip(), given.get("how", ""), given.get("value", "")
    if not name:
        raise Refusal(400, "the name of a config is needed")
    if how not in WAYS:
        raise Refusal(400, f"a config is changed by one of {', '.join(WAYS)}")
    return {"delete": [name]} if how == "delete" else {how: {name: value.strip()}}


def _told(given: Mapping[str, str], is_check: bool) -> str:
    name = given.get("name", "").strip()
    return f"The change of {name} is allowed; nothing was changed." if is_check else f"{name} is changed."


async def add_acl(ask: Ask) -> Moved:
    """Adds an access control entry."""
    entry = AclEntry(
        principal=ask.given.get("principal", "").strip(),
        resource_name=ask.given.get("resource_name", "").strip(),
        host=ask.given.get("host", "").strip() or None,
        **{name: ask.given.get(name, "") for name in ACL_WORDS},
    )
    await ask.plane.operations.add_acls([entry])
    return Moved("/acls", f"An entry for {entry.principal} is added.")


async def remove_acl(ask: Ask) -> Moved:
    """Removes one access control entry."""
    names = (*ACL_WORDS, "resource_name", "principal", "host")
    missing = [name for name in names if name not in ask.given]
    if missing:  # a filter with less would remove more than one
        raise Refusal(400, f"an entry is removed by all of its parts; {missing[0]} is missing")
    removed = await ask.plane.operations.remove_acls(AclEntry(**{name: ask.given[name] for name in names}))
    return Moved("/acls", f"{len(removed)} entr{'y' if len(removed) == 1 else 'ies'} removed.")
