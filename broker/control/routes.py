"""The table of the control plane's routes, and what each of them does."""

from __future__ import annotations

from typing import Any

from ..admin_api.overview import about
from . import acts, administration, log_levels, recordings, requests, steering
from .plane import Plane
from .route import Call, Route
from .schemas import CONTAINS, COUNT, LIMIT, MAX_RECORDS, PARTITION, TOPIC


async def openapi(plane: Plane, call: Call) -> Any:
    """The document; `app.py` answers with the one that it was given at its start."""
    from .openapi import document

    return document(ROUTES)


async def health(plane: Plane, call: Call) -> Any:
    """Whether it serves, and as what."""
    return about(plane.operations.running)


_GENERAL = (
    Route("GET", "/openapi.json", "getOpenapi", "This document", "OpenApi", openapi, refusals=()),
    Route(
        "GET", "/health", "getHealth", "Whether the broker serves, as what, and where", "Health", health, refusals=()
    ),
    Route(
        "GET", "/overview", "getOverview", "What goes on: topics, groups, producers, clients and requests", "Overview",
        acts.get_overview, query={"limit": LIMIT, "contains": CONTAINS},
    ),
)  # fmt: skip
_LOGS = (
    Route(
        "GET", "/log-levels", "getLogLevels", "What is logged: the level of each logger", "LogLevels",
        log_levels.get_log_levels, refusals=(),
    ),
    Route(
        "PUT", "/log-levels", "setLogLevel", "Give a logger another level, or with null the root's again", "LogLevels",
        log_levels.set_log_level, body="LogLevel", needs_body=True, refusals=(404,),
    ),
)  # fmt: skip
_TOPICS = (
    Route("GET", "/topics", "listTopics", "All topics, Kafka's own too", "Topics", acts.list_topics),
    Route(
        "POST", "/topics", "createTopic", "Make a topic", "Topic", acts.create_topic,
        status=201, body="NewTopic",
    ),
    Route("GET", "/topics/{topic}", "getTopic", "One topic", "Topic", acts.get_topic, refusals=(404, 409)),
    Route(
        "DELETE", "/topics/{topic}", "deleteTopic", "Delete a topic", "Removed", acts.delete_topic, refusals=(404, 409)
    ),
    Route(
        "GET", "/topics/{topic}/records", "listRecords", "Committed records, by partition and offset", "Records",
        acts.list_records,
        query={
            "partition": PARTITION,
            "offset": {**COUNT, "description": "in each partition records from here on", "default": 0},
            "limit": {"type": "integer", "minimum": 1, "maximum": MAX_RECORDS, "default": MAX_RECORDS},
        },
        refusals=(404, 409),
    ),
    Route(
        "POST", "/topics/{topic}/records", "sendRecords", "Append records", "Offsets", acts.send_records,
        status=201, body="NewRecords", needs_body=True, refusals=(404, 409),
    ),
)  # fmt: skip
_CLIENTS = (
    Route("GET", "/groups", "listGroups", "All groups", "Groups", acts.list_groups),
    Route("GET", "/groups/{group}", "getGroup", "One group", "Group", acts.get_group, refusals=(404, 409)),
    Route(
        "GET", "/producers", "listProducers", "What partitions know of producers with ids", "Producers",
        acts.list_producers, query={"topic": TOPIC}, refusals=(404, 409),
    ),
)  # fmt: skip

_FAULTS = (
    Route("GET", "/faults", "listFaults", "The faults in force, oldest first", "Faults", steering.list_faults),
    Route(
        "POST", "/faults", "addFault", "Put a fault in force", "Fault", steering.add_fault,
        status=201, body="Rule", needs_body=True,
    ),
    Route("DELETE", "/faults", "clearFaults", "Take all faults out of force", "Removed", steering.clear_faults),
    Route("GET", "/faults/{fault}", "getFault", "One fault", "Fault", steering.get_fault, refusals=(404, 409)),
    Route(
        "DELETE", "/faults/{fault}", "removeFault", "Take a fault out of force", "Removed", steering.remove_fault,
        refusals=(404, 409),
    ),
)  # fmt: skip
_TOPOLOGY = (
    Route("GET", "/topology", "getTopology", "The nodes, and who leads what", "Topology", steering.get_topology),
    Route(
        "POST", "/topology/leaders", "moveLeader", "Have another node lead a partition", "Topology",
        steering.move_leader, body="Move", needs_body=True, refusals=(404, 409),
    ),
    Route(
        "POST", "/topology/offline", "setOffline", "Take a partition's leader away, or give it one again", "Topology",
        steering.set_offline, body="Offline", needs_body=True, refusals=(404, 409),
    ),
    Route(
        "POST", "/topology/spread", "spreadLeaders", "Have each partition led by its preferred node", "Topology",
        steering.spread_leaders, body="Nothing",
    ),
    Route(
        "POST", "/topology/nodes/{node}", "changeNode", "Stop a node, or start it again", "Topology",
        steering.change_node, body="NodeChange", needs_body=True, refusals=(404, 409),
    ),
)  # fmt: skip
_CLOCK = (
    Route(
        "GET", "/clock", "getClock", "The broker's time, and whether it stands", "Clock", steering.get_clock,
    ),
    Route(
        "POST", "/clock/freeze", "freezeClock", "Have the clock stand still", "Clock", steering.freeze_clock,
        body="Nothing",
    ),
    Route(
        "POST", "/clock/run", "runClock", "Have the clock go on by itself", "Clock", steering.run_clock,
        body="Nothing",
    ),
    Route(
        "POST", "/clock/set", "setClock", "Set the clock; what becomes due is done before the answer", "Clock",
        steering.set_clock, body="Moment", needs_body=True,
    ),
    Route(
        "POST", "/clock/advance", "advanceClock", "Move the clock on; what becomes due is done before the answer",
        "Clock", steering.advance_clock, body="Advance", needs_body=True,
    ),
)  # fmt: skip
_STATE = (
    Route(
        "POST", "/state/reset", "reset", "Bring the broker back to how it started; snapshots stay", "Nothing",
        steering.reset, body="Nothing",
    ),
    Route("GET", "/snapshots", "listSnapshots", "The snapshots", "Snapshots", steering.list_snapshots),
    Route(
        "POST", "/snapshots", "takeSnapshot", "Keep all that the broker holds now", "Snapshot",
        steering.take_snapshot, status=201, body="NewSnapshot",
    ),
    Route(
        "DELETE", "/snapshots/{snapshot}", "deleteSnapshot", "Let go of a snapshot", "Removed",
        steering.delete_snapshot, refusals=(404, 409),
    ),
    Route(
        "POST", "/snapshots/{snapshot}/restore", "restoreSnapshot", "Bring the broker back to a snapshot, which stays",
        "Nothing", steering.restore_snapshot, body="Nothing", refusals=(404, 409),
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
