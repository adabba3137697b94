"""`ottla ctl` with a control plane: output, JSON, and errors in one line."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.broker.faults.actions import ACTIONS
from ottla.tools.ctl.faults import WORDS
from ottla_testing.broker.controlling import controlled
from ottla_testing.broker.ctl_runs import ctl_lines, refused, run
from ottla_testing.patience import PATIENCE_S


async def test_ctl_topics_and_records(tmp_path: Path) -> None:
    async with controlled(tmp_path) as (_, api):
        assert await ctl_lines(api, "topics") == ["no topics"]
        made = await ctl_lines(api, "topics", "create", "orders", "--partitions", "2", "--config", "retention.ms=1000")
        assert made == [
            "TOPIC PARTITIONS OFFSETS BYTES CONFIGS",
            "orders 2 0 0 retention.ms=1000",
            "",
            "PARTITION LEADER EPOCH START END STABLE BYTES",
            "0 1 0 0 0 0 0",
            "1 1 0 0 0 0 0",
        ]
        at = "2023-11-14 22:13:20.000"
        await ctl_lines(api, "clock", "freeze")
        assert (await ctl_lines(api, "clock", "set", "2023-11-14T22:13:20Z"))[0].startswith(
            f"{at} UTC (1700000000000), frozen,"
        )
        sent = await ctl_lines(
            api, "records", "send", "orders", "a\tb", "grüße", "--key", "k", "--header", "h=1=2", "--partition", "1"
        )
        assert sent == ["offset 0", "offset 1"]
        assert await ctl_lines(api, "records", "list", "orders") == [
            "PARTITION OFFSET TIMESTAMP (UTC) KEY VALUE HEADERS",
            f"1 0 {at} k a\\tb h=1=2",
            f"1 1 {at} k grüße h=1=2",
        ]
        assert await ctl_lines(api, "records", "list", "orders", "--partition", "0") == ["no records"]
        assert (await ctl_lines(api, "records", "list", "orders", "--offset", "0", "--limit", "1"))[
            -1
        ] == "more records follow"
        code, out, _ = await asyncio.to_thread(run, api.url, "topics", "show", "orders", "--json")
        assert code == 0 and json.loads(out) == await api.call("GET", "/topics/orders")
        assert (await ctl_lines(api, "topics", "create"))[1].startswith("topic-")
        assert "TOPIC_ALREADY_EXISTS" in await refused(api, "topics", "create", "orders")
        await ctl_lines(api, "records", "send", "orders", "\udcff", "--partition", "0", "--key", "")
        assert (await ctl_lines(api, "records", "list", "orders", "--partition", "0"))[1] == f"0 0 {at} base64:/w=="
        assert await ctl_lines(api, "topics", "delete", "orders") == ["removed: 1"]
        assert "UNKNOWN_TOPIC_OR_PARTITION" in await refused(api, "records", "list", "orders")
        assert "UNKNOWN_TOPIC_OR_PARTITION" in await refused(api, "topics", "show", "..")
        assert "'x' is not NAME=VALUE" in await refused(api, "topics", "create", "--config", "x")


async def test_ctl_clock(tmp_path: Path) -> None:
    async with controlled(tmp_path) as (_, api):
        assert re.fullmatch(r"[-0-9]+ [:.0-9]+ UTC \([0-9]+\), running, .* clock", (await ctl_lines(api, "clock"))[0])
        await ctl_lines(api, "clock", "freeze")
        await ctl_lines(api, "clock", "set", "2040-01-31T12:00:00+01:00")
        (line,) = await ctl_lines(api, "clock", "advance", "1h30m", "--keep-members")
        assert line.startswith("2040-01-31 12:30:00.000 UTC (2211625800000), frozen, ") and line.endswith(
            " ahead of the machine's clock"
        )
        (line,) = await ctl_lines(api, "clock", "set", "0")
        assert line.startswith("1970-01-01 00:00:00.000 UTC (0), frozen, ")
        assert " behind the machine's clock" in line  # words: quoted
        assert "running" in (await ctl_lines(api, "clock", "run"))[0]


FAULTS = {
    "error Produce NOT_LEADER_OR_FOLLOWER --topic t --partition 0 --nth 2": "error code=NOT_LEADER_OR_FOLLOWER "
    "api=Produce topic=t partition=0 nth=2",
    "error 1,Metadata -1": "error code=UNKNOWN_SERVER_ERROR api=Fetch,Metadata",
    "delay Fetch 1s500ms": "delay ms=1500 when=before api=Fetch",
    "delay any 2s after --client-id app-*": "delay ms=2000 when=after client_id=app-*",
    "disconnect Produce after --times 1": "disconnect when=after api=Produce times=1",
    "truncate Fetch 5 --after 3": "truncate bytes=5 api=Fetch after=3",
    "garble Fetch --seed -4": "garble api=Fetch seed=-4",
    "wrong-crc --probability 0.5": "wrong_crc probability=0.5",
    "throttle Produce 1s": "throttle ms=1000 api=Produce",
    "stall Heartbeat --node 1": "stall api=Heartbeat node=1",
    "refuse --listener PLAINTEXT": "refuse listener=PLAINTEXT",
    "disk-error write --path /x/*": "disk_error on=write path=/x/*",
    "disk-full --topic t": "disk_full topic=t",
}


async def test_ctl_faults(tmp_path: Path) -> None:
    assert set(WORDS) == {name.replace("_", "-") for name in ACTIONS}
    assert {text.split()[0] for text in FAULTS} == set(WORDS) - {"bad-certificate"}
    async with controlled(tmp_path) as (_, api):
        assert await ctl_lines(api, "faults") == ["no faults"]
        for number, (text, expected) in enumerate(FAULTS.items(), 1):
            action, _, where = expected.partition(" ")
            line = f"{number} {action} 0 0 {where}".rstrip()
            assert await ctl_lines(api, "faults", "add", *text.split()) == ["ID ACTION MATCHED FIRED WHERE", line]
            assert (await ctl_lines(api, "faults", "show", str(number)))[1] == line
        refusal = await refused(api, "faults", "add", "bad-certificate", "expired", "--times", "1")
        assert "bad_certificate needs a broker with the security ssl, mtls, sasl_ssl or oauth_ssl" in refusal
        assert len(await ctl_lines(api, "faults", "list")) == 1 + len(FAULTS)
        assert await ctl_lines(api, "faults", "remove", "3") == ["removed: 1"]
        assert await refused(api, "faults", "remove", "3") == "no fault with id 3 is in force"
        assert await refused(api, "faults", "add", "error", "Produce", "OOPS") == "no error code is named 'OOPS'"
        assert await refused(api, "faults", "add", "refuse", "--node", "9") == "there is no node 9: the nodes are 1"
        assert await refused(api, "faults", "add", "delay", "Fetch", "1s", "soon") == (
            "the body.when is 'soon': Invalid enum value 'soon'; accepted are after, before"
        )
        assert await ctl_lines(api, "faults", "clear") == [f"removed: {len(FAULTS) - 1}"]


async def test_ctl_topology(tmp_path: Path) -> None:
    async with controlled(tmp_path, brokers=2) as (broker, api):
        await ctl_lines(api, "topics", "create", "t")
        first, second = (f"127.0.0.1:{port}" for port in broker.ports)
        partition = (await api.call("GET", "/topology"))["partitions"][0]
        leader, other = partition["replicas"]
        epoch = partition["leader_epoch"]
        assert await ctl_lines(api, "topology", "move", "t", "0", str(other)) == [
            "NODE ADDRESS RUNNING",
            f"1 {first} yes",
            f"2 {second} yes",
            "",
            "TOPIC PARTITION LEADER EPOCH REPLICAS IN SYNC",
            f"t 0 {other} {epoch + 1} {leader},{other} {leader},{other}",
        ]
        assert (await ctl_lines(api, "topology", "stop", "2"))[2] == f"2 {second} no"
        assert (await ctl_lines(api, "topology", "start", "2"))[2] == f"2 {second} yes"
        assert (await ctl_lines(api, "topology", "offline", "t", "0"))[-1].startswith("t 0 - ")
        assert (await ctl_lines(api, "topology", "online", "t", "0"))[-1].startswith("t 0 ")
        assert (await ctl_lines(api, "topology", "spread"))[-1].startswith(f"t 0 {leader} ")
        assert await refused(api, "topology", "move", "t", "0", "3") == "there is no node 3"
        assert await refused(api, "topology", "offline", "t", "7") == "there is no partition t-7"


async def test_ctl_health_groups_and_producers(tmp_path: Path) -> None:
    async with controlled(tmp_path) as (broker, api):
        assert f"bootstrap 127.0.0.1:{broker.ports[0]}" in await ctl_lines(api, "health")
        assert await ctl_lines(api, "groups") == ["no groups"]
        assert await ctl_lines(api, "producers") == ["no producers"]
        assert await refused(api, "groups", "show", "a/b") == "there is no group a/b"
        assert "UNKNOWN_TOPIC_OR_PARTITION" in await refused(api, "producers", "--topic", "none")


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ([], "the following arguments are required: RESOURCE"),
        (["tpoics"], "unknown command tpoics; did you mean topics? one of: health, "),
        (["state"], "the following arguments are required: VERB"),
        (["clock", "advance", "7"], "argument DURATION: '7' is not a duration, such as 7d, 45s, 500ms or 1h30m"),
        (["clock", "set", "noon"], "argument TIME: 'noon' is not a time, such as 2026-01-31T12:00:00Z"),
        (["topology", "move", "t", "0", "x"], "argument NODE: 'x' is not a whole number"),
        (["faults", "add", "delay", "Fetch"], "faults add delay: expected delay API MS [WHEN]"),
        (["faults", "add", "delay", "Fetch", "5"], "'5' is not a duration, such as 7d, 45s, 500ms or 1h30m"),
        (["faults", "add", "truncate", "Fetch", "x"], "'x' is not a whole number"),
        (["--timeout", "0", "health"], "argument --timeout: '0' is not a number of seconds from 0.001 to 999999999"),
        (["--control", "ftp://a", "health"], "'ftp://a' is no control plane's address"),
    ],
)
def test_wrong_arguments_are_one_line_and_exit_code_2(arguments: list[str], line: str) -> None:
    code, out, error = run("127.0.0.1:1", *arguments)
    assert (code, out, error.count("\n")) == (2, "", 1), error
    assert error.startswith("ottla ctl") and line in error, error


def test_missing_address_names_what_to_give() -> None:
    line = "ottla ctl: no address of a control plane: give --control http://HOST:PORT, or set OTTLA_CONTROL\n"
    assert run(None, "health") == (2, "", line)


@contextlib.contextmanager
def answering(raw: bytes) -> Iterator[str]:
    """Runs a server that responds to one request with these bytes; yields its address."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            with listening.accept()[0] as one:
                one.recv(65536)
                one.sendall(raw)

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"127.0.0.1:{listening.getsockname()[1]}"
        thread.join(PATIENCE_S)


