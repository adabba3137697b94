"""`ottla producers`: what partitions know of their producers, from a data directory or from a broker.

Owns the command and its printing. A directory is read without a lock and nothing is written, so a broker may run on it:
what that appends meanwhile is not seen. Of each partition the newest good snapshot is taken and the headers behind it,
or all headers where there is none. A broker is asked by DescribeProducers, which Kafka has from 2.8 on. Exit code 0; 1,
with one line on stderr, if a log is damaged; 2 for a mistake.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ...broker.replica.producer_log import PartitionFiles, find
from ...protocol.arguments import Parser, add_bootstrap
from ...protocol.limits import INT32_MAX
from ...protocol.mistakes import complain
from ...protocol.text import known as shown
from ...protocol.text import lines, moment
from ...storage.errors import StorageError
from ...storage.producers.producer_state import Producer, ProducerRules
from ..command_line import FOUND_DAMAGE, number, printing

if TYPE_CHECKING:
    from ...client.admin.admin import ProducerState

HEAD = ("TOPIC", "PARTITION", "PRODUCER ID", "EPOCH", "LAST SEQUENCE", "LAST OFFSET", "LAST TIMESTAMP (UTC)", "")


class State(NamedTuple):
    """One producer in one partition; -1 for what is not known. A broker does not tell the last offset."""

    topic: str
    partition: int
    producer_id: int
    epoch: int
    last_sequence: int
    last_offset: int
    last_timestamp_ms: int
    coordinator_epoch: int
    transaction_first_offset: int


def producers(arguments: Sequence[str]) -> int:
    """`ottla producers`: the exit code."""
    parser = Parser(
        prog="ottla producers",
        description="What partitions know of their idempotent producers.",
        usage="%(prog)s [-h] (DIR | --bootstrap-server ADDRESS) [--topic T] [--partition P] [--json]",
        allow_abbrev=False,
    )
    parser.add_argument("directory", metavar="DIR", nargs="?", help="a data directory of Ottla or of Apache Kafka")
    add_bootstrap(parser, metavar="ADDRESS", help="ask this broker and the others of its cluster instead")
    parser.add_argument("--topic", metavar="T", help="of this topic alone")
    parser.add_argument("--partition", metavar="P", type=number("partition", INT32_MAX), help="of this partition alone")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parsed = parser.parse_args(list(arguments))
    if (parsed.directory is None) is (parsed.bootstrap_server is None):
        parser.error("either DIR or --bootstrap-server ADDRESS is needed")
    print_it = _print_json if parsed.json else _print_text
    if parsed.bootstrap_server is not None:
        from .producers_of_broker import Cannot, ask

        try:
            told = [
                _told(of.topic, of.partition, one)
                for of in ask(parsed.bootstrap_server, parsed.topic, parsed.partition)
                for one in of.producers
            ]
        except Cannot as error:
            return complain(parser.prog, error)
        return printing(parser.prog, lambda write: print_it(told, write))
    try:
        found = find(parsed.directory, parsed.topic, parsed.partition)
    except StorageError as error:
        return complain(parser.prog, error)
    code = printing(parser.prog, lambda write: print_it(_states(found), write))
    damage = next((files.damage for files in found if files.damage is not None), None)
    if damage is not None and not code:
        complain(parser.prog, f"not read to its end: {damage}")
        return FOUND_DAMAGE
    return code


def _told(topic: str, partition: int, told: ProducerState) -> State:
    return State(
        topic,
        partition,
        told.producer_id,
        told.producer_epoch,
        told.last_sequence,
        -1,
        told.last_timestamp_ms,
        told.coordinator_epoch,
        told.current_transaction_start_offset,
    )


def _states(found: Sequence[PartitionFiles]) -> Iterator[State]:
    """Every producer of every partition, one partition after the other."""
    for files in found:
        known, _ = files.producers(ProducerRules())
        for producer_id, producer in sorted(known.items()):
            yield _state(files, producer_id, producer)


def _state(files: PartitionFiles, producer_id: int, known: Producer) -> State:
    newest = known.batches[-1] if known.batches else None
    return State(
        files.folder.topic,
        files.folder.partition,
        producer_id,
        known.epoch,
        newest.last_sequence if newest else -1,
        newest.last_offset if newest else -1,
        known.last_timestamp_ms,
        known.coordinator_epoch,
        known.transaction_first_offset,
    )


def _print_text(states: Iterable[State], write: Callable[[str], object]) -> int:
    rows: list[Sequence[str]] = [HEAD]
    rows += [_row(state) for state in states]
    if len(rows) == 1:
        write("no producers\n")
        return 0
    for line in lines(rows):
        write(line)
    return 0


def _row(state: State) -> tuple[str, ...]:
    remarks: list[str] = []
    if state.transaction_first_offset >= 0:
        remarks.append(f"transaction since offset {state.transaction_first_offset}")
    if state.coordinator_epoch >= 0:
        remarks.append(f"coordinator epoch {state.coordinator_epoch}")
    return (
        state.topic,
        str(state.partition),
        str(state.producer_id),
        str(state.epoch),
        shown(state.last_sequence),
        shown(state.last_offset),
        moment(state.last_timestamp_ms),
        ", ".join(remarks),
    )


def _print_json(states: Iterable[State], write: Callable[[str], object]) -> int:
    write(json.dumps({"producers": [state._asdict() for state in states]}, indent=2) + "\n")
    return 0
