"""Regular expressions that clients send: RE2's syntax, full matches, bounds of size and time."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ottla.broker.patterns import BadPattern, Pattern
from ottla_testing.each import each

ATOMS = st.sampled_from(
    [
        "a",
        "b",
        "-",
        ".",
        "[ab]",
        "[^a]",
        "[a-c]",
        "[]a]",
        "[a-]",
        "\\d",
        "\\w",
        "\\.",
        "\\D",
        "^",
        "$",
        "\\x61",
        "(?i:A)",
    ]
)
TIMES = st.sampled_from(["", "*", "+", "?", "{2}", "{1,}", "{0,2}", "{0}", "*?", "{2,3}?"])


def repeated(part: tuple[str, str]) -> str:
    atom, times = part
    return atom if atom in "^$" else atom + times


PATTERNS = st.recursive(
    st.tuples(ATOMS, TIMES).map(repeated),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map("".join),
        st.lists(inner, min_size=1, max_size=3).map(lambda parts: f"({'|'.join(parts)})"),
        st.tuples(inner, TIMES).map(lambda part: f"(?:{part[0]}){part[1]}"),
        inner.map(lambda part: f"(?P<name>{part})" if "(?P" not in part else part),
    ),
    max_leaves=6,
)


@given(PATTERNS, st.text("ab-A1.", max_size=6))
@example("(?:a|b)*{0}", "a")
@example("(?:a*)*", "aa")
@example("(a|)", "")
@example("|a", "")
@example("a{,2}", "a{,2}")
def test_expression_matches_what_pythons_re_matches(pattern: str, text: str) -> None:
    try:
        found = Pattern(pattern)
    except BadPattern:
        assert re.search(r"[*+?}][*+{]|\(\?P.*\(\?P", pattern), pattern
        return
    if pattern == "a{,2}":  # Python reads it as a repetition, RE2 as characters
        assert found.fullmatch(text)
        return
    try:
        wanted = re.fullmatch(pattern, text, re.ASCII) is not None
    except re.error:  # a group name used twice
        return
    assert found.fullmatch(text) is wanted


@each(
    ("pattern", "text", "wanted"),
    [
        ("(?i)Payments-.*", "pAYMENTS-7", True),
        ("(?i)[a-c]+", "ABC", True),
        ("(?i:a)b", "AB", False),
        ("a.b", "a\nb", False),
        ("(?s)a.b", "a\nb", True),
        ("(?s-i:a.)B", "a\nb", False),
        ("\\Qa.b*\\E+", "a.b***", True),
        ("\\\\Q", "\\Q", True),
        ("(\\Qa|b)\\E)", "a|b)", True),
        ("\\Q+", "+", True),
        ("[[:alpha:]]+[[:^digit:]]", "ab-", True),
        ("[[:digit:]-]+", "1-2", True),
        ("\\p{Lu}\\pL+\\P{L}", "Äöü9", True),
        ("\\p{^Lu}", "A", False),
        ("\\x{1F600}", "\U0001f600", True),
        ("\\t\\n\\a", "\t\n\a", True),
        ("\\Aab\\z", "ab", True),
        ("a^b", "ab", False),
        ("$a", "a", False),
        ("(?<n>a)", "a", True),
        ("(?U)a+", "aaa", True),
        ("a{", "a{", True),
        ("a{x}", "a{x}", True),
        ("\\bab\\b", "ab", True),
        ("(?m)a$\n^b", "a\nb", True),
        ("a$", "a\n", False),
        ("\\p{Greek}+", "αβ", True),
        ("[\\]\\-a]+", "]-a", True),
        ("[\\d.]+", "1.2", True),
        ("x(ab|c){2,3}y", "xabcaby", True),
        ("x(ab|c){2,3}y", "xaby", False),
        ("", "", True),
    ],
)
def test_expression_of_re2s_syntax_matches_whole_text_only(pattern: str, text: str, wanted: bool) -> None:
    assert Pattern(pattern).fullmatch(text) is wanted


@each(
    "pattern",
    "( ) (a a) [ [] [a [b-a] [[:no:]] * a** a*+ a??* a{1001} a{3,2} a{99999} \\ \\x \\xg \\x{110000} \\x{} \\1 \\y"
    " \\p{Q} (?=a) (?!a) (?<=a) (?<!a) {2} (?P=n) (?P<a-b>a) (?".split(),
)
def test_malformed_expression_is_refused(pattern: str) -> None:
    with pytest.raises(BadPattern):
        Pattern(pattern)


@each(
    "pattern", "a{9999999999} a{99999999999} a{99999999999,} a{2,99999999999} (a|b){99999999999}? {99999999999}".split()
)
def test_repeat_count_beyond_an_integer_is_refused(pattern: str) -> None:
    with pytest.raises(BadPattern, match="repetition"):
        Pattern(pattern)


@each(
    ("pattern", "text"),
    [
        ("[{99999999999}]+", "{9}"),
        ("\\{99999999999}", "{99999999999}"),
        ("\\Qa{99999999999}\\E", "a{99999999999}"),
        ("a{099999999999}", "a{099999999999}"),
        ("a{2,099999999999}", "a{2,099999999999}"),
        ("a{99999999999", "a{99999999999"),
        ("a{,99999999999}", "a{,99999999999}"),
    ],
)
def test_long_number_that_is_no_repeat_count_matches_itself(pattern: str, text: str) -> None:
    assert Pattern(pattern).fullmatch(text)


@pytest.mark.parametrize("pattern", ["a" * 1001, "(?:a{1000}){1000}", "((a{50}){50}){50}", "\\pL{1000}"])
def test_large_expression_is_refused(pattern: str) -> None:
    with pytest.raises(BadPattern):
        Pattern(pattern)


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("(a", "missing ): (a"),
        ("a" * 1001, "the expression has 1001 characters, more than 1000"),
        ("\udfff", "the expression is not valid Unicode: surrogates not allowed"),
    ],
)
def test_refusal_names_the_problem(pattern: str, message: str) -> None:
    with pytest.raises(BadPattern) as caught:
        Pattern(pattern)
    assert str(caught.value) == message


@pytest.mark.parametrize("pattern", ["(a+)+b", "(a|aa)*b", "(.*)*b", "(a?){200}a{200}b", "([a-z]+)*!", ".*a.{900}b"])
def test_backtracking_expression_takes_linear_time(pattern: str) -> None:
    began = time.thread_time()
    found = Pattern(pattern)
    assert not found.fullmatch("a" * 32_767)  # the longest id that a request can hold
    assert time.thread_time() - began < 5
