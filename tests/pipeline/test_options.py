"""Options of the data sources: defaults, precedence and refusals as in Spark's Kafka source, each in one sentence."""

from __future__ import annotations

import pickle
import re
from typing import Any

import pytest

from ottla.pipeline.backend import Selection, TopicPartition, Wanted
from ottla.pipeline.offsets import EARLIEST, LATEST, AtOffset, AtOffsets, AtTime, AtTimes, OptionError
from ottla.pipeline.options import NOT_ACTED_ON, OPTIONS, SourceOptions, parse

DIRECTORY = {"path": "/data"}
BROKERS = {"kafka.bootstrap.servers": "localhost:9092"}


def batch(**given: Any) -> SourceOptions:
    return parse(DIRECTORY | given, "ottla_log", False)


def stream(**given: Any) -> SourceOptions:
    return parse(DIRECTORY | given, "ottla_log", True)


def refusal(options: dict[str, str], source: Any = "ottla_log", streaming: bool | None = False) -> str:
    with pytest.raises(OptionError) as refused:
        parse(options, source, streaming)
    text = str(refused.value)
    assert "\n" not in text and text
    return text


def test_defaults() -> None:
    found = batch()
    assert (found.starting, found.ending, found.no_match) == (AtOffset(EARLIEST), AtOffset(LATEST), "error")
    assert found.fail_on_data_loss and not (found.metadata or found.include_headers or found.committed)
    assert found.selection == Selection() and found.columns is None and found.notes == ()
    assert found.max_trigger_delay_ms == 900_000 and found.max_offsets_per_trigger is None
    assert found.wanted(("key",)) == Wanted(("key",))
    assert (batch().pushdown, batch(pushdown="False").pushdown, batch(pushdown="true").pushdown) == (None, False, True)
    assert stream().starting == AtOffset(LATEST)


def test_all_options() -> None:
    found = parse(
        {
            "PATH": " /a , /b/t-0 ",
            "paths": '["/c,d", "file:/e%20f", "file:///a"]',
            "SUBSCRIBE": "one, two,,",
            "startingoffsets": "EARLIEST",
            "failOnDataLoss": "FALSE",
            "minPartitions": "7",
            "maxRecordsPerPartition": "1000",
            "maxOffsetsPerTrigger": "50",
            "minOffsetsPerTrigger": "0",
            "maxTriggerDelay": "90s",
            "commitGroup": "g",
            "includeHeaders": "true",
            "includeControlRecords": "true",
            "metadata": "True",
            "columns": "key, control",
            "kafka.isolation.level": "read_committed",
            "kafka.bootstrap.servers": "h:1",
            "onCorrupt": "Skip",
            "checkCRCs": "false",
            "maxBatchBytes": "1000000",
        },
        "ottla_log",
        True,
    )
    assert found.paths == ("/a", "/b/t-0", "/c,d", "/e f")
    assert found.selection.topics == ("one", "two") and found.starting == AtOffset(EARLIEST)
    assert (found.min_partitions, found.max_records_per_partition) == (7, 1000)
    assert (found.max_offsets_per_trigger, found.min_offsets_per_trigger) == (50, 0)
    assert (found.max_trigger_delay_ms, found.commit_group) == (90_000, "g")
    assert found.metadata and found.include_headers and found.include_control_records
    assert found.kafka == {"isolation.level": "read_committed", "bootstrap.servers": "h:1"}
    assert found.columns == ("key", "control") and not found.notes
    wanted = found.wanted(("control",), from_ms=5)
    assert wanted == Wanted(("control",), True, True, 5, None, "skip", 1_000_000, False, False)
    assert pickle.loads(pickle.dumps(found)) == found


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"startingOffsets": "latest"}, AtOffset(LATEST)),
        ({"startingOffsets": ' {"t": {"0": 5}} '}, AtOffsets({TopicPartition("t", 0): 5})),
        (
            {"startingOffsetsByTimestamp": '{"t": {"0": 7}}', "startingOffsets": "earliest"},
            AtTimes({TopicPartition("t", 0): 7}),
        ),
        (
            {"startingTimestamp": "9", "startingOffsetsByTimestamp": "not looked at", "startingOffsets": "{"},
            AtTime(9),
        ),
    ],
)
def test_starting_option_precedence(given: dict[str, str], expected: object) -> None:
    assert stream(**given).starting == expected
    if given != {"startingOffsets": "latest"}:
        assert batch(**given).starting == expected
        ending = {name.replace("starting", "ending"): value for name, value in given.items()}
        if given.get("startingOffsets") != "earliest":
            assert batch(**ending).ending == expected


