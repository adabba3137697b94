"""The control plane's routes for the broker as a whole: faults, leaders, the clock, snapshots."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Generator
from typing import TYPE_CHECKING, Any

import msgspec

from ...storage.errors import StorageError
from ..admin_api.views import OperationError
from ..faults.rule_set import Faults, UnknownFault
from ..faults.rules import Rule, StandingRule
from ..metadata.topology import TopologyError
from .models import steering as models
from .models.parts import Nothing, Removed, or_none
from .plane import Plane
from .refusal import Refusal
from .route import Call, RouteTable

if TYPE_CHECKING:
    from ..metadata.topology import Topology

MAX_FAULTS = 1000
routes = RouteTable()


def faults_of(plane: Plane) -> Faults:
    """Returns the fault rules of the broker. Raises Refusal (409)."""
    faults = plane.operations.running.faults
    if faults is None:
        raise Refusal(409, "this broker was started without fault injection")
    return faults


def faults_with_room(plane: Plane) -> Faults:
    """Returns the fault rules of the broker if one more may be added. Raises Refusal (409)."""
    faults = faults_of(plane)
    if len(faults.list()) >= MAX_FAULTS:
        raise Refusal(409, f"there are {MAX_FAULTS} faults, the maximum; remove one")
    return faults


def add_rule(faults: Faults, rule: Any) -> StandingRule:
    """Adds a rule in its JSON form. Raises Refusal (400)."""
    try:
        return faults.get(faults.add(Rule.from_json(rule)))
    except ValueError as error:
        raise Refusal(400, error) from error


@contextlib.contextmanager
def known_fault() -> Generator[None]:
    """Turns UnknownFault into Refusal (404)."""
    try:
        yield
    except UnknownFault as error:
        raise Refusal(404, error) from error


@routes.add("GET", "/faults", models.Faults)
async def list_faults(plane: Plane, call: Call) -> Any:
    """The faults in force, oldest first."""
    return {"faults": [standing.to_json() for standing in faults_of(plane).list()]}


@routes.add("POST", "/faults", models.Fault, status=201, body=models.Rule, needs_body=True)
async def add_fault(plane: Plane, call: Call) -> Any:
    """Add a fault."""
    return add_rule(faults_with_room(plane), msgspec.to_builtins(call.body)).to_json()


@routes.add("DELETE", "/faults", Removed)
async def clear_faults(plane: Plane, call: Call) -> Any:
    """Remove all faults."""
    return {"removed": faults_of(plane).clear()}


@routes.add("GET", "/faults/{fault}", models.Fault)
async def get_fault(plane: Plane, call: Call) -> Any:
    """One fault."""
    with known_fault():
        return faults_of(plane).get(call.path["fault"]).to_json()


@routes.add("DELETE", "/faults/{fault}", Removed)
async def remove_fault(plane: Plane, call: Call) -> Any:
    """Remove a fault."""
    with known_fault():
        faults_of(plane).remove(call.path["fault"])
    return {"removed": 1}


@routes.add("GET", "/topology", models.Topology)
async def get_topology(plane: Plane, call: Call) -> Any:
    """The nodes, and the leaders of partitions."""
    return _topology(plane).describe()


@routes.add("POST", "/topology/leaders", models.Topology, body=models.Move, needs_body=True, refusals=(404, 409))
async def move_leader(plane: Plane, call: Call) -> Any:
    """Make another node the leader of a partition."""
    body: models.Move = call.body
    with _found(plane, topic=body.topic, partition=body.partition, node=body.node) as topology:
        topology.move_leader(body.topic, body.partition, body.node)
        return topology.describe()


@routes.add("POST", "/topology/offline", models.Topology, body=models.Offline, needs_body=True, refusals=(404, 409))
async def set_offline(plane: Plane, call: Call) -> Any:
    """Take a partition offline, or bring it online again."""
    body: models.Offline = call.body
    with _found(plane, topic=body.topic, partition=body.partition) as topology:
        change = topology.take_offline if body.offline else topology.bring_online
        change(body.topic, body.partition)
        return topology.describe()


@routes.add("POST", "/topology/spread", models.Topology, body=Nothing)
async def spread_leaders(plane: Plane, call: Call) -> Any:
    """Make the preferred node of each partition its leader."""
    with _found(plane) as topology:
        topology.spread_leaders()
        return topology.describe()


@routes.add("POST", "/topology/nodes/{node}", models.Topology, body=models.NodeChange, needs_body=True)
async def change_node(plane: Plane, call: Call) -> Any:
    """Stop a node, or start it again."""
    body: models.NodeChange = call.body
    with _found(plane, node=call.path["node"]) as topology:
        change = topology.start_node if body.running else topology.stop_node
        change(call.path["node"])
        return topology.describe()


def _topology(plane: Plane) -> Topology:
    """Returns the present nodes and leaders; another object after a restore."""
    return plane.operations.running.state.topology


@contextlib.contextmanager
def _found(
    plane: Plane, topic: str | None = None, partition: int | None = None, node: int | None = None
) -> Generator[Topology]:
    """Yields the topology, after a check that these objects exist. Errors inside become Refusal (409). Raises Refusal
    (404)."""
    topology = _topology(plane)
    view = topology.describe()
    if topic is not None and not any((one.topic, one.partition) == (topic, partition) for one in view.partitions):
        raise Refusal(404, f"there is no partition {topic}-{partition}")
    if node is not None and not any(one.id == node for one in view.nodes):
        raise Refusal(404, f"there is no node {node}")
    try:
        yield topology
    except (TopologyError, StorageError, OSError) as error:
        raise Refusal(409, error) from error


@routes.add("GET", "/clock", models.Clock)
async def get_clock(plane: Plane, call: Call) -> Any:
    """The broker's time, and whether the clock is frozen."""
    return await plane.operations.clock.state()


