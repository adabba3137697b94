"""Text for people: numbers, sizes, durations, times and tables."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.protocol import text


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (text.count(None), "-"),
        (text.count(99_999), "99,999"),
        (text.count(100_000), "100k"),
        (text.count(999_960), "1M"),
        (text.count(1_234_567), "1.23M"),
        (text.rate(0), "0"),
        (text.rate(0.01), "<0.1"),
        (text.rate(3.14), "3.1"),
        (text.rate(9.97), "10"),
        (text.size(None), "-"),
        (text.size(0), "0 B"),
        (text.size(1023), "1023 B"),
        (text.size(1536), "1.5 KiB"),
        (text.size(1023.99 * 1024), "1 MiB"),
        (text.size(100 * 1024), "100 KiB"),
        (text.size(2**63), "8 EiB"),
        (text.speed(3 << 20, 2.0), "1.5 MiB/s"),
        (text.speed(1, 0.0), "977 KiB/s"),
        (text.elapsed(None), "-"),
        (text.elapsed(0), "0 ms"),
        (text.elapsed(0.42), "420 µs"),
        (text.elapsed(0.9996), "1 ms"),
        (text.elapsed(1.5), "1.5 ms"),
        (text.elapsed(35.4), "35.4 ms"),
        (text.elapsed(999.6), "1 s"),
        (text.elapsed(1250), "1.25 s"),
        (text.elapsed(59_999), "1m 0s"),
        (text.elapsed(192_000), "3m 12s"),
        (text.elapsed(3_599_600), "1h 0m"),
        (text.elapsed(2 * 86_400_000 + 4 * 3_600_000), "2d 4h"),
        (text.elapsed(-1500), "-1.5 s"),
        (text.moment(None), "-"),
        (text.moment(-1), "-"),
        (text.moment(1_700_000_000_123), "2023-11-14 22:13:20.123"),
        (text.moment(2**62), str(2**62)),
        (text.plural(1, "topic"), "1 topic"),
        (text.plural(0, "topic"), "0 topics"),
    ],
)
def test_value_has_the_expected_text(shown: str, expected: str) -> None:
    assert shown == expected


@given(st.binary(max_size=40).map(lambda raw: raw.decode("latin-1")) | st.text())
def test_visible_text_is_one_printable_line(given_text: str) -> None:
    shown = text.visible(given_text)
    assert shown.isprintable() and len(shown.splitlines()) <= 1
    shown.encode()
    assert not given_text.isprintable() or shown == given_text


def test_table_aligns_numbers_right_and_shows_control_characters() -> None:
    rows = [("a\nb", 5, True, None), ("c", None, False, 1.5), ("long name", 1234, None, 20)]
    assert text.table(rows, ("NAME", "SIZE", "OK", "S")) == [
        "NAME       SIZE  OK     S\n",
        "a\\nb          5  yes    -\n",
        "c             -  no   1.5\n",
        "long name  1234  -     20\n",
    ]


def test_table_aligns_the_given_columns() -> None:
    assert text.table([("1.5k", "x"), ("20", "y")], numbers=[0]) == ["1.5k  x\n", "  20  y\n"]
    assert text.table([(1, 2), (10, 20)], numbers=()) == ["1   2\n", "10  20\n"]


def test_overlong_cell_shifts_only_its_own_line() -> None:
    assert text.table([("abcdef", "x"), ("a", "y")], most=3) == ["abcdef  x\n", "a    y\n"]
