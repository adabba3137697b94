"""The table of the control plane's routes."""

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
    """Returns the OpenAPI document; `app.py` serves a copy made once."""
    from .openapi import document

    return document(ROUTES)


async def health(plane: Plane, call: Call) -> Any:
    """Returns whether the broker serves, its release and its addresses."""
    return about(plane.operations.running)


_GENERAL = (
    Route("GET", "/openapi.json", "getOpenapi", "This document", general.OpenApi, openapi, refusals=()),
    Route(
        "GET", "/health", "getHealth", "Whether the broker serves, its release and its addresses", general.Health,
        health, refusals=(),
    ),
    Route(
        "GET", "/overview", "getOverview", "Activity: topics, groups, producers, clients and requests",
        overview.Overview, acts.get_overview, query=overview.OverviewQuery,
    ),
)  # fmt: skip
_LOGS = (
    Route(
        "GET", "/log-levels", "getLogLevels", "The level of each logger", general.LogLevels,
        log_levels.get_log_levels, refusals=(),
    ),
    Route(
        "PUT", "/log-levels", "setLogLevel", "Set the level of a logger; null: the inherited level",
        general.LogLevels, log_levels.set_log_level, body=general.LogLevel, needs_body=True, refusals=(404,),
    ),
)  # fmt: skip
_TOPICS = (
    Route("GET", "/topics", "listTopics", "All topics, including internal ones", topic_models.Topics, acts.list_topics),
    Route(
        "POST", "/topics", "createTopic", "Create a topic", topic_models.Topic, acts.create_topic,
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
        "GET", "/groups/{group}/records", "listShareRecords", "The records in flight of a share partition",
        topic_models.ShareRecordsInFlight, acts.list_share_records, query=topic_models.ShareRecordsQuery,
        refusals=(404, 409),
    ),
    Route(
        "GET", "/producers", "listProducers", "The producer state entries of partitions", topic_models.Producers,
        acts.list_producers, query=topic_models.ProducersQuery, refusals=(404, 409),
    ),
)  # fmt: skip

_FAULTS = (
    Route("GET", "/faults", "listFaults", "The faults in force, oldest first", bodies.Faults, steering.list_faults),
    Route(
        "POST", "/faults", "addFault", "Add a fault", bodies.Fault, steering.add_fault,
        status=201, body=bodies.Rule, needs_body=True,
    ),
    Route("DELETE", "/faults", "clearFaults", "Remove all faults", general.Removed, steering.clear_faults),
    Route("GET", "/faults/{fault}", "getFault", "One fault", bodies.Fault, steering.get_fault, refusals=(404, 409)),
    Route(
        "DELETE", "/faults/{fault}", "removeFault", "Remove a fault", general.Removed, steering.remove_fault,
        refusals=(404, 409),
    ),
)  # fmt: skip
_TOPOLOGY = (
    Route(
        "GET", "/topology", "getTopology", "The nodes, and the leaders of partitions", bodies.Topology,
        steering.get_topology,
    ),
    Route(
        "POST", "/topology/leaders", "moveLeader", "Make another node the leader of a partition", bodies.Topology,
        steering.move_leader, body=bodies.Move, needs_body=True, refusals=(404, 409),
    ),
    Route(
        "POST", "/topology/offline", "setOffline", "Take a partition offline, or bring it online again",
        bodies.Topology, steering.set_offline, body=bodies.Offline, needs_body=True, refusals=(404, 409),
    ),
    Route(
        "POST", "/topology/spread", "spreadLeaders", "Make the preferred node of each partition its leader",
        bodies.Topology, steering.spread_leaders, body=general.Nothing,
    ),
    Route(
        "POST", "/topology/nodes/{node}", "changeNode", "Stop a node, or start it again", bodies.Topology,
        steering.change_node, body=bodies.NodeChange, needs_body=True, refusals=(404, 409),
    ),
)  # fmt: skip
_CLOCK = (
    Route(
        "GET", "/clock", "getClock", "The broker's time, and whether the clock is frozen", bodies.Clock,
        steering.get_clock,
    ),
    Route(
        "POST", "/clock/freeze", "freezeClock", "Freeze the clock", bodies.Clock, steering.freeze_clock,
        body=general.Nothing,
    ),
    Route(
        "POST", "/clock/run", "runClock", "Run the clock from its present time", bodies.Clock, steering.run_clock,
        body=general.Nothing,
    ),
    Route(
        "POST", "/clock/set", "setClock", "Set the clock; everything that becomes due is done before the response",
        bodies.Clock, steering.set_clock, body=bodies.Moment, needs_body=True,
    ),
    Route(
        "POST", "/clock/advance", "advanceClock",
        "Advance the clock; everything that becomes due is done before the response", bodies.Clock,
        steering.advance_clock, body=bodies.Advance, needs_body=True,
    ),
)  # fmt: skip
_STATE = (
    Route(
        "POST", "/state/reset", "reset", "Reset the broker to its start; snapshots stay", general.Nothing,
        steering.reset, body=general.Nothing,
    ),
    Route("GET", "/snapshots", "listSnapshots", "The snapshots", bodies.Snapshots, steering.list_snapshots),
    Route(
        "POST", "/snapshots", "takeSnapshot", "Take a snapshot of the whole state", bodies.Snapshot,
        steering.take_snapshot, status=201, body=bodies.NewSnapshot,
    ),
    Route(
        "DELETE", "/snapshots/{snapshot}", "deleteSnapshot", "Delete a snapshot", general.Removed,
        steering.delete_snapshot, refusals=(404, 409),
    ),
    Route(
        "POST", "/snapshots/{snapshot}/restore", "restoreSnapshot", "Restore a snapshot, which stays available",
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
