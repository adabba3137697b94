"""The control plane's routes for administration: resets of committed offsets, configs, access control lists."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import msgspec
from msgspec import UNSET

from ..admin_api.views import AclEntry, ConfigInfo
from ..groups.resets import OFFSET, SHIFT, TIME
from .models import administration as models
from .models.parts import Nothing, Removed, or_none
from .plane import Plane
from .refusal import Refusal
from .route import Call, RouteTable

routes = RouteTable()
NUMBERS = {OFFSET: "offset", SHIFT: "shift_by", TIME: "time_ms"}
"""The field of a reset's body that a scenario needs."""


@routes.add("POST", "/groups/{group}/offsets", models.GroupReset, body=models.Reset, needs_body=True)
async def reset_offsets(plane: Plane, call: Call) -> Any:
    """Set the committed offsets of a group without members."""
    body: models.Reset = call.body
    of = None
    if body.of is not UNSET:
        of = [(one.topic, or_none(one.partition)) for one in body.of]
    return await plane.operations.reset_offsets(call.path["group"], body.to, _number(body), of, dry_run=body.dry_run)


def _number(body: models.Reset) -> int:
    """Returns the number of a body's scenario, 0 if it needs none. Raises Refusal if the number is missing, or belongs
    to another scenario."""
    needed = NUMBERS.get(body.to)
    given = {name: number for name in NUMBERS.values() if (number := getattr(body, name)) is not UNSET}
    for name in given:
        if name != needed:
            raise Refusal(400, f"a reset to {body.to} takes no {name}")
    if needed is None:
        return 0
    if needed not in given:
        raise Refusal(400, f"a reset to {body.to} needs {needed}")
    return given[needed]


@routes.add("DELETE", "/groups/{group}", Removed)
async def delete_group(plane: Plane, call: Call) -> Any:
    """Delete a group with its committed offsets."""
    await plane.operations.delete_group(call.path["group"])
    return {"removed": 1}


@routes.add("GET", "/topics/{topic}/configs", models.Configs)
async def get_topic_configs(plane: Plane, call: Call) -> Any:
    """All configs of a topic."""
    return _configs(await plane.operations.topic_configs(call.path["topic"]))


@routes.add("PATCH", "/topics/{topic}/configs", models.Configs, body=models.ConfigChanges, needs_body=True)
async def change_topic_configs(plane: Plane, call: Call) -> Any:
    """Change configs of a topic."""
    name = call.path["topic"]
    body: models.ConfigChanges = call.body
    if body.for_all is not UNSET:
        raise Refusal(400, "for_all applies only to configs of the broker")
    await plane.operations.change_topic_configs(name, **_changes(body), validate_only=body.dry_run)
    return _configs(await plane.operations.topic_configs(name))


@routes.add("GET", "/broker/configs", models.Configs)
async def get_broker_configs(plane: Plane, call: Call) -> Any:
    """All configs of the broker."""
    return _configs(await plane.operations.broker_configs())


@routes.add("PATCH", "/broker/configs", models.Configs, body=models.ConfigChanges, needs_body=True)
async def change_broker_configs(plane: Plane, call: Call) -> Any:
    """Change dynamic configs of the broker."""
    body: models.ConfigChanges = call.body
    await plane.operations.change_broker_configs(
        **_changes(body), for_all=body.for_all is True, validate_only=body.dry_run
    )
    return _configs(await plane.operations.broker_configs())


def _changes(body: models.ConfigChanges) -> dict[str, Any]:
    changes = {"set": body.set, "delete": body.delete, "append": body.append, "subtract": body.subtract}
    return {name: change for name, change in changes.items() if change is not UNSET}


def _configs(found: list[ConfigInfo]) -> Any:
    return {
        "configs": [
            asdict(one)
            | {"synonyms": [{"name": name, "value": value, "source": source} for name, value, source in one.synonyms]}
            for one in found
        ]
    }


@routes.add("GET", "/acls", models.Acls, query=models.AclFilter)
async def list_acls(plane: Plane, call: Call) -> Any:
    """The access control entries that match."""
    return {"acls": await plane.operations.acls(AclEntry(**msgspec.to_builtins(call.query)))}


@routes.add("POST", "/acls", Nothing, body=models.NewAcls, needs_body=True)
async def add_acls(plane: Plane, call: Call) -> Any:
    """Add access control entries."""
    body: models.NewAcls = call.body
    await plane.operations.add_acls([AclEntry(**msgspec.to_builtins(one)) for one in body.acls])
    return {}


@routes.add("DELETE", "/acls", Removed, query=models.AclFilter)
async def remove_acls(plane: Plane, call: Call) -> Any:
    """Remove the access control entries that match; without a filter, all."""
    return {"removed": len(await plane.operations.remove_acls(AclEntry(**msgspec.to_builtins(call.query))))}
