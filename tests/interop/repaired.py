"""Directories of Apache Kafka after `ottla repair`: that Kafka opens, reads and continues them.

Damage is in the log, in its indexes, in a snapshot and in a checkpoint; with `--skip` only the damaged batch is gone.
"""

from __future__ import annotations

import contextlib
import io
import tempfile
from pathlib import Path

import dumped
from directories import java, same

from ottla.storage import inspect
from ottla.tools.disk.repair import repair
from ottla.tools.disk.verify import verify
from ottla_testing.clients.exchange import rows
from ottla_testing.clients.line_clients import Seen
from ottla_testing.interop.checks import Check, Failed
from ottla_testing.oracle.kafka_directories import Writer
from ottla_testing.oracle.kafka_process import Kafka, Kraft

RELEASES = ("3.9.1", "4.3.1")
TOPIC, SETS = "repaired", 12


def started(release: str, place: Path) -> Kafka | Kraft:
    return Kafka(release, place) if release == "3.9.1" else Kraft(release, place)


def damage(folder: Path) -> range:
    """Changes a byte of a batch in the middle, and files that follow from the log; the offsets of that batch."""
    log = min(folder.glob("*.log"))
    found = [one for one in inspect.segment(log) if isinstance(one, inspect.BatchFacts)]
    one = found[len(found) // 2]
    data = bytearray(log.read_bytes())
    data[one.position + 70] ^= 1
    log.write_bytes(data)
    log.with_suffix(".timeindex").write_bytes(b"no index")
    for path in folder.glob("*.snapshot"):
        path.write_bytes(path.read_bytes()[:-1])
    recovery_point = folder.parent / "recovery-point-offset-checkpoint"
    recovery_point.write_bytes(recovery_point.read_bytes() + b"x\n")
    return range(one.header.base_offset, one.last_offset + 1)


def run_repaired(release: str, *flags: str) -> str:
    client = java(release)
    with tempfile.TemporaryDirectory(prefix="repaired-") as place:
        kafka = started(release, Path(place))
        try:
            writer = Writer(kafka, client)
            writer.topic(TOPIC)
            for number in range(SETS):
                client.produce(kafka.address, TOPIC, rows(number, headers=True), ("none", "gzip", "zstd")[number % 3])
            count = sum(len(rows(number, headers=True)) for number in range(SETS))
            before: list[Seen] = client.consume(kafka.address, TOPIC, 0, count, 30)
        finally:
            kafka.stop()
        folder = kafka.logs / f"{TOPIC}-0"
        lost = damage(folder)
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            failed = repair([str(kafka.logs), "--apply", *flags]) or verify([str(kafka.logs), "--records"])
        if failed:
            raise Failed(f"repair, or verify after it: {printed.getvalue()}")
        kept = [one for one in before if one.offset not in lost and ("--skip" in flags or one.offset < lost[0])]
        dumped.check(release, [folder])
        kafka = started(release, Path(place))
        try:
            Writer(kafka, client).wait_until_ready()
            same("what Kafka reads", client.consume(kafka.address, TOPIC, 0, len(kept), 30), kept)
            added = rows(99, headers=True)
            client.produce(kafka.address, TOPIC, added, "lz4")
            begin = count if "--skip" in flags else lost[0]
            more = client.consume(kafka.address, TOPIC, begin, len(added), 30)
            same("offsets after it", [one.offset for one in more], list(range(begin, begin + len(added))))
        finally:
            kafka.stop()
    return f"{len(kept)} of {count} records left, {len(added)} added"


CHECKS = [
    Check(
        f"repaired: a directory of Kafka {release} {flag}".strip(),
        lambda r=release, f=flag: run_repaired(r, *f.split()),
    )
    for release in RELEASES
    for flag in ("", "--skip")
]
