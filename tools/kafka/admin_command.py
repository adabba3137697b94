"""Shared by the commands that use `ottla.client.Admin`: flags, the run with an admin, text or JSON output, errors.

Owns no command. Text output has the layout of Kafka's tools, which scripts parse; `--json` prints one document, whose
fields each command documents. Exit codes: 0; FAILED if the cluster is unreachable or refused a part of the request; 2
for wrong arguments.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...client.admin.admin import Admin
from ...client.net.errors import ClientError, KafkaError
from ...protocol.arguments import Parser, add_bootstrap, add_command_config
from ...protocol.mistakes import FAILED, complain
from ..command_line import Write, printing, security_options

BOOTSTRAP = "127.0.0.1:9092"
TIMEOUT_MS = 15_000
FILE_BYTES_MAX = 64 << 20
NONE = "-"


class CannotDo(Exception):
    """The command failed; the text is one line, that of Kafka's tool if it has one."""


@dataclass
class Out:
    """The output of a command, and its exit code so far."""

    program: str
    write: Write
    as_json: bool
    code: int = 0

    def show(self, document: Mapping[str, Any], text: Iterable[str]) -> None:
        """Writes the result: the document with `--json`, otherwise the parts of the text, which have line ends."""
        if self.as_json:
            self.write(json.dumps(document, indent=2) + "\n")
            return
        for part in text:
            self.write(part)

    def note(self, text: str) -> None:
        """Writes a line to stderr."""
        print(text, file=sys.stderr)

    def fail(self, text: str) -> None:
        """Writes a line to stderr and sets the exit code to FAILED; the command continues."""
        complain(self.program, text)
        self.code = FAILED


def admin_parser(program: str, description: str, actions: Mapping[str, str]) -> Parser:
    """Returns a parser with the flags of all commands, and a flag for each action: name -> help text."""
    parser = Parser(prog=program, description=description, allow_abbrev=False)
    add_bootstrap(parser, default=BOOTSTRAP, help=f"default: {BOOTSTRAP}")
    add_command_config(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    for action, text in actions.items():
        parser.add_argument(f"--{action}", action="store_true", help=text)
    return parser


def parsed(
    parser: Parser,
    arguments: Sequence[str],
    actions: Iterable[str],
    check: Callable[[Parser, argparse.Namespace], None],
) -> Any:
    """Returns the checked arguments. Exits with a usage error for wrong ones, and unless one action is given."""
    args = parser.parse_args(list(arguments))
    names = list(actions)
    if sum(getattr(args, name.replace("-", "_")) for name in names) != 1:
        listed = ", ".join(f"--{name}" for name in names[:-1])
        parser.error(f"exactly one action is needed: {listed} or --{names[-1]}")
    check(parser, args)
    args.client_options = security_options(parser, args.command_config)
    return args


def check_principals(parser: Parser, principals: Iterable[str]) -> None:
    """Exits with a usage error for a text that is not TYPE:NAME."""
    for principal in principals:
        kind, colon, _ = principal.strip().partition(":")
        if not kind or not colon:
            parser.error(f"expected a string in format principalType:principalName but got {principal}")


def run_admin(
    program: str,
    args: argparse.Namespace,
    act: Callable[[Admin, Any, Out], Awaitable[None]],
    *,
    timeout_ms: int = TIMEOUT_MS,
    failed: Callable[[Out, str], None] = Out.fail,
    before: Callable[[Any, Out], None] | None = None,
) -> int:
    """Runs `act` with a started admin client and returns the exit code. `failed` reports an error of the command.

    `before` may prompt the user. It runs outside of the event loop, so that Ctrl-C interrupts it.
    """

    async def connected(out: Out) -> None:
        client_id = program.replace(" ", "-")
        options: dict[str, Any] = {"client_id": client_id, "default_api_timeout_ms": timeout_ms, **args.client_options}
        async with Admin(args.bootstrap_server, **options) as admin:
            await act(admin, args, out)

    def run(write: Write) -> int:
        out = Out(program, write, args.json)
        if before is not None:
            before(args, out)
        try:
            asyncio.run(connected(out))
        except (ClientError, CannotDo) as error:
            failed(out, message(error))
        return out.code

    return printing(program, run)


def message(error: Exception) -> str:
    """Returns the text of an error: the broker's message if it is a sentence, otherwise with the error code."""
    text = error.message if isinstance(error, KafkaError) else None
    return text if text and " " in text else str(error)


def text_of(error: Exception | None) -> str | None:
    """Returns the text of an error for JSON, or None without one."""
    return None if error is None else message(error)


def read_file(file: Path) -> bytes:
    """Reads at most FILE_BYTES_MAX of a file. Raises CannotDo."""
    try:
        with file.open("rb") as source:
            return source.read(FILE_BYTES_MAX)
    except OSError as error:
        raise CannotDo(f"cannot read {file}: {error.strerror}") from None


def pattern_of(text: str) -> re.Pattern[str]:
    """Compiles a comma-separated list of names or regular expressions. Raises CannotDo."""
    try:
        return re.compile(text.replace(",", "|"))
    except (re.error, OverflowError, RecursionError):
        raise CannotDo(f"{text} is an invalid regex.") from None


def cell(value: object) -> str:
    """Returns the text of a value in a table; a dash for None."""
    return NONE if value is None else str(value)


def padded(cells: Sequence[object], widths: Sequence[int]) -> str:
    """Joins cells with spaces, each padded to its width; cells beyond `widths` are not padded."""
    found = [str(cell).ljust(width) for cell, width in zip(cells, widths, strict=False)]
    return " ".join([*found, *(str(cell) for cell in cells[len(widths) :])])


def width(least: int, cells: Iterable[object]) -> int:
    """Returns the width of a column: that of its widest cell, at least `least`."""
    return max([least, *(len(str(cell)) for cell in cells)])
