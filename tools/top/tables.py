"""The tables of `ottla top`: tabs, columns, and the lines above them, as plain text for screen and print.

Owns the selection and the order. Control characters in texts from clients (names, ids, versions) are escaped: they
could be escape sequences of the terminal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ...protocol.narrowing import is_dict, is_list
from ...protocol.text import NONE, count, elapsed, moment, rate, size, table, visible
from .rates import NAMES, History, Overview, Row

SHOWN_LETTERS = 200  # characters of a text in a table; details are not cut
LATE_MS = 1000  # a slower request is highlighted
HIGHEST_RANK = 5  # columns with a higher rank are left to the screen


@dataclass(frozen=True, slots=True)
class Column:
    """A column. `value` is the sort key, `shown` the text of a cell.

    On a narrow terminal the columns with the highest `rank` are dropped first. `warns` decides whether a cell is
    highlighted.
    """

    title: str
    value: Callable[[Row], Any]
    shown: Callable[[Row], str]
    rank: int = 0
    is_number: bool = True
    is_flexible: bool = False
    """Whether the column is narrowed on a narrow terminal."""
    warns: Callable[[Row], bool] | None = None


@dataclass(frozen=True, slots=True)
class Tab:
    """A tab with one table. `sort` is the title of the initial sort column, descending if `is_falling`."""

    kind: str
    title: str
    none: str
    columns: tuple[Column, ...]
    names: Callable[[Row], Sequence[str | None]]
    """The texts that a filter searches: the same as in the control plane."""
    sort: str
    is_falling: bool = True

    def column(self, title: str) -> int:
        return [column.title for column in self.columns].index(title)

    def fits(self, row: Row, wanted: str) -> bool:
        """Returns whether one of a row's names contains `wanted`, ignoring case."""
        return not wanted or any(wanted.casefold() in name.casefold() for name in self.names(row) if name)

    def sorted(self, rows: Sequence[Row], column: Column, *, is_falling: bool) -> list[Row]:
        """Sorts rows by a column, then by name; rows without a value are last."""
        named = sorted(rows, key=lambda row: tuple(str(row[name]).casefold() for name in NAMES[self.kind]))
        known = [row for row in named if column.value(row) is not None]
        known.sort(key=column.value, reverse=is_falling)
        return known + [row for row in named if column.value(row) is None]


def text(value: Any) -> str:
    """Returns the text of a value in a cell."""
    shown = NONE if value is None or value == "" else visible(value)
    return shown if len(shown) <= SHOWN_LETTERS else shown[: SHOWN_LETTERS - 1] + "…"


def ahead(milliseconds: int) -> str:
    """Returns the offset of the broker's clock from the machine's as text."""
    if milliseconds == 0:
        return "equal to the machine's clock"
    days, rest = divmod(abs(milliseconds), 86_400_000)
    hours, rest = divmod(rest, 3_600_000)
    minutes, rest = divmod(rest, 60_000)
    text = f"{days}d " * bool(days) + f"{hours:02}:{minutes:02}:{rest // 1000:02}.{rest % 1000:03}"
    return f"{text} {'ahead of' if milliseconds > 0 else 'behind'} the machine's clock"  # words: quoted


def fault_where(fault: Any) -> str:
    """Returns the conditions and parameters of a fault rule as NAME=VALUE texts."""
    apart = ("id", "action", "matched", "fired")
    pairs = [(name, value) for name, value in fault.items() if name not in apart]
    return " ".join(f"{name}={','.join(map(str, v)) if is_list(v) else v}" for name, v in pairs)


def _of(name: str) -> Callable[[Row], Any]:
    return lambda row: row[name]


def _per_second(name: str) -> Callable[[Row], Any]:
    return lambda row: row["per_second"][name]


def _words(title: str, name: str, rank: int = 0, *, is_flexible: bool = False) -> Column:
    return Column(title, lambda row: text(row[name]).casefold(), lambda row: text(row[name]), rank, False, is_flexible)


def _number(
    title: str,
    value: Callable[[Row], Any],
    shown: Callable[[Any], str],
    rank: int = 0,
    warns: Callable[[Row], bool] | None = None,
) -> Column:
    return Column(title, value, lambda row: shown(value(row)), rank, warns=warns)


