"""A log from which `ottla repair` removed a damaged part is read by every client, across the gap and after it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest

from ottla.storage import inspect
from ottla_testing.clients.four_clients import READERS, WRITERS
from ottla_testing.clients.mixed_records import difference, mixed
from ottla_testing.clients.running_broker import RunningBroker
from ottla_testing.patience import PATIENCE_S

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("close_what_kafka_python_leaves_open")]


def ottla(*arguments: str) -> str:
    """Returns the output of a command that must end with exit code 0."""
    done = subprocess.run(
        [sys.executable, "-m", "ottla.tools", *arguments], capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_every_client_reads_across_a_repaired_gap(own_broker: RunningBroker, create: Callable[..., str]) -> None:
    topic = create(own_broker.address, "t")
    sent = mixed(120, plain=True, null_values=False)
    for start in range(0, len(sent), 10):
        WRITERS["aiokafka"](own_broker.address, topic, sent[start : start + 10], "gzip")
    assert own_broker.stop() == 0
    log = own_broker.data_dir / f"{topic}-0" / "00000000000000000000.log"
    found = [one for one in inspect.segment(log) if isinstance(one, inspect.BatchFacts)]
    damaged = found[len(found) // 2]
    data = bytearray(log.read_bytes())
    data[damaged.position + 80] ^= 1
    log.write_bytes(data)
    ottla("repair", str(own_broker.data_dir), "--apply", "--skip")
    assert "no errors" in ottla("verify", "--records", str(own_broker.data_dir))
    own_broker.start()
    lost = range(damaged.header.base_offset, damaged.last_offset + 1)
    more = mixed(3, plain=True, null_values=False)
    WRITERS["confluent-kafka"](own_broker.address, topic, more)
    left = [one for offset, one in enumerate(sent) if offset not in lost] + more
    for client, read in READERS.items():
        seen = read(own_broker.address, topic, len(left))
        assert difference([m._replace(headers=()) for m in left], [m._replace(headers=()) for m in seen]) is None, (
            client
        )
