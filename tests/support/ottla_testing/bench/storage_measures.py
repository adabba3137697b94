"""The storage measures: their aims, the amount of work, and the order in which they are taken.
Owns that list; the workloads are in storage_logs.py and storage_brokers.py. Each figure is compared with the best that
the machine can do with the same sizes: a plain file on the same file system, or its loopback.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from ottla_testing.bench import storage_brokers, storage_logs
from ottla_testing.bench.stats import Aim, Measure
from ottla_testing.bench.storage_brokers import LOOPBACK, PARTITIONS, PRODUCERS, WIRE_LABEL
from ottla_testing.bench.storage_logs import FILE, OTTLA, Figures, Folders

ABOUT = """\
append       batches to a log, compared with pwrite of the same bytes; produced over one connection, pipelined, compared
             with the same bytes to a process that only receives them
read         the same batches, copied out of the log, compared with pread; fetched over one connection by 1 MiB at a
             time, compared with a process that only sends
fsync        flush.messages=1: responses per second to producers that wait for each, compared with write and fsync of a
             plain file; and the factor of 64 producers compared with one, also as "slow disk" if an fsync of a plain
             file takes 0.3 ms or more: the aim is for these
recovery     opening a log after SIGKILL of its writer: MB/s, compared with reading the file by 64 KiB, and memory above
             idle
clean start  exec to the first response: with an empty folder, with 1,000 partitions with data after a clean stop, and
             the difference
stop         SIGTERM to the end of the process, on a disk: with 1,000 partitions that were never written, and with 2,000
             written since the start
compact      several records per key: MB/s read (twice), compared with a copy; memory above idle
request      microseconds of a pipelined request to one partition, by the number of partitions in the broker"""


class Sizes(NamedTuple):
    """The amount of work of one sample."""

    rounds: int
    log_bytes: int
    wire_bytes: int
    synced_seconds: float
    recovered_bytes: dict[str, int]
    compacted_bytes: int
    compacted_keys: int
    requests: int
    partitions: Sequence[int]
    stopped: dict[str, tuple[int, bool]]


FULL = Sizes(
    rounds=3,
    log_bytes=256_000_000,
    wire_bytes=128_000_000,
    synced_seconds=1.0,
    recovered_bytes={"16 KiB": 1_000_000_000, "100 B": 64_000_000},
    compacted_bytes=1_000_000_000,
    compacted_keys=1_000_000,
    requests=20_000,
    partitions=PARTITIONS,
    stopped={"1,000 empty": (1000, False), "2,000 written": (2000, True)},
)
QUICK = Sizes(
    rounds=1,
    log_bytes=64_000_000,
    wire_bytes=64_000_000,
    synced_seconds=0.3,
    recovered_bytes={"16 KiB": 128_000_000, "100 B": 8_000_000},
    compacted_bytes=70_000_000,
    compacted_keys=30_000,
    requests=5_000,
    partitions=PARTITIONS[:2],
    stopped={"1,000 empty": (1000, False)},
)

NAMES = ("append", "read", "fsync", "recovery", "clean", "stop", "compact", "request")
PEERS = (OTTLA, FILE, LOOPBACK)
_MOST = f"{PARTITIONS[-1]:,}"
MEASURES = (
    *(Measure(f"append {label}", "MB/s") for label in (*storage_logs.SIZES, WIRE_LABEL)),
    *(Measure(f"read {label}", "MB/s") for label in (*storage_logs.SIZES, WIRE_LABEL)),
    Measure("fsync raw", "ms", False),
    *(Measure(f"fsync {producers}", "k/s") for producers in PRODUCERS),
    Measure("fsync gain of 64", "x"),
    Measure("fsync gain of 64, slow disk", "x"),
    *(Measure(f"recovery {label}", "MB/s") for label in storage_logs.RECOVERED),
    Measure("recovery memory", "MB", False),
    Measure("clean start empty", "ms", False),
    Measure("clean start 1,000", "ms", False),
    Measure("clean start more", "ms", False),
    *(Measure(f"stop {label}", "ms", False) for label in FULL.stopped),
    Measure("compact", "MB/s"),
    Measure("compact memory", "MB", False),
    *(Measure(f"request {name} {count:,}", "us", False) for name in ("produce", "fetch") for count in PARTITIONS),
    *(Measure(f"request {name} {_MOST} over 1", "x", False) for name in ("produce", "fetch")),
)
AIMS = (
    *(Aim(f"append {label}", FILE, 0.3, True) for label in storage_logs.SIZES),
    *(Aim(f"read {label}", FILE, bound, True) for label, bound in zip(storage_logs.SIZES, (0.15, 0.5), strict=True)),
    Aim(f"append {WIRE_LABEL}", LOOPBACK, 0.1, True),
    Aim(f"read {WIRE_LABEL}", LOOPBACK, 0.5, True),
    Aim("fsync gain of 64, slow disk", None, 10, True),
    *(Aim(f"recovery {label}", None, 1000, True) for label in storage_logs.RECOVERED),
    Aim("recovery memory", None, 64, False),
    Aim("clean start more", None, 1000, False),
    Aim("stop 1,000 empty", None, 1000, False),
    Aim("stop 2,000 written", None, 5000, False),
    Aim("compact memory", None, 64, False),
    *(Aim(f"request {name} {_MOST} over 1", None, 1.2, False) for name in ("produce", "fetch")),
)

Take = Callable[[], Figures]


def takes(names: Sequence[str], sizes: Sizes, folders: Folders) -> list[tuple[str, Take]]:
    """Returns (measure, function that takes one sample) of the selected measures."""
    logs, brokers = storage_logs, storage_brokers
    found: list[tuple[str, Take]] = []

    def add(wanted: bool, what: str, take: Take) -> None:
        if wanted:
            found.append((what, take))

    both = "append" in names or "read" in names
    for label in logs.SIZES:
        add(both, f"append {label}", lambda label=label: logs.written_and_read(folders, label, sizes.log_bytes))
    add(both, f"append {WIRE_LABEL}", lambda: brokers.over_the_loopback(sizes.wire_bytes))
    add("fsync" in names, "fsync", lambda: brokers.synced(sizes.synced_seconds))
    for label, size in sizes.recovered_bytes.items():
        add(
            "recovery" in names,
            f"recovery {label}",
            lambda label=label, size=size: logs.recovered(folders, label, size),
        )
    add("clean" in names, "clean start", lambda: brokers.clean_starts(folders))
    for label, (partitions, written) in sizes.stopped.items():
        add(
            "stop" in names,
            f"stop {label}",
            lambda label=label, partitions=partitions, written=written: {
                f"stop {label}": {OTTLA: brokers.stop_ms(folders, partitions, written=written)}
            },
        )
    add("request" in names, "request", lambda: _requests(sizes))
    return found


def takes_once(names: Sequence[str], sizes: Sizes, folders: Folders) -> list[tuple[str, Take]]:
    """The same for measures that take long enough for one sample to be stable."""
    if "compact" not in names:
        return []
    size, keys = sizes.compacted_bytes, sizes.compacted_keys
    return [("compact", lambda: storage_logs.compacted(folders, size, keys))]


def _requests(sizes: Sizes) -> Figures:
    found: Figures = {}
    for partitions in sizes.partitions:
        found |= storage_brokers.requests(partitions, sizes.requests)
    for name in ("produce", "fetch"):
        if most := found.get(f"request {name} {_MOST}"):
            found[f"request {name} {_MOST} over 1"] = {OTTLA: most[OTTLA] / found[f"request {name} 1"][OTTLA]}
    return found
