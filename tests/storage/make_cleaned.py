"""Makes `cleaned_by_kafka.jsonl`: what Kafka 4.3.1's cleaner makes of the logs in tests/oracle/golden.

Run by hand, where Maven and Java are: `python tests/storage/make_cleaned.py`. A line is a rule, a log and the batches
of the result: their header fields, but for length and CRC where a codec is at work, since compressors differ.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
LOGS = HERE.parent / "oracle" / "golden" / "logs"
CLEANED = HERE / "cleaned_by_kafka.jsonl"
RULES = ("all", "thirds", "sevenths", "empty")

sys.path.insert(0, str(HERE.parent / "interop"))


def shown(data: bytes) -> list[list[int]]:
    """The header fields of every batch; -1 for the length and CRC of a compressed one."""
    from ottla.protocol.records import formats

    headers = [header for _, header in formats.headers(data)]
    return [list(h._replace(batch_length=-1, crc=-1) if h.codec else h) for h in headers]


def main() -> None:
    from checks import jars, java  # type: ignore[import-not-found]

    folder = jars("kafka-clients-4.3.1", ["org.apache.kafka:kafka-clients:4.3.1"])
    logs = sorted(path for path in LOGS.glob("*/*.log") if path.stat().st_size)
    lines = []
    for rule in RULES:
        command = java(folder, HERE / "Cleaned.java", rule, *map(str, logs))
        made = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
        for log, result in zip(logs, made, strict=True):
            if result != "refused":  # the headers of emptied batches cannot stay in v0 and v1
                row = [rule, log.relative_to(LOGS).as_posix(), shown(bytes.fromhex(result))]
                lines.append(json.dumps(row, separators=(",", ":")) + "\n")
    CLEANED.write_text("".join(lines))


if __name__ == "__main__":
    main()
