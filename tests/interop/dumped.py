"""The output of Apache Kafka's DumpLogSegments for partition folders: each line is as expected, or a complaint.

Has the command lines of two releases, and parses their output. Counts show that a file was read: the tool prints as
many batches, records, index entries and producers as the files hold.
"""

from __future__ import annotations

import re
import struct
import subprocess
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from ottla.protocol.records import formats
from ottla_testing.interop.checks import Failed, jars, program

# The class moved with 4.0.
TOOLS = {
    "3.9.1": ("org.apache.kafka:kafka_2.13:3.9.1", "kafka-3.9.1", "kafka.tools.DumpLogSegments"),
    "4.3.1": ("org.apache.kafka:kafka-tools:4.3.1", "kafka-tools-4.3.1", "org.apache.kafka.tools.DumpLogSegments"),
}
FILES = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")
KINDS = {
    "file": r"Dumping ",
    "segment": r"(Log s|S)tarting offset: \d+$",
    "batch": r"(baseO|o)ffset: .* isvalid: true$",  # an entry of an old format has but one offset
    "record": r"\| offset: (?!.*is[vV]alid: false)",
    "index entry": r"offset: \d+ position: \d+$",
    "time": r"timestamp: \d+ offset: \d+$",
    "aborted": r"version: 0 producerId: \d+ firstOffset: \d+ lastOffset: \d+ lastStableOffset: \d+$",
    "producer": r"producerId: \d+ producerEpoch: \d+ coordinatorEpoch: ",
    "gaps": r"Non-consecutive offsets in ",
    "gap": r"  -?\d+ is followed by \d+$",
    "empty": r".*index is empty\.$",
    "sound": r".* passed sanity check\.$",
}
_KINDS = {kind: re.compile(pattern) for kind, pattern in KINDS.items()}


def files(folders: Iterable[Path]) -> list[Path]:
    """Returns the files of partition folders that the tool reads."""
    return sorted(path for folder in folders for path in folder.iterdir() if path.suffix in FILES)


def run(release: str, paths: Sequence[Path], *options: str) -> list[str]:
    """Returns the output of the tool for files. Raises Missing, Failed."""
    artifact, name, main = TOOLS[release]
    classes = jars(name, [artifact])
    command = [program("java"), "-Xmx512m", "-cp", f"{classes}/*", main, *options, "--files"]
    done = subprocess.run([*command, ",".join(map(str, paths))], capture_output=True, text=True, timeout=300)
    lines = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
    if done.returncode:
        raise Failed(f"DumpLogSegments {release} {' '.join(options)}: exit code {done.returncode}, {lines[-5:]}")
    return lines


def sorted_out(lines: Iterable[str]) -> tuple[Counter[str], list[str]]:
    """Returns the number of lines of each kind, and unexpected lines as complaints."""
    counts: Counter[str] = Counter()
    complaints = []
    for line in lines:
        kind = next((kind for kind, pattern in _KINDS.items() if pattern.match(line)), None)
        if kind is None:
            complaints.append(line)
        else:
            counts[kind] += 1
    return counts, complaints


def held(paths: Sequence[Path]) -> Counter[str]:
    """Returns the contents of the files, by our own reading, in the terms of KINDS."""
    counts: Counter[str] = Counter({"file": len(paths)})
    for path in paths:
        data = path.read_bytes()
        if path.suffix == ".log":
            counts["segment"] += 1
            for position, _ in formats.headers(data):
                counts["batch"] += 1
                counts["record"] += sum(1 for _ in formats.records(data, position))
        elif path.suffix == ".snapshot":
            counts["producer"] += struct.unpack_from(">i", data, 6)[0]
        else:
            kind, size = {".index": ("index entry", 8), ".timeindex": ("time", 12), ".txnindex": ("aborted", 34)}[
                path.suffix
            ]
            counts[kind] += len(data) // size
    return counts


def gaps(release: str, paths: Sequence[Path]) -> list[str]:
    """Returns the lines on offsets that do not follow each other within a segment. 4.3.1 counts from -1, in each
    segment."""
    found = []
    for path in paths:
        if path.suffix != ".log":
            continue
        data = path.read_bytes()
        last = -1
        for position, _ in formats.headers(data):
            for record in formats.records(data, position):
                if record.offset != last + 1 and (last >= 0 or release != "3.9.1"):
                    found.append(f"  {last} is followed by {record.offset}")
                last = record.offset
    return found


def check(release: str, folders: Sequence[Path]) -> Counter[str]:
    """Runs each mode of the tool on all files of partition folders; returns a summary. Raises Failed, Missing."""
    paths = files(folders)
    lines = run(release, paths, "--deep-iteration")
    counts, complaints = sorted_out(lines)
    wanted = held(paths)
    if complaints:
        raise Failed(f"DumpLogSegments {release}: {len(complaints)} complaints, {complaints[:5]}")
    found_gaps, wanted_gaps = sorted(line for line in lines if _KINDS["gap"].match(line)), sorted(gaps(release, paths))
    if found_gaps != wanted_gaps:
        raise Failed(f"DumpLogSegments {release}: gaps {found_gaps[:5]}, in the logs {wanted_gaps[:5]}")
    seen = Counter({kind: number for kind, number in counts.items() if kind not in ("gap", "gaps", "empty")})
    if seen != wanted:
        raise Failed(f"DumpLogSegments {release}: printed {dict(seen)}, the files hold {dict(wanted)}")
    indexes = [path for path in paths if path.suffix in (".index", ".timeindex")]
    counts, complaints = sorted_out(run(release, indexes, "--index-sanity-check"))
    if complaints or counts["sound"] + counts["empty"] != len(indexes):
        raise Failed(f"DumpLogSegments {release}: {counts['sound']} of {len(indexes)} are sound, {complaints[:5]}")
    counts, complaints = sorted_out(run(release, indexes, "--verify-index-only"))
    if complaints or set(counts) - {"file", "empty"}:
        raise Failed(f"DumpLogSegments {release} --verify-index-only: {dict(counts)}, {complaints[:5]}")
    return seen
