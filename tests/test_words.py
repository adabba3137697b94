"""No docstring, comment, text, name or document has a word that this project does not use."""

from __future__ import annotations

import pytest

from ottla_testing.words import ALLOWED, files, found_in, in_markdown, in_name, in_python, in_text


def test_repository_has_no_banned_word() -> None:
    places = [place for path in files() for place in found_in(path)]
    assert not places, "\n".join(map(str, places))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Tells whoever asked.", ["Tells", "whoever", "asked"]),
        ("The answer comes anew.", ["answer", "anew"]),
        ("Returns the response of the coordinator.", []),
        ("A log that lags behind goes on.", ["behind", "goes on"]),
        ("The flag `--ask` of another program.", []),
        ("A task with a mask.", []),
    ],
)
def test_banned_words_of_a_text_are_found(text: str, words: list[str]) -> None:
    assert in_text(text) == words


def test_banned_words_of_names_are_found_in_all_styles() -> None:
    assert (
        in_name("_is_told") == ["told"] and in_name("AskedFilter") == ["asked"] and in_name("LAG_BEHIND") == ["behind"]
    )
    assert not in_name("task") and not in_name("Basket") and not in_name("answerable")


def test_python_is_searched_in_docstrings_comments_texts_and_definitions() -> None:
    source = '''"""Tells."""
def ask(told):  # anew
    answer = "nobody here"
    return foo.asked("told")
    quoted = "nobody here"  # QUOTED
'''.replace("QUOTED", ALLOWED)
    found = {(place.line, place.kind, place.word) for place in in_python(source, "x.py")}
    assert found == {
        (2, "comment", "anew"),
        (2, "name", "ask"),
        (2, "name", "told"),
        (3, "name", "answer"),
        (3, "text", "nobody"),
    }


def test_markdown_is_searched_outside_code() -> None:
    source = "It tells.\n\n```text\nIt tells.\n```\n\n    It tells.\n\nSee `told`.\n"
    assert [(place.line, place.word) for place in in_markdown(source, "x.md")] == [(1, "tells")]
