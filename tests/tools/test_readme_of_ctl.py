"""What README.md shows of `ottla ctl` is what it prints, line by line."""

from __future__ import annotations

import asyncio
import re
import shlex
from pathlib import Path

from ottla.storage.io.memory import MemoryFiles
from ottla_testing import ROOT
from ottla_testing.broker.controlling import controlled
from ottla_testing.broker.ctl_runs import run

README = ROOT / "README.md"


def part(name: str) -> str:
    match = re.search(rf"<!-- {name} -->\n(.*?)<!-- /{name} -->", README.read_text(), re.DOTALL)
    assert match, f"README.md has no part {name}"
    return match[1]


def same(text: str) -> list[str]:
    """Lines without what differs from run to run: how wide ports are, and the machine's time."""
    apart = re.sub(r"[0-9]+d [0-9:.]+ (behind|ahead of)", r"\1", text.strip())
    return [" ".join(line.split()) for line in apart.splitlines()]


async def test_the_commands_print_what_the_readme_says(tmp_path: Path) -> None:
    lines = [line.removeprefix("    ") for line in part("ctl").splitlines()]
    session = [(text[0], text[1:]) for text in (piece.splitlines() for piece in "\n".join(lines).split("$ ")[1:])]
    assert len(session) > 10
    async with controlled(tmp_path, brokers=3, files=MemoryFiles(lambda: 0)) as (broker, api):
        await api.ask("POST", "/clock/freeze")
        for command, expected in session:
            words = shlex.split(command, comments=True)
            assert words[:2] == ["ottla", "ctl"], command
            code, out, error = await asyncio.to_thread(run, api.url, *words[2:])
            assert (code, error) == (0, ""), error
            for number, port in enumerate(broker.ports):
                out = out.replace(f":{port} ", f":{9092 + number} ")
            assert same(out) == same("\n".join(expected)), f"$ {command}\n{out}"