@pytest.mark.parametrize(
    ("raw", "line"),
    [
        (b"", "no control plane at http://"),
        (b"\0\xff\0\n", "no control plane at http://"),
        (
            b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n<a",
            "unexpected response from",
        ),
        (
            b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{}",
            "unexpected response from",
        ),
        (
            b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]",
            "unexpected response from",
        ),
        (
            b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nnull",
            "unexpected response from",
        ),
        (b'HTTP/1.1 500 X\r\nContent-Length: 15\r\n\r\n{"error": "a b"}', "HTTP status 500"),
        (b'HTTP/1.1 500 X\r\nContent-Length: 19\r\n\r\n{"error": "a\\nb\\t"}', "a\\nb"),
        (b"HTTP/1.1 503 X\r\nContent-Length: 1\r\n\r\n1", "HTTP status 503"),
    ],
)
def test_unexpected_response_is_one_line_and_exit_code_1(raw: bytes, line: str) -> None:
    with answering(raw) as address:
        code, out, error = run(None, "health", environ={"OTTLA_CONTROL": address})
    assert (code, out, error.count("\n")) == (1, "", 1), error
    assert error.startswith("ottla ctl: ") and line in error, error


@pytest.mark.parametrize("arguments", [["configs", "show"], ["requests", "assert", "--json"]])
def test_response_of_another_server_is_one_line(arguments: list[str]) -> None:
    with answering(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}") as address:
        code, out, error = run(address, *arguments)
    assert (code, out, error.count("\n")) == (1, "", 1), error
    assert error.startswith("ottla ctl: unexpected response from"), error


