"""Regular expressions that clients send, matched by RE2 in time linear in the text.

Kafka's broker matches ListTransactions' pattern (KIP-1152) and consumer groups' topic patterns (KIP-848) with RE2/J.
Client metrics' selectors (KIP-714) are Java expressions in Kafka; here they are RE2's too, because a backtracking
expression over a client id chosen for it could block the event loop for minutes.
"""

from __future__ import annotations

import re
from typing import Any

LENGTH_MAX = 1000
"""Characters of an expression. RE2's time grows with the expression's size as well."""

_REPETITION = re.compile(r"\{(?:0|[1-9][0-9]*)(?:,(?:0|[1-9][0-9]*)?)?\}")
_LONG_COUNT = re.compile("[1-9][0-9]{9,}")


class BadPattern(ValueError):
    """An expression that RE2 refuses, or one longer than LENGTH_MAX; the message names the problem."""


class Pattern:
    """A compiled regular expression. Raises BadPattern."""

    def __init__(self, pattern: str) -> None:
        if len(pattern) > LENGTH_MAX:
            raise BadPattern(f"the expression has {len(pattern)} characters, more than {LENGTH_MAX}")
        re2 = _re2()
        options = re2.Options()
        options.log_errors = False  # RE2 writes them to stderr
        options.never_capture = True  # groups need RE2's slower automaton, and nothing reads them
        try:
            bounded = _with_bounded_counts(pattern)
            if bounded != pattern:
                re2.compile(bounded.encode(), options)
            self._compiled = re2.compile(pattern.encode(), options)
        except UnicodeEncodeError as error:
            raise BadPattern(f"the expression is not valid Unicode: {error.reason}") from error
        except re2.error as error:
            (problem,) = error.args
            raise BadPattern(problem.decode(errors="replace")) from error

    def fullmatch(self, text: str) -> bool:
        """Returns whether the expression matches the whole text."""
        return self._compiled.fullmatch(text.encode()) is not None


def _re2() -> Any:
    import re2  # pyright: ignore[reportMissingTypeStubs]  imported late: 2.4 MB that few clients need; without types

    return re2


def _with_bounded_counts(pattern: str) -> str:
    """Returns the expression with counts of 10 digits or more as 999999999.

    RE2 refuses a count above 1000, but reads `{` before one of 10 digits as a character, where RE2/J refuses the
    expression. Whether the braces repeat at all (they do not in a class, after a backslash or between \\Q and \\E) is
    left to RE2.
    """
    return _REPETITION.sub(lambda found: _LONG_COUNT.sub("999999999", found[0]), pattern)
