"""Whole passes compared with the cleaners of Kafka 2.8, 3.9 and 4.3: the same segments, batches, times, transaction
indexes, in all three message formats."""

from __future__ import annotations

import base64
import json

import pytest

from ottla.protocol.records import formats
from ottla_testing.each import each
from ottla_testing.storage.compacted_logs import COMPACTED, ours

LOGS = [json.loads(line) for line in COMPACTED.read_text().splitlines()]


@each("number", range(len(LOGS)))
def test_each_pass_leaves_the_same_log_as_kafka(number: int) -> None:
    log = LOGS[number]
    for found, (_, _, wanted) in zip(ours(log), log["passes"], strict=True):
        assert found == wanted


def left_by(release: str) -> list[list[int]]:
    """Returns the headers of all batches after any pass."""
    passes = [segments for log in LOGS if log["release"] == release for _, _, segments in log["passes"]]
    return [header for segments in passes for part in segments for header in part[2]]


@pytest.mark.parametrize("release", ["2.8.2", "3.9.1", "4.3.1"])
def test_recording_covers_every_case(release: str) -> None:
    headers = left_by(release)
    horizons = {bool(header[5] & 0x20) for header in headers if header[5] & 0x40}
    assert horizons == (set() if release == "2.8.2" else {False, True}), "of tombstones and of markers"
    assert not all(header[12] for header in headers), "what was emptied"
    assert {header[3] for header in headers} == ({2} if release == "4.3.1" else {0, 1, 2})
    logs = [log for log in LOGS if log["release"] == release]
    assert any(part[4] for log in logs for _, _, segments in log["passes"] for part in segments), "aborted transactions"
    assert len({log["segment_bytes"] for log in logs}) > 1
    before = [base64.b64decode(part[2]) for log in logs for part in log["segments"]]
    assert {header.magic for content in before for _, header in formats.headers(content)} == {0, 1, 2}


def test_recording_has_an_emptied_marker() -> None:
    emptied = {
        release for release in ("2.8.2", "3.9.1", "4.3.1") for h in left_by(release) if h[5] & 0x20 and not h[12]
    }
    assert emptied
