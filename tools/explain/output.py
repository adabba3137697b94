"""The output of `ottla explain`: text in columns or one JSON object, written while the log is read."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ...broker.replica.producer_answers import BatchVerdict
from ...broker.replica.producer_history import Stretch, after, span
from ...protocol.errors import ErrorCode
from ...protocol.text import duration, lines, moment
from ...protocol.text import known as shown
from ...storage.producers.producer_state import Producer
from ..command_line import Write
from .transactions_output import held_back, transaction_counts, transactions_report

if TYPE_CHECKING:
    from .explanation import Explanation
    from .transactions import SeenFiles

HEAD = ("OFFSETS", "PRODUCER", "EPOCH", "SEQUENCES", "BATCHES", "RECORDS", "TIMESTAMPS (UTC)")
WIDTHS = (17, 8, 5, 17, 7, 8, 0)  # fixed, since each line is written before the next is read


def as_text(explained: Explanation, write: Write) -> None:
    files, history = explained.files, explained.history
    write(f"{files.name}, log start offset {files.log_start_offset}\n")
    first = files.folder.segments[0].base_offset
    if files.log_start_offset:
        more = f"; the files still have those from {first} on" if first < files.log_start_offset else ""
        write(f"  offsets below {files.log_start_offset} are deleted{more}\n")
    write("\n")
    is_empty = True
    for stretch in explained.stretches():
        if is_empty:
            write(next(lines([HEAD], WIDTHS)))
            is_empty = False
        write(next(lines([_row(stretch)], WIDTHS)))
        if remark := ", ".join(filter(None, ("transactional" if stretch.transactional else "", stretch.text))):
            write(f"  {'! ' if stretch.odd else ''}{remark}\n")
    if is_empty:
        whose = "a producer" if explained.producer_id is None else f"producer {explained.producer_id}"
        write(f"no batches of {whose}\n")
    write(f"\nlog end offset {files.end_offset}\n")
    if history.plain_batches:
        count = f"{_count(history.plain_records, 'record')} in {_count(history.plain_batches, 'batch')}"
        write(f"  {count} without a producer id, not shown\n")
    if history.holes:
        write(f"  {_count(history.missing_offsets, 'offset')} in no batch, in {_count(history.holes, 'place')}\n")
    _write_transactions(explained.transactions, write)
    if files.damage is not None:
        write("  ! reading ended at the damage: the rest of the log is unknown\n")
    write("\n")
    producer_id = explained.explained
    if producer_id is None:
        _write_producers(explained, write)
    else:
        _write_responses(explained, producer_id, write)


def _write_transactions(seen: SeenFiles, write: Write) -> None:
    if not seen.ended and not seen.open:
        return
    write(f"  transactions: {transaction_counts(seen)}\n")
    if seen.open and seen.coordinators is not None:
        write(f"  last stable offset {seen.last_stable_offset}\n")
        for line in held_back(seen.holder, seen.log_start_offset, seen.coordinators):
            write(line)


def _count(number: int, word: str) -> str:
    plural = f"{word}es" if word.endswith("ch") else f"{word}s"
    return f"{number} {word if number == 1 else plural}"


def _row(stretch: Stretch) -> tuple[str, ...]:
    return (
        span(stretch.first_offset, stretch.last_offset),
        shown(stretch.producer_id),
        shown(stretch.epoch),
        "-" if stretch.first_sequence < 0 else span(stretch.first_sequence, stretch.last_sequence),
        str(stretch.batches) if stretch.batches else "-",
        str(stretch.records) if stretch.batches else "-",
        _times(stretch.first_ms, stretch.last_ms),
    )


def _times(first_ms: int, last_ms: int) -> str:
    first, last = moment(first_ms), moment(last_ms)
    if first == last or "-" in (first, last):
        return last
    day, _, time = last.partition(" ")
    return f"{first} - {time if time and first.startswith(day) else last}"


def _write_producers(explained: Explanation, write: Write) -> None:
    if not explained.known or not explained.knows_producers:
        write(f"Under the rules of {explained.profile.name} there is no producer state.\n")
        return
    write(f"Producer state under the rules of {explained.profile.name}:\n")
    head = ("PRODUCER ID", "EPOCH", "LAST SEQUENCE", "LAST OFFSET", "LAST TIMESTAMP (UTC)", "NEXT SEQUENCE", "")
    rows = [head, *(_producer_row(explained, producer_id) for producer_id in sorted(explained.known))]
    for line in lines(rows):
        write(line)
    write("\n--producer-id N shows the responses to its next batch and to others, with reasons.\n")


def _producer_row(explained: Explanation, producer_id: int) -> tuple[str, ...]:
    known = explained.known[producer_id]
    return (
        str(producer_id),
        str(known.epoch),
        shown(known.last_sequence),
        str(known.last_offset),
        moment(known.last_timestamp_ms),
        str(after(known.last_sequence)),
        ", ".join(_remarks(explained, producer_id)),
    )


def _remarks(explained: Explanation, producer_id: int) -> Iterator[str]:
    known = explained.known[producer_id]
    if producer_id in explained.from_snapshot:
        yield "from a snapshot only"
    if known.transaction_first_offset >= 0:
        yield f"transaction since offset {known.transaction_first_offset}"


def _write_responses(explained: Explanation, producer_id: int, write: Write) -> None:
    known = explained.known.get(producer_id)
    name = explained.profile.name
    if not explained.knows_producers:
        write(f"{name} has no idempotent producers and no message format v2: both are new in Kafka 0.11.\n")
        return
    if known is None:
        write(f"Under the rules of {name} there is no state of producer {producer_id}.\n\n")
    else:
        last = f"last sequence {known.last_sequence} at offset {known.last_offset}" if known.batches else "no batch"
        more = "".join(f", {remark}" for remark in _remarks(explained, producer_id))
        write(f"State of producer {producer_id} under the rules of {name}: epoch {known.epoch}, {last}{more}\n")
        for sentence in _forgetting(explained, known):
            write(f"  {sentence}\n")
        write("\n")
    found = explained.responses(producer_id)
    rows = [("BATCH", "EPOCH", "SEQUENCES", "RESPONSE")]
    rows += [
        (a.batch.case, str(a.batch.epoch), span(a.batch.first_sequence, a.batch.last_sequence), _response(a))
        for a in found
    ]
    head, *others = lines(rows)
    write(head)
    for line, response in zip(others, found, strict=True):
        write(f"{line}  {response.why}\n")


def _response(response: BatchVerdict) -> str:
    if response.written:
        return "accepted"
    if response.code is ErrorCode.NONE:
        return f"success, offset {response.offset}"
    return f"{response.code.name} ({int(response.code)})"


def _forgetting(explained: Explanation, known: Producer) -> Iterator[str]:
    rules = explained.rules
    ways: list[str] = []
    if rules.drop_below_log_start:
        ways.append(f"when offset {known.last_offset} falls below the log start offset")
    if rules.expiration_ms is not None:
        at = moment(known.last_timestamp_ms + rules.expiration_ms)
        ways.append(f"{duration(rules.expiration_ms)} after its last timestamp, which is at {at}")
    unless = ", but not while its transaction is open" if known.transaction_first_offset >= 0 else ""
    if ways:
        yield f"It expires {' or '.join(ways)}{unless}."
    if not ways and rules.below_log_start_ms is not None:
        yield (
            f"Once offset {known.last_offset} is below the log start offset, clients that compare the two treat it "
            f"as unknown; it expires {duration(rules.below_log_start_ms)} after its last timestamp or at a restart."
        )
    elif not rules.drop_below_log_start:
        yield "It does not expire when the log start offset moves while the broker runs, but may at a later restart."
    if len(known.batches) > 1:
        yield (
            f"{_count(len(known.batches), 'batch')} of it are cached; after a restart only the newest of the snapshot "
            "and those after the snapshot may be."
        )


# JSON


def as_json(explained: Explanation, write: Write) -> None:
    files, history = explained.files, explained.history
    head = {
        "directory": os.path.abspath(explained.directory),
        "topic": files.folder.topic,
        "partition": files.folder.partition,
        "release": explained.profile.name,
        "log_start_offset": files.log_start_offset,
    }
    write(json.dumps(head)[:-1] + ',\n"history": [')
    _write_items((stretch._asdict() for stretch in explained.stretches()), write)
    tail = {
        "log_end_offset": files.end_offset,
        "without_producer": {"batches": history.plain_batches, "records": history.plain_records},
        "missing_offsets": {"offsets": history.missing_offsets, "places": history.holes},
        "damage": files.damage,
        **transactions_report(explained.transactions, explained.transactions.coordinators),
    }
    write(",\n" + json.dumps(tail)[1:-1] + ',\n"producers": [')
    _write_items((_producer_report(explained, producer_id) for producer_id in sorted(explained.known)), write)
    producer_id = explained.explained
    responses = None if producer_id is None else [_response_report(a) for a in explained.responses(producer_id)]
    write(f',\n"answers": {json.dumps(responses, indent=2)}}}\n')  # words: quoted


def _write_items(items: Iterator[dict[str, Any]], write: Write) -> None:
    between = "\n"
    for item in items:
        write(between + json.dumps(item))
        between = ",\n"
    write("]")


def _producer_report(explained: Explanation, producer_id: int) -> dict[str, Any]:
    known = explained.known[producer_id]
    expiration_ms = explained.rules.expiration_ms
    return {
        "producer_id": producer_id,
        "epoch": known.epoch,
        "last_sequence": known.last_sequence,
        "next_sequence": after(known.last_sequence),
        "last_offset": known.last_offset,
        "last_timestamp_ms": known.last_timestamp_ms,
        "coordinator_epoch": known.coordinator_epoch,
        "transaction_first_offset": known.transaction_first_offset,
        "remembered": [of._asdict() for of in known.batches],
        "known_from": "snapshot" if producer_id in explained.from_snapshot else "log",
        "expires_ms": None if expiration_ms is None else known.last_timestamp_ms + expiration_ms,
    }


def _response_report(response: BatchVerdict) -> dict[str, Any]:
    return {
        "case": response.batch.case,
        "epoch": response.batch.epoch,
        "first_sequence": response.batch.first_sequence,
        "last_sequence": response.batch.last_sequence,
        "transactional": response.batch.transactional,
        "error_code": int(response.code),
        "error": response.code.name,
        "written": response.written,
        "offset": response.offset,
        "timestamp_ms": response.timestamp_ms,
        "why": response.why,
    }
