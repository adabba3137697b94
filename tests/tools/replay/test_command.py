"""`ottla replay` and `ottla diff`: errors in one line, and the limits of what the release table lets them expect."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from ottla.broker import Embedded
from ottla.broker.network.router import apis_of
from ottla.broker.recording.decoding import response_value
from ottla.broker.recording.files import read_recording
from ottla.broker.releases.profiles import BEHAVIOUR_NAMES, PROFILE_NAMES, profile
from ottla.client import Admin, Producer
from ottla.client.admin.admin import NewTopic
from ottla.protocol.compiler import build
from ottla.protocol.errors import MalformedMessage
from ottla.protocol.messages.groups.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.groups.leave_group import LeaveGroupRequest
from ottla.protocol.messages.groups.offset_fetch import OffsetFetchRequest
from ottla.protocol.messages.records.fetch import FetchRequest
from ottla.protocol.messages.records.produce import ProduceRequest
from ottla.protocol.messages.topics.delete_topics import DeleteTopicsRequest
from ottla.protocol.messages.topics.metadata import MetadataRequest
from ottla.protocol.schema import spec
from ottla.tools.main import main
from ottla.tools.replay.comparison import Comparing, Finding, Pair, Why, matched
from ottla.tools.replay.expected_differences import SIGNS, ExpectedDifferences, guessed_release
from ottla.tools.replay.name_mapping import Ids
from ottla.tools.replay.value_comparison import Difference
from ottla.tools.replay.versions import CannotTranslate, in_version
from ottla_testing.each import each

LEFT_ID, RIGHT_ID = b"l" * 16, b"r" * 16


@pytest.fixture(scope="module")
def once_recorded(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A recording of Ottla's own client: a topic, and a record in it."""

    async def run(address: str) -> None:
        async with Admin(address) as admin:
            await admin.create_topics([NewTopic("made", 1)])
        async with Producer(address) as producer:
            await producer.send_and_wait("made", b"x")

    path = tmp_path_factory.mktemp("session") / "session.jsonl"
    with Embedded(record=path) as broker:
        asyncio.run(run(broker.bootstrap))
    return path.read_bytes()


