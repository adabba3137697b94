"""Searches of a log for the web pages: bounded, correct over gaps and damage, fast in a log of ten million records."""

from __future__ import annotations

import json
import struct
import time
import unicodedata
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.broker import Embedded
from ottla.broker.control.web import records as looking
from ottla.broker.control.web.logs import formats_of, segments_of
from ottla.broker.control.web.records import Wanted, look, look_back
from ottla.broker.control.web.render import HIDDEN
from ottla.broker.control.web.values import HEX_COLUMNS, as_hex, as_json, as_text, shown
from ottla.protocol.records import batch
from ottla.protocol.records.validate import Prepared
from ottla_testing.broker.harness import Broker, produce, records, running
from ottla_testing.broker.paged import START_MS, Visitor

EACH, BATCHES = 10_000, 1000  # records of a batch, and batches: ten million records


def offsets(seen: Any) -> list[int]:
    return [one.offset for one in seen.records]


async def filled(broker: Broker, count: int = 30, configs: dict[str, str] | None = None) -> None:
    await broker.topic("t", 1, configs)
    client = await broker.client()
    for number in range(count):
        data = records(b"%d" % number, b"second", timestamp=START_MS + number)
        response = await client.call(produce(data), 9)
        assert response.responses[0].partition_responses[0].error_code == 0


async def test_search_ends_at_its_bounds_and_returns_the_next_offset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path) as broker:
        await filled(broker)
        partition = broker.state.topics.partition("t", 0)

        async def seen(*arguments: Any, **more: Any) -> Any:
            return await look(broker.state, partition, Wanted(*arguments, **more))

        found = await seen(3, 60, 4)
        assert (offsets(found), found.next_offset, found.is_whole, found.looked) == ([3, 4, 5, 6], 7, True, 4)
        assert offsets(await seen(3, 5, 40)) == [3, 4]
        assert offsets(await seen(0, 60, 3, newest=True)) == [57, 58, 59]
        found = await seen(0, 60, 5, b"29")
        assert (offsets(found), found.next_offset, found.looked) == ([58], 60, 60)
        monkeypatch.setattr(looking, "LOOK_RECORDS", 7)
        found = await seen(1, 60, 5, b"29")
        assert (offsets(found), found.next_offset, found.is_whole) == ([], 8, False)
        found = await seen(found.next_offset, 60, 5, b"29")
        assert (found.next_offset, found.is_whole) == (15, False)
        monkeypatch.undo()
        monkeypatch.setattr(looking, "SLICE_BYTES", 1)
        monkeypatch.setattr(looking, "LOOK_BYTES", 200)
        found = await seen(0, 60, 50)
        assert (offsets(found), found.is_whole) == (list(range(6)), False)
        assert offsets(await look_back(broker.state, partition, 9, Wanted(9, 9, 4))) == [5, 6, 7, 8]
        for before in range(1, 60):
            back = await look_back(broker.state, partition, before, Wanted(before, before, 2))
            assert offsets(back) == list(range(max(0, before - 2), before))
        assert offsets(await look_back(broker.state, partition, 0, Wanted(0, 0, 2))) == []


