"""The records that only `ottla dump` defines: equal to Apache's definitions, and printed for all kinds of files."""

from __future__ import annotations

import json
import random
import struct
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.metadata import kraft_records, record_values
from ottla.protocol import schema
from ottla.protocol.compiler import build
from ottla.protocol.records import batch
from ottla.protocol.records.batch import Record
from ottla_testing.broker.dumping import NOW, Run, random_value, runner, segment_of
from ottla_testing.each import each
from ottla_testing.protocol import apache

FACTS: dict[str, Any] = json.loads(Path(__file__).with_name("kraft_records.json").read_text())
OWN = {
    name: cls
    for name, cls in vars(kraft_records).items()
    if isinstance(cls, type) and cls in schema._specs and cls.__module__ == kraft_records.__name__
}
CASES = [(name, version) for name, cls in sorted(OWN.items()) for version in schema.spec(cls).versions.range()]
CONTROLS = {cls.__name__: kind for kind, cls in record_values.CONTROL_CLASSES.items()}


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs the command; returns (exit code, stdout, stderr)."""
    return runner(capsys)


def test_every_record_has_the_facts_and_the_key_of_apache() -> None:
    assert set(OWN) == set(FACTS)
    for name, cls in OWN.items():
        assert schema.spec(cls).versions == schema.Versions.of(FACTS[name]["versions"]), name
        assert schema.spec(cls).flexible == schema.Versions.of(FACTS[name]["flexible"]), name
        # Apache's control records have no apiKey; the key here is the type in the record's key.
        assert FACTS[name]["key"] == (None if name in CONTROLS else schema.spec(cls).api_key), name


@each(("name", "version"), CASES)
def test_fields_of_a_version_equal_apaches(name: str, version: int) -> None:
    layout = schema.group_of(OWN[name], version)
    apache.compare(layout, FACTS[name]["fields"], version, version in schema.spec(OWN[name]).flexible, name)


def test_every_type_of_metadata_record_is_named() -> None:
    assert set(record_values.METADATA_CLASSES) == set(range(30)) - {6, 13, 16}  # the types that are no longer in use


METADATA_CASES = [(n, v) for n, v in CASES if n not in CONTROLS]


@pytest.mark.parametrize(("name", "version"), METADATA_CASES)
def test_metadata_records_are_decoded_completely(name: str, version: int, run: Run, tmp_path: Path) -> None:
    layout = schema.group_of(OWN[name], version)
    value = build(random_value(layout, random.Random(f"{name} {version}")), version)
    framed = bytes((1, schema.spec(OWN[name]).api_key, version)) + value
    path = segment_of(tmp_path, batch.build([Record(0, NOW, None, framed)]), topic="__cluster_metadata")
    code, out, err = run("--records", path)
    assert (code, err) == (0, "") and f"value: {len(framed)} bytes, {name} v{version}\n" in out
    for field, _ in layout.plan:
        assert f"  {field}" in out


@pytest.mark.parametrize(("name", "version"), [case for case in CASES if case[0] in CONTROLS])
def test_control_records_of_the_quorum_are_printed(name: str, version: int, run: Run, tmp_path: Path) -> None:
    value = random_value(schema.group_of(OWN[name], version), random.Random(f"{name} {version}"))
    value.version = version
    record = Record(0, NOW, struct.pack(">hh", 0, CONTROLS[name]), build(value, version))
    path = segment_of(tmp_path, batch.build([record], batch.BatchFields(control=True)), topic="__cluster_metadata")
    code, out, err = run("--records", path)
    assert (code, err) == (0, "")
    assert f"bytes, {name} v{version}\n" in out and f"  version: {version}\n" in out


def test_leader_change_is_printed_line_by_line(run: Run, tmp_path: Path) -> None:
    """As written by Kafka 3.9: version 0, leader 1, one voter, which granted its vote."""
    value = bytes.fromhex("0000 00000001 02 00000001 00 02 00000001 00 00")
    record = Record(0, NOW, bytes.fromhex("00000002"), value)
    _, out, _ = run(
        "--records",
        segment_of(tmp_path, batch.build([record], batch.BatchFields(control=True)), topic="__cluster_metadata"),
    )
    lines = [line[8:].strip() for line in out.splitlines()]
    assert lines[lines.index("key: 4 bytes, control record: leader change") :] == [
        "key: 4 bytes, control record: leader change",
        "version: 0",
        "type: 2",
        f"value: {len(value)} bytes, LeaderChangeMessage v0",
        "version: 0",
        "leader_id: 1",
        "voters: 1 item",
        "[0]",
        "voter_id: 1",
        "granting_voters: 1 item",
        "[0]",
        "voter_id: 1",
        "headers: 0 items",
    ]


def test_snapshot_outside_of_a_partition_folder_is_printed(run: Run, tmp_path: Path) -> None:
    """`bootstrap.checkpoint` has metadata records in any folder."""
    path = tmp_path / "bootstrap.checkpoint"
    level = bytes.fromhex("010c00 11 6d657461646174612e76657273696f6e 0015 00")
    path.write_bytes(batch.build([Record(0, NOW, None, level)]))
    code, out, err = run("--records", path)
    assert (code, err) == (0, "") and "value: 23 bytes, FeatureLevelRecord v0\n" in out and "feature_level: 21" in out
    assert "value of type 12: FeatureLevelRecord v0" in run("--schema", path)[1]


def test_texts_of_the_quorum_are_printed(run: Run, tmp_path: Path) -> None:
    (tmp_path / "quorum-state").write_text('{"leaderId":1}')
    assert run(tmp_path / "quorum-state")[1].splitlines()[1:] == ['     0    "{\\"leaderId\\":1}"']
    (tmp_path / ".lock").write_text("")
    assert run(tmp_path / ".lock") == (0, "     0  text .lock, 0 bytes\n", "")
