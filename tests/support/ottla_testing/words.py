"""Finds words that this project does not use: in docstrings, comments, texts and names.

    python -m ottla_testing.words [PATH...]    prints each place; PATH is a file or a folder, without one the repository

One concept has one word, the field's own. BANNED_TEXT is searched in docstrings, comments, string constants with a
space, and Markdown outside code; BANNED_NAMES in the parts of each name that a file defines. A line that must quote
a banned word (the text of another program, a word of Kafka's own messages) ends with a comment that has ALLOWED.
"""

from __future__ import annotations

import ast
import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from ottla_testing import ROOT

ALLOWED = "words: quoted"

# The word, and what to write instead. A docstring, comment or message that has it is written again, not patched.
BANNED_TEXT = {
    r"told|tells?|telling|untold|foretold": "reports, returns, sends; expected",
    r"says?|said|saying": "reports, states, is",
    r"answer(s|ed|ing)?": "response, responds; returns",
    r"ask(s|ed|ing|er)?": "request, requests; asks for nothing",
    r"anew": "again, from scratch",
    r"whoever|whomever|whosoever|somebody|nobody|anybody|everybody": "the client, the caller; no client",
    r"behind|in front of": "after, before, at a higher or lower offset",
    r"goes on|go on|going on|went on|gone on": "continues, resumes",
    r"what is not|that which|such as are|of use": "a noun of the field",
    r"has it known|makes known|lets know": "reports, notifies",
    r"takes? (its|their) turns?|in its turn|had their turn": "cooperative step, yields to the event loop",
}
BANNED_NAMES = (
    "told untold foretold tells tell asked asks ask asker answer answers answered anew behind whoever somebody nobody "
    "door doors turns arrival missed watched said says"
).split()
_TEXT = re.compile(rf"(?<![\w-])({'|'.join(BANNED_TEXT)})(?![\w-])", re.IGNORECASE)
_NAMES = re.compile(rf"(?:^|_)({'|'.join(BANNED_NAMES)})(?:_|$)")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_ANY_NAME = re.compile(rf"(?<![a-z])(?:{'|'.join(BANNED_NAMES)})(?![a-z])")
_CODE_SPAN = re.compile(r"`[^`\n]*`")
_FENCE = re.compile(r"^( {4,}|\t)?(```|~~~)")


class Place(NamedTuple):
    """A banned word: where, in what kind of text, and the line."""

    path: str
    line: int
    kind: str
    word: str
    text: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.kind}: {self.word}: {self.text}"


def in_text(text: str) -> list[str]:
    """The banned words of a text, without code between backticks."""
    return [match.group(0) for match in _TEXT.finditer(_CODE_SPAN.sub("", text))]


def in_name(name: str) -> list[str]:
    """The banned words of an identifier."""
    return _NAMES.findall(_CAMEL.sub("_", name).lower())


def in_python(source: str, path: str) -> Iterator[Place]:
    """The banned words of a Python file: one place for each line and word."""
    if not _TEXT.search(source) and not _ANY_NAME.search(_CAMEL.sub("_", source).lower()):
        return  # spares most files the tokens, which take longest
    lines = source.splitlines()
    tree = ast.parse(source)
    allowed = {number for number, line in enumerate(lines, 1) if ALLOWED in line}
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT and token.start[0] not in allowed:
            for word in in_text(token.string):
                yield Place(path, token.start[0], "comment", word, token.string)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            for offset, line in enumerate(node.value.splitlines()):
                number = node.lineno + offset if node.end_lineno != node.lineno else node.lineno
                if not allowed & {number, node.lineno, node.end_lineno}:
                    for word in in_text(line):
                        yield Place(path, number, "text", word, line.strip())
        name, number = _defined(node)
        if name is not None and number not in allowed:
            for word in in_name(name):
                yield Place(path, number, "name", word, name)


def _defined(node: ast.AST) -> tuple[str | None, int]:
    """The name that a node defines, with its line."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return node.name, node.lineno
    if isinstance(node, ast.arg):
        return node.arg, node.lineno
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        return node.id, node.lineno
    if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
        return node.attr, node.lineno
    return None, 0


def in_markdown(source: str, path: str) -> Iterator[Place]:
    """The banned words of a Markdown file outside code."""
    is_code = False
    for number, line in enumerate(source.splitlines(), 1):
        if _FENCE.match(line):
            is_code = not is_code
        elif not is_code and not line.startswith("    ") and ALLOWED not in line:
            for word in in_text(line):
                yield Place(path, number, "document", word, line.strip())


def found_in(path: Path) -> list[Place]:
    """The banned words of a file; of kinds other than Python and Markdown none."""
    name = path.relative_to(ROOT).as_posix()
    if path.suffix == ".py":
        return list(in_python(path.read_text(), name))
    return list(in_markdown(path.read_text(), name)) if path.suffix == ".md" else []


def files(*paths: str) -> list[Path]:
    """The files of the repository under these paths, committed or not."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *paths]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\n")
    return [path for name in listed if name and (path := ROOT / name).is_file() and name not in _EXEMPT]


_EXEMPT = {Path(__file__).resolve().relative_to(ROOT).as_posix(), "tests/test_words.py"}


def main(paths: list[str]) -> int:
    """Prints all places, and how many there are of each kind."""
    places = [place for path in files(*paths) for place in found_in(path)]
    for place in places:
        print(place)
    counts = {kind: sum(place.kind == kind for place in places) for kind in ("text", "comment", "name", "document")}
    print(f"{len(places)} places: " + ", ".join(f"{count} in {kind}s" for kind, count in counts.items()))
    return 1 if places else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
