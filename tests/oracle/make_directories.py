"""Makes `golden/directories/`: whole data directories as Apache Kafka 2.8.2, 3.9.1 and 4.3.1 left them.

    python tests/oracle/make_directories.py [RELEASE...]      needs java, mvn (Maven Central) and some minutes

`RELEASE/` is a directory after a clean stop; `RELEASE-killed/` one topic and the checkpoints after kill -9, with the
zeros behind its indexes. `RELEASE.json` tells of each topic what that release's own clients read there (bytes are
base64). Kafka 2.8.2 and 3.9.1 run with ZooKeeper, 4.3.1 has a `__cluster_metadata-0`.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "interop"))

import kafka_directories  # type: ignore[import-not-found]
from java_lines import java_client  # type: ignore[import-not-found]
from kafka_process import Kafka, Kraft  # type: ignore[import-not-found]

TARGET = Path(__file__).parent / "golden" / "directories"
RELEASES = ("2.8.2", "3.9.1", "4.3.1")


def start(release: str, folder: Path) -> Kafka | Kraft:
    """4.x has no ZooKeeper."""
    broker = Kraft if release.startswith("4.") else Kafka
    return broker(release, folder, **kafka_directories.QUICK)


def copy(source: Path, target: Path, only: str | None = None) -> None:
    """A directory as it lies there; with `only`, one topic and the files beside it."""
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    for path in sorted(source.iterdir()):
        if path.is_file() and path.name != ".lock":
            shutil.copy(path, target)
        elif path.is_dir() and (only is None or path.name == f"{only}-0"):
            shutil.copytree(path, target / path.name, ignore=shutil.ignore_patterns("*.deleted"))


def make(release: str, folder: Path, target: Path) -> dict[str, Any]:
    """Both directories of a release, in `target`; what its clients read."""
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
            time.sleep(6)  # until the high watermark is written down
        finally:
            kafka.kill()
        copy(kafka.logs, target / f"{release}-killed", "killed")
    finally:
        java.close()
    return found


def main(releases: list[str]) -> None:
    for release in releases or RELEASES:
        with tempfile.TemporaryDirectory() as place:
            found = make(release, Path(place), TARGET)
        lines = ",\n".join(f"{json.dumps(topic)}: {json.dumps(told)}" for topic, told in found.items())
        (TARGET / f"{release}.json").write_text("{\n" + lines + "\n}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
