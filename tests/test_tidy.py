"""The repository's own checks: import directions, clocks, sizes, and required parts of files, from the syntax trees."""

from __future__ import annotations

import ast
import functools
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Collection, Iterator
from pathlib import Path

import pytest

from ottla_testing import ROOT

PACKAGES = ("protocol", "storage", "broker", "client", "pipeline", "tools")
MAX_LINES = 1000

# The packages that each package may import besides itself; of `protocol`, storage may import these modules only.
MAY_IMPORT = {
    "protocol": set(),
    "storage": {"protocol"},
    "broker": {"protocol", "storage"},
    "client": {"protocol"},
    "pipeline": {"protocol", "storage", "client"},
    "tools": {"protocol", "storage", "client", "broker"},
}
STORAGE_KNOWS = {"frozen", "layouts", "limits", "named", "primitives", "properties", "records", "structs"}
NAMED_TUPLES = "protocol/named.py"
KEY_STORES = "protocol/security/key_stores.py"  # read by broker and client; OpenSSL loads keys from files alone
# Modules that are top-level when installed, where Spark finds them, and what they may import there.
REGISTERED, REGISTERS = "pipeline/registered/", "ottla.pipeline.sources."
CLOCKS = {"time.time", "time.time_ns", "datetime.now", "datetime.utcnow", "datetime.datetime.now", "date.today"}
# Run by an environment of their own, with packages that pyright does not find.
FOREIGN = {"tests/containers/python_module.py"}
IMPORT_IGNORED = re.compile(r"# (type|pyright): ignore\[(import-not-found|reportMissingImports)\]")
# The one module of a package that reads the wall clock; `protocol` and `storage` have none.
CLOCK_MODULES = {"broker/clock.py", "client/net/clock.py"}
UNFINISHED = re.compile(r"\b(TO" + r"DO|FIX" + r"ME|XX" + r"X|Not" + r"ImplementedError)\b")
SKIPS = {"pytest.skip", "pytest.importorskip", "pytest.mark.skip", "pytest.mark.skipif", "pytest.mark.xfail"}


def python_files(*folders: str) -> list[Path]:
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


SOURCES = python_files(*PACKAGES)
TESTS = python_files("tests")
DESCRIBED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
LOOKED_AT = (*DESCRIBED, ast.Import, ast.ImportFrom, ast.Attribute)
MODULE_NAME = re.compile(r"(?<![\w/<{*.-])((?:\w+/)*[a-z_]\w*\.py)\b")


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@functools.cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), filename=str(path))


@functools.cache
def nodes_of(path: Path) -> tuple[ast.AST, ...]:
    """Returns the nodes of a file that the rules look at: a walk through all of them takes as long as the parser."""
    return tuple(node for node in ast.walk(tree_of(path)) if isinstance(node, LOOKED_AT))


def imports(path: Path) -> Iterator[str]:
    """Returns every imported module as a dotted name from the root: relative ones resolved, `from . import x` as its
    parts.
    """
    package = list(path.relative_to(ROOT).parts[:-1])
    for node in nodes_of(path):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) + 1 - node.level] if node.level else []
            stem = [*base, *(node.module.split(".") if node.module else [])]
            yield from (".".join([*stem, alias.name]) for alias in node.names)


def uses(path: Path, names: Collection[str]) -> list[int]:
    """Returns the lines on which a file has one of these dotted names."""
    last = {name.rpartition(".")[2] for name in names}
    found = [node for node in nodes_of(path) if isinstance(node, ast.Attribute) and node.attr in last]
    return [node.lineno for node in found if ast.unparse(node) in names]


