"""A query with faults: drivers die at any step, tasks outlive them, responses are lost; each row is committed once."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.broker.testing.embedded import Embedded
from ottla.pipeline.sink.errors import SinkError
from ottla.pipeline.sink.task_writer import send
from ottla.pipeline.sink.transaction import Grant, SinkTransaction
from ottla_testing.each import parts
from ottla_testing.pipeline import sink_world as world

PARTITIONS, MICRO_BATCHES, ROWS = 2, 3, 26
STEPS = ("begin", "add", "half", "send", "commit")
APIS = (
    "InitProducerId",
    "AddPartitionsToTxn",
    "Produce",
    "Produce",
    "AddOffsetsToTxn",
    "TxnOffsetCommit",
    "EndTxn",
    "OffsetFetch",
    "DescribeProducers",
)
FAULT = st.tuples(
    st.sampled_from(APIS),
    st.sampled_from(["before", "after", "COORDINATOR_NOT_AVAILABLE", "NOT_LEADER_OR_FOLLOWER", "REQUEST_TIMED_OUT"]),
    st.integers(0, 9),
    st.integers(1, 3),
)
DEATH = st.tuples(st.sampled_from(STEPS), st.booleans())
"""The step after which a driver dies, and whether it aborts before."""


@pytest.fixture(scope="module", params=parts(("0.11", "2.5", "4.3", "ottla"), 2))
def broker(request: pytest.FixtureRequest) -> Iterator[Embedded]:
    with Embedded(release=random.choice(request.param)) as broker:
        yield broker


class Died(Exception):
    """The driver has died."""


class Query:
    """A query that runs until each of its micro-batches is committed. Tasks of dead drivers stay alive."""

    def __init__(self, broker: Embedded, deaths: list[tuple[str, bool]]) -> None:
        self.options = world.options(broker, rows_per_batch=4)
        self.name = world.topic(broker, PARTITIONS)
        self.owner = world.transactional_id()
        self.deaths = list(deaths)
        self.zombies: list[tuple[Grant, int, int]] = []

    def rows(self, number: int, partition: int) -> list[bytes]:
        return world.values(ROWS, 1000 * number + 100 * partition)

    def run(self) -> None:
        for number in range(MICRO_BATCHES):
            for _ in range(len(self.deaths) + 2):
                with contextlib.suppress(Died):
                    self.write(number)
                    break

    def write(self, number: int) -> None:
        """Runs one driver."""
        death = self.deaths.pop() if self.deaths else ("", False)
        transaction = SinkTransaction(self.options, self.owner)
        try:
            grant = transaction.begin()
            done = transaction.committed_batch()
            self.reached("begin", death)
            if done is not None and done >= number:
                return
            transaction.add([(self.name, partition) for partition in range(PARTITIONS)])
            self.reached("add", death)
            for partition in range(PARTITIONS):
                self.zombies.append((grant, number, partition))
                if death[0] == "half":
                    send(self.options, grant, (self.name, partition), world.rows(self.rows(number, partition)[:14]))
                    self.reached("half", death)
                self.send(grant, number, partition)
                self.outlive()
            self.reached("send", death)
            transaction.commit(number)
            self.reached("commit", death)
        except Died:
            if death[1]:
                transaction.abort()
            raise
        finally:
            transaction.close()

    def send(self, grant: Grant, number: int, partition: int) -> None:
        send(self.options, grant, (self.name, partition), world.rows(self.rows(number, partition), 5))

    def reached(self, step: str, death: tuple[str, bool]) -> None:
        if step == death[0]:
            raise Died

    def outlive(self) -> None:
        """Lets the oldest remaining task continue as far as it can."""
        if len(self.zombies) > PARTITIONS:
            with contextlib.suppress(SinkError):
                self.send(*self.zombies.pop(0))


def inject(broker: Embedded, faults: list[tuple[str, str, int, int]]) -> None:
    for api, kind, after, times in faults:
        where: dict[str, Any] = {"after": after, "times": times}
        if kind in ("before", "after"):
            broker.faults.disconnect(api, kind, **where)
        elif (kind == "NOT_LEADER_OR_FOLLOWER") == (api in ("Produce", "DescribeProducers")):
            broker.faults.error(api, kind, **where)


@settings(max_examples=max(1, settings().max_examples // 20))
@given(st.lists(FAULT, max_size=5), st.lists(DEATH, max_size=5))
def test_each_row_committed_once_and_in_order(
    broker: Embedded, faults: list[tuple[str, str, int, int]], deaths: list[tuple[str, bool]]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SinkTransaction, "copies_live_s", 0.0)
        patch.setattr("ottla.pipeline.sink.transaction.SETTLE_S", 0.0)
        broker.faults.clear()
        inject(broker, faults)
        query = Query(broker, deaths)
        query.run()
        broker.faults.clear()
    expected = {
        partition: [one for number in range(MICRO_BATCHES) for one in query.rows(number, partition)]
        for partition in range(PARTITIONS)
    }
    assert world.seen(broker, query.name) == expected
