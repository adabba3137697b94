"""The driver's side of a replay: rounds of some seconds, each completed before the next begins.

Owns the offsets of a round, its division among tasks, and its progress. A replay ends between two rounds, at its end or
when it is stopped; then another one continues from the reached offsets. It repeats the records of a failed round: a
record is sent at least once. Raises ReadError and the errors of backends and sink.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from ....protocol.limits import INT64_MAX
from ...backend import Backend, OffsetRange, Offsets, TopicPartition, Wanted
from ...readers.columns import EXACT_TIME
from . import schedule
from .report import Replayed, ReplayReport
from .schedule import Clock, Sleep
from .tasks import COLUMNS, Line, Played, Sends, Work

ROUND_S = 5.0
FIRST_OFFSETS = 200_000
"""The size of the first round without a pace; later ones have as many offsets as take `ROUND_S`."""

MOST_OFFSETS = 50_000_000
MOST_DELAY_S = 1.0
"""The longest delay that is made up for: otherwise the rate would be exceeded after a stall."""

Run = Callable[[Sequence[Work]], Iterator[tuple[Work, Played]]]
"""Runs `tasks.replay_part` for each, all at the same time."""


@dataclass
class Replay:
    """One replay of some ranges."""

    backend: Backend
    ranges: Sequence[OffsetRange]
    sends: Sends
    run: Run
    clock: Clock
    sleep: Sleep
    is_over: Callable[[], bool] = lambda: False
    on_round: Callable[[ReplayReport], object] = lambda report: None
    _at: Offsets = field(default_factory=dict)
    _ends: Offsets = field(default_factory=dict)
    _sent: int = 0

    def all(self, report: ReplayReport) -> None:
        """Replays everything, or until it is stopped. Updates `report` after every round and passes it to
        `on_round`."""
        self._at = {one.key: one.start for one in self.ranges}
        self._ends = {one.key: one.end for one in self.ranges}
        report.partitions = [Replayed(*one.key, one.start, one.start, one.end, 0) for one in self.ranges]
        settings, begun_s = self.sends.settings, self.clock()
        start_s = begun_s
        origin_ms = self._origin() if settings.speed is not None else 0
        offsets, number = FIRST_OFFSETS, 0
        while self._left():
            if self.is_over():
                report.stopped = True
                return
            number += 1
            upto = self._upto(offsets, origin_ms, number)
            if upto == self._at:  # no records in these seconds
                if not schedule.wait(begun_s + number * ROUND_S, self.clock, self.sleep, self.is_over):
                    report.stopped = True
                    return
                continue
            before_s = self.clock()
            works = self._works(upto, begun_s if settings.speed is not None else start_s, origin_ms)
            sent = self._played(works, report)
            self._sent += sent
            took_s = self.clock() - before_s
            if settings.rate is not None:
                start_s = max(start_s + sent / settings.rate, self.clock() - MOST_DELAY_S)
            size = sum(upto[key] - self._at[key] for key in upto)
            offsets = min(max(int(size * ROUND_S / max(took_s, ROUND_S / 8)), 1), MOST_OFFSETS)
            self._at = upto
            report.rounds += 1
            report.partitions = [one._replace(reached=self._at[one.key]) for one in report.partitions]
            self.on_round(report)

    def _left(self) -> int:
        return sum(self._ends[key] - at for key, at in self._at.items())

    # -- offsets

    def _origin(self) -> int:
        """Returns the earliest timestamp among the first records of the partitions, the origin of the pace."""
        wanted = Wanted((EXACT_TIME.name,), committed=self.sends.settings.is_committed)
        found: list[int] = []
        for one in self.ranges:
            for piece in self.backend.pieces([one], wanted, at_least=None) if one.size else ():
                rows = next((rows for rows in piece.read() if rows.num_rows), None)
                if rows is not None:
                    times = schedule.milliseconds(rows)
                    found += [int(times[0])] if times[0] >= 0 else []
                    break
        return min(found, default=0)

    def _upto(self, offsets: int, origin_ms: int, number: int) -> Offsets:
        """Returns the end of the round for each partition."""
        rate, speed = self.sends.settings.rate, self.sends.settings.speed
        if speed is not None:
            until_ms = min(origin_ms + int(number * ROUND_S * 1000 * speed), INT64_MAX)
            found = self.backend.at_times({key: until_ms for key, at in self._at.items() if at < self._ends[key]})
            upto = dict(self._at)
            for key, offset in found.items():
                upto[key] = self._ends[key] if offset is None else min(max(offset, self._at[key]), self._ends[key])
            return upto
        if rate is not None:
            # Offsets without a record take no time: add as many as there were in proportion so far.
            done = sum(at - one.start for one, at in zip(self.ranges, self._at.values(), strict=True))
            thin = max(1.0, done / self._sent) if self._sent else 1.0 + done
            offsets = max(1, int(min(rate * ROUND_S * thin, MOST_OFFSETS)))
        left = self._left()
        upto: Offsets = {}
        for key, at in self._at.items():
            of = self._ends[key] - at
            upto[key] = min(at + -(-of * offsets // left), self._ends[key])
        return upto

    # -- sending

    def _works(self, upto: Offsets, start_s: float, origin_ms: int) -> list[Work]:
        sends = self.sends
        ranges = [OffsetRange(*key, self._at[key], end) for key, end in upto.items() if end > self._at[key]]
        wanted = Wanted(COLUMNS, committed=sends.settings.is_committed)
        lines = [Line(one, tuple(self.backend.pieces([one], wanted, at_least=None))) for one in ranges]
        groups: list[list[Line]] = [[] for _ in range(max(1, min(sends.tasks, len(lines))))]
        for line in sorted(lines, key=lambda line: (-line.range.size, line.range.key)):
            min(groups, key=lambda group: sum(of.range.size for of in group)).append(line)
        total = max(1, sum(line.range.size for line in lines))
        return [
            Work(tuple(group), sends, sum(line.range.size for line in group) / total, start_s, origin_ms)
            for group in groups
            if group
        ]

    def _played(self, works: Sequence[Work], report: ReplayReport) -> int:
        """Sends a round and returns the number of records."""
        counted: dict[TopicPartition, int] = {}
        size = 0
        for work, played in self.run(works):
            counted.update((line.range.key, records) for line, records in zip(work.lines, played.records, strict=True))
            size += played.bytes
        report.bytes += size
        report.partitions = [one._replace(records=one.records + counted.get(one.key, 0)) for one in report.partitions]
        return sum(counted.values())
