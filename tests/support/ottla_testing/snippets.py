"""The examples of the documentation: files in `docs/snippets` that pages include and tests run."""

from __future__ import annotations

from ottla_testing import ROOT

SNIPPETS = ROOT / "docs" / "snippets"
ADDRESS = "127.0.0.1:9092"  # the broker in the examples; each test replaces it by its own broker's


def snippet(path: str) -> str:
    """The text of an example, by its path in `docs/snippets`."""
    return (SNIPPETS / path).read_text()