def test_crcs_are_computed_where_a_column_shows_them() -> None:
    assert batch().wanted(("key",)).computes_crcs
    assert not batch(checkCrcs="false").wanted(("key",)).computes_crcs
    assert not batch(**{"kafka.check.crcs": "false"}).wanted(("key",)).computes_crcs
    assert batch(checkCrcs="false").wanted(("key", "crcOk")).computes_crcs
    assert batch(checkCrcs="false", onCorrupt="emit", metadata="true").wanted(("crcOk",)).computes_crcs


@pytest.mark.parametrize(
    ("text", "ms"),
    [("15m", 900_000), ("2min", 120_000), ("1h", 3_600_000), ("1d", 86_400_000), ("7", 7), ("5MS", 5), ("2500us", 2)],
)
def test_durations(text: str, ms: int) -> None:
    assert stream(maxTriggerDelay=text).max_trigger_delay_ms == ms


def test_selection() -> None:
    assert batch(subscribePattern=" a.* ").selection == Selection(pattern="a.*")
    assigned = batch(assign='{"t": [1, 0, 1], "u": [2]}').selection.assigned
    assert assigned == (TopicPartition("t", 1), TopicPartition("t", 0), TopicPartition("u", 2))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"subscribe": "a", "assign": "{}"}, "only one of subscribe, subscribePattern and assign"),
        ({"subscribe": " , "}, "it must name at least one topic"),
        ({"subscribePattern": " "}, "subscribePattern is empty"),
        ({"subscribePattern": "a("}, "not a regular expression"),
        ({"assign": "{}"}, "it must name at least one partition"),
        ({"assign": "t"}, 'must be like {"topicA": [0, 1]'),
        ({"assign": '{"t": [-1]}'}, "must be like"),
        ({"assign": '{"t": 0}'}, "must be like"),
        ({"startingOffsets": "sooner"}, 'must be like {"topicA": {"0": 23, "1": -1}'),
        ({"startingOffsets": '{"t": {"0": -3}}'}, "must be like"),
        ({"startingOffsets": '{"t": {"zero": 3}}'}, "must be like"),
        ({"startingOffsets": '{"t": {"0": true}}'}, "must be like"),
        ({"startingOffsets": "[" * 100_000}, "must be like"),
        ({"startingOffsets": "latest"}, "startingOffsets can't be latest in a batch query"),
        ({"startingOffsets": '{"t": {"0": -1}}'}, "startingOffsets of t-0 can't be -1, latest, in a batch query"),
        ({"endingOffsets": "earliest"}, "endingOffsets can't be earliest"),
        ({"endingOffsets": '{"t": {"0": -2}}'}, "endingOffsets of t-0 can't be -2, earliest"),
        ({"startingTimestamp": "today"}, "startingTimestamp is 'today': it must be a number"),
        ({"startingTimestamp": "-1"}, ">= 0"),
        ({"startingOffsetsByTimestamp": '{"t": {"0": -1}}'}, "startingOffsetsByTimestamp"),
        ({"startingOffsetsByTimestampStrategy": "first"}, "it must be error or latest"),
        ({"failOnDataLoss": "1"}, "failOnDataLoss is '1': it must be true or false"),
        ({"minPartitions": "0"}, "minPartitions is '0'"),
        ({"maxRecordsPerPartition": "-5"}, "maxRecordsPerPartition"),
        ({"isolationLevel": "committed"}, "read_uncommitted or read_committed"),
        ({"isolationLevel": "read_committed", "kafka.isolation.level": "read_uncommitted"}, "give one of them"),
        ({"onCorrupt": "ignore"}, "fail or skip or emit"),
        ({"columns": ","}, "it must name at least one column"),
        ({"commitGroup": "g", "kafka.bootstrap.servers": "h:1"}, "not valid in a batch query"),
        ({"maxBatchBytes": "2147483648"}, "from 1 to 2147483647"),
        ({"startingOfsets": "earliest"}, "did you mean startingOffsets?"),
        ({"groupIdPrefi": "x"}, "did you mean groupIdPrefix?"),
        ({"nonsense": "x"}, "ottla_log has no option nonsense; use path"),
        ({"kafka.auto.offset.reset": "latest"}, "startingOffsets sets where to start"),
        ({"kafka.value.deserializer": "x"}, "values are returned as bytes"),
        ({"kafka.enable.auto.commit": "true"}, "not supported"),
        ({"path": "hdfs://h/x"}, "mounted"),
        ({"path": "file://h/x"}, "mounted"),
        ({"path": ","}, "it must name at least one directory"),
        ({"paths": "/a"}, "JSON list"),
    ],
)
def test_refusals(given: dict[str, str], message: str) -> None:
    assert message in refusal(DIRECTORY | given)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"endingOffsets": "latest"}, "endingOffsets is not valid in a streaming query"),
        ({"endingOffsetsByTimestamp": "{}"}, "endingOffsetsByTimestamp is not valid"),
        ({"endingTimestamp": "5"}, "endingTimestamp is not valid"),
        ({"minOffsetsPerTrigger": "6", "maxOffsetsPerTrigger": "5"}, "more than maxOffsetsPerTrigger, 5"),
        ({"maxOffsetsPerTrigger": "0"}, "maxOffsetsPerTrigger is '0'"),
        ({"maxTriggerDelay": "15 minutes"}, "such as 15m"),
        ({"maxTriggerDelay": "-1s"}, "must not be negative"),
        ({"commitGroup": "g"}, "commitGroup needs kafka.bootstrap.servers"),
        ({"commitGroup": " ", "kafka.bootstrap.servers": "h:1"}, "commitGroup is empty"),
    ],
)
def test_refusals_of_streams(given: dict[str, str], message: str) -> None:
    assert message in refusal(DIRECTORY | given, streaming=True)
    if "ending" in message:  # the kind is not known yet, so it is not refused yet
        parse(DIRECTORY | given, "ottla_log", None)


