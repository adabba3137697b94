"""`golden/` as values: the data of Apache Kafka 2.8.2 and 3.9.1 that `make_golden.py` recorded."""

from __future__ import annotations

import base64
import json
from functools import cache
from typing import Any, NamedTuple

from ottla.protocol.records import formats
from ottla.protocol.records.batch import Header, Record
from ottla_testing import GOLDEN

LOGS = GOLDEN / "logs"


class Stored(NamedTuple):
    """A record as a consumer of 3.9.1 returned it; `kind`: NoTimestampType, CreateTime or LogAppendTime."""

    kind: str
    record: Record


class Topic(NamedTuple):
    """A topic of one partition."""

    name: str
    configs: dict[str, str]
    end_offset: int
    records: list[Stored]

    @property
    def magic(self) -> int:
        """The newest format that was written: `up-` topics are of 3.9.1, which writes only v2."""
        version = self.configs.get("message.format.version", "2.8")
        return 2 if self.name.startswith("up-") else {"0.9.0": 0, "0.10.2": 1, "2.8": 2}[version]


class Write(NamedTuple):
    """A Produce request: `records` as the client sent them; `base_offset` is -1 for a refusal, `error` its name."""

    release: str
    client: str
    topic: str
    codec: str
    produce_version: int
    base_offset: int
    records: bytes
    error: str = ""


class FetchResponse(NamedTuple):
    """The response of the releases to one Fetch request for one partition. `stored`: its place, if it is a copy."""

    releases: tuple[str, ...]
    topic: str
    fetch_version: int
    offset: int
    max_bytes: int
    error_code: int
    high_watermark: int
    records: bytes


def unpacked(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def segments(topic: str) -> dict[str, bytes]:
    """File name -> bytes of the topic's logs, in the order of their offsets."""
    return {path.name: path.read_bytes() for path in sorted((LOGS / f"{topic}-0").glob("*.log"))}


def stored_entries(topic: str) -> list[tuple[bytes, Any]]:
    """Returns (bytes, header) of every entry of the log."""
    return [
        (data[position : position + header.size_bytes], header)
        for data in segments(topic).values()
        for position, header in formats.headers(data)
    ]


@cache
def topics() -> dict[str, Topic]:
    """All topics by name."""
    found = {}
    for name, facts in json.loads((GOLDEN / "topics.json").read_text()).items():
        records = []
        for offset, kind, timestamp, key, value, headers in facts["records"]:
            pairs = [Header(header, unpacked(text)) for header, text in headers]
            records.append(Stored(kind, Record(offset, timestamp, unpacked(key), unpacked(value), tuple(pairs))))
        found[name] = Topic(name, facts["configs"], facts["end_offset"], records)
    return found


@cache
def writes() -> list[Write]:
    """All Produce requests, in their order within a topic."""
    rows = [json.loads(line) for line in (GOLDEN / "writes.jsonl").read_text().splitlines()]
    return [Write(**{**row, "records": base64.b64decode(row["records"])}) for row in rows]


@cache
def fetch_responses() -> list[FetchResponse]:
    """Returns all Fetch responses."""
    found = []
    for line in (GOLDEN / "answers.jsonl").read_text().splitlines():
        row = json.loads(line)
        given = row["records"]
        if isinstance(given, dict):
            data = segments(row["topic"])[given["file"]][given["start"] : given["start"] + given["size_bytes"]]
        else:
            data = base64.b64decode(given)
        found.append(FetchResponse(**{**row, "records": data, "releases": tuple(row["releases"])}))
    return found
