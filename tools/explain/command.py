"""`ottla explain`: what the producers of a partition wrote, what a broker would answer to their next batch, and why.

Owns the command: its flags, the one pass over the log, and what is judged by which rules; what became of transactions
is `transactions.py`'s. It takes no lock and writes nothing, so it works beside a running broker: what that
appends meanwhile is not seen. Memory grows with the producers of the partition, not with its batches. Exit code 0; 1,
with one line on stderr, if the log is damaged; 2 for a mistake.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator, Sequence

from ...broker.config.log_config import log_config
from ...broker.config.values import Config, TopicConfig
from ...broker.errors import ConfigError
from ...broker.releases.profiles import OWN, UnknownRelease, profile
from ...broker.replica import producer_answers
from ...broker.replica.producer_answers import EPOCH_MAX, Answer, Asked, Judge
from ...broker.replica.producer_history import History, Stretch, Written
from ...broker.replica.producer_log import LogBatch, PartitionFiles, find
from ...protocol.arguments import Parser, add_bootstrap
from ...protocol.limits import INT32_MAX, INT64_MAX
from ...protocol.mistakes import complain
from ...storage.errors import StorageError
from ...storage.inspect import partitions
from ...storage.producers.producer_state import (
    SEQUENCE_SPACE,
    Accept,
    CachedBatch,
    Producer,
    advance,
    forget_below,
    judge,
)
from ..command_line import FOUND_DAMAGE, number, printing
from ..disk.formats import topic_configs
from . import output
from .transactions import SeenFiles, explain_transactions

COUNT_MAX = 1 << 20  # of records in a batch: each takes seven bytes at least, and a batch is some megabytes


def explain(arguments: Sequence[str]) -> int:
    """`ottla explain`: the exit code."""
    parser = _parser()
    parsed = parser.parse_args(list(arguments))
    _check(parser, parsed)
    if parsed.transactions:
        return explain_transactions(parsed)
    try:
        config = Config.load(profile=profile(parsed.judge or OWN))
        (files,) = find(parsed.directory, parsed.topic, parsed.partition)
        explanation = Explanation(parsed, files, config, _topic_config(parsed, config))
    except (StorageError, UnknownRelease) as error:
        return complain(parser.prog, error)
    print_it = output.as_json if parsed.json else output.as_text
    code = printing(parser.prog, lambda write: print_it(explanation, write))
    if files.damage is not None and not code:
        complain(parser.prog, f"not read to its end: {files.damage}")
        return FOUND_DAMAGE
    return code


def _check(parser: Parser, parsed: Namespace) -> None:
    """Which flags go together."""
    if parsed.transactions:
        if (parsed.directory is None) is (parsed.bootstrap_server is None):
            parser.error("either DIR or --bootstrap-server ADDRESS is needed")
        if parsed.batches or (parsed.next_sequence, parsed.epoch, parsed.count, parsed.judge) != (None,) * 4:
            parser.error("of a next batch nothing can be asked with --transactions, nor --release or --batches")
        return
    if parsed.bootstrap_server is not None or parsed.transactional_id is not None:
        parser.error(
            "--bootstrap-server and --transactional-id need --transactions: a broker tells nothing of the batches"
        )
    missing = [
        name
        for name, given in (("DIR", parsed.directory), ("--topic", parsed.topic), ("--partition", parsed.partition))
        if given is None
    ]
    if missing:
        parser.error(f"the following arguments are required: {', '.join(missing)}")
    if parsed.next_sequence is not None and parsed.producer_id is None:
        parser.error("--next-sequence needs --producer-id")
    if parsed.next_sequence is None and (parsed.epoch, parsed.count) != (None, None):
        parser.error("--epoch and --count need --next-sequence")


def _parser() -> Parser:
    parser = Parser(
        prog="ottla explain",
        description=(
            "What the idempotent producers of a partition wrote, and what a broker would answer to them; or which"
            " transactions there are, and what holds back the readers of committed records."
        ),
        usage=(
            "%(prog)s [-h] --topic T --partition P [--producer-id N] [--next-sequence S [--epoch E] [--count C]]"
            " [--release X] [--batches] [--json] DIR\n"
            "       %(prog)s --transactions [--topic T] [--partition P] [--producer-id N] [--transactional-id ID]"
            " [--json] (DIR | --bootstrap-server ADDRESS)"
        ),
        allow_abbrev=False,
    )
    parser.add_argument("directory", metavar="DIR", nargs="?", help="a data directory of Ottla or of Apache Kafka")
    parser.add_argument("--topic", metavar="T")
    parser.add_argument("--partition", metavar="P", type=number("partition", INT32_MAX))
    parser.add_argument("--producer-id", metavar="N", type=number("producer id", INT64_MAX), help="of this one alone")
    sequence = number("sequence", SEQUENCE_SPACE - 1)
    parser.add_argument("--next-sequence", metavar="S", type=sequence, help="judge a batch that begins with this one")
    parser.add_argument("--epoch", metavar="E", type=number("epoch", EPOCH_MAX), help="its epoch (default: the known)")
    parser.add_argument("--count", metavar="C", type=number("count", COUNT_MAX), help="its records (default: 1)")
    parser.add_argument("--release", dest="judge", metavar="X", help="by the rules of this release")
    parser.add_argument("--transactions", action="store_true", help="show transactions instead, also of all partitions")
    parser.add_argument("--transactional-id", metavar="ID", help="of this one alone")
    add_bootstrap(parser, metavar="ADDRESS", help="ask this broker and the others of its cluster instead")
    parser.add_argument("--batches", action="store_true", help="a line for each batch, also for those in order")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser


def _topic_config(parsed: Namespace, config: Config) -> TopicConfig:
    """The topic's configs, as far as the directory tells them and the release knows them."""
    overrides = (topic_configs(partitions(parsed.directory)) or {}).get(parsed.topic, {})
    facts = config.facts("topic")
    try:
        return TopicConfig(config, {name: text for name, text in overrides.items() if name in facts})
    except ConfigError:  # set under another release, where it meant something else
        return TopicConfig(config)


