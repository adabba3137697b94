"""A session of Spark Connect, with the server that PySpark brings: the formats work there, and jobs are refused."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from ottla.broker import Embedded
from ottla.client import Producer
from ottla_testing.interop.checks import OUT, Check, Failed, Missing

CHILD = Path(__file__).with_name("spark_connect_child.py")
PACKAGES = ("grpcio", "grpcio-status", "googleapis-common-protos", "zstandard")  # of the client; no test needs them
TOPIC, RECORDS = "connect", 1000
PATIENCE_S = 180


def client_packages() -> Path:
    """Returns the folder of the packages that the client needs besides PySpark. Raises Missing."""
    folder = OUT / "spark-connect"
    if not (folder / "complete").exists():
        install = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(folder), *PACKAGES]
        done = subprocess.run(install, capture_output=True, text=True)
        if done.returncode:
            raise Missing(f"Spark Connect: {done.stderr.strip()[-300:]}")
        (folder / "complete").touch()
    return folder


async def fill(bootstrap: str) -> None:
    async with Producer(bootstrap) as producer:
        for number in range(RECORDS):
            await producer.send(TOPIC, str(number).encode())
        await producer.flush()


def run() -> str:
    """Raises Failed, Missing."""
    environ = {**os.environ, "PYTHONPATH": str(client_packages()), "PYSPARK_PYTHON": sys.executable}
    with tempfile.TemporaryDirectory() as folder, Embedded(data_dir=folder) as broker:
        broker.create_topic(TOPIC, 3)
        asyncio.run(fill(broker.bootstrap))
        command = [sys.executable, str(CHILD), broker.bootstrap, TOPIC, folder]
        done = subprocess.run(command, capture_output=True, text=True, env=environ, timeout=PATIENCE_S)
    if done.returncode:
        raise Failed(done.stderr[-2000:])
    found = json.loads(done.stdout.splitlines()[-1])
    if (found["wire"], found["files"]) != (RECORDS, RECORDS):
        raise Failed(f"{found}")
    if "this is a session of Spark Connect" not in found.get("job", ""):
        raise Failed(f"a job: {found}")
    return f"{RECORDS} records over the wire and from files, and a job refused by name"


CHECKS = [Check("spark: a session of Spark Connect", run)]
