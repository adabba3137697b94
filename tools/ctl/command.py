"""`ottla ctl`: asks the control plane of a running broker, for a person at a terminal or a script.

Owns the command line. It needs nothing but the standard library. Exit codes: 0; 1 with one line on stderr where no
control plane answers, or it failed, or where requests are not as `requests assert` expects them; 2 with one line for
what was asked wrongly, or is not possible now.
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
from ..http_client import VARIABLE, Client, Unreachable, Wrong
from ..top.plain import overview
from . import administration, log_levels, output, recording, requests
from .faults import add_fault_arguments, rule_of

TIMEOUT_SECONDS = 600.0  # the clock moves by years in seconds, but a large data directory is copied slowly

Ask = Callable[[Client, argparse.Namespace], Any]
Show = Callable[[Any], Sequence[str]]


def ctl(arguments: Sequence[str], environ: Mapping[str, str] | None = None) -> int:
    """`ottla ctl`: the exit code."""
    parser = ctl_parser()
    parsed = parser.parse_args(list(arguments))
    address = parsed.control or (os.environ if environ is None else environ).get(VARIABLE)
    if not address:
        parser.error(f"which broker? Give --control http://HOST:PORT, or set {VARIABLE}")
    try:
        client = Client(address, parsed.timeout)
        told = parsed.ask(client, parsed)
        text = json.dumps(told, indent=2, ensure_ascii=False) if parsed.json else _shown(client, parsed.show, told)
    except Wrong as error:
        return complain(parser.prog, error)
    except Unreachable as error:
        complain(parser.prog, error)
        return FAILED

    def write_it(write: Callable[[str], object]) -> int:
        write(text if text.endswith("\n") else text + "\n")
        failed = getattr(parsed, "failed", None)
        return FAILED if failed is not None and failed(told) else 0

    return printing(parser.prog, write_it)


def _shown(client: Client, show: Show, told: Any) -> str:
    try:
        return "".join(line if line.endswith("\n") else line + "\n" for line in show(told))
    except (AttributeError, LookupError, TypeError, ValueError) as error:  # another server, or another version
        raise Unreachable(client.strange()) from error


def ctl_parser() -> argparse.ArgumentParser:
    """The arguments of `ottla ctl`: a resource, what to do with it, and what that needs."""
    parser = Parser(
        prog="ottla ctl",
        description="Ask the control plane of a broker that runs with --control. It listens without authentication.",
        allow_abbrev=False,
    )
    parser.add_argument("--control", metavar="URL", help=f"where it listens; by default what {VARIABLE} says")
    parser.add_argument("--timeout", type=_seconds, default=TIMEOUT_SECONDS, metavar="SECONDS", help="to wait for it")
    parser.add_argument("--json", action="store_true", help="print what it answers as JSON")
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
    """The subcommands of one resource; the first one is done when none is given."""

    def __init__(self, resources: Any, name: str, text: str) -> None:
        self._parser: argparse.ArgumentParser = resources.add_parser(name, help=text, description=text)
        self._verbs: Any = None
        self._json(self._parser)

    @staticmethod
    def _json(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help=argparse.SUPPRESS)

    def alone(self, ask: Ask, show: Show) -> argparse.ArgumentParser:
        """What is done without a verb."""
        self._parser.set_defaults(ask=ask, show=show)
        return self._parser

    def verb(self, name: str, text: str, ask: Ask, show: Show) -> argparse.ArgumentParser:
        """One more subcommand."""
        if self._verbs is None:
            needed = self._parser.get_default("ask") is None
            self._verbs = self._parser.add_subparsers(metavar="VERB", dest="verb", required=needed)
        found: argparse.ArgumentParser = self._verbs.add_parser(name, help=text, description=text)
        found.set_defaults(ask=ask, show=show)
        self._json(found)
        return found


def _health(resources: Any) -> None:
    verbs = _Verbs(resources, "health", "whether the broker serves, as what, and where")
    verbs.alone(lambda to, given: to.ask("GET", "health"), output.health)


def _overview(resources: Any) -> None:
    verbs = _Verbs(resources, "overview", "what goes on: topics, groups, producers, clients, slow requests")

    def look(to: Client, given: argparse.Namespace) -> Any:
        return to.ask("GET", "overview", query={"contains": given.filter, "limit": given.limit})

    alone = verbs.alone(look, overview)
    alone.add_argument("--filter", metavar="TEXT", help="only what has this in its name")
    alone.add_argument("--limit", type=_whole, metavar="N", help="lines of each list at most")


def _faults(resources: Any) -> None:
    verbs = _Verbs(resources, "faults", "what goes wrong on command")
    verbs.alone(lambda to, given: to.ask("GET", "faults"), output.faults)
    verbs.verb("list", "the faults in force", lambda to, given: to.ask("GET", "faults"), output.faults)
    add = verbs.verb(
        "add", "put one in force", lambda to, given: to.ask("POST", "faults", body=rule_of(given)), output.one_fault
    )
    add_fault_arguments(add)
    show = verbs.verb("show", "one of them", lambda to, given: to.ask("GET", "faults", given.id), output.one_fault)
    show.add_argument("id", type=_whole, metavar="ID")
    remove = verbs.verb(
        "remove", "take one out of force", lambda to, given: to.ask("DELETE", "faults", given.id), output.removed
    )
    remove.add_argument("id", type=_whole, metavar="ID")
    verbs.verb("clear", "take all out of force", lambda to, given: to.ask("DELETE", "faults"), output.removed)


def _topology(resources: Any) -> None:
    verbs = _Verbs(resources, "topology", "nodes, and who leads what")
    verbs.alone(lambda to, given: to.ask("GET", "topology"), output.topology)

    def leaders(to: Client, given: argparse.Namespace) -> Any:
        body = {"topic": given.topic, "partition": given.partition, "node": given.node}
        return to.ask("POST", "topology", "leaders", body=body)

    move = verbs.verb("move", "have another node lead a partition", leaders, output.topology)
    _partition(move)
    move.add_argument("node", type=_whole, metavar="NODE")
    for name, is_offline, text in (
        ("offline", True, "leave a partition without a leader"),
        ("online", False, "give it one again"),
    ):

        def offline(to: Client, given: argparse.Namespace, is_offline: bool = is_offline) -> Any:
            body = {"topic": given.topic, "partition": given.partition, "offline": is_offline}
            return to.ask("POST", "topology", "offline", body=body)

        _partition(verbs.verb(name, text, offline, output.topology))
    for name, is_running, text in (("stop", False, "stop a node"), ("start", True, "start it again")):

        def node(to: Client, given: argparse.Namespace, is_running: bool = is_running) -> Any:
            return to.ask("POST", "topology", "nodes", given.node, body={"running": is_running})

        verbs.verb(name, text, node, output.topology).add_argument("node", type=_whole, metavar="NODE")
    verbs.verb(
        "spread",
        "have each partition led by its preferred node",
        lambda to, given: to.ask("POST", "topology", "spread", body={}),
        output.topology,
    )


def _partition(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("topic", metavar="TOPIC")
    parser.add_argument("partition", type=_whole, metavar="PARTITION")


def _clock(resources: Any) -> None:
    verbs = _Verbs(resources, "clock", "the broker's time")
    verbs.alone(lambda to, given: to.ask("GET", "clock"), output.clock)
    for name, text in (("freeze", "have it stand still"), ("run", "have it go on by itself")):
        verbs.verb(name, text, lambda to, given: to.ask("POST", "clock", given.verb, body={}), output.clock)
    change = verbs.verb(
        "set", "set it", lambda to, given: to.ask("POST", "clock", "set", body={"ms": given.time}), output.clock
    )
    change.add_argument("time", type=_typed(time_ms), metavar="TIME", help="2026-01-31T12:00:00Z, or milliseconds")

    def advance(to: Client, given: argparse.Namespace) -> Any:
        return to.ask("POST", "clock", "advance", body={"ms": given.duration, "keep_members": given.keep_members})

    forward = verbs.verb("advance", "move it on; returns when what became due is done", advance, output.clock)
    forward.add_argument("duration", type=_typed(duration_ms), metavar="DURATION", help="7d, 45s, 500ms, 1h30m")
    forward.add_argument("--keep-members", action="store_true", help="members of groups live through it")


def _state(resources: Any) -> None:
    verbs = _Verbs(resources, "state", "all that the broker holds")
    verbs.verb(
        "reset",
        "bring it back to how it started",
        lambda to, given: to.ask("POST", "state", "reset", body={}),
        lambda told: ["reset"],
    )


def _snapshots(resources: Any) -> None:
    verbs = _Verbs(resources, "snapshots", "all that the broker holds, kept to come back to")
    verbs.alone(lambda to, given: to.ask("GET", "snapshots"), output.snapshots)
    take = verbs.verb(
        "take",
        "keep what it holds now",
        lambda to, given: to.ask("POST", "snapshots", body={} if given.name is None else {"name": given.name}),
        lambda told: [cell(told["name"])],
    )
    take.add_argument("name", nargs="?", metavar="NAME")
    restore = verbs.verb(
        "restore",
        "bring the broker back to one",
        lambda to, given: to.ask("POST", "snapshots", given.name, "restore", body={}),
        lambda told: ["restored"],
    )
    restore.add_argument("name", metavar="NAME")
    remove = verbs.verb(
        "remove", "let go of one", lambda to, given: to.ask("DELETE", "snapshots", given.name), output.removed
    )
    remove.add_argument("name", metavar="NAME")


def _topics(resources: Any) -> None:
    verbs = _Verbs(resources, "topics", "topics and their partitions")
    verbs.alone(lambda to, given: to.ask("GET", "topics"), output.topics)

    def create(to: Client, given: argparse.Namespace) -> Any:
        body: dict[str, Any] = {"partitions": given.partitions, "configs": dict(given.config)}
        return to.ask("POST", "topics", body=body if given.name is None else body | {"name": given.name})

    make = verbs.verb("create", "make one", create, output.one_topic)
    make.add_argument("name", nargs="?", metavar="NAME", help="without it one that no other has")
    make.add_argument("--partitions", type=_whole, default=1, metavar="N")
    make.add_argument("--config", type=_pair, action="append", default=[], metavar="KEY=VALUE", help="may repeat")
    show = verbs.verb("show", "one of them", lambda to, given: to.ask("GET", "topics", given.name), output.one_topic)
    show.add_argument("name", metavar="NAME")
    remove = verbs.verb(
        "delete", "delete one", lambda to, given: to.ask("DELETE", "topics", given.name), output.removed
    )
    remove.add_argument("name", metavar="NAME")


def _records(resources: Any) -> None:
    verbs = _Verbs(resources, "records", "what topics hold")

    def read(to: Client, given: argparse.Namespace) -> Any:
        query = {"partition": given.partition, "offset": given.offset, "limit": given.limit}
        return to.ask("GET", "topics", given.topic, "records", query=query)

    show = verbs.verb("list", "committed records, by partition and offset", read, output.records)
    show.add_argument("topic", metavar="TOPIC")
    show.add_argument("--partition", type=_whole, metavar="P")
    show.add_argument("--offset", type=_whole, metavar="N", help="in each partition from here on")
    show.add_argument("--limit", type=_whole, metavar="N", help="at most so many")

    def write(to: Client, given: argparse.Namespace) -> Any:
        common: dict[str, Any] = {"headers": [{"name": name, "value": _bytes(text)} for name, text in given.header]}
        common |= {} if given.key is None else {"key": _bytes(given.key)}
        common |= {} if given.partition is None else {"partition": given.partition}
        body = {"records": [{"value": _bytes(text), **common} for text in given.value]}
        return to.ask("POST", "topics", given.topic, "records", body=body)

    send = verbs.verb("send", "append records", write, output.offsets)
    send.add_argument("topic", metavar="TOPIC")
    send.add_argument("value", nargs="+", metavar="VALUE")
    send.add_argument("--key", metavar="KEY")
    send.add_argument("--header", type=_pair, action="append", default=[], metavar="NAME=VALUE", help="may repeat")
    send.add_argument("--partition", type=_whole, metavar="P")


def _groups(resources: Any) -> None:
    verbs = _Verbs(resources, "groups", "consumer groups, their members and how far they lag behind")
    verbs.alone(lambda to, given: to.ask("GET", "groups"), output.groups)
    show = verbs.verb("show", "one of them", lambda to, given: to.ask("GET", "groups", given.id), output.one_group)
    show.add_argument("id", metavar="ID")
    remove = verbs.verb(
        "delete",
        "delete one, with its offsets",
        lambda to, given: to.ask("DELETE", "groups", given.id),
        output.removed,
    )
    remove.add_argument("id", metavar="ID")
    reset = verbs.verb(
        "reset", "set the offsets of one without members", administration.reset, administration.show_reset
    )
    reset.add_argument("id", metavar="ID")
    to = reset.add_mutually_exclusive_group(required=True)
    for name, text in (("earliest", "log start"), ("latest", "log end"), ("current", "committed offsets")):
        to.add_argument(f"--to-{name}", dest="to", action="store_const", const=name, help=f"to the {text}")
    to.add_argument("--to-offset", type=_whole, metavar="N")
    to.add_argument("--shift-by", type=int, metavar="N", help="from the committed offset; below 0 goes back")
    to.add_argument("--to-time", type=_typed(time_ms), metavar="TIME", help="2026-01-31T12:00:00Z, or milliseconds")
    reset.add_argument(
        "--topic",
        action="append",
        metavar="TOPIC[:P,P]",
        help="of these partitions, also without committed offsets; may repeat (default: all with a committed offset)",
    )
    reset.add_argument("--dry-run", action="store_true", help="show the new offsets, and change nothing")


def _configs(resources: Any) -> None:
    verbs = _Verbs(resources, "configs", "configs of the broker, or of a topic")
    show = verbs.verb("show", "values and where they come from", administration.configs, administration.shown)
    show.add_argument("--topic", metavar="TOPIC", help="of this topic instead of the broker")
    show.add_argument("--all", action="store_true", help="defaults as well")
    change = verbs.verb("change", "change some, all or none", administration.change, administration.shown)
    change.add_argument("--topic", metavar="TOPIC", help="of this topic instead of the broker")
    change.add_argument("value", nargs="*", type=_pair, metavar="NAME=VALUE", help="a new value")
    for name, text in (("append", "add elements to a list"), ("subtract", "take elements out of a list")):
        change.add_argument(f"--{name}", action="append", default=[], type=_pair, metavar="NAME=VALUE", help=text)
    change.add_argument("--delete", action="append", default=[], metavar="NAME", help="remove a value; may repeat")
    change.add_argument("--for-all", action="store_true", help="the default of all brokers, not this broker's value")
    change.add_argument("--dry-run", action="store_true", help="check it, and change nothing")
    change.set_defaults(all=False)


def _acls(resources: Any) -> None:
    verbs = _Verbs(resources, "acls", "access control lists")
    listed = verbs.verb("list", "list the matching entries", administration.acls, administration.show_acls)
    added = verbs.verb("add", "add an entry", administration.add_acl, lambda _: ["added"])
    removed = verbs.verb("remove", "remove the matching entries", administration.remove_acls, output.removed)
    for verb in (listed, added, removed):
        administration.add_acl_words(verb, is_filter=verb is not added)


def _producers(resources: Any) -> None:
    verbs = _Verbs(resources, "producers", "what partitions know of producers with ids")
    alone = verbs.alone(lambda to, given: to.ask("GET", "producers", query={"topic": given.topic}), output.producers)
    alone.add_argument("--topic", metavar="T", help="of this topic alone")


def _logs(resources: Any) -> None:
    verbs = _Verbs(resources, "log-levels", "what is logged, by whom")
    verbs.alone(log_levels.get, log_levels.shown)
    change = verbs.verb("set", "give loggers other levels", log_levels.set, log_levels.shown)
    change.add_argument("level", nargs="+", metavar="[LOGGER=]LEVEL", help="without a logger it is the root's")
    back = verbs.verb("reset", "have loggers go by the root's level again", log_levels.reset, log_levels.shown)
    back.add_argument("logger", nargs="+", metavar="LOGGER")


def _requests(resources: Any) -> None:
    verbs = _Verbs(resources, "requests", "what clients asked, and how it ended")
    verbs.alone(requests.listed, requests.show_listed)
    newest = verbs.verb("list", "the newest", requests.listed, requests.show_listed)
    requests.add_words(newest, counts=False)
    newest.add_argument("--limit", type=_whole, metavar="N", help="at most so many")
    show = verbs.verb("show", "one with its fields and bytes", requests.one, requests.show_one)
    show.add_argument("number", type=_whole, metavar="NUMBER")
    verbs.verb("clear", "forget all", requests.cleared, output.removed)
    expect = verbs.verb("assert", "exit with 1 unless they are as expected", requests.asserted, requests.show_verdict)
    requests.add_words(expect, counts=True)
    expect.set_defaults(failed=requests.failed)


def _recording(resources: Any) -> None:
    verbs = _Verbs(resources, "recording", "what clients send and are answered, written to a file")
    verbs.alone(recording.get, recording.shown)
    begin = verbs.verb("start", "begin one", recording.start, recording.shown)
    begin.add_argument("file", metavar="FILE", help="FILE.jsonl or FILE.pcapng, on the broker's machine")
    begin.add_argument("--max-bytes", type=_whole, metavar="N", help="end it when it is so large")
    begin.add_argument("--ring", action="store_true", help="keep the newest instead, in FILE and FILE.1")
    begin.add_argument("--without-contents", action="store_true", help="leave out keys and values of records")
    verbs.verb("stop", "end it", recording.stop, recording.shown)


def _bytes(text: str) -> Any:
    """An argument as the bytes that it was."""
    return json_bytes.to_json(os.fsencode(text))


def _typed(read: Callable[[str], int]) -> Callable[[str], int]:
    """A reader for argparse, which shows the text of no error but its own."""

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
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds")
    return value


def _pair(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not separator:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return name, value