async def test_keys_and_values_are_cut_with_their_full_size(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        await broker.topic("t")
        client = await broker.client()
        header = [batch.Header("h", b"v" * 5000)]
        data = batch.build([batch.Record(0, 0, b"k" * 700, b"v" * 90_000, header)])
        await client.call(produce(data), 9)
        partition = broker.state.topics.partition("t", 0)
        (cut,) = (await look(broker.state, partition, Wanted(0, 1, 1))).records
        assert (cut.key.head, cut.key.size, cut.key.is_cut) == (b"k" * 600, 700, True)
        assert (len(cut.value.head or b""), cut.value.size, len(cut.headers[0][1] or b"")) == (600, 90_000, 600)
        (whole,) = (await look(broker.state, partition, Wanted(0, 1, 1, kept_bytes=None))).records
        assert (whole.value.head, whole.value.is_cut) == (b"v" * 90_000, False)


async def test_search_skips_gaps_of_a_compacted_log(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        await broker.topic("t")
        log = broker.log("t")

        def put(offset: int, value: bytes) -> None:
            data = bytearray(batch.build([batch.Record(0, START_MS, b"k", value)]))
            struct.pack_into(">q", data, 0, offset)
            segment = log.segments[-1]
            header = batch.read_header(data)
            segment.append(data, (header,))
            log.log_end_offset = segment.next_offset

        for offset in (0, 5, 1_000_000, 400_000_000):
            put(offset, b"%d" % offset)
        partition = broker.state.topics.partition("t", 0)
        assert offsets(await look(broker.state, partition, Wanted(1, 2**62, 9))) == [5, 1_000_000, 400_000_000]
        for before, found in ((2**62, [400_000_000]), (400_000_000, [1_000_000]), (1_000_000, [5]), (5, [0]), (3, [0])):
            before = min(before, log.log_end_offset)
            assert offsets(await look_back(broker.state, partition, before, Wanted(before, before, 1))) == found
        (facts,) = await segments_of(log)
        assert (facts.first, facts.last, facts.next_offset) == ("v2", "v2", 400_000_001)


async def test_damaged_batches_are_shown_and_skipped(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        await broker.topic("t", 1, {"compression.type": "producer"})
        client = await broker.client()
        for codec in (0, 4, 0):
            await client.call(produce(records(b"sound", b"sound", codec=codec)), 9)
        (path,) = tmp_path.glob("t-0/*.log")
        data = bytearray(path.read_bytes())
        first = batch.read_header(data).size_bytes
        for position in (batch.HEADER_BYTES - 20, first + batch.HEADER_BYTES + 6):
            data[position] ^= 0xFF
        path.write_bytes(data)
        partition = broker.state.topics.partition("t", 0)
        seen = await look(broker.state, partition, Wanted(0, 6, 9))
        result = [(one.offset, bool(one.problem), one.batch.crc_ok) for one in seen.records]
        assert result == [(0, False, False), (1, False, False), (2, True, False), (4, False, True), (5, False, True)]
        data[first + 16] = 9  # from here on the boundaries of batches are lost
        path.write_bytes(data)
        from ottla.broker.admin_api.views import OperationError

        with pytest.raises(OperationError, match="KAFKA_STORAGE_ERROR"):
            await look(broker.state, partition, Wanted(0, 6, 9))


async def test_segments_are_closed_after_they_were_read(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        await filled(broker, 12, {"segment.ms": "2", "index.interval.bytes": "0"})
        log = broker.log("t")
        assert len(log.segments) >= 3
        log.flush()  # a later sync would open the segments again
        for segment in log.segments[:-1]:
            segment.close()
        facts = await segments_of(log)
        assert [one.base_offset for one in facts] == [segment.base_offset for segment in log.segments]
        assert all((one.first, one.last) == ("v2", "v2") and one.last_ms >= one.first_ms for one in facts)
        assert formats_of(log) == ["v2"]
        assert not any(segment.is_open for segment in log.segments[:-1]) and log.segments[-1].is_open


def test_search_time_does_not_depend_on_the_size_of_the_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = bytearray(batch.build([batch.Record(n, START_MS + n, None, b"%d" % n) for n in range(EACH)], codec=4))
    with Embedded(data_dir=tmp_path, control="127.0.0.1:0") as broker:
        broker.create_topic("large", 1, {"retention.ms": "-1", "segment.bytes": str(1 << 20)})
        broker.create_topic("small", 1, {"retention.ms": "-1"})
        broker.send("small", "one", timestamp_ms=START_MS)

        async def fill(operations: Any) -> None:
            state = operations.running.state
            log = state.topics.partition("large", 0).log
            for number in range(BATCHES):
                struct.pack_into(">q", one, 27, START_MS + EACH * number)
                header = batch.reseal(one, 0, attributes=4, max_timestamp=START_MS + EACH * (number + 1) - 1)
                log.append_prepared(Prepared(bytearray(one), header, -1, 0, (header,)), now_ms=START_MS)

        broker._thread.call(fill)
        assert broker.topic("large").partitions[0].end_offset == EACH * BATCHES
        assert broker.control_url
        visitor = Visitor(broker.control_url)
        visitor.page("/")  # imports the renderer

        def seconds(path: str) -> float:
            took = []
            for _ in range(3):
                begun = time.process_time()
                assert visitor.request("GET", path).status == 200
                took.append(time.process_time() - begun)
            return min(took)

        result = []
        for path in (
            "/topics", "/topics/{}", "/topics/{}/0",
            "/messages/{}", "/messages/{}?partition=0", "/messages/{}/0/8765432",
            "/messages/{}?partition=0&offset=5004321", f"/messages/{{}}?partition=0&time={START_MS + 7_654_321}",
        ):  # fmt: skip
            large = seconds(path.format("large"))
            small = seconds(
                path.format("small")
                .replace("5004321", "0")
                .replace(str(START_MS + 7_654_321), "0")
                .replace("8765432", "0")
            )
            result.append(f"{path:50} {1000 * large:7.1f} ms, of one record {1000 * small:7.1f} ms")
            assert large < 1.0, result
        page = visitor.page(f"/messages/large?partition=0&time={START_MS + 7_654_321}&limit=10")
        assert next(link.text for link in page.all("a") if "data-row" in link.attributes) == "7\u202f654\u202f321"
        assert "Offsets 0 to 10\u202f000\u202f000." in page.one("main").text
        rows = visitor.page("/topics/large/0").all("tbody")[0].children
        assert len(rows) > 3 and all("v2 zstd" in row.text for row in rows)
        with capsys.disabled():
            print("", *result, sep="\n")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)


@given(JSON, st.sampled_from([None, 0, 3]), st.booleans())
def test_json_in_lines_is_the_same_json(value: Any, indent: int | None, ascii_only: bool) -> None:
    given_text = json.dumps(value, indent=indent, ensure_ascii=ascii_only)
    text = as_json(given_text)
    assert text is not None and json.loads(text) == value
    assert text == json.dumps(value, indent=2, ensure_ascii=ascii_only)


def test_json_in_lines_keeps_numbers_and_duplicate_names() -> None:
    assert as_json('{"a":1.10,"a":1e400,"b":123456789012345678901234567890}') == (
        '{\n  "a": 1.10,\n  "a": 1e400,\n  "b": 123456789012345678901234567890\n}'
    )
    for wrong in ("", "{", "[1,]", "nothing", '{"a"}', "1 2", "[" * 100_000, "[" * 300 + "]" * 300):
        assert as_json(wrong) is None
    assert as_json("[" * 150 + "]" * 150) is not None


@given(st.binary(max_size=80))
def test_hex_lines_have_the_bytes(data: bytes) -> None:
    lines = as_hex(data).split("\n") if data else []
    assert len(lines) == -(-len(data) // HEX_COLUMNS)
    assert b"".join(bytes.fromhex(line[10:59]) for line in lines) == data


def test_cut_character_is_omitted_and_binary_data_is_hex() -> None:
    assert as_text("ä".encode()[:1], is_cut=True) == "" and as_text("ä".encode()[:1]) is None
    assert as_text(b"\xff", is_cut=True) is None or as_text(b"\xffabcd", is_cut=True) is None
    assert shown(None) is None
    assert [shown(data).way for data in (b"[1]", b"1", b"{", b"\xff", b"")] == ["json", "text", "text", "hex", "text"]  # type: ignore[union-attr]
    assert shown(b"1", "json").way == "json" and shown(b"x", "json").note == "not JSON"  # type: ignore[union-attr]
    assert shown(b"[1]", "json", is_cut=True).note.startswith("too long")  # type: ignore[union-attr]


def test_hidden_characters_are_those_of_the_unicode_categories() -> None:
    harmless = {0x09, 0x0A, 0x200C, 0x200D}
    for code in (
        *range(0x3000),
        *range(0xD7F0, 0xE010),
        *range(0xFE00, 0x11100),
        *range(0x13400, 0x13500),
        *range(0xE0000, 0xE0100),
    ):
        letter = chr(code)
        acts = unicodedata.category(letter) in ("Cc", "Cf", "Cs", "Zl", "Zp") and code not in harmless
        assert not acts or HIDDEN.fullmatch(letter), hex(code)
        assert acts or not HIDDEN.fullmatch(letter) or unicodedata.category(letter) == "Cn", hex(code)
