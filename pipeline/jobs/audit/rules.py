"""Rules that the records of topics must keep, and the check of records by them.

A rule is a line of words: `[TOPIC: ]` and one of `FORMS`. Without a topic it is for all but the brokers' internal
topics. Owns the forms, the check of a piece of a partition in a task, and the findings of a partition. Pure but for the
reading of the records. Memory does not grow with the records: of each rule the number of those that break it is kept,
and their first offsets. Records of aborted transactions are checked, too; transaction markers are not.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as _compute

from ....protocol.text import duration_ms, plural, time_ms
from ....storage.check.facts import Finding
from ...backend import OffsetRange, Offsets, Piece, ReadError, Selection, TopicPartition, Wanted
from ...objects.logs import is_missing
from ...readers.columns import EXACT_TIME
from ...readers.files import FileBackend, FilePiece
from ...readers.files.catalog import INTERNAL
from ..export.value_columns import Decoding
from ..export.value_schemas.sources import SourceError

PART = "rules"
pc: Any = _compute  # its functions are made when it is imported
OFFSETS_KEPT = 5
_MOST = 1 << 61  # for bounds and timestamps: differences must not overflow
_SIZE = re.compile(r"([0-9]{1,15}) ?(bytes|kB|KiB|MB|MiB|GB|GiB)?")
_UNITS = {"kB": 10**3, "KiB": 1 << 10, "MB": 10**6, "MiB": 1 << 20, "GB": 10**9, "GiB": 1 << 30}
_RULE = re.compile(r"(?:([A-Za-z0-9._-]{1,249}): *)?(.+)")

Mask = np.ndarray[Any, np.dtype[np.bool_]]


class RuleError(ReadError):
    """A text is not a rule, or a rule is for no topic of the audit."""


def _size(text: str) -> int:
    match = _SIZE.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a size, such as 100 bytes, 64 kB or 1 MiB")
    return int(match[1]) * _UNITS.get(match[2], 1)


FORMS: tuple[tuple[str, str, str, Callable[[str], int] | None], ...] = (
    ("key required, value required, timestamp required", r"(key|value|timestamp) required", "required", None),
    ("header NAME required", r"header (\S.*) required", "header", None),
    ("key at least SIZE, value at least SIZE", r"(key|value) at least (.+)", "at least", _size),
    ("key at most SIZE, value at most SIZE", r"(key|value) at most (.+)", "at most", _size),
    ("timestamp from TIME", r"(timestamp) from (.+)", "from", time_ms),
    ("timestamp until TIME", r"(timestamp) until (.+)", "until", time_ms),
    ("timestamp in order within DURATION", r"(timestamp) in order within (.+)", "order", duration_ms),
)
"""The forms of rules: in words, as a pattern, the name of the check, and the parser of its bound."""


class Rule(NamedTuple):
    """A rule. `topic` is None for all topics; `part` is key, value, timestamp or the name of a header."""

    text: str
    topic: str | None
    check: str
    part: str
    bound: int = 0


def parse(text: str) -> Rule:
    """Parses a rule. Raises RuleError."""
    match = _RULE.fullmatch(" ".join(text.split()))
    for _, form, check, bound_of in FORMS if match is not None else ():
        assert match is not None
        found = re.fullmatch(form, match[2])
        if found is None:
            continue
        try:
            bound = 0 if bound_of is None else bound_of(found[2])
        except ValueError as error:
            raise RuleError(f"rule {text!r}: {error}") from None
        return Rule(match[0], match[1], check, found[1], max(min(bound, _MOST), -_MOST))
    raise RuleError(f"{text!r} is not a rule: it must be [TOPIC:] {'; or '.join(form[0] for form in FORMS)}")


def lines(text: str) -> list[str]:
    """Returns the rules in a file: lines that are neither empty nor begin with `#`."""
    return [line for line in map(str.strip, text.splitlines()) if line and not line.startswith("#")]


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules of an audit; picklable. `value` and `key`: values and keys must decode this way, unless null."""

    rules: tuple[Rule, ...] = ()
    value: Decoding | None = None
    key: Decoding | None = None

    @classmethod
    def of(cls, texts: Iterable[str], value: Decoding | None = None, key: Decoding | None = None) -> Rules:
        """Returns these rules, and those of the decodings. Raises RuleError."""
        found = [parse(text) for text in texts]
        for part, decoding in (("key", key), ("value", value)):
            if decoding is not None:
                found.append(Rule(f"{part} decodes as {decoding.kind}", None, "decodes", part))
        return cls(tuple(found), value, key)

    def __bool__(self) -> bool:
        return bool(self.rules)

    def check(self, known: Collection[str]) -> None:
        """Raises RuleError for a rule of a topic that is not among these."""
        for rule in self.rules:
            if rule.topic is not None and rule.topic not in known:
                raise RuleError(f"rule {rule.text!r}: there is no topic {rule.topic} in what is audited")

    def of_topic(self, topic: str, *, named: bool) -> tuple[int, ...]:
        """Returns the numbers of the rules for a topic. `named`: the topic itself was chosen."""
        is_plain = named or topic not in INTERNAL
        return tuple(n for n, rule in enumerate(self.rules) if rule.topic == topic or (rule.topic is None and is_plain))


