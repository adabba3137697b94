"""The session with `ottla ctl` in the documentation: each command prints what the page shows."""

from __future__ import annotations

import asyncio
import re
import shlex
from pathlib import Path

from ottla.storage.io.memory import MemoryFiles
from ottla_testing.broker.controlling import controlled
from ottla_testing.broker.ctl_runs import run
from ottla_testing.snippets import snippet


def same(text: str) -> list[str]:
    """Lines without what differs from run to run: how wide ports are, and the machine's time."""
    apart = re.sub(r"[0-9]+d [0-9:.]+ (behind|ahead of)", r"\1", text.strip())  # words: quoted
    return [" ".join(line.split()) for line in apart.splitlines()]


async def test_the_commands_print_what_the_page_shows(tmp_path: Path) -> None:
    pieces = (piece.splitlines() for piece in snippet("sessions/ctl.txt").split("$ ")[1:])
    session = [(lines[0], lines[1:]) for lines in pieces]
    assert len(session) > 10
    async with controlled(tmp_path, brokers=3, files=MemoryFiles(lambda: 0)) as (broker, api):
        await api.call("POST", "/clock/freeze")
        for command, expected in session:
            words = shlex.split(command, comments=True)
            assert words[:2] == ["ottla", "ctl"], command
            code, out, error = await asyncio.to_thread(run, api.url, *words[2:])
            assert (code, error) == (0, ""), error
            for number, port in enumerate(broker.ports):
                out = out.replace(f":{port} ", f":{9092 + number} ")
            assert same(out) == same("\n".join(expected)), f"$ {command}\n{out}"
