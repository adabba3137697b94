"""`ottla top` without a screen: rates, numbers, sorting, the printed page, JSON, and errors in one line."""

from __future__ import annotations

import asyncio
import builtins
import io
import json
import re
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest

from ottla.storage.io.memory import MemoryFiles
from ottla.tools.top.command import top
from ottla.tools.top.rates import History
from ottla.tools.top.tables import TABS, details, page, trend
from ottla_testing.broker.controlling import controlled
from ottla_testing.broker.ctl_runs import ctl_lines
from ottla_testing.broker.harness import produce, records
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


def rates(ctl_lines: dict[str, Any], kind: str, number: int = 0) -> dict[str, float | None]:
    return ctl_lines[kind][number]["per_second"]


def test_rates_are_the_growth_of_counters() -> None:
    history = History()
    first = history.add(overview(1000, topics=[topic("t", records_in=5)], totals={"requests": 10}))
    assert rates(first, "topics") == {"records_in": None, "bytes_in": None, "bytes_out": None}
    assert first["totals"]["per_second"]["requests"] is None
    second = history.add(overview(3000, topics=[topic("t", records_in=105, bytes_in=30)], totals={"requests": 30}))
    assert rates(second, "topics") == {"records_in": 50.0, "bytes_in": 15.0, "bytes_out": 0.0}
    assert second["totals"]["per_second"]["requests"] == 10.0
    quick = history.add(overview(3200, topics=[topic("t", records_in=105), topic("new", records_in=3)]))
    assert rates(quick, "topics")["records_in"] == pytest.approx(100 / 2.2, abs=0.001), "not over 200 ms"
    assert rates(quick, "topics", 1)["records_in"] is None
    restarted = history.add(overview(4200, topics=[topic("t", records_in=2)]))
    assert rates(restarted, "topics")["records_in"] is None, "a recreated topic"


@pytest.mark.parametrize("changed", [{"instance": "j"}, {"state": 2}, {"uptime_ms": 500}])
def test_rates_restart_with_another_state(changed: dict[str, Any]) -> None:
    history = History()
    history.add(overview(1000, topics=[topic("t", records_in=5)]))
    ctl_lines = history.add(overview(2000, topics=[topic("t", records_in=50)], broker=changed))
    assert rates(ctl_lines, "topics")["records_in"] is None
    ctl_lines = history.add(overview(3000, topics=[topic("t", records_in=60)], broker=changed | {"uptime_ms": 3500}))
    assert rates(ctl_lines, "topics")["records_in"] is not None


def test_lag_trend_covers_ten_seconds() -> None:
    history = History()
    for second in range(31):
        lag = 1000 - 20 * second + (7 * second) % 5 * 30  # consumers commit now and then
        ctl_lines = history.add(overview(1000 * second, groups=[group("g", lag=lag, committed=40 * second)]))
        if second >= 11:
            assert rates(ctl_lines, "groups")["committed"] == 40.0
            assert -32.0 <= (rates(ctl_lines, "groups")["lag"] or 0) <= -8.0
    assert len(history._known) <= 12


@each(
    ("shown", "expected"),
    [
        (trend(120.0), "+120/s"),
        (trend(-3.52), "-3.5/s"),
        (trend(0.01), "steady"),
        (trend(None), "-"),
    ],
)
def test_trend_has_a_sign_and_three_digits(shown: str, expected: str) -> None:
    assert shown == expected


def everything_hostile() -> dict[str, Any]:
    fault: dict[str, Any] = {"id": 1, "action": "delay", "ms": 5, "matched": 2, "fired": 1, "client_id": HOSTILE}
    return overview(
        topics=[topic(HOSTILE)],
        groups=[group(HOSTILE, state=HOSTILE, protocol=HOSTILE, topics=[HOSTILE])],
        producers=[producer(1, topic=HOSTILE, transactional_id=HOSTILE)],
        clients=[client(HOSTILE, software_name=HOSTILE, software_version=HOSTILE)],
        slow=[slow(1, client_id=HOSTILE, fault=HOSTILE)],
        waiting=[waiting(2, client_id=HOSTILE)],
        faults=[fault],
    )


def test_control_characters_in_names_are_escaped() -> None:
    ctl_lines = History().add(everything_hostile())
    text = "".join(page(ctl_lines))
    assert all(letter.isprintable() or letter == "\n" for letter in text)
    assert text.count(SHOWN_HOSTILE) >= 9
    for tab in TABS:
        for row in ctl_lines[tab.kind]:
            assert all(line.isprintable() for line in details(tab, row)), tab.kind


