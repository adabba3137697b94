"""Clients of other languages in histories: all roles under all faults, with one node and with three. And Kafka Streams.

What they did and saw is checked as in `tests/history`. `OTTLA_HISTORY_RUNS` is the number of runs of each (2), of a
minute of faults each; a history with a violation is kept in out/.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import tempfile
from functools import partial
from pathlib import Path

from ottla_testing.history.checker import check
from ottla_testing.history.workload import (
    CLUSTER_FAULTS,
    GROUP_FAULTS,
    Client,
    Workload,
    applications,
    group_times,
    loops,
    members,
    next_terrain,
    sender,
    writer,
)
from ottla_testing.interop.checks import OUT, Check, Failed, Missing, jars, program

RUNS, LONG_S = int(os.environ.get("OTTLA_HISTORY_RUNS", "2")), 62.0
HUNG_S = 30  # a JVM takes seconds to start beside others
JAVA = "4.4.0"
WITH_CONSUMER_PROTOCOL = ("java",)
HERE = Path(__file__).parent


def crew(library: str) -> list[Client]:
    """Returns each role of a library; where it has both group protocols, in groups of both, and in one whose members
    change between them."""
    clients = [*sender(library), *writer(library), *members(library, 2), *sender("confluent")]
    if library not in WITH_CONSUMER_PROTOCOL:
        return [*clients, *loops(library)]
    migrating = members(library, 2, protocol="either", group=f"{library} migrating members")
    return [*clients, *loops(library, protocol="consumer"), *migrating]


def streams_crew() -> list[Client]:
    """Returns an application of Streams with each group protocol, and clients that write what they read."""
    return [*sender("confluent"), *writer("confluent"), *applications("classic"), *applications("streams")]


def java_program(name: str, artifact: str) -> str:
    """Returns the command of a class in this folder, which needs an artifact of Kafka. Raises Missing."""
    folder = jars(f"{artifact}-{JAVA}", [f"org.apache.kafka:{artifact}:{JAVA}"])
    classes = OUT / "history-java"
    source = str(HERE / f"{name}.java")
    subprocess.run([program("javac"), "-nowarn", "-cp", f"{folder}/*", "-d", str(classes), source], check=True)
    quick = "-Xmx192m -XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto"
    return f"{program('java')} {quick} -cp '{classes}:{folder}/*' {name}"


def franz_program() -> str:
    """Returns the command of the franz-go client. Raises Missing."""
    made = OUT / "history-franz"
    build = [program("go"), "build", "-o", str(made), "."]
    done = subprocess.run(build, cwd=HERE / "franz_history", capture_output=True, text=True)
    if done.returncode:
        raise Missing(f"franz-go: {done.stderr.strip()[-300:]}")
    return str(made)


PROGRAMS = {
    "java": partial(java_program, "HistoryClient", "kafka-clients"),
    "franz": franz_program,
    "streams": partial(java_program, "HistoryStreams", "kafka-streams"),
}


def run_history(library: str) -> str:
    os.environ[f"OTTLA_HISTORY_{library.upper()}"] = PROGRAMS[library]()
    sums: dict[str, int] = {}
    for number in range(RUNS):
        seed = random.randrange(1 << 32)
        nodes = 1 if number % 2 else 3
        around = next_terrain(seed)
        if library == "streams":  # earlier ones have no streams groups
            around |= group_times("streams") | {"release": random.Random(seed).choice(("", "4.3", "4.4"))}
        clients = streams_crew() if library == "streams" else crew(library)
        print(f"seed {seed}: {nodes} nodes, {around}", flush=True)
        with tempfile.TemporaryDirectory(prefix="history-") as folder:
            load = Workload(Path(folder) / "run", seed, clients, pace=0.5, hung_s=HUNG_S, nodes=nodes, **around)
            try:
                load.begin()
                load.disturb(LONG_S, GROUP_FAULTS if nodes == 1 else CLUSTER_FAULTS)
                load.finish()
            finally:
                try:
                    load.close()
                finally:
                    report = check(load.path)
                    if report.kinds or load.broken:
                        shutil.copy(load.path, OUT)
            if report.kinds or load.broken:
                raise Failed(f"seed {seed}: {report}"[:3000] + "".join(load.broken[:1]))
        for what in ("sends: ok", "transactions: committed", "crashes"):
            sums[what] = sums.get(what, 0) + report.counts[what]
    return f"{RUNS} runs, " + ", ".join(f"{name} {count}" for name, count in sums.items())


CHECKS = [
    Check(f"history with Java {JAVA} in all roles", partial(run_history, "java")),
    Check("history with franz-go in all roles", partial(run_history, "franz")),
    Check(f"history with Kafka Streams {JAVA}, exactly once", partial(run_history, "streams")),
]
