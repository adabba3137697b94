"""The JSON schemas of what the control plane takes and answers, by name: the `components` of its OpenAPI document.

Only keywords that `shapes.check` knows. Every object is closed: a name that is not listed is a mistake.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...protocol.limits import INT16_MAX, INT16_MIN, INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN
from ..admin_api.overview import DEFAULT_LIMIT, MAX_LIMIT, TOTALS
from ..faults.actions import ACTIONS, BYTES_MAX, MS_MAX, ON, WHEN
from ..logs import Levels
from .administration_schemas import ADMINISTRATION
from .recording_schemas import RECORDINGS
from .request_schemas import NUMBER, REQUESTS
from .schema_parts import FLAG, TEXT
from .schema_parts import list_of as _list
from .schema_parts import object_of as _object
from .schema_parts import ref as ref
from .schema_parts import text_of as _text
from .schema_parts import whole as _whole
from .shapes import Schema

MAX_NAME = 249  # letters of a topic's name
MAX_ID = 32_767  # letters of a group's or a client's id, as long as the protocol has room for
MAX_RECORDS = 10_000  # in one request or one answer
MAX_PARTITIONS = 1000  # of a topic that is made here; while it is made nothing else is done
MAX_MOVE_MS = 100 * 366 * 86_400_000  # of the clock, at once: a hundred years
LATEST_MS = 253_402_300_799_999  # the end of the year 9999


TOPIC = _text(MAX_NAME, "a topic's name", 1)
PARTITION = _whole(0, INT32_MAX, "a partition")
NODE = _whole(0, INT32_MAX, "a node's id")
OFFSET = _whole(-1, INT64_MAX)
TIME_MS = _whole(-1, INT64_MAX, "milliseconds since 1970")
COUNT = _whole(0, INT64_MAX)
LIMIT = _whole(1, MAX_LIMIT, "how many entries of each list at most", default=DEFAULT_LIMIT)
CONTAINS = _text(MAX_NAME, "only entries with this in their names, in whatever case")
CONFIGS: Schema = {
    "type": "object",
    "additionalProperties": {"type": "string"},
    "maxProperties": 1000,
    "description": "configs by Kafka's names",
}
GROUP_ID = _text(MAX_ID, "a group's id", 1)
FAULT_ID = _whole(1, INT64_MAX, "the id of a fault, as it was answered")
SNAPSHOT_NAME = _text(100, "what the snapshot is called", 1)

PATH_PARAMETERS: Mapping[str, Schema] = {
    "fault": FAULT_ID,
    "group": GROUP_ID,
    "node": NODE,
    "request": NUMBER,
    "snapshot": SNAPSHOT_NAME,
    "topic": TOPIC,
}

_GENERAL: dict[str, Schema] = {
    "Error": _object({"error": TEXT}),
    "Bytes": {
        "description": "bytes: a string where they are UTF-8, base64 where they are not, null for none",
        "anyOf": [
            {"type": "string", "title": "a string"},
            {**_object({"base64": TEXT}), "title": '{"base64": ...}'},
            {"type": "null", "title": "null"},
        ],
    },
    "Nothing": _object({}, text="an empty object: there is nothing to tell, or to ask"),
    "Removed": _object({"removed": COUNT}, text="how many are gone"),
    "OpenApi": {"type": "object", "description": "this document"},
    "Health": _object(
        {
            "status": {"enum": ["serving", "failed"]},
            "reason": {"type": ["string", "null"], "description": "why it cannot go on until it is reset or restored"},
            "version": TEXT,
            "release": {"type": "string", "description": "the release of Kafka whose ways it has"},
            "cluster_id": TEXT,
            "bootstrap": {"type": "string", "description": "where clients connect: HOST:PORT, joined by commas"},
        }
    ),
}

_TOPICS: dict[str, Schema] = {
    "NewTopic": _object(
        {
            "name": TOPIC,
            "partitions": _whole(1, MAX_PARTITIONS, default=1),
            "configs": CONFIGS,
        },
        optional=("name", "partitions", "configs"),
        text="a topic to be made; without a name it gets one that no other has",
    ),
    "Partition": _object(
        {
            "partition": PARTITION,
            "leader": _whole(-1, INT32_MAX, "the node that leads it, -1 for none"),
            "leader_epoch": _whole(-1, INT32_MAX),
            "start_offset": OFFSET,
            "end_offset": {**OFFSET, "description": "the high watermark"},
            "stable_offset": {**OFFSET, "description": "up to here readers of committed records see"},
            "size_bytes": _whole(-1, INT64_MAX),
            "offline": {"type": ["string", "null"], "description": "why it is offline, null while it is not"},
        }
    ),
    "Topic": _object(
        {"name": TOPIC, "id": TEXT, "is_internal": FLAG, "partitions": _list("Partition"), "configs": CONFIGS}
    ),
    "Topics": _object({"topics": _list("Topic")}),
}

_RECORDS: dict[str, Schema] = {
    "Header": _object({"name": TEXT, "value": ref("Bytes")}),
    "NewRecord": _object(
        {
            "value": ref("Bytes"),
            "key": ref("Bytes"),
            "headers": _list("Header", 1000),
            "partition": PARTITION,
            "timestamp_ms": _whole(0, INT64_MAX, "milliseconds since 1970; the broker's time unless given"),
        },
        optional=("key", "headers", "partition", "timestamp_ms"),
        text="a record to be appended; without a partition it goes where Java's client puts its key, else in turns",
    ),
    "NewRecords": _object({"records": {**_list("NewRecord", MAX_RECORDS), "minItems": 1}}),
    "Offsets": _object({"offsets": _list(OFFSET)}, text="the offset of each record, in the order they were given"),
    "Record": _object(
        {
            "topic": TOPIC,
            "partition": PARTITION,
            "offset": COUNT,
            "timestamp_ms": TIME_MS,
            "key": ref("Bytes"),
            "value": ref("Bytes"),
            "headers": _list("Header"),
        }
    ),
    "Records": _object(
        {
            "records": _list("Record", MAX_RECORDS),
            "more": {"type": "boolean", "description": "whether there are others behind the last of these"},
        },
        text="committed records by partition and offset",
    ),
}

_CLIENTS: dict[str, Schema] = {
    "TopicPartition": _object({"topic": TEXT, "partition": _whole(INT32_MIN, INT32_MAX)}),
    "Member": _object(
        {
            "member_id": TEXT,
            "instance_id": {"type": ["string", "null"]},
            "client_id": TEXT,
            "client_host": TEXT,
            "session_timeout_ms": _whole(INT32_MIN, INT32_MAX),
            "topics": _list(TEXT),
            "assignment": _list("TopicPartition"),
        }
    ),
    "Offset": _object(
        {
            "topic": TEXT,
            "partition": PARTITION,
            "offset": _whole(INT64_MIN, INT64_MAX),
            "leader_epoch": _whole(-1, INT32_MAX),
            "metadata": TEXT,
            "lag": {"type": ["integer", "null"], "description": "null where the partition is gone", "minimum": 0},
            "start_offset": {"type": ["integer", "null"], "description": "the log start offset, null likewise"},
            "end_offset": {"type": ["integer", "null"], "description": "the high watermark, null likewise"},
        },
        text="a committed offset, the offsets at both ends of its log, and how many the group has still to read",
    ),
    "Group": _object(
        {
            "id": TEXT,
            "state": TEXT,
            "protocol_type": TEXT,
            "protocol": TEXT,
            "generation": _whole(-1, INT32_MAX),
            "leader": {"type": ["string", "null"]},
            "members": _list("Member"),
            "offsets": _list("Offset"),
            "lag": {**COUNT, "description": "of all partitions together"},
        }
    ),
    "Groups": _object({"groups": _list("Group")}),
    "Producer": _object(
        {
            "topic": TOPIC,
            "partition": PARTITION,
            "producer_id": COUNT,
            "producer_epoch": _whole(-1, INT16_MAX),
            "last_sequence": _whole(-1, INT32_MAX),
            "last_timestamp_ms": TIME_MS,
            "coordinator_epoch": _whole(-1, INT32_MAX),
            "transaction_start_offset": {**OFFSET, "description": "-1 without an open transaction"},
        }
    ),
    "Producers": _object({"producers": _list("Producer")}, text="what partitions know of producers with ids"),
}

_NAME: Schema = {"type": ["string", "null"]}
_OVERVIEW: dict[str, Schema] = {
    "OverviewBroker": _object(
        {
            **_GENERAL["Health"]["properties"],
            "instance": {"type": "string", "description": "another one when the process was started anew"},
            "state": {**COUNT, "description": "another one after a reset or a restore"},
            "uptime_ms": {**COUNT, "description": "how long it is observed; by the machine's clock, for rates"},
        }
    ),
    "OverviewNode": _object(
        {
            "id": _whole(0, INT32_MAX),
            "host": TEXT,
            "port": _whole(0, 65535),
            "running": FLAG,
            "leads": {**COUNT, "description": "how many partitions"},
        }
    ),
    "OverviewTopic": _object(
        {
            "name": TEXT,
            "is_internal": FLAG,
            "partitions": COUNT,
            "offline_partitions": COUNT,
            "size_bytes": COUNT,
            "records": {**COUNT, "description": "offsets from the log starts to the high watermarks"},
            "records_in": {**COUNT, "description": "a counter: the sum of the log ends"},
            "bytes_in": {**COUNT, "description": "a counter: what clients sent, as it came"},
            "bytes_out": {**COUNT, "description": "a counter: what they were sent"},
        }
    ),
    "OverviewGroup": _object(
        {
            "id": TEXT,
            "state": TEXT,
            "protocol_type": TEXT,
            "protocol": TEXT,
            "generation": _whole(-1, INT32_MAX),
            "members": COUNT,
            "topics": {**_list(TEXT), "description": "some of those with committed offsets"},
            "partitions": {**COUNT, "description": "those with committed offsets"},
            "committed": {**COUNT, "description": "the sum of the committed offsets"},
            "lag": COUNT,
        }
    ),
    "OverviewProducer": _object(
        {
            "topic": {**_NAME, "description": "null where no partition knows it yet"},
            "partition": _whole(-1, INT32_MAX),
            "producer_id": COUNT,
            "producer_epoch": _whole(-1, INT16_MAX),
            "last_sequence": _whole(-1, INT32_MAX),
            "last_timestamp_ms": TIME_MS,
            "transaction_start_offset": {**OFFSET, "description": "-1 without an open transaction"},
            "transactional_id": _NAME,
            "transaction_state": _NAME,
            "transaction_start_ms": TIME_MS,
        }
    ),
    "OverviewClient": _object(
        {
            "client_id": {**_NAME, "description": "null for those that named none, or are too many to be kept apart"},
            "software_name": _NAME,
            "software_version": _NAME,
            "listener": TEXT,
            "hosts": {**_list(TEXT), "description": "some of those that are connected"},
            "connections": COUNT,
            "waiting": {**COUNT, "description": "requests that are not answered yet"},
            "requests": COUNT,
            "request_bytes": COUNT,
            "response_bytes": COUNT,
            "apis": {
                "type": "object",
                "additionalProperties": _whole(0, INT16_MAX),
                "description": "the highest version of each API that it called",
            },
            "idle_ms": COUNT,
        }
    ),
}
_REQUEST: Mapping[str, Schema] = {
    "number": COUNT,
    "api": TEXT,
    "api_version": _whole(INT16_MIN, INT16_MAX),
    "client_id": _NAME,
    "host": TEXT,
    "port": _whole(-1, 65535),
    "request_bytes": COUNT,
    "fault": {**_NAME, "description": "the fault that it met"},
}
_OVERVIEW |= {
    "SlowRequest": _object(
        {
            **_REQUEST,
            "duration_us": COUNT,
            "ago_ms": {**COUNT, "description": "since it was answered"},
            "response_bytes": COUNT,
            "ending": {"enum": ["answered", "silent", "closed"]},
        }
    ),
    "WaitingRequest": _object(
        {
            **_REQUEST,
            "waiting_ms": COUNT,
            "waits_for": {"enum": ["records", "members", None], "description": "what it asked to wait for"},
        }
    ),
    "Overview": _object(
        {
            "broker": ref("OverviewBroker"),
            "clock": ref("Clock"),
            "nodes": _list("OverviewNode"),
            "totals": _object({name: COUNT for name in TOTALS}, text="of everything, whatever the lists are cut to"),
            "topics": _list("OverviewTopic"),
            "groups": _list("OverviewGroup"),
            "producers": {**_list("OverviewProducer"), "description": "in each partition, open transactions first"},
            "clients": _list("OverviewClient"),
            "slow": {
                **_list("SlowRequest"),
                "description": "the slowest of the last minute; a Fetch that waited no longer than it may, JoinGroup "
                "and SyncGroup are none of them",
            },
            "waiting": {**_list("WaitingRequest"), "description": "not answered yet, oldest first"},
            "faults": _list("Fault"),
        },
        text="what goes on now; each list has what is most active, rates are the growth of counters by uptime_ms",
    ),
}

_API: Schema = {
    "description": "Kafka's name of a request, its key, or several of them; without it all requests",
    "anyOf": [
        {**_text(100), "title": "a name"},
        {**_whole(0, INT16_MAX), "title": "a number"},
        {
            **_list(
                {"anyOf": [{**_text(100), "title": "a name"}, {**_whole(0, INT16_MAX), "title": "a number"}]}, 1000
            ),
            "title": "a list of them",
        },
    ],
}
_RULE: Mapping[str, Schema] = {
    "action": {"enum": list(ACTIONS), "description": "what happens"},
    "code": {
        "description": "error: Kafka's name of the code, or its number",
        "anyOf": [{**_text(100), "title": "a name"}, {**_whole(INT16_MIN, INT16_MAX), "title": "a number"}],
    },
    "ms": _whole(1, MS_MAX, "delay, throttle: for how long"),
    "when": {"enum": list(WHEN), "description": "delay, disconnect: before the work is done, or after it"},
    "bytes": _whole(0, BYTES_MAX, "truncate: how many bytes of the answer are sent"),
    "on": {"enum": list(ON), "description": "disk_error: what fails"},
    "path": _text(MAX_ID, "disk_error, disk_full: a pattern of paths"),
    "api": _API,
    "topic": _text(MAX_ID, "a topic's name, or a pattern with * and ?"),
    "partition": PARTITION,
    "client_id": _text(MAX_ID, "a client's id, or a pattern with * and ?"),
    "listener": _text(MAX_ID, "a listener's name"),
    "node": NODE,
    "nth": _whole(1, INT64_MAX, "only the match of this number fires, the first behind `after` being 1"),
    "times": _whole(1, INT64_MAX, "how often it fires at most"),
    "after": _whole(0, INT64_MAX, "so many matches are let through first", default=0),
    "probability": {"type": "number", "minimum": 0, "maximum": 1, "default": 1, "description": "above 0"},
    "seed": _whole(-INT64_MAX, INT64_MAX, "makes the probability, and what is garbled, the same each time"),
}
_FAULTS: dict[str, Schema] = {
    "Rule": _object(
        _RULE,
        optional=tuple(name for name in _RULE if name != "action"),
        text="a fault: what happens, to which requests (or operations of the disk, or listeners), and how often",
    ),
    "Fault": _object(
        {
            "id": _whole(1, INT64_MAX),
            "matched": {**COUNT, "description": "how many requests (or operations of the disk) it was about so far"},
            "fired": {**COUNT, "description": "how often it did something so far"},
            **_RULE,
        },
        optional=tuple(name for name in _RULE if name != "action"),
    ),
    "Faults": _object({"faults": _list("Fault")}, text="the faults in force, oldest first"),
}

_TOPOLOGY: dict[str, Schema] = {
    "Node": _object({"id": _whole(0, INT32_MAX), "host": TEXT, "port": _whole(0, 65535), "running": FLAG}),
    "Leader": _object(
        {
            "topic": TOPIC,
            "partition": PARTITION,
            "leader": _whole(-1, INT32_MAX, "the node that leads it, -1 for none"),
            "leader_epoch": _whole(-1, INT32_MAX),
            "replicas": _list(_whole(0, INT32_MAX)),
            "isr": _list(_whole(0, INT32_MAX)),
        }
    ),
    "Topology": _object({"nodes": _list("Node"), "partitions": _list("Leader")}),
    "Move": _object({"topic": TOPIC, "partition": PARTITION, "node": NODE}, text="who is to lead a partition"),
    "Offline": _object(
        {"topic": TOPIC, "partition": PARTITION, "offline": {**FLAG, "default": True}},
        optional=("offline",),
        text="whether a partition has no leader",
    ),
    "NodeChange": _object({"running": FLAG}, text="a node that does not run refuses connections, and leads nothing"),
}

_TIME: dict[str, Schema] = {
    "Clock": _object(
        {
            "now_ms": TIME_MS,
            "is_frozen": FLAG,
            "offset_ms": {"type": "integer", "description": "how far it is ahead of the machine's clock"},
        }
    ),
    "Moment": _object({"ms": _whole(0, LATEST_MS, "milliseconds since 1970")}),
    "Advance": _object(
        {
            "ms": _whole(0, MAX_MOVE_MS, "how far"),
            "keep_members": {**FLAG, "default": False, "description": "whether members of groups live through it"},
        },
        optional=("keep_members",),
    ),
}

_STATE: dict[str, Schema] = {
    "NewSnapshot": _object({"name": SNAPSHOT_NAME}, optional=("name",)),
    "Snapshot": _object({"name": SNAPSHOT_NAME}),
    "Snapshots": _object({"snapshots": _list("Snapshot")}),
}

_LOGS: dict[str, Schema] = {
    "LogLevel": _object(
        {
            "logger": _text(MAX_NAME, "its name, with or without the ottla.broker. in front, or root", 1),
            "level": {"enum": [*Levels.LEVELS, None], "description": "null: that of root"},
        }
    ),
    "LogLevels": _object(
        {"levels": {"type": "object", "additionalProperties": {"enum": list(Levels.LEVELS)}}},
        text="the level of each logger by its name",
    ),
}

SCHEMAS: dict[str, Schema] = (
    _GENERAL
    | _LOGS
    | REQUESTS
    | RECORDINGS
    | ADMINISTRATION
    | _OVERVIEW
    | _TOPICS
    | _RECORDS
    | _CLIENTS
    | _FAULTS
    | _TOPOLOGY
    | _TIME
    | _STATE
)
