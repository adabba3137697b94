"""`ottla replay`: a recording played against a broker, and where the answers differ.

Owns the flags and the exit code. Exit code 0 where no answer differs without an explanation, 1 where one does, 2 with
one line on stderr for a recording that cannot be read, a broker that is not there, or wrong usage. No kin of `ottla
pipeline replay`, which sends the records of a log again.
"""

from __future__ import annotations

import argparse
import asyncio
import math
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from ...protocol.arguments import Parser, add_bootstrap
from ...protocol.mistakes import complain
from ..command_line import printing
from .output import write
from .player import PATIENCE_SECONDS, PlayOptions
from .runner import CannotRun, Result
from .runner import replay as run_replay
from .target import Address

DIFFERENT = 1
PATIENCE_MAX = 3600.0


def replay(arguments: Sequence[str]) -> int:
    """`ottla replay`: the exit code."""
    parser = Parser(
        prog="ottla replay",
        description="Plays the requests of a recording against a broker, and shows where the answers differ.",
        allow_abbrev=False,
    )
    parser.add_argument("recording", metavar="FILE", help="made by --record: JSON lines or pcapng, by its ending")
    add_bootstrap(parser, type=address, required=True, help="the broker to play to")
    add_play_flags(parser)
    add_flags(parser)
    asked = parser.parse_args(list(arguments))
    return compared(
        parser.prog,
        asked,
        lambda: run_replay(asked.recording, asked.bootstrap_server, play_options(asked), releases(asked)),
    )


def add_flags(parser: argparse.ArgumentParser) -> None:
    """The flags of whatever compares."""
    parser.add_argument(
        "--release",
        nargs=2,
        metavar=("X", "Y"),
        help="the releases of both sides, from whose table differences are foretold (default: as they tell)",
    )
    parser.add_argument("--all", action="store_true", help="print also the differences that are explained")
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def add_play_flags(parser: argparse.ArgumentParser) -> None:
    """The flags of whatever plays."""
    parser.add_argument(
        "--translate", action="store_true", help="send a request in the nearest version where its own is not served"
    )
    parser.add_argument("--timing", action="store_true", help="keep the recorded pauses; else as fast as order allows")
    parser.add_argument(
        "--patience",
        type=_seconds,
        metavar="SECONDS",
        default=PATIENCE_SECONDS,
        help=f"how long an answer is waited for (default {PATIENCE_SECONDS:g})",
    )


def play_options(asked: argparse.Namespace) -> PlayOptions:
    """How it is played."""
    return PlayOptions(patience_s=asked.patience, keep_timing=asked.timing, translate=asked.translate)


def releases(asked: argparse.Namespace) -> tuple[str, str] | None:
    """Both sides' releases, as far as they are said."""
    return (asked.release[0], asked.release[1]) if asked.release else None


def compared(program: str, asked: argparse.Namespace, run: Callable[[], Coroutine[Any, Any, Result]]) -> int:
    """Runs, and prints what was found; the exit code."""
    try:
        result = asyncio.run(run())
    except CannotRun as error:
        return complain(program, error)
    found = result.comparison
    code = printing(program, lambda out: _printed(out, result, asked))
    return code or (0 if found.is_same else DIFFERENT)


def _printed(out: Callable[[str], object], result: Result, asked: argparse.Namespace) -> int:
    write(out, result.comparison, result.sides, result.notes, as_json=asked.json, everything=asked.all)
    return 0


def is_address(text: str) -> bool:
    """Whether a word is HOST:PORT rather than a file."""
    host, _, port = text.rpartition(":")
    return bool(host) and "/" not in text and port.isascii() and port.isdigit() and len(port) < 6


def address(text: str) -> Address:
    """HOST:PORT; a host of IPv6 has brackets around it."""
    if not is_address(text) or not 0 < int(text.rpartition(":")[2]) < 65536:
        raise argparse.ArgumentTypeError(f"{text!r} is no HOST:PORT")
    host, _, port = text.rpartition(":")
    return host.removeprefix("[").removesuffix("]"), int(port)


def _seconds(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not 0 < found <= PATIENCE_MAX:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds from 0 to {PATIENCE_MAX:g}")
    return found
