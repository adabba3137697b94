"""Checks a history for violations: `python tests/history/check.py FILE`. The exit code is 1 if there are any.
`-v` also prints the content of the lines that show a violation.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from ottla_testing.history.checker import check
from ottla_testing.history.history import BadHistory

MOST_LINES = 200


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="check a history for violations")
    parser.add_argument("file", type=Path)
    parser.add_argument("-v", "--verbose", action="store_true", help="also print the lines of the history")
    options = parser.parse_args(arguments)
    started = time.monotonic()
    try:
        report = check(options.file)
    except (BadHistory, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    print(report)
    print(f"looked through in {time.monotonic() - started:.1f} s")
    if options.verbose and report.violations:
        wanted = set(sorted({line for violation in report.violations for line in violation.lines})[:MOST_LINES])
        with options.file.open() as file:
            for number, text in enumerate(file, 1):
                if number in wanted:
                    print(f"{number}: {text.rstrip()[:2000]}")
    return 1 if report.violations else 0


if __name__ == "__main__":
    sys.exit(main())
