"""The tables of `add_release.py`, without the jars that it reads."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest


@pytest.fixture(scope="module")
def add_release() -> ModuleType:
    spec = importlib.util.spec_from_file_location("add_release", Path(__file__).with_name("add_release.py"))
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_config_table_is_the_same_after_unfolding_and_folding(add_release: ModuleType) -> None:
    text = add_release.CONFIGS.read_text()
    table = json.loads(text)
    assert add_release.folded(table["columns"], add_release.unfolded(table)) == text


def config(**fields: Any) -> dict[str, Any]:
    row = {"name": "a", "scope": "broker", "type": "INT", "default": "1", "valid": None, "synonyms": [], "flags": "r"}
    return {**row, "dynamic": None, "internal": False, **fields}


def test_column_of_a_release_has_new_removed_and_changed_configs(
    add_release: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    columns = json.loads(add_release.CONFIGS.read_text())["columns"]
    key, other = ("broker", "a"), ("broker", "b")
    before = {"8.0.0": {key: config(), other: config(name="b")}}
    table = json.loads(add_release.folded(columns, before))
    monkeypatch.setattr(
        add_release,
        "configs_of",
        lambda version: {key: config(default="2", dynamic="cluster", flags="")},
    )
    added = json.loads(add_release.with_column(table, "8.1.0"))
    assert added["tables"] == ["8.0.0", "8.1.0"]
    rows = {row[0]: dict(zip(columns, row, strict=True)) for row in added["rows"]}
    assert (rows["a"]["default"], rows["a"]["in"]) == ("2", "01")
    assert rows["a"]["moved"] == {"0": {"default": "1", "dynamic": None}}
    assert rows["b"]["in"] == "0"
    assert json.loads(add_release.with_column(added, "8.1.1"))["tables"] == ["8.0.0", "8.1.1"]
    found = add_release.changed("config", before["8.0.0"], add_release.configs_of(""), add_release.shown_config)
    assert list(found) == ["~ config broker a: INT, 1, r -> INT, 2, cluster", "- config broker b: INT, 1, r"]


def test_row_of_a_release_replaces_the_one_of_its_name(
    add_release: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    apis = {"0": ["Produce", 0, 13], "93": ["New", 0, 0]}
    monkeypatch.setattr(add_release, "facts_of", lambda version: {"apis": apis})
    table = {"names": {"0": "Produce"}, "releases": {"8.0": {"0": [0, 12]}}}
    added = json.loads(add_release.with_row(table, "8.1.0"))
    assert added["releases"] == {"8.0": {"0": [0, 12]}, "8.1": {"0": [0, 13], "93": [0, 0]}}
    assert added["names"] == {"0": "Produce", "93": "New"}
    assert add_release.with_row(added, "8.1.1") == add_release.with_row(table, "8.1.0")
