"""Records of share groups compared with the bytes of Apache Kafka 4.3.1's `GroupCoordinatorRecordSerde`."""

from __future__ import annotations

import pytest

from ottla.broker.groups.common_state import AssignmentEpochSet, Checked, CurrentSet, EpochSet, InfoSet, TargetSet
from ottla.broker.groups.record_form import Format
from ottla.broker.groups.share.records import decode, encode_all
from ottla.broker.groups.share.state import Change, Current, Info, Initialization, InitializationSet, Initialized
from ottla.protocol.errors import MalformedMessage
from ottla_testing.each import each

ID = bytes.fromhex("00000000000000010000000000000002")
INFO = Info(None, "r", "c", "/127.0.0.1", topics=frozenset({"t"}))
ASSIGNED = {ID: frozenset({0, 1})}
INITIALIZATION = Initialization(
    {ID: Initialized("t", frozenset({2}))}, {ID: Initialized("t", frozenset({0, 1}))}, {ID: "t"}
)
PARTITIONS = "000000000000000100000000000000020300000000000000010000"
GOLDEN: list[tuple[Change, str, str | None]] = [
    (InfoSet("m1", INFO), "000a00016700026d31", "0000027202630b2f3132372e302e302e3102027400"),
    (EpochSet(7, -99), "000b000167", "000000000007ffffffffffffff9d00"),
    (TargetSet("m1", ASSIGNED), "000d00016700026d31", "000002" + PARTITIONS),
    (CurrentSet("m1", Current(4, 3, assigned=ASSIGNED)), "000e00016700026d31", "000000000004000000030002" + PARTITIONS),
    (
        InitializationSet(INITIALIZATION),
        "000f000167",
        "0000020000000000000001000000000000000202740200000002000200000000000000010000000000000002027403000000000000000100"
        "020000000000000001000000000000000202740000",
    ),
    (InfoSet("m1", None), "000a00016700026d31", None),
    (TargetSet("m1", None), "000d00016700026d31", None),
    (CurrentSet("m1", None), "000e00016700026d31", None),
    (EpochSet(None), "000b000167", None),
]


def decoded(record: tuple[bytes, bytes | None]) -> tuple[str, Change] | None:
    read = decode(int.from_bytes(record[0][:2], "big"), *record)
    return None if read is None else read[:2]


@each(("change", "key", "value"), GOLDEN)
def test_records_have_kafkas_bytes(change: Change, key: str, value: str | None) -> None:
    record = bytes.fromhex(key), None if value is None else bytes.fromhex(value)
    assert encode_all("g", [change, Checked(1)]) == [record]
    assert decoded(record) == ("g", change)


def test_time_of_the_assignment_is_stored_since_4_3() -> None:
    for has_times, at_ms in ((True, 5), (False, 0)):
        (record,) = encode_all("g", [AssignmentEpochSet(7, 5)], Format(assignment_time=has_times))
        assert decoded(record) == ("g", AssignmentEpochSet(7, at_ms))


def test_other_records_are_skipped_and_malformed_ones_refused() -> None:
    assert decoded((b"\0\x02" + b"\0\x01g", None)) is None
    for key, value in (
        (b"\0\x0b\0\x02g", None),
        (b"\0\x0b\0\x01g", b"\0"),
        (b"\0\x0b\0\x01g", b"\0\x01"),
    ):
        with pytest.raises(MalformedMessage):
            decoded((key, value))
