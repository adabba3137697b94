"""Invalid arguments of an embedded broker are refused in one line that names them, and change nothing."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from ottla.broker import Embedded
from ottla.broker.admin_api.views import headers_of
from ottla.broker.testing.embedded import NewRecord, NotFound, OperationError


@pytest.fixture(scope="module")
def broker() -> Iterator[Embedded]:
    with Embedded() as embedded:
        embedded.create_topic("t")
        yield embedded


def one_line(error: pytest.ExceptionInfo[Exception], part: str) -> None:
    assert part in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        ({"release": 4.3}, "release is a str, not 4.3"),
        ({"brokers": "3"}, "brokers is a whole number, not '3'"),
        ({"brokers": 2.5}, "brokers is a whole number, not 2.5"),
        ({"brokers": True}, "brokers is a whole number, not True"),
        ({"configs": ["num.partitions=3"]}, "configs are a mapping of names to values"),
    ],
)
def test_invalid_arguments_of_a_broker_are_refused(arguments: dict[str, Any], part: str):
    with pytest.raises(TypeError) as error:
        Embedded(**arguments)
    one_line(error, part)


def test_none_and_empty_arguments_are_defaults():
    with Embedded(release=None, configs=None, listeners=[]) as broker:  # type: ignore[arg-type]
        assert broker.bootstrap.startswith("127.0.0.1:") and not broker.bootstrap.endswith(":9092")


@pytest.mark.parametrize("ms", [1.5, 1000.0, datetime.timedelta(days=7).total_seconds() * 1000, "1", True, None])
def test_invalid_arguments_of_the_clock_are_refused(broker: Embedded, ms: Any):
    for move in (broker.clock.advance, broker.clock.set):
        with pytest.raises(TypeError) as error:
            move(ms)
        one_line(error, f"ms is a whole number, not {ms!r}")
    assert isinstance(broker.clock.now_ms, int)


@pytest.mark.parametrize(
    ("send_request", "part"),
    [
        (lambda broker: broker.create_topic(3), "the name of a topic is a str, not 3"),
        (lambda broker: broker.create_topic(partitions="2"), "partitions is a whole number, not '2'"),
        (lambda broker: broker.create_topic(configs=["x"]), "configs are a mapping of names to values"),
        (lambda broker: broker.send("t", 5), "a key or a value is bytes, str or None, not int"),
        (lambda broker: broker.send(b"t", "x"), "the name of a topic is a str, not b't'"),
        (lambda broker: broker.send("t", "x", partition="0"), "partition is a whole number, not '0'"),
        (lambda broker: broker.send("t", "x", headers=[("name",)]), "a header is a pair of a name and a value"),
        (lambda broker: broker.send("t", "x", headers=["ab"]), "a header is a pair of a name and a value"),
        (lambda broker: broker.send("t", "x", headers=[(b"name", b"x")]), "the name of a header is a str"),
        (lambda broker: broker.send_many("t", [("key", "value", "more")]), "a record is a value, a (key, value) pair"),
        (lambda broker: broker.restore(None), "restore takes a Snapshot, not None"),
    ],
)
def test_invalid_arguments_of_methods_are_refused(broker: Embedded, send_request: Callable[[Embedded], Any], part: str):
    before = broker.topics()
    with pytest.raises(TypeError) as error:
        send_request(broker)
    one_line(error, part)
    assert broker.topics() == before


def test_topic_of_millions_of_partitions_is_refused_at_once(broker: Embedded):
    with pytest.raises(OperationError) as error:
        broker.create_topic(partitions=10_000_000)
    one_line(error, "POLICY_VIOLATION: at most 10000 partitions, not 10000000")


@pytest.mark.parametrize("expected", ["x", b"x", {"k": "x"}, NewRecord("x"), 1, None])
def test_text_as_expected_records_is_refused(broker: Embedded, expected: Any):
    topic = broker.create_topic()
    broker.send(topic, "x")
    with pytest.raises(TypeError) as error:
        broker.assert_produced(topic, expected)
    one_line(error, "expected is a list of values, (key, value) pairs or Records, not ")
    for given in (["x"], ("x",), {"x"}, iter(["x"]), broker.records(topic)):
        broker.assert_produced(topic, given)


def test_headers_may_be_a_mapping(broker: Embedded):
    topic = broker.create_topic()
    broker.send(topic, "x", headers={"ab": "1", "c": None})  # type: ignore[arg-type]
    broker.send_many(topic, [NewRecord("y", headers={"ab": b"2"})])  # type: ignore[arg-type]
    assert [record.headers for record in broker.records(topic)] == [(("ab", b"1"), ("c", None)), (("ab", b"2"),)]
    assert headers_of([["a", "b"]]) == (("a", "b"),)


@pytest.mark.parametrize(
    ("send_request", "part"),
    [
        (lambda broker: broker.records("none"), "there is no none"),
        (lambda broker: broker.records("t", 7), "there is no t-7"),
        (lambda broker: broker.assert_produced("none", []), "there is no none"),
        (lambda broker: broker.topic("none"), "there is no none"),
        (lambda broker: broker.delete_topic("none"), "there is no none"),
        (lambda broker: broker.producers("none"), "there is no none"),
    ],
)
def test_missing_objects_are_named(broker: Embedded, send_request: Callable[[Embedded], Any], part: str):
    with pytest.raises(NotFound) as error:
        send_request(broker)
    assert str(error.value) == f"UNKNOWN_TOPIC_OR_PARTITION: {part}"


@pytest.mark.parametrize(
    ("where", "result"),
    [
        ({"node": 9}, "there is no node 9: the nodes are 1"),
        ({"listener": "PLAIN"}, "there is no listener 'PLAIN': the listeners are PLAINTEXT"),
    ],
)
def test_fault_for_a_missing_listener_or_node_is_refused(broker: Embedded, where: dict[str, Any], result: str):
    for put in (broker.faults.refuse, partial(broker.faults.error, "Produce", 6)):
        with pytest.raises(ValueError) as error:
            put(**where)
        assert str(error.value) == result
    assert broker.faults.list() == []
