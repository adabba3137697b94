"""`ottla top`: a live view of a running broker, from its control plane.

Owns the command line. The screen needs the extra `top`; `--once`, `--json` and output to a pipe or file do not. Exit
codes: 0; 1 with one line on stderr if `--once` or `--json` finds no control plane; 2 with one line for wrong arguments
and for a missing extra.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence

from ...broker.admin_api.overview import DEFAULT_LIMIT, MAX_LIMIT
from ...protocol.arguments import Parser
from ...protocol.mistakes import FAILED, complain
from ..command_line import number, print_text, seconds
from ..control_flags import add_control_flags
from ..http_client import Client, Unreachable, Wrong, control_client
from ..terminal import is_terminal
from .rates import History, Overview
from .tables import page

TIMEOUT_SECONDS = 5.0
INTERVAL_SECONDS = 1.0
MISSING = "the screen needs textual: pip install 'ottla[top]' (--once prints the tables once without it)"


def top(arguments: Sequence[str], environ: Mapping[str, str] | None = None) -> int:
    """`ottla top`: runs the screen or prints the tables once, and returns the exit code."""
    parser = top_parser()
    given = parser.parse_args(list(arguments))
    try:
        client = control_client(given, os.environ if environ is None else environ, TIMEOUT_SECONDS)
    except Wrong as error:
        return complain(parser.prog, error)

    def fetch(contains: str) -> Overview:
        return client.request("GET", "overview", query={"limit": given.limit, "contains": contains or None})

    if given.once or given.json or not (is_terminal(sys.stdin) and is_terminal(sys.stdout)):
        return _once(parser.prog, given, client, fetch)
    try:
        from .app import Top
    except ImportError as error:
        if (error.name or "").partition(".")[0] not in ("textual", "rich"):
            raise
        return complain(parser.prog, MISSING)
    app = Top(fetch, client.url, given.interval, given.filter)
    app.run()
    return app.return_code or 0


def top_parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="ottla top",
        description="Show the activity of a broker that runs with --control: topics and groups with rates, producers, "
        "clients, slow requests. Press ? on the screen for the keys.",
        allow_abbrev=False,
    )
    add_control_flags(parser)
    parser.add_argument(
        "--interval",
        type=seconds(0.1, 3600),
        default=INTERVAL_SECONDS,
        metavar="SECONDS",
        help="time between updates (default: 1)",
    )
    parser.add_argument("--filter", default="", metavar="TEXT", help="only items whose name contains this")
    parser.add_argument(
        "--limit",
        type=number(MAX_LIMIT, least=1),
        default=DEFAULT_LIMIT,
        metavar="N",
        help=f"maximum lines of each list (default: {DEFAULT_LIMIT})",
    )
    parser.add_argument("--once", action="store_true", help="print the tables once, with rates over the interval")
    parser.add_argument("--json", action="store_true", help="print them as JSON")
    return parser


def _once(program: str, given: argparse.Namespace, client: Client, fetch: Callable[[str], Overview]) -> int:
    history = History()
    try:
        history.add(fetch(given.filter))
        time.sleep(given.interval)
        shown = history.add(fetch(given.filter))
        text = json.dumps(shown, indent=2, ensure_ascii=False) + "\n" if given.json else "".join(page(shown))
    except Wrong as error:
        return complain(program, error)
    except Unreachable as error:
        return complain(program, error, FAILED)
    except (AttributeError, LookupError, TypeError, ValueError):  # the response of another server or version
        return complain(program, client.strange(), FAILED)
    return print_text(program, text)
