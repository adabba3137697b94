"""Down conversion and the cuts of old Fetch versions, compared with the responses of Kafka 2.8.2 and 3.9.1.

Kafka 2.0 to 3.9 declare the size of a response before they convert: the bytes read from the log, or the size of the
first converted batch. A smaller result is filled with an entry that claims more bytes than are there, which clients
drop; a larger one is cut. Ottla sends the whole converted result, and its size. If a read begins with a control batch,
Kafka sends the first converted batch twice, Ottla once.
"""

from __future__ import annotations

import pytest

from ottla.protocol.records import convert, formats
from ottla.protocol.records.errors import UnsupportedCodec
from ottla.protocol.records.steps import run
from ottla_testing.each import each
from ottla_testing.oracle import golden

WHOLE = 1 << 20
FULL = [response for response in golden.fetch_responses() if response.max_bytes == WHOLE and response.fetch_version < 4]
CUT = [response for response in golden.fetch_responses() if response.max_bytes < WHOLE]


def names(response: golden.FetchResponse) -> str:
    releases = "-".join(response.releases)
    return f"{response.topic}-v{response.fetch_version}-from-{response.offset}-{response.max_bytes}-{releases}"


def read(topic: str, offset: int) -> bytes:
    """Returns the whole entries of the file that contains an offset, from the entry with that offset on."""
    for data in golden.segments(topic).values():
        for position, header in formats.headers(data):
            if header.last_offset >= offset:
                return data[position:]
    raise AssertionError(f"{topic} has no offset {offset}")


def contents(data: bytes) -> list[tuple[object, ...]]:
    """Returns entries with their records; sizes and CRCs are left out for compressed entries."""
    found = []
    for position, header in formats.headers(data):
        shown = header._replace(batch_length=0, crc=0) if header.codec else header
        found.append((shown, *formats.records(data, position)))
    return found


def without_repeats(found: list[tuple[object, ...]]) -> list[tuple[object, ...]]:
    """Returns the entries in order, without repetitions."""
    return list({repr(one): one for one in found}.values())


@each("response", FULL)
def test_down_conversion_returns_kafkas_response(response: golden.FetchResponse) -> None:
    magic = 0 if response.fetch_version < 2 else 1
    data = read(response.topic, response.offset)
    if response.error_code:
        assert response.error_code == 76  # zstd
        with pytest.raises(UnsupportedCodec):
            run(convert.down(data, magic, response.offset))
        return
    ours = run(convert.down(data, magic, response.offset))
    if all(header.magic <= magic for _, header in formats.headers(data)):
        assert ours == data
    given = contents(response.records)
    wanted, found = without_repeats(given), contents(ours)
    assert found[: len(wanted)] == wanted
    ends = [position + header.size_bytes for position, header in formats.headers(ours)]
    if len(wanted) < len(found):  # the next one exceeded the declared size
        twice = ends[len(given) - len(wanted) - 1] if len(given) > len(wanted) else 0
        assert ends[len(wanted)] + twice > len(response.records) >= len(data)
    for position, header in formats.headers(ours):
        assert formats.crc_matches(ours, position, header) and header.magic <= magic


def test_responses_cover_both_releases_and_all_topics() -> None:
    assert {response.topic for response in FULL} == set(golden.topics())
    assert {release for response in FULL for release in response.releases} == {"2.8.2", "3.9.1"}
