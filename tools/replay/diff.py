"""`ottla diff`: compares two recordings, or the responses of two brokers to one recording.

Owns the flags. The exit codes are those of `ottla replay`.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from ...protocol.arguments import Parser, add_command_config
from .command import add_flags, add_play_flags, address, compared, is_address, play_options, releases, security
from .runner import Result, diff_files, diff_live


def diff(arguments: Sequence[str]) -> int:
    """`ottla diff`: prints the differences and returns the exit code."""
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
    add_play_flags(parser)
    add_flags(parser)
    args = parser.parse_args(list(arguments))
    live = [is_address(text) for text in (args.left, args.right)]
    if live[0] != live[1]:
        parser.error("expected two recordings or two brokers: `ottla replay` compares a recording with a broker")
    if live[0] != (args.recording is not None):
        parser.error(
            "two brokers need --recording FILE" if live[0] else "--recording cannot be combined with two recordings"
        )
    if not live[0] and (args.command_config, args.command_config_b) != (None, None):
        parser.error("--command-config needs two brokers")
    return compared(parser.prog, args, lambda: _run(parser, args, live[0]))


async def _run(parser: Parser, args: argparse.Namespace, is_live: bool) -> Result:
    if not is_live:
        return diff_files(args.left, args.right, releases(args))
    try:
        both = address(args.left), address(args.right)
    except argparse.ArgumentTypeError as error:
        parser.error(str(error))
    files = args.command_config, args.command_config_b or args.command_config
    left, right = (play_options(args, security(parser, file)) for file in files)
    return await diff_live(args.recording, both, (left, right), releases(args))
