"""`ottla explain`: the history of a partition's producers, and the response of a broker to their next batch.

Owns the command line. It takes no lock and writes nothing, so it works
while a broker runs; batches appended meanwhile are not read. Memory use grows with the producers of the partition, not
with its batches. Exit code 0; 1 with one line on stderr if the log is damaged; 2 for wrong arguments.
"""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Sequence

from ...broker.config.values import Config, TopicConfig
from ...broker.errors import ConfigError
from ...broker.releases.profiles import OWN, UnknownRelease, profile
from ...broker.replica.producer_answers import EPOCH_MAX
from ...broker.replica.producer_log import find
from ...protocol.arguments import Parser, add_bootstrap, add_command_config
from ...protocol.internal_records.metadata_values import topic_configs
from ...protocol.limits import INT32_MAX, INT64_MAX
from ...protocol.mistakes import complain
from ...storage.errors import StorageError
from ...storage.log_dir import metadata_log
from ...storage.producers.producer_state import SEQUENCE_SPACE
from ..command_line import number, printing_of_logs, security_options
from ..control_flags import add_access_flags
from . import output, transactions_output
from .explanation import Explanation
from .transactions import Report, SeenFiles, read_directory

PROGRAM = "ottla explain"
COUNT_MAX = 1 << 20  # records in a batch: each has at least seven bytes, and a batch some megabytes


def explain(arguments: Sequence[str]) -> int:
    parser = _parser()
    parsed = parser.parse_args(list(arguments))
    _check(parser, parsed)
    parsed.security = security_options(parser, parsed.command_config)
    if parsed.transactions:
        return _explain_transactions(parsed)
    if parsed.group is not None:
        from .groups_command import explain_group  # the analysis of a directory does not import the client

        return explain_group(parsed)
    try:
        config = Config.load(profile=profile(parsed.judge or OWN))
        (files,) = find(parsed.directory, parsed.topic, parsed.partition)
        explanation = Explanation(parsed, files, config, _topic_config(parsed, config))
    except (StorageError, UnknownRelease) as error:
        return complain(PROGRAM, error)
    print_it = output.as_json if parsed.json else output.as_text
    return printing_of_logs(PROGRAM, lambda write: print_it(explanation, write), (one.damage for one in [files]))


def _explain_transactions(arguments: Namespace) -> int:
    """Prints the transactions of a data directory or of a cluster, and returns the exit code."""
    if arguments.bootstrap_server is not None:
        from .transactions_of_broker import Cannot, fetch_transactions

        try:
            seen, coordinators = fetch_transactions(arguments)
        except Cannot as error:
            return complain(PROGRAM, error)
        report = Report({"bootstrap": arguments.bootstrap_server}, seen, coordinators, arguments)
    else:
        try:
            coordinators = read_directory(arguments.directory)
            found = find(arguments.directory, arguments.topic, arguments.partition)
        except StorageError as error:
            return complain(PROGRAM, error)
        seen = [SeenFiles(files, arguments.directory, coordinators) for files in found]
        report = Report({"directory": os.path.abspath(arguments.directory)}, seen, coordinators, arguments)
    print_it = transactions_output.as_json if arguments.json else transactions_output.as_text
    return printing_of_logs(PROGRAM, lambda write: print_it(report, write), (one.damage for one in seen))


