"""`ottla explain --transactions` with a running broker: from the broker, and from its files."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.transactions.state import Response
from ottla.tools.disk.formats import formats
from ottla.tools.disk.repair import repair
from ottla.tools.disk.verify import verify
from ottla.tools.explain.command import explain
from ottla_testing.broker.harness import Broker, records, running
from ottla_testing.broker.producer_logs import NOW, Run, report, runner

TIMEOUT_MS = 30_000


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    return runner(explain, capsys)


async def settled(pending: Response | asyncio.Future[Response]) -> Response:
    response = pending if isinstance(pending, Response) else await pending
    assert not response.error
    return response


async def begin(broker: Broker, name: str, *partitions: tuple[str, int]) -> tuple[int, int]:
    """Begins a transaction with these partitions; returns its producer id and epoch."""
    coordinator = broker.state.transactions
    owner = await settled(coordinator.init_producer_id(name, timeout_ms=TIMEOUT_MS))
    who = owner.producer_id, owner.producer_epoch
    await settled(coordinator.add_partitions(name, *who, partitions, client_version=0))
    return who


def write(
    broker: Broker, who: tuple[int, int], topic: str, partition: int = 0, sequence: int = 0, size: int = 1
) -> None:
    fields: dict[str, Any] = {"producer_id": who[0], "producer_epoch": who[1], "base_sequence": sequence}
    broker.log(topic, partition).append(records(b"v" * size, timestamp=NOW, transactional=True, **fields), now_ms=NOW)


def at(broker: Broker) -> list[str]:
    return ["--bootstrap", f"127.0.0.1:{broker.ports[0]}"]


async def explained(run: Run, *arguments: object) -> Any:
    """Returns the output of the command; in a thread, since it waits for the broker, which is in this one."""
    return await asyncio.to_thread(report, run, "--transactions", *arguments)


def of(found: Any, topic: str, partition: int = 0) -> Any:
    (one,) = [one for one in found["partitions"] if (one["topic"], one["partition"]) == (topic, partition)]
    return one


def standings(found: Any) -> dict[str, list[tuple[Any, ...]]]:
    """Returns (transactional id, producer, first offset, kind) of the open transactions, by partition."""
    return {
        f"{one['topic']}-{one['partition']}": [
            (of["transactional_id"], of["producer_id"], of["first_offset"], of["standing"]["kind"])
            for of in one["transactions"]
            if of["state"] == "open"
        ]
        for one in found["partitions"]
        if one["held_back_by"] is not None
    }


async def test_broker_and_files_give_the_same_transactions(run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    async with running(folder) as broker:
        await broker.topic("t", 2)
        one = await begin(broker, "one", ("t", 0), ("t", 1))
        two = await begin(broker, "two", ("t", 1))
        write(broker, one, "t", 1)
        write(broker, two, "t", 1)
        write(broker, two, "t", 0)  # unknown to its coordinator
        write(broker, (77, 0), "t", 0)
        write(broker, one, "t", 0)
        expected = {
            "t-0": [("two", two[0], 0, "hanging"), (None, 77, 1, "hanging"), ("one", one[0], 2, "ongoing")],
            "t-1": [("one", one[0], 0, "ongoing"), ("two", two[0], 1, "ongoing")],
        }
        live, files = await explained(run, *at(broker)), await explained(run, folder)
        assert standings(live) == standings(files) == expected
        for found in (live, files):
            ends = [(of(found, "t", i)["last_stable_offset"], of(found, "t", i)["log_end_offset"]) for i in (0, 1)]
            assert ends == [(0, 3), (0, 2)]
            assert of(found, "t", 1)["held_back_by"]["transactional_id"] == "one"
            ids = [(one["transactional_id"], one["state"], one["times_out_ms"]) for one in found["transactional_ids"]]
            started = broker.clock.now_ms()
            assert ids == [("one", "Ongoing", started + TIMEOUT_MS), ("two", "Ongoing", started + TIMEOUT_MS)]
        assert live["bootstrap"] == at(broker)[1]
        assert of(live, "t", 1)["transactions"][0]["begun_ms"] == broker.clock.now_ms()
        await settled(broker.state.transactions.end("one", *one, committed=True, client_version=0))
        live, files = await explained(run, *at(broker)), await explained(run, folder)
        assert standings(live) == standings(files) == {"t-0": expected["t-0"][:2], "t-1": expected["t-1"][1:]}
        assert of(live, "t", 1)["last_stable_offset"] == of(files, "t", 1)["last_stable_offset"] == 1
        done = of(files, "t", 1)["transactions"][0]
        assert (done["transactional_id"], done["state"], done["first_offset"]) == ("one", "committed", 0)
    assert standings(await explained(run, folder)) == standings(files)


async def test_page_of_a_broker(run: Run, tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        await broker.topic("t")
        one = await begin(broker, "one", ("t", 0))
        write(broker, one, "t")
        write(broker, one, "t", sequence=1)
        code, out, err = await asyncio.to_thread(run, "--transactions", *at(broker), "--topic", "t")
        assert (code, err) == (0, "")
        lines = out.splitlines()
        assert lines[0] == "t-0, log start offset 0"
        assert lines[3].split()[:6] == ["0", str(one[0]), "0", "one", "-", "-"]
        assert lines[3].endswith("open, ongoing")
        assert lines[5] == "log end offset 2, last stable offset 0: 1 open"
        assert lines[6].startswith(f'  held back by producer {one[0]} epoch 0, transactional id "one": transaction')
        assert "time-out 30 s: its coordinator aborts it after" in lines[7]
        assert "At their coordinators:" in lines


async def test_chosen_partitions_and_producers_are_requested(run: Run, tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        for topic in ("a", "b"):
            await broker.topic(topic)
        one, two = await begin(broker, "one", ("a", 0)), await begin(broker, "two", ("b", 0))
        write(broker, one, "a")
        write(broker, two, "b")
        idle = await begin(broker, "idle", ("a", 0))
        await settled(broker.state.transactions.end("idle", *idle, committed=False, client_version=0))

        async def pending(*flags: object) -> tuple[list[str], list[str]]:
            found = await explained(run, *at(broker), *flags)
            shown = [one["topic"] for one in found["partitions"] if one["transactions"]]
            return shown, [one["transactional_id"] for one in found["transactional_ids"]]

        assert await pending() == (["a", "b"], ["one", "two"])
        assert await pending("--topic", "a") == (["a"], ["one"])
        assert await pending("--producer-id", two[0]) == (["b"], ["two"])
        assert await pending("--transactional-id", "idle") == ([], ["idle"])
        code, out, err = await asyncio.to_thread(run, "--transactions", *at(broker), "--topic", "u")
        assert (code, out, err) == (2, "", f"ottla explain: no topic u at {at(broker)[1]}\n")
        assert broker.state.topics.get("u") is None


async def test_transaction_ending_while_requesting_is_not_hanging(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path) as broker:
        await broker.topic("t")
        one = await begin(broker, "one", ("t", 0))
        write(broker, one, "t")
        listed = broker.state.transactions.list

        def ending(**filters: Any) -> Any:
            response = broker.state.transactions.end("one", *one, committed=True, client_version=0)
            assert isinstance(response, Response) and not response.error
            return listed(**filters)

        monkeypatch.setattr(broker.state.transactions, "list", ending)
        (seen,) = (await explained(run, *at(broker), "--topic", "t"))["partitions"]
        (was,) = seen["transactions"]
        assert was["standing"] == {"kind": "ending", "why": "it ended during the analysis", "ends_ms": None}


async def test_releases_without_the_requests_show_less(run: Run, tmp_path: Path) -> None:
    async with running(tmp_path / "old", release="2.7") as broker:
        await broker.topic("t")
        code, out, err = await asyncio.to_thread(run, "--transactions", *at(broker))
        assert (code, out, err.count("\n")) == (
            2,
            "",
            1,
        ) and "no DescribeProducers API: expected Kafka 2.8 or later" in err
    async with running(tmp_path / "newer", release="2.8") as broker:
        await broker.topic("t")
        write(broker, (9, 0), "t")
        found = await explained(run, *at(broker))
        assert standings(found) == {"t-0": [(None, 9, 0, "unknown")]}
        assert "no ListTransactions API, new in Kafka 3.0" in of(found, "t")["transactions"][0]["standing"]["why"]


async def test_other_commands_read_open_transactions_and_markers(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    folder, killed = tmp_path / "data", tmp_path / "killed"
    async with running(folder, overrides={"log.segment.bytes": "1048576"}) as broker:
        await broker.topic("t")
        one, two = await begin(broker, "one", ("t", 0)), await begin(broker, "two", ("t", 0))
        for sequence in range(5):
            write(broker, one, "t", sequence=sequence, size=300_000)
            write(broker, two, "t", sequence=sequence)
            who = ("one", *one) if sequence == 2 else ("two", *two)
            if sequence in (2, 3):
                await settled(broker.state.transactions.end(*who, committed=sequence == 2, client_version=0))
                await begin_again(broker, *who)
        shutil.copytree(folder, killed)
    assert len(list((killed / "t-0").glob("*.log"))) > 1
    assert list((killed / "t-0").glob("*.txnindex"))
    for directory in (killed, folder):
        code, out, _ = runner(verify, capsys)(directory, "--records")
        assert code == 0 and "no errors" in out
        code, out, _ = runner(repair, capsys)(directory)
        assert code == 0 and "no damage" in out
        found = report(runner(formats, capsys), directory)
        (topic,) = [topic for topic in found["topics"] if topic["topic"] == "t"]
        assert sum(one["records"] for one in topic["formats"]) == 10  # markers are not counted
        assert standings(report(runner(explain, capsys), "--transactions", directory)) == {
            "t-0": [("one", one[0], 7, "ongoing"), ("two", two[0], 11, "ongoing")]
        }


async def begin_again(broker: Broker, name: str, producer_id: int, epoch: int) -> None:
    """Begins the next transaction of the same producer."""
    added = broker.state.transactions.add_partitions(name, producer_id, epoch, [("t", 0)], client_version=0)
    await settled(added)


async def test_transaction_whose_marker_was_cut_hangs(run: Run, tmp_path: Path) -> None:
    """As a repair may leave it."""
    async with running(tmp_path) as broker:
        await broker.topic("t")
        one = await begin(broker, "one", ("t", 0))
        write(broker, one, "t")
        await settled(broker.state.transactions.end("one", *one, committed=True, client_version=0))
        end = broker.log("t").log_end_offset
    assert end == 2
    (path,) = (tmp_path / "t-0").glob("*.log")
    path.write_bytes(path.read_bytes()[:-78])
    found = await explained(run, tmp_path)
    assert standings(found) == {"t-0": [("one", one[0], 0, "hanging")]}
    assert "CompleteCommit at its coordinator" in of(found, "t")["held_back_by"]["standing"]["why"]


async def test_epochs_at_the_ends_of_transactions(run: Run, tmp_path: Path) -> None:
    """Of a client with an epoch for each transaction, and of a coordinator that aborts one after its timeout."""
    async with running(tmp_path) as broker:
        await broker.topic("t")
        coordinator = broker.state.transactions
        one = await begin(broker, "one", ("t", 0))
        write(broker, one, "t")
        ended = await settled(coordinator.end("one", *one, committed=True, client_version=2))
        assert (ended.producer_id, ended.producer_epoch) == (one[0], one[1] + 1)
        again = ended.producer_id, ended.producer_epoch
        await settled(coordinator.add_partitions("one", *again, [("t", 0)], client_version=2))
        write(broker, again, "t")
        assert standings(await explained(run, *at(broker))) == {"t-0": [("one", one[0], 2, "ongoing")]}
        broker.clock.advance(2 * TIMEOUT_MS)
        await broker.settle()
        done = of(await explained(run, tmp_path), "t")["transactions"]
        assert [(one["state"], one["epoch"], one["marker_epoch"]) for one in done] == [
            ("committed", one[1], again[1]),
            ("aborted", again[1], again[1] + 1),
        ]
        assert standings(await explained(run, *at(broker))) == {}
