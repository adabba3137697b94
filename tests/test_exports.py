"""The names that `ottla.client` and `ottla.pipeline` export: what a type checker sees is what is imported on use."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import ottla.client
import ottla.pipeline

ROOT = Path(__file__).resolve().parents[1]
AT_IMPORT = {"ottla.client": set(), "ottla.pipeline": {"MissingExtra", "SetupError"}}


def typed_imports(package: str) -> dict[str, str]:
    """Name -> module of the imports under TYPE_CHECKING."""
    tree = ast.parse((ROOT / package / "__init__.py").read_text())
    found: dict[str, str] = {}
    for block in (node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"):
        for node in block.body:
            assert isinstance(node, ast.ImportFrom) and node.module is not None
            assert all(alias.asname == alias.name for alias in node.names), ast.unparse(node)
            found |= {alias.name: node.module for alias in node.names}
    return found


@pytest.mark.parametrize(
    ("package", "lazy"),
    [
        (ottla.client, ottla.client._HOME),
        (ottla.pipeline, {name: home.removeprefix(".") for name, home in ottla.pipeline._EXPORTS.items()}),
    ],
    ids=["client", "pipeline"],
)
def test_exported_names_are_those_of_the_type_checker(package: object, lazy: dict[str, str]) -> None:
    name = getattr(package, "__name__", "")
    assert typed_imports(name.removeprefix("ottla.")) == lazy
    assert set(getattr(package, "__all__", ())) == {*lazy, *AT_IMPORT[name]} <= set(dir(package))


def test_every_name_of_client_is_importable() -> None:
    for name in ottla.client.__all__:
        assert getattr(ottla.client, name).__name__ == name
