"""The output of `ottla explain --transactions`: text in columns or one JSON object, written while logs are read."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from ...broker.replica.producer_history import span
from ...broker.trace.tracer import quoted
from ...broker.transactions.state import NO_TIMEOUT_MS, Transaction, TransactionState
from ...protocol.text import duration, lines, moment
from ...protocol.text import known as shown
from ..command_line import Write
from .transactions import EMPTY, HANGING, OPEN, Coordinators, InPartition, Open, Report, Seen, Status

HEAD = ("OFFSETS", "PRODUCER", "EPOCH", "TRANSACTIONAL ID", "BATCHES", "RECORDS", "BEGUN (UTC)", "OUTCOME")
WIDTHS = (17, 8, 5, 20, 7, 8, 23, 0)  # fixed, since each line is written before the next is read
ID_HEAD = ("TRANSACTIONAL ID", "PRODUCER", "EPOCH", "STATE", "BEGUN (UTC)", "TIME-OUT", "TIMES OUT (UTC)", "PARTITIONS")
PARTITIONS_SHOWN = 8


def as_text(report: Report, write: Write) -> None:
    is_first = True
    for seen, found in report.partitions():
        begun = False
        for one in found:
            if not begun:
                write(("" if is_first else "\n") + _title(seen) + next(lines([HEAD], WIDTHS)))
                is_first, begun = False, True
            _write_transaction(seen, one, report.coordinators, write)
        if not begun and (report.is_all or seen.damage is not None or seen.holder is not None):
            write(("" if is_first else "\n") + _title(seen) + "no matching transactions\n")
            is_first, begun = False, True
        if begun:
            _write_tail(seen, report.coordinators, write)
    if is_first:
        write("no transactions\n")
    under_way = report.at_coordinators()
    if under_way:
        write("\nAt their coordinators:\n")
        for line in lines([ID_HEAD, *(_id_row(one) for one in under_way)]):
            write(line)


def _title(seen: Seen) -> str:
    return f"{seen.name}, log start offset {seen.log_start_offset}\n\n"


def _write_transaction(seen: Seen, one: InPartition, coordinators: Coordinators, write: Write) -> None:
    remark = status_of(seen, one)
    row = (
        "-" if one.first_offset < 0 else span(one.first_offset, max(one.last_offset, one.first_offset)),
        str(one.producer_id),
        str(one.epoch),
        _shown_id(coordinators.id_of(one.producer_id)),
        str(one.batches) if one.batches > 0 else "-",
        str(one.records) if one.batches > 0 else "-",
        moment(one.begun_ms),
        _outcome(one, remark),
    )
    write(next(lines([row], WIDTHS)))
    # The status of the holder comes after the table.
    if remark is not None and seen.holder is not None and one != seen.holder.transaction:
        write(f"  {'! ' if remark.kind == HANGING else ''}{remark.why}\n")
    if 0 <= one.first_offset < seen.log_start_offset:
        write("  begun below the log start\n")
    elif one.first_offset < 0:
        write("  no records in this log: none were written here, or they were removed\n")


def _shown_id(name: str | None) -> str:
    return "-" if name is None else quoted(name)[1:-1]


def _outcome(one: InPartition, status: Status | None) -> str:
    if status is not None:
        return f"{OPEN}, {status.kind}"
    epoch = f", epoch {one.marker_epoch}" if one.marker_epoch != one.epoch else ""
    coordinator = f", coordinator epoch {one.coordinator_epoch}" if one.coordinator_epoch >= 0 else ""
    return f"{one.state} at offset {one.marker_offset}, {moment(one.ended_ms)}{epoch}{coordinator}"


def status_of(seen: Seen, one: InPartition) -> Status | None:
    """Returns the status of an open transaction; None for an ended one."""
    return next((known.status for known in seen.open if known.transaction == one), None)


def _write_tail(seen: Seen, coordinators: Coordinators, write: Write) -> None:
    counts = transaction_counts(seen)
    write(f"\nlog end offset {seen.end_offset}, last stable offset {seen.last_stable_offset}: {counts}\n")
    if seen.damage is not None:
        write("  ! reading ended at the damage: the rest of the log is unknown\n")
    for line in held_back(seen.holder, seen.log_start_offset, coordinators):
        write(line)
    if seen.holder is None and 0 <= seen.last_stable_offset < seen.end_offset:
        write("  held back, without an open transaction: one has just ended\n")


def transaction_counts(seen: Seen) -> str:
    """Returns the numbers of ended transactions by state, and of open ones."""
    words = {EMPTY: "without records here"}
    counts = [f"{number} {words.get(state, state)}" for state, number in sorted((seen.ended or {}).items())]
    return ", ".join([*counts, f"{len(seen.open) or 'none'} open"])


def held_back(holder: Open | None, log_start_offset: int, coordinators: Coordinators) -> Iterator[str]:
    """Yields lines on the transaction that holds back the last stable offset; none without one."""
    if holder is None:
        return
    one, status = holder
    name = coordinators.id_of(one.producer_id)
    whose = f"producer {one.producer_id} epoch {one.epoch}" + (f", transactional id {quoted(name)}" if name else "")
    at = f" ({moment(one.begun_ms)})" if one.begun_ms >= 0 else ""
    below = ", below the log start" if one.first_offset < log_start_offset else ""
    yield f"  held back by {whose}: transaction open since offset {one.first_offset}{below}{at}\n"
    yield f"  {'! hanging: ' if status.kind == HANGING else ''}{status.why}\n"


def _id_row(one: Transaction) -> tuple[str, ...]:
    places = [f"{topic}-{index}" for topic, index in sorted(one.partitions)]
    more = f" and {len(places) - PARTITIONS_SHOWN} more" if len(places) > PARTITIONS_SHOWN else ""
    ends_ms = times_out(one)
    return (
        _shown_id(one.transactional_id),
        shown(one.producer_id),
        shown(one.producer_epoch),
        one.state.value,
        moment(one.start_ms),
        "-" if one.timeout_ms < 0 else "never" if one.timeout_ms >= NO_TIMEOUT_MS else duration(one.timeout_ms),
        "-" if ends_ms is None else moment(ends_ms),
        (", ".join(places[:PARTITIONS_SHOWN]) + more) or "-",
    )


def times_out(one: Transaction) -> int | None:
    """Returns the time at which the coordinator aborts the transaction, in ms; None for never."""
    if one.state is not TransactionState.ONGOING or one.start_ms < 0 or not 0 <= one.timeout_ms < NO_TIMEOUT_MS:
        return None
    return one.start_ms + one.timeout_ms


# JSON


def as_json(report: Report, write: Write) -> None:
    write(json.dumps(report.source)[:-1] + ',\n"partitions": [')
    between = "\n"
    for seen, found in report.partitions():
        head = {"topic": seen.topic, "partition": seen.partition, "log_start_offset": seen.log_start_offset}
        begin = between + json.dumps(head)[:-1] + ', "transactions": ['
        inside = begin
        for one in found:
            write(inside + "\n  " + json.dumps(transaction_report(seen, one, report.coordinators)))
            inside = ","
        if inside is begin:
            if not (report.is_all or seen.damage is not None or seen.holder is not None):
                continue
            write(begin)
        summary = transactions_report(seen, report.coordinators)
        tail = {"log_end_offset": seen.end_offset, **summary, "damage": seen.damage}
        write("],\n " + json.dumps(tail)[1:])
        between = ",\n"
    ids = [_id_report(one) for one in report.at_coordinators()]
    write(f'],\n"transactional_ids": {json.dumps(ids, indent=2)}}}\n')


def transaction_report(seen: Seen, one: InPartition, coordinators: Coordinators) -> dict[str, Any]:
    status, known = status_of(seen, one), coordinators.of(one.producer_id)
    return {
        "transactional_id": coordinators.id_of(one.producer_id),
        **one._asdict(),
        "timeout_ms": -1 if known is None else known.timeout_ms,
        "standing": None if status is None else status._asdict(),
    }


def _held_back_report(holder: Open | None, coordinators: Coordinators | None) -> dict[str, Any] | None:
    if holder is None or coordinators is None:
        return None
    one, status = holder
    return {
        "producer_id": one.producer_id,
        "epoch": one.epoch,
        "transactional_id": coordinators.id_of(one.producer_id),
        "first_offset": one.first_offset,
        "begun_ms": one.begun_ms,
        "standing": status._asdict(),
    }


def transactions_report(seen: Seen, coordinators: Coordinators | None) -> dict[str, Any]:
    """Returns the JSON summary of the transactions of a partition."""
    return {
        "last_stable_offset": seen.last_stable_offset,
        "transaction_counts": {**({} if seen.ended is None else seen.ended), "open": len(seen.open)},
        "held_back_by": _held_back_report(seen.holder, coordinators),
    }


def _id_report(one: Transaction) -> dict[str, Any]:
    return {
        "transactional_id": one.transactional_id,
        "producer_id": one.producer_id,
        "producer_epoch": one.producer_epoch,
        "state": one.state.value,
        "timeout_ms": one.timeout_ms,
        "start_ms": one.start_ms,
        "last_update_ms": one.last_update_ms,
        "times_out_ms": times_out(one),
        "partitions": [{"topic": topic, "partition": index} for topic, index in one.partitions],
    }
