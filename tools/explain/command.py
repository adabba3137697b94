"""`ottla explain`: what the producers of a partition wrote, what a broker would answer to their next batch, and why.

Owns the command: its flags, the one pass over the log, and what is judged by which rules; what became of transactions
is `transactions.py`'s. It takes no lock and writes nothing, so it works beside a running broker: what that
appends meanwhile is not seen. Memory grows with the producers of the partition, not with its batches. Exit code 0; 1,
with one line on stderr, if the log is damaged; 2 for a mistake.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence

from ...broker.config.values import Config, TopicConfig
from ...broker.errors import ConfigError
from ...broker.releases.profiles import OWN, UnknownRelease, profile
from ...broker.replica.producer_answers import EPOCH_MAX
from ...broker.replica.producer_log import find
from ...protocol.arguments import Parser, add_bootstrap
from ...protocol.limits import INT32_MAX, INT64_MAX
from ...protocol.mistakes import complain
from ...storage.errors import StorageError
from ...storage.inspect import partitions
from ...storage.producers.producer_state import SEQUENCE_SPACE
from ..command_line import FOUND_DAMAGE, number, printing
from ..disk.formats import topic_configs
from . import output
from .explanation import Explanation
from .transactions_command import explain_transactions

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
