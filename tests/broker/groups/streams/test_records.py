"""Records of streams groups compared with the bytes of Apache Kafka 4.4.0's `GroupCoordinatorRecordSerde`."""

from __future__ import annotations

import pytest

from ottla.broker.groups.common_state import AssignmentEpochSet, Checked, CurrentSet, InfoSet, MemberState, TargetSet
from ottla.broker.groups.loading import load_groups
from ottla.broker.groups.record_form import Format
from ottla.broker.groups.streams.records import decode, encode_all
from ottla.broker.groups.streams.state import Change, Current, Endpoint, EpochSet, Group, HeldTasks, Info, TopologySet
from ottla.broker.groups.streams.values import CopartitionGroup, InternalTopic, Subtopology, TasksTuple, Topology
from ottla.protocol.errors import MalformedMessage
from ottla_testing.each import each

FULL = Info("i", None, "c", "/127.0.0.1", 1000, None, 3, "p", Endpoint("h", 60000), {"k": "v"})
PLAIN = Info(None, "r", "c", "/h", topology_epoch=0)
CURRENT = Current(
    4,
    3,
    MemberState.UNREVOKED,
    HeldTasks({"0": {0: 4, 1: 3}}, {"1": frozenset({2})}),
    HeldTasks({"0": {5: 2}}, {}, {"1": frozenset({3})}),
)
SENT = Topology(
    3,
    {
        "0": Subtopology(
            "0",
            ("in",),
            (),
            ("out",),
            (InternalTopic("log", 0, 0, (("cleanup.policy", "compact"),)),),
            (InternalTopic("rep", 4, 1),),
            (CopartitionGroup((0,), (), (0,)),),
        )
    },
)
GOLDEN: list[tuple[Change, str, str | None]] = [
    (
        EpochSet(7, -99, 3, {"num.standby.replicas": "1"}),
        "0011000167",
        "000000000007ffffffffffffff9d02000400000003011902156e756d2e7374616e6462792e7265706c69636173023100",
    ),
    (
        EpochSet(7, -99, description=(4, 3)),
        "0011000167",
        "000000000007ffffffffffffff9d02020400000004030400000003",
    ),
    (EpochSet(None), "0011000167", None),
    (
        InfoSet("m1", FULL),
        "001300016700026d31",
        "000002690002630b2f3132372e302e302e31000003e8000000030270010268ea600002026b02760000",
    ),
    (InfoSet("m1", PLAIN), "001300016700026d31", "00000002720263032f68ffffffff0000000001ff0100"),
    (InfoSet("m1", None), "001300016700026d31", None),
    (AssignmentEpochSet(7, 5), "0014000167", "0000000000070100080000000000000005"),
    (AssignmentEpochSet(7), "0014000167", "00000000000700"),
    (
        TargetSet("m1", TasksTuple({"0": frozenset({0, 1})}, {"1": frozenset({2})})),
        "001500016700026d31",
        "0000020230030000000000000001000202310200000002000100",
    ),
    (
        CurrentSet("m1", CURRENT),
        "001600016700026d31",
        "000000000004000000030202023003000000000000000101000903000000040000000302023102000000020001020230020000000501"
        "000502000000020102023102000000030000",
    ),
    (CurrentSet("m1", None), "001600016700026d31", None),
    (
        TopologySet(SENT),
        "0017000167",
        "0000000000030202300203696e0102046c6f67000000000000020f636c65616e75702e706f6c69637908636f6d70616374000002046f"
        "7574020472657000000004000101000202000001020000000000",
    ),
    (TopologySet(None), "0017000167", None),
]


def decoded(record: tuple[bytes, bytes | None]) -> tuple[str, Change, bool] | None:
    read = decode(int.from_bytes(record[0][:2], "big"), *record)
    return None if read is None else read[:3]


@each(("change", "key", "value"), GOLDEN)
def test_records_have_kafkas_bytes(change: Change, key: str, value: str | None) -> None:
    record = bytes.fromhex(key), None if value is None else bytes.fromhex(value)
    assert encode_all("g", [change, Checked(1)]) == [record]
    assert decoded(record) == ("g", change, value is None)


def test_tasks_without_epochs_count_as_assigned_in_the_epoch_of_the_member() -> None:
    """As written by 4.1; the state 9 is unknown."""
    value = bytes.fromhex("0000000000040000000309020230020000000000010101010100")
    read = decoded((bytes.fromhex("001600016700026d31"), value))
    assert read == ("g", CurrentSet("m1", Current(4, 3, MemberState.UNKNOWN, HeldTasks({"0": {0: 4}}))), False)


def test_time_of_the_assignment_is_stored_since_4_3() -> None:
    for has_times, at_ms in ((True, 5), (False, 0)):
        (record,) = encode_all("g", [AssignmentEpochSet(7, 5)], Format(assignment_time=has_times))
        assert decoded(record) == ("g", AssignmentEpochSet(7, at_ms), False)


def test_other_records_are_skipped_and_malformed_ones_refused() -> None:
    assert decoded((b"\0\x02" + b"\0\x01g", None)) is None
    assert decoded((b"\0\x12" + b"\0\x01g", None)) is None, "no release wrote key 18"
    for key, value in (
        (b"\0\x11\0\x02g", None),
        (b"\0\x11\0\x01g", b"\0"),
        (b"\0\x11\0\x01g", b"\0\x01"),
    ):
        with pytest.raises(MalformedMessage):
            decoded((key, value))


def test_group_is_loaded_from_its_records_and_removed_by_its_tombstones() -> None:
    stored = [
        (bytes.fromhex(key), bytes.fromhex(value))
        for _, key, value in GOLDEN
        if value is not None and key[:4] != "0014"
    ]
    (group, _) = load_groups(stored, iter(range(100)), 1)["g"]
    assert isinstance(group, Group)
    assert (group.epoch, group.topology, group.description) == (7, SENT, (4, 3))
    assert group.members["m1"].current == CURRENT and group.active == dict.fromkeys([("0", 0), ("0", 1), ("0", 5)], "")
    ends = [(bytes.fromhex(key), None) for _, key, _ in GOLDEN]
    assert load_groups([*stored, *ends], iter(range(100)), 1) == {}
    assert load_groups(ends, iter(range(100)), 1) == {}
