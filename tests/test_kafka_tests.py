"""The table of Apache Kafka's own tests: which failures count."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ottla_testing.interop.kafka_tests import Key, Row, kind_of, markdown, read, suite_of, table, text


def row(outcome: str, failure: str | None = None, *, on: str = "ottla", **more: Any) -> Row:
    names = {"class": "kafka.server.FetchRequestTest", "method": "testOne", "name": "testOne()"}
    return {"on": on, "version": "4.3.1", **names, "outcome": outcome, "seconds": 1.0, "failure": failure, **more}


@pytest.mark.parametrize(
    ("found", "control", "kind"),
    [
        (row("passed"), None, "passed"),
        (row("failed", "expected: <0> but was: <6>"), None, "failed"),
        (row("failed", "expected: <0> but was: <6>"), row("passed"), "failed"),
        (row("failed", "expected: <0> but was: <6>"), row("failed"), "fails on Kafka"),
        (row("failed", "ottla.NeedsInternals: KafkaApis.x"), row("passed"), "internals"),
        (row("failed", "x", name="testOne.groupProtocol=consumer"), row("failed"), "KIP-848"),
        (row("failed", "ottla.DidNotStart: listener EXTERNAL has the protocol SASL_SSL: no"), None, "security"),
        (row("missing", "exit 255"), None, "missing"),
        (row("skipped", "without"), None, "skipped"),
    ],
)
def test_failures_that_count(found: Row, control: Row | None, kind: str) -> None:
    assert kind_of(found, control) == kind


@pytest.mark.parametrize(
    ("name", "suite"),
    [
        ("org.apache.kafka.clients.consumer.PlaintextConsumerTest", "clients"),
        ("org.apache.kafka.tools.TopicCommandTest", "tools"),
        ("org.apache.kafka.server.quota.CustomQuotaCallbackTest", "server"),
        ("unit.kafka.server.DescribeClusterRequestTest", "requests"),
        ("integration.kafka.api.TransactionsTest", "api"),
    ],
)
def test_suites_of_classes(name: str, suite: str) -> None:
    assert suite_of(name) == suite


def test_newest_results_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    lines = [
        row("failed", "first run"),
        row("passed"),
        row("failed", "why", method="testTwo", name="testTwo at 1795549501472"),
        row("failed", "why now", method="testTwo", name="testTwo at 1795549509999"),
        row("passed", on="kafka", method="testTwo", name="testTwo at 1"),
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    here, on_kafka = read(path)
    assert [len(here), len(on_kafka)] == [2, 1]
    found = table(here, on_kafka)
    (suite,) = found["suites"]
    assert {name: count for name, count in suite.items() if count} == {
        **{"suite": "requests 4.3.1", "tests": 2, "passed": 1, "failed": 1}
    }
    assert "failed: FetchRequestTest.testTwo 1.0 s: why now" in text(found)
    assert markdown(found).splitlines()[2].startswith("| requests 4.3.1 | 2 | 0 | 1 | 1 |")


def test_tests_that_pass_on_kafka_are_counted() -> None:
    key: Key = ("4.3.1", "kafka.server.FetchRequestTest", "testOne", "testOne()")
    (suite,) = table({key: row("failed", "x")}, {key: row("passed", on="kafka")})["suites"]
    assert (suite["passed on Kafka"], suite["failed"]) == (1, 1)
