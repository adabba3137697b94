"""The table of releases compared with independent sources; nothing here is computed from that table.

Versions are from Apache Kafka's message definitions of seven releases, behaviours were collected release by release
from the brokers' source, and versions of Produce and Fetch from the KIPs that added them.
"""

from __future__ import annotations

import ast
import json
import re

import pytest

from ottla.broker.network.router import apis_of
from ottla.broker.network.unserved import why_not_served
from ottla.broker.releases.profiles import (
    BEHAVIOUR_NAMES,
    INTER_BROKER_KEYS,
    PROFILE_NAMES,
    RELEASES,
    TELEMETRY_KEYS,
    Behaviour,
    UnknownRelease,
    api_names,
    own_profile,
    profile,
    protocol_place,
    record_format,
)
from ottla.protocol.schema import Versions, spec
from ottla.tools import serve
from ottla.tools.release_table import markdown
from ottla_testing import ROOT
from ottla_testing.broker.release_columns import BEFORE_1, COLUMNS, FROM_3_6, FROM_4
from ottla_testing.broker.routes import ROUTES
from ottla_testing.each import each

# Valid versions in Apache's definitions: 2.8.2, 3.0.2, 3.9.1, 4.0.0, 4.1.1, 4.3.1, 4.4.0.
DEFINED = ("2.8", "3.0", "3.9", "4.0.0", "4.1", "4.3", "4.4")
VALID = """
    Produce                   0   0-9   0-9   0-11  3-12  3-13  3-13     3-13
    Fetch                     1   0-12  0-12  0-17  4-17  4-18  4-18     4-18
    ListOffsets               2   0-6   0-7   0-9   1-10  1-10  1-11     1-11
    Metadata                  3   0-11  0-11  0-12  0-13  0-13  0-13     0-13
    OffsetCommit              8   0-8   0-8   0-9   2-9   2-10  2-10     2-10
    OffsetFetch               9   0-7   0-8   0-9   1-9   1-10  1-10     1-10
    FindCoordinator           10  0-3   0-4   0-6   0-6   0-6   0-6      0-6
    JoinGroup                 11  0-7   0-7   0-9   2-9   0-9   0-9      0-9
    Heartbeat                 12  0-4   0-4   0-4   0-4   0-4   0-4      0-4
    LeaveGroup                13  0-4   0-4   0-5   0-5   0-5   0-5      0-5
    SyncGroup                 14  0-5   0-5   0-5   0-5   0-5   0-5      0-5
    DescribeGroups            15  0-5   0-5   0-5   0-6   0-6   0-6      0-6
    ListGroups                16  0-4   0-4   0-5   0-5   0-5   0-5      0-5
    SaslHandshake             17  0-1   0-1   0-1   0-1   0-1   0-1      0-1
    SaslAuthenticate          36  0-2   0-2   0-2   0-2   0-2   0-2      0-2
    ApiVersions               18  0-3   0-3   0-4   0-4   0-4   0-4      0-5
    CreateTopics              19  0-7   0-7   0-7   2-7   2-7   2-7      2-7
    DeleteTopics              20  0-6   0-6   0-6   1-6   1-6   1-6      1-6
    DeleteRecords             21  0-2   0-2   0-2   0-2   0-2   0-2      0-2
    InitProducerId            22  0-4   0-4   0-5   0-5   0-6   0-6      0-6
    OffsetForLeaderEpoch      23  0-4   0-4   0-4   2-4   2-4   2-4      2-4
    AddPartitionsToTxn        24  0-3   0-3   0-5   0-5   0-5   0-5      0-5
    AddOffsetsToTxn           25  0-3   0-3   0-4   0-4   0-4   0-4      0-4
    EndTxn                    26  0-3   0-3   0-4   0-5   0-5   0-5      0-5
    WriteTxnMarkers           27  0-1   0-1   0-1   1     1     1-2      1-2
    TxnOffsetCommit           28  0-3   0-3   0-4   0-5   0-5   0-5      0-6
    DescribeAcls              29  0-2   0-2   0-3   1-3   1-3   1-3      1-3
    CreateAcls                30  0-2   0-2   0-3   1-3   1-3   1-3      1-3
    DeleteAcls                31  0-2   0-2   0-3   1-3   1-3   1-3      1-3
    DescribeConfigs           32  0-4   0-4   0-4   1-4   1-4   1-4      1-4
    AlterConfigs              33  0-2   0-2   0-2   0-2   0-2   0-2      0-2
    AlterReplicaLogDirs       34  0-2   0-2   0-2   1-2   1-2   1-2      1-2
    DescribeLogDirs           35  0-2   0-2   0-4   1-4   1-4   1-5      1-5
    ElectLeaders              43  0-2   0-2   0-2   0-2   0-2   0-2      0-2
    AlterPartitionReassignments 45 0     0     0     0     0-1   0-1     0-1
    ListPartitionReassignments 46  0     0     0     0     0     0       0
    CreatePartitions          37  0-3   0-3   0-3   0-3   0-3   0-3      0-3
    DeleteGroups              42  0-2   0-2   0-2   0-2   0-2   0-2      0-3
    IncrementalAlterConfigs   44  0-1   0-1   0-1   0-1   0-1   0-1      0-1
    OffsetDelete              47  0     0     0     0     0     0        0
    DescribeCluster           60  0     0     0-1   0-2   0-2   0-2      0-2
    DescribeProducers         61  0     0     0     0     0     0        0
    DescribeTransactions      65  -     0     0     0     0     0        0
    ListConfigResources       74  -     -     0     0     0-1   0-1      0-1
    ListTransactions          66  -     0     0-1   0-1   0-2   0-2      0-2
    DescribeTopicPartitions   75  -     -     0     0     0     0        0
    CreateDelegationToken     38  0-2   0-2   0-3   1-3   1-3   1-3      1-3
    RenewDelegationToken      39  0-2   0-2   0-2   1-2   1-2   1-2      1-2
    ExpireDelegationToken     40  0-2   0-2   0-2   1-2   1-2   1-2      1-2
    DescribeDelegationToken   41  0-2   0-2   0-3   1-3   1-3   1-3      1-3
    DescribeClientQuotas      48  0-1   0-1   0-1   0-1   0-1   0-1      0-1
    AlterClientQuotas         49  0-1   0-1   0-1   0-1   0-1   0-1      0-1
    DescribeUserScramCredentials 50  0     0     0     0     0     0     0
    AlterUserScramCredentials 51  0     0     0     0     0     0        0
    DescribeQuorum            55  -     -     0-2   0-2   0-2   0-2      0-2
    UpdateFeatures            57  0     0     0-1   0-2   0-2   0-2      0-2
    UnregisterBroker          64  -     -     0     0     0     0        0
    ConsumerGroupHeartbeat    68  -     -     0     0-1   0-1   0-1      0-1
    ConsumerGroupDescribe     69  -     -     0     0-1   0-1   0-1      0-1
    GetTelemetrySubscriptions 71  -     -     0     0     0     0        0
    PushTelemetry             72  -     -     0     0     0     0        0
    ShareGroupHeartbeat       76  -     -     -     -     1     1        1
    ShareGroupDescribe        77  -     -     -     -     1     1        1
    ShareFetch                78  -     -     -     -     1     1-2      1-2
    ShareAcknowledge          79  -     -     -     -     1     1-2      1-2
    InitializeShareGroupState 83  -     -     -     -     0     0        0
    ReadShareGroupState       84  -     -     -     -     0     0        0
    WriteShareGroupState      85  -     -     -     -     0     0-1      0-1
    DeleteShareGroupState     86  -     -     -     -     0     0        0
    ReadShareGroupStateSummary 87 -     -     -     -     0     0-1      0-1
    StreamsGroupHeartbeat     88  -     -     -     -     -     0        0-1
    StreamsGroupDescribe      89  -     -     -     -     -     0        0-1
    StreamsGroupTopologyDescriptionUpdate 93 - -    -     -     -     -        0
    DescribeShareGroupOffsets 90  -     -     -     -     0     0-1      0-1
    AlterShareGroupOffsets    91  -     -     -     -     0     0        0
    DeleteShareGroupOffsets   92  -     -     -     -     0     0        0
    AddRaftVoter              80  -     -     0     0     0     0-1      0-1
    RemoveRaftVoter           81  -     -     0     0     0     0        0
    UnregisterController      94  -     -     -     -     -     -     0
"""
# Defined in those releases, but unstable: no broker advertises them.
UNSTABLE = {("4.1", 8): 10, ("4.1", 9): 10, ("4.1", 22): 6, ("4.3", 22): 6, ("4.4", 22): 6}
UNSTABLE |= {("4.1", 88): 0, ("4.1", 89): 0}

