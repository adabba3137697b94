"""The results of `run.py`: one outcome for each test, why a test does not count, and the table of all suites.

The results on Kafka are kept in a file for each version (`Control`), since they do not change.

A test that fails on Ottla is `failed` unless REASONS explains it: it needs an object in the Java process of Kafka
(`internals`), a feature that is not built yet, or something that Ottla does not have, by a page of the documents. A
test that fails in the run on Kafka, or in some of several runs there, does not count either. A reason is found in a
failure. Where the failure does not show it, the pattern has the name of the test, under a comment with the cause.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

Counts = Counter[str]
Row = Mapping[str, Any]


class Reason(NamedTuple):
    """Why a failed test does not count: `pattern` is searched in "class.method name failure"; `page` is the document on
    what is out of scope."""

    name: str
    pattern: str
    page: str = ""


WHOLE = "(class)"  # in place of a method
FAILS_ON_KAFKA = "fails on Kafka"
UNSTABLE = "unstable"
"""The outcome on Kafka of a test that passed in some runs and failed in others."""
NO_BROKER = "no broker"
REASONS = (  # the first that matches
    Reason(
        "plug-ins",
        r"KraftTestAuthorizer|CustomQuotaCallback|ScramCredentialsRequestNotAuthorized|WithPolic|Policies|RackAwareAssignment|TelemetryIntegration"
        r"|Class \S+ could not be found",
        "reference/limits.md",
    ),
    Reason("tiered storage", r"Tiered|EarliestLocal|RemoteLog|[rR]emote (log|storage)", "reference/limits.md"),
    Reason(
        "controller quorum",
        r"MetadataQuorumCommandTest|DescribeQuorumRequestTest|a controller's listener|Local controller 3000"
        r"|ReconfigurableQuorum|DescribeMetadataQuorum|DescribeQuorumRequestToBrokers|KRaftVersion|testUpgradeWithReleaseVersion"
        # a controller's response by other configs than a broker's, snapshots in the directory of a controller
        r"|DescribeFeaturesTest.testUnstableApiVersions|KRaftClusterTest.testSnapshotCount",
        "reference/limits.md",
    ),
    Reason(
        "one log store",
        # configs and log directories of one broker; a record of one broker is there when another one leads
        r"cannot differ between nodes|config propagating to broker|AdminIntegrationTest.testAlterReplicaLogDirs"
        r"|CordonedLogDirsIntegrationTest.testDecommissionBroker|ClientRebootstrapTest.testProducerRebootstrap "
        # a broker that loses its own files
        r"|WhenUncleanShutdown|LastKnownLeaderShouldBeElectedIfEmptyElr",
        "reference/limits.md",
    ),
    Reason(
        "internals",
        r"NeedsInternals|Thread leak detected: Http|unexpected threads during|getMemoryPoolAvailable"
        r"|Unable to find (broker )?metric|metric not found @lambda.verifyYammer|NoClassDefFound"
        r"|DescribeConfigsForLog4jLogLevels.*clusterReplica|@blockedRequestThreads"
        # metrics of the process of the test
        r"|ProduceRequestTest.testCorruptLz4"
        # Absent, as the objects of its brokers have it, is a topic whose creation it does not await.
        r"|ProducerFailureHandlingTest.testCannotSendToInternalTopic"
        # loggers of the process of the test
        r"|KRaftClusterTest.testSetLog4jConfigurations",
    ),
)


COLUMNS = (
    *("tests", "passed on Kafka", "passed", "failed", "missing", "skipped", FAILS_ON_KAFKA, NO_BROKER),
    *(one.name for one in REASONS),
)
Key = tuple[str, ...]


def _plain(name: str) -> str:
    """Returns a name without what differs with each run: times, lists, and which of two equal tests is the first."""
    return re.sub(r"\d{10,}|MetadataVersion.*|(?<=Type=Raft)-(Combined|Isolated)", "", name)


def key_of(row: Row) -> Key:
    """Returns what names a test, in a run on Kafka and here."""
    return row["version"], row["class"], row["method"], _plain(row["name"])


class Control:
    """The results on one version of Kafka: for each class the number of tests that passed, and the outcomes of the
    others by method and name; of tests that were run often, how many runs of how many failed, if some passed."""

    def __init__(self, classes: dict[str, dict[str, Any]]) -> None:
        self.classes = classes

    @classmethod
    def load(cls, path: Path) -> Control:
        """Reads a file that `save` wrote; one that does not exist has no results."""
        classes = json.loads(path.read_text()) if path.exists() else {}
        for found in classes.values():
            for kind in found.keys() - {"passed"}:
                found[kind] = {_plain(test): of for test, of in found[kind].items()}
        return cls(classes)

    def save(self, path: Path) -> None:
        """Writes the file, a line for each class, and makes its folder if needed."""
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = (f"{json.dumps(name)}: {json.dumps(self.classes[name])}" for name in sorted(self.classes))
        path.write_text("{\n" + ",\n".join(lines) + "\n}\n")

    def add(self, rows: Iterable[Row]) -> None:
        """Adds the results of whole classes; they replace older ones of the same classes."""
        outcomes: dict[str, dict[str, str]] = {}
        for row in rows:
            _, kind, method, name = key_of(row)
            outcomes.setdefault(kind, {})[f"{method} {name}"] = row["outcome"]
        for kind, tests in outcomes.items():
            others = {test: outcome for test, outcome in sorted(tests.items()) if outcome != "passed"}
            of = self.classes.setdefault(kind, {})
            of |= {"passed": len(tests) - len(others), "others": others}

    def note_unstable(self, rows: Iterable[Row]) -> None:
        """Notes those of these tests, each of which has several results, that passed and failed."""
        outcomes: dict[tuple[str, str], list[str]] = {}
        for row in rows:
            _, kind, method, name = key_of(row)
            outcomes.setdefault((kind, f"{method} {name}"), []).append(row["outcome"])
        for (kind, test), found in outcomes.items():
            if {"passed", "failed"} <= set(found):
                of = self.classes.setdefault(kind, {"passed": 0, "others": {}})
                of.setdefault(UNSTABLE, {})[test] = [found.count("failed"), len(found)]

    def outcome(self, row: Row) -> str | None:
        """Returns the outcome of a test on Kafka; None if its class did not run there."""
        _, kind, method, name = key_of(row)
        found = self.classes.get(kind)
        if found is None:
            return None
        test = f"{method} {name}"
        return UNSTABLE if test in found.get(UNSTABLE, {}) else found["others"].get(test, "passed")


def read(path: Path) -> list[Row]:
    """Returns the newest result of each test, and of each class that failed as a whole and had no results since."""
    found: dict[Key, Row] = {}
    whole: dict[Key, Key] = {}
    for row in map(json.loads, path.read_text().splitlines()):
        key = key_of(row)
        if row["method"] == WHOLE:
            whole[key[:2]] = key
        elif earlier := whole.pop(key[:2], None):
            del found[earlier]
        found[key] = row
    return list(found.values())


def longest_first(names: Iterable[str], rows: Iterable[Row]) -> list[str]:
    """Returns the names of classes in the order of their time in earlier results, the longest first. A long class that
    began last would run alone at the end."""
    seconds: Counts = Counter()
    for row in rows:
        seconds[row["class"]] += row["seconds"] or 0
    return sorted(names, key=lambda name: seconds[name], reverse=True)


def differing(runs: Iterable[Iterable[Row]], controls: Mapping[str, Control]) -> tuple[list[str], list[str]]:
    """Returns a line for each test whose outcome is not that of all runs; "-" where a run has no such test. Those that
    have no outcome of their own on Kafka either come second."""
    runs = [list(rows) for rows in runs]
    found = [{key_of(row): row["outcome"] for row in rows} for rows in runs]
    unstable = {
        key_of(row)
        for rows in runs
        for row in rows
        if (control := controls.get(row["version"])) is not None and control.outcome(row) == UNSTABLE
    }
    lines: list[str] = []
    there_too: list[str] = []
    for key in sorted({key for outcomes in found for key in outcomes}):
        outcomes = [one.get(key, "-") for one in found]
        if len(set(outcomes)) > 1:
            (there_too if key in unstable else lines).append(f"{key[1]}.{key[2]} {key[3]}: {', '.join(outcomes)}")
    return lines, there_too


def suite_of(name: str) -> str:
    """Returns the suite of a class."""
    name = re.sub(r"^(unit|integration)\.", "", name)
    for prefix, suite in (("org.apache.kafka.tools.", "tools"), ("org.apache.kafka.server.", "server")):
        if name.startswith(prefix):
            return suite
    return {"kafka.server": "requests", "kafka.api": "api"}.get(name.rpartition(".")[0], "clients")


def kind_of(row: Row, on_kafka: str | None) -> str:
    """Returns the column that counts a test, with its outcome on Kafka: its own outcome, or why it does not count."""
    outcome: str = row["outcome"]
    if outcome == "passed" and not row.get("broker", True):
        return NO_BROKER
    if outcome != "failed":
        return outcome
    text = f"{row['class']}.{row['method']} {row['name']} {row['failure']}"
    found = next((one.name for one in REASONS if re.search(one.pattern, text)), None)
    if found is None and on_kafka not in (None, "passed"):
        return FAILS_ON_KAFKA
    return found or outcome


def table(rows: Iterable[Row], controls: Mapping[str, Control]) -> dict[str, Any]:
    """Returns the counts of each suite: tests, passed on Kafka (whose results are given by version) and here, the
    others by reason; the tests that failed, and the names of those that do not count, by reason."""
    suites: dict[str, Counts] = {}
    failed: list[dict[str, Any]] = []
    excluded: dict[str, list[str]] = {one.name: [] for one in REASONS}
    for row in rows:
        counts = suites.setdefault(f"{suite_of(row['class'])} {row['version']}", Counts())
        control = controls.get(row["version"])
        on_kafka = None if control is None else control.outcome(row)
        kind = kind_of(row, on_kafka)
        counts["tests"] += 1
        counts["passed on Kafka"] += on_kafka == "passed" and kind != NO_BROKER
        counts[kind] += 1
        if kind in excluded:
            excluded[kind].append(f"{row['class']}.{row['method']} {_plain(row['name'])}")
        if kind in ("failed", "missing"):
            failed.append({name: row[name] for name in ("class", "method", "name", "seconds", "failure")})
    return {
        "suites": [
            {"suite": suite} | {name: counts[name] for name in COLUMNS} for suite, counts in sorted(suites.items())
        ],
        "failed": sorted(failed, key=lambda row: (row["class"], row["method"], row["name"])),
        "excluded": {name: sorted(tests) for name, tests in excluded.items()},
    }


def _lines(table: Mapping[str, Any]) -> list[list[str]]:
    """Returns the rows of the table as texts, the names of the columns first and the sums last."""
    suites = table["suites"]
    sums = {"suite": "all"} | {name: sum(row[name] for row in suites) for name in COLUMNS}
    return [["suite", *COLUMNS], *([str(row[name]) for name in ("suite", *COLUMNS)] for row in (*suites, sums))]


def text(table: Mapping[str, Any]) -> str:
    """Returns the table and the tests that failed as text."""
    lines = _lines(table)
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    out = ["  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)) for line in lines]
    for row in table["failed"]:
        kind = row["class"].rpartition(".")[2]
        name = "" if row["name"].startswith(row["method"]) else f" {row['name']}"
        out.append(f"failed: {kind}.{row['method']}{name} {row['seconds']} s: {(row['failure'] or '')[:400]}")
    return "\n".join(out)


def markdown(table: Mapping[str, Any]) -> str:
    """Returns the table for the documents."""
    head, *lines = _lines(table)
    rows = [head, ["---", *("---:" for _ in COLUMNS)], *lines]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows) + "\n"
