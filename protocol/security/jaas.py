"""Login modules as Kafka's configs have them: `sasl.jaas.config`.

The form is that of a JAAS file without the name of the section: the class of a login module, a control flag, options
as `key=value`, and a semicolon. A word or a value with other characters is in quotes, where a backslash escapes.
Errors have Kafka's texts (JaasConfig), without the values, which are passwords.
"""

from __future__ import annotations

import re

from ..named import NamedTuple

_FLAGS = frozenset({"required", "requisite", "sufficient", "optional"})
_TOKEN = re.compile(
    r"""\s+|//[^\n]*|/\*.*?\*/"""
    r"""|(?P<quoted>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')"""
    r"""|(?P<word>[^\s;={}"']+)|(?P<mark>[;=])""",
    re.DOTALL,
)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t"}


class LoginModule(NamedTuple):
    """One entry: the class name of the login module, and its options."""

    name: str
    options: dict[str, str]


def parse_jaas(text: str) -> LoginModule:
    """Returns the only entry of a config. Raises ValueError, with one line for the user."""
    words = _words(text)
    if not words:
        raise ValueError("Login module not specified in JAAS config")
    if len(words) < 2 or words[1] == ";":
        raise ValueError("Login module control flag not specified in JAAS config")
    name, flag, *rest = words
    if flag.lower() not in _FLAGS:
        raise ValueError(f"Invalid login module control flag '{flag}' in JAAS config")
    options: dict[str, str] = {}
    position = 0
    while position < len(rest) and rest[position] != ";":
        if position + 2 >= len(rest) or rest[position + 1] != "=" or rest[position + 2] in (";", "="):
            raise ValueError(f"Value not specified for key '{rest[position]}' in JAAS config")
        options[_plain(rest[position])] = _plain(rest[position + 2])
        position += 3
    if position >= len(rest):
        raise ValueError("JAAS config entry not terminated by semi-colon")
    if position + 1 < len(rest):
        raise ValueError("JAAS config property contains more than one login module, should be 1 module")
    return LoginModule(_plain(name), options)


def _words(text: str) -> list[str]:
    """Returns the words and marks; a quoted word still has its quotes, so that no mark is meant by it."""
    found: list[str] = []
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise ValueError(f"the JAAS config has an unexpected character at position {position}")
        if match.lastgroup is not None:
            found.append(match[0])
        position = match.end()
    return found


def _plain(word: str) -> str:
    """Returns a word without its quotes and escapes."""
    if word[:1] in ('"', "'"):
        return _ESCAPED.sub(lambda match: _ESCAPES.get(match[1], match[1]), word[1:-1])
    return word
