"""Has a release of Apache Kafka write the data directories of `golden/directories`."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Any

from ottla_testing.interop.java_lines import java_client
from ottla_testing.oracle import kafka_directories
from ottla_testing.oracle.kafka_process import Kafka, Kraft

RELEASES = ("2.8.2", "3.9.1", "4.3.1")


def start(release: str, folder: Path) -> Kafka | Kraft:
    """Starts a broker; 4.x has no ZooKeeper."""
    broker = Kraft if release.startswith("4.") else Kafka
    return broker(release, folder, **kafka_directories.QUICK)


def copy(source: Path, target: Path, only: str | None = None) -> None:
    """Copies a directory; with `only`, one topic and the files beside it."""
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    for path in sorted(source.iterdir()):
        if path.is_file() and path.name != ".lock":
            shutil.copy(path, target)
        elif path.is_dir() and (only is None or path.name == f"{only}-0"):
            shutil.copytree(path, target / path.name, ignore=shutil.ignore_patterns("*.deleted"))


def make(release: str, folder: Path, target: Path) -> dict[str, Any]:
    """Makes both directories of a release, in `target`; returns what its clients read."""
    topics = kafka_directories.TOPICS
    if release.startswith("2."):
        topics = (kafka_directories.old_formats, *topics)
    java = java_client(release.rpartition(".")[0])
    try:
        kafka = start(release, folder)
        try:
            found = kafka_directories.write(kafka, java, topics)
        finally:
            kafka.stop()
        copy(kafka.logs, target / release)
        kafka = start(release, folder)
        try:
            found |= kafka_directories.write(kafka, java, (kafka_directories.killed,))
            time.sleep(6)  # until the high watermark is checkpointed
        finally:
            kafka.kill()
        copy(kafka.logs, target / f"{release}-killed", "killed")
    finally:
        java.close()
    return found
