"""`ottla groups --reset-offsets`: sets the committed offsets of groups without members, of share groups the start
offsets.

Owns the flags of the scenarios (KIP-122), the formats of times and durations, and the CSV file of a reset plan. The
scenarios are implemented in `broker/groups/resets.py`.
"""

from __future__ import annotations

import argparse
import csv
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from pathlib import Path

from ...broker.clock import wall_ms
from ...broker.groups import resets
from ...client.admin.admin import SHARE, Admin, checked
from ...client.net.errors import ClientError, KafkaError
from ...protocol.arguments import Parser
from ...protocol.errors import ErrorCode
from ...protocol.text import time_ms
from .admin_command import CannotDo, Out, message, padded, read_file, width

Partition = tuple[str, int]
Offsets = dict[Partition, int]
Plan = dict[str, Offsets]
SCENARIOS = tuple("to-offset shift-by to-datetime by-duration to-earliest to-latest to-current from-file".split())
COLUMN = 15
DURATION = re.compile(
    r"([-+]?)P(?:([-+]?\d+)D)?(?:T(?=[-+\d])(?:([-+]?\d+)H)?(?:([-+]?\d+)M)?(?:([-+]?\d+(?:\.\d{0,9})?)S)?)?",
    re.ASCII | re.I,
)
UNITS_MS = (86_400_000, 3_600_000, 60_000, 1000)


def reset_flags(parser: Parser) -> None:
    """Adds the flags that only a reset has."""
    parser.add_argument(
        "--dry-run", action="store_true", help="with --reset-offsets: only print the new offsets (the default)"
    )
    parser.add_argument("--execute", action="store_true", help="with --reset-offsets: set the new offsets")
    parser.add_argument("--to-offset", type=int, metavar="X")
    parser.add_argument("--shift-by", type=int, metavar="N", help="relative to the committed offset; may be negative")
    parser.add_argument("--to-datetime", metavar="YYYY-MM-DDTHH:MM:SS.sss", help="UTC without a time zone")
    parser.add_argument("--by-duration", metavar="PnDTnHnMnS", help="duration before now")
    for flag in ("to-earliest", "to-latest", "to-current"):
        parser.add_argument(f"--{flag}", action="store_true")


def check_reset(parser: Parser, args: argparse.Namespace) -> None:
    """Exits with a usage error for flags of a reset that cannot be combined."""
    given = [flag for flag in SCENARIOS if getattr(args, flag.replace("-", "_")) not in (None, False)]
    if not args.reset_offsets:
        if given or args.execute or args.dry_run or args.export or args.all_topics:
            parser.error("the flags of a reset need --reset-offsets")
        return
    if args.dry_run and args.execute:
        parser.error("--execute and --dry-run cannot be combined")
    if len(given) != 1:
        parser.error(f"--reset-offsets needs one of {', '.join(f'--{flag}' for flag in SCENARIOS)}")
    if args.from_file is None and bool(args.topic) is args.all_topics:
        parser.error("--reset-offsets needs either --all-topics or --topic")
    try:
        if args.to_datetime is not None:
            args.timestamp = moment_of(args.to_datetime)
        elif args.by_duration is not None:
            args.timestamp = max(0, wall_ms() - duration_of(args.by_duration))
        elif args.from_file is not None:
            args.plan = plan_of(args.from_file, args.group if not args.all_groups else [])
    except CannotDo as error:
        parser.error(str(error))


def moment_of(text: str) -> int:
    """Parses an ISO 8601 date and time to epoch milliseconds. Raises CannotDo."""
    try:
        if "T" in text:
            return time_ms(text)
    except ValueError:
        pass
    raise CannotDo(f"{text!r} is not a time such as 2026-11-22T08:00:00.000")


def duration_of(text: str) -> int:
    """Parses an ISO 8601 duration of days, hours, minutes and seconds to milliseconds. Raises CannotDo."""
    match = DURATION.fullmatch(text)
    if match is None or not any(match.groups()[1:]):
        raise CannotDo(f"{text!r} is not a duration such as P1DT12H or PT30M")
    parts = zip(match.groups()[1:], UNITS_MS, strict=True)
    total = sum((Decimal(part) * unit for part, unit in parts if part), Decimal(0))
    return int(-total if match[1] == "-" else total)


