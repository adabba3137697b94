"""The command `ottla`: finds the chosen subcommand and runs it.

A subcommand is a function that takes the remaining arguments and returns an exit code. Ottla's own are in `COMMANDS`;
other packages add theirs as entry points of the group `ottla.commands`. Only the chosen one is imported, since all of
them take longer to import than most commands run. The metadata of the installed packages is read only for a command
that is not Ottla's own: with a hundred packages that takes 50 ms.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Collection, Sequence
from typing import Any

from ..protocol.collection import without_collection
from ..protocol.mistakes import complain

INTERRUPTED = 130  # exit code of a command that Ctrl-C interrupts, by the convention of shells: 128 + SIGINT
COMMANDS: dict[str, dict[str, tuple[str, str]]] = {
    "Run a broker": {
        "serve": (".serve", "start a broker"),
        "releases": (".serve", "list the releases of Kafka that a broker can behave as, and how they differ"),
        "ctl": (".ctl.command", "control a running broker: clock, faults, snapshots, requests, recordings"),
        "top": (".top.command", "watch a running broker: topics, groups, producers, clients, slow requests"),
    },
    "Administer a cluster": {
        "topics": (".kafka.topics", "create, list, describe, alter and delete topics"),
        "configs": (".kafka.configs", "describe and alter configs, quotas and SCRAM credentials"),
        "groups": (".kafka.groups", "list and describe groups, reset and delete their offsets"),
        "records": (".kafka.records", "delete records before an offset, and look offsets up"),
        "acls": (".kafka.acls", "add, list and remove access control lists"),
        "delegation-tokens": (".kafka.delegation_tokens", "create, renew, expire and describe delegation tokens"),
    },
    "Read a data directory": {
        "dump": (".disk.dump", "print segments, snapshots and protocol frames with names, positions and values"),
        "formats": (".disk.formats", "count message formats, and what Kafka 4.0 no longer writes"),
        "verify": (".disk.verify", "check batches, indexes, snapshots and checkpoints"),
        "producers": (".kafka.producers", "list producer states, also those of a running broker"),
        "explain": (".explain.command", "explain producers and transactions, and the response to their next batch"),
        "clients": (".clients", "list the clients that a broker has seen, and what fails on another release"),
    },
    "Change a data directory": {
        "repair": (".disk.repair", "repair damage, with a backup that can be restored"),
        "import-dir": (".disk.import_dir", "add the partitions of another data directory"),
        "mirror": (".mirror", "copy topics of a running broker, byte for byte"),
    },
    "Replay recorded requests": {
        "replay": (".replay.command", "send a recording to another broker and report different responses"),
        "diff": (".replay.command", "compare two recordings, or two brokers under one recording"),
    },
    "Process logs with Spark": {
        "pipeline": ("..pipeline.cli", "audit, census, compact, export, import, replay, upgrade"),
    },
    "Set up a shell": {
        "completion": (".main", "print the script that completes commands and flags in bash, zsh or fish"),
    },
}
"""Ottla's own commands: title in the help text -> command -> (relative module, description). The function in the module
has the name of the command, with underscores."""

COMPLETING = "_ARGCOMPLETE"
"""Set by the script of `ottla completion` where a shell needs completions: argcomplete's own variable."""

Command = Callable[[Sequence[str]], int]


def names() -> list[str]:
    """Returns the names of all installed commands."""
    return sorted({name for listed in COMMANDS.values() for name in listed} | set(_others()))


def load(name: str, *, for_good: bool = False) -> Command | None:
    """Imports a command, `for_good` if the process runs no other. Returns None if none has this name."""
    for listed in COMMANDS.values():
        if name in listed:
            with without_collection(for_good=for_good):
                return getattr(importlib.import_module(listed[name][0], __package__), name.replace("-", "_"))
    found = _others().get(name)
    return None if found is None else found.load()


