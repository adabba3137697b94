"""`ottla ctl`: a command-line client of the control plane of a running broker.

Owns the command line. It needs the standard library alone. Exit codes: 0; 1 with one line on stderr if there is no
control plane at the address, if it failed, or if `requests assert` found a mismatch; 2 with one line for wrong
arguments and for a request that is not possible in the broker's state.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...broker import json_bytes
from ...protocol.arguments import Parser
from ...protocol.mistakes import FAILED, complain
from ...protocol.text import cell, duration_ms, time_ms
from ..command_line import printing
from ..control_flags import VARIABLE, add_control_flags
from ..http_client import Client, Unreachable, Wrong, control_client
from ..top.plain import overview
from . import administration, log_levels, output, recording, requests
from .faults import add_fault_arguments, rule_of

TIMEOUT_SECONDS = 600.0  # a snapshot copies the data directory, which may take minutes

Call = Callable[[Client, argparse.Namespace], Any]
Show = Callable[[Any], Sequence[str]]


def ctl(arguments: Sequence[str], environ: Mapping[str, str] | None = None) -> int:
    """`ottla ctl`: runs one subcommand and returns the exit code."""
    parser = ctl_parser()
    parsed = parser.parse_args(list(arguments))
    try:
        client = control_client(parsed, os.environ if environ is None else environ, parsed.timeout)
        if client is None:
            parser.error(f"no address of a control plane: give --control http://HOST:PORT, or set {VARIABLE}")
        response = parsed.call(client, parsed)
        text = (
            json.dumps(response, indent=2, ensure_ascii=False) if parsed.json else _shown(client, parsed.show, response)
        )
    except Wrong as error:
        return complain(parser.prog, error)
    except Unreachable as error:
        complain(parser.prog, error)
        return FAILED

    def write_it(write: Callable[[str], object]) -> int:
        write(text if text.endswith("\n") else text + "\n")
        failed = getattr(parsed, "failed", None)
        return FAILED if failed is not None and failed(response) else 0

    return printing(parser.prog, write_it)


def _shown(client: Client, show: Show, response: Any) -> str:
    try:
        return "".join(line if line.endswith("\n") else line + "\n" for line in show(response))
    except (AttributeError, LookupError, TypeError, ValueError) as error:  # the response of another server or version
        raise Unreachable(client.strange()) from error


def ctl_parser() -> argparse.ArgumentParser:
    """Returns the argument parser of `ottla ctl`: RESOURCE VERB ARGUMENTS."""
    parser = Parser(
        prog="ottla ctl",
        description="Control a broker that runs with --control.",
        allow_abbrev=False,
    )
    add_control_flags(parser)
    parser.add_argument(
        "--timeout", type=_seconds, default=TIMEOUT_SECONDS, metavar="SECONDS", help="timeout of a request"
    )
    parser.add_argument("--json", action="store_true", help="print the response as JSON")
    resources = parser.add_subparsers(metavar="RESOURCE", required=True, dest="resource")
    for add in (
        _health,
        _overview,
        _faults,
        _topology,
        _clock,
        _state,
        _snapshots,
        _topics,
        _records,
        _groups,
        _configs,
        _acls,
        _producers,
        _logs,
        _requests,
        _recording,
    ):
        add(resources)
    return parser


class _Verbs:
    """The subcommands of one resource."""

    def __init__(self, resources: Any, name: str, text: str) -> None:
        self._parser: argparse.ArgumentParser = resources.add_parser(name, help=text, description=text)
        self._verbs: Any = None
        self._json(self._parser)

    @staticmethod
    def _json(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help=argparse.SUPPRESS)

    def alone(self, call: Call, show: Show) -> argparse.ArgumentParser:
        """Sets what the resource without a verb does."""
        self._parser.set_defaults(call=call, show=show)
        return self._parser

    def verb(self, name: str, text: str, call: Call, show: Show) -> argparse.ArgumentParser:
        """Adds a subcommand. One is required unless `alone` was called before."""
        if self._verbs is None:
            needed = self._parser.get_default("call") is None
            self._verbs = self._parser.add_subparsers(metavar="VERB", dest="verb", required=needed)
        found: argparse.ArgumentParser = self._verbs.add_parser(name, help=text, description=text)
        found.set_defaults(call=call, show=show)
        self._json(found)
        return found


def _health(resources: Any) -> None:
    verbs = _Verbs(resources, "health", "state, release and addresses of the broker")
    verbs.alone(lambda to, given: to.request("GET", "health"), output.health)


def _overview(resources: Any) -> None:
    verbs = _Verbs(resources, "overview", "topics, groups, producers, clients and slow requests at a glance")

    def look(to: Client, given: argparse.Namespace) -> Any:
        return to.request("GET", "overview", query={"contains": given.filter, "limit": given.limit})

    alone = verbs.alone(look, overview)
    alone.add_argument("--filter", metavar="TEXT", help="only items whose name contains this")
    alone.add_argument("--limit", type=_whole, metavar="N", help="maximum lines of each list")


def _faults(resources: Any) -> None:
    verbs = _Verbs(resources, "faults", "rules of fault injection")
    verbs.alone(lambda to, given: to.request("GET", "faults"), output.faults)
    verbs.verb("list", "list the fault rules", lambda to, given: to.request("GET", "faults"), output.faults)
    add = verbs.verb(
        "add", "add a fault rule", lambda to, given: to.request("POST", "faults", body=rule_of(given)), output.one_fault
    )
    add_fault_arguments(add)
    show = verbs.verb("show", "show a rule", lambda to, given: to.request("GET", "faults", given.id), output.one_fault)
    show.add_argument("id", type=_whole, metavar="ID")
    remove = verbs.verb(
        "remove", "remove a rule", lambda to, given: to.request("DELETE", "faults", given.id), output.removed
    )
    remove.add_argument("id", type=_whole, metavar="ID")
    verbs.verb("clear", "remove all rules", lambda to, given: to.request("DELETE", "faults"), output.removed)


def _topology(resources: Any) -> None:
    verbs = _Verbs(resources, "topology", "nodes, and the leaders of partitions")
    verbs.alone(lambda to, given: to.request("GET", "topology"), output.topology)

    def leaders(to: Client, given: argparse.Namespace) -> Any:
        body = {"topic": given.topic, "partition": given.partition, "node": given.node}
        return to.request("POST", "topology", "leaders", body=body)

    move = verbs.verb("move", "move the leadership of a partition to another node", leaders, output.topology)
    _partition(move)
    move.add_argument("node", type=_whole, metavar="NODE")
    for name, is_offline, text in (
        ("offline", True, "take a partition offline: it has no leader"),
        ("online", False, "bring it online again"),
    ):

        def offline(to: Client, given: argparse.Namespace, is_offline: bool = is_offline) -> Any:
            body = {"topic": given.topic, "partition": given.partition, "offline": is_offline}
            return to.request("POST", "topology", "offline", body=body)

        _partition(verbs.verb(name, text, offline, output.topology))
    for name, is_running, text in (("stop", False, "stop a node"), ("start", True, "start it again")):

        def node(to: Client, given: argparse.Namespace, is_running: bool = is_running) -> Any:
            return to.request("POST", "topology", "nodes", given.node, body={"running": is_running})

        verbs.verb(name, text, node, output.topology).add_argument("node", type=_whole, metavar="NODE")
    verbs.verb(
        "spread",
        "move each partition to its preferred leader",
        lambda to, given: to.request("POST", "topology", "spread", body={}),
        output.topology,
    )


def _partition(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("topic", metavar="TOPIC")
    parser.add_argument("partition", type=_whole, metavar="PARTITION")


def _clock(resources: Any) -> None:
    verbs = _Verbs(resources, "clock", "the broker's time")
    verbs.alone(lambda to, given: to.request("GET", "clock"), output.clock)
    for name, text in (("freeze", "stop the clock"), ("run", "let the clock run again")):
        verbs.verb(name, text, lambda to, given: to.request("POST", "clock", given.verb, body={}), output.clock)
    change = verbs.verb(
        "set",
        "set the time",
        lambda to, given: to.request("POST", "clock", "set", body={"ms": given.time}),
        output.clock,
    )
    change.add_argument("time", type=_typed(time_ms), metavar="TIME", help="2026-01-31T12:00:00Z, or milliseconds")

    def advance(to: Client, given: argparse.Namespace) -> Any:
        return to.request("POST", "clock", "advance", body={"ms": given.duration, "keep_members": given.keep_members})

    forward = verbs.verb(
        "advance", "move the clock forward; returns when all work that became due is done", advance, output.clock
    )
    forward.add_argument("duration", type=_typed(duration_ms), metavar="DURATION", help="7d, 45s, 500ms, 1h30m")
    forward.add_argument("--keep-members", action="store_true", help="group members do not expire")


def _state(resources: Any) -> None:
    verbs = _Verbs(resources, "state", "the state of the broker: topics, records, groups, transactions")
    verbs.verb(
        "reset",
        "reset the broker to its state at the start",
        lambda to, given: to.request("POST", "state", "reset", body={}),
        lambda response: ["reset"],
    )


def _snapshots(resources: Any) -> None:
    verbs = _Verbs(resources, "snapshots", "snapshots of the broker's state")
    verbs.alone(lambda to, given: to.request("GET", "snapshots"), output.snapshots)
    take = verbs.verb(
        "take",
        "take a snapshot",
        lambda to, given: to.request("POST", "snapshots", body={} if given.name is None else {"name": given.name}),
        lambda response: [cell(response["name"])],
    )
    take.add_argument("name", nargs="?", metavar="NAME")
    restore = verbs.verb(
        "restore",
        "restore a snapshot",
        lambda to, given: to.request("POST", "snapshots", given.name, "restore", body={}),
        lambda response: ["restored"],
    )
    restore.add_argument("name", metavar="NAME")
    remove = verbs.verb(
        "remove", "remove a snapshot", lambda to, given: to.request("DELETE", "snapshots", given.name), output.removed
    )
    remove.add_argument("name", metavar="NAME")


def _topics(resources: Any) -> None:
    verbs = _Verbs(resources, "topics", "topics and their partitions")
    verbs.alone(lambda to, given: to.request("GET", "topics"), output.topics)

    def create(to: Client, given: argparse.Namespace) -> Any:
        body: dict[str, Any] = {"partitions": given.partitions, "configs": dict(given.config)}
        return to.request("POST", "topics", body=body if given.name is None else body | {"name": given.name})

    make = verbs.verb("create", "create a topic", create, output.one_topic)
    make.add_argument("name", nargs="?", metavar="NAME", help="default: a new unique name")
    make.add_argument("--partitions", type=_whole, default=1, metavar="N")
    make.add_argument("--config", type=_pair, action="append", default=[], metavar="KEY=VALUE", help="may repeat")
    show = verbs.verb(
        "show", "show a topic", lambda to, given: to.request("GET", "topics", given.name), output.one_topic
    )
    show.add_argument("name", metavar="NAME")
    remove = verbs.verb(
        "delete", "delete a topic", lambda to, given: to.request("DELETE", "topics", given.name), output.removed
    )
    remove.add_argument("name", metavar="NAME")


def _records(resources: Any) -> None:
    verbs = _Verbs(resources, "records", "records of topics")

    def read(to: Client, given: argparse.Namespace) -> Any:
        query = {"partition": given.partition, "offset": given.offset, "limit": given.limit}
        return to.request("GET", "topics", given.topic, "records", query=query)

    show = verbs.verb("list", "list committed records by partition and offset", read, output.records)
    show.add_argument("topic", metavar="TOPIC")
    show.add_argument("--partition", type=_whole, metavar="P")
    show.add_argument("--offset", type=_whole, metavar="N", help="first offset in each partition")
    show.add_argument("--limit", type=_whole, metavar="N", help="maximum number of records")

    def write(to: Client, given: argparse.Namespace) -> Any:
        common: dict[str, Any] = {"headers": [{"name": name, "value": _bytes(text)} for name, text in given.header]}
        common |= {} if given.key is None else {"key": _bytes(given.key)}
        common |= {} if given.partition is None else {"partition": given.partition}
        body = {"records": [{"value": _bytes(text), **common} for text in given.value]}
        return to.request("POST", "topics", given.topic, "records", body=body)

    send = verbs.verb("send", "append records", write, output.offsets)
    send.add_argument("topic", metavar="TOPIC")
    send.add_argument("value", nargs="+", metavar="VALUE")
    send.add_argument("--key", metavar="KEY")
    send.add_argument("--header", type=_pair, action="append", default=[], metavar="NAME=VALUE", help="may repeat")
    send.add_argument("--partition", type=_whole, metavar="P")


def _groups(resources: Any) -> None:
    verbs = _Verbs(resources, "groups", "consumer groups, with members and lag")
    verbs.alone(lambda to, given: to.request("GET", "groups"), output.groups)
    show = verbs.verb("show", "show a group", lambda to, given: to.request("GET", "groups", given.id), output.one_group)
    show.add_argument("id", metavar="ID")
    remove = verbs.verb(
        "delete",
        "delete a group with its offsets",
        lambda to, given: to.request("DELETE", "groups", given.id),
        output.removed,
    )
    remove.add_argument("id", metavar="ID")
    reset = verbs.verb(
        "reset", "set the committed offsets of a group without members", administration.reset, administration.show_reset
    )
    reset.add_argument("id", metavar="ID")
    to = reset.add_mutually_exclusive_group(required=True)
    for name, text in (("earliest", "log start"), ("latest", "log end"), ("current", "committed offsets")):
        to.add_argument(f"--to-{name}", dest="to", action="store_const", const=name, help=f"to the {text}")
    to.add_argument("--to-offset", type=_whole, metavar="N")
    to.add_argument("--shift-by", type=int, metavar="N", help="relative to the committed offset; may be negative")
    to.add_argument("--to-time", type=_typed(time_ms), metavar="TIME", help="2026-01-31T12:00:00Z, or milliseconds")
    reset.add_argument(
        "--topic",
        action="append",
        metavar="TOPIC[:P,P]",
        help="these partitions, also without a committed offset; may repeat (default: all with a committed offset)",
    )
    reset.add_argument("--dry-run", action="store_true", help="show the new offsets without setting them")


def _configs(resources: Any) -> None:
    verbs = _Verbs(resources, "configs", "configs of the broker or of a topic")
    show = verbs.verb("show", "show values and their sources", administration.configs, administration.shown)
    show.add_argument("--topic", metavar="TOPIC", help="a topic's configs instead of the broker's")
    show.add_argument("--all", action="store_true", help="also show defaults")
    change = verbs.verb(
        "change", "change configs: all of them, or none if one is refused", administration.change, administration.shown
    )
    change.add_argument("--topic", metavar="TOPIC", help="a topic's configs instead of the broker's")
    change.add_argument("value", nargs="*", type=_pair, metavar="NAME=VALUE", help="a new value")
    for name, text in (("append", "add elements to a list"), ("subtract", "remove elements from a list")):
        change.add_argument(f"--{name}", action="append", default=[], type=_pair, metavar="NAME=VALUE", help=text)
    change.add_argument("--delete", action="append", default=[], metavar="NAME", help="remove a value; may repeat")
    change.add_argument(
        "--for-all", action="store_true", help="set the cluster-wide default instead of this broker's value"
    )
    change.add_argument("--dry-run", action="store_true", help="check the values without changing them")
    change.set_defaults(all=False)


def _acls(resources: Any) -> None:
    verbs = _Verbs(resources, "acls", "access control lists")
    listed = verbs.verb("list", "list the matching entries", administration.acls, administration.show_acls)
    added = verbs.verb("add", "add an entry", administration.add_acl, lambda _: ["added"])
    removed = verbs.verb("remove", "remove the matching entries", administration.remove_acls, output.removed)
    for verb in (listed, added, removed):
        administration.add_acl_words(verb, is_filter=verb is not added)


def _producers(resources: Any) -> None:
    verbs = _Verbs(resources, "producers", "producer state of partitions")
    alone = verbs.alone(
        lambda to, given: to.request("GET", "producers", query={"topic": given.topic}), output.producers
    )
    alone.add_argument("--topic", metavar="T", help="only this topic")


def _logs(resources: Any) -> None:
    verbs = _Verbs(resources, "log-levels", "log levels of the broker's loggers")
    verbs.alone(log_levels.get, log_levels.shown)
    change = verbs.verb("set", "set levels", log_levels.set, log_levels.shown)
    change.add_argument("level", nargs="+", metavar="[LOGGER=]LEVEL", help="without a logger: the root's level")
    back = verbs.verb(
        "reset", "remove the levels of loggers, which then inherit one", log_levels.reset, log_levels.shown
    )
    back.add_argument("logger", nargs="+", metavar="LOGGER")


def _requests(resources: Any) -> None:
    verbs = _Verbs(resources, "requests", "requests of clients, with their outcomes")
    verbs.alone(requests.listed, requests.show_listed)
    newest = verbs.verb("list", "list the newest requests", requests.listed, requests.show_listed)
    requests.add_words(newest, counts=False)
    newest.add_argument("--limit", type=_whole, metavar="N", help="maximum number of requests")
    show = verbs.verb("show", "show a request with its fields and bytes", requests.one, requests.show_one)
    show.add_argument("number", type=_whole, metavar="NUMBER")
    verbs.verb("clear", "clear the list", requests.cleared, output.removed)
    expect = verbs.verb(
        "assert", "exit with 1 unless the requests are as expected", requests.asserted, requests.show_verdict
    )
    requests.add_words(expect, counts=True)
    expect.set_defaults(failed=requests.failed)


def _recording(resources: Any) -> None:
    verbs = _Verbs(resources, "recording", "recording of requests and responses to a file")
    verbs.alone(recording.get, recording.shown)
    begin = verbs.verb("start", "start a recording", recording.start, recording.shown)
    begin.add_argument("file", metavar="FILE", help="FILE.jsonl or FILE.pcapng, on the broker's machine")
    begin.add_argument("--max-bytes", type=_whole, metavar="N", help="maximum size of the recording")
    begin.add_argument(
        "--ring", action="store_true", help="at the maximum size keep the newest requests, in FILE and FILE.1"
    )
    begin.add_argument("--without-contents", action="store_true", help="omit keys and values of records")
    verbs.verb("stop", "stop the recording", recording.stop, recording.shown)


def _bytes(text: str) -> Any:
    """Returns an argument's original bytes as JSON, also if they are not UTF-8."""
    return json_bytes.to_json(os.fsencode(text))


def _typed(read: Callable[[str], int]) -> Callable[[str], int]:
    """Wraps a parser for argparse, which shows only the text of its own error class."""

    def reading(text: str) -> int:
        try:
            return read(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from error

    return reading


def _whole(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number")
    return int(text)


def _seconds(text: str) -> float:
    value = float(text) if text.isascii() and text.replace(".", "", 1).isdigit() and len(text) < 10 else 0.0
    if not value > 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive number of seconds")
    return value


def _pair(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not separator:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return name, value
