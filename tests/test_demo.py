"""The demo: its checksums detect every error, and it runs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ottla_testing import demo
from ottla_testing.patience import PATIENCE_S


def digest_of(lines: list[tuple[int, bytes]]) -> demo.Digest:
    digest = demo.Digest()
    for partition, line in lines:
        digest.add(partition, line)
    return digest


LINES = [(0, b"one"), (1, b"two"), (0, b""), (1, b"two")]


def test_demo_accepts_another_order_between_partitions_only() -> None:
    sent = digest_of(LINES)
    assert demo.differences(sent, digest_of([LINES[i] for i in (1, 0, 3, 2)])) == []
    assert demo.differences(sent, digest_of([LINES[i] for i in (2, 1, 0, 3)])) == [
        "partition 0 is not the same, or in another order"
    ]


@pytest.mark.parametrize(
    "received",
    [
        LINES[:-1],  # lost
        [*LINES, LINES[1]],  # duplicated
        [*LINES, LINES[1], LINES[1]],  # duplicated twice, which an exclusive or would not detect
        [(0, b"onE"), *LINES[1:]],  # changed
        [(0, b"one"), (1, b"two"), (1, b""), (1, b"two")],  # in another partition
        [],
    ],
)
def test_demo_detects_every_error(received: list[tuple[int, bytes]]) -> None:
    assert demo.differences(digest_of(LINES), digest_of(received))


def test_demo_has_an_input_on_any_machine() -> None:
    assert sum(1 for _ in demo.read_lines(demo.standard_library())) >= demo.LINES_WANTED


@pytest.mark.process
def test_demo_sends_a_file_through_a_broker_and_back(tmp_path: Path) -> None:
    text = tmp_path / "lines.txt"
    text.write_bytes(b"\n".join(b"line %d \xff\r" % (number % 700) for number in range(1000)) + b"\n\nlast")
    done = subprocess.run(
        [sys.executable, demo.__file__, str(text)], capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "the same on both sides" in done.stdout and done.stdout.count(": 1,002 lines") == 2


@pytest.mark.process
def test_demo_refuses_a_path_that_is_not_a_file(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, demo.__file__, str(tmp_path / "no")], capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert done.returncode == 2 and "no such file" in done.stderr
