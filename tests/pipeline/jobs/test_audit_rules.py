"""Rules of an audit: each form against the records one by one, over the ends of segments, and beside damage."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from ottla.pipeline.backend import ReadError
from ottla.pipeline.jobs.audit import rules as by_rules
from ottla.pipeline.jobs.audit.report import AuditReport
from ottla.pipeline.jobs.audit.rules import Evaluated, RuleError, Rules, check, evaluated, items, parse
from ottla.pipeline.jobs.audit.steps import Audit
from ottla.pipeline.jobs.export.value_columns import Decoding
from ottla.pipeline.jobs.export.value_schemas.sources import Schema, SourceError
from ottla.protocol.records.batch import Header, Record
from ottla_testing.pipeline.columnar_samples import FORMATS, entries, shown, some_records

NOW_MS = 1_700_000_000_000
LATER = "2030-01-01T00:00:00Z"
LATER_MS = 1_893_456_000_000


def a_log(root: Path, name: str, segments: Sequence[Sequence[tuple[list[Record], int, int]]]) -> Path:
    """Writes a partition's folder: for each segment its entries, as records with format and codec."""
    (root / name).mkdir(parents=True)
    for segment in segments:
        data = b"".join(entries(*entry) for entry in segment)
        (root / name / f"{segment[0][0][0].offset:020d}.log").write_bytes(data)
    return root


def of(*records: Record) -> list[list[tuple[list[Record], int, int]]]:
    """Returns one segment with these records in one batch."""
    return [[([one._replace(offset=offset) for offset, one in enumerate(records)], 2, 0)]]


def record(key: bytes | None = b"k", value: bytes | None = b"v", at: int = NOW_MS, *headers: str) -> Record:
    return Record(0, at, key, value, tuple(Header(name, b"") for name in headers))


def found(root: Path, rules: Rules, topics: Sequence[str] | None = None) -> Evaluated:
    """Checks a directory by rules, in this process; the pieces in another order than that of the log."""
    pieces = items(Audit([str(root)], topics=topics).places(), rules)
    results = [(item, check(item)) for item in pieces]
    return evaluated(rules, reversed(results))


def texts(result: Evaluated) -> list[str]:
    return [f"{finding.where}: {finding.what}" for _, finding in result.findings]


def broken(result: Evaluated) -> list[int]:
    return [one.broken for one in result.results]


# -- the forms

_KEPT: dict[str, Callable[[Record], Any]] = {
    "key required": lambda one: one.key is not None,
    "value required": lambda one: one.value is not None,
    "timestamp required": lambda one: one.timestamp != -1,
    "header h3 required": lambda one: any(header.key == "h3" for header in one.headers),
    "key at least 64 bytes": lambda one: one.key is None or len(one.key) >= 64,
    "key at most 63": lambda one: one.key is None or len(one.key) <= 63,
    "value at least 1 bytes": lambda one: one.value is None or len(one.value) >= 1,
    "value at most 8 KiB": lambda one: one.value is None or len(one.value) <= 8192,
    f"timestamp from {LATER}": lambda one: one.timestamp == -1 or one.timestamp >= LATER_MS,
    f"timestamp until {LATER_MS}": lambda one: one.timestamp == -1 or one.timestamp < LATER_MS,
}


def out_of_order(records: Sequence[Record], bound: int) -> list[int]:
    timed = [one for one in records if one.timestamp != -1]
    return [two.offset for one, two in pairwise(timed) if two.timestamp < one.timestamp - bound]


