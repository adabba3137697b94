"""`ottla explain --transactions` with damaged directories, and its memory for large ones."""

from __future__ import annotations

import contextlib
import json
import shutil
import struct
import tracemalloc
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.broker.replica.producer_log import find
from ottla.protocol.records.batch import Record
from ottla.tools.explain.command import explain
from ottla.tools.explain.transactions import SeenFiles
from ottla_testing import GOLDEN
from ottla_testing.broker.producer_logs import NOW, CoordinatorLog, Log, Run, report, runner
from ottla_testing.protocol.batches import batch_of

DIRECTORIES = GOLDEN / "directories"


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    return runner(explain, capsys)


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log(tmp_path)


# --- damage


def test_damage_is_reported_after_the_readable_part(run: Run, log: Log) -> None:
    log.batch(7, 0, 0, transactional=True)
    log.raw(b"\x01" * 100, 0)
    log.roll()
    log.batch(7, 0, 1, transactional=True)
    code, out, err = run("--transactions", log.directory)
    assert code == 1
    assert "reading ended at the damage" in out
    assert err.startswith("ottla explain: log read up to the damage only: t-0/00000000000000000000.log at byte ")


def test_end_of_a_transaction_open_before_damage_is_unknown(run: Run, log: Log) -> None:
    log.batch(7, 0, 0, transactional=True)
    CoordinatorLog(log.directory).write("loader", 7, state="CompleteCommit", partitions=())
    log.raw(b"\x01" * 100, 0)
    log.roll()
    log.marker(7, 0)
    code, out, _ = run("--transactions", log.directory, "--json")
    (of,) = json.loads(out)["partitions"][0]["transactions"]
    assert (code, of["standing"]["kind"]) == (1, "unknown")
    assert "after the damage" in of["standing"]["why"]


@pytest.mark.parametrize("torn", [False, True])
def test_damaged_log_of_coordinators_reports_no_hanging_transaction(run: Run, log: Log, torn: bool) -> None:
    """But an incomplete write at its end is not damage."""
    log.batch(7, 0, 0, transactional=True)
    coordinators = CoordinatorLog(log.directory)
    coordinators.write("other", 8)
    size = coordinators.path.stat().st_size
    coordinators.write("loader", 7)
    data = bytearray(coordinators.path.read_bytes())
    coordinators.path.write_bytes(data[:-5] if torn else data[:-5] + b"\xff" + data[-4:])
    (of,) = report(run, "--transactions", log.directory, "--topic", "t")["partitions"][0]["transactions"]
    assert of["standing"]["kind"] == ("hanging" if torn else "unknown")
    if not torn:
        where = f"__transaction_state-0/{0:020d}.log at byte {size}: a damaged batch"
        assert of["standing"]["why"] == f"the log of its coordinator is damaged: {where}"


PARTS = ("transactions-0", "open-transaction-0", "__transaction_state-0")


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("damaged")
    for part in PARTS:
        shutil.copytree(DIRECTORIES / "4.3.1" / part, root / part)
    return root


@given(data=st.data())
def test_any_damage_is_reported_or_has_no_effect(data: st.DataObject, damaged: Path) -> None:
    paths = sorted(path for path in damaged.rglob("*") if path.is_file() and path.stat().st_size)
    path = data.draw(st.sampled_from(paths))
    was = path.read_bytes()
    at, by = data.draw(st.integers(0, len(was) - 1)), data.draw(st.integers(1, 255))
    cut = data.draw(st.booleans())
    path.write_bytes(was[:at] if cut else was[:at] + bytes([was[at] ^ by]) + was[at + 1 :])
    out, err = StringIO(), StringIO()
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = explain(["--transactions", "--json", str(damaged)])
    finally:
        path.write_bytes(was)
    json.loads(out.getvalue())
    assert (code, err.getvalue().count("\n")) in ((0, 0), (1, 1))


# --- memory


@pytest.mark.slow
def test_memory_does_not_grow_with_the_transactions(log: Log, scaled: Callable[[int], int]) -> None:
    def peak(transactions: int) -> int:
        log.path.write_bytes(b"")
        producer: dict[str, Any] = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0}
        log.raw(batch_of([Record(0, NOW, None, bytes(2048))], transactional=True, **producer), 1)
        log.marker(7, 0)
        pair = bytearray(log.path.read_bytes())
        second = struct.unpack_from(">i", pair, 8)[0] + 12
        with log.path.open("wb") as file:
            for number in range(transactions):
                struct.pack_into(">q", pair, 0, 2 * number)
                struct.pack_into(">q", pair, second, 2 * number + 1)
                file.write(pair)
        (files,) = find(str(log.directory), "t", 0)
        seen = SeenFiles(files, str(log.directory))
        tracemalloc.start()
        try:
            count = sum(1 for _ in seen.transactions())
            found = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert count == transactions and seen.ended == {"committed": transactions}
        return found

    few, many = peak(2_000), peak(scaled(6_000))  # both are longer than one read
    assert many < few + 500_000, (few, many)
