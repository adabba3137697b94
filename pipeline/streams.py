"""A stream over logs, without Spark: its start, the end of each batch, and the ranges of each batch.

Owns the arithmetic of positions: the first one, the next one under a limit, new partitions, deleted partitions, lost
records, and the ends that are fixed for `Trigger.AvailableNow`. Calls an injected `Backend` and clock; no Spark, no
files, no sockets. A position is the value in Spark's checkpoint, in the form of Spark's own Kafka source: `{"topic":
{"0": 5}}`, 5 being the next offset to read.

As in Spark's Kafka source, new partitions are read from their earliest offset; a limit is shared out in proportion to
the backlog of each partition; deleted partitions, log ends that moved back and records that retention deleted unread
are lost data (`failOnDataLoss`). Differences:

* Data loss is also detected before a batch is planned. A query that fails then has written no offsets to the
  checkpoint, so it can continue once the records are back.
* A log end below the offset that was read already is retried for `Rules.patience_ms`: a broker that was killed restarts
  from a checkpointed high watermark that is some seconds old, and loses no records.
* The first batch ends at the log ends of the time when the start was determined. Spark's checkpoint has the end of each
  batch but not the start of the first, and Spark calls `initialOffset` again if the query died in the first batch.
  `latest` is a higher offset by then; since the first batch has no records of such a partition, no records are lost.
* A limit is never exceeded. If it is smaller than the number of partitions with records, each batch serves the next
  ones in rotation.
* `minOffsetsPerTrigger` does not hold back `Trigger.AvailableNow`, which would end with records left to read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from .backend import Backend, DataLoss, OffsetRange, Offsets, Piece, ReadError, Selection, TopicPartition, Wanted
from .offsets import flat, nested, split
from .options import DEFAULT_MAX_TRIGGER_DELAY_MS

Position = dict[str, dict[str, int]]

PATIENCE_MS = 30_000  # several times the interval at which a broker checkpoints its high watermarks (5 s)


def offsets_of(position: Position | None) -> Offsets:
    """Returns the offsets of a position. Raises ReadError for a position of another source's checkpoint."""
    try:
        return flat(position or {})
    except (AttributeError, TypeError, ValueError) as error:
        raise ReadError(f"not a position of a stream over logs: {position!r}") from error


class Limit(NamedTuple):
    """The bounds of a batch in offsets; below `at_least` the batch is held back. None: no bound."""

    at_most: int | None = None
    at_least: int | None = None


NO_LIMIT = Limit()


