"""`ottla replay`: sends the requests of a recording to a broker and reports different responses. `ottla diff`: compares
two recordings, or the responses of two brokers to one recording.

Owns the flags and the exit code: 0 if every difference has an explanation, 1 if one has none, 2 with one line on stderr
for an unreadable recording, an unreachable broker or wrong arguments. Not related to `ottla pipeline replay`, which
sends the records of a log again.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from ...client.net.errors import ConfigError
from ...client.net.options import ClientOptions
from ...protocol.arguments import Parser, add_bootstrap, add_command_config
from ...protocol.mistakes import complain
from ..command_line import print_text, seconds, security_options
from .output import document, text
from .player import PATIENCE_SECONDS, PlayOptions
from .runner import CannotRun, Result, diff_files, diff_live
from .runner import replay as run_replay
from .target import Address, Security, Unreachable

DIFFERENT = 1


def replay(arguments: Sequence[str]) -> int:
    parser = Parser(
        prog="ottla replay",
        description="Send the requests of a recording to a broker, and report different responses.",
        allow_abbrev=False,
    )
    parser.add_argument("recording", metavar="FILE", help="a recording made by --record: FILE.jsonl or FILE.pcapng")
    add_bootstrap(parser, type=_address, required=True, help="the broker to send the requests to")
    add_command_config(parser)
    _add_flags(parser)
    args = parser.parse_args(list(arguments))
    options = _play_options(parser, args, args.command_config)
    return _compared(
        parser.prog, args, lambda: run_replay(args.recording, args.bootstrap_server, options, args.release)
    )


def diff(arguments: Sequence[str]) -> int:
    parser = Parser(
        prog="ottla diff",
        description="Compare the responses of two recordings, or of two brokers to the requests of one recording.",
        allow_abbrev=False,
    )
    parser.add_argument("left", metavar="A", help="a recording, or HOST:PORT of a broker")
    parser.add_argument("right", metavar="B", help="the other recording or broker; both must be of the same kind")
    parser.add_argument("--recording", metavar="FILE", help="the recording to send to both brokers")
    both = "a properties file with the login and TLS of both brokers, or of A alone: security.protocol, sasl.*, ssl.*"
    add_command_config(parser, help=both)
    add_command_config(parser, "--command-config-b", help="the file of B, if it is another one")
    _add_flags(parser)
    args = parser.parse_args(list(arguments))
    live = [_is_address(text) for text in (args.left, args.right)]
    if live[0] != live[1]:
        parser.error("expected two recordings or two brokers: `ottla replay` compares a recording with a broker")
    if live[0] != (args.recording is not None):
        parser.error(
            "two brokers need --recording FILE" if live[0] else "--recording cannot be combined with two recordings"
        )
    if not live[0] and (args.command_config, args.command_config_b) != (None, None):
        parser.error("--command-config needs two brokers")
    return _compared(parser.prog, args, lambda: _run(parser, args, live[0]))


async def _run(parser: Parser, args: argparse.Namespace, is_live: bool) -> Result:
    if not is_live:
        return diff_files(args.left, args.right, args.release)
    try:
        both = _address(args.left), _address(args.right)
    except argparse.ArgumentTypeError as error:
        parser.error(str(error))
    files = args.command_config, args.command_config_b or args.command_config
    left, right = (_play_options(parser, args, file) for file in files)
    return await diff_live(args.recording, both, (left, right), args.release)


def _add_flags(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of the playback, and of the comparison."""
    parser.add_argument(
        "--translate", action="store_true", help="send a request in the nearest served version if its own is not served"
    )
    parser.add_argument(
        "--timing", action="store_true", help="keep the recorded pauses (default: as fast as the order allows)"
    )
    parser.add_argument(
        "--patience",
        type=seconds(0.001, 3600),
        metavar="SECONDS",
        default=PATIENCE_SECONDS,
        help=f"timeout of a response (default: {PATIENCE_SECONDS:g})",
    )
    parser.add_argument(
        "--release",
        nargs=2,
        metavar=("X", "Y"),
        help="the releases of both sides, which explain differences (default: detected)",
    )
    parser.add_argument("--all", action="store_true", help="also print explained differences")
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def _play_options(parser: Parser, args: argparse.Namespace, file: str | None) -> PlayOptions:
    """Returns the options of the playback, with the login and TLS in a file of `--command-config`. Exits with a usage
    error."""
    try:
        options = ClientOptions(**security_options(parser, file))
        secured = Security(options.login, options.tls())
    except ConfigError as error:
        parser.error(f"{file}: {error}")
    return PlayOptions(patience_s=args.patience, keep_timing=args.timing, translate=args.translate, security=secured)


def _compared(program: str, args: argparse.Namespace, run: Callable[[], Coroutine[Any, Any, Result]]) -> int:
    """Runs a comparison, prints the result and returns the exit code."""
    try:
        result = asyncio.run(run())
    except (CannotRun, Unreachable) as error:
        return complain(program, error)
    found = result.comparison, result.sides, result.notes
    lines = [json.dumps(document(*found), indent=2), "\n"] if args.json else text(*found, everything=args.all)
    code = print_text(program, "".join(lines))
    return code or (0 if result.comparison.is_same else DIFFERENT)


def _is_address(text: str) -> bool:
    """Returns whether an argument is HOST:PORT and not a file."""
    host, _, port = text.rpartition(":")
    return bool(host) and "/" not in text and port.isascii() and port.isdigit() and len(port) < 6


def _address(text: str) -> Address:
    """Parses HOST:PORT; an IPv6 address is in brackets. Raises ArgumentTypeError."""
    if not _is_address(text) or not 0 < int(text.rpartition(":")[2]) < 65536:
        raise argparse.ArgumentTypeError(f"{text!r} is not HOST:PORT")
    host, _, port = text.rpartition(":")
    return host.removeprefix("[").removesuffix("]"), int(port)