def test_rows_are_sorted_by_any_column_with_missing_values_last() -> None:
    history = History()
    history.add(overview(1000, topics=[topic("b"), topic("a")]))
    ctl_lines = history.add(overview(2000, topics=[topic("b", records_in=1), topic("c"), topic("a"), topic("B")]))
    tab = TABS[0]
    for is_falling, names in ((True, ["b", "a", "B", "c"]), (False, ["a", "b", "B", "c"])):
        rows = tab.sorted(ctl_lines["topics"], tab.columns[tab.column("IN REC/S")], is_falling=is_falling)
        assert [row["name"] for row in rows] == names
    for kind_shown in (ctl_lines, History().add(everything_hostile())):
        for tab in TABS:
            for column in tab.columns:
                for is_falling in (False, True):
                    assert len(tab.sorted(kind_shown[tab.kind], column, is_falling=is_falling)) == len(
                        kind_shown[tab.kind]
                    )


def run(*arguments: str, environ: dict[str, str] | None = None) -> tuple[int, str, str]:
    """Runs `ottla top` with output that is not a terminal; returns (exit code, stdout, stderr)."""
    out, error = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(error):
        try:
            code = top(arguments, environ or {})
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 0
    return code, out.getvalue(), error.getvalue()


async def test_one_page_is_printed(tmp_path: Path) -> None:
    async with controlled(tmp_path, files=MemoryFiles(lambda: 0)) as (broker, api):
        await broker.topic("orders", 2)
        await api.call("POST", "/faults", {"action": "stall", "api": "Heartbeat", "client_id": "app"})
        client = await broker.client()
        await client.call(produce(records(b"one", b"two"), "orders"), 9, "shop")
        given = ("--control", api.url, "--interval", "0.1")
        code, out, error = await asyncio.to_thread(run, *given)
        assert (code, error) == (0, "")
        lines = [" ".join(line.split()) for line in out.splitlines()]
        assert re.fullmatch(rf"ottla [0-9.]+ release ottla 127.0.0.1:{broker.ports[0]} up .*", lines[0])
        assert re.fullmatch(r"clock [0-9-]+ [0-9:]+ UTC 1 fault rule", lines[1])
        assert "1 connection lag 0 1 topic " in lines[2] and "in 0 rec/s 0 B/s" in lines[2]
        assert any(line.startswith("orders 2 2 ") for line in lines), out
        assert any(line.startswith("shop ") for line in lines), out
        assert any(line.startswith("1 stall 0 0 api=Heartbeat client_id=app") for line in lines), out
        assert "no groups" in lines and "no waiting requests" in lines
        code, out, error = await asyncio.to_thread(run, *given, "--json", "--filter", "RDERS", "--limit", "1")
        found = json.loads(out)
        assert (code, error, [one["name"] for one in found["topics"]], found["clients"]) == (0, "", ["orders"], [])
        assert found["topics"][0]["per_second"] == {"records_in": 0.0, "bytes_in": 0.0, "bytes_out": 0.0}
        environ = {"OTTLA_CONTROL": api.url}
        code, out, _ = await asyncio.to_thread(run, "--once", "--interval", "0.1", environ=environ)
        assert code == 0 and "orders" in out
        printed = await ctl_lines(api, "overview", "--filter", "order", "--limit", "5")
        assert printed[4].startswith("TOPIC PARTS RECORDS SIZE") and printed[5].startswith("orders 2 2 ")
        assert "req/s" not in printed[2], "one response has no rates"


@pytest.mark.parametrize(
    ("arguments", "code", "why"),
    [
        ((), 2, "no address of a control plane: give --control"),
        (("--control", "ftp://x"), 2, "'ftp://x' is no control plane's address"),
        (("--control", "127.0.0.1:1", "--interval", "0"), 2, "'0' is not a number of seconds"),
        (("--control", "127.0.0.1:1", "--interval", "nan"), 2, "'nan' is not a number of seconds"),
        (("--control", "127.0.0.1:1", "--limit", "0"), 2, "'0' is not a number from 1 to 10000"),
        (("--control", "127.0.0.1:1"), 1, "no control plane at http://127.0.0.1:1"),
    ],
)
def test_errors_are_one_line(arguments: tuple[str, ...], code: int, why: str) -> None:
    found, out, error = run(*arguments)
    assert (found, out) == (code, "") and error.startswith("ottla top: ") and why in error and error.count("\n") == 1


def test_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *more: Any, **others: Any) -> Any:
        if name.partition(".")[0] == "textual":
            raise ModuleNotFoundError("No module named 'textual'", name="textual")
        return real(name, *more, **others)

    monkeypatch.delitem(sys.modules, "ottla.tools.top.app", raising=False)
    monkeypatch.setattr(builtins, "__import__", without)
    monkeypatch.setattr("ottla.tools.top.command.is_terminal", lambda stream: True)
    code, out, error = run("--control", "127.0.0.1:1")
    assert (code, out) == (2, "")
    assert (
        error
        == "ottla top: the screen needs textual: pip install 'ottla[top]' (--once prints the tables once without it)\n"
    )