def _check(parser: Parser, parsed: Namespace) -> None:
    if parsed.command_config is not None and parsed.bootstrap_server is None:
        parser.error("--command-config needs --bootstrap-server")
    if parsed.group is not None:
        _check_group(parser, parsed)
        return
    if (parsed.member, parsed.offset, parsed.control, parsed.control_token_file, parsed.control_ca) != (None,) * 5:
        parser.error("--member, --offset and --control need --group")
    if parsed.transactions:
        if (parsed.directory is None) is (parsed.bootstrap_server is None):
            parser.error("expected either DIR or --bootstrap-server ADDRESS")
        if parsed.batches or (parsed.next_sequence, parsed.epoch, parsed.count, parsed.judge) != (None,) * 4:
            flags = "--next-sequence, --epoch, --count, --release or --batches"
            parser.error(f"--transactions cannot be combined with {flags}")
        return
    if parsed.bootstrap_server is not None or parsed.transactional_id is not None:
        parser.error(
            "--bootstrap-server and --transactional-id need --transactions: batches are read from a data directory"
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


def _check_group(parser: Parser, parsed: Namespace) -> None:
    others = parsed.directory, parsed.producer_id, parsed.transactional_id, parsed.next_sequence, parsed.epoch
    if parsed.transactions or parsed.batches or (*others, parsed.count, parsed.judge) != (None,) * 7:
        parser.error("--group can only be combined with --member, or --topic, --partition and --offset")
    place = parsed.topic, parsed.partition, parsed.offset
    if place == (None,) * 3:
        if parsed.bootstrap_server is None or parsed.control is not None:
            parser.error("--group needs --bootstrap-server: its members are described by the cluster")
        return
    if None in place or parsed.member is not None:
        parser.error("expected --topic, --partition and --offset with --group, without --member")
    if parsed.control is None or parsed.bootstrap_server is not None:
        parser.error("--offset needs --control: Kafka's protocol does not have the deliveries of a record")


def _parser() -> Parser:
    parser = Parser(
        prog=PROGRAM,
        description=(
            "Show what the idempotent producers of a partition wrote and how a broker responds to their next batch; or"
            " list transactions, and those that hold back the last stable offset; or show why members of a group have"
            " no partitions, or why a record was delivered again to a share group."
        ),
        usage=(
            "%(prog)s [-h] --topic T --partition P [--producer-id N] [--next-sequence S [--epoch E] [--count C]]"
            " [--release X] [--batches] [--json] DIR\n"
            "       %(prog)s --transactions [--topic T] [--partition P] [--producer-id N] [--transactional-id ID]"
            " [--json] (DIR | --bootstrap-server ADDRESS [--command-config FILE])\n"
            "       %(prog)s --group G [--member M] [--json] --bootstrap-server ADDRESS [--command-config FILE]\n"
            "       %(prog)s --group G --topic T --partition P --offset N [--json] --control URL"
            " [--control-token-file FILE] [--control-ca FILE]"
        ),
        allow_abbrev=False,
    )
    parser.add_argument("directory", metavar="DIR", nargs="?", help="a data directory of Ottla or of Apache Kafka")
    parser.add_argument("--topic", metavar="T")
    parser.add_argument("--partition", metavar="P", type=number(INT32_MAX))
    parser.add_argument("--producer-id", metavar="N", type=number(INT64_MAX), help="only this producer")
    sequence = number(SEQUENCE_SPACE - 1)
    parser.add_argument("--next-sequence", metavar="S", type=sequence, help="a batch with this first sequence")
    parser.add_argument("--epoch", metavar="E", type=number(EPOCH_MAX), help="its epoch (default: the newest)")
    parser.add_argument("--count", metavar="C", type=number(COUNT_MAX), help="its number of records (default: 1)")
    parser.add_argument("--release", dest="judge", metavar="X", help="apply the rules of this release")
    parser.add_argument("--transactions", action="store_true", help="show transactions, by default of all partitions")
    parser.add_argument("--transactional-id", metavar="ID", help="only this transactional id")
    add_bootstrap(parser, metavar="ADDRESS", help="query the cluster of this broker instead")
    add_command_config(parser)
    parser.add_argument("--group", metavar="G", help="explain the members of a group, or a delivery to a share group")
    parser.add_argument("--member", metavar="M", help="only this member")
    parser.add_argument("--offset", metavar="N", type=number(INT64_MAX), help="a record of a share group")
    parser.add_argument("--control", metavar="URL", help="address of the control plane, for --offset")
    add_access_flags(parser)
    parser.add_argument("--batches", action="store_true", help="a line for each batch, also for consecutive ones")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser


def _topic_config(parsed: Namespace, config: Config) -> TopicConfig:
    """Returns the topic's configs from the directory's metadata log, without those that the release does not have."""
    overrides = (topic_configs(metadata_log.values(parsed.directory)) or {}).get(parsed.topic, {})
    facts = config.facts("topic")
    try:
        return TopicConfig(config, {name: text for name, text in overrides.items() if name in facts})
    except ConfigError:  # a value that only another release accepts
        return TopicConfig(config)
