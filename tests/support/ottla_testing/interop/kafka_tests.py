"""The results of `run.py`: one outcome for each test, why a test does not count, and the table of all suites.

A test that fails on Ottla is `failed` unless REASONS explains it: it needs an object in the Java process of Kafka
(`internals`), a feature that is not built yet, or something that Ottla does not have, by a page of the documents. A
test that fails in the run on Kafka does not count either. A reason is found in the name of a test or in its failure,
never in a list of tests that happen to fail.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping
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


FAILS_ON_KAFKA = "fails on Kafka"
REASONS = (  # the first that matches
    Reason("KIP-932", r"Share(?!d)|share group|SHARE_"),
    Reason(
        "KIP-1071",
        r"groupProtocol=streams|STREAMS protocol|useNewProtocol=true|streamsProtocolEnabled=true"
        r"|RebalanceProtocolEnabled=true|Streams app did not reach|StreamsGroup|StreamsProtocol|STREAMS_GROUP"
        r"|streams rebalance protocol|StreamsRebalance|without.*streams",
    ),
    Reason(
        "KIP-848",
        r"Re2[jJ]|ListConsumerGroupTest.*ConsumerProtocol|AsyncConsumerMulti|FetchOffsetWithRecreatedTopic"
        r"|CommittedOffsetsDeletedWhenTopicDeleted|new CONSUMER group protocol|CONSUMER_GROUP_(HEARTBEAT|DESCRIBE)"
        r"|NewConsumerGroupProtocol|\.test\w*Async(?!Commit|Send|hronous)|groupProtocol=consumer"
        r"|[cC]onsumerGroup(Heartbeat|Describe)|GroupProtocolConsumer|ConsumerProtocolMigration|GroupMemberWithMigration"
        r"|group\.protocol=consumer",
    ),
    Reason(
        "plug-ins",
        r"KraftTestAuthorizer|WithPolic|Policies|RackAwareAssignment|TelemetryIntegration|TestPrincipalBuilder"
        r"|Class \S+ could not be found",
        "reference/limits.md",
    ),
    Reason(
        "security",
        r"SaslHandshake|(SASL|SSL)\W|only PLAINTEXT is served|listener .* speaks S|TasksFailOnInabilityToFence",
    ),
    Reason("tiered storage", r"Tiered|EarliestLocal|RemoteLog|[rR]emote (log|storage)", "reference/limits.md"),
    Reason(
        "internals",
        r"NeedsInternals|Thread leak detected: Http|unexpected threads during|getMemoryPoolAvailable"
        r"|Unable to find metric|NoClassDefFound|CONTROLLER:PLAINTEXT> but was",
    ),
    Reason(
        "feature levels",
        r"FeatureCommandTest|eligible\.leader\.replicas|metadata\.version|MetadataVersionIntegration"
        r"|testMetadataVersionTooLow|FeatureNotEnabled",
    ),
)


COLUMNS = (
    *("tests", "passed on Kafka", "passed", "failed", "missing", "skipped", FAILS_ON_KAFKA),
    *(one.name for one in REASONS),
)
Key = tuple[str, ...]


def key_of(row: Row) -> Key:
    """Returns what names a test, in a run on Kafka and here."""
    name = re.sub(r"\d{10,}|MetadataVersion.*", "", row["name"])  # times and lists in names differ with each run
    return row["version"], row["class"], row["method"], name


def read(path: Path) -> tuple[dict[Key, Row], dict[Key, Row]]:
    """Returns the newest result of each test here, and on Kafka."""
    here: dict[Key, Row] = {}
    on_kafka: dict[Key, Row] = {}
    for line in path.read_text().splitlines():
        row = json.loads(line)
        (on_kafka if row["on"] == "kafka" else here)[key_of(row)] = row
    return here, on_kafka


def suite_of(name: str) -> str:
    """Returns the suite of a class."""
    name = re.sub(r"^(unit|integration)\.", "", name)
    for prefix, suite in (("org.apache.kafka.tools.", "tools"), ("org.apache.kafka.server.", "server")):
        if name.startswith(prefix):
            return suite
    return {"kafka.server": "requests", "kafka.api": "api"}.get(name.rpartition(".")[0], "clients")


def kind_of(row: Row, control: Row | None) -> str:
    """Returns the column that counts a test: its outcome, or why a failure does not count."""
    outcome: str = row["outcome"]
    if outcome != "failed":
        return outcome
    text = f"{row['class']}.{row['method']} {row['name']} {row['failure']}"
    found = next((one.name for one in REASONS if re.search(one.pattern, text)), None)
    if found is None and control is not None and control["outcome"] != "passed":
        return FAILS_ON_KAFKA
    return found or outcome


def table(here: Mapping[Key, Row], on_kafka: Mapping[Key, Row]) -> dict[str, Any]:
    """Returns the counts of each suite: tests, passed on Kafka and here, the others by reason; and the tests that
    failed."""
    suites: dict[str, Counts] = {}
    failed: list[dict[str, Any]] = []
    for key, row in here.items():
        counts = suites.setdefault(f"{suite_of(row['class'])} {row['version']}", Counts())
        control = on_kafka.get(key)
        kind = kind_of(row, control)
        counts["tests"] += 1
        counts["passed on Kafka"] += control is not None and control["outcome"] == "passed"
        counts[kind] += 1
        if kind in ("failed", "missing"):
            failed.append({name: row[name] for name in ("class", "method", "name", "seconds", "failure")})
    return {
        "suites": [
            {"suite": suite} | {name: counts[name] for name in COLUMNS} for suite, counts in sorted(suites.items())
        ],
        "failed": sorted(failed, key=lambda row: (row["class"], row["method"], row["name"])),
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
