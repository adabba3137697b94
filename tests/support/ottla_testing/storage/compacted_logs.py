"""Random logs with the results of Kafka's cleaner, and the results of Ottla's passes over the same logs."""

from __future__ import annotations

import base64
import os
import random
import struct
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ottla_testing import TESTS
from ottla_testing.storage.batches import FOLDER
from ottla_testing.storage.cleaned_logs import shown
from ottla_testing.storage.compacting import Laid, bases, clean_once, data, lay, marker, old
from ottla_testing.storage.simulated_files import SimulatedFiles

HERE = TESTS / "storage" / "compaction"
COMPACTED = HERE / "compacted_by_kafka.jsonl"
RETENTION_MS = 100
RELEASES = {"4.3.1": "Compacted.java", "3.9.1": "Compacted39.java", "2.8.2": "Compacted28.java"}
Pair = tuple[bytes | None, bytes | None]


class Writer:
    """One random log. Producers 1 to 3 write transactions, 4 is only idempotent, 0 and 5 are none."""

    def __init__(self, seed: int) -> None:
        self.pick = random.Random(seed)
        self.with_old = seed % 2 == 0
        # Compressors differ, and the merging of segments depends on their sizes.
        self.segment_bytes = self.pick.choice([600, 1500, 1 << 20])
        self.codecs = (0, 0, 0, 1, 4) if self.segment_bytes == 1 << 20 else (0,)
        self.offset = 0
        self.open: dict[int, int] = {}
        self.epochs = dict.fromkeys(range(1, 5), 0)
        self.sequences = dict.fromkeys(range(1, 5), 0)
        self.gone: set[int] = set()
        self.aborted: dict[int, list[bytes]] = {}

    def segment(self, batches: int) -> tuple[int, bytes]:
        base = self.offset
        return base, b"".join(bytes(self._entry(base)) for _ in range(batches))

    def closing(self) -> tuple[int, bytes]:
        base = self.offset
        ends = [bytes(self._end(base, producer)) for producer in list(self.open)]
        return base, b"".join([*ends, bytes(self._plain([(b"last", b"v")]))])

    def _pairs(self) -> list[Pair]:
        pick = self.pick
        return [
            (
                None if pick.random() < 0.1 else b"key%d" % pick.randrange(7),
                None if pick.random() < 0.25 else b"value %d " % self.offset * pick.randrange(1, 4),
            )
            for _ in range(pick.randrange(1, 6))
        ]

    def _plain(self, pairs: list[Pair], **more: int) -> bytearray:
        first, self.offset = self.offset, self.offset + len(pairs)
        return data(first, *pairs, time=1000 + first * 3, leader_epoch=0, **more)

    def _entry(self, base: int) -> bytes | bytearray:
        pick, producer = self.pick, self.pick.randrange(6)
        codec = pick.choice(self.codecs)
        if producer == 0 and self.with_old:
            pairs = self._pairs()
            first, self.offset = self.offset, self.offset + len(pairs)
            return old(pick.randrange(2), min(codec, 1), first, *pairs, time=1000 + first * 3)
        if producer in (0, 5) or producer in self.gone:
            return self._plain(self._pairs(), codec=codec)
        if producer in self.open and pick.random() < 0.4:
            return self._end(base, producer)
        if producer < 4:
            self.open.setdefault(producer, self.offset)
        elif pick.random() < 0.1:
            self.epochs[4] += 1
            self.sequences[4] = 0
        pairs = self._pairs()
        sequence = self.sequences[producer]
        self.sequences[producer] += len(pairs)
        return self._plain(
            pairs, codec=codec, producer_id=producer, producer_epoch=self.epochs[producer], base_sequence=sequence,
            transactional=producer < 4,
        )  # fmt: skip

    def _end(self, base: int, producer: int) -> bytearray:
        first = self.open.pop(producer)
        offset, self.offset = self.offset, self.offset + 1
        commit = self.pick.random() < 0.5
        if self.pick.random() < 0.3:  # as when a new instance begins: this epoch has only the marker
            self.epochs[producer] += 1
            self.sequences[producer] = 0
            self.gone |= {producer} if self.pick.random() < 0.7 else set()
        if not commit:
            stable = min(self.open.values(), default=self.offset)
            self.aborted.setdefault(base, []).append(struct.pack(">hqqqq", 0, producer, first, offset, stable))
        return marker(
            offset, producer, commit=commit, epoch=self.epochs[producer], time=1000 + offset * 3, leader_epoch=0
        )


