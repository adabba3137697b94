"""Runs integration tests of Apache Kafka against `ottla serve` or, with --kafka, against Kafka.

    .venv/bin/python tests/kafka_tests/run.py [--kafka] [--version V] [SUITE|CLASS|CLASS#METHOD ...]

Needs a JDK of 17 or later and Maven, which fetches the published packages of the tests into a cache. Each class runs in
a Java process of its own with a time limit; no test is run twice. Results are added to out/kafka-tests.jsonl, a line
for each test; the table of all of them is printed, and written to out/kafka-tests.json. A run with --kafka writes its
results to control/VERSION.json beside this file; with --runs, or a test named several times, also which tests passed
in some of the runs only. How the tests reach Ottla is in README.md there.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import zipfile
from pathlib import Path
from typing import Any

from ottla_testing.interop import kafka_tests

HERE = Path(__file__).resolve().parent
TOP = HERE.parents[1]
OUT = TOP / "out"
CACHE = Path(os.environ.get("OTTLA_KAFKA_TESTS_CACHE", Path.home() / ".cache" / "ottla-kafka-tests"))
CONTROL = HERE / "control"
VERSION = "4.3.1"
SUITES = {  # package of tests: the names of its classes
    "clients": ("kafka-clients-integration-tests", r"org/apache/kafka/\w+/.*Test\.class"),
    "tools": ("kafka-tools", r"org/apache/kafka/tools/.*Test\.class"),
    "requests": ("kafka_2.13", r"(unit/|integration/)?kafka/server/(\w*Request\w*|FetchFromFollower\w*)Test\.class"),
    "api": ("kafka_2.13", r"(integration/)?kafka/api/\w*Test\.class"),
    "server": ("kafka-server", r"org/apache/kafka/server/.*Test\.class"),
}
REPLACED = ("org/apache/kafka/common/test/", "kafka/", "ottla/Fakes", "ottla/Ottla")
"""Classes that a run on Kafka does not replace."""
CLASS_S, METHOD_S = 1800, 240
_writing = threading.Lock()


def packages(version: str) -> Path:
    """Returns the folder of the jars; Maven fetches them if they are missing."""
    pom = HERE / "pom.xml"
    folder = CACHE / f"{version}-{hashlib.sha256(pom.read_bytes()).hexdigest()[:12]}"
    if not (folder / "complete").exists():
        shutil.rmtree(folder, ignore_errors=True)
        command = ["mvn", "-q", "-B", "-f", str(pom), f"-Dkafka={version}", "dependency:copy-dependencies"]
        command += ["-DincludeScope=runtime", f"-DoutputDirectory={folder}"]
        fetched = subprocess.run(command, check=False, capture_output=True, text=True)
        if fetched.returncode:
            errors = [line for line in fetched.stdout.splitlines() if "ERROR" in line]
            raise SystemExit(f"kafka-tests: not run: {version} is missing: {errors[0] if errors else fetched.stderr}")
        (folder / "complete").touch()
    return folder


def compiled(version: str, jars: Path) -> tuple[Path, Path]:
    """Returns the folder of the compiled shim, and the folder of its part that also a run on Kafka needs."""
    sources = sorted((HERE / "src").rglob("*.java"))
    digest = hashlib.sha256(b"".join(one.read_bytes() for one in sources)).hexdigest()[:12]
    shim, common = (CACHE / f"{name}-{version}-{digest}" for name in ("shim", "common"))
    if not (common / "complete").exists():
        for folder in (shim, common):
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
        subprocess.run(["javac", "-nowarn", "-cp", f"{jars}/*", "-d", str(shim), *map(str, sources)], check=True)
        shutil.copytree(HERE / "resources", shim, dirs_exist_ok=True)
        shutil.copytree(shim, common, dirs_exist_ok=True)
        for one in list(common.rglob("*.class")):
            if one.relative_to(common).as_posix().startswith(REPLACED):
                one.unlink()
        (common / "complete").touch()
    return shim, common


def classes_of(suite: str, version: str, jars: Path) -> list[str]:
    """Returns the names of a suite's classes."""
    package, pattern = SUITES[suite]
    with zipfile.ZipFile(jars / f"{package}-{version}-test.jar") as jar:
        names = [one for one in jar.namelist() if "$" not in one and re.fullmatch(pattern, one)]
    return sorted({one.removesuffix(".class").replace("/", ".") for one in names})