def test_required_options_by_source() -> None:
    assert "path must be given" in refusal({}, "ottla_log")
    assert "path must be given" in refusal(BROKERS, "ottla_batches")
    assert "kafka.bootstrap.servers must be given" in refusal({}, "ottla")
    assert "takes no path" in refusal(DIRECTORY | BROKERS, "ottla")
    assert "since its rows are batches" in refusal(DIRECTORY | {"metadata": "true"}, "ottla_batches")
    assert parse(BROKERS, "ottla", False).kafka == {"bootstrap.servers": "localhost:9092"}
    assert parse(BROKERS | DIRECTORY, "ottla_log", False).paths == ("/data",)


def test_options_without_effect_noted() -> None:
    given = dict.fromkeys(NOT_ACTED_ON, "1")
    found = batch(**given, maxOffsetsPerTrigger="1", maxTriggerDelay="1m", checkpointLocation="/c")
    assert len(found.notes) == len(NOT_ACTED_ON) + 2
    assert any("maxTriggerDelay has no effect in a batch query" in note for note in found.notes)
    assert all(re.match("option [a-zA-Z.]+ has no effect", note) for note in found.notes)
    assert found.kafka == {"group.id": "1"}
    assert stream(maxOffsetsPerTrigger="1").notes == ()


def test_option_names_unique_ignoring_case() -> None:
    names = [name.lower() for name in (*OPTIONS, *NOT_ACTED_ON)]
    assert len(set(names)) == len(names)
