"""The files with the results of Kafka's cleaner, and the form of the results."""

from __future__ import annotations

from ottla_testing import GOLDEN, TESTS

HERE = TESTS / "storage" / "compaction"
LOGS = GOLDEN / "logs"
CLEANED = HERE / "cleaned_by_kafka.jsonl"
RULES = ("all", "thirds", "sevenths", "empty")


def shown(data: bytes) -> list[list[int]]:
    """Returns the header fields of every batch; -1 for the length and CRC of a compressed one."""
    from ottla.protocol.records import formats

    headers = [header for _, header in formats.headers(data)]
    return [list(h._replace(batch_length=-1, crc=-1) if h.codec else h) for h in headers]
