"""The forms for resets of offsets, configs and access control lists.

Converts fields of forms into arguments of operations, which decide what is allowed.
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
from .answer import Moved, Page, PageRequest
from .query import url, whole_number

MAX_PLACES = 10_000  # partitions and topics that one form names


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
    count = len(done.offsets)
    where = url("groups", id) if id not in ("", ".", "..") else "/groups"
    return Moved(where, f"The offsets of {count} partition{'' if count == 1 else 's'} were reset.")


def _scenario(given: Mapping[str, str]) -> tuple[str, int]:
    """Returns the chosen scenario with its number. Raises Refusal."""
    to = given.get("to", "")
    if to not in SCENARIOS:
        raise Refusal(400, f"offsets are reset to one of {', '.join(SCENARIOS)}")
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