# -- in a task


class Broken(NamedTuple):
    """The records that break a rule: how many, the offsets of the first ones, and why the first does not decode."""

    count: int = 0
    offsets: tuple[int, ...] = ()
    problem: str = ""

    def plus(self, later: Broken) -> Broken:
        offsets = (*self.offsets, *later.offsets)[:OFFSETS_KEPT]
        return Broken(self.count + later.count, offsets, self.problem or later.problem)


class Timed(NamedTuple):
    """The first and the last record with a timestamp."""

    first_offset: int
    first_ms: int
    last_ms: int


class Checked(NamedTuple):
    """The result of a piece: `broken` is by the numbers of its rules. `problem`: why it could not be read."""

    records: int
    broken: dict[int, Broken]
    timed: Timed | None = None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class RuleItem:
    """A piece of a partition from the offset `start` on, and the numbers of its rules; picklable. `directory` and
    `label` are those of the audit."""

    directory: int
    label: str
    piece: Piece
    rules: Rules
    numbers: tuple[int, ...]
    start: int
    size_bytes: int

    def __str__(self) -> str:
        return f"{self.label}, from offset {self.start}"


def check(item: RuleItem) -> Checked:
    """Checks a piece. Damaged batches are left out: they are findings of the audit itself. Raises SourceError if
    schemas cannot be read, and nothing for logs that cannot."""
    checker = Checker(item.rules, item.numbers)
    try:
        for rows in item.piece.read():
            checker.add(rows)
    except SourceError:
        raise
    except (ReadError, OSError) as error:
        return checker.result()._replace(problem=str(error))
    return checker.result()


def columns(rules: Rules, numbers: Iterable[int]) -> tuple[str, ...]:
    """Returns the columns that these rules need."""
    parts = {"headers" if rule.check == "header" else rule.part for rule in (rules.rules[one] for one in numbers)}
    names = {"key": "key", "value": "value", "timestamp": EXACT_TIME.name, "headers": "headers"}
    return ("offset", *(column for part, column in names.items() if part in parts))


