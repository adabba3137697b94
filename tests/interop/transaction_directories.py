"""Transactions in data directories that pass between Ottla and Apache Kafka, and Apache's tools on ours.

A directory has committed transactions, an aborted one, an open one and, if its broker was killed, one that was decided
but lacks a marker and its final record: the next broker ends both.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import dumped
from directories import folder, verified
from java_transactions import read, running

from ottla.protocol.records import formats
from ottla_testing.clients.running_broker import RunningBroker
from ottla_testing.interop.checks import Check, Failed, jars, program
from ottla_testing.oracle.kafka_process import Kraft
from ottla_testing.oracle.transaction_script import SETTINGS, Stage
from ottla_testing.oracle.transaction_wire import Wire

RELEASES = ("3.9.1", "4.3.1")
NEWEST = "4.4.0"  # its levels are those of our own profile
TOPIC, GROUP = "t", "g"
# Transactional id -> how its transactions end, in this order.
ENDS = {"committed": (True, True), "aborted": (False, False), "open": (None,), "decided": (True,)}
OPEN_MS = 4000
STATES = {
    "committed": ["Empty", *["Ongoing", "Ongoing", "PrepareCommit", "CompleteCommit"] * 2],
    "aborted": ["Empty", *["Ongoing", "Ongoing", "PrepareAbort", "CompleteAbort"] * 2],
    "open": ["Empty", "Ongoing", "Ongoing"],
    "decided": ["Empty", "Ongoing", "Ongoing", "PrepareCommit", "CompleteCommit"],
}
NUMBERS = ("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort")
COMMITTED = [b"committed 0", b"committed 1", b"decided 0"]
# Number of the first offset of each id's group commits; the round is added.
OFFSETS = {"committed": 0, "aborted": 10, "open": 20, "decided": 30}
VALUE = re.compile(r"transactionalId(?:=|\":\")([a-z]+).*?(?:state=(\w+)|\"transactionStatus\":(\d))")
COMMAND = "org.apache.kafka.tools.TransactionsCommand"


def stage_of(wire: Wire, name: str) -> Stage:
    stage = Stage(wire, name)
    stage.topic, stage.group = TOPIC, GROUP
    return stage


def transact(stage: Stage, number: int, end: bool | None) -> None:
    """Writes a record to partitions 0 and 1, and an offset of the group. Raises Failed unless all is accepted."""
    stage.add(3, (0, 1))
    for partition in (0, 1):
        stage.produce(9, partition, sequence=number, value=f"{stage.name} {number}".encode())
    stage.add_offsets(3)
    stage.commit_offsets(3, OFFSETS[stage.name] + number)
    if end is not None:
        stage.end(end)
    for requested, response in stage.lines:
        codes = (
            response.values()
            if isinstance(response, dict)
            else response[:1]
            if isinstance(response, list)
            else [response]
        )
        if any(code != 0 for code in codes):
            raise Failed(f"{requested}: {response}")


def write(address: str) -> None:
    """Runs all transactions of ENDS, in a new topic."""
    wire = Wire(address)
    first = stage_of(wire, TOPIC)
    first.find_both()
    first.create_topic()
    for name, ends in ENDS.items():
        stage = stage_of(wire, name)
        stage.init(4, timeout_ms=OPEN_MS if name == "open" else 60_000)
        for number, end in enumerate(ends):
            transact(stage, number, end)
    wire.close()


def cut(root: Path) -> None:
    """Removes the last writes of a crash: the marker of the last transaction in partition 1, and its final record."""
    for name, control in ((f"{TOPIC}-1", True), ("__transaction_state-0", False)):
        newest = max((root / name).glob("*.log"))
        data = newest.read_bytes()
        position, header = list(formats.headers(data))[-1]
        if bool(header.is_control) is not control:
            raise Failed(f"{name} ends with {header}")
        with newest.open("r+b") as log:
            log.truncate(position)


def look(address: str) -> str:
    """Waits until everything is ended, compares, and continues each id. Raises Failed."""
    wire = Wire(address)
    wanted = {name: "CompleteCommit" if ends[-1] else "CompleteAbort" for name, ends in ENDS.items()}
    epochs = []
    for name, state in wanted.items():
        stage = stage_of(wire, name)
        stage.find_both()
        stage.settle(state)
    compare(address, COMMITTED)
    stage = stage_of(wire, "look")
    stage.offsets(require_stable=True)
    if stage.lines[-1][1] != [0, 0, OFFSETS["decided"]]:
        raise Failed(f"the group's offset: {stage.lines[-1][1]}")
    for name in ENDS:
        stage = stage_of(wire, name)
        if stage.init(4):
            raise Failed(f"{name}: {stage.lines[-1]}")
        epochs.append(f"{name} {stage.epoch}")
        transact(stage, 0, True)
    compare(address, [*COMMITTED, *(f"{name} 0".encode() for name in ENDS)])
    wire.close()
    return f"the open one aborted; they continue with epochs {', '.join(epochs)}"


def compare(address: str, wanted: Sequence[bytes]) -> None:
    for partition in (0, 1):
        found = read(address, TOPIC, partition)
        if found != list(wanted):
            raise Failed(f"{TOPIC}-{partition} has {found} instead of {list(wanted)}")


def run_to_kafka(release: str, how: str) -> str:
    """Lets Kafka end the transactions that our broker left open, and takes the directory back."""
    with folder() as place:
        (place / "ours").mkdir()
        # An older Kafka refuses a directory with a level that it does not know.
        features = {} if release == NEWEST else {"ottla_features": "metadata.version=21"}
        broker = RunningBroker(place / "ours", **SETTINGS, **features)
        try:
            write(broker.address)
        finally:
            broker.kill() if how == "killed" else broker.close()
        if how == "killed":
            cut(broker.data_dir)
        (place / "kafka").mkdir()
        shutil.copytree(broker.data_dir, place / "kafka" / "logs")
        kafka = Kraft(release, place / "kafka", **SETTINGS)
        try:
            result = look(kafka.address)
        finally:
            kafka.stop()
        verified(kafka.logs)
        (place / "back").mkdir()
        kafka.logs.rename(place / "back" / "data")
        back = RunningBroker(place / "back", **SETTINGS)
        try:
            compare(back.address, [*COMMITTED, *(f"{name} 0".encode() for name in ENDS)])
        finally:
            back.close()
        verified(back.data_dir)
    return f"{result}; read equal when it was back"


def run_from_kafka(release: str, profile: str) -> str:
    """Ends the transactions that a killed Kafka left open, and gives the directory back to Kafka."""
    with folder() as place:
        (place / "kafka").mkdir()
        kafka = Kraft(release, place / "kafka", **SETTINGS)
        try:
            write(kafka.address)
        finally:
            kafka.kill()
        cut(kafka.logs)
        (place / "ours").mkdir()
        kafka.logs.rename(place / "ours" / "data")
        broker = RunningBroker(place / "ours", None if profile == "ottla" else profile, **SETTINGS)
        try:
            result = look(broker.address)
        finally:
            broker.close()
        verified(broker.data_dir)
        broker.data_dir.rename(kafka.logs)
        kafka = Kraft(release, place / "kafka", **SETTINGS)
        try:
            compare(kafka.address, [*COMMITTED, *(f"{name} 0".encode() for name in ENDS)])
        finally:
            kafka.stop()
    return f"{result}; read equal when it was back"


# -- Apache's tools


def states(lines: Sequence[str]) -> dict[str, list[str]]:
    """Returns transactional id -> the states in which the tool shows it in the log, in order."""
    found: dict[str, list[str]] = {}
    for line in lines:
        if seen := VALUE.search(line):
            found.setdefault(seen[1], []).append(seen[2] or NUMBERS[int(seen[3])])
    return found


def run_dump(release: str) -> str:
    """Runs DumpLogSegments on a directory of ours: markers, transaction indexes, the coordinators' logs."""
    with folder() as place:
        broker = RunningBroker(place, **SETTINGS)
        try:
            write(broker.address)
        finally:
            broker.close()
        folders = sorted(path for path in broker.data_dir.iterdir() if path.is_dir())
        counts = dumped.check(release, folders)
        logs = dumped.files([broker.data_dir / f"{TOPIC}-{index}" for index in (0, 1)])
        lines = dumped.run(release, logs, "--deep-iteration")
        markers = Counter(re.findall(r"endTxnMarker: (\w+) coordinatorEpoch: 0", "\n".join(lines)))
        if markers != {"COMMIT": 6, "ABORT": 4}:
            raise Failed(f"markers {dict(markers)}")
        if counts["aborted"] != 6:  # of two partitions of t and one of __consumer_offsets
            raise Failed(f"{counts['aborted']} aborted transactions in the indexes")
        found = states(dumped.run(release, log_of(broker, "__transaction_state-0"), "--transaction-log-decoder"))
        if found != STATES:
            raise Failed(f"the states in __transaction_state are {found}")
        decoded = "\n".join(dumped.run(release, log_of(broker, "__consumer_offsets-0"), "--offsets-decoder"))
        offsets = [int(number) for number in re.findall(r"\"offset\":(\d+)", decoded)]
        ends = re.findall(r"endTxnMarker: (\w+)", decoded)
    wanted = [OFFSETS[name] + number for name, all_ends in ENDS.items() for number, _ in enumerate(all_ends)]
    if offsets != wanted or ends != ["COMMIT", "COMMIT", "ABORT", "ABORT", "COMMIT"]:
        raise Failed(f"offsets {offsets} with markers {ends}")
    return f"{sum(markers.values())} markers, {counts['aborted']} aborted in indexes, the states of {len(found)} ids"