def make(seed: int, folder: Path) -> dict[str, Any]:
    writer = Writer(seed)
    segments = [writer.segment(writer.pick.randrange(3, 12)) for _ in range(6)]
    segments.append(writer.closing())
    times = [5_000 + number * writer.pick.choice([10, 100]) for number in range(len(segments))]
    for (base, content), time in zip(segments, times, strict=True):
        path = folder / f"{base:020d}.log"
        path.write_bytes(content)
        os.utime(path, ns=(time * 1_000_000, time * 1_000_000))
    bases = [base for base, _ in segments]
    # In the end only the active segment is dirty.
    passes, now_ms = [], 20_000
    for end in sorted(writer.pick.sample(bases[1:-1], 4)) + bases[-1:]:
        passes.append((now_ms, end))
        now_ms += writer.pick.choice([1, 99, 100, 101])
    return {
        "segment_bytes": writer.segment_bytes,
        "segments": [
            [base, time, base64.b64encode(content).decode(), b"".join(writer.aborted.get(base, [])).hex()]
            for (base, content), time in zip(segments, times, strict=True)
        ],
        "passes": passes,
    }


def offsets(content: bytes) -> list[list[int]]:
    from ottla.protocol.records import formats

    places = [position for position, _ in formats.headers(content)]
    return [[record.offset for record in formats.records(content, position)] for position in places]


def recorded(release: str, seed: int) -> dict[str, Any] | None:
    """Returns a log and a release's result; None if the release gives up on it."""
    from ottla_testing.interop.checks import jars, java

    libraries = jars(f"kafka-{release}", [f"org.apache.kafka:kafka_2.13:{release}"])
    with tempfile.TemporaryDirectory() as top:
        folder = Path(top) / "t-0"
        folder.mkdir()
        log = make(seed, folder)
        passes = log["passes"]
        words = [str(folder), str(log["segment_bytes"]), str(RETENTION_MS), *(f"{now}:{end}" for now, end in passes)]
        done = subprocess.run(java(libraries, HERE / RELEASES[release], *words), capture_output=True, text=True)
        if "Empty batches are only supported for magic v2" in done.stderr:
            # A message of an old format is the last below the end, and is removed: Kafka 4 gives up on such a
            # partition.
            return None
        done.check_returncode()
        results = []
        for (now_ms, end), line in zip(passes, done.stdout.splitlines(), strict=True):
            reached, *found = line.split()
            assert int(reached) == end
            left = []
            for part in found:
                base, time, content, index = part.split(":")
                stored = bytes.fromhex(content)
                left.append([int(base), int(time), shown(stored), offsets(stored), index])
            results.append([now_ms, end, left])
    return {"release": release} | log | {"passes": results}


def ours(log: dict[str, Any]) -> Iterator[list[list[Any]]]:
    """Returns the results of Ottla's passes over a recorded log, in the form of the recording."""
    from ottla.protocol.records import formats
    from ottla.storage.compaction.compaction import active_producers
    from ottla.storage.producers.producer_state import Producer, advance

    files = SimulatedFiles()
    stored = [
        (base, time, base64.b64decode(content), bytes.fromhex(index)) for base, time, content, index in log["segments"]
    ]
    lay(files, [Laid(*part[:2], [part[2]]) for part in stored], {part[0]: [part[3]] for part in stored if part[3]})
    whole = b"".join(part[2] for part in stored)
    producers: dict[int, Producer] = {}
    for _, header in formats.headers(whole):
        advance(producers, header, 0)
    known = active_producers(producers)
    dirty = 0
    for now_ms, end, _ in log["passes"]:
        done = clean_once(
            files, dirty, end, now_ms=now_ms, delete_retention_ms=RETENTION_MS, active_producers=known,
            segment_bytes=log["segment_bytes"], keep_empty_at_end=log["release"] == "4.3.1",
            keep_old_formats=log["release"] != "4.3.1", delete_horizon=log["release"] != "2.8.2",
        )  # fmt: skip
        dirty = done.end_offset
        assert dirty == end
        left: list[list[Any]] = []
        for base in (base for base in bases(files) if base < end):
            path = f"{FOLDER}/{base:020d}"
            content = files.read_bytes(path + ".log")
            index = files.read_bytes(path + ".txnindex") if files.exists(path + ".txnindex") else b""
            time_ms = files.modified_ns(path + ".log") // 1_000_000
            left.append([base, time_ms, shown(content), offsets(content), index.hex()])
        yield left
