"""The README's tests in other languages are those that `make interop` runs."""

from __future__ import annotations

import re

import pytest

from ottla_testing import ROOT

PAGES = ROOT / "tests" / "interop" / "pages"
FILES = {"java": "OrdersTest.java", "go": "orders_test.go", "javascript": "orders.test.mjs"}


def test_every_page_is_there() -> None:
    assert sorted(path.name for path in PAGES.iterdir()) == sorted(FILES.values())


@pytest.mark.parametrize("language", FILES)
def test_the_readme_has_it_as_it_is_run(language: str) -> None:
    match = re.search(r"<!-- pages -->\n(.*?)<!-- /pages -->", (ROOT / "README.md").read_text(), re.DOTALL)
    assert match
    assert re.findall(rf"^```{language}\n(.*?)^```$", match[1], re.DOTALL | re.MULTILINE) == [
        (PAGES / FILES[language]).read_text()
    ]
