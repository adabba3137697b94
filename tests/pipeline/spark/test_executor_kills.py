"""Executors of a cluster are killed while the sink writes and exports run: each row is there once, in order."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from deltalake import DeltaTable

from ottla.pipeline import java
from ottla_testing import SUPPORT
from ottla_testing.clients.running_broker import RunningBroker
from ottla_testing.patience import PATIENCE_S, PAUSE_S
from ottla_testing.pipeline.cluster_child import BATCHES, KEYS, PARTITIONS, RECORDS, ROWS
from ottla_testing.pipeline.export_samples import iceberg
from ottla_testing.pipeline.sink_queries import committed
from ottla_testing.pipeline.standalone_cluster import standalone_cluster

CHILD = SUPPORT / "pipeline" / "cluster_child.py"
LONGEST_S = 3.0
"""The time from the begin of some work until an executor is killed, at most."""


def executors(folder: Path) -> list[int]:
    """Returns the process ids of the executors."""
    listed = subprocess.run(["ps", "-axww", "-o", "pid=,args="], capture_output=True, text=True, check=True)
    lines = [line.strip().partition(" ") for line in listed.stdout.splitlines()]
    found = [one for one in lines if f"-Dkilled={folder} " in one[2]]  # also the driver, which has it as a setting
    return [int(pid) for pid, _, command in found if "CoarseGrainedExecutorBackend" in command]


def kill_executors(child: subprocess.Popen[bytes], folder: Path, chance: random.Random) -> int:
    """Kills an executor, or sometimes both, during most first attempts of the child's works and during some others,
    until it ends. Returns the number of kills."""
    works, seen, kills = folder / "works", 0, 0
    while child.poll() is None:
        lines = works.read_text().splitlines() if works.exists() else []
        if len(lines) == seen:
            time.sleep(PAUSE_S)
            continue
        is_first = lines[-1] not in lines[:-1]
        seen = len(lines)
        if not kills or chance.random() < (0.9 if is_first else 0.4):
            time.sleep(LONGEST_S * chance.random())
            running = executors(folder)
            for pid in chance.sample(running, min(len(running), chance.choice((1, 1, 1, 2)))):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                    kills += 1
    return kills


def play(broker: RunningBroker, folder: Path, rounds: int, chance: random.Random) -> int:
    """Runs the child on a cluster of two workers. Returns the number of kills."""
    log_path = folder / "log"
    with standalone_cluster(folder / "cluster", str(java.spark_home())) as master, log_path.open("wb") as log:
        child = subprocess.Popen(
            [sys.executable, str(CHILD), master, str(folder), broker.address, str(rounds)],
            stdout=log,
            stderr=log,
            env=os.environ | {"PYTHONPATH": str(SUPPORT), "SPARK_LOCAL_IP": "127.0.0.1"},
        )
        try:
            kills = kill_executors(child, folder, chance)
        finally:
            child.kill()
            child.wait(PATIENCE_S)
    assert child.returncode == 0, log_path.read_text()[-3000:]
    return kills


def check_topic(broker: RunningBroker, rounds: int) -> None:
    """Each row is there once, and the rows of a key in one partition, in their order."""
    found = committed(broker.address, "out", PARTITIONS)
    assert sorted(int(one.value or b"") for one in found) == list(range(rounds * ROWS))
    for key in range(KEYS):
        of_key = [one for one in found if one.key == b"%d" % key]
        numbers = [int(one.value or b"") for one in of_key]
        assert numbers == sorted(numbers) and len({one.partition for one in of_key}) == 1


def check_table(table: pa.Table, rounds: int) -> None:
    """Each record is there once."""
    columns = [table.column(name).to_pylist() for name in ("partition", "offset", "value")]
    count = rounds * BATCHES * RECORDS
    assert sorted(zip(*columns, strict=True)) == [(p, n, b"%d" % n) for p in range(PARTITIONS) for n in range(count)]


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_executor_kills_each_row_written_once(tmp_path: Path, scaled: Callable[[int], int]) -> None:
    rounds, seed = min(scaled(2), 30), random.randrange(1 << 32)
    chance = random.Random(seed)
    (tmp_path / "broker").mkdir()
    with contextlib.closing(RunningBroker(tmp_path / "broker")) as broker:
        admin = AdminClient({"bootstrap.servers": broker.address})
        admin.create_topics([NewTopic("out", PARTITIONS)])["out"].result(PATIENCE_S)
        del admin  # its connection would be refused when the broker has ended
        kills = play(broker, tmp_path, rounds, chance)
        check_topic(broker, rounds)
    check_table(DeltaTable(str(tmp_path / "delta")).to_pyarrow_table(), rounds)
    with iceberg(tmp_path / "iceberg") as table:
        check_table(table.scan().to_arrow(), rounds)
    attempts = (tmp_path / "works").read_text().count("\n")
    print(f"seed {seed}: {rounds} rounds, {kills} executors killed, {attempts - 3 * rounds} works begun again")
    assert kills > rounds // 2
