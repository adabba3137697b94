"""`each`: every case runs, and a failure names its case."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla_testing.each import each

FOLDERS: set[Path] = set()


def test_each_with_failing_cases_runs_all_and_names_the_first() -> None:
    seen: list[tuple[int, str]] = []

    @each(("number", "text"), [(1, "a"), (2, "b"), (3, "c")])
    def check(number: int, text: str) -> None:
        seen.append((number, text))
        assert number == 1

    with pytest.raises(AssertionError) as caught:
        check()
    assert seen == [(1, "a"), (2, "b"), (3, "c")]
    assert caught.value.__notes__ == ["case 1 of 3: number=2, text='b'; 2 failed"]


@each("number", range(3))
async def test_each_around_a_coroutine_gives_every_case_a_folder_of_its_own(number: int, tmp_path: Path) -> None:
    assert not list(tmp_path.iterdir())
    FOLDERS.add(tmp_path)
    assert len(FOLDERS) == number + 1


def test_each_without_a_case_is_refused() -> None:
    with pytest.raises(AssertionError, match="no case of number"):
        each("number", [])
