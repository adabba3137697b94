"""The admin clients of kafkajs and franz-go on a broker of ours and on Apache Kafka of the same release: the same calls
in the same order, the same results and errors.

admin.js and franz_admin/ make the calls and print a line for each. Values of one broker alone are replaced.
"""

from __future__ import annotations

import difflib
import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path

from kafka_tools import in_order
from side_by_side import both

from ottla_testing.interop.checks import OUT, Check, Failed, Missing, program
from ottla_testing.old_environment import NODE_MODULES, install_kafkajs

HERE = Path(__file__).parent
RELEASES = ("2.8", "3.9", "4.3")
PATIENCE_SECONDS = 200
ALIKE = (
    (r"127\.0\.0\.1:\d+", "ADDRESS"),
    (r"(\"port\":|Port=)\d+", r"\g<1>0"),
    (r"\"clusterId\":\"[\w-]{22}\"", '"clusterId":"ID"'),
    (r"Cluster=[\w-]{22}", "Cluster=ID"),
    (r"(ID=|TopicID=)\[[\d ]+\]", r"\1[ID]"),
    (r"(\"throttleTime(Ms)?\":)\d+", r"\g<1>0"),
)


def franz_go() -> list[str]:
    """Builds the program. Raises Missing."""
    folder = OUT / "franz-go-admin"
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("main.go", "go.mod", "go.sum"):
        shutil.copyfile(HERE / "franz_admin" / name, folder / name)
    done = subprocess.run([program("go"), "build", "-o", "admin", "."], cwd=folder, capture_output=True, text=True)
    if done.returncode:
        raise Missing(f"franz-go: {done.stderr.strip()[-300:]}")
    return [str(folder / "admin")]


def kafkajs() -> list[str]:
    """Raises Missing."""
    if missing := install_kafkajs():
        raise Missing(f"kafkajs: {missing}")
    return [program("node"), str(HERE / "admin.js")]


COMMANDS: dict[str, Callable[[], list[str]]] = {"kafkajs": kafkajs, "franz-go": franz_go}


def output_lines(command: list[str], address: str) -> list[str]:
    """Returns the lines that a client prints, without values of one broker alone."""
    environment = {**os.environ, "NODE_PATH": str(NODE_MODULES)}
    done = subprocess.run(
        [*command, address], capture_output=True, text=True, timeout=PATIENCE_SECONDS, env=environment
    )
    if done.returncode:
        raise Failed(f"{command[0]} failed: {done.stderr[-800:]}")
    lines = []
    for line in done.stdout.splitlines():
        for pattern, stands in ALIKE:
            line = re.sub(pattern, stands, line)
        lines.append(in_order(line) if line[0] == "{" else line)  # kafkajs leaves what it gets in its order
    return lines


def compare(client: str, release: str) -> str:
    command = COMMANDS[client]()
    with both(release) as pair:
        theirs, ours = (output_lines(command, side.address) for side in (pair.theirs, pair.ours))
    if client == "kafkajs":
        calls = {json.loads(line)["call"] for line in ours[:-1]}
        if uncalled := set(json.loads(ours[-1])["methods"]) - calls:
            raise Failed(f"methods that are not called: {sorted(uncalled)}")
    if theirs != ours:
        raise Failed("\n".join(difflib.unified_diff(theirs, ours, "Apache Kafka", "Ottla", n=0, lineterm="")))
    return f"{len(ours)} calls with the same results"


CHECKS = [
    Check(f"admin client of {client}, release {release}", partial(compare, client, release))
    for client in COMMANDS
    for release in RELEASES
]
