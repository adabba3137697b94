"""The command `ottla`: finds the chosen subcommand among the installed entry points and runs it.

Subcommands are entry points of the group `ottla.commands`: name -> function that takes the remaining arguments and
returns an exit code. Only the chosen one is imported, since importing all of them takes longer than most commands.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Mapping, Sequence
from importlib.metadata import EntryPoint, entry_points, version

from ..protocol.mistakes import complain
from .interrupted import INTERRUPTED

COMMANDS: dict[str, dict[str, str]] = {
    "Run a broker": {
        "serve": "start a broker",
        "releases": "list the releases of Kafka that a broker can behave as, and how they differ",
        "ctl": "control a running broker: clock, faults, snapshots, requests, recordings",
        "top": "watch a running broker: topics, groups, producers, clients, slow requests",
    },
    "Administer a cluster": {
        "topics": "create, list, describe, alter and delete topics",
        "configs": "describe and alter configs, quotas and SCRAM credentials",
        "groups": "list and describe groups, reset and delete their offsets",
        "records": "delete records before an offset, and look offsets up",
        "acls": "add, list and remove access control lists",
        "delegation-tokens": "create, renew, expire and describe delegation tokens",
    },
    "Read a data directory": {
        "dump": "print segments, snapshots and protocol frames with names, positions and values",
        "formats": "count message formats, and what Kafka 4.0 no longer writes",
        "verify": "check batches, indexes, snapshots and checkpoints",
        "producers": "list producer states, also those of a running broker",
        "explain": "explain producers and transactions, and the response to their next batch",
        "clients": "list the clients that a broker has seen, and what fails on another release",
    },
    "Change a data directory": {
        "repair": "repair damage, with a backup that can be restored",
        "import-dir": "add the partitions of another data directory",
        "mirror": "copy topics of a running broker, byte for byte",
    },
    "Replay recorded requests": {
        "replay": "send a recording to another broker and report different responses",
        "diff": "compare two recordings, or two brokers under one recording",
    },
    "Process logs with Spark": {
        "pipeline": "audit, census, compact, export, import, replay, upgrade",
    },
    "Set up a shell": {
        "completion": "print the script that completes commands and flags in bash, zsh or fish",
    },
}
"""The commands of the help text: title -> command -> description."""


COMPLETING = "_ARGCOMPLETE"
"""Set by the script of `ottla completion` where a shell needs completions: argcomplete's own variable."""


def usage(names: Collection[str]) -> str:
    """Returns the help text: a line for each installed command; a command of another package has no description."""
    lines = ["usage: ottla COMMAND [ARGUMENTS]", "", "A Kafka broker you can pip install."]
    groups = {**COMMANDS, "Others": dict.fromkeys(sorted(set(names).difference(*COMMANDS.values())), "")}
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
        print(f"ottla {version('ottla')}")
        return 0
    commands = {entry.name: entry for entry in entry_points(group="ottla.commands")}
    if COMPLETING in os.environ:
        return _complete(commands)
    if given and given[0] in commands:
        if os.environ.get("OTTLA_UMASK"):
            from ..storage.io import permissions  # imported only when the variable is set: it slows the start

            try:
                permissions.apply()
            except ValueError as error:
                return complain("ottla", error)
        return commands[given[0]].load()(given[1:])
    if given[:1] in (["--help"], ["-h"]):
        print(usage(commands))
        return 0
    if given[:1] == ["help"] and len(given) < 3:
        return _run([*given[1:], "--help"])
    listed = f"one of: {', '.join(sorted(commands))}"
    if not given:
        return complain("ottla", f"no command given; {listed}")
    from ..protocol.names import did_you_mean  # imported only for the error: it slows the start

    hint = did_you_mean(given[0], [*commands, "--version", "--help"])
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


def _complete(commands: Mapping[str, EntryPoint]) -> int:
    """Prints the completions of the line in the environment variables of argcomplete, and exits."""
    import argcomplete
    from argcomplete.lexers import split_line

    from ..protocol.arguments import Parser

    line, point = os.environ.get("COMP_LINE", ""), int(os.environ.get("COMP_POINT", "0"))
    words = split_line(line, point)[3]
    Parser.complete = argcomplete.autocomplete
    if len(words) > 1 and words[1] in commands:
        os.environ[COMPLETING] = "2"  # the words of the line that name the program
        return commands[words[1]].load()([])
    parser = Parser(prog="ottla")
    parser.add_argument("command", choices=sorted(commands))
    parser.add_argument("--version", action="store_true")
    parser.parse_args([])
    return 0