@pytest.fixture
def session(once_recorded: bytes, tmp_path: Path) -> Path:
    """A new copy of the recording for each test."""
    path = tmp_path / "session.jsonl"
    path.write_bytes(once_recorded)
    return path


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["replay", "{file}"], "--bootstrap"),
        (["replay", "{file}", "--bootstrap", "nowhere"], "'nowhere' is not HOST:PORT"),
        (["replay", "{file}", "--bootstrap", "h:0"], "'h:0' is not HOST:PORT"),
        (["replay", "{file}", "--bootstrap", "h:1", "--patience", "0"], "not a number of seconds"),
        (["replay", "{folder}/none.jsonl", "--bootstrap", "127.0.0.1:1"], "No such file"),
        (["replay", "{folder}/other.jsonl", "--bootstrap", "127.0.0.1:1"], "other.jsonl is not a recording"),
        (["replay", "{folder}/other.txt", "--bootstrap", "127.0.0.1:1"], "other.txt"),
        (["replay", "{folder}", "--bootstrap", "127.0.0.1:1"], "{folder}"),
        (["replay", "{file}", "--bootstrap", "127.0.0.1:1"], "cannot connect to 127.0.0.1:1"),
        (["diff", "{file}"], "B"),
        (["diff", "{file}", "h:1"], "`ottla replay` compares"),
        (["diff", "h:1", "h:2"], "two brokers need --recording FILE"),
        (["diff", "{file}", "{file}", "--recording", "{file}"], "--recording cannot be combined with two recordings"),
        (["diff", "{file}", "{file}", "--release", "1.5", "4.3"], "unknown release 1.5"),
        (["diff", "127.0.0.1:1", "127.0.0.1:1", "--recording", "{file}"], "cannot connect to 127.0.0.1:1"),
    ],
)
def test_wrong_arguments_are_one_line(
    session: Path, arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = session.parent
    (folder / "other.jsonl").write_bytes(b"\x00\xff{}\n" * 10)
    (folder / "other.txt").write_text("x")
    given = [one.format(file=session, folder=folder) for one in arguments]
    try:
        code = main(given)
    except SystemExit as ended:
        code = ended.code
    result = capsys.readouterr()
    assert code == 2 and not result.out
    assert result.err.count("\n") == 1 and words.format(folder=folder) in result.err


def test_damage_in_a_recording_is_reported_and_the_rest_is_played(
    session: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = session.read_bytes().splitlines(keepends=True)
    session.write_bytes(b"".join([*lines[:-3], b'{"type":"exchange","number":-1}\n', b"\xff\n", *lines[-3:]]))
    with Embedded() as broker:
        assert main(["replay", str(session), "--bootstrap", broker.bootstrap]) == 0
    result = capsys.readouterr().out
    assert sum(line.startswith(str(session)) for line in result.splitlines()) == 2 and "no difference" in result


def test_existing_topic_is_one_difference(session: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Embedded() as broker:
        assert main(["replay", str(session), "--bootstrap", broker.bootstrap]) == 0
        capsys.readouterr()
        assert main(["replay", str(session), "--bootstrap", broker.bootstrap, "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    found = [one for one in document["differences"] if one["why"] == "unexplained"]
    assert [(one["api"], one["path"], one["left"], one["right"]) for one in found] == [
        ("CreateTopics", ".topics[made].error_code", 0, 36)
    ]
    assert document["counts"]["follows"] == sum(one["why"] == "follows" for one in document["differences"])
    assert set(document["differences"][0]) == set(Finding._fields)


def test_recording_does_not_differ_from_itself(session: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diff", str(session), str(session), "--all"]) == 0
    assert "no difference" in capsys.readouterr().out


def test_exchanges_of_one_recording_only_are_reported(session: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = session.read_text().splitlines(keepends=True)
    exchanges = [number for number, line in enumerate(lines) if '"type":"exchange"' in line]
    fewer = session.with_name("fewer.jsonl")
    fewer.write_text("".join(line for number, line in enumerate(lines) if number != exchanges[-1]))
    assert main(["diff", str(session), str(fewer)]) == 0
    assert "more Produce in the first" in capsys.readouterr().out


# The release table


def test_each_behaviour_names_its_effects() -> None:
    assert set(SIGNS) == set(BEHAVIOUR_NAMES), (
        "a new behaviour needs its effects on responses in tools/replay/expected_differences.py"
    )


def test_same_release_has_no_expected_differences() -> None:
    same = ExpectedDifferences(profile("3.9"), profile("3.9"))
    paths = [f".x.{name}" for name in ("error_code", "error_message", "base_offset", "records[0].codec", "state")]
    for api_key in range(100):
        for path in ("", *paths, ".configs[a].value", ".supported_features[x]"):
            difference = Difference(path, 0, 45)
            assert same.why(api_key, 0, difference) is None and same.perhaps(api_key, 0, difference) is None


def test_version_differences_are_expected_only_as_in_the_table() -> None:
    found = ExpectedDifferences(profile("4.3"), profile("2.8"))
    first, last = (apis_of(profile(name)).advertised[1] for name in ("4.3", "2.8"))
    assert found.why(18, 0, Difference(".api_keys[1].max_version", first.last, last.last)) == "versions of Fetch"
    assert found.why(18, 0, Difference(".api_keys[1].max_version", first.last, last.last - 1)) is None
    assert found.unserved(1, first.last) and not found.unserved(1, last.last)


@each("name", PROFILE_NAMES)
def test_release_is_recognized_by_its_versions(name: str) -> None:
    played = profile(name)
    found = guessed_release(apis_of(played).advertised)
    assert found is not None and apis_of(found).advertised == apis_of(played).advertised


# Versions


def ids() -> Ids:
    made = Ids()
    made.topic_names[LEFT_ID] = "t"
    made.topic_ids[LEFT_ID] = RIGHT_ID
    return made


GROUP = OffsetFetchRequest.OffsetFetchRequestGroup
REQUESTS: list[Any] = [
    FindCoordinatorRequest(coordinator_keys=["g"]),
    FindCoordinatorRequest(key="g"),
    LeaveGroupRequest(group_id="g", members=[LeaveGroupRequest.MemberIdentity(member_id="m")]),
    LeaveGroupRequest(group_id="g", member_id="m"),
    OffsetFetchRequest(groups=[GROUP(group_id="g", topics=[])]),
    OffsetFetchRequest(group_id="g", topics=[]),
    DeleteTopicsRequest(topics=[DeleteTopicsRequest.DeleteTopicState(name="t", topic_id=bytes(16))], timeout_ms=1),
    DeleteTopicsRequest(topic_names=["t"], timeout_ms=1),
    MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name="t")]),
    ProduceRequest(
        acks=1, timeout_ms=1, topic_data=[ProduceRequest.TopicProduceData(topic_id=RIGHT_ID, partition_data=[])]
    ),
    ProduceRequest(acks=1, timeout_ms=1, topic_data=[ProduceRequest.TopicProduceData(name="t", partition_data=[])]),
    FetchRequest(max_wait_ms=0, min_bytes=0, topics=[FetchRequest.FetchTopic(topic_id=RIGHT_ID, partitions=[])]),
    FetchRequest(max_wait_ms=0, min_bytes=0, topics=[FetchRequest.FetchTopic(topic="t", partitions=[])]),
]


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda one: f"{type(one).__name__}")
def test_requests_translate_to_every_version_and_back(request_: Any) -> None:
    """Each form in each version, without a loss in both directions."""
    versions = spec(type(request_)).versions.range()
    sent = {version: in_version(request_, version, ids()) for version in versions}
    for version, one in sent.items():
        assert build(one, version)
        for other in versions:
            assert in_version(one, other, ids()) == in_version(sent[other], other, ids()), (version, other)


def test_request_that_a_version_cannot_express_is_refused() -> None:
    two = FindCoordinatorRequest(coordinator_keys=["a", "b"])
    with pytest.raises(CannotTranslate, match="one key, the request has 2"):
        in_version(two, 3, ids())
    unknown = FetchRequest(
        max_wait_ms=0, min_bytes=0, topics=[FetchRequest.FetchTopic(topic_id=b"?" * 16, partitions=[])]
    )
    with pytest.raises(CannotTranslate, match="which is unknown"):
        in_version(unknown, 12, ids())
    member = LeaveGroupRequest.MemberIdentity(member_id="m", group_instance_id="static")
    with pytest.raises(CannotTranslate, match="no static members"):
        in_version(LeaveGroupRequest(group_id="g", members=[member]), 2, ids())
    with pytest.raises(MalformedMessage):
        build(FindCoordinatorRequest(key="g", key_type=1), 0)


def test_equal_findings_are_counted(session: Path) -> None:
    """The same difference on every connection is one finding with a count, for each version of the request."""
    exchanges = read_recording(session).exchanges
    other = [dataclasses.replace(one) for one in exchanges]
    for one in other:
        if one.api_key == 18:
            result: Any = response_value(one)
            result.api_keys[0].max_version += 1
            one.response = bytes(4) + build(result, one.api_version)
    pairs, notes = matched(exchanges, other)
    found = Comparing([Pair(*pair) for pair in pairs]).run()
    request = sum(one.api_key == 18 for one in exchanges)
    assert not notes and request > 1
    versions = Counter(one.api_version for one in exchanges if one.api_key == 18)
    assert max(versions.values()) > 1
    assert sorted((one.times, one.why) for one in found.findings) == sorted(
        (count, Why.UNEXPLAINED) for count in versions.values()
    )


def test_replay_to_an_older_release_suggests_translate(session: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Embedded(release="2.0") as broker:
        main(["replay", str(session), "--bootstrap-server", broker.bootstrap, "--json"])
        result = json.loads(capsys.readouterr().out)
        left_out = sum(count for reason, count in result["not_sent"].items() if "is not served, only v" in reason)
        assert result["translatable"] == left_out > 0
        main(["replay", str(session), "--bootstrap-server", broker.bootstrap])
        line = f"  --translate would send {left_out} of them, each in the nearest served version\n"
        assert line in capsys.readouterr().out
        main(["replay", str(session), "--bootstrap-server", broker.bootstrap, "--translate"])
        assert "--translate" not in capsys.readouterr().out
