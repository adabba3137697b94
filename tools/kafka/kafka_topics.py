"""`kafka-topics.sh` of the image: `ottla topics` by the name and with the exit codes of Kafka's tool.

Exit codes are Kafka's: 1 for every failure. What the cluster refuses is told on stdout, as Kafka's tool does, mistakes
in flags on stderr.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from ...protocol.mistakes import FAILED
from ..interrupted import INTERRUPTED
from .admin_command import Out, parsed, run_admin
from .topics import act, check, topics_parser

PROGRAM = "kafka-topics"


def main(arguments: Sequence[str] | None = None) -> int:
    """The tool: its exit code."""
    parser = topics_parser(PROGRAM)
    parser.set_defaults(bootstrap_server=None)
    try:
        asked = parsed(parser, sys.argv[1:] if arguments is None else arguments, check)
        if not asked.bootstrap_server:
            parser.error("--bootstrap-server must be specified")
    except SystemExit as end:
        return FAILED if end.code else 0
    try:
        return run_admin(PROGRAM, asked, act, failed=_failed)
    except KeyboardInterrupt:
        return INTERRUPTED


def _failed(out: Out, text: str) -> None:
    out.write(f"Error while executing topic command : {text}\n")
    out.code = FAILED


if __name__ == "__main__":
    sys.exit(main())