def trend(per_second: float | None) -> str:
    """Returns a trend such as `+120/s`, `-3.5/s` or `steady`."""
    if per_second is None:
        return NONE
    if abs(per_second) < 0.05:
        return "steady"
    return f"{'+' if per_second > 0 else '-'}{rate(abs(per_second))}/s"


def _known(number: int) -> str:
    return NONE if number < 0 else str(number)


def _partitions(row: Row) -> str:
    offline = row["offline_partitions"]
    return f"{row['partitions']} ({offline} off)" if offline else str(row["partitions"])


def _members(row: Row) -> str:
    unreconciled = row["unreconciled"]
    return f"{row['members']} ({unreconciled} to reconcile)" if unreconciled else count(row["members"])


TOPICS = Tab(
    "topics",
    "Topics",
    "no topics",
    (
        _words("TOPIC", "name", is_flexible=True),
        Column("PARTS", _of("partitions"), _partitions, 2, warns=lambda row: row["offline_partitions"] > 0),
        _number("RECORDS", _of("records"), count, 1),
        _number("SIZE", _of("size_bytes"), size),
        _number("IN REC/S", _per_second("records_in"), rate),
        _number("IN B/S", _per_second("bytes_in"), size),
        _number("OUT B/S", _per_second("bytes_out"), size),
        _number("IN", _of("bytes_in"), size, 3),
        _number("OUT", _of("bytes_out"), size, 3),
    ),
    lambda row: [row["name"]],
    "IN REC/S",
)

GROUPS = Tab(
    "groups",
    "Groups",
    "no groups",
    (
        _words("GROUP", "id", is_flexible=True),
        _words("TYPE", "type", 2),
        _words("STATE", "state"),
        Column("MEMBERS", _of("members"), _members, 1, warns=lambda row: row["unreconciled"] > 0),
        _number("LAG", _of("lag"), count),
        _number("TREND", _per_second("lag"), trend, warns=lambda row: (row["per_second"]["lag"] or 0) >= 0.05),
        _number("READ/S", _per_second("committed"), rate),
        _number("PARTS", _of("partitions"), count, 3),
        _number("IN FLIGHT", _of("in_flight"), count, 3),
        _number("EPOCH", _of("generation"), _known, 4),
        _words("PROTOCOL", "protocol", 5),
        Column(
            "TOPICS", lambda row: row["topics"], lambda row: text(", ".join(row["topics"])), 6, False, is_flexible=True
        ),
    ),
    lambda row: [row["id"], *row["topics"]],
    "LAG",
)


def _place(row: Row) -> str:
    return NONE if row["topic"] is None else text(f"{row['topic']}-{row['partition']}")


def _transaction(row: Row) -> str:
    if row["transaction_start_offset"] >= 0:
        return f"open from {row['transaction_start_offset']}"
    return NONE if row["transaction_state"] is None else text(row["transaction_state"])


PRODUCERS = Tab(
    "producers",
    "Producers",
    "no producers",
    (
        _number("ID", _of("producer_id"), str),
        _number("EPOCH", _of("producer_epoch"), _known),
        Column("PARTITION", lambda row: (row["topic"] or "", row["partition"]), _place, 0, False, is_flexible=True),
        _number("SEQUENCE", _of("last_sequence"), _known),
        _number("SEQ/S", _per_second("last_sequence"), rate, 2),
        Column(
            "TRANSACTION",
            lambda row: (row["transaction_start_offset"], row["transaction_state"] or ""),
            _transaction,
            0,
            False,
            warns=lambda row: row["transaction_start_offset"] >= 0,
        ),
        _words("TRANSACTIONAL ID", "transactional_id", 1, is_flexible=True),
        _number("LAST TIMESTAMP (UTC)", _of("last_timestamp_ms"), moment, 3),
        Column("BEGUN (UTC)", _of("transaction_start_ms"), lambda row: moment(row["transaction_start_ms"]), 4),
    ),
    lambda row: [row["topic"], row["transactional_id"], str(row["producer_id"])],
    "SEQ/S",
)


def _software(row: Row) -> str:
    return text(" ".join(part for part in (row["software_name"], row["software_version"]) if part))