def plan_of(file: Path, groups: Sequence[str]) -> Plan:
    """Reads the offsets of a CSV file; lines may omit the group if `groups` has one. Raises CannotDo."""
    data = read_file(file)
    try:
        rows = list(csv.reader(io.StringIO(data.decode())))
    except ValueError:
        raise CannotDo(f"cannot read {file}: not UTF-8") from None
    except csv.Error as error:
        raise CannotDo(f"cannot read {file}: {error}") from None
    found: Plan = {}
    for line, cells in enumerate(rows, 1):
        if not cells:
            continue
        cells = [cell.strip() for cell in cells]
        if len(cells) == 3 and len(groups) == 1:
            cells = [groups[0], *cells]
        if len(cells) != 4 or not all(cell.isascii() and cell.isdigit() and len(cell) < 20 for cell in cells[2:]):
            expected = "topic,partition,offset" if len(groups) == 1 else "group,topic,partition,offset"
            raise CannotDo(f"{file}, line {line}: expected {expected}")
        found.setdefault(cells[0], {})[cells[1], int(cells[2])] = int(cells[3])
    return found


async def partitions_of(admin: Admin, texts: Iterable[str]) -> list[tuple[str, list[int] | ClientError]]:
    """Returns the partitions of each `--topic`: those of `t:0,1`, or all of `t`. Raises CannotDo."""
    given: list[tuple[str, list[int] | ClientError]] = []
    whole: list[str] = []
    for text in texts:
        topic, colon, numbers = text.partition(":")
        if not colon:
            whole.append(topic)
            continue
        if not topic or not re.fullmatch(r"\d{1,9}(,\d{1,9})*", numbers, re.ASCII):
            raise CannotDo(f"Invalid topic arg '{text}', expected topic name and partitions")
        given.append((topic, [int(part) for part in numbers.split(",")]))
    described = await admin.describe_topics(whole)
    for topic, result in described.items():
        given.append((topic, result if isinstance(result, ClientError) else [p.index for p in result.partitions]))
    return given


async def reset_offsets(admin: Admin, args: argparse.Namespace, names: Sequence[str], out: Out) -> None:
    """Sets the offsets of groups; without --execute only prints them."""
    if not (args.execute or args.dry_run) and not out.as_json:
        out.note("WARN: dry run, no offset is changed: use --execute to change them, --dry-run to silence this warning")
    described = await admin.describe_groups(names)
    plan: Plan = {}
    for name in names:
        group = described[name]
        is_share = not isinstance(group, ClientError) and group.type == SHARE
        if isinstance(group, ClientError):
            if not (isinstance(group, KafkaError) and group.code == ErrorCode.GROUP_ID_NOT_FOUND):
                raise group
        else:
            try:
                resets.check_inactive(name, group.state)
            except resets.CannotReset as error:
                out.fail(str(error))
                continue
        if args.from_file is not None and name not in args.plan:
            out.fail(f"No reset plan for group {name} found")
            continue
        plan[name] = dict(sorted((await _offsets_of(admin, args, name, out, is_share)).items()))
        if args.execute and is_share:
            checked(await admin.alter_share_group_offsets(name, plan[name]))
        elif args.execute:
            checked(await admin.alter_group_offsets(name, plan[name]))
    documents = [
        {
            "group": name,
            "executed": args.execute,
            "offsets": [{"topic": t, "partition": p, "offset": offset} for (t, p), offset in offsets.items()],
        }
        for name, offsets in plan.items()
    ]
    text = _exported(plan, len(args.group) == 1 and not args.all_groups) if args.export else _table(plan)
    out.show({"groups": documents}, [text])


def _table(plan: Mapping[str, Offsets]) -> str:
    rows = [(name, *where, offset) for name, offsets in plan.items() for where, offset in offsets.items()]
    sizes = [width(COLUMN, plan), width(COLUMN, (row[1] for row in rows)), 10]
    head = [("GROUP", "TOPIC", "PARTITION", "NEW-OFFSET")] if plan else []
    return "".join("\n" + padded(row, sizes) for row in [*head, *rows]) + "\n" * bool(plan)


