"""Makes `compacted_by_kafka.jsonl`: the output of the cleaners of Kafka 2.8.2, 3.9.1 and 4.3.1 for random logs.

Run by hand, with Maven and Java: `python tests/storage/compaction/make_compacted.py`. A line has a release, a log (its
segments: base offset, time of the file in ms, the bytes, transaction index) and its passes (time, end, the segments
then: base offset, time, the header fields of the batches, without length and CRC for compressed batches, the offsets of
their records, transaction index). The logs have repeated keys, tombstones, records without keys, idempotent producers,
committed and aborted transactions, codecs, and every second one messages of formats v0 and v1.
"""

from __future__ import annotations

import itertools
import json

from ottla_testing.storage.compacted_logs import COMPACTED, RELEASES, recorded

LOGS = 10  # of each release


def main() -> None:
    lines = []
    for release in RELEASES:
        logs = (log for seed in itertools.count() if (log := recorded(release, seed)))
        for log in itertools.islice(logs, LOGS):
            lines.append(json.dumps(log, separators=(",", ":")) + "\n")
    COMPACTED.write_text("".join(lines))


if __name__ == "__main__":
    main()