# The newest version of Produce, Fetch, Metadata and ApiVersions in each release; -1 for none.
NEWEST_VERSIONS = {
    "0.8.2": (0, 0, 0, -1),
    "0.9": (1, 1, 0, -1),
    "0.10.0": (2, 2, 1, 0),
    "0.10.1": (2, 3, 2, 0),
    "0.10.2": (2, 3, 2, 0),
    "0.11": (3, 5, 4, 1),
    "1.0.1": (5, 6, 5, 1),
    "1.0": (5, 6, 5, 1),
    "1.1": (5, 7, 5, 1),
    "2.0.0": (6, 8, 6, 2),
    "2.0": (6, 8, 6, 2),
    "2.1": (7, 10, 7, 2),
    "2.2": (7, 10, 7, 2),
    "2.3": (7, 11, 8, 2),
    "2.4": (8, 11, 9, 3),
    "2.5": (8, 11, 9, 3),
    "2.6": (8, 11, 9, 3),
    "2.7": (8, 12, 9, 3),
    "2.8": (9, 12, 11, 3),
    "3.0": (9, 12, 11, 3),
    "3.1": (9, 13, 12, 3),
    "3.2": (9, 13, 12, 3),
    "3.3": (9, 13, 12, 3),
    "3.4": (9, 13, 12, 3),
    "3.5": (9, 15, 12, 3),
    "3.6": (9, 15, 12, 3),
    "3.7": (10, 16, 12, 3),
    "3.8": (11, 16, 12, 3),
    "3.9": (11, 17, 12, 4),
    "4.0.0": (12, 17, 13, 4),
    "4.0": (12, 17, 13, 4),
    "4.1": (13, 18, 13, 4),
    "4.2": (13, 18, 13, 4),
    "4.3": (13, 18, 13, 4),
    "4.4": (13, 18, 13, 5),
}


