"""What the commands over `ottla.client.Admin` share: flags, one run with an admin, text or JSON, failures in one line.

Owns no command. Text is laid out as Kafka's tools print it, for scripts read it; `--json` prints one document, whose
shape each command documents. Exit codes: 0; FAILED where the cluster could not be asked or refused, also in part; 2 for
a mistake in the flags.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ...client.admin.admin import Admin
from ...client.net.errors import ClientError, KafkaError
from ...protocol.arguments import Parser, add_bootstrap
from ...protocol.mistakes import FAILED, complain
from ..command_line import printing
from .broker_api_versions import check_command_config

BOOTSTRAP = "127.0.0.1:9092"
TIMEOUT_MS = 15_000
Write = Callable[[str], object]


class CannotDo(Exception):
    """Why the command failed: one line, in Kafka's words where it has some."""


class Out:
    """Where a command tells what it found. `code` is its exit code so far."""

    def __init__(self, program: str, write: Write, as_json: bool) -> None:
        self.program = program
        self.write = write
        self.as_json = as_json
        self.code = 0

    def show(self, document: Mapping[str, Any], text: Iterable[str]) -> None:
        """All that the command found: the document with `--json`, else the text, which has its own line ends."""
        if self.as_json:
            self.write(json.dumps(document, indent=2) + "\n")
            return
        for part in text:
            self.write(part)

    def note(self, text: str) -> None:
        """A line beside the output, on stderr."""
        print(text, file=sys.stderr)

    def fail(self, text: str) -> None:
        """A line on stderr; the command goes on, and has failed."""
        complain(self.program, text)
        self.code = FAILED


def admin_parser(program: str, description: str) -> Parser:
    """A parser with the flags that all have. Values that begin with a dash, as `--time -1`, are values."""
    parser = Parser(prog=program, description=description, allow_abbrev=False)
    add_bootstrap(parser, default=BOOTSTRAP, help=f"default: {BOOTSTRAP}")
    parser.add_argument("--command-config", type=Path, metavar="FILE", help="read, and checked for what is not served")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    return parser


def add_actions(parser: Parser, actions: Mapping[str, str]) -> None:
    """A flag for each thing that the command does, with its help; one of them is said."""
    for action, text in actions.items():
        parser.add_argument(f"--{action}", action="store_true", help=text)


def check_action(parser: Parser, asked: argparse.Namespace, actions: Iterable[str]) -> None:
    """Ends the command unless one action is said."""
    names = list(actions)
    if sum(getattr(asked, name.replace("-", "_")) for name in names) != 1:
        listed = ", ".join(f"--{name}" for name in names[:-1])
        parser.error(f"exactly one action is needed: {listed} or --{names[-1]}")


def parsed(parser: Parser, arguments: Sequence[str], check: Callable[[Parser, argparse.Namespace], None]) -> Any:
    """The flags, checked. Ends the command at a mistake."""
    asked = parser.parse_args(list(arguments))
    check(parser, asked)
    check_command_config(parser, asked.command_config)
    return asked


def run_admin(
    program: str,
    asked: argparse.Namespace,
    act: Callable[[Admin, Any, Out], Awaitable[None]],
    *,
    timeout_ms: int = TIMEOUT_MS,
    failed: Callable[[Out, str], None] = Out.fail,
    before: Callable[[Any, Out], None] | None = None,
) -> int:
    """Runs the command with a started admin; its exit code. `failed` tells why it could not be done.

    `before` asks the user: outside of the event loop, where Ctrl-C ends that.
    """

    async def connected(out: Out) -> None:
        client_id = program.replace(" ", "-")
        async with Admin(asked.bootstrap_server, client_id=client_id, default_api_timeout_ms=timeout_ms) as admin:
            await act(admin, asked, out)

    def run(write: Write) -> int:
        out = Out(program, write, asked.json)
        if before is not None:
            before(asked, out)
        try:
            asyncio.run(connected(out))
        except (ClientError, CannotDo) as error:
            failed(out, message(error))
        return out.code

    return printing(program, run)


def message(error: Exception) -> str:
    """What went wrong, without the number of the code before it where there are words: a name alone says only where."""
    told = error.message if isinstance(error, KafkaError) else None
    return told if told and " " in told else str(error)


def text_of(error: Exception | None) -> str | None:
    """An error as JSON has it: null for none."""
    return None if error is None else message(error)


def pattern_of(text: str) -> re.Pattern[str]:
    """Names with commas between, each also a regular expression. Raises CannotDo."""
    try:
        return re.compile(text.replace(",", "|"))
    except (re.error, OverflowError, RecursionError):
        raise CannotDo(f"{text} is an invalid regex.") from None


def padded(cells: Sequence[object], widths: Sequence[int]) -> str:
    """Cells with a blank between them, each at least so wide; one without a width is as it is."""
    found = [str(cell).ljust(width) for cell, width in zip(cells, widths, strict=False)]
    return " ".join([*found, *(str(cell) for cell in cells[len(widths) :])])


def width(least: int, cells: Iterable[object]) -> int:
    """How wide a column is: as its widest cell, and no less than `least`."""
    return max([least, *(len(str(cell)) for cell in cells)])
