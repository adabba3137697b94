"""A stream neither loses nor repeats an offset, for any sequence of appends, retention, new partitions and crashes.

The query is simulated as Spark runs it: the end of a batch is written to the checkpoint before the batch is read, an
unfinished batch is read again after a restart, and the start of the first batch is requested again.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from ottla.pipeline.backend import TopicPartition
from ottla.pipeline.offsets import EARLIEST, LATEST, AtOffset
from ottla.pipeline.streams import Limit, Position
from ottla_testing.pipeline.stream_fakes import WANTED, Clock, FakeBackend, read, rules, stream

ROUNDS_AT_END = 400  # more than any case has offsets


class Query:
    """A streaming query with its checkpoint and its sink, and a process that may die."""

    def __init__(self, backend: FakeBackend, start: int, limit: Limit, now: bool) -> None:
        self.backend, self.limit, self.now = backend, limit, now
        self.rules = rules(
            AtOffset(start),
            wanted=replace(WANTED, fail_on_loss=False),
            limit=limit,
        )
        self.clock = Clock()
        self.planned: list[str] = []  # the checkpoint's offsets
        self.committed = 0  # the number of finished ones
        self.sink: dict[int, dict[TopicPartition, list[int]]] = {}  # by batch: writing one again replaces it
        self.first_start: Position | None = None
        self.warned: list[list[str]] = []  # by process
        self.begin()

    def begin(self) -> None:
        """Starts the process from the checkpoint."""
        self.stream, warned = stream(self.backend, self.rules, self.clock)
        self.warned.append(warned)
        if self.now:
            self.stream.fix_ends()
        self.done: Position | None = json.loads(self.planned[self.committed - 1]) if self.committed else None
        if self.planned:
            last = json.loads(self.planned[-1])
            assert self.stream.pieces(last, last) == []
        if len(self.planned) > self.committed:
            self.run()

    def start(self) -> Position:
        if self.done is not None:
            return self.done
        start = self.stream.initial()
        self.first_start = self.first_start or start
        for key, (low, end) in self.backend.logs.items():
            self.backend.logs[key] = (low, end + 1)  # other writers continue meanwhile
        return start

    def trigger(self, dies: str = "") -> bool:
        """Runs one batch if there is anything new; the process may die before the batch is read, or before it is
        done."""
        start = self.start() if self.done is None else self.done
        end = self.stream.latest(start, self.limit)
        text = json.dumps(end)
        if self.done is not None and text == json.dumps(self.done):
            return False
        self.planned.append(text)
        if dies != "planned":
            self.run(start, done=dies != "read")
        if dies:
            self.begin()
        return True

    def run(self, start: Position | None = None, done: bool = True) -> None:
        start = start or self.start()
        end = json.loads(self.planned[-1])
        self.sink[len(self.planned) - 1] = read(self.stream.pieces(start, end))
        if done:
            self.committed = len(self.planned)
            self.done = end


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(0, 3), st.integers(1, 12)),
        st.tuples(st.just("trigger"), st.sampled_from(["", "", "planned", "read"]), st.booleans()),
        st.tuples(st.just("die"), st.just(0), st.just(0)),
        st.tuples(st.just("wait"), st.integers(0, 20 * 60_000), st.just(0)),
        st.tuples(st.just("retain"), st.integers(0, 3), st.integers(0, 30)),
        st.tuples(st.just("lag"), st.integers(0, 3), st.integers(1, 5)),
    ),
    max_size=30,
)
LIMITS = st.builds(Limit, st.none() | st.integers(1, 9), st.none() | st.integers(0, 9))


def act(query: Query, steps: list[tuple[Any, Any, Any]], *, retention: bool) -> None:
    logs = query.backend.logs
    for what, first, second in steps:
        key = TopicPartition("t", first if isinstance(first, int) else 0)
        if what == "append":
            low, end = logs.get(key, (0, 0))
            logs[key] = (low, end + second)
        elif what == "trigger":
            query.trigger(str(first))
        elif what == "die":
            query.begin()
        elif what == "wait":
            query.clock.now_ms += first
        elif what == "retain" and retention and key in logs:
            logs[key] = (max(logs[key][0], min(second, logs[key][1])), logs[key][1])
        elif what == "lag" and not retention and key in logs:
            # The end is reported too low for a while, as after a kill of a broker.
            true = logs[key]
            logs[key] = (true[0], max(0, true[1] - second))
            query.clock.at_pause = lambda key=key, true=true: logs.update({key: true})
            query.trigger()
            logs[key] = true
            query.clock.at_pause = lambda: None


def drain(query: Query) -> None:
    for _ in range(ROUNDS_AT_END):
        if query.now:
            query.begin()
        query.clock.now_ms += 16 * 60_000
        query.trigger()
        ends = {key: end for key, (_, end) in query.backend.logs.items()}
        done = {(t, int(p)): at for t, parts in (query.done or {}).items() for p, at in parts.items()}
        if all(done.get(key) == end for key, end in ends.items()):
            return
    raise AssertionError("the query never caught up")


def all_read(query: Query) -> dict[TopicPartition, list[int]]:
    found: dict[TopicPartition, list[int]] = {}
    for number in sorted(query.sink):
        for key, offsets in query.sink[number].items():
            found.setdefault(key, []).extend(offsets)
    return found


@given(start=st.sampled_from([EARLIEST, LATEST]), limit=LIMITS, now=st.booleans(), steps=STEPS)
def test_every_offset_is_read_once_and_in_order(start, limit, now, steps) -> None:
    backend = FakeBackend({TopicPartition("t", 0): (0, 5)})
    query = Query(backend, start, limit, now)
    act(query, steps, retention=False)
    drain(query)
    begun = {(t, int(p)): at for t, parts in (query.first_start or {}).items() for p, at in parts.items()}
    expected = {key: list(range(begun.get(key, 0), end)) for key, (_, end) in backend.logs.items()}
    assert all_read(query) == {key: offsets for key, offsets in expected.items() if offsets}
    assert not [sentence for process in query.warned for sentence in process if "lost" in sentence]


@given(limit=LIMITS, now=st.booleans(), steps=STEPS)
def test_with_retention_offsets_in_order_and_complete(limit, now, steps) -> None:
    backend = FakeBackend({TopicPartition("t", 0): (0, 5)})
    query = Query(backend, EARLIEST, limit, now)
    act(query, steps, retention=True)
    drain(query)
    found = all_read(query)
    for key, (low, end) in backend.logs.items():
        offsets = found.get(key, [])
        assert offsets == sorted(set(offsets))
        assert set(range(low, end)) <= set(offsets)
        assert all(at < end for at in offsets)


@given(limit=st.integers(1, 9), steps=STEPS)
def test_no_batch_exceeds_the_limit(limit, steps) -> None:
    query = Query(FakeBackend({TopicPartition("t", 0): (0, 5)}), EARLIEST, Limit(limit), False)
    act(query, steps, retention=True)
    drain(query)
    assert all(sum(map(len, batch.values())) <= limit for batch in query.sink.values())
