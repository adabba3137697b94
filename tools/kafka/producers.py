"""`ottla producers`: lists the producer state of partitions, from a data directory or from a broker.

Owns the command and its output. A directory is read without a lock and nothing is written, so a broker may run on it;
batches appended meanwhile are not read. The state of a partition comes from its newest valid snapshot and the batch
headers after it, or from all headers without a snapshot. A broker returns the state by DescribeProducers (Kafka 2.8 and
later). Exit code 0; 1 with one line on stderr if a log is damaged; 2 for wrong arguments.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from ...broker.replica.producer_log import PartitionFiles, find
from ...protocol.arguments import Parser, add_bootstrap, add_command_config
from ...protocol.limits import INT32_MAX
from ...protocol.mistakes import complain
from ...protocol.named import NamedTuple
from ...protocol.text import known as shown
from ...protocol.text import lines, moment
from ...storage.errors import StorageError
from ...storage.producers.producer_state import ProducerRules
from ..command_line import Write, number, printing, printing_of_logs, security_options

if TYPE_CHECKING:
    from ...client.admin.admin import ProducerState

HEAD = ("TOPIC", "PARTITION", "PRODUCER ID", "EPOCH", "LAST SEQUENCE", "LAST OFFSET", "LAST TIMESTAMP (UTC)", "")


class State(NamedTuple):
    """The state of a producer in a partition; unknown numbers are -1, as the last offset if it comes from a broker."""

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
    parser = Parser(
        prog="ottla producers",
        description="List the state of idempotent producers in partitions.",
        usage=(
            "%(prog)s [-h] (DIR | --bootstrap-server ADDRESS [--command-config FILE]) [--topic T] [--partition P]"
            " [--json]"
        ),
        allow_abbrev=False,
    )
    parser.add_argument("directory", metavar="DIR", nargs="?", help="a data directory of Ottla or of Apache Kafka")
    add_bootstrap(parser, metavar="ADDRESS", help="query the cluster of this broker instead")
    add_command_config(parser)
    parser.add_argument("--topic", metavar="T", help="only this topic")
    parser.add_argument("--partition", metavar="P", type=number(INT32_MAX), help="only this partition")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parsed = parser.parse_args(list(arguments))
    if (parsed.directory is None) is (parsed.bootstrap_server is None):
        parser.error("expected either DIR or --bootstrap-server ADDRESS")
    if parsed.command_config is not None and parsed.bootstrap_server is None:
        parser.error("--command-config needs --bootstrap-server")
    security = security_options(parser, parsed.command_config)
    print_it = _print_json if parsed.json else _print_text
    if parsed.bootstrap_server is not None:
        from .producers_of_broker import Cannot, fetch_producers, fetched

        bootstrap, where = parsed.bootstrap_server, (parsed.topic, parsed.partition)
        try:
            known = fetched(bootstrap, security, lambda admin: fetch_producers(admin, bootstrap, *where))
        except Cannot as error:
            return complain(parser.prog, error)
        states = [_of_broker(*place, one) for place, found in known.items() for one in found]
        return printing(parser.prog, lambda write: print_it(states, write))
    try:
        found = find(parsed.directory, parsed.topic, parsed.partition)
    except StorageError as error:
        return complain(parser.prog, error)
    damage = (files.damage for files in found)
    return printing_of_logs(parser.prog, lambda write: print_it(_states(found), write), damage)


def _of_broker(topic: str, partition: int, one: ProducerState) -> State:
    numbers = one.producer_id, one.producer_epoch, one.last_sequence, -1, one.last_timestamp_ms
    return State(topic, partition, *numbers, one.coordinator_epoch, one.current_transaction_start_offset)


def _states(found: Sequence[PartitionFiles]) -> Iterator[State]:
    """Yields the producers of each partition, reading one partition after the other."""
    for files in found:
        known, _ = files.producers(ProducerRules())
        for producer_id, one in sorted(known.items()):
            last_offset = one.batches[-1].last_offset if one.batches else -1
            numbers = producer_id, one.epoch, one.last_sequence, last_offset, one.last_timestamp_ms
            place = files.folder.topic, files.folder.partition
            yield State(*place, *numbers, one.coordinator_epoch, one.transaction_first_offset)


def _print_text(states: Iterable[State], write: Write) -> None:
    rows = [_row(state) for state in states]
    for line in lines([HEAD, *rows]) if rows else ["no producers\n"]:
        write(line)


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


def _print_json(states: Iterable[State], write: Write) -> None:
    write(json.dumps({"producers": [state._asdict() for state in states]}, indent=2) + "\n")
