"""The documentation against the code: generated pages, and that a config with an effect is read somewhere."""

from __future__ import annotations

import argparse
import ast
import importlib.util
import re
from collections.abc import Iterable
from types import ModuleType

import pytest

from ottla.broker.config.definitions import BEHAVIOUR_PREFIX, facts
from ottla.broker.config.group_limits import LIMITS
from ottla.broker.config.values import ACTED_ON
from ottla.tools import main
from ottla_testing import ROOT
from ottla_testing.snippets import SNIPPETS

BROKER = ROOT / "broker"
HERE = (
    *(f"config/{name}.py" for name in ("values", "docs", "definitions", "sources", "dynamic", "named_rules")),
    *(f"releases/{name}.py" for name in ("behaviour", "profiles")),
)

PAGES = ("cli", "configs", "http-api", "metrics", "apis", "releases", "behaviours")  # those that the script writes
PROGRAMS = ("python", "java", "go", "javascript")
INCLUDE = re.compile(r'--8<-- "(docs/snippets/[^":]+)(?::\w+)?"')
COMMAND = re.compile(r"(?:^|^ +|^\$ |`)ottla (?!ready on|control on)([a-z-]+)\b([^`\n#;|]*)", re.MULTILINE)
NOT_SHOWN = {"docs/snippets/speed/figures.json"}  # what tables on pages are made from
OLD = "2.8"  # which has configs that were taken away later
# Config of a log -> its field in `storage`; without a reader there the config has no effect.
CARRIED = {"retention.ms": "retention_ms", "retention.bytes": "retention_bytes"}


def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate_docs", ROOT / "docs" / "generate.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("page", PAGES)
def test_a_reference_page_is_what_the_code_makes(page: str) -> None:
    made = generator()
    assert (made.REFERENCE / f"{page}.md").read_text() == made.page(page), "run .venv/bin/python docs/generate.py"


def test_every_reference_page_is_compared() -> None:
    assert sorted(PAGES) == sorted(generator().PAGES)


def pages() -> dict[str, str]:
    """Path -> text of every page that is written by hand."""
    found = {path.relative_to(ROOT).as_posix(): path.read_text() for path in (ROOT / "docs").rglob("*.md")}
    return {path: text for path, text in found.items() if not path.endswith(tuple(f"/{name}.md" for name in PAGES))}


def test_programs_on_pages_are_files_that_tests_run() -> None:
    """A program on a page is an include of a file in `docs/snippets`, and each of these files is on a page."""
    blocks = [
        (path, block)
        for path, text in pages().items()
        for block in re.findall(rf"^ *```(?:{'|'.join(PROGRAMS)})\n(.*?)^ *```$", text, re.DOTALL | re.MULTILINE)
    ]
    assert [
        (path, line)
        for path, block in blocks
        for line in block.splitlines()
        if line.strip() and not INCLUDE.fullmatch(line.strip())
    ] == []
    included = {path for text in pages().values() for path in INCLUDE.findall(text)}
    files = {path.relative_to(ROOT).as_posix() for path in SNIPPETS.rglob("*") if path.is_file()}
    assert sorted(files - included - NOT_SHOWN) == [], "on no page"


def test_programs_of_the_readme_are_files_that_tests_run() -> None:
    readme = (ROOT / "README.md").read_text()
    assert len(readme.splitlines()) <= 180 and "](docs/assets" not in readme  # PyPI shows no relative images
    links = re.findall(r"\]\(([^)#:]+)\)", readme)
    assert len(links) > 20 and [link for link in links if not (ROOT / link).exists()] == []
    files = {path.read_text() for path in SNIPPETS.rglob("*.py")}
    blocks = re.findall(r"^```python\n(.*?)^```$", readme, re.DOTALL | re.MULTILINE)
    assert len(blocks) == 2 and set(blocks) <= files


def flags_of(parser: argparse.ArgumentParser) -> set[str]:
    """The flags of a command and of its subcommands."""
    flags = set(parser._option_string_actions)
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            flags = flags.union(*map(flags_of, action.choices.values()))
    return flags