def command_of(name: str, args: argparse.Namespace, jars: Path, first: Path, lines: Path) -> list[str]:
    """Returns the command that runs a class, or one method of it."""
    properties = {
        "ottla.results": lines,
        "ottla.command": args.command,
        "ottla.python": sys.executable,
        "ottla.serve": HERE / "serve.py",
        "ottla.release": args.release or args.version.rpartition(".")[0],
        "ottla.level": args.level,
        "ottla.twins": "skip",
        "java.io.tmpdir": lines.parent,
        "log4j2.configurationFile": HERE / "log4j2.properties",
        "junit.jupiter.execution.timeout.testable.method.default": f"{METHOD_S}s",
        "junit.jupiter.extensions.autodetection.enabled": "true",
    }
    if args.without:
        properties["ottla.without"] = args.without
    if args.record:
        properties["ottla.record"] = args.record
    # Only the second compiler makes keys fast, of which each test with TLS makes a dozen.
    compilers = [] if re.search("Ssl|DelegationToken", name) else ["-XX:TieredStopAtLevel=1"]
    return [
        *("java", "-Xmx1200m", "-XX:+EnableDynamicAgentLoading", "-XX:+UseSerialGC", *compilers),
        "--add-opens=java.security.jgss/sun.security.krb5=ALL-UNNAMED",  # the fixture of Kerberos sets it up
        *(f"-D{key}={value}" for key, value in properties.items()),
        *("-cp", f"{first}:{jars}/*", "org.junit.platform.console.ConsoleLauncher", "execute"),
        *("--select-method" if "#" in name else "--select-class", name),
        *("--details=none", "--disable-banner"),
    ]


def run_class(name: str, args: argparse.Namespace, jars: Path, first: Path) -> list[dict[str, Any]]:
    """Runs a class, keeps its results and returns them."""
    on = "kafka" if args.kafka else "ottla"
    work = CACHE / "work" / f"{name.replace('#', '-').split('(')[0]}-{time.time_ns()}"
    work.mkdir(parents=True)
    lines = work / "lines"
    log_path = args.logs / on / f"{name.replace('#', '-').split('(')[0]}.log"
    log_path.parent.mkdir(parents=True, exist_ok=True)
    begun = time.monotonic()
    with open(log_path, "wb") as log:
        command = command_of(name, args, jars, first, lines)
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, cwd=work, start_new_session=True)
        try:
            ended = f"exit {process.wait(args.limit)}"
        except subprocess.TimeoutExpired:
            ended = f"stopped after {args.limit} s"
            process.send_signal(signal.SIGQUIT)  # the log then has the stacks of all threads
            time.sleep(1)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # the process with the brokers that it started
            process.wait()
    found = [json.loads(line) for line in lines.read_text().splitlines()] if lines.exists() else []
    shutil.rmtree(work, ignore_errors=True)
    rows = ended_of(name, found, ended, round(time.monotonic() - begun, 1))
    rows = [{"version": args.version, **row} for row in rows]
    counts = kafka_tests.Counts(row["outcome"] for row in rows)
    print(f"{name}: {', '.join(f'{count} {outcome}' for outcome, count in counts.items()) or 'no tests'}", flush=True)
    with _writing:
        if not args.kafka:
            with open(args.results, "a") as file:
                file.writelines(json.dumps(row) + "\n" for row in rows)
        elif "#" not in name:
            path = CONTROL / f"{args.version}.json"
            control = kafka_tests.Control.load(path)
            control.add(rows)
            control.save(path)
    return rows


def ended_of(name: str, found: list[dict[str, Any]], ended: str, seconds: float) -> list[dict[str, Any]]:
    """Returns a row for each test: also for those that began and did not end, and one for a class without tests."""

    def key(row: dict[str, Any]) -> tuple[str, ...]:
        return row["class"], row["method"], row["name"]

    rows = [row for row in found if row["outcome"] != "started" and row["failure"] != "twin"]
    done = {key(row) for row in found if row["outcome"] != "started"}
    for row in found:
        if row["outcome"] == "started" and key(row) not in done:
            rows.append({**row, "outcome": "failed", "seconds": seconds, "failure": f"did not end: {ended}"})
    if ended.startswith("stopped") or (not found and ended != "exit 0"):  # 0: a class without tests, as a base class
        whole = {
            "class": name.partition("#")[0],
            "method": kafka_tests.WHOLE,
            "name": "",
            "seconds": seconds,
            "failure": ended,
        }
        rows.append({**whole, "outcome": "failed" if found else "missing"})
    return rows


