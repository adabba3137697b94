"""`ottla explain --transactions`: the transactions, how each ended, and which ones hold back the last stable offset."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.transactions.records import transaction_tombstone
from ottla.broker.transactions.state import NO_TIMEOUT_MS, Transaction, TransactionState
from ottla.storage.producers import snapshot
from ottla.storage.producers.producer_state import CachedBatch, Producer
from ottla.tools.explain import command, transactions
from ottla.tools.explain.command import explain
from ottla.tools.explain.transactions import OPEN, Coordinators, InPartition, status_at_coordinator
from ottla_testing import GOLDEN
from ottla_testing.broker.producer_logs import (
    NOW,
    STARTED,
    CoordinatorLog,
    Log,
    Run,
    contents,
    report,
    requested,
    runner,
)
from ottla_testing.each import each

DIRECTORIES = GOLDEN / "directories"
RELEASES = ("2.8.2", "3.9.1", "4.3.1")
ABORT, COMMIT = 0, 1


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    return runner(explain, capsys)


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log(tmp_path)


def seen(run: Run, *arguments: object) -> dict[str, list[tuple[Any, ...]]]:
    """Returns (producer, offsets, state, marker's offset) of each transaction, by partition."""
    return {
        f"{one['topic']}-{one['partition']}": [
            (of["producer_id"], (of["first_offset"], of["last_offset"]), of["state"], of["marker_offset"])
            for of in one["transactions"]
        ]
        for one in report(run, "--transactions", *arguments)["partitions"]
    }


def only(run: Run, *arguments: object) -> Any:
    """Returns the explanation of the only partition."""
    (one,) = report(run, "--transactions", *arguments)["partitions"]
    return one


# --- the page


PAGE = """\
t-0, log start offset 0

OFFSETS            PRODUCER  EPOCH  TRANSACTIONAL ID      BATCHES  RECORDS   BEGUN (UTC)              OUTCOME
0-6                7         0      loader                2        5         2023-11-14 22:13:21.000\
  committed at offset 7, 2023-11-14 22:13:24.000, epoch 1, coordinator epoch 5
2-3                9         3      -                     1        2         2023-11-14 22:13:22.000\
  aborted at offset 8, 2023-11-14 22:13:25.000, coordinator epoch 2
-                  9         3      -                     -        -         -                      \
  committed at offset 9, 2023-11-14 22:13:26.000, coordinator epoch 5
  no records in this log: none were written here, or they were removed
14                 7         1      loader                1        1         2023-11-14 22:13:28.000  open, ongoing
15                 9         3      -                     1        1         2023-11-14 22:13:29.000  open, hanging
  ! no coordinator in this directory has this producer: nothing will end it

log end offset 16, last stable offset 14: 1 aborted, 1 committed, 1 without records here, 2 open
  held back by producer 7 epoch 1, transactional id "loader": transaction open since offset 14\
 (2023-11-14 22:13:28.000)
  Ongoing since 2023-11-14 22:13:20.500, time-out 1 min: its coordinator aborts it after 2023-11-14 22:14:20.500

At their coordinators:
TRANSACTIONAL ID  PRODUCER  EPOCH  STATE    BEGUN (UTC)              TIME-OUT  TIMES OUT (UTC)          PARTITIONS
loader            7         1      Ongoing  2023-11-14 22:13:20.500  1 min     2023-11-14 22:14:20.500  t-0
"""


def mixed(log: Log) -> Log:
    log.batch(7, 0, 0, 2, transactional=True)
    log.batch(9, 3, 0, 2, transactional=True)
    log.batch(7, 0, 2, 3, transactional=True)
    log.marker(7, 1)
    log.marker(9, 3, ABORT, coordinator_epoch=2)
    log.marker(9, 3)
    log.plain(4)
    log.batch(7, 1, 0, 1, transactional=True)
    log.batch(9, 3, 2, 1, transactional=True)
    CoordinatorLog(log.directory).write("loader", 7, 1)
    return log


def test_whole_page(run: Run, log: Log) -> None:
    before = contents(mixed(log).directory)
    code, out, err = run("--transactions", log.directory)
    assert (code, err) == (0, "")
    assert out == PAGE
    assert contents(log.directory) == before


def test_json_has_every_field(run: Run, log: Log) -> None:
    found = report(run, "--transactions", mixed(log).directory)
    assert found["directory"] == str(log.directory)
    (partition,) = found["partitions"]
    ended, _, _, is_open, hanging = partition.pop("transactions")
    assert ended == {
        "transactional_id": "loader",
        "producer_id": 7,
        "epoch": 0,
        "first_offset": 0,
        "last_offset": 6,
        "batches": 2,
        "records": 5,
        "begun_ms": NOW + 1000,
        "newest_ms": NOW + 3002,
        "state": "committed",
        "marker_offset": 7,
        "marker_epoch": 1,
        "coordinator_epoch": 5,
        "ended_ms": NOW + 4000,
        "timeout_ms": 60_000,
        "standing": None,
    }
    stands = is_open["standing"]
    assert (stands["kind"], stands["ends_ms"]) == ("ongoing", STARTED + 60_000)
    assert (hanging["standing"]["kind"], hanging["transactional_id"]) == ("hanging", None)
    assert partition == {
        "topic": "t",
        "partition": 0,
        "log_start_offset": 0,
        "log_end_offset": 16,
        "last_stable_offset": 14,
        "transaction_counts": {"committed": 1, "aborted": 1, "empty": 1, "open": 2},
        "held_back_by": {
            "producer_id": 7,
            "epoch": 1,
            "transactional_id": "loader",
            "first_offset": 14,
            "begun_ms": NOW + 8000,
            "standing": stands,
        },
        "damage": None,
    }
    assert found["transactional_ids"] == [
        {
            "transactional_id": "loader",
            "producer_id": 7,
            "producer_epoch": 1,
            "state": "Ongoing",
            "timeout_ms": 60_000,
            "start_ms": STARTED,
            "last_update_ms": STARTED + 250,
            "times_out_ms": STARTED + 60_000,
            "partitions": [{"topic": "t", "partition": 0}],
        }
    ]


def test_page_of_a_partition_shows_what_holds_back_the_last_stable_offset(run: Run, log: Log) -> None:
    code, out, _ = run(*requested(mixed(log), "--producer-id", 9))
    assert code == 0
    assert (
        "log end offset 16\n"
        "  4 records in 1 batch without a producer id, not shown\n"
        "  transactions: 1 aborted, 1 committed, 1 without records here, 2 open\n"
        "  last stable offset 14\n"
        '  held back by producer 7 epoch 1, transactional id "loader": transaction open since offset 14'
    ) in out
    found = report(run, *requested(log))
    assert (found["last_stable_offset"], found["held_back_by"]["producer_id"]) == (14, 7)
    assert found["transaction_counts"] == {"committed": 1, "aborted": 1, "empty": 1, "open": 2}


# --- which transactions


@each("release", RELEASES, strided=True)
def test_transactions_of_directories_of_kafka(run: Run, release: str) -> None:
    found = report(run, "--transactions", DIRECTORIES / release)
    partitions = {f"{one['topic']}-{one['partition']}": one for one in found["partitions"]}
    (open_one,) = partitions["open-transaction-0"]["transactions"]
    assert (open_one["transactional_id"], open_one["first_offset"], open_one["last_offset"]) == ("three", 4, 7)
    assert open_one["standing"]["kind"] == "ongoing"
    assert partitions["open-transaction-0"]["last_stable_offset"] == 4
    done = partitions["transactions-0"]
    assert done["transaction_counts"] == {"committed": 3, "aborted": 2, "open": 0}
    assert done["last_stable_offset"] == done["log_end_offset"] == 26
    assert done["held_back_by"] is None
    assert {of["transactional_id"] for of in done["transactions"]} == {"one", "two"}
    # Exactly those of Kafka's transaction index.
    aborted = {
        struct.unpack(">hqqqq", data[at : at + 34])[1:4]
        for path in (DIRECTORIES / release / "transactions-0").glob("*.txnindex")
        for data in [path.read_bytes()]
        for at in range(0, len(data), 34)
    }
    assert aborted == {
        (of["producer_id"], of["first_offset"], of["marker_offset"])
        for of in done["transactions"]
        if of["state"] == "aborted"
    }
    compacted = partitions["compacted-transactions-0"]
    assert compacted["transaction_counts"] == {"committed": 2, "aborted": 1, "empty": 1, "open": 0}
    assert [one["transactional_id"] for one in found["transactional_ids"]] == ["three"]


def test_markers_before_the_log_start_are_not_shown(run: Run, log: Log) -> None:
    log.batch(7, 0, 0, 2, transactional=True)
    log.marker(7, 0)
    log.batch(7, 0, 2, 2, transactional=True)
    log.batch(8, 0, 0, 2, transactional=True)
    log.marker(7, 0, ABORT)
    log.start_at(5)
    code, out, _ = run("--transactions", log.directory)
    assert code == 0
    assert out.count("begun below the log start") == 1
    found = only(run, log.directory)
    assert [(of["producer_id"], of["first_offset"]) for of in found["transactions"]] == [(7, 3), (8, 5)]
    assert found["transaction_counts"] == {"aborted": 1, "open": 1}
    assert found["last_stable_offset"] == 5


@pytest.mark.parametrize("at", [40, 41])
def test_begin_in_a_deleted_segment_is_known_from_a_snapshot(run: Run, tmp_path: Path, at: int) -> None:
    """The oldest snapshot has most: a broker keeps none at the begin of the first segment."""
    log = Log(tmp_path, offset=40)
    cached = (CachedBatch(0, 9, 20, 29, NOW),)
    open_one, other, marked = (
        Producer(2, cached, 29, NOW, -1, 20),
        Producer(0, cached, 29, NOW),
        (0, (), 39, NOW, 1, 31),
    )
    (log.folder / snapshot.file_name(at)).write_bytes(
        snapshot.dump({7: open_one, 8: other, 9: Producer(*marked), 10: open_one._replace(transaction_first_offset=40)})
    )
    (log.folder / snapshot.file_name(42)).write_bytes(snapshot.dump({7: open_one}))
    (log.folder / snapshot.file_name(39)).write_bytes(snapshot.dump({11: open_one}))
    log.batch(8, 0, 10)
    log.marker(9, 0)
    found = only(run, tmp_path)
    assert [(of["producer_id"], of["first_offset"], of["batches"], of["state"]) for of in found["transactions"]] == [
        (9, 31, 0, "committed"),
        (7, 20, 0, "open"),
    ]
    assert found["last_stable_offset"] == 40
    _, out, _ = run("--transactions", tmp_path)
    assert "transaction open since offset 20, below the log start\n" in out


def test_batch_without_a_transaction_neither_begins_nor_joins_one(run: Run, log: Log) -> None:
    log.batch(7, 0, 0, 2)
    log.batch(7, 0, 2, 2, transactional=True)
    log.batch(7, 0, 4, 2)
    found = only(run, log.directory)
    assert [(of["first_offset"], of["last_offset"], of["records"]) for of in found["transactions"]] == [(2, 3, 2)]


def test_undecodable_marker_ends_the_transaction(run: Run, log: Log) -> None:
    log.batch(7, 0, 0, transactional=True)
    log.marker(7, 0, kind=5)
    assert seen(run, log.directory) == {"t-0": [(7, (0, 0), "ended", 1)]}


def test_partitions_and_producers_are_chosen(run: Run, tmp_path: Path) -> None:
    for pid, (topic, partition) in enumerate([("a", 0), ("a", 1), ("b", 0)]):
        log = Log(tmp_path, topic, partition)
        log.batch(pid, 0, 0, transactional=True)
        log.batch(9, 0, 0, transactional=True)
    Log(tmp_path, "plain").batch(1, 0, 0)
    coordinators = CoordinatorLog(tmp_path)
    coordinators.write("first", 0, partitions=(("a", 0),))
    coordinators.write("second", 2, partitions=(("b", 0),))
    coordinators.write("idle", 12, state="CompleteCommit", partitions=())

    def producers(*arguments: object) -> dict[str, list[int]]:
        return {name: [of[0] for of in found] for name, found in seen(run, tmp_path, *arguments).items()}

    def ids(*arguments: object) -> list[str]:
        found = report(run, "--transactions", tmp_path, *arguments)["transactional_ids"]
        return [one["transactional_id"] for one in found]

    assert producers() == {"a-0": [0, 9], "a-1": [1, 9], "b-0": [2, 9]}
    assert producers("--topic", "a") == {"a-0": [0, 9], "a-1": [1, 9]}
    assert producers("--partition", 1) == {"a-1": [1, 9]}
    assert producers("--topic", "a", "--producer-id", 0) == {"a-0": [0], "a-1": []}  # held back by others, so shown
    assert producers("--topic", "plain", "--partition", 0) == {"plain-0": []}
    assert producers("--topic", "plain") == {}
    assert producers("--topic", "b", "--transactional-id", "second") == {"b-0": [2]}
    assert ids() == ["first", "second"]
    assert ids("--topic", "a") == ["first"]
    assert ids("--topic", "b", "--partition", 0) == ["second"]
    assert ids("--producer-id", 2) == ["second"]
    assert ids("--transactional-id", "idle") == ["idle"]


def test_no_transactions(run: Run, log: Log) -> None:
    log.batch(7, 0, 0)
    assert run("--transactions", log.directory) == (0, "no transactions\n", "")
    assert report(run, "--transactions", log.directory)["partitions"] == []
    _, out, _ = run("--transactions", log.directory, "--topic", "t", "--partition", 0)
    assert out == (
        "t-0, log start offset 0\n\nno matching transactions\n\nlog end offset 1, last stable offset 1: none open\n"
    )


# --- the status of an open one


OF = InPartition(7, 3, 4, 5, 1, 2, NOW, NOW, OPEN)


def known(state: str = "Ongoing", **fields: Any) -> Coordinators:
    values: dict[str, Any] = {
        "producer_id": 7,
        "producer_epoch": 3,
        "timeout_ms": 1000,
        "start_ms": STARTED,
        "partitions": (("u", 0), ("t", 1)),
    }
    return Coordinators([Transaction("id", state=TransactionState(state), **values | fields)])


STANDINGS: list[tuple[Coordinators, str, str, int | None]] = [
    (known(), "ongoing", "time-out 1 s: its coordinator aborts it after", STARTED + 1000),
    (known(timeout_ms=NO_TIMEOUT_MS), "ongoing", "no time-out", -1),
    (known(producer_epoch=4), "hanging", "has another transaction, of producer 7 epoch 4", None),
    (known(producer_id=8, previous_producer_id=7), "hanging", "has another transaction, of producer 8 epoch 3", None),
    (known(partitions=(("t", 0), ("u", 1))), "hanging", "Ongoing at its coordinator, without this partition", None),
    (known("PrepareCommit"), "ending", "PrepareCommit: decided, its COMMIT marker is not written here", None),
    (known("PrepareAbort", producer_epoch=4, last_update_ms=NOW), "ending", "decided at 2023-11-14 22:13:20.000", None),
    (known("PrepareAbort", partitions=()), "hanging", "PrepareAbort at its coordinator, without this", None),
    (known("CompleteAbort", partitions=()), "hanging", "CompleteAbort at its coordinator, already ended there", None),
    (known("CompleteCommit"), "hanging", "CompleteCommit at its coordinator, already ended there", None),
    (known("Empty", partitions=()), "hanging", "Empty at its coordinator, already ended there", None),
    (known(producer_id=8), "hanging", "no coordinator here has this producer", None),
    (Coordinators(cannot="no coordinator"), "unknown", "no coordinator", None),
]


@pytest.mark.parametrize(("coordinators", "kind", "text", "ends_ms"), STANDINGS)
def test_status_of_an_open_transaction_at_its_coordinator(
    coordinators: Coordinators, kind: str, text: str, ends_ms: int | None
) -> None:
    found = status_at_coordinator("t", 1, OF, coordinators)
    assert (found.kind, found.ends_ms) == (kind, ends_ms)
    assert text in found.why


def test_expired_id_ends_no_transaction(run: Run, log: Log) -> None:
    log.batch(7, 0, 0, transactional=True)
    coordinators = CoordinatorLog(log.directory)
    coordinators.write("loader", 7, state="CompleteCommit", partitions=())
    coordinators.put(*transaction_tombstone("loader"))
    (of,) = only(run, log.directory)["transactions"]
    assert of["transactional_id"] == "loader"
    assert of["standing"]["kind"] == "hanging"
    assert 'the transactional id "loader" has expired' in of["standing"]["why"]


def test_id_of_any_letters_is_one_line(run: Run, log: Log) -> None:
    log.batch(7, 0, 0, transactional=True)
    CoordinatorLog(log.directory).write('a\n\x1b"b', 7)
    _, out, _ = run("--transactions", log.directory)
    assert out.count('a\\n\\x1b\\"b') == 3
    assert "\x1b" not in out
    assert only(run, log.directory)["transactions"][0]["transactional_id"] == 'a\n\x1b"b'


def test_newest_record_of_an_id_counts(run: Run, log: Log) -> None:
    log.batch(7, 4, 0, transactional=True)
    coordinators = CoordinatorLog(log.directory)
    for state in ("Empty", "Ongoing", "PrepareCommit"):
        coordinators.write("loader", 7, 4, state)
    coordinators.put(b"\x00\x09other", b"\x00\x00")  # a type that is not a transaction's
    coordinators.put(b"\x00\x00\x00\x01x", b"\x00\x63")  # an unknown, newer version
    (of,) = only(run, log.directory)["transactions"]
    assert of["standing"]["kind"] == "ending"


def test_status_is_unknown_without_transaction_state(run: Run, log: Log) -> None:
    log.batch(7, 0, 0, transactional=True)
    (of,) = only(run, log.directory)["transactions"]
    assert of["standing"] == {
        "kind": "unknown",
        "why": "no __transaction_state in this directory: the coordinator's state is unknown",
        "ends_ms": None,
    }


@pytest.mark.parametrize("what", ["begins", "ends"])
def test_change_while_reading_is_not_reported_as_hanging(
    run: Run, log: Log, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """The coordinator's log is read before the partition's, and again for each transaction that seems to hang."""
    log.batch(7, 0, 0, transactional=True)
    coordinators = CoordinatorLog(log.directory)
    coordinators.write("loader", 7, state="Empty", partitions=())
    read, times = transactions.read_directory, []

    def reading(directory: str) -> Coordinators:
        times.append(directory)
        if len(times) == 2:
            if what == "begins":
                coordinators.write("loader", 7)
            else:
                log.marker(7, 0)
        return read(directory)

    for module in (transactions, command):
        monkeypatch.setattr(module, "read_directory", reading)
    (of,) = only(run, log.directory)["transactions"]
    assert len(times) == 2
    assert of["standing"]["kind"] == {"begins": "ongoing", "ends": "ending"}[what]
    monkeypatch.undo()
    assert [of["state"] for of in only(run, log.directory)["transactions"]] == [
        {"begins": "open", "ends": "committed"}[what]
    ]


def test_coordinator_in_another_directory_may_have_the_id(run: Run, log: Log) -> None:
    """As with several log.dirs: if this directory has one record of an id it has all, as an id has one partition."""
    log.batch(7, 0, 0, transactional=True)
    log.batch(8, 0, 0, transactional=True)
    for partition in (0, 2):
        CoordinatorLog(log.directory, partition).write(f"id {partition}", 8, state="CompleteAbort", partitions=())
    unknown, hanging = only(run, log.directory, "--topic", "t")["transactions"]
    assert (unknown["standing"]["kind"], hanging["standing"]["kind"]) == ("unknown", "hanging")
    assert "some partitions of __transaction_state are in other directories" in unknown["standing"]["why"]


def test_status_is_that_of_the_partition_and_not_of_another_of_the_producer(run: Run, tmp_path: Path) -> None:
    for partition in (0, 1):
        Log(tmp_path, "t", partition).batch(7, 0, 0, transactional=True)
    CoordinatorLog(tmp_path).write("loader", 7, partitions=(("t", 1),))
    found = report(run, "--transactions", tmp_path)["partitions"]
    assert [one["held_back_by"]["standing"]["kind"] for one in found] == ["hanging", "ongoing"]


# --- the command line


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["--transactions"], "expected either DIR or --bootstrap-server ADDRESS"),
        (["--transactions", "x", "--bootstrap", "y"], "expected either DIR or --bootstrap-server ADDRESS"),
        (["x", "--topic", "t", "--bootstrap", "y"], "--bootstrap-server and --transactional-id need"),
        (
            ["x", "--topic", "t", "--transactional-id", "y"],
            "--bootstrap-server and --transactional-id need",
        ),
        (["x", "--transactions", "--batches"], "--release or --batches"),
        (["x", "--transactions", "--release", "3.9"], "--release or --batches"),
        (["x", "--transactions", "--next-sequence", "3"], "--transactions cannot be combined"),
        (["x", "--transactions", "--epoch", "3"], "--transactions cannot be combined"),
        (["x", "--topic", "t"], "the following arguments are required: --partition"),
        ([], "the following arguments are required: DIR, --topic, --partition"),
    ],
)
def test_wrong_arguments_are_one_line(run: Run, arguments: list[str], error: str) -> None:
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert error in err
    assert err.count("\n") == 1


def test_path_that_is_not_a_directory_is_refused(run: Run, tmp_path: Path) -> None:
    code, out, err = run("--transactions", tmp_path)
    assert (code, out) == (2, "")
    assert err == f"ottla explain: {tmp_path} is no data directory: it has no partition\n"
    Log(tmp_path)
    assert run("--transactions", tmp_path, "--topic", "u")[0] == 2
