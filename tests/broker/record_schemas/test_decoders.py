"""Decoding of keys and values: available functions, and errors for undecodable records."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.broker.admin_api.views import Record
from ottla.broker.testing.decoders import DecodedRecord, Undecodable, decoded
from ottla.broker.testing.record_comparison import difference, expectations


def record(value: bytes | None, key: bytes | None = None, offset: int = 3, partition: int = 2) -> Record:
    return Record("orders", partition, offset, 7, key, value, (("h", b"x"),))


def test_json_and_function_decoders_keep_null() -> None:
    found = decoded([record(b'{"n": 1}', b"k"), record(None)], "json", bytes.decode)
    assert found == [
        DecodedRecord("orders", 2, 3, 7, "k", {"n": 1}, (("h", b"x"),)),
        DecodedRecord("orders", 2, 3, 7, None, None, (("h", b"x"),)),
    ]
    assert [type(one.key) for one in decoded([record(b"1", b"k")], "json")] == [bytes]


@pytest.mark.parametrize(
    ("value", "key", "text"),
    [
        (
            b"bread",
            None,
            "the value of orders-2 at offset 3 cannot be decoded: JSONDecodeError: Expecting value: line 1 column 1 "
            "(char 0); it is b'bread'",
        ),
        (b"1", b"\xff", "the key of orders-2 at offset 3 cannot be decoded: UnicodeDecodeError: "),
        (b"x" * 5000, None, f"it is {b'x' * 100!r}... (5000 bytes)"),
        (b"[" * 100_000, None, "cannot be decoded: RecursionError"),
    ],
)
def test_undecodable_record_is_reported_in_one_line(value: bytes, key: bytes | None, text: str) -> None:
    with pytest.raises(Undecodable) as raised:
        decoded([record(b"1", offset=0), record(value, key)], "json", bytes.decode)
    assert text in str(raised.value) and "\n" not in str(raised.value) and len(str(raised.value)) < 600


@pytest.mark.parametrize(("wrong", "error"), [("avro", ValueError), (3, TypeError)])
def test_unknown_decoder_is_refused(wrong: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match='decode is "json", a function of the bytes or None, not'):
        decoded([], wrong)


def test_decoded_values_without_a_hash_are_compared_in_any_order() -> None:
    found = decoded([record(b'{"n": %d}' % n, offset=n) for n in range(4)], "json")
    wanted: list[Any] = [{"n": n} for n in (3, 1, 0, 2)]
    assert difference("t", found, expectations(wanted, decoded=True), ordered=False) is None
    assert difference("t", found, expectations([*wanted[1:], {"n": 9}], decoded=True), ordered=False) == (
        "topic t: expected 4 (-), found 4 (+), in any order\n  - {'n': 9}\n  + {'n': 3}"
    )


def test_difference_of_decoded_values_shows_equal_ones_as_equal() -> None:
    found = decoded([record(b'{"b": 1, "a": 2}', offset=0), record(b'"x"', offset=1)], "json")
    assert difference("t", found, expectations([{"a": 2, "b": 1}, "y"], decoded=True)) == (
        "topic t: expected 2 (-), found 2 (+)\n    {'a': 2, 'b': 1}\n  - 'y'\n  + 'x'"
    )
    found = decoded([record(b'"%s"' % (b"x" * 5000))], "json")
    long = difference("t", found, expectations(["x" * 4999 + "y"], decoded=True))
    assert long is not None and len(long) < 1500 and long.count("5002 characters, CRC-32") == 2
