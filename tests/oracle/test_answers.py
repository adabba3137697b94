"""Conversion down and the cuts of old Fetch versions, against the record sets that Kafka 2.8.2 and 3.9.1 answered.

Kafka 2.0 to 3.9 declare the size of an answer before they convert: as many bytes as were read from the log, or as the
first converted batch has. What conversion makes smaller is filled with an entry that claims more bytes than are there,
which clients drop; what it makes larger is cut. We send all that was converted, and its size. A read that begins with a
control batch they answer with the first converted batch twice; we send it once.
"""

from __future__ import annotations

import pytest

from ottla.protocol.records import convert, formats
from ottla.protocol.records.errors import UnsupportedCodec
from ottla.protocol.records.steps import run
from ottla_testing.each import each
from ottla_testing.oracle import golden

WHOLE = 1 << 20
FULL = [answer for answer in golden.answers() if answer.max_bytes == WHOLE and answer.fetch_version < 4]
CUT = [answer for answer in golden.answers() if answer.max_bytes < WHOLE]


def names(answer: golden.Answer) -> str:
    return f"{answer.topic}-v{answer.fetch_version}-from-{answer.offset}-{answer.max_bytes}-{'-'.join(answer.releases)}"


def read(topic: str, offset: int) -> bytes:
    """The whole entries of the one file that holds an offset, from the entry with that offset on."""
    for data in golden.segments(topic).values():
        for position, header in formats.headers(data):
            if header.last_offset >= offset:
                return data[position:]
    raise AssertionError(f"{topic} has no offset {offset}")


def contents(data: bytes) -> list[tuple[object, ...]]:
    """Entries with their records; sizes and CRCs are left out where something is compressed."""
    found = []
    for position, header in formats.headers(data):
        shown = header._replace(batch_length=0, crc=0) if header.codec else header
        found.append((shown, *formats.records(data, position)))
    return found


def without_repeats(found: list[tuple[object, ...]]) -> list[tuple[object, ...]]:
    """Entries in their order, none twice."""
    return list({repr(one): one for one in found}.values())


@each("answer", FULL)
def test_conversion_down_answers_what_kafka_answered(answer: golden.Answer) -> None:
    magic = 0 if answer.fetch_version < 2 else 1
    data = read(answer.topic, answer.offset)
    if answer.error_code:
        assert answer.error_code == 76  # zstd
        with pytest.raises(UnsupportedCodec):
            run(convert.down(data, magic, answer.offset))
        return
    ours = run(convert.down(data, magic, answer.offset))
    if all(header.magic <= magic for _, header in formats.headers(data)):
        assert ours == data
    given = contents(answer.records)
    wanted, found = without_repeats(given), contents(ours)
    assert found[: len(wanted)] == wanted
    ends = [position + header.size_bytes for position, header in formats.headers(ours)]
    if len(wanted) < len(found):  # the next one went over the size declared
        twice = ends[len(given) - len(wanted) - 1] if len(given) > len(wanted) else 0
        assert ends[len(wanted)] + twice > len(answer.records) >= len(data)
    for position, header in formats.headers(ours):
        assert formats.crc_matches(ours, position, header) and header.magic <= magic


def test_both_releases_and_all_topics_are_among_the_answers() -> None:
    assert {answer.topic for answer in FULL} == set(golden.topics())
    assert {release for answer in FULL for release in answer.releases} == {"2.8.2", "3.9.1"}