@pytest.mark.parametrize(
    "arguments", [["clock", "--control", "{}", "--timeout", "9"], ["configs", "show", "--timeout=9", "--control={}"]]
)
def test_flags_of_the_control_plane_may_follow_the_command(arguments: list[str]) -> None:
    with answering(b"HTTP/1.1 503 X\r\nContent-Length: 1\r\n\r\n1") as address:
        outcome = run(None, *(one.format(address) for one in arguments))
    assert outcome == (1, "", "ottla ctl: HTTP status 503 from the control plane\n")
    code, out, _ = run(None, "configs", "show", "--help")
    assert code == 0 and "--topic" in out and "--control" not in out


def test_timeout_is_respected_and_proxies_are_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    with socket.create_server(("127.0.0.1", 0)) as listening:
        address = f"127.0.0.1:{listening.getsockname()[1]}"
        code, _, error = run(address, "--timeout", "0.01", "health")
    assert (code, error) == (1, f"ottla ctl: http://{address} sent no response within 0.01 s\n")


def test_ctl_imports_only_the_standard_library() -> None:
    program = (
        "import sys; import ottla.tools.ctl.command as ctl; ctl.ctl_parser()\n"
        "print(sorted({'aiohttp', 'asyncio', 'structlog', 'uvloop', 'construct'} & set(sys.modules)))"
    )
    outcome = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE_S)
    assert (outcome.stdout, outcome.stderr) == ("[]\n", "")


def test_help_explains_who_has_access() -> None:
    code, out, _ = run(None, "--help")
    assert code == 0 and "--control-token-file FILE" in out and "OTTLA_CONTROL_TOKEN" in out
    code, out, _ = run(None, "faults", "add", "--help")
    assert code == 0 and "delay API MS [WHEN]" in out
