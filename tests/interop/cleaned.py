"""Whole passes of compaction beside the cleaners of Apache Kafka 2.8.2, 3.9.1 and 4.3.1, over logs of fresh seeds.

`tests/storage/compaction/compacted_by_kafka.jsonl` is a recording of the same: its comparison runs without a JVM.
"""

from __future__ import annotations

import random
from functools import partial

from ottla_testing.interop.checks import Check, Failed

LOGS = 3


def compare(release: str) -> str:
    from ottla_testing.storage.compacted_logs import ours, recorded

    seed, compared, refused = random.randrange(1 << 32), 0, 0
    for number in range(LOGS):
        log = recorded(release, seed + number)
        if log is None:
            refused += 1
            continue
        for found, (now_ms, end, wanted) in zip(ours(log), log["passes"], strict=True):
            if found != wanted:
                raise Failed(f"seed {seed + number}, pass at {now_ms} up to {end}: {found} where Kafka has {wanted}")
            compared += sum(len(segment[2]) for segment in wanted)
    return f"{compared} batches after {LOGS - refused} logs' passes (seed {seed}; {refused} that Kafka gave up)"


CHECKS = [
    Check(f"compaction beside Kafka {release}", partial(compare, release)) for release in ("2.8.2", "3.9.1", "4.3.1")
]