def _exported(plan: Mapping[str, Offsets], is_single: bool) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    for name, offsets in plan.items():
        for (topic, partition), offset in offsets.items():
            writer.writerow([topic, partition, offset] if is_single else [name, topic, partition, offset])
    return text.getvalue() + "\n"


# Scenarios


async def _offsets_of(admin: Admin, args: argparse.Namespace, group: str, out: Out, is_share: bool) -> Offsets:
    """Returns the new offsets of a group. Raises CannotDo and ClientError."""

    async def lookup(wanted: Iterable[Partition], time: int) -> Offsets:
        found = checked(await admin.list_offsets(dict.fromkeys(wanted, time)))
        return {where: result.offset for where, result in found.items()}

    if args.from_file is not None:
        return _noted(await resets.in_range(await _existing(admin, args.plan[group]), lookup), args, out)
    reset = _scenario(args)
    needs_committed = args.all_topics or reset.to in (resets.SHIFT, resets.CURRENT)
    committed = await _committed(admin, group, is_share) if needs_committed else {}
    if args.all_topics:
        wanted = list(committed)
    else:
        wanted = _places(await partitions_of(admin, args.topic))
        await _existing(admin, dict.fromkeys(wanted, 0))
    try:
        return _noted(await resets.planned(reset, wanted, committed, lookup), args, out)
    except resets.CannotReset as error:
        raise CannotDo(str(error)) from None


async def _committed(admin: Admin, group: str, is_share: bool) -> Offsets:
    """Returns the committed offsets of a group, or the start offsets of a share group. Raises ClientError."""
    if is_share:
        starts = checked(await admin.list_share_group_offsets(group))
        return {where: found.start_offset for where, found in starts.items() if found is not None}
    known = checked(await admin.list_group_offsets(group))
    return {where: found.offset for where, found in known.items() if found is not None}


def _scenario(args: argparse.Namespace) -> resets.Reset:
    if args.to_offset is not None:
        return resets.Reset(resets.OFFSET, args.to_offset)
    if args.shift_by is not None:
        return resets.Reset(resets.SHIFT, args.shift_by)
    for name in (resets.EARLIEST, resets.LATEST, resets.CURRENT):
        if getattr(args, f"to_{name}"):
            return resets.Reset(name)
    return resets.Reset(resets.TIME, args.timestamp)


def _noted(plan: resets.Plan, args: argparse.Namespace, out: Out) -> Offsets:
    """Returns the offsets of a plan; prints a warning for each one that was adjusted."""
    for topic, partition in plan.without_records:
        text = f"\nWarn: Partition {partition} from topic {topic} is empty. Falling back to latest known offset."
        if out.as_json or args.export:
            out.note(text.strip())
        else:
            out.write(text + "\n")
    for (topic, partition), (offset, start, end) in plan.out_of_range.items():
        out.note(f"WARN: {topic}-{partition}: offset {offset} is out of range, adjusted to the range {start} to {end}")
    return plan.offsets


def _places(found: Iterable[tuple[str, list[int] | ClientError]]) -> list[Partition]:
    """Returns the partitions without duplicates. Raises CannotDo for a topic that could not be described."""
    places: dict[Partition, None] = {}
    for topic, numbers in found:
        if isinstance(numbers, ClientError):
            raise CannotDo(f"topic {topic}: {message(numbers)}")
        places |= dict.fromkeys((topic, partition) for partition in numbers)
    return list(places)


async def _existing(admin: Admin, offsets: Offsets) -> Offsets:
    """Returns `offsets`. Raises CannotDo for partitions that do not exist."""
    described = await admin.describe_topics({topic for topic, _ in offsets})
    missing: list[str] = []
    for topic, partition in offsets:
        found = described[topic]
        if isinstance(found, ClientError):
            raise CannotDo(f"topic {topic}: {message(found)}")
        if partition not in {p.index for p in found.partitions}:
            missing.append(f'"{topic}-{partition}"')
    if missing:
        raise CannotDo(f"The partitions {', '.join(missing)} do not exist")
    return offsets
