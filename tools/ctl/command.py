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
from ..command_line import print_text, seconds
from ..control_flags import add_control_flags
from ..http_client import Client, Unreachable, Wrong, control_client
from ..top.tables import overview
from . import administration, output, requests
from .faults import add_fault_arguments, rule_of

TIMEOUT_SECONDS = 600.0  # a snapshot copies the data directory, which may take minutes

Values = Callable[[argparse.Namespace], Any]
Call = Callable[[Client, argparse.Namespace], Any]
Show = Callable[[Any], Sequence[str]]


def ctl(arguments: Sequence[str], environ: Mapping[str, str] | None = None) -> int:
    """`ottla ctl`: runs one subcommand and returns the exit code."""
    parser = ctl_parser()
    parsed = parser.parse_args(list(arguments))
    try:
        client = control_client(parsed, os.environ if environ is None else environ, parsed.timeout)
        try:
            response = parsed.call(client, parsed)
            lines = [json.dumps(response, indent=2, ensure_ascii=False)] if parsed.json else parsed.show(response)
            code = FAILED if parsed.call is requests.asserted and not response["passed"] else 0
        except (AttributeError, LookupError, TypeError, ValueError) as error:  # from another server or version
            raise Unreachable(client.strange()) from error
    except Wrong as error:
        return complain(parser.prog, error)
    except Unreachable as error:
        return complain(parser.prog, error, FAILED)
    return print_text(parser.prog, "".join(line.removesuffix("\n") + "\n" for line in lines), code)


def ctl_parser() -> argparse.ArgumentParser:
    """Returns the argument parser of `ottla ctl`: RESOURCE VERB ARGUMENTS."""
    parser = Parser(prog="ottla ctl", description="Control a broker that runs with --control.", allow_abbrev=False)
    anywhere = _Repeated(add_help=False)
    limit = seconds(0.001, 999_999_999)
    for one in (parser, anywhere):
        add_control_flags(one)
        one.add_argument(
            "--timeout", type=limit, default=TIMEOUT_SECONDS, metavar="SECONDS", help="timeout of a request"
        )
        one.add_argument("--json", action="store_true", help="print the response as JSON")
    resources = parser.add_subparsers(metavar="RESOURCE", required=True, dest="resource")
    for name, (text, add) in _RESOURCES.items():
        add(_Verbs(resources, name, text, anywhere))
    return parser


class _Repeated(Parser):
    """The flags of `ottla ctl` once more, for its subcommands: without defaults, which would replace what was given
    before the subcommand, and without help, which `ottla ctl --help` has.
    """

    def add_argument(self, *args: Any, **kwargs: Any) -> argparse.Action:
        return super().add_argument(*args, **kwargs | {"default": argparse.SUPPRESS, "help": argparse.SUPPRESS})


class _Verbs:
    """The subcommands of one resource. The flags of `anywhere` may follow each of them."""

    def __init__(self, resources: Any, name: str, text: str, anywhere: argparse.ArgumentParser) -> None:
        self._parents = [anywhere]
        self._parser: argparse.ArgumentParser = resources.add_parser(
            name, help=text, description=text, parents=self._parents
        )
        self._verbs: Any = None

    def alone(self, call: Call, show: Show) -> argparse.ArgumentParser:
        """Sets what the resource without a verb does."""
        self._parser.set_defaults(call=call, show=show)
        return self._parser

    def verb(
        self, verb: str, text: str, call: Call, show: Show, /, **arguments: Callable[[str], Any]
    ) -> argparse.ArgumentParser:
        """Adds a subcommand with these required arguments: name -> parser. One is required unless `alone` was called
        before."""
        if self._verbs is None:
            needed = self._parser.get_default("call") is None
            self._verbs = self._parser.add_subparsers(metavar="VERB", dest="verb", required=needed)
        found: argparse.ArgumentParser = self._verbs.add_parser(
            verb, help=text, description=text, parents=self._parents
        )
        found.set_defaults(call=call, show=show)
        for name, read in arguments.items():
            found.add_argument(name, type=read, metavar=name.upper())
        return found