def _others() -> dict[str, Any]:
    """Returns the entry points of the commands of other packages, by name."""
    from importlib.metadata import entry_points  # see above

    return {entry.name: entry for entry in entry_points(group="ottla.commands")}


def usage(names: Collection[str]) -> str:
    """Returns the help text: a line for each of these commands; one of another package has no description."""
    lines = ["usage: ottla COMMAND [ARGUMENTS]", "", "A Kafka broker you can pip install."]
    described = {title: {name: text for name, (_, text) in listed.items()} for title, listed in COMMANDS.items()}
    groups = {**described, "Others": dict.fromkeys(sorted(set(names).difference(*COMMANDS.values())), "")}
    for title, commands in groups.items():
        shown = [f"  {name:18}{text}".rstrip() for name, text in commands.items() if name in names]
        lines += ["", f"{title}:", *shown] if shown else []
    return "\n".join([*lines, "", "`ottla COMMAND --help` describes a command; `ottla --version` prints the version."])


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs `ottla` with `arguments` (default: the process's own) and returns the exit code."""
    try:
        return _run(arguments)
    except KeyboardInterrupt:  # no traceback for the user who pressed Ctrl-C
        return INTERRUPTED


def _run(arguments: Sequence[str] | None) -> int:
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given[:1] == ["--version"]:
        from importlib.metadata import version  # imported late: it slows the start of every command
        from importlib.util import find_spec

        walk = find_spec("ottla.protocol.records.walk")
        is_plain = walk is not None and str(walk.origin).endswith(".py")
        print(f"ottla {version('ottla')} ({'plain Python' if is_plain else 'compiled'})")
        return 0
    if COMPLETING in os.environ:
        return _complete()
    if given[:1] in (["--help"], ["-h"]):
        print(usage(names()))
        return 0
    command = load(given[0], for_good=arguments is None) if given else None
    if command is not None:
        if os.environ.get("OTTLA_UMASK"):
            from ..storage.io import permissions  # imported only when the variable is set: it slows the start

            try:
                permissions.apply()
            except ValueError as error:
                return complain("ottla", error)
        return command(given[1:])
    if given[:1] == ["help"] and len(given) < 3:
        return _run([*given[1:], "--help"])
    listed = f"one of: {', '.join(names())}"
    if not given:
        return complain("ottla", f"no command given; {listed}")
    from ..protocol.names import did_you_mean  # imported only for the error: it slows the start

    hint = did_you_mean(given[0], [*names(), "--version", "--help"])
    return complain("ottla", f"unknown command {given[0]}{hint or ';'} {listed}")


def completion(arguments: Sequence[str]) -> int:
    """`ottla completion`: prints the script for a shell, and returns the exit code."""
    import argcomplete

    from ..protocol.arguments import Parser

    parser = Parser(
        prog="ottla completion",
        description="Print the script that completes commands and flags of `ottla` in a shell.",
        epilog='In ~/.bashrc: eval "$(ottla completion bash)"; likewise zsh. For fish: ottla completion fish | source',
    )
    parser.add_argument("shell", choices=["bash", "zsh", "fish"])
    shell = parser.parse_args(list(arguments)).shell
    print(argcomplete.shellcode(["ottla"], shell=shell))  # pyright: ignore[reportPrivateImportUsage]
    return 0


def _complete() -> int:
    """Prints the completions of the line in the environment variables of argcomplete, and exits."""
    import argcomplete
    from argcomplete.lexers import split_line

    from ..protocol.arguments import Parser

    line, point = os.environ.get("COMP_LINE", ""), int(os.environ.get("COMP_POINT", "0"))
    words = split_line(line, point)[3]
    Parser.complete = argcomplete.autocomplete
    command = load(words[1]) if len(words) > 1 else None
    if command is not None:
        os.environ[COMPLETING] = "2"  # the words of the line that name the program
        return command([])
    parser = Parser(prog="ottla")
    parser.add_argument("command", choices=names())
    parser.add_argument("--version", action="store_true")
    parser.parse_args([])
    return 0
