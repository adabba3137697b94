"""The data of Apache Kafka is unchanged since its scripts made it, and README.md has the script of each file."""

from __future__ import annotations

import re

from ottla_testing import GOLDEN, ROOT
from ottla_testing.oracle.manifest import ELSEWHERE, README, listed, present


def test_golden_data_matches_its_manifest() -> None:
    found, wanted = present(), listed()
    assert {path for path in found if path not in wanted} == set(), "not listed"
    assert {path for path in wanted if path not in found} == set(), "missing"
    assert {path for path in found if found[path] != wanted[path]} == set(), "changed"


def test_readme_names_an_existing_script_for_each_file() -> None:
    rows = [line.split("|")[1:3] for line in README.read_text().splitlines() if line.startswith("| `")]
    names = {name for files, _ in rows for name in re.findall("`([^`]+)`", files)}
    scripts = [re.findall("`([^`]+)`", script)[0] for _, script in rows]
    assert all((ROOT / script).is_file() for script in scripts), scripts
    assert set(ELSEWHERE) <= names
    parts = {path.relative_to(GOLDEN).parts[0] for path in GOLDEN.rglob("*") if path.is_file()}
    known = {path.name for name in names for path in GOLDEN.glob(name.rstrip("/"))}
    assert parts - known == {"README.md", "manifest.sha256"}
