"""Login modules as Kafka's configs have them: `sasl.jaas.config`, and as the file of `java.security.auth.login.config`.

The form is that of a JAAS file, in a config without the name of the section: the class of a login module, a control
flag, options as `key=value`, and a semicolon. A word or a value with other characters is in quotes, where a backslash
escapes. Errors have Kafka's texts (JaasConfig), without the values, which are passwords.
"""

from __future__ import annotations

import re

from ..named import NamedTuple

_FLAGS = frozenset({"required", "requisite", "sufficient", "optional"})
_TOKEN = re.compile(
    r"""\s+|//[^\n]*|/\*.*?\*/"""
    r"""|(?P<quoted>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')"""
    r"""|(?P<word>[^\s;={}"']+)|(?P<mark>[;={}])""",
    re.DOTALL,
)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_MARKS = frozenset(";={}")
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t"}


class LoginModule(NamedTuple):
    """One entry: the class name of the login module, and its options."""

    name: str
    options: dict[str, str]


def parse_jaas(text: str) -> LoginModule:
    """Returns the only entry of a config. Raises ValueError, with one line for the user."""
    words = _words(text, "JAAS config")
    if not words:
        raise ValueError("Login module not specified in JAAS config")
    found, left = _entry(words)
    if left:
        raise ValueError("JAAS config property contains more than one login module, should be 1 module")
    return found


def parse_jaas_file(text: str) -> dict[str, list[LoginModule]]:
    """Returns the entries of each section, `NAME { ENTRIES };`. Raises ValueError, with one line for the user."""
    words = _words(text, "JAAS file")
    found: dict[str, list[LoginModule]] = {}
    while words:
        name, left = _plain(words[0]), words[2:]
        if words[0] in _MARKS or words[1:2] != ["{"]:
            raise ValueError("a section of the JAAS file does not begin with its name and {")
        entries = found[name] = []
        while left and left[0] != "}":
            entry, left = _entry(left)
            entries.append(entry)
        if left[:2] != ["}", ";"]:
            raise ValueError(f"the section {name!r:.100} of the JAAS file does not end with }};")
        words = left[2:]
    return found


def _entry(words: list[str]) -> tuple[LoginModule, list[str]]:
    """Returns an entry and the words after it."""
    if len(words) < 2 or words[1] == ";":
        raise ValueError("Login module control flag not specified in JAAS config")
    name, flag, *rest = words
    if flag.lower() not in _FLAGS:
        raise ValueError(f"Invalid login module control flag '{flag}' in JAAS config")
    options: dict[str, str] = {}
    position = 0
    while position < len(rest) and rest[position] != ";":
        if position + 2 >= len(rest) or rest[position + 1] != "=" or rest[position + 2] in _MARKS:
            raise ValueError(f"Value not specified for key '{rest[position]}' in JAAS config")
        options[_plain(rest[position])] = _plain(rest[position + 2])
        position += 3
    if position >= len(rest):
        raise ValueError("JAAS config entry not terminated by semi-colon")
    return LoginModule(_plain(name), options), rest[position + 1 :]


def format_jaas(module: LoginModule) -> str:
    """Returns the text of an entry for a config."""
    options = (f"{_quoted(key)}={_quoted(value)}" for key, value in module.options.items())
    return " ".join((module.name, "required", *options)) + ";"


def _quoted(text: str) -> str:
    """Returns a quoted word."""
    for char, escaped in (("\\", "\\\\"), ('"', '\\"'), *((mark, f"\\{name}") for name, mark in _ESCAPES.items())):
        text = text.replace(char, escaped)
    return f'"{text}"'


def _words(text: str, what: str) -> list[str]:
    """Returns the words and marks; a quoted word still has its quotes, so that no mark is meant by it."""
    found: list[str] = []
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise ValueError(f"the {what} has an unexpected character at position {position}")
        if match.lastgroup is not None:
            found.append(match[0])
        position = match.end()
    return found


def _plain(word: str) -> str:
    """Returns a word without its quotes and escapes."""
    if word[:1] in ('"', "'"):
        return _ESCAPED.sub(lambda match: _ESCAPES.get(match[1], match[1]), word[1:-1])
    return word
