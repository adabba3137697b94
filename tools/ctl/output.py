"""What `ottla ctl` prints of each answer, for people: columns, and values that cannot upset a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ...protocol.text import cell, moment, table, visible
from ..top.words import ahead, fault_where

SHOWN_LETTERS = 60  # of a value in a column


def shown_bytes(value: Any) -> str:
    """A key or a value of a record, cut where it is long."""
    if isinstance(value, dict):
        value = f"base64:{value['base64']}"
    text = cell(value)
    return text if len(text) <= SHOWN_LETTERS else text[: SHOWN_LETTERS - 3] + "..."


def titled(head: Sequence[str], rows: Iterable[Sequence[Any]], none: str) -> list[str]:
    """A table of the rows; `none` where there are none."""
    found = list(rows)
    return table(found, head) if found else [none]


def _present(number: int) -> int | None:
    return None if number == -1 else number


def health(told: Any) -> list[str]:
    """What the broker is, and where."""
    return table([(name.replace("_", " "), cell(value)) for name, value in told.items()])


def removed(told: Any) -> list[str]:
    """How many are gone."""
    return [f"removed: {told['removed']}"]


def faults(told: Any) -> list[str]:
    """All faults in force."""
    head = ("ID", "ACTION", "MATCHED", "FIRED", "WHERE")
    rows = [(one["id"], one["action"], one["matched"], one["fired"], fault_where(one)) for one in told["faults"]]
    return titled(head, rows, "no faults")


def one_fault(told: Any) -> list[str]:
    """One fault."""
    return faults({"faults": [told]})


def topology(told: Any) -> list[str]:
    """The nodes, then the partitions."""
    nodes = [(one["id"], f"{one['host']}:{one['port']}", one["running"]) for one in told["nodes"]]
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
        for one in told["partitions"]
    ]
    head = ("TOPIC", "PARTITION", "LEADER", "EPOCH", "REPLICAS", "IN SYNC")
    return [*found, "", *titled(head, partitions, "no partitions")]


def clock(told: Any) -> list[str]:
    """The time in words, and whether it stands."""
    stands = "frozen" if told["is_frozen"] else "running"
    return [f"{moment(told['now_ms'])} UTC ({told['now_ms']}), {stands}, {ahead(told['offset_ms'])}"]


def snapshots(told: Any) -> list[str]:
    """Their names."""
    return [cell(one["name"]) for one in told["snapshots"]] or ["no snapshots"]


def topics(told: Any) -> list[str]:
    """All topics, a line each."""
    rows = [
        (
            one["name"],
            len(one["partitions"]),
            sum(max(0, part["end_offset"] - part["start_offset"]) for part in one["partitions"]),
            sum(max(0, part["size_bytes"]) for part in one["partitions"]),
            " ".join(f"{name}={value}" for name, value in one["configs"].items()),
        )
        for one in told["topics"]
    ]
    return titled(("TOPIC", "PARTITIONS", "OFFSETS", "BYTES", "CONFIGS"), rows, "no topics")


def one_topic(told: Any) -> list[str]:
    """A topic and its partitions."""
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
        for one in told["partitions"]
    ]
    head = ("PARTITION", "LEADER", "EPOCH", "START", "END", "STABLE", "BYTES", "")
    return [*topics({"topics": [told]}), "", *titled(head, rows, "no partitions")]


def records(told: Any) -> list[str]:
    """A line each; headers behind the value."""
    rows = [
        (
            one["partition"],
            one["offset"],
            moment(one["timestamp_ms"]),
            shown_bytes(one["key"]),
            shown_bytes(one["value"]),
            " ".join(f"{visible(h['name'])}={shown_bytes(h['value'])}" for h in one["headers"]),
        )
        for one in told["records"]
    ]
    found = titled(("PARTITION", "OFFSET", "TIMESTAMP (UTC)", "KEY", "VALUE", "HEADERS"), rows, "no records")
    return [*found, "there are more"] if told["more"] else found


def offsets(told: Any) -> list[str]:
    """The offset of each record that was sent."""
    return [f"offset {offset}" for offset in told["offsets"]]


def groups(told: Any) -> list[str]:
    """All groups, a line each."""
    rows = [(one["id"], one["state"], one["generation"], len(one["members"]), one["lag"]) for one in told["groups"]]
    return titled(("GROUP", "STATE", "GENERATION", "MEMBERS", "LAG"), rows, "no groups")


def one_group(told: Any) -> list[str]:
    """A group, its members, and its offsets."""
    members = [
        (
            one["member_id"],
            one["client_id"],
            one["client_host"],
            one["session_timeout_ms"],
            ",".join(f"{held['topic']}-{held['partition']}" for held in one["assignment"]),
        )
        for one in told["members"]
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
        for one in told["offsets"]
    ]
    return [
        *groups({"groups": [told]}),
        "",
        *titled(("MEMBER", "CLIENT", "HOST", "SESSION MS", "PARTITIONS"), members, "no members"),
        "",
        *titled(("TOPIC", "PARTITION", "OFFSET", "START", "END", "LAG", "METADATA"), committed, "no committed offsets"),
    ]


def producers(told: Any) -> list[str]:
    """A line for each producer in each partition."""
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
        for one in told["producers"]
    ]
    head = ("TOPIC", "PARTITION", "PRODUCER ID", "EPOCH", "LAST SEQUENCE", "LAST TIMESTAMP (UTC)", "TRANSACTION FROM")
    return titled(head, rows, "no producers")