class Explanation:
    """What is to be printed, found on the way: take all `stretches`, then ask for the rest.

    `known` is what a broker that has run since the log began knows of its producers; `from_snapshot` are those of which
    the log has nothing any more.
    """

    def __init__(self, parsed: Namespace, files: PartitionFiles, config: Config, topic: TopicConfig) -> None:
        wanted = log_config(topic, config)
        self.directory: str = parsed.directory
        self.files = files
        self.profile = config.profile
        self.rules = wanted.producer_rules
        self.knows_producers = config.profile.behaviour.newest_magic == 2
        self.producer_id: int | None = parsed.producer_id
        self.history = History(files.log_start_offset, only=self.producer_id, each_batch=parsed.batches)
        self.known: dict[int, Producer] = {}
        self.from_snapshot: set[int] = set()
        self._asked: Namespace = parsed
        self._magic = wanted.rules.target_magic
        self.transactions = SeenFiles(files, parsed.directory)
        """What became of transactions, of all producers."""
        self._copy: Written | None = None  # the newest batch of the log with the sequences that are asked for

    def stretches(self) -> Iterator[Stretch]:
        """Reads the log."""
        for found in self.files.batches():
            self.transactions.step(found)
            if found.header.producer_id >= 0 and self.producer_id in (None, found.header.producer_id):
                self._remember(found)
                if found.header.base_sequence == self._asked.next_sequence:
                    self._compare(found)
            yield from self.history.step(found)
        yield from self.history.finish()
        self.transactions.finish()
        forget_below(self.known, self.files.log_start_offset, self.rules)
        self._look_into_snapshot()

    def _remember(self, found: LogBatch) -> None:
        """As a broker that has run all the while: it remembers also what is below the log start now.

        A batch that it took although it does not fit to that tells that the producer had been forgotten meanwhile.
        """
        header = found.header
        known = self.known.get(header.producer_id)
        is_gone = known is not None and known.last_offset < self.files.log_start_offset and not header.is_control
        if is_gone and not isinstance(judge(known, header, self.rules), Accept):
            del self.known[header.producer_id]
        marker_epoch = found.marker.coordinator_epoch if found.marker else -1
        advance(self.known, header, 0, self.rules, marker_epoch)

    def _compare(self, found: LogBatch) -> None:
        header, asked = found.header, self._asked
        if header.last_offset_delta + 1 == (asked.count or 1) and asked.epoch in (None, header.producer_epoch):
            sequences, offsets = (header.base_sequence, header.last_sequence), (header.base_offset, header.last_offset)
            of = CachedBatch(*sequences, *offsets, header.max_timestamp)
            self._copy = Written(of, header.producer_epoch, found.log_position)

    def _look_into_snapshot(self) -> None:
        for offset, found in self.files.snapshots():
            if offset <= self.files.end_offset:
                forget_below(found, self.files.log_start_offset, self.rules)
                for producer_id in found.keys() - self.known.keys():
                    if self.producer_id in (None, producer_id):
                        self.known[producer_id] = found[producer_id]
                        self.from_snapshot.add(producer_id)
                return

    @property
    def explained(self) -> int | None:
        """The producer to whose batches answers are given: the one asked for, or the only one."""
        if self.producer_id is None and len(self.known) == 1:
            return next(iter(self.known))
        return self.producer_id

    def answers(self, producer_id: int) -> list[Answer]:
        """To the batch that is asked for, or to examples."""
        by = Judge(
            self.profile.name,
            self.rules,
            self._magic,
            self.knows_producers,
            self.files.log_start_offset,
            self.files.size_bytes,
        )
        known, history, asked = self.known.get(producer_id), self.history.producers.get(producer_id), self._asked
        if asked.next_sequence is not None:
            epoch = asked.epoch if asked.epoch is not None else known.epoch if known else 0
            copy = self._copy if self._copy is not None and self._copy.epoch == epoch else None
            in_one = known is not None and known.transaction_first_offset >= 0
            wanted = Asked("as asked", epoch, asked.next_sequence, asked.count or 1, in_one)
            return [producer_answers.answer(by, producer_id, known, wanted, copy)]
        recent = history.recent if history else []
        return [
            producer_answers.answer(by, producer_id, known, example, _copy_of(example, recent))
            for example in producer_answers.examples(known, recent, self.rules)
        ]


def _copy_of(asked: Asked, recent: Sequence[Written]) -> Written | None:
    """The newest batch with the same sequences and epoch."""
    wanted = (asked.epoch, asked.first_sequence, asked.last_sequence)
    same = [w for w in recent if (w.epoch, w.batch.first_sequence, w.batch.last_sequence) == wanted]
    return same[-1] if same else None