def import_faults(path: Path) -> list[str]:
    """Returns the errors in a source file's imports, by the rules of the layout."""
    package = path.relative_to(ROOT).parts[0]
    faults: list[str] = []
    for node in nodes_of(path):
        absolute = [a.name for a in node.names] if isinstance(node, ast.Import) else []
        absolute += [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
        if name_of(path).startswith(REGISTERED):
            absolute = [name for name in absolute if not name.startswith(REGISTERS)]
        faults += [f"absolute import of {name}" for name in absolute if name.split(".")[0] in (*PACKAGES, "ottla")]
    for name in imports(path):
        parts = name.split(".")
        if parts[0] in PACKAGES and parts[0] != package and parts[0] not in MAY_IMPORT[package]:
            faults.append(f"{package} must not import {name}")
        if package == "storage" and parts[0] == "protocol" and parts[1] not in STORAGE_KNOWS:
            faults.append(f"storage must not import {name}, only {sorted(STORAGE_KNOWS)} of protocol")
        if name == "typing.NamedTuple" and package != "pipeline" and name_of(path) != NAMED_TUPLES:
            faults.append(f"{name} slows each start; {NAMED_TUPLES} has another")
        if package in ("protocol", "storage") and parts[0] in ("asyncio", "uvloop"):
            faults.append(f"{package} has no event loop, but imports {name}")
        if package == "protocol" and parts[0] in ("socket", "time", "pathlib", "os") and name_of(path) != KEY_STORES:
            faults.append(f"protocol has no I/O and no clock, but imports {name}")
        if name_of(path).startswith("broker/handlers/") and parts[:3] in (
            ["broker", "network", "server"],
            ["broker", "network", "router"],
        ):
            faults.append(f"a handler must not know {name}")
    return faults


def clock_faults(path: Path) -> list[str]:
    """Returns reads of the wall clock: time is an argument, and the broker and the client have one module that reads
    it.
    """
    if name_of(path) in CLOCK_MODULES or path.relative_to(ROOT).parts[0] == "pipeline":
        return []
    return [f"line {number} reads the clock" for number in uses(path, CLOCKS)]


def report(faults: dict[str, list[str]]) -> str:
    return "\n".join(f"{name}: {fault}" for name, found in faults.items() for fault in found)


def test_imports_follow_the_layers() -> None:
    assert not report({name_of(path): import_faults(path) for path in SOURCES})


def test_tests_import_the_public_names() -> None:
    faults: dict[str, list[str]] = {}
    for path in TESTS:
        relative = [n for n in nodes_of(path) if isinstance(n, ast.ImportFrom) and n.level]
        names = list(imports(path))
        top = [name for name in names if name.split(".")[0] in PACKAGES and not name.startswith("tests")]
        faults[name_of(path)] = [f"line {n.lineno}: relative import" for n in relative]
        faults[name_of(path)] += [f"import of {name} instead of ottla.{name}" for name in top]
    assert not report(faults)


def test_tests_import_helpers_from_ottla_testing() -> None:
    # Programs for another interpreter are strings here, and may change their own path.
    faults: dict[str, list[str]] = {}
    for path in TESTS:
        lines = path.read_text().splitlines()
        ignored = (
            [] if name_of(path) in FOREIGN else [n for n, line in enumerate(lines, 1) if IMPORT_IGNORED.search(line)]
        )
        faults[name_of(path)] = [f"line {number} uses sys.path" for number in uses(path, {"sys.path"})]
        faults[name_of(path)] += [f"line {number} ignores an import that is not found" for number in ignored]
    assert not report(faults)


def test_only_one_module_reads_the_clock() -> None:
    assert not report({name_of(path): clock_faults(path) for path in SOURCES})


def test_files_are_short_complete_and_have_docstrings() -> None:
    faults: dict[str, list[str]] = {}
    for path in (*SOURCES, *TESTS):
        text = path.read_text()
        found = faults[name_of(path)] = []
        if (lines := text.count("\n")) > MAX_LINES:
            found.append(f"{lines} lines, more than {MAX_LINES}")
        found += [f"has {mark}" for mark in UNFINISHED.findall(text)]
        if not ast.get_docstring(tree_of(path)):
            found.append("no module docstring")
    assert not report(faults)


@pytest.mark.parametrize("document", ["ARCHITECTURE.md", "CONTRIBUTING.md"])
def test_every_path_and_target_in_a_document_exists(document: str) -> None:
    text = (ROOT / document).read_text()
    named = set(re.findall(r"`((?:[\w.]+/)+[\w.]*)`", text))
    assert len(named) > 20 and len(text.splitlines()) <= 150
    made = "out/"  # by a target: not in a new checkout
    assert not [path for path in sorted(named) if not path.startswith(made) and not (ROOT / path).exists()]
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"`make ([a-z-]+)", text)) <= targets


def test_every_module_named_in_a_docstring_exists() -> None:
    """A name with folders is the end of a path; a name alone may be any module's."""
    paths = [f"/{name_of(path)}" for path in (*SOURCES, *TESTS)]
    faults: dict[str, list[str]] = {}
    for path in (*SOURCES, *TESTS):
        nodes = [node for node in nodes_of(path) if isinstance(node, DESCRIBED)]
        named = {name for node in nodes for name in MODULE_NAME.findall(ast.get_docstring(node) or "")}
        faults[name_of(path)] = [name for name in sorted(named) if not any(one.endswith(f"/{name}") for one in paths)]
    assert not {name: found for name, found in faults.items() if found}


def test_no_test_is_skipped() -> None:
    faults: dict[str, list[str]] = {}
    for path in TESTS:
        skips = uses(path, SKIPS) if path != Path(__file__) else []
        faults[name_of(path)] = [f"line {number} skips" for number in skips]
    assert not report(faults)


