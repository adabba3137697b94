"""Transactions in Kafka's record format: golden bytes, Kafka's own logs, all versions."""

from __future__ import annotations

import contextlib
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.broker.transactions import records
from ottla.broker.transactions.records import TransactionEntry
from ottla.broker.transactions.state import Transaction, TransactionState
from ottla.protocol.errors import MalformedMessage
from ottla.protocol.records import formats
from ottla_testing import GOLDEN

GOLDEN = GOLDEN / "directories"
NOW = 1_700_000_000_000

KEY = bytes.fromhex("0000" "0002" "7478")  # fmt: skip
VALUE_V0 = bytes.fromhex(
    "0000"
    "0000000000000102"  # producer id
    "0007"  # epoch
    "0000ea60"  # time-out 60000
    "01"  # Ongoing
    "00000002"  # topics
    "0001" "74" "00000002" "00000003" "00000001"  # t: 3, 1
    "0001" "75" "00000001" "00000000"  # u: 0
    "0000018bcfe56be8"  # last update, 1 s after
    "0000018bcfe56800"  # start
)  # fmt: skip
VALUE_V1 = bytes.fromhex(
    "0001"
    "0000000000000102"
    "0007"
    "0000ea60"
    "03"  # PrepareAbort
    "03"  # two topics
    "02" "74" "03" "00000003" "00000001" "00"
    "02" "75" "02" "00000000" "00"
    "0000018bcfe56be8"
    "0000018bcfe56800"
    "04"  # tags
    "00" "08" "0000000000000101"  # previous producer id
    "01" "08" "0000000000000103"  # next producer id
    "02" "02" "0002"  # the client's version
    "03" "02" "0009"  # next epoch
)  # fmt: skip

PARTITIONS = (("t", 3), ("t", 1), ("u", 0))
ONGOING = Transaction("tx", 0x102, 7, 60_000, TransactionState.ONGOING, PARTITIONS, NOW, NOW + 1000)
ABORTING = replace(
    ONGOING,
    state=TransactionState.PREPARE_ABORT,
    previous_producer_id=0x101,
    next_producer_id=0x103,
    next_producer_epoch=9,
    client_version=2,
)


def test_golden_version_0() -> None:
    assert records.transaction_record(ONGOING, 0) == (KEY, VALUE_V0)
    assert records.decode(KEY, VALUE_V0) == TransactionEntry("tx", ONGOING)


def test_golden_version_1() -> None:
    assert records.transaction_record(ABORTING) == (KEY, VALUE_V1)
    assert records.decode(KEY, VALUE_V1) == TransactionEntry("tx", ABORTING)


def test_version_0_omits_the_fields_of_kip_890() -> None:
    _, value = records.transaction_record(ABORTING, 0)
    assert value == VALUE_V0[:16] + b"\3" + VALUE_V0[17:]


def test_partitions_are_grouped_by_topic() -> None:
    mixed = replace(ONGOING, partitions=(("t", 3), ("u", 0), ("t", 1)))
    assert records.transaction_record(mixed, 0) == (KEY, VALUE_V0)


def test_an_empty_transaction_has_null_for_partitions_and_a_complete_one_none() -> None:
    empty = Transaction("tx", 1, 0, 60_000, last_update_ms=NOW)
    value = bytes.fromhex("0000000000000000000100000000ea6000ffffffff0000018bcfe56800" + "ff" * 8)
    assert records.transaction_record(empty, 0) == (KEY, value)
    assert records.decode(KEY, value) == TransactionEntry("tx", empty)
    complete = replace(empty, state=TransactionState.COMPLETE_COMMIT)
    value = value[:16] + b"\4" + bytes(4) + value[21:]
    assert records.transaction_record(complete, 0) == (KEY, value)
    assert records.decode(KEY, value) == TransactionEntry("tx", complete)


def test_tombstones() -> None:
    assert records.transaction_tombstone("tx") == (KEY, None)
    assert records.decode(KEY, None) == TransactionEntry("tx", None)


def test_too_long_id_raises() -> None:
    with pytest.raises(MalformedMessage):
        records.transaction_tombstone("x" * 40_000)


@pytest.mark.parametrize(("release", "version"), [("2.8.2", 0), ("3.9.1", 0), ("4.3.1", 1)])
def test_records_of_kafka_round_trip_byte_for_byte(release: str, version: int) -> None:
    states: dict[str, list[TransactionState]] = {}
    for path in sorted((GOLDEN / release / "__transaction_state-0").glob("*.log")):
        data = path.read_bytes()
        for position, _ in formats.headers(data):
            for record in formats.records(data, position):
                assert record.key is not None and record.value is not None
                key, value = bytes(record.key), bytes(record.value)
                entry = records.decode(key, value)
                assert entry is not None and entry.transaction is not None
                assert records.transaction_record(entry.transaction, version) == (key, value)
                states.setdefault(entry.transactional_id, []).append(entry.transaction.state)
    short = {name: "".join(str(records.STATE_IDS[state]) for state in found) for name, found in states.items()}
    assert short == {"one": "0135135124", "two": "0124124", "three": "01", "cleaned": "0124135124135"}


@pytest.mark.parametrize("key_type", [1, 2, 300, -1])
def test_keys_of_other_types_are_ignored(key_type: int) -> None:
    assert records.decode(key_type.to_bytes(2, "big", signed=True) + b"\0\2tx", VALUE_V0) is None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"", None),
        (b"\0", None),
        (KEY[:-1], None),
        (KEY, b""),
        (KEY, b"\0\2" + VALUE_V0[2:]),
        (KEY, b"\xff\xff" + VALUE_V0[2:]),
        (KEY, VALUE_V0[:-1]),
        (KEY, VALUE_V0 + b"\0"),
        (KEY, VALUE_V0[:16] + b"\6" + VALUE_V0[17:]),
        (KEY, VALUE_V0[:16] + b"\7" + VALUE_V0[17:]),
        (KEY, VALUE_V0[:16] + b"\xff" + VALUE_V0[17:]),
    ],
)
def test_malformed_record_raises(key: bytes, value: bytes | None) -> None:
    with pytest.raises(MalformedMessage):
        records.decode(key, value)


@given(st.binary(max_size=20), st.none() | st.binary(max_size=80), st.sampled_from([b"\0\0", b"\0\1", b""]))
def test_random_bytes_are_decoded_or_refused(key: bytes, value: bytes | None, start: bytes) -> None:
    with contextlib.suppress(MalformedMessage):
        records.decode(b"\0\0" + key, None if value is None else start + value)


times = st.integers(-1, 2**62)
transactions = st.builds(
    Transaction,
    st.text(max_size=20),
    st.integers(0, 2**63 - 1),
    st.integers(-1, 2**15 - 1),
    st.integers(0, 2**31 - 1),
    st.sampled_from([state for state in records.STATE_IDS if state is not TransactionState.EMPTY]),
    st.lists(st.sampled_from("tu"), unique=True).map(
        lambda topics: tuple((topic, n) for topic in topics for n in (2, 0))
    ),
    times,
    times,
    previous_producer_id=st.integers(-1, 2**62),
    next_producer_id=st.integers(-1, 2**62),
    next_producer_epoch=st.integers(-1, 2**15 - 1),
    client_version=st.sampled_from([0, 2]),
)


@given(transactions)
def test_record_round_trip(transaction: Transaction) -> None:
    assert records.decode(*records.transaction_record(transaction)) == (transaction.transactional_id, transaction)
