"""Rewriting compared with Kafka's: the same batches as its 4.3.1 cleaner leaves of logs that 2.8.2 and 3.9.1 wrote."""

from __future__ import annotations

import json
from pathlib import Path

from ottla.protocol.records import batch, formats
from ottla.protocol.records.batch import Record
from ottla.storage.compaction.rewrite import Choose, Source, Target, Verdict, every, rewrite
from ottla.storage.io.files import DiskFiles
from ottla_testing.each import each
from ottla_testing.storage.cleaned_logs import CLEANED, LOGS, RULES, shown

ROWS = [json.loads(line) for line in CLEANED.read_text().splitlines()]
HORIZON_MS = 1777  # the time and delete.retention.ms that Cleaned.java passes


def stays(rule: str, offset: int) -> bool:
    if rule == "all":
        return True
    if rule == "thirds":
        return offset % 3 != 1
    if rule == "sevenths":
        return offset % 5 != 4 and offset % 7 != 0
    return offset // 5 % 2 == 0 and offset % 2 == 0


def chooser(rule: str) -> Choose:
    keep = every if rule == "all" else lambda offset, key, has_value: stays(rule, offset)
    return lambda header, data: Verdict(keep, rule == "empty", None if header.is_control else HORIZON_MS)


def records_of(data: bytes) -> list[Record]:
    return [record for position, _ in formats.headers(data) for record in formats.records(data, position)]


@each(("rule", "name", "batches"), ROWS)
def test_filtered_entries_equal_kafkas(rule: str, name: str, batches: list[list[int]], tmp_path: Path) -> None:
    path = LOGS / name
    source = path.read_bytes()
    (made,) = rewrite(
        DiskFiles(),
        [Source(str(path), len(source))],
        Target(str(tmp_path), int(path.stem), 4096, suffix=""),
        choose=chooser(rule),
    )
    written = (tmp_path / path.name).read_bytes()
    assert len(written) == made.size_bytes
    assert shown(written) == batches
    assert all(batch.crc_matches(written, position, header) for position, header in formats.headers(written))
    assert records_of(written) == [record for record in records_of(source) if stays(rule, record.offset)]


def test_rules_cover_every_format_and_remove_records() -> None:
    assert {row[0] for row in ROWS} == set(RULES) and len(ROWS) > 100
    sources = {row[1]: records_of((LOGS / row[1]).read_bytes()) for row in ROWS}
    assert {name.partition("-")[0] for name in sources} >= {"v0", "v1", "v2", "mixed", "transactions", "gaps"}
    left = {rule: sum(header[12] for row in ROWS if row[0] == rule for header in row[2]) for rule in RULES}
    assert left["all"] == sum(len(records) for records in sources.values()) > left["thirds"] > left["empty"] > 0
    assert any(header[12] == 0 for row in ROWS if row[0] == "empty" for header in row[2])
