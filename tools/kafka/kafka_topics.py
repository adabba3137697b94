"""`kafka-topics.sh` of the image: `ottla topics` with the name and the exit codes of Kafka's tool.

The exit code is 1 for every failure. As in Kafka's tool, errors of the cluster are printed on stdout, and errors of the
arguments on stderr.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from ...protocol.mistakes import FAILED
from ..main import INTERRUPTED
from .admin_command import Out, parsed, run_admin
from .topics import ACTIONS, act, check, topics_parser

PROGRAM = "kafka-topics"


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the tool and returns its exit code."""
    parser = topics_parser(PROGRAM)
    parser.set_defaults(bootstrap_server=None)
    try:
        args = parsed(parser, sys.argv[1:] if arguments is None else arguments, ACTIONS, check)
        if not args.bootstrap_server:
            parser.error("--bootstrap-server must be specified")
    except SystemExit as end:
        return FAILED if end.code else 0
    try:
        return run_admin(PROGRAM, args, act, failed=_failed)
    except KeyboardInterrupt:
        return INTERRUPTED


def _failed(out: Out, text: str) -> None:
    out.write(f"Error while executing topic command : {text}\n")
    out.code = FAILED


if __name__ == "__main__":
    sys.exit(main())
