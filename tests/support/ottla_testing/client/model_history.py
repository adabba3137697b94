"""The events of one run of the model, and the check of what must not happen. Independent of client and broker.

A history is one list of events in the order in which they happened, and the logs at the end. A record is a number,
given in the order of sending. "Lost" means: acknowledged, at or above the log start, and absent.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import NamedTuple

# The kinds of errors. The texts are for people.
DOUBLED = "a record is in the log twice"
REORDERED = "acknowledged records are not in the order in which they were sent"
LOST_SILENTLY = "an acknowledged record is lost, and a later one was acknowledged"
LOST_AT_NEW_START = "an acknowledged record is lost, and the next one was the first of a new epoch"
FATAL_WITHOUT_LOSS = "a fatal error, and nothing was lost"
UNTRUE_OFFSET = "an acknowledgement names an offset at which the record never was"
REFUSED_BUT_PRESENT = "a refused record is in the log"
UNANSWERED = "a record was neither acknowledged nor failed"
FAILED_WITHOUT_REASON = "a record failed for no reason that there was"
WRONG_LOG = "the log is not what was appended to it"

BATCH_RECORDS_MAX = 8  # the most records in one batch

# The reasons of failed records.
TIMED_OUT = "timed out"
REFUSED = "refused"
PRODUCER_FAILED = "producer failed"


class Sent(NamedTuple):
    """The application gave the record to a producer."""

    at_s: float
    record: int
    producer: int
    partition: int


class Acknowledged(NamedTuple):
    """The record's future has a result; `offset` is None if the response had none."""

    at_s: float
    record: int
    offset: int | None


class Failed(NamedTuple):
    """The record's future has an exception: one of the three reasons above, or the text of the error."""

    at_s: float
    record: int
    why: str


class Fatal(NamedTuple):
    """The first fatal error of the producer, in this partition; -1 if the error names none."""

    at_s: float
    producer: int
    partition: int
    error: str


class Appended(NamedTuple):
    """The broker wrote these records, which came with this epoch."""

    at_s: float
    partition: int
    base_offset: int
    records: tuple[int, ...]
    epoch: int = 0


class Cut(NamedTuple):
    """The broker restarted without its records from this offset on."""

    at_s: float
    partition: int
    end_offset: int


class Started(NamedTuple):
    """The log begins here from now on."""

    at_s: float
    partition: int
    log_start_offset: int


class Note(NamedTuple):
    """Other information for a reader of the history."""

    at_s: float
    text: str


Event = Sent | Acknowledged | Failed | Fatal | Appended | Cut | Started | Note


class FinalLog(NamedTuple):
    """A partition at the end, as a consumer reads it: (offset, record) from the log start on."""

    log_start_offset: int
    records: list[tuple[int, int]]


class Violation(NamedTuple):
    """Something that must not happen, and its record or producer."""

    kind: str
    detail: str


@dataclass
class History:
    """One run. Times in seconds: no response is older than `response_s` when the client reads it; nothing may time out
    earlier than `delivery_timeout_s` after the oldest record that may be in its batch.
    """

    events: list[Event] = field(default_factory=list)
    logs: dict[int, FinalLog] = field(default_factory=dict)
    response_s: float = 0.0
    delivery_timeout_s: float = 0.0

    def describe(self) -> str:
        """Returns the whole run for people, one event a line."""
        lines = []
        for event in self.events:
            name = type(event).__name__
            fields = event.text if isinstance(event, Note) else " ".join(f"{k}={v}" for k, v in _shown(event))
            lines.append(f"{event.at_s:9.3f} {name if name != 'Note' else '':12} {fields}")
        lines += [f"at the end: partition {number}: {log}" for number, log in self.logs.items()]
        return "\n".join(lines)


def _shown(event: Event) -> list[tuple[str, object]]:
    return [(name, value) for name, value in event._asdict().items() if name != "at_s"]


class _Place(NamedTuple):
    """The check's state of one record."""

    producer: int
    partition: int
    at_s: float


