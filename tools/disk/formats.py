"""`ottla formats`: counts records and bytes of topics by format and codec, and reports how Kafka 4.0 treats them.

Owns the counting and the printing. It takes no lock and writes nothing, so it works while a broker runs; records
appended meanwhile are not counted. Compressed v0 and v1 messages are decompressed to count the messages inside, within
a size limit; v2 batches have the count in their header. Transaction markers do not count as records. Exit code 0; 2
with one line on stderr if the directory is not a data directory.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from typing import Any

from ...broker.trace.tracer import quoted
from ...protocol.arguments import Parser
from ...protocol.internal_records.metadata_values import Configs, topic_configs
from ...protocol.mistakes import complain
from ...protocol.named import NamedTuple
from ...protocol.records.compression import CODEC_NAMES
from ...protocol.text import plural, table
from ...storage import inspect
from ...storage.errors import StorageError
from ...storage.log_dir import metadata_log, readiness
from ...storage.log_dir.readiness import Amount
from ..command_line import Write, printing
from ..terminal import Progress

NOTES_MAX = 20  # for each topic


class Topic(NamedTuple):
    """The counts of one topic. `notes` list what could not be read or decompressed."""

    name: str
    partitions: int
    segments: int
    amounts: list[Amount]
    notes: list[str]
    configs: dict[str, str] | None
    on_4_0: list[str]


def formats(arguments: Sequence[str]) -> int:
    parser = Parser(
        prog="ottla formats",
        description="Count a data directory by format and codec, and report how Kafka 4.0 treats it.",
    )
    parser.add_argument("directory", metavar="DIR", help="a data directory of Ottla or of Apache Kafka")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parsed = parser.parse_args(list(arguments))
    try:
        partitions = inspect.partitions(parsed.directory)
    except StorageError as error:
        return complain(parser.prog, error)
    print_it = _print_json if parsed.json else _print_text
    return printing(parser.prog, lambda write: print_it(parsed.directory, partitions, write))


# Counting


def topics(
    partitions: Sequence[inspect.PartitionFolder], configs: Configs | None, progress: Progress | None = None
) -> Iterator[Topic]:
    """Yields each topic, sorted by name, as soon as it is counted. `configs` is None if the configs are unknown."""
    progress = progress or Progress("formats", "topics")
    by_name: dict[str, list[inspect.PartitionFolder]] = {}
    for folder in partitions:
        by_name.setdefault(folder.topic, []).append(folder)
    for name, folders in progress.each(sorted(by_name.items())):
        amounts, notes = _count(folders)
        known = None if configs is None else configs.get(name, {})
        segments = sum(len(folder.segments) for folder in folders)
        yield Topic(name, len(folders), segments, amounts, notes, known, readiness.of_topic(amounts, known))


def _count(folders: Sequence[inspect.PartitionFolder]) -> tuple[list[Amount], list[str]]:
    counted: dict[tuple[int, int], list[int]] = {}
    notes: list[str] = []
    for folder in folders:
        for segment in folder.segments:
            name = f"{folder.topic}-{folder.partition}/{os.path.basename(segment.path)}"
            try:
                for found in inspect.segment(segment.path, check_crc=False, open_wrappers=True):
                    if isinstance(found, inspect.Damage):
                        notes.append(_damage(name, found, is_last=segment is folder.segments[-1]))
                        continue
                    amount = counted.setdefault((found.magic, found.codec), [0, 0])
                    amount[0] += 0 if found.header.is_control else max(0, found.record_count)
                    amount[1] += found.size_bytes
                    if found.problem is not None:
                        notes.append(f"{name} at byte {found.position}: not decompressed, not counted: {found.problem}")
            except StorageError as error:
                if os.path.exists(segment.path):  # otherwise it was deleted meanwhile
                    notes.append(str(error))
    if len(notes) > NOTES_MAX:
        notes[NOTES_MAX:] = [f"and {len(notes) - NOTES_MAX} more"]
    return [Amount(*key, *amount) for key, amount in sorted(counted.items())], notes


def _damage(name: str, damage: inspect.Damage, *, is_last: bool) -> str:
    what = "damaged"
    if damage.is_tail:  # a broker appends to the newest segment only
        what = "incomplete end, maybe being written" if is_last else "incomplete end"
    return f"{name} at byte {damage.position}: {what}; {damage.left_bytes} bytes are not counted: {damage.reason}"


# Output


def _print_text(directory: str, partitions: Sequence[inspect.PartitionFolder], write: Write) -> None:
    configs = topic_configs(metadata_log.values(directory))
    old_formats = False
    progress = Progress("formats", "topics")
    write = progress.around(write)
    for topic in topics(partitions, configs, progress):
        old_formats = old_formats or _has_old(topic)
        write(f"{topic.name} ({plural(topic.partitions, 'partition')}, {plural(topic.segments, 'segment')})\n")
        rows = [
            (f"v{one.magic}", CODEC_NAMES.get(one.codec, f"codec {one.codec}"), one.records, one.bytes)
            for one in topic.amounts
        ]
        for line in table(rows, ("FORMAT", "CODEC", "RECORDS", "BYTES")) if rows else ():
            write(f"  {line}")
        if not topic.amounts:
            write("  no records\n")
        for note in topic.notes:
            write(f"  ! {quoted(note)[1:-1]}\n")
        for sentence in topic.on_4_0:
            write(f"  > {sentence}\n")
        write("\n")
    write("On Kafka 4.0, for all formats:\n")
    for sentence in readiness.of_all([directory] if old_formats else (), configs_known=configs is not None):
        write(f"  > {sentence}\n")


def _has_old(topic: Topic) -> bool:
    return any(amount.magic < 2 for amount in topic.amounts)


def _print_json(directory: str, partitions: Sequence[inspect.PartitionFolder], write: Write) -> None:
    configs = topic_configs(metadata_log.values(directory))
    found = list(topics(partitions, configs))
    old_formats = any(map(_has_old, found))
    report: dict[str, Any] = {
        "directory": os.path.abspath(directory),
        "old_formats": old_formats,
        "topic_configs_known": configs is not None,
        "topics": [
            {
                "topic": topic.name,
                "partitions": topic.partitions,
                "segments": topic.segments,
                "formats": [
                    {
                        "format": f"v{amount.magic}",
                        "codec": CODEC_NAMES.get(amount.codec, str(amount.codec)),
                        "records": amount.records,
                        "bytes": amount.bytes,
                    }
                    for amount in topic.amounts
                ],
                "not_counted": topic.notes,
                "configs": topic.configs,
                "on_4_0": topic.on_4_0,
            }
            for topic in found
        ],
        "on_4_0": readiness.of_all([directory] if old_formats else (), configs_known=configs is not None),
    }
    write(json.dumps(report, indent=2) + "\n")
