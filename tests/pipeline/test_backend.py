"""Which partitions a selection by names and a regular expression has."""

from __future__ import annotations

import pytest

from ottla.pipeline.backend import ReadError, Selection, TopicPartition

KNOWN = [TopicPartition(topic, index) for topic in ("__x", "orders", "origins", "users") for index in range(2)]
INTERNAL = frozenset({"__x"})


@pytest.mark.parametrize(
    ("topics", "like", "selected"),
    [
        (None, None, ["orders", "origins", "users"]),
        (None, "or.*", ["orders", "origins"]),
        (None, "or", []),
        (None, "__.*", []),
        (["users", "orders"], None, ["orders", "users"]),
        (["users", "orders"], "o.*", ["orders"]),
        (["users"], "o.*", []),
        (["__x"], "_.*", ["__x"]),
        ([], None, []),
    ],
)
def test_topics_are_named_and_match(topics: list[str] | None, like: str | None, selected: list[str]) -> None:
    found = Selection.named(topics, like).of(KNOWN, INTERNAL)
    assert found == [TopicPartition(topic, index) for topic in selected for index in range(2)]


@pytest.mark.parametrize("topics", [None, ["orders"]])
def test_invalid_regular_expression_is_refused(topics: list[str] | None) -> None:
    with pytest.raises(ReadError, match=r"'\(' is not a regular expression: missing"):
        Selection.named(topics, "(")