def share(limit: int, sizes: Mapping[TopicPartition, int], turn: int = 0) -> Offsets:
    """Shares out `limit` offsets, or all if there are fewer, in proportion to `sizes`, which are positive.

    Each partition gets at least one while the limit lasts. A limit below the number of partitions gives one to each of
    `limit` partitions, beginning at the one that `turn` selects.
    """
    total = sum(sizes.values())
    if total <= limit:
        return dict(sizes)
    keys = sorted(sizes)
    if limit < len(keys):
        return {keys[(turn + step) % len(keys)]: 1 for step in range(limit)}
    shares = {key: max(1, limit * sizes[key] // total) for key in keys}
    left = limit - sum(shares.values())
    if left < 0:  # partitions that were raised to one offset take it from the largest shares
        for key in sorted(keys, key=lambda key: -shares[key]):
            given = min(shares[key] - 1, -left)
            shares[key] -= given
            left += given
    # The remainder of the rounding goes to the largest fractions of the partitions that were not raised.
    whole = (key for key in keys if limit * sizes[key] >= total)
    most = sorted(whole, key=lambda key: -(limit * sizes[key] % total))
    for key in most[: max(0, left)]:
        shares[key] += 1
    return shares


@dataclass(frozen=True, slots=True)
class Rules:
    """The settings of a stream.

    `start` resolves the starting offsets of a new query. `wanted.fail_on_loss` is failOnDataLoss. `limit` has the
    bounds of the options; a batch below the lower bound is held back for at most `max_delay_ms`. `min_pieces` is
    minPartitions, `max_records` is maxRecordsPerPartition. `patience_ms`: see the module; while the stream can only
    wait, it polls every `pause_ms`.
    """

    selection: Selection
    wanted: Wanted
    start: Callable[[Backend], Offsets]
    limit: Limit = NO_LIMIT
    max_delay_ms: int = DEFAULT_MAX_TRIGGER_DELAY_MS
    min_pieces: int | None = None
    max_records: int | None = None
    pause_ms: int = 1000
    patience_ms: int = PATIENCE_MS


class Stream:
    """One stream of one query, in the process that plans its batches. Every method may raise ReadError or DataLoss.

    `now_ms` is a monotonic clock, `pause` sleeps for milliseconds, `warn` receives a sentence for the log.
    """

    def __init__(
        self,
        backend: Backend,
        rules: Rules,
        *,
        now_ms: Callable[[], int],
        pause: Callable[[int], None],
        warn: Callable[[str], None],
    ) -> None:
        self.backend = backend
        self.rules = rules
        self._now_ms = now_ms
        self._pause = pause
        self._warn = warn
        self._initial: Offsets | None = None
        self._first_ends: Offsets | None = None  # the log ends when the start was determined, until the first batch
        self._fixed: Offsets | None = None  # the ends for Trigger.AvailableNow
        self._seen: Offsets | None = None  # the newest ends, for the query's progress
        self._given: Offsets | None = None  # the last result of latest()
        self._reported: Offsets = {}  # the ends that were returned before the start was known
        self._lower_since_ms: Offsets = {}
        self._triggered_ms: int | None = None
        self._warned = ""  # the last warning: a waiting query polls often and logs it once

    def initial(self) -> Position:
        """Returns the start of a new query."""
        self._first_ends = self._look(None)
        self._initial = self.rules.start(self.backend)
        self._initial = {key: min(at, self._reported.get(key, at)) for key, at in self._initial.items()}
        # A partition may have grown in between: its start must not be after its end of the first batch.
        self._first_ends |= {key: max(self._first_ends.get(key, at), at) for key, at in self._initial.items()}
        if self._fixed is not None:
            self._fixed = self._initial | self._fixed
        return nested(self._initial)

    def ends(self) -> Position:
        """Returns the current log ends, the end of a batch whose start is not known yet."""
        self._reported = self._look(None)
        return nested(self._reported)

    def fix_ends(self) -> None:
        """Fixes the current log ends as the end of the query (Trigger.AvailableNow)."""
        self._fixed = self._look(None)

    def latest(self, start: Position, limit: Limit) -> Position:
        """Returns the end of the batch that begins at `start`; `start` itself if the batch is empty or held back."""
        begun = offsets_of(start)
        ends = self._ends(begun)
        self._seen = dict(ends)
        begins = self._begins(begun, ends)
        sizes = {key: ends[key] - begins[key] for key in ends if ends[key] > begins[key]}
        if self._held_back(limit, sum(sizes.values())):
            return nested(begun)
        if limit.at_most is not None and sum(sizes.values()) > limit.at_most:
            shares = share(limit.at_most, sizes, sum(begins.values()))
            # Partitions without a share stay at their offset; a new partition becomes part of the position.
            ends = {key: begins[key] + shares.get(key, 0) if key in sizes else end for key, end in ends.items()}
        self._given = ends
        return nested(ends)

    def reported(self) -> Position | None:
        """Returns the last seen log ends regardless of the limit: the latest offset in the query's progress."""
        return nested(self._seen) if self._seen else None

    def pieces(self, start: Position, end: Position) -> Sequence[Piece]:
        """Returns the work between two positions, also for a batch that was planned before a restart."""
        begun, until = offsets_of(start), offsets_of(end)
        if begun == until:
            return []
        if until != self._given:
            until = self._reachable(begun, until)
        moving, lowest = self._moving(begun, until, is_first=begun == self._initial)
        ranges = [
            OffsetRange(key.topic, key.partition, max(begun.get(key, 0), lowest[key]), until[key])
            for key in moving
            if key in lowest
        ]
        rules = self.rules
        ranges = split([part for part in ranges if part.size], rules.max_records)
        if not ranges:
            return []
        return self.backend.pieces(ranges, rules.wanted, at_least=rules.min_pieces)

    def _ends(self, begun: Offsets) -> Offsets:
        """Returns the ends of all partitions. An end below the stream's offset is replaced by that offset until
        `patience_ms` is over."""
        if self._fixed is not None:
            ends = dict(self._fixed)
            if any(begun.get(key, 0) > end for key, end in ends.items()):
                reached = self._wait_for({key: at for key, at in begun.items() if key in ends and at > ends[key]})
                ends |= reached
                self._fixed |= reached
            return ends
        ends, self._first_ends = self._first_ends or self._look(begun), None
        lower = {key: end for key, end in ends.items() if begun.get(key, 0) > end}
        now_ms = self._now_ms()
        self._lower_since_ms = {key: self._lower_since_ms.get(key, now_ms) for key in lower}
        for key, end in lower.items():
            if now_ms - self._lower_since_ms[key] < self.rules.patience_ms:
                if self._lower_since_ms[key] == now_ms:
                    self._warn(f"{key} ends at offset {end} for now, but was read up to {begun[key]}")
                ends[key] = begun[key]
        return ends

    def _wait_for(self, wanted: Offsets) -> Offsets:
        """Waits at most `patience_ms` until the partitions are readable up to `wanted`. Returns those offsets, or the
        lower ends."""
        since_ms = self._now_ms()
        while True:
            found = self.backend.latest(sorted(wanted), committed=self.rules.wanted.committed)
            low = {key: found[key] for key, at in wanted.items() if key in found and found[key] < at}
            if not low or self._now_ms() - since_ms >= self.rules.patience_ms:
                return {key: low.get(key, at) for key, at in wanted.items() if key in found}
            self._pause(self.rules.pause_ms)

    def _reachable(self, begun: Offsets, until: Offsets) -> Offsets:
        """Returns the end of a batch that an earlier process planned, lowered to the offsets that can be read now."""
        moving = {key: to for key, to in until.items() if to > begun.get(key, -1)}
        found = self._wait_for(moving) if moving else {}
        self._report(
            [
                f"{key} ends at offset {found[key]}, but the batch was planned up to {to}"
                for key, to in moving.items()
                if found.get(key, to) < to
            ]
        )
        return until | found

    def _begins(self, begun: Offsets, ends: Offsets) -> Offsets:
        """Returns the first offset of each partition in the next batch. Removes partitions deleted meanwhile from
        `ends`."""
        moving, lowest = self._moving(begun, ends)
        for key in moving:
            if key not in lowest:
                del ends[key]
            else:
                ends[key] = max(ends[key], lowest[key])
        return {key: max(begun.get(key, 0), lowest.get(key, 0)) for key in ends}

    def _moving(
        self, begun: Offsets, ends: Offsets, *, is_first: bool = False
    ) -> tuple[Sequence[TopicPartition], Offsets]:
        """Returns the partitions that a batch reads, sorted, and their log start offsets. Reports the loss of records,
        in the first batch only that of records below the log start offsets."""
        moving = sorted(key for key, end in ends.items() if key not in begun or end > begun[key])
        lowest = self.backend.earliest(moving) if moving else {}
        lost: list[str] = []
        if not is_first:
            lost += [f"{key} no longer exists" for key in begun if key not in ends]
            back = [(key, at) for key, at in begun.items() if ends.get(key, at) < at]
            lost += [f"{key} went back from offset {at} to {ends[key]}" for key, at in back]
        self._report(lost)
        lost = []
        for key in moving:
            if key not in lowest:
                lost.append(f"{key} no longer exists")
            elif lowest[key] > begun.get(key, 0):
                new = "" if key in begun else ", which is new,"
                lost.append(f"{key}{new} begins at offset {lowest[key]}, after {begun.get(key, 0)}")
        self._report(lost)
        return moving, lowest

    def _report(self, lost: list[str]) -> None:
        if not lost:
            return
        what = "; ".join(lost[:5]) + (f"; and {len(lost) - 5} more" if len(lost) > 5 else "")
        if self.rules.wanted.fail_on_loss:
            raise DataLoss(f"records may have been lost: {what}. failOnDataLoss=false reads the remaining ones")
        if what != self._warned:
            self._warn(f"records may have been lost: {what}")
            self._warned = what

    def _held_back(self, limit: Limit, size: int) -> bool:
        """Returns whether the batch waits for more records (minOffsetsPerTrigger). The first batch never waits."""
        if limit.at_least is None or self._fixed is not None:
            return False
        now_ms = self._now_ms()
        waited_ms = None if self._triggered_ms is None else now_ms - self._triggered_ms
        if waited_ms is not None and waited_ms < self.rules.max_delay_ms and size < limit.at_least:
            return True
        if size or waited_ms is None:
            self._triggered_ms = now_ms
        return False

    def _look(self, begun: Offsets | None) -> Offsets:
        """Returns the current log ends of the selected partitions."""
        keys = self._partitions(begun)
        return self.backend.latest(keys, committed=self.rules.wanted.committed) if keys else {}

    def _partitions(self, begun: Offsets | None) -> list[TopicPartition]:
        """Returns the selected partitions. A named topic that is deleted while it is read is lost data, not a wrong
        name."""
        selection = self.rules.selection
        try:
            return self.backend.partitions(selection)
        except ReadError:
            named = {key.topic for key in selection.assigned or ()} | set(selection.topics or ())
            if (
                begun is None
                or self.rules.wanted.fail_on_loss
                or not named
                or any(name.startswith("__") for name in named)
            ):
                raise
            # A pattern may match no topic, so only a place that cannot be read raises here.
            pattern = "|".join(re.escape(name) for name in sorted(named))
            found = self.backend.partitions(replace(selection, topics=None, assigned=None, pattern=pattern))
            return [key for key in found if selection.assigned is None or key in selection.assigned]
