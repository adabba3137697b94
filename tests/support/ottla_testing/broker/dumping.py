"""Inputs for the tests of `ottla dump`, and the command itself."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from crc32c import crc32c

from ottla.protocol import schema
from ottla.protocol.compiler import build
from ottla.protocol.records import batch
from ottla.protocol.records.batch import Header, Record
from ottla.tools.disk.dump import dump
from ottla_testing.protocol import messages, values

CASES: list[tuple[str, int]] = messages.CASES
MESSAGES: dict[str, Any] = messages.MESSAGES
random_value: Callable[..., Any] = values.random_value

NOW = 1_700_000_000_000
RECORDS = [Record(7, NOW, b"k", b"v", (Header("h", b"x"),)), Record(8, NOW + 7, None, b"\x00\xff")]

Run = Callable[..., tuple[int, str, str]]


def runner(capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs the command: (exit code, stdout, stderr)."""

    def call(*arguments: object) -> tuple[int, str, str]:
        capsys.readouterr()
        try:
            code = dump([str(argument) for argument in arguments])
        except SystemExit as error:
            code = int(str(error.code))
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


def request(value: Any, version: int, *, sized: bool = True, correlation_id: int = 5) -> bytes:
    declared = schema.spec(type(value))
    tags = b"\0" if version in declared.flexible else b""
    frame = struct.pack(">hhih", declared.api_key, version, correlation_id, 2) + b"me" + tags + build(value, version)
    return (struct.pack(">i", len(frame)) if sized else b"") + frame


def response(value: Any, version: int, *, sized: bool = False, correlation_id: int = 5) -> bytes:
    declared = schema.spec(type(value))
    tags = b"\0" if version in declared.flexible and declared.api_key != 18 else b""
    frame = struct.pack(">i", correlation_id) + tags + build(value, version)
    return (struct.pack(">i", len(frame)) if sized else b"") + frame


def segment_of(folder: Path, *entries: bytes | bytearray, topic: str = "orders") -> Path:
    path = folder / f"{topic}-0" / "00000000000000000000.log"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"".join(entries))
    return path


def transactional() -> bytearray:
    return batch.build(
        RECORDS,
        batch.BatchFields(producer_id=9, producer_epoch=1, base_sequence=5, transactional=True),
        base_offset=7,
        leader_epoch=4,
    )


def snapshot(*entries: tuple[int, ...]) -> bytes:
    body = struct.pack(">i", len(entries)) + b"".join(struct.pack(">qhiqiqiq", *entry) for entry in entries)
    return struct.pack(">hI", 1, crc32c(body)) + body
