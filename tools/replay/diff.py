"""`ottla diff`: two recordings beside each other, or two brokers under one recording.

Owns the flags. Exit codes as of `ottla replay`.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from ...protocol.arguments import Parser
from .command import add_flags, add_play_flags, address, compared, is_address, play_options, releases
from .runner import Result, diff_files, diff_live


def diff(arguments: Sequence[str]) -> int:
    """`ottla diff`: the exit code."""
    parser = Parser(
        prog="ottla diff",
        description="Where the answers of two recordings differ, or those of two brokers to one recording's requests.",
        allow_abbrev=False,
    )
    parser.add_argument("left", metavar="A", help="a recording, or HOST:PORT of a broker")
    parser.add_argument("right", metavar="B", help="the other: a recording as well, or a broker as well")
    parser.add_argument("--recording", metavar="FILE", help="what is played to both brokers")
    add_play_flags(parser)
    add_flags(parser)
    asked = parser.parse_args(list(arguments))
    live = [is_address(text) for text in (asked.left, asked.right)]
    if live[0] != live[1]:
        parser.error("a recording and a broker are compared by ottla replay FILE --bootstrap-server HOST:PORT")
    if live[0] != (asked.recording is not None):
        parser.error("two brokers need --recording FILE" if live[0] else "two recordings need no --recording")
    return compared(parser.prog, asked, lambda: _run(parser, asked, live[0]))


async def _run(parser: Parser, asked: argparse.Namespace, is_live: bool) -> Result:
    if not is_live:
        return diff_files(asked.left, asked.right, releases(asked))
    try:
        both = address(asked.left), address(asked.right)
    except argparse.ArgumentTypeError as error:
        parser.error(str(error))
    return await diff_live(asked.recording, both, play_options(asked), releases(asked))
