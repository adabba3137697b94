"""Makes `golden/transactions-*.json`: the responses of Apache Kafka to the scripts in `transaction_plays.py`.

    python tests/oracle/make_transactions.py [RELEASE...]     needs java, mvn (Maven Central) and a minute

3.9.1 is the last release with the transactions of KIP-98, 4.3.1 has transaction.version 2 (KIP-890). Every run has the
same result except for the times; `test_transaction_answers.py` runs the same scripts against Ottla.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from ottla_testing import GOLDEN
from ottla_testing.interop.checks import jars, program
from ottla_testing.oracle.kafka_process import Kraft, free_port, write_properties
from ottla_testing.oracle.transaction_plays import BOTH
from ottla_testing.oracle.transaction_plays_held import HELD, HELD_NEW, HeldPlay
from ottla_testing.oracle.transaction_plays_version_2 import NEW
from ottla_testing.oracle.transaction_plays_worn import WORN, WORN_NEW, prepare, raise_epochs
from ottla_testing.oracle.transaction_script import SETTINGS, Line, Play, Stage, played, written
from ottla_testing.oracle.transaction_wire import Wire

TARGET = GOLDEN
RELEASES = ("3.9.1", "4.3.1")


def make(release: str) -> dict[str, list[Line]]:
    """Returns the lines of each script, by its name."""
    new = not release.startswith("3.")
    with tempfile.TemporaryDirectory() as place:
        kafka = Kraft(release, Path(place), broker_session_timeout_ms="60000", **SETTINGS)
        try:
            made = {play.__name__: played(play, kafka.address) for play in (BOTH + NEW if new else BOTH)}
            made |= held(kafka, Path(place) / "second", HELD + HELD_NEW if new else HELD)
        finally:
            kafka.kill()
    with tempfile.TemporaryDirectory() as place:
        return made | worn(release, Path(place), WORN + WORN_NEW if new else WORN)


def worn(release: str, place: Path, plays: Sequence[Play]) -> dict[str, list[Line]]:
    """Rewrites Kafka's state of the ids in between."""
    kafka = Kraft(release, place, **SETTINGS)
    try:
        prepare(kafka.address, *plays)
    finally:
        kafka.stop()
    raise_epochs(kafka.logs)
    kafka = Kraft(release, place, **SETTINGS)
    try:
        return {play.__name__: played(play, kafka.address, is_prepared=True) for play in plays}
    finally:
        kafka.kill()


class Second:
    """Another broker of the same cluster."""

    def __init__(self, first: Kraft, folder: Path) -> None:
        folder.mkdir()
        settings = dict(line.split("=", 1) for line in (first.folder / "server.properties").read_text().splitlines())
        meta = (first.logs / "meta.properties").read_text().splitlines()
        (cluster,) = [line.partition("=")[2] for line in meta if line.startswith("cluster.id=")]
        places = {
            "process.roles": "broker",
            "node.id": "2",
            "listeners": f"PLAINTEXT://127.0.0.1:{free_port()}",
            "log.dirs": str(folder / "logs"),
        }
        del settings["advertised.listeners"]
        properties = write_properties(folder, {**settings, **places})
        classes = jars(f"kafka-{first.release}", [f"org.apache.kafka:kafka_2.13:{first.release}"])
        command = [program("java"), "-Xmx256m", "-cp", f"{classes}/*"]
        formatting = [*command, "kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(properties)]
        subprocess.run(formatting, check=True, capture_output=True)
        self.process = subprocess.Popen(
            [*command, "kafka.Kafka", properties], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )

    def hold(self) -> None:
        self.process.send_signal(signal.SIGSTOP)

    def release(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(60)


def held(kafka: Kraft, folder: Path, plays: Sequence[HeldPlay]) -> dict[str, list[Line]]:
    """Suspends the broker of partition 1, so that the markers of a transaction cannot be written."""
    second = Second(kafka, folder)
    made = {}
    try:
        for play in plays:
            wire = Wire(kafka.address)
            stage = Stage(wire, play.__name__)
            stage.find_both()
            end = time.monotonic() + 60
            while True:  # the other broker takes some time to join
                try:
                    stage.create_topic((1, 2, 1))
                    break
                except AssertionError:
                    if time.monotonic() > end:
                        raise
            time.sleep(1)  # the partition on the other broker
            play(stage, second.hold, second.release)
            made[play.__name__] = stage.lines
            wire.close()
    finally:
        second.kill()
    return made


def main(releases: list[str]) -> None:
    for release in releases or RELEASES:
        made = make(release)
        (TARGET / f"transactions-{release}.json").write_text(written(made))
        print(f"{release}: {sum(map(len, made.values()))} lines in {len(made)} plays")


if __name__ == "__main__":
    main(sys.argv[1:])
