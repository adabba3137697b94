"""`ottla records`: deletes records and looks up offsets, as kafka-delete-records and kafka-get-offsets do.

Owns the flags, the JSON file of offsets and the patterns of partitions. `--json` prints
`{"deleted": [{topic, partition, log_start_offset, error}]}` or `{"offsets": [{topic, partition, offset, error}]}`;
`offset` is null if no record has that timestamp or a later one, and after an error.
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
from .admin_command import CannotDo, Out, admin_parser, message, parsed, pattern_of, read_file, run_admin, text_of

PROGRAM = "ottla records"
ACTIONS = {"delete": "delete records before offsets", "offsets": "print offsets, the latest by default"}
TIMES = {
    "latest": LATEST,
    "earliest": EARLIEST,
    "max-timestamp": MAX_TIMESTAMP,
    "earliest-local": EARLIEST_LOCAL,
    "latest-tiered": LATEST_TIERED,
}
RULE = re.compile(r"([^:,]*)(?::(?:([0-9]{0,10})|(?:([0-9]{0,10})-([0-9]{0,10}))))?")
Partition = tuple[str, int]
Takes = Callable[[str, int], bool]


def records(arguments: Sequence[str]) -> int:
    parser = admin_parser(PROGRAM, "Delete records before offsets, and look up offsets.", ACTIONS)
    parser.add_argument("--topic", metavar="T", help="a name; with --offsets a regular expression")
    parser.add_argument("--partition", type=int, metavar="N", help="with --delete")
    parser.add_argument(
        "--before-offset", type=int, metavar="X", help="with --delete: first offset to keep; -1 deletes all"
    )
    parser.add_argument("--offset-json-file", type=Path, metavar="FILE", help="with --delete: offsets of partitions")
    parser.add_argument(
        "--time", metavar="WHEN", default="latest", help=f"a timestamp in ms, or -1 to -5, or {', '.join(TIMES)}"
    )
    parser.add_argument("--topic-partitions", metavar="RULES", help="such as topic1:1,topic2:0-3,topic3,topic4:5-,:-3")
    parser.add_argument("--partitions", metavar="N,...", help="only these partitions of each topic")
    parser.add_argument("--exclude-internal-topics", action="store_true")
    args = parsed(parser, arguments, ACTIONS, _check)
    return run_admin(PROGRAM, args, _delete if args.delete else _offsets)


def _check(parser: Parser, args: argparse.Namespace) -> None:
    plain = args.partition is not None or args.before_offset is not None
    if args.offsets:
        if plain or args.offset_json_file:
            parser.error("--partition, --before-offset and --offset-json-file need --delete")
        if args.topic_partitions is not None and (args.topic is not None or args.partitions is not None):
            parser.error("--topic-partitions cannot be used with --topic or --partitions")
        try:
            args.time_spec, args.takes = time_of(args.time), _filter_of(args)
        except CannotDo as error:
            parser.error(str(error))
        return
    if args.topic_partitions is not None or args.partitions is not None:
        parser.error("--topic-partitions and --partitions need --offsets")
    if (args.offset_json_file is not None) is (args.topic is not None or plain):
        parser.error("--delete needs either --offset-json-file, or --topic, --partition and --before-offset")
    if args.offset_json_file is None:
        if args.topic is None or args.partition is None or args.before_offset is None:
            parser.error("--delete needs --topic, --partition and --before-offset together")
        if not 0 <= args.partition <= INT32_MAX or not HIGH_WATERMARK <= args.before_offset <= INT64_MAX:
            parser.error(
                f"--partition {args.partition} --before-offset {args.before_offset}: expected at least 0 and -1"
            )
        args.before = {(args.topic, args.partition): args.before_offset}
        return
    try:
        args.before = offsets_of(args.offset_json_file)
    except CannotDo as error:
        parser.error(str(error))


# Delete


def offsets_of(file: Path) -> dict[Partition, int]:
    """Reads a file of `{"partitions": [{"topic", "partition", "offset"}], "version": 1}`. Raises CannotDo."""
    data = read_file(file)
    try:
        document = json.loads(data)
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
        raise CannotDo(f"Expected an object with topic, partition and offset in partitions, not {json.dumps(one)}")
    return topic, partition, offset


async def _delete(admin: Admin, args: Any, out: Out) -> None:
    done = dict(sorted((await admin.delete_records(args.before)).items()))
    lines = ["Executing records delete operation\n", "Records delete operation completed:\n"]
    rows: list[dict[str, Any]] = []
    for (topic, partition), result in done.items():
        wrong = result if isinstance(result, ClientError) else None
        start = None if isinstance(result, ClientError) else result
        status = f"low_watermark: {start}" if wrong is None else f"error: {message(wrong)}"
        lines.append(f"partition: {topic}-{partition}\t{status}\n")
        rows.append({"topic": topic, "partition": partition, "log_start_offset": start, "error": text_of(wrong)})
        if wrong is not None:
            out.fail(f"records of {topic}-{partition} were not deleted: {message(wrong)}")
    out.show({"deleted": rows}, lines)


# Offsets


def time_of(text: str) -> int:
    """Parses `--time` to the timestamp of ListOffsets. Raises CannotDo."""
    if text in TIMES:
        return TIMES[text]
    if re.fullmatch(r"-[1-5]|[0-9]{1,19}", text) and int(text) <= INT64_MAX:
        return int(text)
    names = " / ".join(f"{number} or {name}" for name, number in TIMES.items())
    raise CannotDo(f"Malformed time argument {text}. Please use {names}, or a specified long format timestamp")


def _filter_of(args: argparse.Namespace) -> Takes:
    """Returns the filter of partitions. Raises CannotDo."""
    if args.topic_partitions is not None:
        rules = [_rule(text) for text in args.topic_partitions.split(",")]
        return lambda topic, partition: any(takes(topic, partition) for takes in rules)
    pattern = pattern_of(args.topic or ".*")
    numbers = [part for part in (args.partitions or "").split(",") if part]
    if not all(re.fullmatch(r"[0-9]{1,10}", part) for part in numbers):
        raise CannotDo(
            f"--partitions expects a comma separated list of numeric partition ids, but received: {args.partitions}"
        )
    wanted = {int(part) for part in numbers}
    return lambda topic, partition: bool(pattern.fullmatch(topic)) and (not wanted or partition in wanted)


def _rule(text: str) -> Takes:
    """Parses a rule of `--topic-partitions`: a topic pattern with a partition or a range of them. Raises CannotDo."""
    match = RULE.fullmatch(text)
    if match is None:
        raise CannotDo(f"Invalid rule specification: {text}")
    pattern = pattern_of(match[1] or ".*")
    least, most = (int(match[2]), int(match[2]) + 1) if match[2] else (int(match[3] or 0), int(match[4] or 2**31))
    return lambda topic, partition: bool(pattern.fullmatch(topic)) and least <= partition < most


async def _offsets(admin: Admin, args: Any, out: Out) -> None:
    listed = await admin.list_topics(include_internal=not args.exclude_internal_topics)
    described = checked(await admin.describe_topics(listed))
    wanted = [(name, p.index) for name, topic in described.items() for p in topic.partitions]
    wanted = [where for where in wanted if args.takes(*where)]
    if not wanted:
        raise CannotDo("Could not match any topic-partitions with the specified filters")
    wanted.sort(key=lambda where: f"{where[0]}-{where[1]}")  # sorted as text, like Kafka's tool
    time: int = args.time_spec
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
