"""Java properties files, read like `java.util.Properties.load` reads a stream and written like `store`.

`server.properties` and a data directory's `meta.properties` are such files.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

_BLANK = " \t\f"
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_ESCAPED = str.maketrans({letter: f"\\{short}" for short, letter in _ESCAPES.items()} | {c: f"\\{c}" for c in "\\=:#!"})


def parse_properties(data: bytes) -> dict[str, str]:
    """Returns the pairs of a file in ISO 8859-1 with `\\uxxxx` escapes; the last pair of a key wins.

    Raises ValueError for a malformed escape, the only error that the format has; a value, which may be a password, is
    not in its text.
    """
    pairs: dict[str, str] = {}
    for line in _logical_lines(data.decode("latin-1")):
        key, value = _split(line)
        key = _unescape(key, f"the key {key}")
        pairs[key] = _unescape(value, f"the value of {key}")
    return pairs


def format_properties(pairs: Mapping[str, str]) -> bytes:
    """Returns a file of `key=value` lines under an empty comment line, from which `parse_properties` reads `pairs`."""
    lines = [f"{_escape(key, blanks=True)}={_escape(value)}" for key, value in pairs.items()]
    return "\n".join(["#", *lines, ""]).encode("ascii")


def _logical_lines(text: str) -> Iterator[str]:
    """Yields lines without comments and blank lines; a line that ends in an odd number of backslashes continues."""
    pending = ""
    for natural in re.split(r"\r\n|\r|\n", text):
        line = natural.lstrip(_BLANK)
        if not pending and line[:1] in ("", "#", "!"):
            continue
        joined = pending + line
        if (len(joined) - len(joined.rstrip("\\"))) % 2:
            pending = joined[:-1]
        else:
            pending = ""
            yield joined
    if pending:  # a single backslash as last line is skipped; in Java that depends on the line's end
        yield pending


def _split(line: str) -> tuple[str, str]:
    """Splits a logical line at its first separator without a backslash: blanks, `=` or `:` among blanks."""
    position = 0
    while position < len(line) and line[position] not in "=:" + _BLANK:
        position += 2 if line[position] == "\\" else 1
    rest = line[position:].lstrip(_BLANK)
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(_BLANK)
    return line[:position], rest


def _unescape(text: str, what: str) -> str:
    if "\\" not in text:
        return text

    def replace(match: re.Match[str]) -> str:
        escaped = match[1]
        if escaped[:1] != "u":
            return _ESCAPES.get(escaped, escaped)
        if len(escaped) != 5:
            raise ValueError(f"malformed \\uxxxx escape in {what}")
        return chr(int(escaped[1:], 16))

    units = re.sub(r"\\(u[0-9a-fA-F]{4}|.|$)", replace, text, flags=re.DOTALL)
    # Java's strings are UTF-16: two escapes may be the halves of one character.
    return units.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


def _escape(text: str, *, blanks: bool = False) -> str:
    """Escapes a value, or with `blanks` a key: a value needs a backslash only before a blank at its start."""
    escaped = text.translate(_ESCAPED)
    escaped = escaped.replace(" ", "\\ ") if blanks else re.sub("^ ", r"\\ ", escaped)
    if escaped.isascii() and escaped.isprintable():
        return escaped
    units = memoryview(escaped.encode("utf-16-le", "surrogatepass")).cast("H")
    return "".join(chr(unit) if 0x20 <= unit <= 0x7E else f"\\u{unit:04X}" for unit in units)