def test_all_rules_match_the_records_one_by_one(tmp_path: Path, scaled: Callable[[int], int]) -> None:
    chance = random.Random(scaled(4))
    for number in range(scaled(4)):
        segments: list[list[tuple[list[Record], int, int]]] = []
        expected: list[Record] = []
        offset = chance.randint(0, 5)
        for _ in range(chance.randint(1, 6)):
            segments.append([])
            for _ in range(chance.randint(1, 6)):
                magic, codec = chance.choice(FORMATS)
                made = some_records(chance.randint(1, 9), chance.getrandbits(30), first=offset, headers=magic == 2)
                made = [
                    one._replace(
                        offset=offset + n,
                        timestamp=chance.choice([one.timestamp, -1, LATER_MS, LATER_MS - 1]),
                        headers=(*one.headers, *[Header(f"h{chance.randint(1, 3)}", None)] * (magic == 2)),
                    )
                    for n, one in enumerate(made)
                ]
                offset = made[-1].offset + 1
                segments[-1].append((made, magic, codec))
                expected += shown(made, magic)
        root = a_log(tmp_path / str(number), "orders-0", segments)
        rules = Rules.of([*_KEPT, "timestamp in order within 2s", "timestamp in order within 0ms"])
        result = found(root, rules)
        wrong = [[one.offset for one in expected if not keeps(one)] for keeps in _KEPT.values()]
        wrong += [out_of_order(expected, 2000), out_of_order(expected, 0)]
        assert broken(result) == [len(one) for one in wrong], number
        assert {one.records for one in result.results} == {len(expected)}
        by_text = {finding.what.split("`")[1]: finding for _, finding in result.findings}
        for rule, offsets in zip(rules.rules, wrong, strict=True):
            if offsets:
                at = ", ".join(map(str, offsets[:5]))
                assert by_text[rule.text].offset == offsets[0] and by_text[rule.text].what.endswith(f"at {at}")
            else:
                assert rule.text not in by_text


def test_finding_has_count_and_first_offsets(tmp_path: Path) -> None:
    root = a_log(tmp_path, "orders-0", of(*(record(None if n % 2 else b"k") for n in range(14))))
    result = found(root, Rules.of(["key  required", "value required"]))
    assert texts(result) == [
        "orders-0, offset 1: rule `key required`: 7 of 14 records, the first ones at 1, 3, 5, 7, 9"
    ]
    finding = result.findings[0][1]
    assert (finding.wrong, finding.part, finding.byte) == (True, "rules", None)
    report = Audit([str(root)]).report(now_ms=0)
    assert report.sound
    report.rules = result.results
    report.directories[0].add(finding)
    assert (report.exit_code, report.to_dict()["rules"][0]) == (
        1,
        {"rule": "key required", "records": 14, "broken": 7},
    )
    assert "rule `key required`: 7 of 14 records break it" in report.to_text()


def test_timestamps_of_the_extremes_do_not_overflow(tmp_path: Path) -> None:
    times = [-(2**63), 2**63 - 1, -(2**63), 0, 2**63 - 1]
    root = a_log(tmp_path, "orders-0", [[([record(at=at)._replace(offset=n)], 2, 0) for n, at in enumerate(times)]])
    rules = ["timestamp in order within 99999999999d", "timestamp in order within 1d", "timestamp from 0"]
    assert broken(found(root, Rules.of([*rules, f"timestamp until {10**18 * 9}"]))) == [1, 1, 2, 2]


def test_header_names_are_not_patterns(tmp_path: Path) -> None:
    root = a_log(tmp_path, "orders-0", of(record(b"k", b"v", NOW_MS, "a.b c"), record(b"k", b"v", NOW_MS, "aXb c")))
    assert texts(found(root, Rules.of(["header a.b c required"])))[0].endswith("1 of 2 records, at 1")


# -- topics


def test_rules_of_topics_and_internal_topics(tmp_path: Path) -> None:
    for name in ("orders-0", "orders-1", "views-0", "__consumer_offsets-0"):
        a_log(tmp_path, name, of(record(None)))
    result = found(tmp_path, Rules.of(["orders: key required", "value required"]))
    assert [text.split(",")[0] for text in texts(result)] == ["orders-0", "orders-1"]
    assert [(one.records, one.broken) for one in result.results] == [(2, 2), (3, 0)]
    named = found(tmp_path, Rules.of(["key required"]), topics=["__consumer_offsets"])
    assert [text.split(",")[0] for text in texts(named)] == ["__consumer_offsets-0"]
    own = found(tmp_path, Rules.of(["__consumer_offsets: key required"]))
    assert broken(own) == [1]


def test_topic_without_rules_is_not_read(tmp_path: Path) -> None:
    a_log(tmp_path, "orders-0", of(record()))
    assert items(Audit([str(tmp_path)]).places(), Rules.of(["views: key required"])) == []


def test_only_needed_columns_are_read() -> None:
    rules = Rules.of(["key required", "timestamp required", "header a required"], value=Decoding.json())
    assert by_rules.columns(rules, [0]) == ("offset", "key")
    assert by_rules.columns(rules, [1, 2]) == ("offset", "timestampMs", "headers")
    assert by_rules.columns(rules, [3]) == ("offset", "value")


