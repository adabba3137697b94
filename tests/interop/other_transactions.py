"""Transactions of clients that neither Apache nor we wrote: franz-go and kafkajs, killed as the broker is.

Each copies one topic to another and aborts every third of its transactions: the output is the input, once and in order.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from pathlib import Path

from java_transactions import create, read, running, write

from ottla_testing.interop.checks import OUT, Check, Failed, Missing, program
from ottla_testing.old_environment import NODE_MODULES, install_kafkajs

HERE = Path(__file__).parent
RECORDS = 9000
KILLS = ("copier", "broker", "copier")
RESTARTS = 3  # of a client that gives up when its broker goes
PATIENCE_SECONDS = 90
RUNS = (("franz-go", "3.9"), ("franz-go", "4.3"), ("kafkajs", "ottla"), ("kafkajs", "4.3"))


def franz_go() -> list[str]:
    """Builds the program. Raises Missing."""
    folder = OUT / "franz-go"
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("main.go", "go.mod", "go.sum"):
        shutil.copyfile(HERE / "franz" / name, folder / name)
    build = [program("go"), "build", "-o", "copier", "."]
    done = subprocess.run(build, cwd=folder, capture_output=True, text=True)
    if done.returncode:
        raise Missing(f"franz-go: {done.stderr.strip()[-300:]}")
    return [str(folder / "copier")]


def kafkajs() -> list[str]:
    """Raises Missing."""
    if missing := install_kafkajs():
        raise Missing(f"kafkajs: {missing}")
    return [program("node"), str(HERE / "transactions.js")]


COMMANDS = {"franz-go": franz_go, "kafkajs": kafkajs}


class Copier:
    """A client at work as a process; `given_up` counts how often it was started again as it had ended by itself."""

    def __init__(self, command: list[str], address: str, log: Path) -> None:
        self.command = [*command, address, "copier", str(RECORDS)]
        self.log = log
        self.given_up = 0
        self.start()

    def start(self) -> None:
        environ = {**os.environ, "NODE_PATH": str(NODE_MODULES), "KAFKAJS_NO_PARTITIONER_WARNING": "1"}
        with self.log.open("a") as sink:
            self.process = subprocess.Popen(self.command, stdout=subprocess.PIPE, stderr=sink, text=True, env=environ)

    def lines(self, count: int | None) -> bool:
        """Reads so many lines, one for each transaction, or all; whether so many came before its work was done."""
        while count is None or count > 0:
            assert self.process.stdout
            if self.process.stdout.readline():
                count = count and count - 1
                continue
            if self.process.wait(PATIENCE_SECONDS) == 0:
                return count is None
            self.given_up += 1
            if self.given_up > RESTARTS:
                raise Failed(f"it ended {self.given_up} times; {self.log.read_text()[-1500:]}")
            self.start()
        return True

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


def run(client: str, profile: str) -> str:
    command = COMMANDS[client]()
    values = [b"value %d" % number for number in range(RECORDS)]
    made = random.Random(client + profile)
    done = []
    with running(profile) as broker:
        create(broker.address, "in", "out")
        write(broker.address, "in", values)
        copier = Copier(command, broker.address, broker.log.with_name("copier.log"))
        try:
            for victim in KILLS:
                if not copier.lines(made.randint(10, 40)):
                    break
                if victim == "broker":
                    broker.restart("kill")
                else:
                    copier.kill()
                    copier.start()
                done.append(victim)
            copier.lines(None)
        finally:
            copier.kill()
        found = read(broker.address, "out")
        if found != values:
            twice = len(found) - len(set(found))
            raise Failed(f"{len(found)} of {RECORDS} records in the output, {twice} twice, killed: {done}")
        stored = sum(header.record_count for header in broker.stored("out") if not header.is_control)
    if done != list(KILLS):
        raise Failed(f"it was done before all were killed: {done}")
    gave_up = f", and it gave up {copier.given_up} times itself" if copier.given_up else ""
    return f"{RECORDS} records, each once and in order; {stored} written, killed: {', '.join(done)}{gave_up}"


CHECKS = [
    Check(f"{client} transactions, profile {profile}", lambda c=client, p=profile: run(c, p))
    for client, profile in RUNS
]