class Check:
    """Reads a history once; `violations` are its findings."""

    def __init__(self, history: History) -> None:
        self.history = history
        self.violations: list[Violation] = []
        self.places: dict[int, _Place] = {}
        self.sent: dict[tuple[int, int], list[int]] = defaultdict(list)
        self.offsets: dict[int, int | None] = {  # of all that is acknowledged sooner or later
            event.record: event.offset for event in history.events if isinstance(event, Acknowledged)
        }
        self.known: set[int] = set()  # acknowledged so far
        self.outcomes: dict[int, str] = {}
        self.written: dict[int, list[int]] = defaultdict(list)  # record -> each offset that it ever had
        self.epochs: dict[int, int] = {}  # record -> the epoch that it was written with
        self.visible: dict[int, dict[int, int]] = defaultdict(dict)  # partition -> offset -> record
        self.present: dict[int, int] = defaultdict(int)  # record -> how often it is in the log now
        self.starts: dict[int, int] = defaultdict(int)
        self.deleted: set[int] = set()  # was below the log start at some time: its absence is no longer a loss
        # Record -> offset, of records removed by cuts.
        self.cut: dict[tuple[int, int], dict[int, int]] = defaultdict(dict)
        self.ceased_s: dict[tuple[int, int], float] = {}  # when a loss was repaired
        self.failed_producers: set[int] = set()

    def run(self) -> list[Violation]:
        for event in self.history.events:
            kind = type(event)
            if kind is not Note:
                _STEPS[kind](self, event)
        for record in self.places:
            if record not in self.outcomes:
                self._found(UNANSWERED, f"record {record}")
        for partition, log in self.history.logs.items():
            self._final(partition, log)
        return self.violations

    def _found(self, kind: str, detail: str) -> None:
        self.violations.append(Violation(kind, detail))

    # -- one event each

    def _sent(self, event: Sent) -> None:
        self.places[event.record] = _Place(event.producer, event.partition, event.at_s)
        self.sent[event.producer, event.partition].append(event.record)

    def _appended(self, event: Appended) -> None:
        log, offset = self.visible[event.partition], event.base_offset
        for record in event.records:
            place = self.places.get(record)
            if place is None or place.partition != event.partition or offset in log:
                self._found(WRONG_LOG, f"record {record} was written at {offset} of partition {event.partition}")
                return
            log[offset] = record
            self.written[record].append(offset)
            self.epochs[record] = event.epoch
            self.present[record] += 1
            gone = self.cut[place[:2]]
            if record in gone:
                del gone[record]
                self.ceased_s[place[:2]] = event.at_s
            if record in self.offsets:
                self._look_before(record, place, event)
            offset += 1

    def _look_before(self, record: int, place: _Place, event: Appended) -> None:
        """Checks that all earlier acknowledged records of the producer are in the log, or below the log start."""
        for earlier in self.sent[place[:2]]:
            if earlier == record:
                break
            if earlier in self.offsets and not self.present[earlier]:
                if earlier not in self.written:
                    self._found(REORDERED, f"record {record} was written before {earlier}")
                elif earlier not in self.deleted and self._last_offset(earlier) >= self.starts[event.partition]:
                    # Sequences restart with an epoch: the broker cannot compare them with earlier ones.
                    kind = LOST_SILENTLY if self.epochs[earlier] == event.epoch else LOST_AT_NEW_START
                    self._found(kind, f"record {earlier} was lost when {record} was written at {event.at_s:.3f}")
                    break  # one report is enough

    def _last_offset(self, record: int) -> int:
        """Returns the offset of an acknowledged record: the acknowledged one or, without one, its last place."""
        acknowledged = self.offsets.get(record)
        return self.written[record][-1] if acknowledged is None else acknowledged

    def _cut(self, event: Cut) -> None:
        log = self.visible[event.partition]
        for offset in [offset for offset in log if offset >= event.end_offset]:
            record = log.pop(offset)
            self.present[record] -= 1
            self.cut[self.places[record][:2]][record] = offset

    def _started(self, event: Started) -> None:
        log, before = self.visible[event.partition], self.starts[event.partition]
        self.starts[event.partition] = event.log_start_offset
        if event.log_start_offset < before:  # the log begins again: to a producer all deleted records look lost
            for record, offsets in self.written.items():
                place = self.places[record]
                is_here = place.partition == event.partition and not self.present[record]
                if is_here and offsets[-1] >= event.log_start_offset:
                    self.cut[place[:2]][record] = offsets[-1]
        for offset in [offset for offset in log if offset < event.log_start_offset]:
            record = log.pop(offset)
            self.present[record] -= 1
            self.deleted.add(record)
        for (producer, partition), gone in self.cut.items():
            if partition == event.partition:
                for record in [record for record, offset in gone.items() if offset < event.log_start_offset]:
                    del gone[record]
                    self.ceased_s[producer, partition] = event.at_s

    def _acknowledged(self, event: Acknowledged) -> None:
        self._ended(event.record, "acknowledged")
        self.known.add(event.record)
        offsets = self.written.get(event.record, [])
        if not offsets or (event.offset is not None and event.offset not in offsets):
            self._found(UNTRUE_OFFSET, f"record {event.record} at {event.offset}, it was at {offsets}")

    def _failed(self, event: Failed) -> None:
        self._ended(event.record, event.why)
        place = self.places[event.record]
        if event.why == TIMED_OUT:  # a record may have joined a batch that had waited
            records = self.sent[place[:2]]
            first = self.places[records[max(records.index(event.record) - BATCH_RECORDS_MAX + 1, 0)]]
            reason = event.at_s >= first.at_s + self.history.delivery_timeout_s - 1e-6
        elif event.why == PRODUCER_FAILED:
            reason = place.producer in self.failed_producers
        else:
            reason = event.why == REFUSED
        if not reason:
            self._found(FAILED_WITHOUT_REASON, f"record {event.record}, sent at {place.at_s:.3f}: {event.why}")

    def _ended(self, record: int, how: str) -> None:
        if record in self.outcomes:
            self._found(FAILED_WITHOUT_REASON, f"record {record}: {how}, after {self.outcomes[record]}")
        self.outcomes[record] = how

    def _fatal(self, event: Fatal) -> None:
        self.failed_producers.add(event.producer)
        key = (event.producer, event.partition)
        # The broker may have acknowledged to the producer what timed out for the application.
        is_lost = any(record in self.known or self.outcomes.get(record) == TIMED_OUT for record in self.cut[key])
        was_lost = self.ceased_s.get(key, -1.0) >= event.at_s - self.history.response_s
        if not is_lost and not was_lost:
            self._found(FATAL_WITHOUT_LOSS, f"producer {event.producer}, partition {event.partition}: {event.error}")

    # -- the end

    def _final(self, partition: int, log: FinalLog) -> None:
        start = self.starts[partition]
        expected = sorted((offset, record) for offset, record in self.visible[partition].items())
        if log.log_start_offset != start or log.records != expected:
            self._found(WRONG_LOG, f"partition {partition} from {start} on is {log.records}, not {expected}")
        places: dict[int, int] = {}
        for offset, record in log.records:
            if record in places:
                self._found(DOUBLED, f"record {record} at {places[record]} and {offset} of partition {partition}")
            places.setdefault(record, offset)
            if self.outcomes.get(record) == REFUSED:
                self._found(REFUSED_BUT_PRESENT, f"record {record} at {offset} of partition {partition}")
        for (producer, where), records in self.sent.items():
            there = [(places[record], record) for record in records if record in self.known and record in places]
            if where == partition and there != sorted(there):
                self._found(REORDERED, f"producer {producer} in partition {partition}: {there}")


_STEPS = {
    Sent: Check._sent,
    Acknowledged: Check._acknowledged,
    Failed: Check._failed,
    Fatal: Check._fatal,
    Appended: Check._appended,
    Cut: Check._cut,
    Started: Check._started,
}


def check(history: History) -> list[Violation]:
    """Returns all violations."""
    return Check(history).run()