# -- schemas


def test_values_and_keys_must_decode(tmp_path: Path) -> None:
    schema = json.dumps({"type": "object", "properties": {"id": {"type": "integer"}}})
    good, bad = b'{"id": 1}', b'{"id": "x"}'
    root = a_log(
        tmp_path, "orders-0", of(record(b"5", good), record(b"x", bad), record(None, None), record(b"5", b"{"))
    )
    rules = Rules.of([], value=Decoding.json_schema(schema), key=Decoding.json())
    assert broken(found(root, rules)) == [1, 2]
    keys, values = texts(found(root, rules))
    assert keys.startswith("orders-0, offset 1: rule `key decodes as json`: 1 of 4 records, at 1: Expecting value")
    assert values.startswith("orders-0, offset 1: rule `value decodes as json`: 2 of 4 records, at 1, 3: 'x' is not")


class NoSchemas:
    def by_id(self, schema_id: int) -> Schema | None:
        raise SourceError("the registry cannot be reached")

    def latest(self, subject: str) -> Schema:
        raise AssertionError(subject)


def test_registry_that_cannot_be_read_ends_the_audit(tmp_path: Path) -> None:
    root = a_log(tmp_path, "orders-0", of(record(b"k", b"\0\0\0\0\1x")))
    rules = Rules.of([], value=Decoding.avro('"string"', "avro-confluent", NoSchemas()))
    with pytest.raises(SourceError, match="cannot be reached"):
        found(root, rules)


# -- damage and changes


def test_damaged_batch_is_left_out(tmp_path: Path) -> None:
    parts = [([record(None)._replace(offset=n)], 2, 0) for n in range(3)]
    root = a_log(tmp_path, "orders-0", [parts])
    log = root / "orders-0" / f"{0:020d}.log"
    data = bytearray(log.read_bytes())
    data[len(data) // 3 + 65] ^= 1
    log.write_bytes(data)
    report: AuditReport = Audit([str(root)]).report(now_ms=0)
    assert [finding.offset for finding in report.findings] == [1]
    result = found(root, Rules.of(["key required"]))
    assert texts(result)[0].endswith("2 of 2 records, at 0, 2")


def test_unreadable_segment_is_a_finding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = a_log(tmp_path, "orders-0", of(record(None)))
    (item,) = items(Audit([str(root)]).places(), Rules.of(["key required"]))

    def fails(*_: Any) -> None:
        raise ReadError("cannot read x.log: Input/output error")

    monkeypatch.setattr(type(item.piece), "read", fails)
    result = evaluated(item.rules, [(item, check(item))])
    assert texts(result) == [
        "orders-0, offset 0: records were not checked by the rules: cannot read x.log: Input/output error"
    ]
    assert result.results[0].records == 0


def test_partition_that_is_deleted_meanwhile_has_no_findings(tmp_path: Path) -> None:
    root = a_log(tmp_path, "orders-0", of(record(None)))
    places = Audit([str(root)]).places()
    pieces = items(places, Rules.of(["key required"]))
    shutil.rmtree(root / "orders-0")
    assert items(places, Rules.of(["key required"])) == []
    assert check(pieces[0]).records == 0


# -- texts


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("key must be there", "is not a rule: it must be [TOPIC:] key required, value required"),
        ("", "is not a rule"),
        ("orders:", "is not a rule"),
        ("key at most many", "'many' is not a size, such as 100 bytes"),
        ("value at most -1", "'-1' is not a size"),
        ("timestamp from yesterday", "'yesterday' is not a time"),
        ("timestamp in order within 5", "'5' is not a duration"),
        ("timestamp at most 5", "is not a rule"),
        ("header  required", "is not a rule"),
    ],
)
def test_text_that_is_no_rule_refused(text: str, words: str) -> None:
    with pytest.raises(RuleError) as caught:
        parse(text)
    assert words in str(caught.value) and "\n" not in str(caught.value)


def test_file_of_rules() -> None:
    found = by_rules.lines("# sizes\n\n  key at most 1 kB  \norders:value required\n")
    assert [parse(line) for line in found] == [
        by_rules.Rule("key at most 1 kB", None, "at most", "key", 1000),
        by_rules.Rule("orders:value required", "orders", "required", "value"),
    ]