class Checker:
    """The check of the records of one piece, in the order of their offsets."""

    def __init__(self, rules: Rules, numbers: Sequence[int]) -> None:
        self._rules = {number: rules.rules[number] for number in numbers}
        self._decoders = {
            part: decoding.decoder()
            for part, decoding in (("key", rules.key), ("value", rules.value))
            if decoding is not None
        }
        self._records = 0
        self._broken = dict.fromkeys(numbers, Broken())
        self._timed: Timed | None = None

    def add(self, rows: pa.RecordBatch) -> None:
        """Checks the next records, with the columns of `columns`."""
        if not rows.num_rows:
            return
        self._records += rows.num_rows
        offsets = rows.column("offset").to_numpy()
        times = rows.column(EXACT_TIME.name).to_numpy() if EXACT_TIME.name in rows.schema.names else None
        for number, rule in self._rules.items():
            problem = ""
            if rule.check == "decodes":
                problems = self._decoders[rule.part].decode(rows.column(rule.part)).problems
                found = np.fromiter(problems, np.int64, len(problems))
                problem = next(iter(problems.values()), "")
            elif rule.check == "order":
                assert times is not None
                found = self._falls(times, rule.bound)
            else:
                found = np.flatnonzero(_CHECKS[rule.check](rule, rows))
            if found.size:
                first = tuple(offsets[found[:OFFSETS_KEPT]].tolist())
                self._broken[number] = self._broken[number].plus(Broken(int(found.size), first, problem))
        if times is not None:
            self._note(offsets, times)

    def _falls(self, times: np.ndarray[Any, Any], bound: int) -> np.ndarray[Any, Any]:
        """Returns the rows whose timestamp is more than the bound before that of the record before."""
        rows = np.flatnonzero(times != -1)
        if not rows.size:
            return rows
        known = np.clip(times[rows], -_MOST, _MOST)
        first = known[0] if self._timed is None else self._timed.last_ms
        return rows[np.concatenate(([first], known[:-1])) - known > bound]

    def _note(self, offsets: np.ndarray[Any, Any], times: np.ndarray[Any, Any]) -> None:
        rows = np.flatnonzero(times != -1)
        if rows.size:
            known = np.clip(times[rows[[0, -1]]], -_MOST, _MOST).tolist()
            before = self._timed or Timed(int(offsets[rows[0]]), known[0], known[1])
            self._timed = before._replace(last_ms=known[1])

    def result(self) -> Checked:
        found = {number: broken for number, broken in self._broken.items() if broken.count}
        return Checked(self._records, found, self._timed)


def _required(rule: Rule, rows: pa.RecordBatch) -> Mask:
    if rule.part == "timestamp":
        return rows.column(EXACT_TIME.name).to_numpy() == -1
    return rows.column(rule.part).is_null().to_numpy(zero_copy_only=False)


def _header(rule: Rule, rows: pa.RecordBatch) -> Mask:
    headers: Any = rows.column("headers")
    lacks = np.ones(rows.num_rows, np.bool_)
    is_meant = pc.equal(pc.struct_field(pc.list_flatten(headers), "key"), rule.part)
    lacks[pc.list_parent_indices(headers).filter(is_meant).to_numpy()] = False
    return lacks


def _sizes(rule: Rule, rows: pa.RecordBatch) -> np.ndarray[Any, Any]:
    """Returns the sizes of keys or values, the bound for null."""
    sizes: Any = pc.binary_length(rows.column(rule.part)).cast(pa.int64())
    return sizes.fill_null(rule.bound).to_numpy(zero_copy_only=False)


def _outside(rule: Rule, rows: pa.RecordBatch) -> Mask:
    """Returns the records with a timestamp before the bound of `from`, or not before that of `until`."""
    times = rows.column(EXACT_TIME.name).to_numpy()
    return (times != -1) & ((times < rule.bound) == (rule.check == "from"))


_CHECKS: Mapping[str, Callable[[Rule, pa.RecordBatch], Mask]] = {
    "required": _required,
    "header": _header,
    "at least": lambda rule, rows: _sizes(rule, rows) < rule.bound,
    "at most": lambda rule, rows: _sizes(rule, rows) > rule.bound,
    "from": _outside,
    "until": _outside,
}
"""Each returns which records break a rule."""


# -- at the driver


class Place(NamedTuple):
    """A partition's folder in a directory of the audit. `named`: its topic was chosen by name."""

    directory: int
    path: str
    label: str
    topic: str
    named: bool


