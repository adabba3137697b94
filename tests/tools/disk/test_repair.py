"""`ottla repair`: its output, its exit codes, and a broker on the repaired directory."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from ottla.tools.disk.repair import repair
from ottla.tools.disk.verify import verify
from ottla_testing.broker.harness import Broker, only, produce, records, running

LOG = "orders-0/00000000000000000000.log"


async def send(broker: Broker, count: int = 3) -> list[int]:
    client = await broker.client()
    responses = [only(await client.call(produce(records(b"a", b"b"), "orders"), 9)) for _ in range(count)]
    assert all(response.error_code == 0 for response in responses)
    return [response.base_offset for response in responses]


async def filled(root: Path) -> list[int]:
    async with running(root) as broker:
        await broker.topic("orders")
        return await send(broker)


def damage_middle(root: Path) -> bytes:
    """Changes a byte of the second of three batches; returns the damaged file."""
    data = bytearray((root / LOG).read_bytes())
    data[len(data) // 3 * 2 - 1] ^= 1
    (root / LOG).write_bytes(data)
    return bytes(data)


def report(root: Path, capsys: pytest.CaptureFixture[str], *more: str, code: int = 0) -> dict[str, Any]:
    capsys.readouterr()
    assert repair([str(root), "--json", *more]) == code
    return json.loads(capsys.readouterr().out)


def tree(root: Path) -> dict[str, bytes]:
    return {p.relative_to(root).as_posix(): p.read_bytes() for p in root.rglob("*") if p.is_file()}


async def test_dry_run_changes_nothing_and_prints_the_repairs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = tmp_path / "data"
    await filled(root)
    assert repair([str(root)]) == 0
    assert capsys.readouterr().out == f"{root}: dry run, nothing is changed\nno damage\n"
    third = len(damage_middle(root)) // 3
    before = tree(root)
    assert repair([str(root)]) == 0
    out = capsys.readouterr().out
    assert f"! {LOG} at byte {third}, offset 2: CRC " in out
    assert f"\n    cut {2 * third} bytes\n" in out
    assert "1 sound batches or messages follow the damage\n    remove them as well" in out
    assert "--apply repairs" in out
    assert tree(root) == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data"]


async def test_cut_bytes_are_in_the_backup_and_a_broker_continues_at_the_cut(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = tmp_path / "data"
    assert await filled(root) == [0, 2, 4]
    damaged = damage_middle(root)
    before = tree(root)
    found = report(root, capsys, "--apply")
    assert (found["applied"], found["cannot_be_mended"]) == (True, [])
    backup = tmp_path / "ottla-repair-1"
    assert found["backup"] == str(backup)
    third = len(damaged) // 3
    assert (backup / f"{LOG}.{third}-{3 * third}").read_bytes() == damaged[third:]
    assert verify([str(root)]) == 0
    shutil.copytree(root, tmp_path / "copy")
    async with running(tmp_path / "copy") as broker:
        assert await send(broker, 1) == [2]
    assert verify([str(tmp_path / "copy")]) == 0
    capsys.readouterr()
    assert repair([str(root), "--undo", str(backup)]) == 0
    assert capsys.readouterr().out.endswith(" changes undone\n")
    assert tree(root) == before


async def test_skip_removes_only_the_damaged_batch(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = tmp_path / "data"
    await filled(root)
    damaged = damage_middle(root)
    third = len(damaged) // 3
    report(root, capsys, "--apply", "--skip", "--backup", str(tmp_path / "kept"))
    assert (tmp_path / "kept" / f"{LOG}.{third}-{2 * third}").read_bytes() == damaged[third : 2 * third]
    now = (root / LOG).read_bytes()
    assert now[:third] == damaged[:third]
    assert now[-third:] == damaged[-third:]
    assert verify([str(root), "--records"]) == 0
    async with running(root) as broker:
        assert await send(broker, 1) == [6]


async def test_directory_in_use_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = tmp_path / "data"
    async with running(root) as broker:
        await broker.topic("orders")
        for path in (root, root / "orders-0"):
            for flags in ([], ["--apply"], ["--undo", str(tmp_path)]):
                assert repair([str(path), *flags]) == 2
                assert capsys.readouterr().err == f"ottla repair: {root} is in use by a broker\n"


async def test_topic_id_is_taken_from_the_metadata_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = tmp_path / "data"
    await filled(root)
    path = root / "orders-0" / "partition.metadata"
    was = path.read_bytes()
    path.write_bytes(b"version: 0\ntopic_id: !")
    found = report(root, capsys, "--apply")
    assert [step["part"] for step in found["steps"]] == ["identity"]
    assert path.read_bytes() == was
    assert verify([str(root)]) == 0


async def test_one_partition_is_repaired_by_its_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = tmp_path / "data"
    await filled(root)
    damage_middle(root)
    marked = tree(root / "__cluster_metadata-0")
    found = report(root / "orders-0", capsys, "--apply")
    assert found["directory"] == str(root)
    assert found["backup"] == str(tmp_path / "ottla-repair-1")  # not in a data directory
    assert tree(root / "__cluster_metadata-0") == marked
    assert verify([str(root)]) == 0
    alone = tmp_path / "elsewhere" / "orders-0"
    shutil.copytree(root / "orders-0", alone)
    (alone / "00000000000000000000.timeindex").write_bytes(b"x")
    report(alone, capsys, "--apply")
    assert sorted(path.name for path in alone.parent.iterdir()) == ["orders-0", "ottla-repair-1"]
    assert report(alone, capsys)["steps"] == []


async def test_unrepairable_damage_is_exit_code_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = tmp_path / "data"
    await filled(root)
    (root / "meta.properties").write_bytes(b"version=1\n")
    assert repair([str(root)]) == 1
    out = capsys.readouterr().out
    assert "! meta.properties at byte 0: " in out
    assert "cannot be mended: no other file has these ids" in out
    assert [one["file"] for one in report(root, capsys, "--apply", code=1)["cannot_be_mended"]] == ["meta.properties"]


async def test_wrong_arguments_are_one_line_and_exit_code_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = tmp_path / "data"
    await filled(root)
    (tmp_path / "empty").mkdir()
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    for arguments in (
        [str(tmp_path / "missing")],
        [str(tmp_path / "empty")],
        [str(root), "--apply", "--backup", str(root / "orders-0" / "backup")],
        [str(root), "--apply", "--backup", str(tmp_path / "full")],
        [str(root), "--undo", str(tmp_path / "full")],
    ):
        assert repair(arguments) == 2
        assert len(capsys.readouterr().err.splitlines()) == 1
    with pytest.raises(SystemExit) as stopped:
        repair([str(root), "--undo", "x", "--apply"])
    assert stopped.value.code == 2