def valid() -> dict[tuple[str, int], Versions | None]:
    """Returns the versions of the table above by (release, API key)."""
    found: dict[tuple[str, int], Versions | None] = {}
    for line in VALID.strip().splitlines():
        name, key, *ranges = line.split()
        assert api_names()[int(key)] == name
        for release, text in zip(DEFINED, ranges, strict=True):
            found[release, int(key)] = None if text == "-" else Versions.of(text)
    return found


def test_versions_match_apache_definitions() -> None:
    table = valid()
    assert {key for _, key in table} == set(ROUTES)
    for (release, key), versions in table.items():
        if versions is not None and (release, key) in UNSTABLE:
            assert versions.last == UNSTABLE[release, key]
            versions = versions._replace(last=versions.last - 1)
        played = profile(release)
        assert {**played.served, **played.telemetry_apis}.get(key) == versions, (release, api_names()[key])


def test_newest_versions_of_every_release() -> None:
    assert tuple(NEWEST_VERSIONS) == RELEASES
    for release, newest in NEWEST_VERSIONS.items():
        apis = profile(release).apis
        assert tuple(apis[key].last if key in apis else -1 for key in (0, 1, 3, 18)) == newest, release


def test_versions_match_the_table_of_known_values() -> None:
    """All keys except those of brokers and controllers, and except the patch that the table's 4.0 represents."""
    table = json.loads((ROOT / "broker" / "releases" / "releases.json").read_text())["releases"]
    rows = {"1.0.1": "1.0", "2.0.0": "2.0", "4.0.0": "4.0"}
    assert set(table) == {rows.get(name, name) for name in RELEASES}
    for name in RELEASES:
        row = table[rows.get(name, name)]
        expected = {int(key): tuple(ends) for key, ends in row.items() if int(key) not in INTER_BROKER_KEYS | {71, 72}}
        if name == "4.0":
            assert expected[11] == (2, 9)
            expected[11] = (0, 9)
        assert profile(name).apis == expected, name


