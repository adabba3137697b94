"""Makes `compacted_by_kafka.jsonl`: what the cleaners of Kafka 2.8.2, 3.9.1 and 4.3.1 leave of random logs.

Run by hand, where Maven and Java are: `python tests/storage/compaction/make_compacted.py`. A line is a release, a log
(its segments: base offset, time of the file in ms, the bytes, transaction index) and its passes (time, end, the
segments then: base offset, time, the header fields of the batches, without length and CRC where a codec is at work, the
offsets of their records, transaction index). The logs have keys again and again, tombstones, records without keys,
idempotent producers, transactions that were committed and aborted, codecs, and every second one messages of formats v0
and v1.
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