def items(places: Iterable[Place], rules: Rules, store_conf: Mapping[str, str] | None = None) -> list[RuleItem]:
    """Returns the pieces of the partitions that have rules. Raises ReadError."""
    found: list[RuleItem] = []
    for directory, path, label, topic, named in places:
        numbers = rules.of_topic(topic, named=named)
        wanted = Wanted(columns(rules, numbers), on_corrupt="skip", fail_on_loss=False)
        for piece in _pieces(path, wanted, store_conf) if numbers else ():
            found.append(RuleItem(directory, label, piece, rules, numbers, piece.start, piece.size_bytes))
    return found


def _pieces(path: str, wanted: Wanted, store_conf: Mapping[str, str] | None) -> list[FilePiece]:
    """Returns the pieces of a partition's folder, none if it was deleted meanwhile. Raises ReadError."""
    with FileBackend([path], store_conf=store_conf) as logs:
        try:
            keys = logs.partitions(Selection())
        except ReadError:
            if is_missing(path):
                return []
            raise
        first, last = logs.earliest(keys), logs.latest(keys, committed=False)
        return logs.pieces(ranges_of(keys, first, last), wanted)


def ranges_of(keys: Iterable[TopicPartition], first: Offsets, last: Offsets) -> list[OffsetRange]:
    """Returns the offsets of the partitions that have a first and a last one."""
    return [OffsetRange(*key, first[key], last[key]) for key in keys if key in first and key in last]


class RuleResult(NamedTuple):
    """The result of a rule over all partitions."""

    text: str
    records: int
    broken: int


class Evaluated(NamedTuple):
    """The results of all rules. Each finding has the number of its directory."""

    results: list[RuleResult]
    findings: list[tuple[int, Finding]]


def evaluated(rules: Rules, found: Iterable[tuple[RuleItem, Checked]]) -> Evaluated:
    """Returns the results of the rules over all partitions. The findings are sorted by partition."""
    parts: dict[tuple[int, str], list[tuple[RuleItem, Checked]]] = {}
    for item, checked in found:
        parts.setdefault((item.directory, item.label), []).append((item, checked))
    totals = [[0, 0] for _ in rules.rules]
    findings: list[tuple[int, Finding]] = []
    for (directory, label), of_part in sorted(parts.items()):
        of_part.sort(key=lambda one: one[0].start)
        records = sum(checked.records for _, checked in of_part)
        for number, broken in _merged(rules, of_part).items():
            totals[number][0] += records
            totals[number][1] += broken.count
            if broken.count:
                findings.append((directory, _finding(label, rules.rules[number], records, broken)))
        for item, checked in of_part:
            if checked.problem:
                what = f"records were not checked by the rules: {checked.problem}"
                findings.append((directory, Finding(label, None, item.start, what, part=PART)))
    results = [RuleResult(rule.text, *of) for rule, of in zip(rules.rules, totals, strict=True)]
    return Evaluated(results, findings)


def _merged(rules: Rules, of_part: Sequence[tuple[RuleItem, Checked]]) -> dict[int, Broken]:
    """Returns the records of a partition that break its rules, also from one piece to the next."""
    total = dict.fromkeys(of_part[0][0].numbers, Broken())
    last: Timed | None = None
    for _, checked in of_part:
        for number in total:
            rule, timed = rules.rules[number], checked.timed
            if rule.check == "order" and last and timed and last.last_ms - timed.first_ms > rule.bound:
                total[number] = total[number].plus(Broken(1, (timed.first_offset,)))
            total[number] = total[number].plus(checked.broken.get(number, Broken()))
        last = checked.timed or last
    return total


def _finding(label: str, rule: Rule, records: int, broken: Broken) -> Finding:
    at = ", ".join(map(str, broken.offsets))
    first = "" if broken.count <= len(broken.offsets) else "the first ones "
    problem = f": {broken.problem}" if broken.problem else ""
    what = f"rule `{rule.text}`: {broken.count} of {plural(records, 'record')}, {first}at {at}{problem}"
    return Finding(label, None, broken.offsets[0], what, part=PART)