def main() -> int:
    """Runs what the command line names. Returns the exit status."""
    parser = argparse.ArgumentParser(description="Run Apache Kafka's own integration tests against Ottla.")
    parser.add_argument("names", nargs="*", metavar="SUITE|CLASS|CLASS#METHOD", help=f"suites: {', '.join(SUITES)}")
    parser.add_argument(
        "--kafka", action="store_true", help="run them on Kafka, with its own fixtures: the control run"
    )
    parser.add_argument("--version", default=VERSION, help=f"of the packages (default: {VERSION})")
    parser.add_argument("--release", help="of Ottla's behaviour (default: that of the packages)")
    parser.add_argument("--skip", help="no classes with these names (a regular expression)")
    parser.add_argument("--without", help="no tests with these display names (a regular expression)")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--runs", type=int, default=1, help="run all of them so often, and print what differs")
    parser.add_argument("--limit", type=int, default=CLASS_S, help=f"seconds for a class (default: {CLASS_S})")
    parser.add_argument("--results", type=Path, default=OUT / "kafka-tests.jsonl")
    parser.add_argument("--logs", type=Path, default=OUT / "kafka-tests-logs", help="the output of each class")
    parser.add_argument("--command", default=str(TOP / ".venv" / "bin" / "ottla"))
    parser.add_argument("--level", default="WARN", help="of the log of Kafka's classes")
    parser.add_argument("--record", metavar="PREFIX", help="record the requests of each broker to PREFIX-*.jsonl")
    parser.add_argument("--list", action="store_true", help="only print the names of the classes")
    parser.add_argument("--table", action="store_true", help="only print the table of earlier results")
    parser.add_argument("--page", type=Path, help="also write the table to this file, in Markdown")
    args = parser.parse_args()
    missing = [name for name in ("java", "javac", "mvn") if shutil.which(name) is None]
    if missing and not args.table:
        print(f"kafka-tests: not run: {', '.join(missing)} missing", file=sys.stderr)
        return 1
    differing: list[str] = []
    if not args.table:
        jars = packages(args.version)
        shim, common = compiled(args.version, jars)
        wanted = args.names or list(SUITES)
        names = [one for name in wanted for one in (classes_of(name, args.version, jars) if name in SUITES else [name])]
        names = [one for one in names if not args.skip or not re.search(args.skip, one)]
        if args.list:
            print("\n".join(names))
            return 0
        args.results.parent.mkdir(parents=True, exist_ok=True)
        earlier = OUT / "kafka-tests.jsonl"
        names = kafka_tests.longest_first(names, kafka_tests.read(earlier) if earlier.exists() else [])
        first = common if args.kafka else shim
        runs: list[list[dict[str, Any]]] = []
        with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
            for _ in range(args.runs):
                rows = pool.map(lambda name: run_class(name, args, jars, first), names)
                runs.append([row for some in rows for row in some])
        controls = {path.stem: kafka_tests.Control.load(path) for path in CONTROL.glob("*.json")}
        differing, there_too = kafka_tests.differing(runs, controls)
        if args.runs > 1:
            print(f"{args.runs} runs, {len(differing)} tests with different outcomes", *differing, sep="\n")
            print(f"{len(there_too)} with different outcomes here and on Kafka", *there_too, sep="\n")
        if args.kafka:
            control = controls.get(args.version) or kafka_tests.Control({})
            control.note_unstable(row for rows in runs for row in rows)
            control.save(CONTROL / f"{args.version}.json")
    if args.kafka:
        return 0
    controls = {path.stem: kafka_tests.Control.load(path) for path in CONTROL.glob("*.json")}
    table = kafka_tests.table(kafka_tests.read(args.results), controls)
    if args.page:
        args.page.write_text(kafka_tests.markdown(table))
    OUT.mkdir(exist_ok=True)
    (OUT / "kafka-tests.json").write_text(json.dumps(table, indent=1) + "\n")
    print(kafka_tests.text(table))
    return int(bool(differing) or any(row["failed"] for row in table["suites"]))


if __name__ == "__main__":
    sys.exit(main())