def _principals(row: Row) -> list[str]:
    return row.get("principals", [])  # a broker of an older version has none


def _versions(row: Row) -> str:
    return text(" ".join(f"{api}:{version}" for api, version in row["apis"].items()))


CLIENTS = Tab(
    "clients",
    "Clients",
    "no clients yet",
    (
        _words("CLIENT", "client_id", is_flexible=True),
        Column("SOFTWARE", lambda row: _software(row).casefold(), _software, 1, False, is_flexible=True),
        _number("CONNS", _of("connections"), count),
        _number("REQ/S", _per_second("requests"), rate),
        _number("IN B/S", _per_second("request_bytes"), size, 2),
        _number("OUT B/S", _per_second("response_bytes"), size, 2),
        _number("WAITING", _of("waiting"), count, 3),
        _number("IDLE", _of("idle_ms"), elapsed),
        _number("REQUESTS", _of("requests"), count, 4),
        Column("HOSTS", lambda row: row["hosts"], lambda row: text(", ".join(row["hosts"])), 5, False),
        Column("PRINCIPALS", _principals, lambda row: text(", ".join(_principals(row))), 6, False, is_flexible=True),
        Column("VERSIONS", _versions, _versions, 7, False, is_flexible=True),
    ),
    lambda row: [row["client_id"], row["software_name"], *row["hosts"], *_principals(row)],
    "REQ/S",
)


def _api(row: Row) -> str:
    return text(f"{row['api']} v{row['api_version']}")


def _from(row: Row) -> str:
    return text(f"{row['host']}:{row['port']}")


def _took_ms(row: Row) -> float:
    return row["duration_us"] / 1000


def _request_names(row: Row) -> list[str | None]:
    return [row["client_id"], row["host"], row["api"]]


_CLIENT = _words("CLIENT", "client_id", is_flexible=True)
_API = Column("REQUEST", lambda row: (row["api"], row["api_version"]), _api, 0, False)
_FROM = Column("FROM", lambda row: (row["host"], row["port"]), _from, 1, False)
_FAULT = Column("FAULT", lambda row: row["fault"] or "", lambda row: text(row["fault"]), 2, False, is_flexible=True)
_NUMBER = _number("NUMBER", _of("number"), str, 3)

SLOW = Tab(
    "slow",
    "Slow",
    "no requests in the last minute",
    (
        _number("TOOK", _took_ms, elapsed, warns=lambda row: _took_ms(row) >= LATE_MS),
        _API,
        _CLIENT,
        _FROM,
        _number("AGO", _of("ago_ms"), elapsed),
        _number("REQUEST B", _of("request_bytes"), size, 4),
        _number("RESPONSE B", _of("response_bytes"), size, 4),
        _words("ENDED", "ending", 5),
        _FAULT,
        _NUMBER,
    ),
    _request_names,
    "TOOK",
)


WAITING = Tab(
    "waiting",
    "Waiting",
    "no waiting requests",
    (
        _number("FOR SO LONG", _of("waiting_ms"), elapsed),
        _API,
        _CLIENT,
        _words("WAITS FOR", "waits_for"),
        _FROM,
        _number("REQUEST B", _of("request_bytes"), size, 4),
        _FAULT,
        _NUMBER,
    ),
    _request_names,
    "FOR SO LONG",
)

FAULTS = Tab(
    "faults",
    "Faults",
    "no fault rules",
    (
        _number("ID", _of("id"), str),
        _words("ACTION", "action"),
        _number("MATCHED", _of("matched"), count),
        _number("FIRED", _of("fired"), count, warns=lambda row: row["fired"] > 0),
        Column("WHERE", fault_where, lambda row: text(fault_where(row)), 0, False, is_flexible=True),
    ),
    lambda row: [row["action"], fault_where(row)],
    "ID",
    is_falling=False,
)

TABS: tuple[Tab, ...] = (TOPICS, GROUPS, PRODUCERS, CLIENTS, SLOW, WAITING, FAULTS)


def details(tab: Tab, row: Row) -> list[str]:
    """Returns a line for each field of a row."""
    found: list[tuple[str, str]] = []
    for name, value in row.items():
        if name == "per_second":
            found += [(f"{counter} per second".replace("_", " "), rate(number)) for counter, number in value.items()]
        elif is_dict(value):
            found += [(f"{name} {visible(key)}", visible(part)) for key, part in value.items()]
        else:
            found.append((name.replace("_", " "), _detail(name, value)))
    return [line.rstrip() for line in table(found)]