def log_of(broker: RunningBroker, name: str) -> list[Path]:
    return sorted((broker.data_dir / name).glob("*.log"))


def tool(release: str, address: str, *arguments: str) -> list[list[str]]:
    """Returns the rows of a table that kafka-transactions.sh prints, without its head."""
    classes = jars(f"kafka-tools-{release}", [f"org.apache.kafka:kafka-tools:{release}"])
    command = [program("java"), "-Xmx256m", "-cp", f"{classes}/*", COMMAND, "--bootstrap-server", address, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    if done.returncode:
        raise Failed(f"{arguments[0]}: exit code {done.returncode}: {(done.stdout + done.stderr)[-800:]}")
    return [[cell.strip() for cell in line.split("\t")] for line in done.stdout.splitlines()[1:]]


def run_tool(release: str) -> str:
    """Runs kafka-transactions.sh against a running broker of ours."""
    with running("ottla") as broker:
        wire = Wire(broker.address)
        write_for_tool(wire)
        found = [(row[0], row[3]) for row in tool(release, broker.address, "list")]
        if sorted(found) != [("aborted", "CompleteAbort"), ("committed", "CompleteCommit"), ("open", "Ongoing")]:
            raise Failed(f"listed {found}")
        (row,) = tool(release, broker.address, "describe", "--transactional-id", "open")
        places = set(row[8].split(","))
        if row[3:6] != ["0", "Ongoing", "60000"] or not places >= {"t-0", "t-1"} or len(places) != 3:
            raise Failed(f"described {row}")
        rows = tool(release, broker.address, "describe-producers", "--topic", TOPIC, "--partition", "0")
        starts = sorted(row[5] for row in rows)
        if len(rows) != 3 or starts != ["8", "None", "None"]:
            raise Failed(f"producers {rows}")
        if hanging := tool(release, broker.address, "find-hanging", "--broker-id", "1"):
            raise Failed(f"hanging {hanging}")
        if release != "3.9.1":  # which cannot
            tool(release, broker.address, "forceTerminateTransaction", "--transactionalId", "open")
            stage_of(wire, "open").settle("CompleteAbort", "Empty")
        wire.close()
    with running("3.5") as broker:  # the last that lets a transaction begin unasked
        wire = Wire(broker.address)
        first = stage_of(wire, "hanging")
        first.find_both()
        first.create_topic()
        first.init(4)
        first.produce(9, 1, value=b"nobody ends this")
        wire.close()
        hanging = tool(release, broker.address, "find-hanging", "--topic", TOPIC, "--partition", "1")
        if [row[:2] for row in hanging] != [[TOPIC, "1"]]:
            raise Failed(f"found hanging: {hanging}")
    ended = "" if release == "3.9.1" else ", forceTerminateTransaction"
    return f"list, describe, describe-producers{ended}; find-hanging finds the one that hangs, and no other"


def write_for_tool(wire: Wire) -> None:
    first = stage_of(wire, TOPIC)
    first.find_both()
    first.create_topic()
    for name in ("committed", "aborted", "open"):
        stage = stage_of(wire, name)
        stage.init(4)
        for number, end in enumerate(ENDS[name]):
            transact(stage, number, end)


CHECKS = [
    *(Check(f"transactions for DumpLogSegments {release}", lambda r=release: run_dump(r)) for release in RELEASES),
    *(Check(f"transactions for kafka-transactions {release}", lambda r=release: run_tool(r)) for release in RELEASES),
    *(
        Check(f"open transactions of ours in Kafka {release}, {how}", lambda r=release, h=how: run_to_kafka(r, h))
        for release, how in (("3.9.1", "closed"), ("3.9.1", "killed"), ("4.3.1", "killed"), (NEWEST, "closed"))
    ),
    *(
        Check(
            f"open transactions of Kafka {release} with us, profile {profile}",
            lambda r=release, p=profile: run_from_kafka(r, p),
        )
        for release, profile in (("3.9.1", "3.9"), ("4.3.1", "ottla"))
    ),
]