@each("name", PROFILE_NAMES)
def test_unstable_versions_are_served_and_listed_only_if_enabled(name: str) -> None:
    of_release = {("4.2", 22): 6, ("ottla", 22): 6, **UNSTABLE}
    expected = {key: version for (release, key), version in of_release.items() if release == name}
    played = profile(name)
    stable, every = apis_of(played), apis_of(played, unstable=True)
    assert played.unstable == expected
    for before, after in ((stable.advertised, every.advertised), (stable.served, every.served)):
        assert list(before) == [key for key in after if key in before]
        assert {key: versions.last for key, versions in after.items() if versions != before.get(key)} == expected
        none = Versions(-1, -1)
        assert all(before.get(key, none).last == version - 1 for key, version in expected.items())


@each("name", PROFILE_NAMES)
def test_advertised_versions_are_served_except_of_produce(name: str) -> None:
    """Every release advertises Produce from v0 on, from which librdkafka derives support of compression
    (KAFKA-18659).
    """
    played = profile(name)
    assert played.apis[0].first == 0 and set(played.apis) == set(played.served)
    never = {4, 5, 6, 7, 52, 53, 54, 56, 58, 59, 62, 63, 67, 70, 73, 82}
    assert not never & set(played.apis) and never == INTER_BROKER_KEYS
    assert not {71, 72} & set(played.apis), "brokers with telemetry advertise its APIs"
    from_4 = name in FROM_4.split()
    differing = {key for key, versions in played.apis.items() if versions != played.served[key]}
    assert differing == ({0} if from_4 else set())
    assert played.served[0].first == (3 if from_4 else 0) and played.served[1].first == (4 if from_4 else 0)
    assert all(0 <= first <= last for first, last in played.apis.values())
    assert list(played.apis) == sorted(played.apis)


def test_join_group_lacks_its_oldest_versions_in_4_0_0() -> None:
    assert {name: profile(name).served[11].first for name in PROFILE_NAMES if profile(name).served[11].first} == {
        "4.0.0": 2
    }


def test_own_profile_has_every_stable_declared_version() -> None:
    declared = {key: spec(route.request_class).versions for key, route in ROUTES.items()}
    declared[22] = Versions(0, 5)
    assert {**own_profile().apis, **own_profile().telemetry_apis} == declared
    assert own_profile().served == own_profile().apis


def test_every_kafka_version_is_declared() -> None:
    """For all implemented APIs, so that a profile's ranges are the complete ranges of the release."""
    own = own_profile().apis
    for name in RELEASES:
        for key in set(profile(name).apis) & set(own):
            theirs, ours = profile(name).apis[key], own[key]
            assert theirs.first in ours and theirs.last in ours, (name, api_names()[key])


def test_every_behaviour_has_a_column_for_every_release() -> None:
    assert set(COLUMNS) == set(BEHAVIOUR_NAMES)
    for name, column in COLUMNS.items():
        assert " ".join(releases for releases, _ in column).split() == list(PROFILE_NAMES), name


@each("behaviour", COLUMNS)
def test_behaviours_of_every_release(behaviour: str) -> None:
    for releases, value in COLUMNS[behaviour]:
        for name in releases.split():
            found = getattr(profile(name).behaviour, behaviour)
            assert (found, type(found)) == (value, type(value)), name
    assert getattr(Behaviour(), behaviour) == COLUMNS[behaviour][-1][1]


def test_authorizer_classes_of_every_release() -> None:
    """From the source of each release, and of 4.0.0."""
    simple = "kafka.security.auth.SimpleAclAuthorizer"
    acl = "kafka.security.authorizer.AclAuthorizer"
    standard = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
    expected = {
        "0.8.2": (),
        f"{BEFORE_1.removeprefix('0.8.2 ')} 1.0.1 1.0 1.1 2.0.0 2.0 2.1 2.2 2.3": (simple,),
        "2.4 2.5 2.6 2.7 2.8": (acl, simple),
        "3.0 3.1": (acl,),
        f"3.2 3.3 3.4 3.5 {FROM_3_6}": (standard, acl),
        FROM_4: (standard,),
        "ottla": (standard, acl, simple),
    }
    assert {n: names for row, names in expected.items() for n in row.split()} == {
        name: profile(name).authorizers for name in PROFILE_NAMES
    }


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("5.0", ["4.4"]),
        ("2.9", ["2.8", "3.0"]),
        ("3.9.1", ["3.9", "4.0"]),
        ("0.10.3", ["0.10.2", "0.11"]),
        ("0.7", ["0.8.2"]),
        ("otla", ["ottla"]),
        ("", ["0.8.2", "4.4", "ottla"]),
        ("9" * 5000, ["0.8.2", "4.4", "ottla"]),
        ("٤.٣", ["0.8.2", "4.4", "ottla"]),
    ],
)
def test_unknown_release_suggests_its_neighbours(name: str, nearest: list[str]) -> None:
    with pytest.raises(UnknownRelease) as caught:
        profile(name)
    assert str(caught.value) == f"unknown release {name}; did you mean {' or '.join(nearest)}?"


