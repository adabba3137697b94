"""The table of the control plane's routes, and what each of them does."""

from __future__ import annotations

from typing import Any

from ..admin_api.overview import about
from . import acts, administration, log_levels, recordings, requests, steering
from .models import general, overview
from .models import steering as bodies
from .models import topics as topic_models
from .plane import Plane
from .route import Call, Route


async def openapi(plane: Plane, call: Call) -> Any:
    """The document; `app.py` answers with the one that it was given at its start."""
    from .openapi import document

    return document(ROUTES)


async def health(plane: Plane, call: Call) -> Any:
    """Whether it serves, and as what."""
    return about(plane.operations.running)


_GENERAL = (
    Route("GET", "/openapi.json", "getOpenapi", "This document", general.OpenApi, openapi, refusals=()),
    Route(
        "GET", "/health", "getHealth", "Whether the broker serves, as what, and where", general.Health, health,
        refusals=(),
    ),
    Route(
        "GET", "/overview", "getOverview", "What goes on: topics, groups, producers, clients and requests",
        overview.Overview, acts.get_overview, query=overview.OverviewQuery,
    ),
)  # fmt: skip
_LOGS = (
    Route(
        "GET", "/log-levels", "getLogLevels", "What is logged: the level of each logger", general.LogLevels,
        log_levels.get_log_levels, refusals=(),
    ),
    Route(
        "PUT", "/log-levels", "setLogLevel", "Give a logger another level, or with null the root's again",
        general.LogLevels, log_levels.set_log_level, body=general.LogLevel, needs_body=True, refusals=(404,),
    ),
)  # fmt: skip
_TOPICS = (
    Route("GET", "/topics", "listTopics", "All topics, Kafka's own too", topic_models.Topics, acts.list_topics),
    Route(
        "POST", "/topics", "createTopic", "Make a topic", topic_models.Topic, acts.create_topic,
        status=201, body=topic_models.NewTopic,
    ),
    Route("GET", "/topics/{topic}", "getTopic", "One topic", topic_models.Topic, acts.get_topic, refusals=(404, 409)),
    Route(
        "DELETE", "/topics/{topic}", "deleteTopic", "Delete a topic", general.Removed, acts.delete_topic,
        refusals=(404, 409),
    ),
    Route(
        "GET", "/topics/{topic}/records", "listRecords", "Committed records, by partition and offset",
        topic_models.Records, acts.list_records, query=topic_models.RecordsQuery, refusals=(404, 409),
    ),
    Route(
        "POST", "/topics/{topic}/records", "sendRecords", "Append records", topic_models.Offsets, acts.send_records,
        status=201, body=topic_models.NewRecords, needs_body=True, refusals=(404, 409),
    ),
)  # fmt: skip
_CLIENTS = (
    Route("GET", "/groups", "listGroups", "All groups", topic_models.Groups, acts.list_groups),
    Route("GET", "/groups/{group}", "getGroup", "One group", topic_models.Group, acts.get_group, refusals=(404, 409)),
    Route(
        "GET", "/producers", "listProducers", "What partitions know of producers with ids", topic_models.Producers,
        acts.list_producers, query=topic_models.ProducersQuery, refusals=(404, 409),
    ),
)  # fmt: skip

_FAULTS = (
    Route("GET", "/faults", "listFaults", "The faults in force, oldest first", bodies.Faults, steering.list_faults),
    Route(
        "POST", "/faults", "addFault", "Put a fault in force", bodies.Fault, steering.add_fault,
        status=201, body=bodies.Rule, needs_body=True,
    ),
    Route("DELETE", "/faults", "clearFaults", "Take all faults out of force", general.Removed, steering.clear_faults),
    Route("GET", "/faults/{fault}", "getFault", "One fault", bodies.Fault, steering.get_fault, refusals=(404, 409)),
    Route(
        "DELETE", "/faults/{fault}", "removeFault", "Take a fault out of force", general.Removed, steering.remove_fault,
        refusals=(404, 409),
    ),
)  # fmt: skip
_TOPOLOGY = (
    Route("GET", "/topology", "getTopology", "The nodes, and who leads what", bodies.Topology, steering.get_topology),
    Route(
        "POST", "/topology/leaders", "moveLeader", "Have another node lead a partition", bodies.Topology,
        steering.move_leader, body=bodies.Move, needs_body=True, refusals=(404, 409),
    ),
    Route(
        "POST", "/topology/offline", "setOffline", "Take a partition's leader away, or give it one again",
        bodies.Topology, steering.set_offline, body=bodies.Offline, needs_body=True, refusals=(404, 409),
    ),
    Route(
        "POST", "/topology/spread", "spreadLeaders", "Have each partition led by its preferred node", bodies.Topology,
        steering.spread_leaders, body=general.Nothing,
    ),
    Route(
        "POST", "/topology/nodes/{node}", "changeNode", "Stop a node, or start it again", bodies.Topology,
        steering.change_node, body=bodies.NodeChange, needs_body=True, refusals=(404, 409),
    ),
)  # fmt: skip
_CLOCK = (
    Route(
        "GET", "/clock", "getClock", "The broker's time, and whether it stands", bodies.Clock, steering.get_clock,
    ),
    Route(
        "POST", "/clock/freeze", "freezeClock", "Have the clock stand still", bodies.Clock, steering.freeze_clock,
        body=general.Nothing,
    ),
    Route(
        "POST", "/clock/run", "runClock", "Have the clock go on by itself", bodies.Clock, steering.run_clock,
        body=general.Nothing,
    ),
    Route(
        "POST", "/clock/set", "setClock", "Set the clock; what becomes due is done before the answer", bodies.Clock,
        steering.set_clock, body=bodies.Moment, needs_body=True,
    ),
    Route(
        "POST", "/clock/advance", "advanceClock", "Move the clock on; what becomes due is done before the answer",
        bodies.Clock, steering.advance_clock, body=bodies.Advance, needs_body=True,
    ),
)  # fmt: skip
_STATE = (
    Route(
        "POST", "/state/reset", "reset", "Bring the broker back to how it started; snapshots stay", general.Nothing,
        steering.reset, body=general.Nothing,
    ),
    Route("GET", "/snapshots", "listSnapshots", "The snapshots", bodies.Snapshots, steering.list_snapshots),
    Route(
        "POST", "/snapshots", "takeSnapshot", "Keep all that the broker holds now", bodies.Snapshot,
        steering.take_snapshot, status=201, body=bodies.NewSnapshot,
    ),
    Route(
        "DELETE", "/snapshots/{snapshot}", "deleteSnapshot", "Let go of a snapshot", general.Removed,
        steering.delete_snapshot, refusals=(404, 409),
    ),
    Route(
        "POST", "/snapshots/{snapshot}/restore", "restoreSnapshot", "Bring the broker back to a snapshot, which stays",
        general.Nothing, steering.restore_snapshot, body=general.Nothing, refusals=(404, 409),
    ),
)  # fmt: skip

ROUTES: tuple[Route, ...] = (
    *_GENERAL,
    *_LOGS,
    *requests.ROUTES,
    *recordings.ROUTES,
    *_FAULTS,
    *_TOPOLOGY,
    *_CLOCK,
    *_STATE,
    *_TOPICS,
    *_CLIENTS,
    *administration.ROUTES,
)
