"""The steps of "Two requests, step by step" are those that requests take in a running broker."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from ottla.broker import Embedded
from ottla.broker.network.connections import ClientConnection
from ottla.client import Consumer, Producer
from ottla_testing import ROOT
from ottla_testing.sessions import DOCS

PAGE = (DOCS / "internals" / "journeys.md").read_text()
ROUNDS = 3  # the first one generates code for the messages


@pytest.fixture
def traces(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[list[str]]]:
    """The files of each arrival of bytes at a broker, in the order in which they are entered first."""
    found: list[list[str]] = []
    receive = ClientConnection.buffer_updated

    def buffer_updated(self: ClientConnection, size: int) -> None:
        entered: dict[str, None] = {}

        def note(frame: FrameType, event: str, argument: Any) -> None:
            path = Path(frame.f_code.co_filename)
            if event == "call" and path.is_relative_to(ROOT):
                entered.setdefault(str(path.relative_to(ROOT)))

        before = sys.getprofile()
        sys.setprofile(note)
        try:
            receive(self, size)
        finally:
            sys.setprofile(before)
            found.append(list(entered))

    monkeypatch.setattr(ClientConnection, "buffer_updated", buffer_updated)
    yield found


def steps(title: str) -> list[str]:
    """The files in the table of a section, in order."""
    section = PAGE.split(f"## {title}\n")[1].split("\n## ")[0]
    return re.findall(r"^\| `(\S+\.py)` \|", section, re.MULTILINE)


async def test_requests_take_the_documented_steps(traces: list[list[str]]) -> None:
    with Embedded() as broker:
        topic = broker.create_topic()
        async with Producer(broker.bootstrap) as producer:
            for _ in range(ROUNDS):
                await producer.send_and_wait(topic, b"value")
        for _ in range(ROUNDS):
            async with Consumer(broker.bootstrap, topics=[topic], offset_reset="earliest") as consumer:
                await consumer.getone()
    for title, last in (("Produce", "storage/log/flusher.py"), ("Fetch", "storage/segments/read_range.py")):
        handler = f"broker/handlers/records/{title.lower()}.py"
        taken = min((files for files in traces if handler in files and last in files), key=len)
        documented = steps(title)
        assert [file for file in taken if file in documented] == documented


def test_every_file_of_the_page_exists() -> None:
    for path in re.findall(r"`((?:broker|storage|protocol|tests)/\S+\.py)`", PAGE):
        assert (ROOT / path).is_file(), path