@pytest.mark.parametrize(
    ("alias", "name"),
    [("0.9.0", "0.9"), ("0.10", "0.10.2"), ("0.11.0", "0.11"), ("1.0.0", "1.0.1"), ("0.8", "0.8.2")],
)
def test_release_aliases(alias: str, name: str) -> None:
    assert profile(alias) is profile(name)


@pytest.mark.parametrize(
    ("version", "magic"),
    [
        *[("0.8.2", 0), ("0.9.0", 0), ("0.9.0.1", 0), ("0.10.0-IV0", 1), ("0.10.2", 1)],
        *[("0.11.0", 2), ("1.0", 2), ("2.8", 2), ("2.8.2", 2), ("3.9-IV0", 2)],
    ],
)
def test_message_format_of_protocol_versions(version: str, magic: int) -> None:
    assert record_format(version) == magic


@pytest.mark.parametrize("version", ["", "4.0", "2.9", "0.11", "3.0-IV7", "latest", "3", "2.8-", "9" * 5000])
def test_unknown_protocol_versions_are_refused(version: str) -> None:
    with pytest.raises(ValueError, match="is not a valid version"):
        protocol_place(version)


def test_protocol_versions_are_ordered() -> None:
    order = ["0.8.0", "0.9.0", "0.10.0-IV1", "0.10.1", "0.10.2", "0.11.0", "1.0", "2.0", "2.8", "3.0-IV0", "3.0", "3.9"]
    places = [protocol_place(version) for version in order]
    assert places == sorted(set(places))


# ---- the command


