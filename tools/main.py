"""The command `ottla`: finds the chosen subcommand among the installed entry points and runs it.

Owns nothing but the choice. Subcommands are entry points of the group `ottla.commands` (name -> function taking the
remaining arguments and returning an exit code), and only the chosen one is imported, so that start-up stays lean.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.metadata import entry_points, version

from ..protocol.mistakes import complain
from .interrupted import INTERRUPTED


def usage(names: Sequence[str]) -> str:
    """The help text: how to call the command, and the subcommands by name."""
    lines = ["usage: ottla COMMAND [ARGUMENTS]", "", "A Kafka broker you can pip install.", "", "commands:"]
    lines += [f"  {name}" for name in names]
    lines += ["", "ottla COMMAND --help tells about one of them; ottla --version prints the version."]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs `ottla` with `arguments` (default: the process's own) and returns the exit code."""
    try:
        return _run(arguments)
    except KeyboardInterrupt:  # who pressed Ctrl-C knows why it ended
        return INTERRUPTED


def _run(arguments: Sequence[str] | None) -> int:
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given[:1] == ["--version"]:
        print(f"ottla {version('ottla')}")
        return 0
    commands = {entry.name: entry for entry in entry_points(group="ottla.commands")}
    if given and given[0] in commands:
        if os.environ.get("OTTLA_UMASK"):
            from ..storage.io import permissions  # of use to few, so the others do not wait for it

            try:
                permissions.apply()
            except ValueError as error:
                return complain("ottla", error)
        return commands[given[0]].load()(given[1:])
    if given[:1] in (["--help"], ["-h"]):
        print(usage(sorted(commands)))
        return 0
    if given[:1] == ["help"] and len(given) < 3:
        return _run([*given[1:], "--help"])
    listed = f"one of: {', '.join(sorted(commands))}"
    if not given:
        return complain("ottla", f"no command given; {listed}")
    from ..protocol.names import did_you_mean  # only a mistake needs it

    hint = did_you_mean(given[0], [*commands, "--version", "--help"])
    return complain("ottla", f"unknown command {given[0]}{hint or ';'} {listed}")