def _send(method: str, *path: str, body: dict[str, Any] | Values | None = None, query: Values | None = None) -> Call:
    """Returns the call of a path, where `{NAME}` is the argument NAME. `body` may be a function of the arguments."""

    def call(to: Client, given: argparse.Namespace) -> Any:
        parts = [getattr(given, part[1:-1]) if part.startswith("{") else part for part in path]
        sent = body(given) if callable(body) else body
        return to.request(method, *parts, body=sent, query=None if query is None else query(given))

    return call


def _health(verbs: _Verbs) -> None:
    verbs.alone(_send("GET", "health"), output.health)


def _overview(verbs: _Verbs) -> None:
    look = _send("GET", "overview", query=lambda given: {"contains": given.filter, "limit": given.limit})
    alone = verbs.alone(look, overview)
    alone.add_argument("--filter", metavar="TEXT", help="only items whose name contains this")
    alone.add_argument("--limit", type=_whole, metavar="N", help="maximum lines of each list")


def _faults(verbs: _Verbs) -> None:
    verbs.alone(_send("GET", "faults"), output.faults)
    verbs.verb("list", "list the fault rules", _send("GET", "faults"), output.faults)
    add = verbs.verb("add", "add a fault rule", _send("POST", "faults", body=rule_of), output.one_fault)
    add_fault_arguments(add)
    verbs.verb("show", "show a rule", _send("GET", "faults", "{id}"), output.one_fault, id=_whole)
    verbs.verb("remove", "remove a rule", _send("DELETE", "faults", "{id}"), output.removed, id=_whole)
    verbs.verb("clear", "remove all rules", _send("DELETE", "faults"), output.removed)


def _topology(verbs: _Verbs) -> None:
    verbs.alone(_send("GET", "topology"), output.topology)

    def leader(given: argparse.Namespace) -> Any:
        return {"topic": given.topic, "partition": given.partition, "node": given.node}

    def offline(given: argparse.Namespace) -> Any:
        return {"topic": given.topic, "partition": given.partition, "offline": given.verb == "offline"}

    verbs.verb(
        "move",
        "move the leadership of a partition to another node",
        _send("POST", "topology", "leaders", body=leader),
        output.topology,
        topic=str,
        partition=_whole,
        node=_whole,
    )
    for name, text in (
        ("offline", "take a partition offline: it has no leader"),
        ("online", "bring it online again"),
    ):
        change = _send("POST", "topology", "offline", body=offline)
        verbs.verb(name, text, change, output.topology, topic=str, partition=_whole)
    for name, text in (("stop", "stop a node"), ("start", "start it again")):
        change = _send("POST", "topology", "nodes", "{node}", body=lambda given: {"running": given.verb == "start"})
        verbs.verb(name, text, change, output.topology, node=_whole)
    spread = _send("POST", "topology", "spread", body={})
    verbs.verb("spread", "move each partition to its preferred leader", spread, output.topology)


def _clock(verbs: _Verbs) -> None:
    verbs.alone(_send("GET", "clock"), output.clock)
    for name, text in (("freeze", "stop the clock"), ("run", "let the clock run again")):
        verbs.verb(name, text, _send("POST", "clock", name, body={}), output.clock)
    change = verbs.verb(
        "set", "set the time", _send("POST", "clock", "set", body=lambda given: {"ms": given.time}), output.clock
    )
    change.add_argument("time", type=_typed(time_ms), metavar="TIME", help="2026-01-31T12:00:00Z, or milliseconds")

    def advance(given: argparse.Namespace) -> Any:
        return {"ms": given.duration, "keep_members": given.keep_members}

    forward = verbs.verb(
        "advance",
        "move the clock forward; returns when all work that became due is done",
        _send("POST", "clock", "advance", body=advance),
        output.clock,
    )
    forward.add_argument("duration", type=_typed(duration_ms), metavar="DURATION", help="7d, 45s, 500ms, 1h30m")
    forward.add_argument("--keep-members", action="store_true", help="group members do not expire")


