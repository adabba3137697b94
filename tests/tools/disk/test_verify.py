"""`ottla verify`: its output and exit codes, on directories that real requests have filled."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.protocol.records import batch
from ottla.storage import inspect
from ottla.tools.disk.dump import dump
from ottla.tools.disk.formats import formats
from ottla.tools.disk.verify import verify
from ottla_testing.broker.harness import Broker, only, produce, records, running

LOG = "orders-0/00000000000000000000.log"


async def send(broker: Broker) -> None:
    client = await broker.client()
    for _ in range(3):
        response = only(await client.call(produce(records(b"a", b"b"), "orders"), 9))
        assert response.error_code == 0


def report(root: Path, capsys: pytest.CaptureFixture[str], *more: str, code: int = 0) -> dict[str, Any]:
    capsys.readouterr()
    assert verify([str(root), "--json", *more]) == code
    return json.loads(capsys.readouterr().out)


async def test_verify_during_and_after_the_run_of_a_broker(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = tmp_path / "data"
    async with running(root) as broker:
        await broker.topic("orders")
        await send(broker)
        found = report(root, capsys, "--records")
        assert (found["clean"], found["wrong"]) == (False, [])
    found = report(root, capsys, "--records")
    assert (found["clean"], found["wrong"], found["notes"]) == (True, [], [])
    assert found["bytes"] == sum(path.stat().st_size for path in root.rglob("*.log"))
    assert report(root, capsys, "--topic", "orders", "--partition", "0")["partitions"] == 1


async def test_findings_are_listed_with_exit_code_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = tmp_path / "data"
    async with running(root) as broker:
        await broker.topic("orders")
        await send(broker)
    log = root / "orders-0" / "00000000000000000000.log"
    data = bytearray(log.read_bytes())
    data[-1] ^= 1
    log.write_bytes(data)
    begins = len(data) // 3 * 2
    found = report(root, capsys, code=1)["wrong"]
    assert [(one["file"], one["byte"], one["offset"]) for one in found] == [(f"orders-0/{log.name}", begins, 4)]
    assert verify([str(root)]) == 1
    out = capsys.readouterr().out
    assert f"\n! orders-0/{log.name} at byte {begins}, offset 4: CRC " in out
    assert out.endswith("\n1 error\n")
    assert report(root, capsys, "--topic", "__cluster_metadata")["wrong"] == []


@pytest.mark.parametrize(
    "command", [verify, formats, lambda arguments: dump([*arguments[:-1], f"{arguments[-1]}/{LOG}"])]
)
def test_all_readers_report_the_same_damage(
    command: Callable[[list[str]], int],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each of them finds the damage at the position that `inspect` reports."""
    (tmp_path / LOG).parent.mkdir()
    one = bytes(batch.build([batch.Record(0, 1, None, b"v")]))
    (tmp_path / LOG).write_bytes(one)
    command([str(tmp_path)])
    assert "planted" not in capsys.readouterr().out
    walk = inspect.entries

    def planted(source: inspect.Source, **how: Any) -> Iterator[inspect.BatchFacts | inspect.Damage]:
        yield from walk(source, **how)
        yield inspect.Damage(len(one), 0, "planted", False)

    monkeypatch.setattr(inspect, "entries", planted)
    command([str(tmp_path)])
    result = capsys.readouterr()
    assert "planted" in result.out + result.err


def test_wrong_arguments_are_one_line_and_exit_code_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "orders-0").mkdir()
    (tmp_path / "orders-0" / "00000000000000000000.log").write_bytes(b"")
    assert verify([str(tmp_path / "missing")]) == 2
    assert verify([str(tmp_path), "--topic", "missing"]) == 2
    with pytest.raises(SystemExit) as stopped:
        verify([str(tmp_path), "--partition", "-1"])
    assert stopped.value.code == 2
    assert len(capsys.readouterr().err.splitlines()) == 3
