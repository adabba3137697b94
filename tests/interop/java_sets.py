"""Record sets of all three formats and every codec: Apache's own writers and readers against ours, both ways.

Uncompressed sets must be equal byte for byte. Of compressed ones the fields and the decompressed set inside must be
equal: compressors differ.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from ottla.protocol.records import batch, formats, legacy
from ottla.protocol.records.batch import Record
from ottla.protocol.records.compression import Codec
from ottla_testing.interop.checks import Check, Failed, jars, java
from ottla_testing.interop.java_lines import RELEASES

HERE = Path(__file__).parent
TIME_MS = 1_400_000_000_000
TEXT = b"all that is said of a record is said of its batch; "
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
# Sets per release: of the formats that it writes.
WRITES = {"0.8.2": (0,), "0.10.2": (0, 1)} | dict.fromkeys(("1.1", "2.8", "3.9", "4.3", "4.4"), (0, 1, 2))


class Sets:
    """A process with one release's record classes."""

    def __init__(self, release: str) -> None:
        version = RELEASES[release]
        if release == "0.8.2":
            command = java(jars(f"kafka-{version}", [f"org.apache.kafka:kafka_2.11:{version}"]), HERE / "Sets08.java")
        else:
            artifacts = [f"org.apache.kafka:kafka-clients:{version}"]
            command = java(jars(f"kafka-clients-{version}", artifacts), HERE / "Sets.java")
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )

    def send_request(self, *lines: str) -> list[str]:
        """Returns the lines of the response; raises Failed with Java's error."""
        assert self.process.stdin and self.process.stdout
        self.process.stdin.write("".join(line + "\n" for line in lines))
        self.process.stdin.flush()
        found = []
        for line in self.process.stdout:
            found.append(line.rstrip("\n"))
            if found[-1].startswith("error"):
                raise Failed(f"{lines[0][:80]}: {found[-1]}")
            if not found[-1].startswith("record"):
                return found
        raise Failed(f"Java ended with {self.process.wait()}")

    def close(self) -> None:
        assert self.process.stdin and self.process.stdout
        self.process.stdin.close()
        self.process.wait(20)
        self.process.stdout.close()


def text(value: bytes | None) -> str:
    return "-" if value is None else "x" + value.hex()


def records_for(magic: int, *, gaps: bool, append_time: bool) -> list[Record]:
    """Returns twenty records with every kind of key and value."""
    made = []
    for i in range(20):
        key = (None, b"", b"key", bytes(range(200)))[i % 4]
        value = (TEXT * i, None, b"", b"\x00\xff" * 300)[i // 4 % 4]
        timestamp = -1 if magic == 0 else TIME_MS if append_time else TIME_MS + i * 7 % 20
        made.append(Record(i + (i > 6 if gaps else 0), timestamp, key, value))
    return made


def ours(records: list[Record], magic: int, codec: int, append_time: bool) -> bytes:
    """Returns the record set that our writers make."""
    if magic == 2:
        return bytes(
            batch.build(
                records, batch.BatchFields(log_append_time=append_time), codec=codec, base_offset=records[0].offset
            )
        )
    return bytes(legacy.build(records, magic=magic, codec=codec, log_append_time=append_time))


def inside(data: bytes) -> list[bytes]:
    """Returns the decompressed contents of each entry."""
    found = []
    for position, header in formats.headers(data):
        if header.magic == 2:
            found.append(bytes(batch.payload(data, position, header)))
        else:
            found.append(legacy.inner(data, position, header) if header.codec else data[position + 12 :])
    return found


def outline(data: bytes) -> list:
    """Returns the fields of each entry but its size and CRC."""
    return [header._replace(batch_length=0, crc=0) for _, header in formats.headers(data)]


def compare_one(java_sets: Sets, records: list[Record], magic: int, codec: str, append_time: bool) -> bool:
    """Compares both ways; returns whether all bytes are equal."""
    kind = "LogAppendTime" if append_time else "CreateTime" if magic else "NoTimestampType"
    rows = [f"{r.offset} {r.timestamp} {text(r.key)} {text(r.value)}" for r in records]
    theirs = bytes.fromhex(java_sets.send_request(f"write {magic} {codec} {kind} {len(rows)}", *rows)[0])
    if append_time:  # its clock's
        appended = next(formats.headers(theirs))[1].max_timestamp
        records = [record._replace(timestamp=appended) for record in records]
        rows = [f"{r.offset} {r.timestamp} {text(r.key)} {text(r.value)}" for r in records]
    mine = ours(records, magic, Codec[codec.upper()], append_time)
    where = f"v{magic} {codec} {kind}"
    for position, header in formats.headers(theirs):
        if not formats.crc_matches(theirs, position, header):
            raise Failed(f"{where}: the CRC of what Java wrote does not match")
    read = [
        r._replace(headers=()) for position, _ in formats.headers(theirs) for r in formats.records(theirs, position)
    ]
    if read != records:
        raise Failed(f"{where}: we read {read[:2]}... of what Java wrote from {records[:2]}...")
    if codec == "none" and mine != theirs:
        raise Failed(f"{where}: ours {mine.hex()[:400]}, Java's {theirs.hex()[:400]}")
    if outline(mine) != outline(theirs) or inside(mine) != inside(theirs):
        raise Failed(f"{where}: {outline(mine)} and {outline(theirs)} differ, or what is inside of them")
    result = [f"record {row}" for row in rows]
    if (seen := java_sets.send_request(f"read {mine.hex()}")[:-1]) != result:
        raise Failed(f"{where}: Java reads {seen[:2]}... of what we wrote from {result[:2]}...")
    return mine == theirs


def compare(release: str) -> str:
    """Compares all formats and codecs of a release, with and without gaps, with times of both types."""
    java_sets = Sets(release)
    count = same = 0
    try:
        for magic in WRITES[release]:
            for codec in CODECS:
                if codec == "zstd" and (magic < 2 or release == "1.1"):
                    continue
                for append_time in (False, True) if magic == 1 else (False,):
                    # The sets of 0.8.2 count from 0 alone.
                    for gaps in (False,) if release == "0.8.2" else (False, True):
                        records = records_for(magic, gaps=gaps, append_time=append_time)
                        same += compare_one(java_sets, records, magic, codec, append_time)
                        count += 1
    finally:
        java_sets.close()
    magics = ", ".join(f"v{magic}" for magic in WRITES[release])
    return f"{count} sets of 20 records in {magics}, both ways; {same} of them the same bytes"


CHECKS = [Check(f"record sets of Java {release}", lambda release=release: compare(release)) for release in WRITES]