def _state(verbs: _Verbs) -> None:
    reset = _send("POST", "state", "reset", body={})
    verbs.verb("reset", "reset the broker to its state at the start", reset, lambda response: ["reset"])


def _snapshots(verbs: _Verbs) -> None:
    verbs.alone(_send("GET", "snapshots"), output.snapshots)
    take = verbs.verb(
        "take",
        "take a snapshot",
        _send("POST", "snapshots", body=lambda given: {} if given.name is None else {"name": given.name}),
        lambda response: [cell(response["name"])],
    )
    take.add_argument("name", nargs="?", metavar="NAME")
    restore = _send("POST", "snapshots", "{name}", "restore", body={})
    verbs.verb("restore", "restore a snapshot", restore, lambda response: ["restored"], name=str)
    verbs.verb("remove", "remove a snapshot", _send("DELETE", "snapshots", "{name}"), output.removed, name=str)


def _topics(verbs: _Verbs) -> None:
    verbs.alone(_send("GET", "topics"), output.topics)

    def created(given: argparse.Namespace) -> Any:
        body: dict[str, Any] = {"partitions": given.partitions, "configs": dict(given.config)}
        return body if given.name is None else body | {"name": given.name}

    make = verbs.verb("create", "create a topic", _send("POST", "topics", body=created), output.one_topic)
    make.add_argument("name", nargs="?", metavar="NAME", help="default: a new unique name")
    make.add_argument("--partitions", type=_whole, default=1, metavar="N")
    make.add_argument("--config", type=_pair, action="append", default=[], metavar="KEY=VALUE", help="may repeat")
    verbs.verb("show", "show a topic", _send("GET", "topics", "{name}"), output.one_topic, name=str)
    verbs.verb("delete", "delete a topic", _send("DELETE", "topics", "{name}"), output.removed, name=str)


def _records(verbs: _Verbs) -> None:
    def chosen(given: argparse.Namespace) -> Any:
        return {"partition": given.partition, "offset": given.offset, "limit": given.limit}

    read = _send("GET", "topics", "{topic}", "records", query=chosen)
    show = verbs.verb("list", "list committed records by partition and offset", read, output.records, topic=str)
    show.add_argument("--partition", type=_whole, metavar="P")
    show.add_argument("--offset", type=_whole, metavar="N", help="first offset in each partition")
    show.add_argument("--limit", type=_whole, metavar="N", help="maximum number of records")

    def written(given: argparse.Namespace) -> Any:
        common: dict[str, Any] = {"headers": [{"name": name, "value": _bytes(text)} for name, text in given.header]}
        common |= {} if given.key is None else {"key": _bytes(given.key)}
        common |= {} if given.partition is None else {"partition": given.partition}
        return {"records": [{"value": _bytes(text), **common} for text in given.value]}

    write = _send("POST", "topics", "{topic}", "records", body=written)
    send = verbs.verb("send", "append records", write, output.offsets, topic=str)
    send.add_argument("value", nargs="+", metavar="VALUE")
    send.add_argument("--key", metavar="KEY")
    send.add_argument("--header", type=_pair, action="append", default=[], metavar="NAME=VALUE", help="may repeat")
    send.add_argument("--partition", type=_whole, metavar="P")


def _groups(verbs: _Verbs) -> None:
    verbs.alone(_send("GET", "groups"), output.groups)
    verbs.verb("show", "show a group", _send("GET", "groups", "{id}"), output.one_group, id=str)
    delete = _send("DELETE", "groups", "{id}")
    verbs.verb("delete", "delete a group with its offsets", delete, output.removed, id=str)
    reset = verbs.verb(
        "reset",
        "set the committed offsets of a group without members",
        _send("POST", "groups", "{id}", "offsets", body=administration.reset),
        administration.show_reset,
        id=str,
    )
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


def _configs(verbs: _Verbs) -> None:
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


