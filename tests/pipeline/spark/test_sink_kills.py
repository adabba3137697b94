"""Tasks, drivers and brokers are killed, and each row is written once all the same."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from ottla_testing import SUPPORT
from ottla_testing.clients.running_broker import RunningBroker
from ottla_testing.patience import until
from ottla_testing.pipeline.sink_queries import PATIENCE_S, SinkQuery, committed, values

CHILD = SUPPORT / "pipeline" / "sink_child.py"
PARTITIONS, FILES, ROWS = 2, 3, 150


class Child:
    """A process with a query, and its JVM."""

    def __init__(self, query: SinkQuery, log: Path, seed: str) -> None:
        self.query, self.path = query, log
        self.log = log.open("ab")
        self.process = subprocess.Popen(
            [sys.executable, str(CHILD), str(query.folder), seed, json.dumps(query.options)],
            stdin=subprocess.PIPE,
            stdout=self.log,
            stderr=self.log,
            start_new_session=True,
            env=os.environ | {"PYTHONPATH": str(CHILD.parent)},
        )

    def until(self, reached: Callable[[], bool]) -> None:
        def reached_alive() -> bool:
            assert self.process.poll() is None, self.path.read_text()[-3000:]
            return reached()

        until(reached_alive, lambda: self.path.read_text()[-3000:])

    def kill(self) -> None:
        """Kills the process; may be called again."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(PATIENCE_S)
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.log.close()


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_kills_each_row_written_once(tmp_path: Path, scaled: Callable[[int], int]) -> None:
    """Tasks die all the time. In the first round the driver is killed, in the second the broker, then one of them at
    random. Rows arrive in the order of their values, and keep it."""
    seed = os.environ.get("SEED", str(random.randrange(10**6)))
    print(f"seed {seed}")
    play(tmp_path, rounds=min(scaled(2), 30), seed=seed)
    assert (tmp_path / "query" / "deaths").stat().st_size >= 1


def play(folder: Path, *, rounds: int, seed: str) -> None:
    chance = random.Random(seed)
    (folder / "broker").mkdir(parents=True)
    broker = RunningBroker(folder / "broker")
    options = {"kafka.bootstrap.servers": broker.address, "topic": "out", "kafka.batch.size": "500"}
    query = SinkQuery(None, folder / "query", options)
    child: Child | None = None
    try:
        admin = AdminClient({"bootstrap.servers": broker.address})
        admin.create_topics([NewTopic("out", PARTITIONS)])["out"].result(PATIENCE_S)
        for number in range(rounds):
            is_driver = number == 0 or (number > 1 and chance.random() < 0.5)
            for _ in range(FILES):
                query.feed(range(query.files * ROWS, (query.files + 1) * ROWS))
            if child is None:
                child = Child(query, folder / "child.log", f"{seed}-{number}")
            at = query.files - FILES + chance.randrange(1, FILES + 1)
            child.until(lambda at=at: query.begun() >= at)
            time.sleep(chance.random())
            if is_driver:
                child.kill()
                child = None
            else:
                broker.restart("kill")
        if child is None:
            child = Child(query, folder / "child.log", f"{seed}-last")
        child.until(lambda: query.done() == query.files)
    finally:
        if child is not None:
            child.kill()
    found = committed(broker.address, "out", PARTITIONS)
    broker.close()
    assert sorted(values(found)) == list(range(query.files * ROWS))
    for partition in range(PARTITIONS):
        of_one = values(one for one in found if one.partition == partition)
        assert of_one == sorted(of_one) and len(of_one) > ROWS