@pytest.mark.parametrize("package", PACKAGES)
def test_each_package_has_types_and_a_docstring(package: str) -> None:
    assert (ROOT / package / "py.typed").exists()
    folders = {path.parent for path in python_files(package)}
    assert all((folder / "__init__.py").exists() for folder in folders)


@pytest.mark.parametrize(
    ("path", "source", "fault"),
    [
        ("protocol/x.py", "from ..storage import log", "protocol must not import storage.log"),
        ("storage/x.py", "from ..broker.config import Config", "storage must not import broker.config.Config"),
        (
            "storage/x.py",
            "from ..protocol.errors import ErrorCode",
            "storage must not import protocol.errors.ErrorCode",
        ),
        ("storage/x.py", "import asyncio", "storage has no event loop"),
        ("protocol/records/x.py", "from ... import storage", "protocol must not import storage"),
        ("broker/handlers/x.py", "from ..network.server import serve", "a handler must not know broker.network.server"),
        ("broker/handlers/x.py", "from ..network import router", "a handler must not know broker.network.router"),
        ("broker/x.py", "from ..client.cluster import Cluster", "broker must not import client.cluster"),
        ("client/x.py", "from ..storage import log", "client must not import storage.log"),
        ("broker/x.py", "import ottla.storage", "absolute import"),
        ("pipeline/x.py", "from ottla.pipeline.sources.log import LogSource", "absolute import"),
        ("pipeline/registered/x.py", "import ottla.pipeline.session", "absolute import"),
        ("broker/x.py", "from storage.log import PartitionLog", "absolute import of storage.log"),
        ("storage/x.py", "from typing import Any, NamedTuple", "typing.NamedTuple slows each start"),
    ],
)
def test_import_rules_detect_violations(
    path: str, source: str, fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(globals(), "ROOT", tmp_path)
    file = tmp_path / path
    file.parent.mkdir(parents=True)
    file.write_text(source)
    assert any(found.startswith(fault) for found in import_faults(file)), import_faults(file)


@pytest.mark.parametrize("source", ["import time\ntime.time()", "from datetime import datetime\ndatetime.now()"])
@pytest.mark.parametrize("package", ["broker", "client"])
def test_clock_rule_detects_violations(
    package: str, source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(globals(), "ROOT", tmp_path)
    file = tmp_path / package / "x.py"
    file.parent.mkdir()
    file.write_text(source)
    assert clock_faults(file) == ["line 2 reads the clock"]


@pytest.mark.slow
def test_built_wheel_has_every_module_and_works_elsewhere(tmp_path: Path) -> None:
    """Tests what `pip install ottla` gives, imported far from this checkout, by an interpreter that does not see it."""
    # Built from a copy: a build inside the checkout would leave a folder `build/`, and use stale files in it.
    ignored = shutil.ignore_patterns(".venv*", ".git", "build", "dist", "*.egg-info", "__pycache__", "data", "out")
    source = shutil.copytree(ROOT, tmp_path / "source", ignore=ignored)
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", str(tmp_path)]
    build = [sys.executable, "-m", "pip", "wheel", *options, str(source)]
    built = subprocess.run(build, capture_output=True, text=True, cwd=tmp_path)
    assert built.returncode == 0, built.stderr
    (wheel,) = tmp_path.glob("ottla-*.whl")
    site = tmp_path / "site"
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        archive.extractall(site)
    missing = [name_of(path) for path in SOURCES if f"ottla/{name_of(path)}" not in names]
    assert not missing
    assert {f"ottla/{package}/py.typed" for package in PACKAGES} <= names
    assert {"ottla/broker/config/configs.json", "ottla/pipeline/log4j2.properties"} <= names
    page = ROOT / "broker" / "control" / "web"
    files = {name_of(path) for folder in ("static", "templates") for path in (page / folder).iterdir()}
    assert len(files) > 15 and {f"ottla/{name}" for name in files} <= names
    tops = {top for top in (name.split("/")[0] for name in names) if not top.endswith(".dist-info")}
    assert tops == {"ottla", "pyspark_ottla", "pyspark_ottla_log", "pyspark_ottla_batches"}
    program = (
        f"import sys; sys.path.insert(0, {str(site)!r})\n"
        "import ottla.protocol, ottla.storage, ottla.broker.config.values as config\n"
        f"assert config.__file__.startswith({str(site)!r}), config.__file__\n"
        "print(config.Config()['num.partitions'])\n"
    )
    # -P keeps the working folder out of the path; the finder of the editable install is removed as well.
    program = "import sys; sys.meta_path[:] = [f for f in sys.meta_path if 'ditable' not in repr(f)]\n" + program
    outcome = subprocess.run([sys.executable, "-P", "-c", program], cwd=tmp_path, capture_output=True, text=True)
    assert outcome.stdout == "1\n", outcome.stderr
