"""The control plane's routes for the broker as a whole: faults, leaders, the clock, snapshots."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Generator
from typing import TYPE_CHECKING, Any

import msgspec

from ...storage.errors import StorageError
from ..admin_api.clock import ClockControl, ClockState
from ..admin_api.views import OperationError
from ..faults import Faults, Rule, UnknownFault
from ..metadata.topology import TopologyError
from ..virtual_clock import VirtualClock
from .models import steering as models
from .models.parts import or_none
from .plane import Plane
from .refusal import Refusal
from .route import Call

if TYPE_CHECKING:
    from ..metadata.topology import Topology

MAX_FAULTS = 1000


def _faults(plane: Plane) -> Faults:
    """Returns the fault rules of the broker. Raises Refusal (409)."""
    faults = plane.operations.running.faults
    if faults is None:
        raise Refusal(409, "this broker was started without fault injection")
    return faults


async def list_faults(plane: Plane, call: Call) -> Any:
    """Returns the rules in force."""
    return {"faults": [standing.to_json() for standing in _faults(plane).list()]}


async def add_fault(plane: Plane, call: Call) -> Any:
    """Adds a rule and returns it."""
    faults = _faults(plane)
    if len(faults.list()) >= MAX_FAULTS:
        raise Refusal(409, f"there are {MAX_FAULTS} faults, the maximum; remove one")
    try:
        return faults.get(faults.add(Rule.from_json(msgspec.to_builtins(call.body)))).to_json()
    except ValueError as error:
        raise Refusal(400, error) from error


async def get_fault(plane: Plane, call: Call) -> Any:
    """Returns one rule in force."""
    try:
        return _faults(plane).get(call.path["fault"]).to_json()
    except UnknownFault as error:
        raise Refusal(404, error) from error


async def remove_fault(plane: Plane, call: Call) -> Any:
    """Removes a rule."""
    try:
        _faults(plane).remove(call.path["fault"])
    except UnknownFault as error:
        raise Refusal(404, error) from error
    return {"removed": 1}


async def clear_faults(plane: Plane, call: Call) -> Any:
    """Removes all rules."""
    faults = _faults(plane)
    count = len(faults.list())
    faults.clear()
    return {"removed": count}


async def get_topology(plane: Plane, call: Call) -> Any:
    """Returns the nodes and the leaders of partitions."""
    return _topology(plane).describe()


async def move_leader(plane: Plane, call: Call) -> Any:
    """Makes another node the leader of a partition."""
    body: models.Move = call.body
    with _found(plane, topic=body.topic, partition=body.partition, node=body.node) as topology:
        topology.move_leader(body.topic, body.partition, body.node)
        return topology.describe()


async def set_offline(plane: Plane, call: Call) -> Any:
    """Takes a partition offline, or brings it online again."""
    body: models.Offline = call.body
    with _found(plane, topic=body.topic, partition=body.partition) as topology:
        change = topology.take_offline if body.offline else topology.bring_online
        change(body.topic, body.partition)
        return topology.describe()


async def spread_leaders(plane: Plane, call: Call) -> Any:
    """Makes the preferred node of each partition its leader."""
    with _found(plane) as topology:
        topology.spread_leaders()
        return topology.describe()


async def change_node(plane: Plane, call: Call) -> Any:
    """Stops a node, or starts it again."""
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


async def get_clock(plane: Plane, call: Call) -> Any:
    """Returns the time, and whether the clock is frozen."""
    return await _clock(plane).state()


async def freeze_clock(plane: Plane, call: Call) -> Any:
    """Freezes the clock."""
    return await _moving(plane, lambda clock: clock.freeze())


async def run_clock(plane: Plane, call: Call) -> Any:
    """Runs the clock from its present time."""
    return await _moving(plane, lambda clock: clock.run())


async def set_clock(plane: Plane, call: Call) -> Any:
    """Sets the clock; if it goes forwards, everything that becomes due is done before the response."""
    body: models.Moment = call.body
    return await _moving(plane, lambda clock: clock.set(body.ms))


async def advance_clock(plane: Plane, call: Call) -> Any:
    """Advances the clock; everything that becomes due is done before the response."""
    body: models.Advance = call.body
    return await _moving(plane, lambda clock: clock.advance(body.ms, body.keep_members))


def _clock(plane: Plane) -> ClockControl:
    """Returns the clock if it can be moved. Raises Refusal (409)."""
    if not isinstance(plane.operations.running.state.clock, VirtualClock):
        raise Refusal(409, "this broker uses the machine's clock, which cannot be changed")
    return plane.operations.clock


async def _moving(plane: Plane, work: Callable[[ClockControl], Awaitable[ClockState]]) -> Any:
    _clock(plane)
    return await plane.operations.moving(work)


@contextlib.contextmanager
def _in_this_state() -> Generator[None]:
    """Turns OperationErrors into Refusal (409): these requests have no parts that could be invalid."""
    try:
        yield
    except OperationError as error:
        raise Refusal(409, error) from error


async def reset(plane: Plane, call: Call) -> Any:
    """Resets the broker to its start; the snapshots stay."""
    with _in_this_state():
        await asyncio.shield(plane.operations.reset())  # completed even if the control plane stops
    return {}


async def list_snapshots(plane: Plane, call: Call) -> Any:
    """Returns the snapshots that were taken over HTTP."""
    return {"snapshots": [{"name": name} for name in sorted(plane.snapshots)]}


async def take_snapshot(plane: Plane, call: Call) -> Any:
    """Takes a snapshot of the whole state."""
    body: models.NewSnapshot = call.body
    async with plane.naming:
        name = plane.free_name(or_none(body.name))
        with _in_this_state():
            plane.snapshots[name] = await plane.operations.snapshot()
    return {"name": name}


async def restore_snapshot(plane: Plane, call: Call) -> Any:
    """Restores a snapshot, which stays available."""
    snapshot = plane.snapshot_named(call.path["snapshot"])
    with _in_this_state():
        await asyncio.shield(plane.operations.restore(snapshot))
    return {}


async def delete_snapshot(plane: Plane, call: Call) -> Any:
    """Drops a snapshot."""
    plane.snapshot_named(call.path["snapshot"])
    del plane.snapshots[call.path["snapshot"]]
    return {"removed": 1}
