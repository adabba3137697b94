"""`ottla records`: records deleted up to offsets, and offsets looked up, as kafka-delete-records and kafka-get-offsets.

Owns its flags, the file of offsets and the patterns of partitions. `--json` prints
`{"deleted": [{topic, partition, log_start_offset, error}]}` or `{"offsets": [{topic, partition, offset, error}]}`;
`offset` is null where no record is of that time or later, as is what an error left unknown.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ...client.admin.admin import (
    EARLIEST,
    EARLIEST_LOCAL,
    HIGH_WATERMARK,
    LATEST,
    LATEST_TIERED,
    MAX_TIMESTAMP,
    Admin,
    FoundOffset,
    checked,
)
from ...client.net.errors import ClientError
from ...protocol.arguments import Parser
from ...protocol.limits import INT32_MAX, INT64_MAX, INT64_MIN
from ...protocol.narrowing import is_dict, is_list
from .admin_command import (
    CannotDo,
    Out,
    add_actions,
    admin_parser,
    check_action,
    message,
    parsed,
    pattern_of,
    run_admin,
    text_of,
)

PROGRAM = "ottla records"
ACTIONS = {"delete": "delete records before offsets", "offsets": "print offsets, the latest by default"}
TIMES = {
    "latest": LATEST,
    "earliest": EARLIEST,
    "max-timestamp": MAX_TIMESTAMP,
    "earliest-local": EARLIEST_LOCAL,
    "latest-tiered": LATEST_TIERED,
}
FILE_BYTES_MAX = 64 << 20
RULE = re.compile(r"([^:,]*)(?::(?:([0-9]{0,10})|(?:([0-9]{0,10})-([0-9]{0,10}))))?")
Partition = tuple[str, int]
Takes = Callable[[str, int], bool]


def records(arguments: Sequence[str]) -> int:
    """`ottla records`: the exit code."""
    parser = admin_parser(PROGRAM, "Delete records before offsets, and look offsets up.")
    add_actions(parser, ACTIONS)
    parser.add_argument("--topic", metavar="T", help="with --offsets a regular expression")
    parser.add_argument("--partition", type=int, metavar="N", help="with --delete")
    parser.add_argument(
        "--before-offset", type=int, metavar="X", help="with --delete: what lies before it goes; -1 is all"
    )
    parser.add_argument("--offset-json-file", type=Path, metavar="FILE", help="with --delete: offsets of partitions")
    parser.add_argument(
        "--time", metavar="WHEN", default="latest", help=f"a timestamp in ms, or -1 to -5, or {', '.join(TIMES)}"
    )
    parser.add_argument("--topic-partitions", metavar="RULES", help="as topic1:1,topic2:0-3,topic3,topic4:5-,:-3")
    parser.add_argument("--partitions", metavar="N,...", help="of each topic these alone")
    parser.add_argument("--exclude-internal-topics", action="store_true")
    asked = parsed(parser, arguments, _check)
    return run_admin(PROGRAM, asked, _delete if asked.delete else _offsets)


def _check(parser: Parser, asked: argparse.Namespace) -> None:
    check_action(parser, asked, ACTIONS)
    plain = asked.partition is not None or asked.before_offset is not None
    if asked.offsets:
        if plain or asked.offset_json_file:
            parser.error("--partition, --before-offset and --offset-json-file go with --delete")
        if asked.topic_partitions is not None and (asked.topic is not None or asked.partitions is not None):
            parser.error("--topic-partitions cannot be used with --topic or --partitions")
        try:
            asked.time_spec, asked.takes = time_of(asked.time), _filter_of(asked)
        except CannotDo as error:
            parser.error(str(error))
        return
    if asked.topic_partitions is not None or asked.partitions is not None:
        parser.error("--topic-partitions and --partitions go with --offsets")
    if (asked.offset_json_file is not None) is (asked.topic is not None or plain):
        parser.error("--delete takes --offset-json-file, or --topic, --partition and --before-offset")
    if asked.offset_json_file is None:
        if asked.topic is None or asked.partition is None or asked.before_offset is None:
            parser.error("--topic, --partition and --before-offset go together")
        if not 0 <= asked.partition <= INT32_MAX or not HIGH_WATERMARK <= asked.before_offset <= INT64_MAX:
            parser.error("a partition is a number from 0 on, an offset one from -1 on")
        asked.before = {(asked.topic, asked.partition): asked.before_offset}
        return
    try:
        asked.before = offsets_of(asked.offset_json_file)
    except CannotDo as error:
        parser.error(str(error))


# Records deleted


def offsets_of(file: Path) -> dict[Partition, int]:
    """`{"partitions": [{"topic", "partition", "offset"}], "version": 1}` of a file. Raises CannotDo."""
    try:
        with file.open("rb") as source:
            data = source.read(FILE_BYTES_MAX)
        document = json.loads(data)
    except OSError as error:
        raise CannotDo(f"cannot read {file}: {error.strerror}") from None
    except (ValueError, RecursionError):
        raise CannotDo("The input string is not a valid JSON") from None
    if not is_dict(document) or not is_list(document.get("partitions")):
        raise CannotDo("Missing partitions field")
    if document.get("version", 1) != 1:
        raise CannotDo(f"Not supported version field value {document['version']}")
    found: dict[Partition, int] = {}
    twice: dict[str, None] = {}
    for one in document["partitions"]:
        topic, partition, offset = _entry(one)
        if (topic, partition) in found:
            twice[f"{topic}-{partition}"] = None
        found[topic, partition] = offset
    if twice:
        raise CannotDo(f"Offset json file contains duplicate topic partitions: {','.join(twice)}")
    return found


def _entry(one: Any) -> tuple[str, int, int]:
    topic, partition, offset = (
        (one.get(name) for name in ("topic", "partition", "offset")) if is_dict(one) else (None, None, None)
    )
    if (
        not isinstance(topic, str)
        or type(partition) is not int
        or type(offset) is not int
        or not 0 <= partition <= INT32_MAX
        or not INT64_MIN <= offset <= INT64_MAX
    ):
        raise CannotDo(f"Each of the partitions has a topic, a partition and an offset, not {json.dumps(one)}")
    return topic, partition, offset


async def _delete(admin: Admin, asked: Any, out: Out) -> None:
    done = dict(sorted((await admin.delete_records(asked.before)).items()))
    lines = ["Executing records delete operation\n", "Records delete operation completed:\n"]
    told: list[dict[str, Any]] = []
    for (topic, partition), result in done.items():
        wrong = result if isinstance(result, ClientError) else None
        start = None if isinstance(result, ClientError) else result
        said = f"low_watermark: {start}" if wrong is None else f"error: {message(wrong)}"
        lines.append(f"partition: {topic}-{partition}\t{said}\n")
        told.append({"topic": topic, "partition": partition, "log_start_offset": start, "error": text_of(wrong)})
        if wrong is not None:
            out.fail(f"records of {topic}-{partition} were not deleted: {message(wrong)}")
    out.show({"deleted": told}, lines)


# Offsets


def time_of(text: str) -> int:
    """`--time` as ListOffsets has it. Raises CannotDo."""
    if text in TIMES:
        return TIMES[text]
    if re.fullmatch(r"-[1-5]|[0-9]{1,19}", text) and int(text) <= INT64_MAX:
        return int(text)
    names = " / ".join(f"{number} or {name}" for name, number in TIMES.items())
    raise CannotDo(f"Malformed time argument {text}. Please use {names}, or a specified long format timestamp")


def _filter_of(asked: argparse.Namespace) -> Takes:
    """Which partitions are asked for. Raises CannotDo."""
    if asked.topic_partitions is not None:
        rules = [_rule(text) for text in asked.topic_partitions.split(",")]
        return lambda topic, partition: any(takes(topic, partition) for takes in rules)
    pattern = pattern_of(asked.topic or ".*")
    numbers = [part for part in (asked.partitions or "").split(",") if part]
    if not all(re.fullmatch(r"[0-9]{1,10}", part) for part in numbers):
        raise CannotDo(
            f"--partitions expects a comma separated list of numeric partition ids, but received: {asked.partitions}"
        )
    wanted = {int(part) for part in numbers}
    return lambda topic, partition: bool(pattern.fullmatch(topic)) and (not wanted or partition in wanted)


def _rule(text: str) -> Takes:
    """One of `--topic-partitions`: a pattern of topics, and one partition, or those from and before a number."""
    match = RULE.fullmatch(text)
    if match is None:
        raise CannotDo(f"Invalid rule specification: {text}")
    pattern = pattern_of(match[1] or ".*")
    least, most = (int(match[2]), int(match[2]) + 1) if match[2] else (int(match[3] or 0), int(match[4] or 2**31))
    return lambda topic, partition: bool(pattern.fullmatch(topic)) and least <= partition < most


async def _offsets(admin: Admin, asked: Any, out: Out) -> None:
    listed = await admin.list_topics(include_internal=not asked.exclude_internal_topics)
    described = checked(await admin.describe_topics(listed))
    wanted = [(name, p.index) for name, topic in described.items() for p in topic.partitions]
    wanted = [where for where in wanted if asked.takes(*where)]
    if not wanted:
        raise CannotDo("Could not match any topic-partitions with the specified filters")
    wanted.sort(key=lambda where: f"{where[0]}-{where[1]}")  # as text, which is Kafka's order
    time: int = asked.time_spec
    found = await admin.list_offsets(dict.fromkeys(wanted, time))
    rows: list[dict[str, Any]] = []
    lines: list[str] = []
    for topic, partition in wanted:
        result = found[topic, partition]
        offset = result.offset if isinstance(result, FoundOffset) and result.offset >= 0 else None
        wrong = result if isinstance(result, ClientError) else None
        if wrong is not None:
            out.fail(f"Skip getting offsets for topic-partition {topic}-{partition} due to error: {message(wrong)}")
        if offset is not None:
            lines.append(f"{topic}:{partition}:{offset}\n")
        rows.append({"topic": topic, "partition": partition, "offset": offset, "error": text_of(wrong)})
    out.show({"offsets": rows}, lines)