def test_commands_on_pages_exist_with_their_flags() -> None:
    """Each `ottla COMMAND` in code of a page or of README is a command, and has the flags that the page gives it."""
    made = generator()
    commands = {name: main.load(name) for name in main.names()}
    known = {name: flags_of(made.parser_of(command)) for name, command in commands.items()}
    for name in ("census", "audit", "upgrade", "compact", "export", "optimize", "verify", "import", "replay"):
        known["pipeline"] |= flags_of(made.parser_of(commands["pipeline"], name))
    texts = pages() | {"README.md": (ROOT / "README.md").read_text()}
    texts |= {path.name: path.read_text() for path in SNIPPETS.rglob("*") if path.suffix in (".txt", ".sh", ".console")}
    wrong: list[str] = []
    for path, text in texts.items():
        for command, rest in COMMAND.findall(text.replace("\\\n", "")):
            unknown = set(re.findall(r"(?<!\S)--[a-z][a-z-]*", rest)) - known.get(command, set())
            wrong += [f"{path}: ottla {command}{rest}"] if command not in known or unknown else []
    assert wrong == []


def names_in_code() -> set[str]:
    """The configs that the broker's modules mention.

    An f-string such as `compression.{codec}.level` mentions those whose gap is a string that some module spells out.
    """
    modules = [path for path in BROKER.rglob("*.py") if path.relative_to(BROKER).as_posix() not in HERE]
    modules += (ROOT / "tools").glob("*.py")
    known = {*facts("broker"), *facts("broker", OLD), *facts("topic"), *facts("group")}
    strings: set[str] = set()
    nodes: list[ast.AST] = []
    for text in (path.read_text() for path in modules):
        quoted = set(re.findall(r'"([^"\n]*)"', text))
        strings |= quoted
        if quoted & known or re.search(
            r'f"[^"\s]*\.[^"\s]*"', text
        ):  # the others are not parsed: it would take seconds
            nodes += ast.walk(ast.parse(text))
    used = {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)} & known
    for node in nodes:
        if isinstance(node, ast.JoinedStr) and len(node.values) in (2, 3):
            texts = [re.escape(str(v.value)) if isinstance(v, ast.Constant) else "(.+)" for v in node.values]
            pattern = re.compile("".join(texts))
            if pattern.groups == 1 and r"\." in pattern.pattern:
                used |= {name for name in known if (match := pattern.fullmatch(name)) and match[1] in strings}
    return used


def read_by_storage(fields: Iterable[str]) -> set[str]:
    """Those of the names that a storage module reads as an attribute."""
    missing, found = set(fields), set[str]()
    for text in (path.read_text() for path in (ROOT / "storage").rglob("*.py")):
        if any(f".{field}" in text for field in missing):
            found |= {node.attr for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Attribute)}
            missing -= found
    return found & set(fields)


def test_acted_on_is_what_the_code_reads() -> None:
    """Every config with an effect is read by a module, and every config that a module reads is in the list.

    A config in use implies its synonyms: `retention.ms` falls back on `log.retention.hours`.
    """
    used = names_in_code()
    carried_out = read_by_storage(CARRIED.values())
    read: set[str] = set()
    carried: set[str] = set()
    for scope in ("broker", "topic", "group"):
        for name, fact in facts(scope).items():
            if name.startswith(BEHAVIOUR_PREFIX):
                continue  # `tests/broker/releases/test_table.py` has the modules that read these
            if fact.internal and name not in ACTED_ON:
                continue  # not described to clients; its name may be a word of another table
            if name in CARRIED and CARRIED[name] not in carried_out:
                carried |= {name, *fact.synonyms}
            elif name in used:
                read |= {name, *fact.synonyms}
    read -= carried
    listed = {name for name in ACTED_ON if not name.startswith(BEHAVIOUR_PREFIX)}
    gone = used & facts("broker", OLD).keys() - facts("broker").keys()
    read |= LIMITS.keys()  # by names that `limits_of` makes; test_group_limits.py has their effects
    assert sorted(listed - read - gone) == [], "listed, but nothing reads them"
    assert sorted(read - ACTED_ON) == [], "read, but not listed"