def output_of(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert serve.releases(list(arguments)) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    return captured.out


def test_releases_command_lists_all_releases(capsys: pytest.CaptureFixture[str]) -> None:
    lines = output_of(capsys).splitlines()
    assert [line.split()[0] for line in lines] == ["release", *PROFILE_NAMES]
    row = next(line for line in lines if line.startswith("4.0.0 "))
    assert re.split(r"\s{2,}", row)[:4] == ["4.0.0", "3-12", "4-17", "v2"] and "old_formats=false" in row
    entries = json.loads(output_of(capsys, "--json"))
    assert [entry["release"] for entry in entries] == list(PROFILE_NAMES)
    assert entries[2] == {
        "release": "0.10.0",
        "produce": [0, 2],
        "fetch": [0, 2],
        "formats": ["v0", "v1"],
        "moved": {"newest_magic": 1},
    }
    assert markdown().count("\n") == len(PROFILE_NAMES) + 1


def test_releases_command_describes_one_release(capsys: pytest.CaptureFixture[str]) -> None:
    text = output_of(capsys, "4.0")
    assert re.search(r"^Produce +0 +3-12 +advertised 0-12$", text, re.MULTILINE)
    assert re.search(r"^wrong_batches +invalid$", text, re.MULTILINE) and "EndTxn" in text
    entry = json.loads(output_of(capsys, "2.8", "--json"))
    assert entry["apis"]["Fetch"] == {"key": 1, "advertised": [0, 12], "served": [0, 12]}
    assert entry["protocol_version"] == "2.8-IV1" and entry["not_here"] == {}
    assert entry["behaviour"]["drop_below_log_start"] is False and set(entry["behaviour"]) == set(BEHAVIOUR_NAMES)


def test_releases_command_compares_two_releases(capsys: pytest.CaptureFixture[str]) -> None:
    entry = json.loads(output_of(capsys, "--json", "3.9", "4.0.0"))
    assert entry["apis"]["Produce"] == {"from": [0, 11], "to": [3, 12]} and "Heartbeat" not in entry["apis"]
    assert entry["behaviour"]["old_formats"] == {"from": True, "to": False} and "one_magic" not in entry["behaviour"]
    topic = entry["configs"]["topic"]
    assert topic["gone"] == [
        "message.downconversion.enable",
        "message.format.version",
        "message.timestamp.difference.max.ms",
    ]
    assert topic["defaults"]["message.timestamp.after.max.ms"] == {"from": "9223372036854775807", "to": "3600000"}
    text = output_of(capsys, "3.9", "4.0.0")
    assert re.search(r"^  JoinGroup +0-9 +2-9$", text, re.MULTILINE)
    assert "topic configs only in 3.9: message.downconversion.enable" in text
    assert output_of(capsys, "2.8", "2.8") == "no difference between 2.8 and 2.8 that Ottla knows\n"


@pytest.mark.parametrize("arguments", [["3.10"], ["2.8", "x"], ["2.6", "2.7", "2.8"], ["--nonsense"]])
def test_releases_command_reports_errors_in_one_line(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        serve.releases(arguments)
    captured = capsys.readouterr()
    assert caught.value.code == 2 and captured.out == ""
    assert captured.err.startswith("ottla releases: ") and captured.err.count("\n") == 1


# ---- no other module compares releases


def strings_of(tree: ast.Module) -> set[str]:
    return {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)}


# Modules with the name of the distribution or of a marker.
CALLED_OTTLA = {
    "tools/main.py",
    "broker/control/openapi.py",
    "broker/version.py",
    "broker/testing/pytest_plugin.py",
    "broker/recording/files.py",
    "broker/recording/pcapng.py",
    "broker/recording/recorder.py",
    "broker/testing/client_settings.py",
    "broker/testing/security.py",
}


def test_no_other_module_compares_releases() -> None:
    """Code uses behaviours; a release's name has an effect only in the table."""
    names = set(RELEASES) | {"2.8.2", "3.0.2", "3.9.1", "4.1.1", "4.3.1", "ottla"}
    # Most modules have neither: parsing them would be most of the work.
    quoted = re.compile(f"""["'](?:{"|".join(map(re.escape, names))})["']""")
    compared_names = re.compile(r"\bprofile\.name\b|\brelease\b(?!\()|RELEASES")
    faults = []
    for path in sorted(path for folder in ("protocol", "storage", "broker") for path in (ROOT / folder).rglob("*.py")):
        text = path.read_text()
        if not quoted.search(text) and not compared_names.search(text):
            continue
        tree = ast.parse(text)
        where = path.relative_to(ROOT).as_posix()
        if where in tuple(f"broker/releases/{name}.py" for name in ("profiles", "behaviour", "loggers")):
            assert names & strings_of(tree)
            continue
        known = names - {"ottla"} if where in CALLED_OTTLA else names
        faults += [f"{where} has {name}" for name in sorted(known & strings_of(tree))]
        for node in ast.walk(tree):
            compared = [node.left, *node.comparators] if isinstance(node, ast.Compare) else []
            compared += [node.subject] if isinstance(node, ast.Match) else []
            faults += [
                f"{where}:{part.lineno} compares {ast.unparse(part)}"
                for part in compared
                if re.search(r"\bprofile\.name$|\brelease$", ast.unparse(part)) or "RELEASES" in ast.unparse(part)
            ]
    assert faults == []


def test_every_behaviour_is_used() -> None:
    """Some serving module uses each behaviour; modules that only show and set them do not count."""
    left_out = {"releases/profiles.py", "releases/behaviour.py", "config/message_format.py"}
    broker = ROOT / "broker"
    paths = [path for path in broker.rglob("*.py") if path.relative_to(broker).as_posix() not in left_out]
    texts = [text for text in (path.read_text() for path in paths) if "behaviour" in text]
    nodes = [node for text in texts for node in ast.walk(ast.parse(text))]
    read = {node.attr for node in nodes if isinstance(node, ast.Attribute) and "behaviour" in ast.unparse(node.value)}
    by_rules = {
        "timestamp_range",
        "newest_magic",
        "v2_from_ibp_3",
    }  # `config/test_message_format.py` covers the effects of these
    assert set(BEHAVIOUR_NAMES) - read - by_rules == set()


def test_each_advertised_api_is_served_or_has_a_reason() -> None:
    for name in RELEASES:
        played = profile(name)
        served = apis_of(played).advertised
        for key in played.apis_of_kafka:
            if why_not_served(key) is not None:
                assert key not in served, (name, key)
            else:
                assert served.get(key) == played.apis.get(key), (name, key)
                assert key in served or key in TELEMETRY_KEYS, (name, key)
    assert not {key for key in ROUTES if why_not_served(key)}
