"""What `ottla ctl` prints of each answer, for people: columns, and values that cannot upset a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ...broker.control.values import one_line
from ...protocol.text import known, lines, moment

SHOWN_LETTERS = 60  # of a value in a column


def plain(value: Any) -> str:
    """A value as text of one line."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "-" if value is None else one_line(value)


def shown_bytes(value: Any) -> str:
    """A key or a value of a record, cut where it is long."""
    if isinstance(value, dict):
        value = f"base64:{value['base64']}"
    text = plain(value) if value is None else one_line(value)
    return text if len(text) <= SHOWN_LETTERS else text[: SHOWN_LETTERS - 3] + "..."


def table(head: Sequence[str], rows: Iterable[Sequence[Any]], none: str) -> list[str]:
    """Rows under their head; `none` where there are none."""
    cells = [[plain(cell) for cell in row] for row in rows]
    return list(lines([head, *cells])) if cells else [none]


def health(told: Any) -> list[str]:
    """What the broker is, and where."""
    return list(lines([(name.replace("_", " "), plain(value)) for name, value in told.items()]))


def removed(told: Any) -> list[str]:
    """How many are gone."""
    return [f"removed: {told['removed']}"]


def faults(told: Any) -> list[str]:
    """All faults in force."""
    head = ("ID", "ACTION", "MATCHED", "FIRED", "WHERE")
    rows = [(one["id"], one["action"], one["matched"], one["fired"], fault_where(one)) for one in told["faults"]]
    return table(head, rows, "no faults")


def one_fault(told: Any) -> list[str]:
    """One fault."""
    return faults({"faults": [told]})


def fault_where(fault: Any) -> str:
    """What a fault asks for, and how often."""
    apart = ("id", "action", "matched", "fired")
    pairs = [(name, value) for name, value in fault.items() if name not in apart]
    return " ".join(f"{name}={','.join(map(str, v)) if isinstance(v, list) else v}" for name, v in pairs)


def topology(told: Any) -> list[str]:
    """The nodes, then the partitions."""
    nodes = [(one["id"], f"{one['host']}:{one['port']}", one["running"]) for one in told["nodes"]]
    found = table(("NODE", "ADDRESS", "RUNNING"), nodes, "no nodes")
    partitions = [
        (
            one["topic"],
            one["partition"],
            known(one["leader"]),
            one["leader_epoch"],
            ",".join(map(str, one["replicas"])),
            ",".join(map(str, one["isr"])),
        )
        for one in told["partitions"]
    ]
    head = ("TOPIC", "PARTITION", "LEADER", "EPOCH", "REPLICAS", "IN SYNC")
    return [*found, "", *table(head, partitions, "no partitions")]


def clock(told: Any) -> list[str]:
    """The time in words, and whether it stands."""
    stands = "frozen" if told["is_frozen"] else "running"
    return [f"{moment(told['now_ms'])} UTC ({told['now_ms']}), {stands}, {ahead(told['offset_ms'])}"]


def ahead(milliseconds: int) -> str:
    """How far a clock is from the machine's."""
    if milliseconds == 0:
        return "as the machine's clock"
    days, rest = divmod(abs(milliseconds), 86_400_000)
    hours, rest = divmod(rest, 3_600_000)
    minutes, rest = divmod(rest, 60_000)
    text = f"{days}d " * bool(days) + f"{hours:02}:{minutes:02}:{rest // 1000:02}.{rest % 1000:03}"
    return f"{text} {'ahead of' if milliseconds > 0 else 'behind'} the machine's clock"


def snapshots(told: Any) -> list[str]:
    """Their names."""
    return [plain(one["name"]) for one in told["snapshots"]] or ["no snapshots"]


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
    return table(("TOPIC", "PARTITIONS", "OFFSETS", "BYTES", "CONFIGS"), rows, "no topics")


def one_topic(told: Any) -> list[str]:
    """A topic and its partitions."""
    rows = [
        (
            one["partition"],
            known(one["leader"]),
            one["leader_epoch"],
            known(one["start_offset"]),
            known(one["end_offset"]),
            known(one["stable_offset"]),
            known(one["size_bytes"]),
            "" if one["offline"] is None else f"offline: {one['offline']}",
        )
        for one in told["partitions"]
    ]
    head = ("PARTITION", "LEADER", "EPOCH", "START", "END", "STABLE", "BYTES", "")
    return [*topics({"topics": [told]}), "", *table(head, rows, "no partitions")]


def records(told: Any) -> list[str]:
    """A line each; headers behind the value."""
    rows = [
        (
            one["partition"],
            one["offset"],
            moment(one["timestamp_ms"]),
            shown_bytes(one["key"]),
            shown_bytes(one["value"]),
            " ".join(f"{one_line(h['name'])}={shown_bytes(h['value'])}" for h in one["headers"]),
        )
        for one in told["records"]
    ]
    found = table(("PARTITION", "OFFSET", "TIMESTAMP (UTC)", "KEY", "VALUE", "HEADERS"), rows, "no records")
    return [*found, "there are more"] if told["more"] else found


def offsets(told: Any) -> list[str]:
    """The offset of each record that was sent."""
    return [f"offset {offset}" for offset in told["offsets"]]


def groups(told: Any) -> list[str]:
    """All groups, a line each."""
    rows = [(one["id"], one["state"], one["generation"], len(one["members"]), one["lag"]) for one in told["groups"]]
    return table(("GROUP", "STATE", "GENERATION", "MEMBERS", "LAG"), rows, "no groups")


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
        *table(("MEMBER", "CLIENT", "HOST", "SESSION MS", "PARTITIONS"), members, "no members"),
        "",
        *table(("TOPIC", "PARTITION", "OFFSET", "START", "END", "LAG", "METADATA"), committed, "no committed offsets"),
    ]


def producers(told: Any) -> list[str]:
    """A line for each producer in each partition."""
    rows = [
        (
            one["topic"],
            one["partition"],
            one["producer_id"],
            one["producer_epoch"],
            known(one["last_sequence"]),
            moment(one["last_timestamp_ms"]),
            known(one["transaction_start_offset"]),
        )
        for one in told["producers"]
    ]
    head = ("TOPIC", "PARTITION", "PRODUCER ID", "EPOCH", "LAST SEQUENCE", "LAST TIMESTAMP (UTC)", "TRANSACTION FROM")
    return table(head, rows, "no producers")
