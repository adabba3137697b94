"""Files that pages name exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ottla_testing import ROOT
from ottla_testing.each import each
from ottla_testing.sessions import DOCS

PAGES = [
    *sorted((DOCS / "internals").glob("*.md")),
    *sorted((DOCS / "start").glob("*.md")),
    *(DOCS / name for name in ("comparison.md", "glossary.md")),
    *(ROOT / name for name in ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")),
]
PATH = re.compile(r"`((?:broker|client|docker|docs|pipeline|protocol|storage|tests|tools)/[^`\s]*)`")


@each("page", PAGES)
def test_every_file_named_on_a_page_exists(page: Path) -> None:
    for path in PATH.findall(page.read_text()):
        if not any(ROOT.glob(path)):
            pytest.fail(f"{page.name} names {path}")
