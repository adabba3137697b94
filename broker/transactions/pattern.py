"""Regular expressions over transactional ids, as ListTransactions sends them (KIP-1152), and those of client metrics.

Kafka matches them with RE2, which takes time in proportion to the text, whatever the expression; Python's own may take
for ever, and with it the broker. So this is RE2's way: an automaton that is in all its states at once. Of RE2's syntax
there are literals, `.`, classes, groups, alternatives, repetitions, anchors, escapes, `\\Q...\\E`, `\\p` with general
categories, and the flags i, s and U; not there are word boundaries, scripts and the flag m.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

LENGTH_MAX = 1000
STATES_MAX = 5000
REPEAT_MAX = 1000  # RE2's
_REMEMBERED_MAX = 200_000  # states, in all sets of them that were reached

Matches: TypeAlias = Callable[[str], bool]
"""Whether a character is one of those meant."""


class BadPattern(ValueError):
    """What is wrong with an expression, or more than is done here."""


class _State(NamedTuple):
    """`of` is the character that leads on, None for none; `anchor` is where the text must be: at its start or end."""

    of: Matches | None
    next: list[int]
    anchor: str = ""


_CLASSES: dict[str, Matches] = {
    "d": lambda c: "0" <= c <= "9",
    "s": lambda c: c in "\t\n\f\r ",
    "w": lambda c: c == "_" or (c.isascii() and c.isalnum()),
}
_POSIX: dict[str, Matches] = {
    "alnum": lambda c: c.isascii() and c.isalnum(),
    "alpha": lambda c: c.isascii() and c.isalpha(),
    "ascii": str.isascii,
    "blank": lambda c: c in "\t ",
    "cntrl": lambda c: c < " " or c == "\x7f",
    "digit": _CLASSES["d"],
    "graph": lambda c: "!" <= c <= "~",
    "lower": lambda c: "a" <= c <= "z",
    "print": lambda c: " " <= c <= "~",
    "punct": lambda c: "!" <= c <= "~" and not c.isalnum(),
    "space": lambda c: c in "\t\n\v\f\r ",
    "upper": lambda c: "A" <= c <= "Z",
    "word": _CLASSES["w"],
    "xdigit": lambda c: c in "0123456789abcdefABCDEF",
}
_CONTROLS = {"a": "\a", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_ANCHORS = {"^": "start", "$": "end", "\\A": "start", "\\z": "end"}


def _negated(matches: Matches) -> Matches:
    return lambda c: not matches(c)


def _between(first: str, last: str) -> Matches:
    return lambda c: first <= c <= last


def _category(name: str) -> Matches:
    return lambda c: unicodedata.category(c).startswith(name)


_CATEGORIES = frozenset(
    "L Lu Ll Lt Lm Lo M Mn Mc Me N Nd Nl No P Pc Pd Ps Pe Pi Pf Po S Sm Sc Sk So Z Zs Zl Zp C Cc Cf Cs Co Cn".split()
)


def _unquoted(pattern: str) -> str:
    """With an escape for each character between \\Q and \\E."""
    made, at = [], 0
    while at < len(pattern):
        if pattern.startswith("\\Q", at):
            quoted = pattern[at + 2 :].partition("\\E")[0]
            made += [c if c.isalnum() or not c.isascii() else f"\\{c}" for c in quoted]
            at += 2 + len(quoted) + 2
        else:
            length = 2 if pattern[at] == "\\" else 1
            made.append(pattern[at : at + length])
            at += length
    return "".join(made)


class Pattern:
    """An expression, ready to match. Raises BadPattern."""

    def __init__(self, pattern: str) -> None:
        if len(pattern) > LENGTH_MAX:
            raise BadPattern(f"{len(pattern)} characters, more than {LENGTH_MAX}")
        self._text = _unquoted(pattern)
        self._at = 0
        self._states: list[_State] = []
        self._ignores_case = self._dot_takes_newline = False
        self._end = self._add(None)
        try:
            self._start = self._alternatives(self._end, 0)
        except RecursionError as error:
            raise BadPattern("nested too deeply") from error
        if self._at < len(self._text):
            raise BadPattern("an unexpected )")
        self._steps: dict[tuple[frozenset[int], str], frozenset[int]] = {}
        self._remembered = 0

    def fullmatch(self, text: str) -> bool:
        """Whether the whole text is what the expression means."""
        current = self._closure((self._start,), at_start=True, at_end=not text)
        for position, char in enumerate(text):
            last = position == len(text) - 1
            following = None if last else self._steps.get((current, char))
            if following is None:
                reached = [n for state in current if self._leads(state, char) for n in self._states[state].next]
                following = self._closure(reached, at_start=False, at_end=last)
                if not last and self._remembered < _REMEMBERED_MAX:
                    self._steps[current, char] = following
                    self._remembered += 1 + len(following)
            current = following
            if not current:
                return False
        return self._end in current

    def _leads(self, state: int, char: str) -> bool:
        of = self._states[state].of
        return of is not None and of(char)

    def _closure(self, states: list[int] | tuple[int, ...], *, at_start: bool, at_end: bool) -> frozenset[int]:
        """With those that need no character."""
        found: set[int] = set()
        waiting = list(states)
        while waiting:
            number = waiting.pop()
            if number in found:
                continue
            found.add(number)
            state = self._states[number]
            holds = {"": True, "start": at_start, "end": at_end}[state.anchor]
            if state.of is None and holds:
                waiting += state.next
        return frozenset(found)

    # -- from the text to states: each part is built in front of the state that follows it

    def _add(self, of: Matches | None, *following: int, anchor: str = "") -> int:
        if len(self._states) >= STATES_MAX:
            raise BadPattern("larger than is matched here")
        self._states.append(_State(of, list(following), anchor))
        return len(self._states) - 1

    def _peek(self, text: str) -> bool:
        return self._text.startswith(text, self._at)

    def _take(self, text: str) -> bool:
        found = self._peek(text)
        self._at += len(text) if found else 0
        return found

    def _next(self) -> str:
        if self._at == len(self._text):
            raise BadPattern("it ends too early")
        self._at += 1
        return self._text[self._at - 1]

    def _until(self, end: str) -> str:
        found = self._text.find(end, self._at)
        if found < 0:
            raise BadPattern(f"a missing {end}")
        part, self._at = self._text[self._at : found], found + len(end)
        return part

    def _alternatives(self, following: int, depth: int) -> int:
        if depth > 100:
            raise BadPattern("nested too deeply")
        flags = self._ignores_case, self._dot_takes_newline
        starts = [self._sequence(following, depth)]
        while self._take("|"):
            starts.append(self._sequence(following, depth))
        self._ignores_case, self._dot_takes_newline = flags
        return starts[0] if len(starts) == 1 else self._add(None, *starts)

    def _sequence(self, following: int, depth: int) -> int:
        """Its parts are read forwards and joined backwards, so each ends in a state of its own."""
        first = last = self._add(None)
        while self._at < len(self._text) and not (self._peek("|") or self._peek(")")):
            begin, flags = self._at, (self._ignores_case, self._dot_takes_newline)
            end = self._add(None)
            start = self._atom(end, depth)
            start, end = self._repeated(start, end, begin, flags, depth)
            self._states[last].next.append(start)
            last = end
        self._states[last].next.append(following)
        return first

    def _repeated(self, start: int, end: int, begin: int, flags: tuple[bool, bool], depth: int) -> tuple[int, int]:
        """The part from `start` to `end`, read from `begin` on, as often as is said behind it."""
        least, most = self._times()
        if (least, most) == (1, 1):
            return start, end
        behind = self._at
        parts = [(start, end)]
        for _ in range(max(least, most or 0, 1) - 1):  # the same text once more gives another copy
            self._at, (self._ignores_case, self._dot_takes_newline) = begin, flags
            copy_end = self._add(None)
            parts.append((self._atom(copy_end, depth), copy_end))
        self._at = behind
        final = self._add(None)
        if most == 0:
            return final, final
        for number, (part, part_end) in enumerate(parts):
            is_last = number == len(parts) - 1
            self._states[part_end].next.append(final if is_last else parts[number + 1][0])
            if number + 1 >= least and not is_last:
                self._states[part_end].next.append(final)
            if is_last and most is None:
                self._states[part_end].next.append(part)
        return (self._add(None, start, final) if least == 0 else start), final

    def _times(self) -> tuple[int, int | None]:
        least, most = 1, 1
        for sign, times in ("*", (0, None)), ("+", (1, None)), ("?", (0, 1)):
            if self._take(sign):
                least, most = times
                break
        else:
            if not self._peek("{"):
                return 1, 1
            found = self._text.find("}", self._at)
            low, comma, high = self._text[self._at + 1 : max(found, self._at + 1)].partition(",")
            if found < 0 or not low.isdecimal() or not (high.isdecimal() or not high):
                return 1, 1  # a brace like any other character
            if len(low) > 4 or len(high) > 4:
                raise BadPattern("repeated too often")
            least, most = int(low), (int(high) if high else None) if comma else int(low)
            if least > REPEAT_MAX or (most is not None and not least <= most <= REPEAT_MAX):
                raise BadPattern("repeated too often, or a range that is none")
            self._at = found + 1
        self._take("?")  # how much of several matches is taken means nothing to a whole one
        if self._at < len(self._text) and self._text[self._at] in "*+?":
            raise BadPattern("repeated twice")
        return least, most

    def _atom(self, following: int, depth: int) -> int:
        if self._take("("):
            return self._group(following, depth)
        for sign, anchor in _ANCHORS.items():
            if self._take(sign):
                return self._add(None, following, anchor=anchor)
        if self._take("."):
            takes_all = self._dot_takes_newline
            return self._add(lambda c: takes_all or c != "\n", following)
        if self._take("["):
            return self._add(self._class(), following)
        if self._peek("*") or self._peek("+") or self._peek("?"):
            raise BadPattern("nothing to repeat")
        return self._add(self._escape() if self._take("\\") else self._char(self._next()), following)

    def _group(self, following: int, depth: int) -> int:
        flags = self._ignores_case, self._dot_takes_newline
        if self._take("?"):
            if self._take("P<") or self._take("<"):
                if not self._until(">").isidentifier():
                    raise BadPattern("a name that is none")
            else:
                on = True
                while not self._take(":"):
                    flag = self._next()
                    if flag == ")":  # up to the end of the group around it
                        return following
                    if flag == "-" and on:
                        on = False
                    elif flag == "i":
                        self._ignores_case = on
                    elif flag == "s":
                        self._dot_takes_newline = on
                    elif flag != "U":
                        raise BadPattern(f"(?{flag} means nothing here")
        start = self._alternatives(following, depth + 1)
        if not self._take(")"):
            raise BadPattern("a missing )")
        self._ignores_case, self._dot_takes_newline = flags
        return start

    def _char(self, char: str) -> Matches:
        if not self._ignores_case:
            return lambda c: c == char
        folded = char.casefold()
        return lambda c: c.casefold() == folded

    def _escape(self) -> Matches:
        char = self._next()
        if char.lower() in _CLASSES:
            found = _CLASSES[char.lower()]
            return found if char.islower() else _negated(found)
        if char in "pP":
            name = self._until("}") if self._take("{") else self._next()
            inverted = name.startswith("^")
            name = name.removeprefix("^")
            if name not in _CATEGORIES:
                raise BadPattern(f"\\p{{{name}}} is no category")
            return _negated(_category(name)) if (char == "P") != inverted else _category(name)
        return self._char(self._escaped(char))

    def _escaped(self, char: str) -> str:
        """The character that an escape means."""
        if char in _CONTROLS:
            return _CONTROLS[char]
        if char == "x":
            digits = self._until("}") if self._take("{") else self._next() + self._next()
            if not (0 < len(digits) <= 6 and all(c in "0123456789abcdefABCDEF" for c in digits)):
                raise BadPattern("\\x without a number")
            if int(digits, 16) > 0x10FFFF:
                raise BadPattern("\\x beyond the last character")
            return chr(int(digits, 16))
        if char.isascii() and char.isalnum():
            raise BadPattern(f"\\{char} means nothing here")
        return char

    def _class(self) -> Matches:
        inverted = self._take("^")
        parts: list[Matches] = []
        while not (parts and self._take("]")):
            if self._take("[:"):
                name = self._until(":]")
                found = _POSIX.get(name.removeprefix("^"))
                if found is None:
                    raise BadPattern(f"[:{name}:] is no class")
                parts.append(_negated(found) if name.startswith("^") else found)
            elif self._peek("\\") and self._text[self._at + 1 : self._at + 2].lower() in {*_CLASSES, "p"}:
                self._at += 1
                parts.append(self._escape())
            else:
                parts.append(self._range())
        folded = self._ignores_case

        def matches(c: str) -> bool:
            cases = {c, c.lower(), c.upper()} if folded else (c,)
            return any(part(one) for part in parts for one in cases) is not inverted

        return matches

    def _range(self) -> Matches:
        first = self._class_char()
        if not self._peek("-") or self._text[self._at + 1 : self._at + 2] in ("]", ""):
            return _between(first, first)
        self._at += 1
        last = self._class_char()
        if last < first:
            raise BadPattern("a range that is none")
        return _between(first, last)

    def _class_char(self) -> str:
        char = self._next()
        return self._escaped(self._next()) if char == "\\" else char
