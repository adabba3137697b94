"""Pieces against a broker in its own process, which dies during the read."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.pipeline.backend import OffsetRange
from ottla.pipeline.readers.wire import WireBackend
from ottla.pipeline.readers.wire.backend import WirePiece
from ottla_testing.patience import PATIENCE_S
from ottla_testing.pipeline.wire_world import all_rows, config, wanted


@contextlib.contextmanager
def serving(folder: Path, listen: str = "127.0.0.1:0") -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Starts the process and yields it with its address."""
    command = [sys.executable, "-m", "ottla.tools", "serve", "--listen", listen, "--data-dir", str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        try:
            yield process, process.stdout.readline().split()[-1]
        finally:
            process.kill()


@pytest.mark.process
def test_read_continues_after_broker_restart(tmp_path: Path) -> None:
    from confluent_kafka import Producer

    values = [b"%d" % n * 100 for n in range(3000)]
    with serving(tmp_path) as (process, at):
        producer: Any = Producer({"bootstrap.servers": at, "compression.type": "lz4", "batch.size": 4000})
        for n, value in enumerate(values):
            producer.produce("t", value, key=str(n), headers=[("n", str(n))])
        assert producer.flush(PATIENCE_S) == 0
        found = all_rows(at, "t")
        assert [row["value"] for row in found] == values
        assert [row["key"] for row in found] == [b"%d" % n for n in range(3000)]
        assert [row["headers"][0]["value"] for row in found] == [b"%d" % n for n in range(3000)]
        work = WirePiece(
            config(at, default_api_timeout_ms=20_000, max_partition_fetch_bytes=2000),
            OffsetRange("t", 0, 0, 3000),
            wanted("offset", "value"),
        )
        reading = work.read()
        found = [next(reading) for _ in range(3)]
        process.kill()
        process.wait()
    with serving(tmp_path, at), WireBackend(config(at)):
        found += list(reading)
    assert [offset for some in found for offset in some.column("offset").to_pylist()] == list(range(3000))
    assert [value for some in found for value in some.column("value").to_pylist()] == values