def _detail(name: str, value: Any) -> str:
    if is_list(value):
        return ", ".join(map(visible, value)) or NONE
    if isinstance(value, bool):
        return "yes" if value else "no"
    if name in ("last_timestamp_ms", "transaction_start_ms"):
        return moment(value)
    return NONE if value is None else visible(value)


# The lines above the tabs


def first_line(overview: Overview) -> list[str]:
    """Returns the parts of the first line: version, release, address, uptime; the most important first."""
    broker = overview["broker"]
    found = [
        f"ottla {text(broker['version'])}",
        f"release {text(broker['release'])}",
        text(broker["bootstrap"]),
        f"up {elapsed(broker['uptime_ms'])}",
    ]
    stopped = [str(node["id"]) for node in overview["nodes"] if not node["running"]]
    if len(overview["nodes"]) > 1:
        found.append(f"{len(overview['nodes'])} nodes" + (f", stopped: {', '.join(stopped)}" if stopped else ""))
    return found


def clock_line(overview: Overview) -> str:
    """Returns the broker's time, and whether its clock is frozen or moved."""
    clock = overview["clock"]
    shown = f"clock {moment(clock['now_ms']).partition('.')[0]} UTC"
    if clock["is_frozen"]:
        shown += ", FROZEN"
    return shown + (f", {ahead(clock['offset_ms'])}" if clock["is_frozen"] or clock["offset_ms"] else "")


def warnings(overview: Overview) -> list[str]:
    """Returns the problems of the broker, and whether fault rules exist."""
    broker, totals = overview["broker"], overview["totals"]
    found: list[str] = []
    if broker["status"] != "serving":
        found.append(f"FAILED: {text(broker['reason'])}")
    if totals["faults"]:
        found.append(_counted(totals["faults"], "fault rule"))
    if totals["offline_partitions"]:
        found.append(f"{_counted(totals['offline_partitions'], 'partition')} offline")
    return found


def _counted(number: int, what: str) -> str:
    return f"{count(number)} {what}{'s' * (number != 1)}"


def totals_line(overview: Overview) -> list[str]:
    """Returns the throughput and the totals, the most important first."""
    totals = overview["totals"]
    rates = totals["per_second"]
    flows = [
        f"in {rate(rates['records_in'])} rec/s {size(rates['bytes_in'])}/s",
        f"out {size(rates['bytes_out'])}/s",
        f"{rate(rates['requests'])} req/s",
    ]
    return [
        *(flows if rates["requests"] is not None else ()),  # None in the first overview
        _counted(totals["connections"], "connection"),
        f"lag {count(totals['lag'])}",
        f"{_counted(totals['topics'], 'topic')} {size(totals['size_bytes'])}",
        _counted(totals["groups"], "group"),
        _counted(totals["producers"], "producer"),
        _counted(totals["open_transactions"], "open transaction"),
    ]


# Printed


def overview(response: Overview) -> list[str]:
    """Returns the lines for a single response of the control plane, without rates."""
    return list(page(History().add(response)))


def page(shown: Overview) -> Iterator[str]:
    """Yields the lines of an overview with rates, as `History.add` returns it."""
    yield "  ".join(first_line(shown)) + "\n"
    yield "  ".join([clock_line(shown), *warnings(shown)]) + "\n"
    yield "  ".join(totals_line(shown)) + "\n"
    for tab in TABS:
        rows = tab.sorted(shown[tab.kind], tab.columns[tab.column(tab.sort)], is_falling=tab.is_falling)
        yield "\n"
        yield from _printed(tab, rows) if rows else (f"{tab.none}\n",)


def _printed(tab: Tab, rows: Sequence[Row]) -> list[str]:
    columns = [column for column in tab.columns if column.rank <= HIGHEST_RANK]
    numbers = [place for place, column in enumerate(columns) if column.is_number]
    cells = [[column.shown(row) for column in columns] for row in rows]
    return table(cells, [column.title for column in columns], numbers=numbers)
