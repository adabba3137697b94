"""The text output of `ottla ctl`: tables of each response, with control characters escaped."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ...protocol.text import cell, moment, table, visible
from ..top.tables import ahead, fault_where

SHOWN_LETTERS = 60  # characters of a key or value in a column

Value = Callable[[Any], Any]
Columns = Mapping[str, str | Value]
"""The columns of a table by title: a field of the entries, or a function of an entry."""


def shown_bytes(value: Any) -> str:
    """Returns a record's key or value as text, cut at SHOWN_LETTERS."""
    if isinstance(value, dict):
        value = f"base64:{value['base64']}"
    text = cell(value)
    return text if len(text) <= SHOWN_LETTERS else text[: SHOWN_LETTERS - 3] + "..."


def titled(entries: Iterable[Any], columns: Columns, none: str) -> list[str]:
    """Returns the lines of a table, or `none` without entries."""
    rows = [[one[of] if isinstance(of, str) else of(one) for of in columns.values()] for one in entries]
    return table(rows, list(columns)) if rows else [none]


def listed(field: str, columns: Columns, none: str | None = None) -> Callable[[Any], list[str]]:
    """Returns the function that formats the list `field` of a response; without entries it returns `none`, by default
    the name of the list."""
    return lambda response: titled(response[field], columns, none or f"no {field}")


def _present(field: str) -> Value:
    return lambda one: None if one[field] == -1 else one[field]


def _moment(field: str) -> Value:
    return lambda one: moment(one[field])


def _joined(field: str) -> Value:
    return lambda one: ",".join(map(str, one[field]))


def health(response: Any) -> list[str]:
    return table([(name.replace("_", " "), cell(value)) for name, value in response.items()])


def removed(response: Any) -> list[str]:
    return [f"removed: {response['removed']}"]


faults = listed(
    "faults", {"ID": "id", "ACTION": "action", "MATCHED": "matched", "FIRED": "fired", "WHERE": fault_where}
)


def one_fault(response: Any) -> list[str]:
    return faults({"faults": [response]})


def topology(response: Any) -> list[str]:
    nodes: Columns = {"NODE": "id", "ADDRESS": lambda one: f"{one['host']}:{one['port']}", "RUNNING": "running"}
    partitions: Columns = {
        "TOPIC": "topic",
        "PARTITION": "partition",
        "LEADER": _present("leader"),
        "EPOCH": "leader_epoch",
        "REPLICAS": _joined("replicas"),
        "IN SYNC": _joined("isr"),
    }
    found = titled(response["nodes"], nodes, "no nodes")
    return [*found, "", *titled(response["partitions"], partitions, "no partitions")]


def clock(response: Any) -> list[str]:
    """Returns a line with the broker's time, and whether it is frozen."""
    state = "frozen" if response["is_frozen"] else "running"
    return [f"{moment(response['now_ms'])} UTC ({response['now_ms']}), {state}, {ahead(response['offset_ms'])}"]


def snapshots(response: Any) -> list[str]:
    return [cell(one["name"]) for one in response["snapshots"]] or ["no snapshots"]


topics = listed(
    "topics",
    {
        "TOPIC": "name",
        "PARTITIONS": lambda one: len(one["partitions"]),
        "OFFSETS": lambda one: sum(max(0, part["end_offset"] - part["start_offset"]) for part in one["partitions"]),
        "BYTES": lambda one: sum(max(0, part["size_bytes"]) for part in one["partitions"]),
        "CONFIGS": lambda one: " ".join(f"{name}={value}" for name, value in one["configs"].items()),
    },
)


def one_topic(response: Any) -> list[str]:
    columns: Columns = {
        "PARTITION": "partition",
        "LEADER": _present("leader"),
        "EPOCH": "leader_epoch",
        "START": _present("start_offset"),
        "END": _present("end_offset"),
        "STABLE": _present("stable_offset"),
        "BYTES": _present("size_bytes"),
        "": lambda one: "" if one["offline"] is None else f"offline: {one['offline']}",
    }
    return [*topics({"topics": [response]}), "", *titled(response["partitions"], columns, "no partitions")]


def records(response: Any) -> list[str]:
    """Returns a line for each record, with the headers after the value."""
    columns: Columns = {
        "PARTITION": "partition",
        "OFFSET": "offset",
        "TIMESTAMP (UTC)": _moment("timestamp_ms"),
        "KEY": lambda one: shown_bytes(one["key"]),
        "VALUE": lambda one: shown_bytes(one["value"]),
        "HEADERS": lambda one: " ".join(f"{visible(h['name'])}={shown_bytes(h['value'])}" for h in one["headers"]),
    }
    found = titled(response["records"], columns, "no records")
    return [*found, "more records follow"] if response["more"] else found


def offsets(response: Any) -> list[str]:
    return [f"offset {offset}" for offset in response["offsets"]]


_GROUP: Columns = {"GROUP": "id", "STATE": "state", "GENERATION": "generation"}
groups = listed("groups", {**_GROUP, "MEMBERS": lambda one: len(one["members"]), "LAG": "lag"})


def one_group(response: Any) -> list[str]:
    """Returns the line of a group, and the tables of its members and its committed offsets."""
    members: Columns = {
        "MEMBER": "member_id",
        "CLIENT": "client_id",
        "HOST": "client_host",
        "SESSION MS": "session_timeout_ms",
        "PARTITIONS": lambda one: ",".join(f"{held['topic']}-{held['partition']}" for held in one["assignment"]),
    }
    committed: Columns = {
        "TOPIC": "topic",
        "PARTITION": "partition",
        "OFFSET": "offset",
        "START": "start_offset",
        "END": "end_offset",
        "LAG": "lag",
        "METADATA": "metadata",
    }
    return [
        *groups({"groups": [response]}),
        "",
        *titled(response["members"], members, "no members"),
        "",
        *titled(response["offsets"], committed, "no committed offsets"),
    ]


producers = listed(
    "producers",
    {
        "TOPIC": "topic",
        "PARTITION": "partition",
        "PRODUCER ID": "producer_id",
        "EPOCH": "producer_epoch",
        "LAST SEQUENCE": _present("last_sequence"),
        "LAST TIMESTAMP (UTC)": _moment("last_timestamp_ms"),
        "TRANSACTION FROM": _present("transaction_start_offset"),
    },
)
