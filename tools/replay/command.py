"""`ottla replay`: sends the requests of a recording to a broker and reports different responses.

Owns the flags and the exit code: 0 if every difference has an explanation, 1 if one has none, 2 with one line on stderr
for an unreadable recording, an unreachable broker or wrong arguments. Not related to `ottla pipeline replay`, which
sends the records of a log again.
"""

from __future__ import annotations

import argparse
import asyncio
import math
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from ...client.net.errors import ConfigError
from ...client.net.options import ClientOptions
from ...protocol.arguments import Parser, add_bootstrap, add_command_config
from ...protocol.mistakes import complain
from ..command_line import printing, security_options
from .output import write
from .player import PATIENCE_SECONDS, PlayOptions
from .runner import CannotRun, Result
from .runner import replay as run_replay
from .target import Address, Security

DIFFERENT = 1
PATIENCE_MAX = 3600.0


def replay(arguments: Sequence[str]) -> int:
    """`ottla replay`: plays the recording and returns the exit code."""
    parser = Parser(
        prog="ottla replay",
        description="Send the requests of a recording to a broker, and report different responses.",
        allow_abbrev=False,
    )
    parser.add_argument("recording", metavar="FILE", help="a recording made by --record: FILE.jsonl or FILE.pcapng")
    add_bootstrap(parser, type=address, required=True, help="the broker to send the requests to")
    add_command_config(parser)
    add_play_flags(parser)
    add_flags(parser)
    args = parser.parse_args(list(arguments))
    options = play_options(args, security(parser, args.command_config))
    return compared(
        parser.prog, args, lambda: run_replay(args.recording, args.bootstrap_server, options, releases(args))
    )


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of the comparison."""
    parser.add_argument(
        "--release",
        nargs=2,
        metavar=("X", "Y"),
        help="the releases of both sides, which explain differences (default: detected)",
    )
    parser.add_argument("--all", action="store_true", help="also print explained differences")
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def add_play_flags(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of the playback."""
    parser.add_argument(
        "--translate", action="store_true", help="send a request in the nearest served version if its own is not served"
    )
    parser.add_argument(
        "--timing", action="store_true", help="keep the recorded pauses (default: as fast as the order allows)"
    )
    parser.add_argument(
        "--patience",
        type=_seconds,
        metavar="SECONDS",
        default=PATIENCE_SECONDS,
        help=f"timeout of a response (default: {PATIENCE_SECONDS:g})",
    )


def security(parser: Parser, file: str | None) -> Security:
    """Returns the login and TLS in a file of `--command-config`. Exits with a usage error."""
    try:
        options = ClientOptions(**security_options(parser, file))
        return Security(options.login, options.tls())
    except ConfigError as error:
        parser.error(f"{file}: {error}")


def play_options(args: argparse.Namespace, secured: Security) -> PlayOptions:
    """Returns the options of the playback."""
    return PlayOptions(patience_s=args.patience, keep_timing=args.timing, translate=args.translate, security=secured)


def releases(args: argparse.Namespace) -> tuple[str, str] | None:
    """Returns the releases of --release, or None."""
    return (args.release[0], args.release[1]) if args.release else None


def compared(program: str, args: argparse.Namespace, run: Callable[[], Coroutine[Any, Any, Result]]) -> int:
    """Runs a comparison, prints the result and returns the exit code."""
    try:
        result = asyncio.run(run())
    except CannotRun as error:
        return complain(program, error)
    found = result.comparison
    code = printing(program, lambda out: _printed(out, result, args))
    return code or (0 if found.is_same else DIFFERENT)


def _printed(out: Callable[[str], object], result: Result, args: argparse.Namespace) -> int:
    write(out, result.comparison, result.sides, result.notes, as_json=args.json, everything=args.all)
    return 0


def is_address(text: str) -> bool:
    """Returns whether an argument is HOST:PORT and not a file."""
    host, _, port = text.rpartition(":")
    return bool(host) and "/" not in text and port.isascii() and port.isdigit() and len(port) < 6


def address(text: str) -> Address:
    """Parses HOST:PORT; an IPv6 address is in brackets. Raises ArgumentTypeError."""
    if not is_address(text) or not 0 < int(text.rpartition(":")[2]) < 65536:
        raise argparse.ArgumentTypeError(f"{text!r} is not HOST:PORT")
    host, _, port = text.rpartition(":")
    return host.removeprefix("[").removesuffix("]"), int(port)


def _seconds(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not 0 < found <= PATIENCE_MAX:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds above 0 and up to {PATIENCE_MAX:g}")
    return found
