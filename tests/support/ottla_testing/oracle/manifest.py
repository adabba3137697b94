"""The manifest of Apache Kafka's data: SHA-256 and path of each file, as `sha256sum` writes them."""

from __future__ import annotations

import hashlib

from ottla_testing import GOLDEN, ROOT

MANIFEST = GOLDEN / "manifest.sha256"
README = GOLDEN / "README.md"
ELSEWHERE = (
    "broker/config/configs.json",
    "broker/releases/releases.json",
    "tests/tools/disk/kraft_records.json",
    "tests/client/producer/partitions.json",
    "tests/protocol/records/golden/refused_batches.jsonl",
    "tests/protocol/versions.json",
    "tests/storage/compaction/cleaned_by_kafka.jsonl",
    "tests/storage/compaction/compacted_by_kafka.jsonl",
)
"""Data files beside the tests and modules that use them, from the root of the repository."""


def present() -> dict[str, str]:
    """Returns the SHA-256 of each data file, by its path from the root of the repository."""
    paths = [path for path in GOLDEN.rglob("*") if path.is_file() and path not in (MANIFEST, README)]
    paths += [ROOT / name for name in ELSEWHERE]
    return {path.relative_to(ROOT).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(paths)}


def listed() -> dict[str, str]:
    """Returns the entries of the manifest."""
    lines = (line.split("  ", 1) for line in MANIFEST.read_text().splitlines())
    return {path: digest for digest, path in lines}
