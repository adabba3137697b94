"""Regular expressions of clients, and over names that clients choose, matched by RE2 in time linear in the text.

Kafka's broker matches ListTransactions' pattern (KIP-1152) and consumer groups' topic patterns (KIP-848) with RE2/J.
Client metrics' selectors (KIP-714) are Java expressions in Kafka; here they are RE2's too, because a backtracking
expression over a client id chosen for it could block the event loop for minutes. The same holds for the rules that make
principals of Kerberos names.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

LENGTH_MAX = 1000
"""Characters of an expression. RE2's time grows with the expression's size as well."""

_REPETITION = re.compile(r"\{(?:0|[1-9][0-9]*)(?:,(?:0|[1-9][0-9]*)?)?\}")
_LONG_COUNT = re.compile("[1-9][0-9]{9,}")
_REFERENCE = re.compile(r"\\(?P<escaped>.)|\$(?P<number>[0-9]+)")


class BadPattern(ValueError):
    """An expression that RE2 refuses, or one longer than LENGTH_MAX; the message names the problem."""


class Pattern:
    """A compiled regular expression. Raises BadPattern."""

    def __init__(self, pattern: str, has_groups: bool = False) -> None:
        """`has_groups` is for `replace`."""
        if len(pattern) > LENGTH_MAX:
            raise BadPattern(f"the expression has {len(pattern)} characters, more than {LENGTH_MAX}")
        re2 = _re2()
        options = re2.Options()
        options.log_errors = False  # RE2 writes them to stderr
        options.never_capture = not has_groups  # groups need RE2's slower automaton
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

    def replace(self, replacement: str, text: str, is_repeated: bool) -> str:
        """Returns the text with its first match replaced, or all of them; `replacement` is Java's, with `$1`."""

        def filled(match: Any) -> str:
            return java_replacement(replacement, (match[0], *match.groups()))

        # As text: on bytes RE2 finds empty matches within a character.
        return self._compiled.sub(filled, text, 0 if is_repeated else 1)


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


def java_replacement(replacement: str, groups: Sequence[str | None]) -> str:
    """Fills `$1` of a replacement in as Java does, from the whole match and its groups: a number with too many digits
    is cut, one without a group is a text."""

    def filled(reference: re.Match[str]) -> str:
        if reference["escaped"]:
            return reference["escaped"]
        digits, rest = reference["number"], ""
        while len(digits) > 1 and int(digits) >= len(groups):
            digits, rest = digits[:-1], digits[-1] + rest
        return (groups[int(digits)] or "") + rest if int(digits) < len(groups) else f"${digits}{rest}"

    return _REFERENCE.sub(filled, replacement)
