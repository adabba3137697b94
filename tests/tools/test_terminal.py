"""Colours and progress bars: only on a terminal."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from ottla.broker import Embedded
from ottla.tools.disk.formats import formats
from ottla.tools.disk.repair import repair
from ottla.tools.disk.verify import verify
from ottla.tools.terminal import RED, Progress, painted

BAR = "\r"
ESCAPE = "\x1b["


class Terminal(io.StringIO):
    """A stream that is a terminal if `is_one`."""

    def __init__(self, is_one: bool) -> None:
        super().__init__()
        self.is_one = is_one

    def isatty(self) -> bool:
        return self.is_one


@pytest.fixture
def colours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")


def test_text_is_painted_on_a_terminal_with_colours_only(monkeypatch: pytest.MonkeyPatch, colours: None) -> None:
    monkeypatch.setattr(sys, "stdout", Terminal(True))
    assert painted("x", RED) == "\x1b[31mx\x1b[0m"
    monkeypatch.setenv("TERM", "dumb")
    assert painted("x", RED) == "x"
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    assert painted("x", RED) == "x"
    monkeypatch.delenv("NO_COLOR")
    for stream in (Terminal(False), None):
        monkeypatch.setattr(sys, "stdout", stream)
        assert painted("x", RED) == "x"


@pytest.mark.parametrize("is_terminal", [True, False])
def test_progress_yields_all_items_and_removes_its_bar(monkeypatch: pytest.MonkeyPatch, is_terminal: bool) -> None:
    stderr = Terminal(is_terminal)
    monkeypatch.setattr(sys, "stderr", stderr)
    progress, lines = Progress("verify", "partitions"), list[str]()
    write = progress.around(lines.append)
    for item in progress.each(["a", "b", "c"]):
        write(f"{item}\n")
    assert lines == ["a\n", "b\n", "c\n"]
    assert ("verify" in stderr.getvalue()) is is_terminal
    assert not stderr.getvalue().rpartition(BAR)[2].strip()


@pytest.mark.parametrize("command", [verify, formats, repair])
@pytest.mark.parametrize("is_terminal", [True, False])
def test_commands_on_a_directory_show_progress_on_a_terminal_only(
    command: object, is_terminal: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, colours: None
) -> None:
    with Embedded(data_dir=tmp_path / "data") as broker:
        broker.create_topic("t", partitions=2)
    stdout, stderr = Terminal(is_terminal), Terminal(is_terminal)
    monkeypatch.setattr(sys, "stdout", stdout)
    monkeypatch.setattr(sys, "stderr", stderr)
    assert callable(command) and command([str(tmp_path / "data")]) == 0
    assert bool(stderr.getvalue()) is is_terminal
    assert (ESCAPE in stdout.getvalue()) is (is_terminal and command is verify)
