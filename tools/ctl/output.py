"""The text output of `ottla ctl`: tables of each response, with control characters escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ...protocol.text import cell, moment, table, visible
from ..top.words import ahead, fault_where

SHOWN_LETTERS = 60  # characters of a key or value in a column


def shown_bytes(value: Any) -> str:
    """Returns a record's key or value as text, cut at SHOWN_LETTERS."""
    if isinstance(value, dict):
        value = f"base64:{value['base64']}"
    text = cell(value)
    return text if len(text) <= SHOWN_LETTERS else text[: SHOWN_LETTERS - 3] + "..."


def titled(head: Sequence[str], rows: Iterable[Sequence[Any]], none: str) -> list[str]:
    """Returns the lines of a table, or `none` if there are no rows."""
    found = list(rows)
    return table(found, head) if found else [none]


def _present(number: int) -> int | None:
    return None if number == -1 else number


def health(response: Any) -> list[str]:
    """Returns a line for each field of the health response."""
    return table([(name.replace("_", " "), cell(value)) for name, value in response.items()])


def removed(response: Any) -> list[str]:
    """Returns the line with the number of removed items."""
    return [f"removed: {response['removed']}"]


def faults(response: Any) -> list[str]:
    """Returns a line for each fault rule."""
    head = ("ID", "ACTION", "MATCHED", "FIRED", "WHERE")
    rows = [(one["id"], one["action"], one["matched"], one["fired"], fault_where(one)) for one in response["faults"]]
    return titled(head, rows, "no faults")


def one_fault(response: Any) -> list[str]:
    """Returns the lines of one fault rule."""
    return faults({"faults": [response]})


def topology(response: Any) -> list[str]:
    """Returns the table of nodes, then the table of partitions."""
    nodes = [(one["id"], f"{one['host']}:{one['port']}", one["running"]) for one in response["nodes"]]
    found = titled(("NODE", "ADDRESS", "RUNNING"), nodes, "no nodes")
    partitions = [
        (
            one["topic"],
            one["partition"],
            _present(one["leader"]),
            one["leader_epoch"],
            ",".join(map(str, one["replicas"])),
            ",".join(map(str, one["isr"])),
        )
        for one in response["partitions"]
    ]
    head = ("TOPIC", "PARTITION", "LEADER", "EPOCH", "REPLICAS", "IN SYNC")
    return [*found, "", *titled(head, partitions, "no partitions")]


def clock(response: Any) -> list[str]:
    """Returns a line with the broker's time, and whether it is frozen."""
    state = "frozen" if response["is_frozen"] else "running"
    return [f"{moment(response['now_ms'])} UTC ({response['now_ms']}), {state}, {ahead(response['offset_ms'])}"]


def snapshots(response: Any) -> list[str]:
    """Returns a line for each snapshot: its name."""
    return [cell(one["name"]) for one in response["snapshots"]] or ["no snapshots"]


def topics(response: Any) -> list[str]:
    """Returns a line for each topic."""
    rows = [
        (
            one["name"],
            len(one["partitions"]),
            sum(max(0, part["end_offset"] - part["start_offset"]) for part in one["partitions"]),
            sum(max(0, part["size_bytes"]) for part in one["partitions"]),
            " ".join(f"{name}={value}" for name, value in one["configs"].items()),
        )
        for one in response["topics"]
    ]
    return titled(("TOPIC", "PARTITIONS", "OFFSETS", "BYTES", "CONFIGS"), rows, "no topics")


def one_topic(response: Any) -> list[str]:
    """Returns the line of a topic, and the table of its partitions."""
    rows = [
        (
            one["partition"],
            _present(one["leader"]),
            one["leader_epoch"],
            _present(one["start_offset"]),
            _present(one["end_offset"]),
            _present(one["stable_offset"]),
            _present(one["size_bytes"]),
            "" if one["offline"] is None else f"offline: {one['offline']}",
        )
        for one in response["partitions"]
    ]
    head = ("PARTITION", "LEADER", "EPOCH", "START", "END", "STABLE", "BYTES", "")
    return [*topics({"topics": [response]}), "", *titled(head, rows, "no partitions")]


def records(response: Any) -> list[str]:
    """Returns a line for each record, with the headers after the value."""
    rows = [
        (
            one["partition"],
            one["offset"],
            moment(one["timestamp_ms"]),
            shown_bytes(one["key"]),
            shown_bytes(one["value"]),
            " ".join(f"{visible(h['name'])}={shown_bytes(h['value'])}" for h in one["headers"]),
        )
        for one in response["records"]
    ]
    found = titled(("PARTITION", "OFFSET", "TIMESTAMP (UTC)", "KEY", "VALUE", "HEADERS"), rows, "no records")
    return [*found, "more records follow"] if response["more"] else found


def offsets(response: Any) -> list[str]:
    """Returns a line for each appended record: its offset."""
    return [f"offset {offset}" for offset in response["offsets"]]


def groups(response: Any) -> list[str]:
    """Returns a line for each group."""
    rows = [(one["id"], one["state"], one["generation"], len(one["members"]), one["lag"]) for one in response["groups"]]
    return titled(("GROUP", "STATE", "GENERATION", "MEMBERS", "LAG"), rows, "no groups")


def one_group(response: Any) -> list[str]:
    """Returns the line of a group, and the tables of its members and its committed offsets."""
    members = [
        (
            one["member_id"],
            one["client_id"],
            one["client_host"],
            one["session_timeout_ms"],
            ",".join(f"{held['topic']}-{held['partition']}" for held in one["assignment"]),
        )
        for one in response["members"]
    ]
    committed = [
        (
            one["topic"],
            one["partition"],
            one["offset"],
            one["start_offset"],
            one["end_offset"],
            one["lag"],
            one["metadata"],
        )
        for one in response["offsets"]
    ]
    return [
        *groups({"groups": [response]}),
        "",
        *titled(("MEMBER", "CLIENT", "HOST", "SESSION MS", "PARTITIONS"), members, "no members"),
        "",
        *titled(("TOPIC", "PARTITION", "OFFSET", "START", "END", "LAG", "METADATA"), committed, "no committed offsets"),
    ]


def producers(response: Any) -> list[str]:
    """Returns a line for each producer in each partition."""
    rows = [
        (
            one["topic"],
            one["partition"],
            one["producer_id"],
            one["producer_epoch"],
            _present(one["last_sequence"]),
            moment(one["last_timestamp_ms"]),
            _present(one["transaction_start_offset"]),
        )
        for one in response["producers"]
    ]
    head = ("TOPIC", "PARTITION", "PRODUCER ID", "EPOCH", "LAST SEQUENCE", "LAST TIMESTAMP (UTC)", "TRANSACTION FROM")
    return titled(head, rows, "no producers")
