"""Makes `cleaned_by_kafka.jsonl`: the output of Kafka 4.3.1's cleaner for the logs in tests/oracle/golden.

Run by hand, with Maven and Java: `python tests/storage/compaction/make_cleaned.py`. A line has a rule, a log and the
batches of the result: their header fields, without length and CRC for compressed batches, since compressors differ.
"""

from __future__ import annotations

import json
import subprocess

from ottla_testing.storage.cleaned_logs import CLEANED, HERE, LOGS, RULES, shown


def main() -> None:
    from ottla_testing.interop.checks import jars, java

    folder = jars("kafka-clients-4.3.1", ["org.apache.kafka:kafka-clients:4.3.1"])
    logs = sorted(path for path in LOGS.glob("*/*.log") if path.stat().st_size)
    lines = []
    for rule in RULES:
        command = java(folder, HERE / "Cleaned.java", rule, *map(str, logs))
        made = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
        for log, result in zip(logs, made, strict=True):
            if result != "refused":  # v0 and v1 cannot keep the headers of emptied batches
                row = [rule, log.relative_to(LOGS).as_posix(), shown(bytes.fromhex(result))]
                lines.append(json.dumps(row, separators=(",", ":")) + "\n")
    CLEANED.write_text("".join(lines))


if __name__ == "__main__":
    main()
