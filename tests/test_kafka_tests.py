"""The table of Apache Kafka's own tests: which failures count."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ottla_testing.interop.kafka_tests import (
    Control,
    Row,
    differing,
    kind_of,
    longest_first,
    markdown,
    read,
    suite_of,
    table,
    text,
)


def row(outcome: str, failure: str | None = None, **more: Any) -> Row:
    names = {"class": "kafka.server.FetchRequestTest", "method": "testOne", "name": "testOne()"}
    return {"version": "4.3.1", **names, "outcome": outcome, "seconds": 1.0, "failure": failure, **more}


@pytest.mark.parametrize(
    ("found", "on_kafka", "kind"),
    [
        (row("passed"), None, "passed"),
        (row("passed", broker=True), None, "passed"),
        (row("passed", broker=False), None, "no broker"),
        (row("failed", "x", broker=False), None, "failed"),
        (row("failed", "expected: <0> but was: <6>"), None, "failed"),
        (row("failed", "expected: <0> but was: <6>"), "passed", "failed"),
        (row("failed", "expected: <0> but was: <6>"), "failed", "fails on Kafka"),
        (row("failed", "ottla.NeedsInternals: KafkaApis.x"), "passed", "internals"),
        (row("failed", "x", name="testOne.groupProtocol=streams"), "passed", "failed"),
        (row("failed", "ottla.DidNotStart: the SASL mechanism DIGEST is not served, but PLAIN"), None, "failed"),
        (row("failed", "SslAuthenticationException: SSL handshake failed"), "passed", "failed"),
        (row("missing", "exit 255"), None, "missing"),
        (row("skipped", "without"), None, "skipped"),
    ],
)
def test_failures_that_count(found: Row, on_kafka: str | None, kind: str) -> None:
    assert kind_of(found, on_kafka) == kind


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
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    found = table(read(path), {})
    (suite,) = found["suites"]
    assert {name: count for name, count in suite.items() if count} == {
        **{"suite": "requests 4.3.1", "tests": 2, "passed": 1, "failed": 1}
    }
    assert "failed: FetchRequestTest.testTwo 1.0 s: why now" in text(found)
    assert markdown(found).splitlines()[2].startswith("| requests 4.3.1 | 2 | 0 | 1 | 1 |")


def test_class_that_failed_as_a_whole_counts_until_it_runs_again(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    lines = [row("passed"), row("failed", "stopped after 900 s", method="(class)", name="")]
    for count, more in ((1, []), (0, [row("passed")])):
        lines += more
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        assert table(read(path), {})["suites"][0]["failed"] == count


def test_tests_that_differ_between_runs_are_named() -> None:
    one, two = row("passed"), row("passed", method="testTwo", name="testTwo at 1795549501472")
    same = [one, {**two, "name": "testTwo at 1795549509999"}]
    none: tuple[list[str], list[str]] = ([], [])
    assert differing([], {}) == differing([[one, two]], {}) == differing([[one, two], same], {}) == none
    first = "kafka.server.FetchRequestTest.testOne testOne(): passed, failed"
    second = "kafka.server.FetchRequestTest.testTwo testTwo at : passed, -"
    runs = [[one, two], [row("failed", "why")]]
    assert differing(runs, {}) == ([first, second], [])
    control = Control({})
    control.note_unstable([one, row("failed", "why"), two, two])
    assert differing(runs, {"4.3.1": control}) == ([second], [first])


def test_tests_that_do_not_count_are_named() -> None:
    found = table([row("passed"), row("failed", "ottla.NeedsInternals: x", method="testTwo")], {})["excluded"]
    assert {name: tests for name, tests in found.items() if tests} == {
        "internals": ["kafka.server.FetchRequestTest.testTwo testOne()"]
    }


def test_either_of_two_equal_tests_may_run() -> None:
    runs = [
        [row("passed", name=f"testOne [1] Type=Raft-{kind}, MetadataVersion=4.3")] for kind in ("Combined", "Isolated")
    ]
    assert differing(runs, {}) == ([], [])


def test_the_classes_that_took_longest_begin_first() -> None:
    two = {"class": "kafka.api.OtherTest"}
    rows = [row("passed"), row("passed", **two), row("failed", method="testTwo", seconds=None)]
    rows.append(row("passed", method="testThree", **two))
    names = ["kafka.api.NewTest", "kafka.server.FetchRequestTest", "kafka.api.OtherTest", "kafka.api.SecondTest"]
    assert longest_first(names, rows) == [
        *("kafka.api.OtherTest", "kafka.server.FetchRequestTest", "kafka.api.NewTest", "kafka.api.SecondTest")
    ]


def test_results_on_kafka_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "control" / "4.3.1.json"
    control = Control.load(path)
    two = {"method": "testTwo", "name": "testTwo at 1795549501472"}
    control.add([row("passed"), row("failed", "why", **two), row("passed", **{"class": "kafka.api.OtherTest"})])
    control.add([row("failed", "why", **{"class": "kafka.api.OtherTest"})])
    control.save(path)
    kept = Control.load(path)
    assert kept.classes["kafka.server.FetchRequestTest"] == {"passed": 1, "others": {"testTwo testTwo at ": "failed"}}
    assert kept.outcome(row("failed")) == "passed"
    assert kept.outcome(row("failed", **two)) == "failed"
    assert kept.outcome(row("failed", **{"class": "kafka.api.OtherTest"})) == "failed"
    assert kept.outcome(row("failed", **{"class": "kafka.api.UnknownTest"})) is None


def test_tests_that_pass_and_fail_on_kafka_do_not_count(tmp_path: Path) -> None:
    path = tmp_path / "4.3.1.json"
    control = Control({})
    control.note_unstable([row("passed"), row("failed", "why"), row("passed"), row("passed", method="testTwo")])
    control.add([row("passed"), row("passed", method="testTwo")])
    control.save(path)
    kept = Control.load(path)
    assert kept.classes["kafka.server.FetchRequestTest"] == {
        **{"passed": 2, "others": {}, "unstable": {"testOne testOne()": [1, 3]}}
    }
    assert (kept.outcome(row("passed")), kept.outcome(row("passed", method="testTwo"))) == ("unstable", "passed")
    (suite,) = table([row("failed", "why"), row("passed", method="testTwo")], {"4.3.1": kept})["suites"]
    assert (suite["passed on Kafka"], suite["failed"], suite["fails on Kafka"]) == (1, 0, 1)


def test_tests_that_pass_on_kafka_are_counted() -> None:
    control = Control({})
    control.add([row("passed"), row("failed", method="testTwo")])
    rows = [row("failed", "x"), row("failed", "y", method="testTwo"), row("passed", broker=False, method="testThree")]
    (suite,) = table(rows, {"4.3.1": control})["suites"]
    assert {name: suite[name] for name in ("tests", "passed on Kafka", "failed", "fails on Kafka", "no broker")} == {
        **{"tests": 3, "passed on Kafka": 1, "failed": 1, "fails on Kafka": 1, "no broker": 1}
    }
