"""The screen of `ottla top` with textual's pilot: keys, mouse, sorting, filters, hostile names."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from textual import events
from textual.pilot import Pilot
from textual.widgets import Input, Static

from ottla.tools.http_client import Unreachable
from ottla.tools.top.app import HELP, Top
from ottla.tools.top.widgets import Rows, TabBar, Words
from ottla_testing.broker.top_world import (
    HOSTILE,
    SHOWN_HOSTILE,
    client,
    group,
    overview,
    producer,
    slow,
    topic,
    waiting,
)
from ottla_testing.each import each
from ottla_testing.patience import PATIENCE_S

NARROW, WIDE = (80, 24), (160, 50)


class World:
    """A broker that responds as the test sets it, and keeps the requests."""

    def __init__(self) -> None:
        self.requested: list[str] = []
        self.lists: dict[str, Any] = {}
        self.failure: Exception | None = None
        self.uptime_ms = 0

    def respond(self, contains: str) -> dict[str, Any]:
        self.requested.append(contains)
        if self.failure is not None:
            raise self.failure
        self.uptime_ms += 1000
        lists = dict(self.lists)
        wanted = contains.casefold()
        lists["topics"] = [one for one in lists.get("topics", ()) if wanted in one["name"].casefold()]
        return overview(self.uptime_ms, **lists)


class Counted(Top):
    """The application; `drawn` counts the responses and errors that it has drawn."""

    drawn = 0

    async def _look(self) -> None:
        await super()._look()
        self.drawn += 1


class Screen:
    """The contents of the screen, and key presses."""

    def __init__(self, app: Counted, pilot: Pilot[None], world: World) -> None:
        self.app, self.pilot, self.world = app, pilot, world

    @property
    def table(self) -> Rows:
        return self.app.screen_stack[0].query_one(Rows)

    @property
    def heads(self) -> list[str]:
        return [column.label.plain.strip() for column in self.table.ordered_columns]

    @property
    def rows(self) -> list[list[str]]:
        return [[cell.plain.strip() for cell in self.table.get_row_at(at)] for at in range(self.table.row_count)]

    @property
    def names(self) -> list[str]:
        return [row[0] for row in self.rows]

    def static(self, id: str) -> str:
        return str(self.app.screen_stack[0].query_one(f"#{id}", Static).render())

    @property
    def picture(self) -> list[str]:
        """Returns the letters on the screen, line by line."""
        lines = self.app.screen._compositor.render_strips()
        return ["".join(segment.text for segment in strip) for strip in lines]

    async def press(self, *keys: str) -> None:
        await self.pilot.press(*keys)
        await self.pilot.pause()

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not holds():
                await self.pilot.pause(0.005)

    async def looked(self, times: int = 1) -> None:
        """Returns when it has fetched and drawn this many more times."""
        wanted = len(self.world.requested) + times
        self.app._wake.set()
        await self.until(lambda: self.app.drawn >= wanted)  # a request is counted before its response is drawn
        await self.pilot.pause()


@asynccontextmanager
async def screen(world: World, size: tuple[int, int] = NARROW, interval_seconds: float = 60.0) -> AsyncIterator[Screen]:
    app = Counted(world.respond, "http://127.0.0.1:9080", interval_seconds)
    async with app.run_test(size=size) as pilot:
        found = Screen(app, pilot, world)
        await found.until(lambda: app.drawn > 0)
        await pilot.pause()
        yield found


def busy() -> World:
    world = World()
    world.lists = {
        "topics": [topic("orders", size_bytes=5, records_in=7), topic("audit", size_bytes=9), topic("Orders.v2")],
        "groups": [group("billing", lag=12), group("shipping", lag=40)],
        "producers": [producer(4000, last_sequence=7, transaction_start_offset=3, transactional_id="tx")],
        "clients": [client("shop"), client(None)],
        "slow": [slow(3, duration_us=2_500_000), slow(4, duration_us=400)],
        "waiting": [waiting(9, waiting_ms=230)],
        "faults": [{"id": 1, "action": "stall", "api": "Fetch", "matched": 1, "fired": 0}],
        "totals": {"topics": 3, "groups": 2, "connections": 1, "faults": 1},
    }
    return world


@each("size", [NARROW, WIDE], strided=True)
async def test_tabs_are_selected_by_number(size: tuple[int, int]) -> None:
    expected = {
        "1": ("TOPIC", ["audit", "orders", "Orders.v2"]),
        "2": ("GROUP", ["shipping", "billing"]),
        "3": ("ID", ["4000"]),
        "4": ("CLIENT", ["-", "shop"]),
        "5": ("TOOK ▼", ["2.5 s", "400 µs"]),
        "6": ("FOR SO LONG ▼", ["230 ms"]),
        "7": ("ID ▲", ["1"]),
    }
    async with screen(busy(), size) as shown:
        for key, (first, names) in expected.items():
            await shown.press(key)
            assert (shown.heads[0], sorted(shown.names)) == (first, sorted(names)), key
            assert all(len(line) <= size[0] for line in shown.picture)
        await shown.press("tab")
        assert shown.app.tab.kind == "topics"
        await shown.press("shift+tab")
        assert shown.app.tab.kind == "faults"
        assert "ottla 0.1.0" in shown.static("head") and "1 fault rule" in shown.static("head")
        assert ("VERSIONS" in " ".join(shown.heads)) is False
        await shown.press("4")
        assert ("HOSTS" in shown.heads) is (size == WIDE)
        await shown.press("3")
        assert {"SEQUENCE", "TRANSACTION"} <= set(shown.heads) and "open from 3" in shown.rows[0]


async def test_sorting_by_keys_and_by_a_click() -> None:
    async with screen(busy(), WIDE) as shown:
        assert "IN REC/S ▼" in shown.heads
        while "SIZE ▼" not in shown.heads:
            await shown.press("<")
        assert shown.names == ["audit", "orders", "Orders.v2"]
        await shown.press("r")
        assert shown.names == ["Orders.v2", "orders", "audit"] and "SIZE ▲" in shown.heads
        await shown.press("<", "<", "<")
        assert shown.heads[0] == "TOPIC ▲" and shown.names == ["audit", "orders", "Orders.v2"]
        await shown.press("<")
        assert shown.heads[-1].endswith("▲"), "round about"
        await shown.press(">", ">")
        at = sum(column.get_render_width(shown.table) for column in shown.table.ordered_columns[:3])
        await shown.pilot.click(Rows, offset=(at + 1, 0))
        await shown.pilot.pause()
        assert "SIZE ▼" in shown.heads and shown.names[0] == "audit"
        await shown.pilot.click(Rows, offset=(at + 1, 0))
        await shown.pilot.pause()
        assert "SIZE ▲" in shown.heads
        await shown.looked()
        assert "SIZE ▲" in shown.heads


async def test_selected_row_stays_selected() -> None:
    world = busy()
    async with screen(world) as shown:
        await shown.press("<", "down")  # by size
        assert shown.names[shown.table.cursor_row] == "orders"
        world.lists["topics"][2]["size_bytes"] = 100
        await shown.looked()
        assert shown.names == ["Orders.v2", "audit", "orders"] and shown.table.cursor_row == 2
        await shown.press("enter")
        words = str(shown.app.screen.query_one(Static).render())
        assert isinstance(shown.app.screen, Words)
        assert "name                   orders" in words and "records in per second  0" in words
        await shown.looked()  # an overlay does not cover it
        page = shown.app.screen
        for _ in range(3):  # more keys and clicks than it processes
            page.post_message(events.Key("escape", None))
            page.on_click()
        await shown.pilot.pause()
        assert not isinstance(shown.app.screen, Words)
        del world.lists["topics"][0]
        await shown.looked()
        assert shown.table.cursor_row == 0


async def test_filter_is_requested_and_shown_at_once() -> None:
    world = busy()
    async with screen(world) as shown:
        await shown.press("slash", *"ORD")
        assert sorted(shown.names) == ["Orders.v2", "orders"] and shown.app.focused is shown.app.query_one(Input)
        await shown.until(lambda: world.requested[-1] == "ORD")
        await shown.press("q")
        assert shown.static("none") == "no name contains 'ORDq'" and not shown.table.display
        await shown.press("backspace", "enter")
        assert sorted(shown.names) == ["Orders.v2", "orders"] and shown.app.focused is shown.table
        await shown.press("2")
        assert shown.names == ["shipping", "billing"], "each tab has its own"
        await shown.until(lambda: world.requested[-1] == "")
        await shown.press("1", "escape")
        await shown.until(lambda: len(shown.names) == 3)
        assert world.requested[-1] == ""


async def test_pause_and_interval_keys() -> None:
    world = busy()
    async with screen(world, interval_seconds=1.0) as shown:
        await shown.press("p")
        assert "PAUSED" in shown.static("head")
        await shown.pilot.pause(0.02)
        before = len(world.requested)
        shown.app._wake.set()
        await shown.pilot.pause(0.02)
        assert len(world.requested) == before
        await shown.press("plus")
        assert "PAUSED" in shown.static("head")
        await shown.press("space")
        await shown.until(lambda: len(world.requested) > before)
        assert "every 2 s" in shown.static("head")
        await shown.press("minus", "minus", "minus")
        assert "every 0.25 s" in shown.static("head")
        await shown.press("minus")
        assert "every 0.25 s" in shown.static("head")
        before = len(world.requested)
        await shown.until(lambda: len(world.requested) > before + 1)


async def test_lost_broker_comes_back() -> None:
    world = busy()
    world.failure = Unreachable("no control plane at x: [red]refused\x1b")
    async with screen(world) as shown:
        assert "[red]refused\\x1b" in shown.static("head")
        world.failure = None
        await shown.looked()
        assert len(shown.names) == 3
        world.failure = Unreachable("gone")
        await shown.looked()
        assert "gone; retrying" in shown.static("head") and len(shown.names) == 3
        world.failure = KeyError("instance")
        await shown.looked()
        assert "unexpected response from" in shown.static("head")
        world.failure, world.uptime_ms = None, 0
        world.lists["broker"] = {"instance": "another"}
        await shown.looked()
        assert "trying again" not in shown.static("head") and len(shown.names) == 3
        await shown.looked()
        assert shown.rows[0][shown.heads.index("IN B/S")] == "0 B"


async def test_warnings_of_a_broker_are_shown() -> None:
    world = busy()
    world.lists["clock"] = {"now_ms": 0, "is_frozen": True, "offset_ms": -5000}
    world.lists["broker"] = {"status": "failed", "reason": "disk [x]"}
    world.lists["totals"] = {"offline_partitions": 2}
    world.lists["topics"] = [topic("t", partitions=3, offline_partitions=2)]
    world.lists["nodes"] = [{"id": n, "host": "h", "port": 1, "running": n < 2, "leads": 0} for n in (1, 2)]
    async with screen(world, WIDE) as shown:
        head = shown.static("head")
        assert "FAILED: disk [x]" in head and "2 partitions offline" in head and "2 nodes, stopped: 2" in head
        assert "clock 1970-01-01 00:00:00 UTC, FROZEN, 00:00:05.000 behind the machine's clock" in head  # words: quoted
        assert "3 (2 off)" in shown.rows[0]


async def test_hostile_names_are_drawn_as_they_are() -> None:
    world = World()
    world.lists = {
        "topics": [topic(HOSTILE)],
        "groups": [group(HOSTILE, topics=[HOSTILE])],
        "producers": [producer(1, topic=HOSTILE, transactional_id=HOSTILE)],
        "clients": [client(HOSTILE, software_name=HOSTILE)],
        "slow": [slow(1, client_id=HOSTILE)],
        "waiting": [waiting(1, client_id=HOSTILE)],
    }
    async with screen(world, WIDE) as shown:
        for key in "123456":
            await shown.press(key)
            lines = shown.picture
            assert any(SHOWN_HOSTILE[:14] in line for line in lines), key
            assert all(letter.isprintable() for line in lines for letter in line), key
        await shown.press("enter")
        assert any("[bold red]x[/]" in line for line in shown.picture)
        assert all(letter.isprintable() for line in shown.picture for letter in line)
        await shown.press("escape", "slash", "left_square_bracket", "slash", "right_square_bracket")
        assert all(letter.isprintable() for line in shown.picture for letter in line)


async def test_help_mouse_and_resizing() -> None:
    world = busy()
    async with screen(world) as shown:
        await shown.press("question_mark")
        assert isinstance(shown.app.screen, Words)
        assert any("sort by the column to the left" in line for line in shown.picture)
        assert all(len(line) <= 96 for line in HELP.splitlines())
        await shown.press("q")
        assert not isinstance(shown.app.screen, Words), "it ends the page alone"
        await shown.pilot.click(TabBar, offset=(36, 0))
        await shown.pilot.pause()
        assert shown.app.tab.kind == "clients"
        narrow = len(shown.heads)
        await shown.pilot.resize_terminal(*WIDE)
        await shown.until(lambda: len(shown.heads) > narrow)
        await shown.pilot.resize_terminal(20, 5)
        await shown.until(lambda: len(shown.heads) < narrow)
        assert shown.heads[0] == "CLIENT"


async def test_hanging_broker_does_not_delay_the_end() -> None:
    hanging = threading.Event()
    world = busy()

    def respond(contains: str) -> dict[str, Any]:
        hanging.wait(PATIENCE_S * 4)
        return world.respond(contains)

    app = Top(respond, "http://127.0.0.1:9080", 1.0)
    try:
        async with asyncio.timeout(PATIENCE_S), app.run_test(size=NARROW) as pilot:
            await pilot.press("2", "slash", "x", "escape")
            await pilot.press("q")
        assert not app.is_running
    finally:
        hanging.set()