@routes.add("POST", "/clock/freeze", models.Clock, body=Nothing)
async def freeze_clock(plane: Plane, call: Call) -> Any:
    """Freeze the clock."""
    return await plane.operations.moving(lambda clock: clock.freeze())


@routes.add("POST", "/clock/run", models.Clock, body=Nothing)
async def run_clock(plane: Plane, call: Call) -> Any:
    """Run the clock from its present time."""
    return await plane.operations.moving(lambda clock: clock.run())


@routes.add("POST", "/clock/set", models.Clock, body=models.Moment, needs_body=True)
async def set_clock(plane: Plane, call: Call) -> Any:
    """Set the clock; everything that becomes due is done before the response."""
    body: models.Moment = call.body
    return await plane.operations.moving(lambda clock: clock.set(body.ms))


@routes.add("POST", "/clock/advance", models.Clock, body=models.Advance, needs_body=True)
async def advance_clock(plane: Plane, call: Call) -> Any:
    """Advance the clock; everything that becomes due is done before the response."""
    body: models.Advance = call.body
    return await plane.operations.moving(lambda clock: clock.advance(body.ms, body.keep_members))


@contextlib.contextmanager
def _in_this_state() -> Generator[None]:
    """Turns OperationErrors into Refusal (409): these requests have no parts that could be invalid."""
    try:
        yield
    except OperationError as error:
        raise Refusal(409, error) from error


@routes.add("POST", "/state/reset", Nothing, body=Nothing)
async def reset(plane: Plane, call: Call) -> Any:
    """Reset the broker to its start; snapshots stay."""
    with _in_this_state():
        await asyncio.shield(plane.operations.reset())  # completed even if the control plane stops
    return {}


@routes.add("GET", "/snapshots", models.Snapshots)
async def list_snapshots(plane: Plane, call: Call) -> Any:
    """The snapshots."""
    return {"snapshots": [{"name": name} for name in sorted(plane.snapshots)]}


@routes.add("POST", "/snapshots", models.Snapshot, status=201, body=models.NewSnapshot)
async def take_snapshot(plane: Plane, call: Call) -> Any:
    """Take a snapshot of the whole state."""
    body: models.NewSnapshot = call.body
    async with plane.naming:
        name = plane.free_name(or_none(body.name))
        with _in_this_state():
            plane.snapshots[name] = await plane.operations.snapshot()
    return {"name": name}


@routes.add("DELETE", "/snapshots/{snapshot}", Removed)
async def delete_snapshot(plane: Plane, call: Call) -> Any:
    """Delete a snapshot."""
    plane.snapshot_named(call.path["snapshot"])
    del plane.snapshots[call.path["snapshot"]]
    return {"removed": 1}


@routes.add("POST", "/snapshots/{snapshot}/restore", Nothing, body=Nothing)
async def restore_snapshot(plane: Plane, call: Call) -> Any:
    """Restore a snapshot, which stays available."""
    snapshot = plane.snapshot_named(call.path["snapshot"])
    with _in_this_state():
        await asyncio.shield(plane.operations.restore(snapshot))
    return {}
