"""What an administrator does over HTTP: resets a group's offsets, changes configs, keeps access control lists."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from ..admin_api.views import AclEntry, ConfigInfo
from ..groups.resets import OFFSET, SHIFT, TIME
from .administration_schemas import ACL_FILTER
from .plane import Plane
from .refusal import Refusal
from .route import Call, Route

NUMBERS = {OFFSET: "offset", SHIFT: "shift_by", TIME: "time_ms"}
"""The field of a reset's body that each scenario needs."""


async def reset_offsets(plane: Plane, call: Call) -> Any:
    """Sets the committed offsets of a group."""
    body = call.body
    of = None if "of" not in body else [(one["topic"], one.get("partition")) for one in body["of"]]
    done = await plane.operations.reset_offsets(
        call.path["group"], body["to"], _number(body), of, dry_run=body.get("dry_run", False)
    )
    return asdict(done)


def _number(given: Mapping[str, Any]) -> int:
    """The number of a body's scenario, 0 where it needs none. Raises Refusal where it is missing, or is another
    scenario's."""
    to = given["to"]
    needed = NUMBERS.get(to)
    for name in NUMBERS.values():
        if name in given and name != needed:
            raise Refusal(400, f"a reset to {to} takes no {name}")
    if needed is None:
        return 0
    if needed not in given:
        raise Refusal(400, f"a reset to {to} needs {needed}")
    return given[needed]


async def delete_group(plane: Plane, call: Call) -> Any:
    """Deletes a group."""
    await plane.operations.delete_group(call.path["group"])
    return {"removed": 1}


async def get_topic_configs(plane: Plane, call: Call) -> Any:
    """All configs of a topic."""
    return _configs(await plane.operations.topic_configs(call.path["topic"]))


async def change_topic_configs(plane: Plane, call: Call) -> Any:
    """Changes configs of a topic; returns all as they are then."""
    name = call.path["topic"]
    if "for_all" in call.body:
        raise Refusal(400, "for_all is about the broker's configs")
    await plane.operations.change_topic_configs(
        name, **_changes(call.body), validate_only=call.body.get("dry_run", False)
    )
    return _configs(await plane.operations.topic_configs(name))


async def get_broker_configs(plane: Plane, call: Call) -> Any:
    """All configs of the broker."""
    return _configs(await plane.operations.broker_configs())


async def change_broker_configs(plane: Plane, call: Call) -> Any:
    """Changes dynamic configs of the broker; returns all as they are then."""
    body = call.body
    await plane.operations.change_broker_configs(
        **_changes(body), for_all=body.get("for_all", False), validate_only=body.get("dry_run", False)
    )
    return _configs(await plane.operations.broker_configs())


def _changes(body: Mapping[str, Any]) -> dict[str, Any]:
    return {name: body[name] for name in ("set", "delete", "append", "subtract") if name in body}


def _configs(found: list[ConfigInfo]) -> Any:
    return {
        "configs": [
            asdict(one)
            | {"synonyms": [{"name": name, "value": value, "source": source} for name, value, source in one.synonyms]}
            for one in found
        ]
    }


async def list_acls(plane: Plane, call: Call) -> Any:
    """The access control entries that match a filter."""
    return _acls(await plane.operations.acls(AclEntry(**call.query)))


async def add_acls(plane: Plane, call: Call) -> Any:
    """Adds access control entries."""
    entries = [AclEntry(**({"pattern_type": "LITERAL", "permission": "ALLOW"} | one)) for one in call.body["acls"]]
    await plane.operations.add_acls(entries)
    return {}


async def remove_acls(plane: Plane, call: Call) -> Any:
    """Removes the access control entries that match a filter."""
    return {"removed": len(await plane.operations.remove_acls(AclEntry(**call.query)))}


def _acls(found: list[AclEntry]) -> Any:
    return {"acls": [asdict(one) for one in found]}


ROUTES = (
    Route(
        "POST", "/groups/{group}/offsets", "resetOffsets", "Set the committed offsets of a group without members",
        "GroupReset", reset_offsets, body="Reset", needs_body=True, refusals=(404, 409),
    ),
    Route(
        "DELETE", "/groups/{group}", "deleteGroup", "Delete a group with its committed offsets", "Removed",
        delete_group, refusals=(404, 409),
    ),
    Route(
        "GET", "/topics/{topic}/configs", "getTopicConfigs", "All configs of a topic", "Configs", get_topic_configs,
        refusals=(404, 409),
    ),
    Route(
        "PATCH", "/topics/{topic}/configs", "changeTopicConfigs", "Change configs of a topic", "Configs",
        change_topic_configs, body="ConfigChanges", needs_body=True, refusals=(404, 409),
    ),
    Route("GET", "/broker/configs", "getBrokerConfigs", "All configs of the broker", "Configs", get_broker_configs),
    Route(
        "PATCH", "/broker/configs", "changeBrokerConfigs", "Change dynamic configs of the broker", "Configs",
        change_broker_configs, body="ConfigChanges", needs_body=True,
    ),
    Route(
        "GET", "/acls", "listAcls", "The access control entries that match", "Acls", list_acls, query=ACL_FILTER,
    ),
    Route(
        "POST", "/acls", "addAcls", "Add access control entries", "Nothing", add_acls, body="NewAcls", needs_body=True
    ),
    Route(
        "DELETE", "/acls", "removeAcls", "Remove the access control entries that match; without a filter all",
        "Removed", remove_acls, query=ACL_FILTER,
    ),
)  # fmt: skip