def _acls(verbs: _Verbs) -> None:
    matching = _send("GET", "acls", query=administration.acl_words)
    listed = verbs.verb("list", "list the matching entries", matching, administration.show_acls)
    add = _send("POST", "acls", body=lambda given: {"acls": [administration.acl_words(given)]})
    added = verbs.verb("add", "add an entry", add, lambda _: ["added"])
    remove = _send("DELETE", "acls", query=administration.filter_words)
    removed = verbs.verb("remove", "remove the matching entries", remove, output.removed)
    for verb in (listed, added, removed):
        administration.add_acl_words(verb, is_filter=verb is not added)


def _producers(verbs: _Verbs) -> None:
    alone = verbs.alone(_send("GET", "producers", query=lambda given: {"topic": given.topic}), output.producers)
    alone.add_argument("--topic", metavar="T", help="only this topic")


def _logs(verbs: _Verbs) -> None:
    verbs.alone(_send("GET", "log-levels"), administration.show_levels)
    change = verbs.verb("set", "set levels", administration.set_levels, administration.show_levels)
    change.add_argument("level", nargs="+", metavar="[LOGGER=]LEVEL", help="without a logger: the root's level")
    back = verbs.verb(
        "reset",
        "remove the levels of loggers, which then inherit one",
        administration.reset_levels,
        administration.show_levels,
    )
    back.add_argument("logger", nargs="+", metavar="LOGGER")


def _requests(verbs: _Verbs) -> None:
    verbs.alone(requests.listed, requests.show_listed)
    newest = verbs.verb("list", "list the newest requests", requests.listed, requests.show_listed)
    requests.add_words(newest, counts=False)
    newest.add_argument("--limit", type=_whole, metavar="N", help="maximum number of requests")
    one = _send("GET", "requests", "{number}")
    verbs.verb("show", "show a request with its fields and bytes", one, requests.show_one, number=_whole)
    verbs.verb("clear", "clear the list", _send("DELETE", "requests"), output.removed)
    expect = verbs.verb(
        "assert", "exit with 1 unless the requests are as expected", requests.asserted, requests.show_verdict
    )
    requests.add_words(expect, counts=True)


def _recording(verbs: _Verbs) -> None:
    verbs.alone(_send("GET", "recording"), administration.show_recording)
    start = _send("POST", "recording", body=administration.recording)
    begin = verbs.verb("start", "start a recording", start, administration.show_recording)
    begin.add_argument("file", metavar="FILE", help="FILE.jsonl or FILE.pcapng, on the broker's machine")
    begin.add_argument("--max-bytes", type=_whole, metavar="N", help="maximum size of the recording")
    begin.add_argument(
        "--ring", action="store_true", help="at the maximum size keep the newest requests, in FILE and FILE.1"
    )
    begin.add_argument("--without-contents", action="store_true", help="omit keys and values of records")
    verbs.verb("stop", "stop the recording", _send("DELETE", "recording"), administration.show_recording)


_RESOURCES: dict[str, tuple[str, Callable[[_Verbs], None]]] = {
    "health": ("state, release and addresses of the broker", _health),
    "overview": ("topics, groups, producers, clients and slow requests at a glance", _overview),
    "faults": ("rules of fault injection", _faults),
    "topology": ("nodes, and the leaders of partitions", _topology),
    "clock": ("the broker's time", _clock),
    "state": ("the state of the broker: topics, records, groups, transactions", _state),
    "snapshots": ("snapshots of the broker's state", _snapshots),
    "topics": ("topics and their partitions", _topics),
    "records": ("records of topics", _records),
    "groups": ("consumer groups, with members and lag", _groups),
    "configs": ("configs of the broker or of a topic", _configs),
    "acls": ("access control lists", _acls),
    "producers": ("producer state of partitions", _producers),
    "log-levels": ("log levels of the broker's loggers", _logs),
    "requests": ("requests of clients, with their outcomes", _requests),
    "recording": ("recording of requests and responses to a file", _recording),
}


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


def _pair(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not separator:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return name, value
