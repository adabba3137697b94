"""`ottla producers`: the states of a directory and of a broker, and that both are equal."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from ottla.protocol.messages.transactions.describe_producers import DescribeProducersRequest
from ottla.storage.producers import snapshot
from ottla.storage.producers.producer_state import CachedBatch, Producer
from ottla.tools.kafka.producers import producers
from ottla_testing.broker.harness import produce, records, running
from ottla_testing.broker.producer_logs import NOW, Log, Run, contents, report, runner


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    return runner(producers, capsys)


def states(run: Run, *arguments: object) -> list[tuple[Any, ...]]:
    """Returns (topic, partition, producer, epoch, last sequence, last offset) of each state."""
    found = report(run, *arguments)["producers"]
    names = ("topic", "partition", "producer_id", "epoch", "last_sequence", "last_offset")
    return [tuple(one[name] for name in names) for one in found]


def test_whole_page(run: Run, tmp_path: Path) -> None:
    log = Log(tmp_path, "orders", 2)
    log.batch(1007, 0, 0, 3)
    log.batch(9, 4, 2**31 - 2, 4)
    log.marker(9, 5, coordinator_epoch=3)
    log.batch(12, 0, 0, transactional=True)
    log.marker(13, 0)
    log.plain(5)
    code, out, err = run(tmp_path)
    assert (code, err) == (0, "")
    assert out == (
        "TOPIC   PARTITION  PRODUCER ID  EPOCH  LAST SEQUENCE  LAST OFFSET  LAST TIMESTAMP (UTC)\n"
        "orders  2          9            5      -              -            2023-11-14 22:13:23.000"
        "  coordinator epoch 3\n"
        "orders  2          12           0      0              8            2023-11-14 22:13:24.000"
        "  transaction since offset 8\n"
        "orders  2          13           0      -              -            2023-11-14 22:13:25.000"
        "  coordinator epoch 5\n"
        "orders  2          1007         0      2              2            2023-11-14 22:13:21.002\n"
    )


def test_json_has_every_field(run: Run, tmp_path: Path) -> None:
    log = Log(tmp_path)
    log.batch(12, 1, 0, 2, transactional=True)
    (one,) = report(run, tmp_path)["producers"]
    assert one == {
        "topic": "t",
        "partition": 0,
        "producer_id": 12,
        "epoch": 1,
        "last_sequence": 1,
        "last_offset": 1,
        "last_timestamp_ms": NOW + 1001,
        "coordinator_epoch": -1,
        "transaction_first_offset": 0,
    }


def test_topics_and_partitions_are_chosen(run: Run, tmp_path: Path) -> None:
    for pid, (topic, partition) in enumerate([("a", 0), ("a", 1), ("a.b-c", 0), ("a", 10)]):
        Log(tmp_path, topic, partition).batch(pid, 0, 0)
    assert [row[:3] for row in states(run, tmp_path)] == [("a", 0, 0), ("a", 1, 1), ("a", 10, 3), ("a.b-c", 0, 2)]
    assert [row[2] for row in states(run, tmp_path, "--topic", "a")] == [0, 1, 3]
    assert [row[2] for row in states(run, tmp_path, "--partition", 0)] == [0, 2]
    assert [row[2] for row in states(run, tmp_path, "--topic", "a", "--partition", 10)] == [3]


def test_no_producers(run: Run, tmp_path: Path) -> None:
    Log(tmp_path).plain(3)
    assert run(tmp_path) == (0, "no producers\n", "")
    assert report(run, tmp_path) == {"producers": []}


# --- snapshots


def stored(log: Log, offset: int, **producers: tuple[int, int]) -> Path:
    """Writes a snapshot of producers p<id>=(last sequence, last offset)."""
    known = {
        int(name[1:]): Producer(0, (CachedBatch(sequence, sequence, last, last, NOW),), last, NOW)
        for name, (sequence, last) in producers.items()
    }
    path = log.folder / snapshot.file_name(offset)
    path.write_bytes(snapshot.dump(known))
    return path


def test_newest_intact_snapshot_is_used(run: Run, tmp_path: Path) -> None:
    log = Log(tmp_path)
    for sequence in range(4):
        log.batch(7, 0, sequence)
    log.roll()
    log.batch(8, 0, 0)
    log.batch(7, 0, 4)
    older = stored(log, 2, p7=(901, 1), p5=(902, 0))
    newer = stored(log, 4, p7=(3, 3), p6=(77, 2))
    # 6 is only in this snapshot, so it was used; 5 is in an older one.
    expected = [("t", 0, 6, 0, 77, 2), ("t", 0, 7, 0, 4, 5), ("t", 0, 8, 0, 0, 4)]
    assert states(run, tmp_path) == expected
    newer.write_bytes(newer.read_bytes()[:-1] + b"?")
    assert states(run, tmp_path) == [("t", 0, 5, 0, 902, 0), ("t", 0, 7, 0, 4, 5), ("t", 0, 8, 0, 0, 4)]
    older.unlink()
    assert states(run, tmp_path) == [("t", 0, 7, 0, 4, 5), ("t", 0, 8, 0, 0, 4)]


def test_snapshot_at_the_end_or_inside_of_a_segment_is_used(run: Run, tmp_path: Path) -> None:
    log = Log(tmp_path)
    for sequence in range(4):
        log.batch(7, 0, sequence)
    stored(log, 3, p6=(5, 2), p7=(2, 2))
    assert states(run, tmp_path) == [("t", 0, 6, 0, 5, 2), ("t", 0, 7, 0, 3, 3)]
    stored(log, 4, p6=(6, 3), p7=(3, 3))
    assert states(run, tmp_path) == [("t", 0, 6, 0, 6, 3), ("t", 0, 7, 0, 3, 3)]


def test_snapshot_above_the_log_end_or_below_its_start_is_ignored(run: Run, tmp_path: Path) -> None:
    log = Log(tmp_path)
    for sequence in range(4):
        log.batch(7, 0, sequence)
    stored(log, 9, p6=(5, 8))
    stored(log, 2, p5=(5, 1))
    log.start_at(2)
    assert states(run, tmp_path) == [("t", 0, 7, 0, 3, 3)]


def test_producers_below_the_log_start_are_forgotten(run: Run, tmp_path: Path) -> None:
    log = Log(tmp_path)
    for pid in (6, 7, 8):
        log.batch(pid, 0, 0)
    log.start_at(2)
    assert [row[2] for row in states(run, tmp_path)] == [8]


# --- brokers


async def write(broker: Any, client: Any, pid: int, epoch: int, sequence: int, count: int = 1) -> None:
    data = records(*[b"v" * 300_000] * count, producer_id=pid, producer_epoch=epoch, base_sequence=sequence)
    response = await client.call(produce(data), 8)
    assert response.responses[0].partition_responses[0].error_code == 0


async def test_directory_has_the_states_of_its_broker(run: Run, tmp_path: Path) -> None:
    """While the broker runs, over rolled segments and a moved log start; after its stop; and without any snapshot."""
    folder = tmp_path / "data"
    async with running(folder, overrides={"log.segment.bytes": "1048576"}) as broker:
        await broker.topic("t")
        client = await broker.client()
        for sequence in range(5):
            await write(broker, client, 7, 0, 2 * sequence, 2)
            await write(broker, client, 100 + sequence, sequence, 0)
        broker.log("t").delete_records_before(4)
        rows_of = DescribeProducersRequest(
            topics=[DescribeProducersRequest.TopicRequest(name="t", partition_indexes=[0])]
        )
        ((partition,),) = [t.partitions for t in (await client.call(rows_of, 0)).topics]
        result = [(one.producer_id, one.producer_epoch, one.last_sequence) for one in partition.active_producers]
        assert len(result) == 6
        before = contents(folder)
        assert [row[2:5] for row in states(run, folder)] == result
        assert contents(folder) == before
        assert sum(name.endswith(".snapshot") for name in before) >= 2
    assert [row[2:5] for row in states(run, folder)] == result
    for path in folder.rglob("*.snapshot"):
        path.unlink()
    # All records of producer 100 are below the log start.
    assert [row[2:5] for row in states(run, folder)] == [row for row in result if row[0] != 100]


async def test_states_of_a_broker_are_requested(run: Run, tmp_path: Path) -> None:
    """In a thread, since the command waits for the broker, which is in this one."""
    async with running(tmp_path) as broker:
        await broker.topic("a", 2)
        await broker.topic("b")
        for topic, partition, pid in (("a", 0, 7), ("a", 1, 8), ("b", 0, 9)):
            for sequence, transactional in ((0, False), (1, partition == 1)):
                fields: dict[str, Any] = {"producer_id": pid, "producer_epoch": 3, "base_sequence": sequence}
                data = records(b"v", timestamp=NOW, transactional=transactional, **fields)
                broker.log(topic, partition).append(data, now_ms=NOW)
        at = f"127.0.0.1:{broker.ports[0]}"

        def rows_of(*flags: object) -> list[tuple[Any, ...]]:
            return states(run, "--bootstrap", at, *flags)

        expected = [("a", 0, 7, 3, 1, -1), ("a", 1, 8, 3, 1, -1), ("b", 0, 9, 3, 1, -1)]
        assert await asyncio.to_thread(rows_of) == expected
        assert await asyncio.to_thread(rows_of, "--topic", "a") == expected[:2]
        assert await asyncio.to_thread(rows_of, "--topic", "a", "--partition", 1) == expected[1:2]
        assert await asyncio.to_thread(rows_of, "--partition", 0) == [expected[0], expected[2]]
        code, out, err = await asyncio.to_thread(run, "--bootstrap", at, "--topic", "a")
        assert (code, err) == (0, "")
        assert out.splitlines()[2] == (
            "a      1          8            3      1              -            2023-11-14 22:13:20.000"
            "  transaction since offset 1"
        )
        for flags, words in (
            (["--topic", "u"], f"no topic u at {at}"),
            (["--topic", "a", "--partition", 2], "a has no partition 2"),
            (["--partition", 9], "no topic has a partition 9"),
        ):
            found = await asyncio.to_thread(run, "--bootstrap", at, *flags)
            assert found == (2, "", f"ottla producers: {words}\n")
        assert broker.state.topics.get("u") is None  # the request creates nothing


async def test_broker_before_2_8_is_refused(run: Run, tmp_path: Path) -> None:
    async with running(tmp_path, release="2.7") as broker:
        await broker.topic("t")
        code, out, err = await asyncio.to_thread(run, "--bootstrap", f"127.0.0.1:{broker.ports[0]}")
        assert (code, out, err.count("\n")) == (2, "", 1) and "expected Kafka 2.8 or later" in err


# --- damage and mistakes


def test_damage_is_one_line_after_the_readable_part(run: Run, tmp_path: Path) -> None:
    log = Log(tmp_path)
    log.batch(7, 0, 0)
    log.roll()
    log.batch(7, 0, 1)
    first = sorted(log.folder.glob("*.log"))[0]
    first.write_bytes(first.read_bytes() + bytes(70) + b"x")
    code, out, err = run(tmp_path, "--json")
    assert code == 1 and err.count("\n") == 1 and "t-0/00000000000000000000.log at byte" in err
    assert [one["last_sequence"] for one in json.loads(out)["producers"]] == [0]


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ([], "either DIR or --bootstrap"),
        (["DIR", "--bootstrap", "127.0.0.1:1"], "either DIR or --bootstrap"),
        (["DIR", "--topic", "orders"], "no topic orders in"),
        (["DIR", "--topic", "t", "--partition", "3"], "t has no partition 3"),
        (["DIR", "--partition", "3"], "has a partition 3"),
        (["DIR", "--partition", "x"], "argument --partition: 'x' is not a number"),
        (["DIR/missing"], "cannot read"),
        (["DIR/t-0"], "is no data directory"),
        (["--bootstrap", "127.0.0.1:1"], "127.0.0.1:1"),
        (["--bootstrap", "no address"], "no address"),
    ],
)
def test_wrong_arguments_are_one_line(flags: list[str], words: str, run: Run, tmp_path: Path) -> None:
    Log(tmp_path).batch(7, 0, 0)
    code, out, err = run(*[flag.replace("DIR", str(tmp_path)) for flag in flags])
    assert (code, out, err.count("\n")) == (2, "", 1), err
    assert words in err and err.startswith("ottla producers: ")
