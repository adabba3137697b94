"""Addresses on the command line: accepted forms, and one-line errors."""

from __future__ import annotations

import itertools
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from ottla.broker.errors import ConfigError
from ottla.tools import main
from ottla.tools.serve import parse_serve
from ottla_testing.each import each

WITH_BOOTSTRAP = {
    "acls": ["--list"],
    "configs": ["--describe", "--entity-type", "topics"],
    "delegation-tokens": ["--describe"],
    "explain": ["--transactions"],
    "groups": ["--list"],
    "mirror": ["--topics", "x", "--data-dir", "d"],
    "producers": [],
    "records": ["--offsets"],
    "replay": ["x.jsonl"],
    "topics": ["--list"],
}


def listeners(folder: Path, *arguments: str) -> list[str]:
    options, *_ = parse_serve([*arguments, "--data-dir", str(folder)], {})
    return [str(listener) for listener in options.listeners]


@pytest.mark.parametrize(
    ("argument", "listener"),
    [
        ("24010", "PLAINTEXT://127.0.0.1:24010"),
        ("0", "PLAINTEXT://127.0.0.1:0"),
        (":9092", "PLAINTEXT://:9092"),
        ("[::1]:9092", "PLAINTEXT://[::1]:9092"),
        ("localhost:9092", "PLAINTEXT://localhost:9092"),
        ("PLAINTEXT://localhost:9092", "PLAINTEXT://localhost:9092"),
        ("inner://:9092", "INNER://:9092"),
        ("INNER=9092", "INNER://127.0.0.1:9092"),
    ],
)
def test_listener_address_is_parsed(argument: str, listener: str, tmp_path: Path) -> None:
    assert listeners(tmp_path, "--listen", argument) == [listener]


@pytest.mark.parametrize(
    ("flag", "argument", "text"),
    [
        ("--listen", "localhost:99999", "--listen 'localhost:99999': expected a port from 0 to 65535, not 99999"),
        ("--listen", "99999999", "--listen '127.0.0.1:99999999': expected a port from 0 to 65535, not 99999999"),
        ("--listen", "localhost", "--listen localhost: the port is missing (0 lets the system choose)"),
        ("--listen", "::1:9092", "write an IPv6 address in brackets: [::1]:9092"),
        ("--listen", "http://localhost:9092", "not an HTTP address: expected PLAINTEXT://HOST:PORT"),
        (
            "--listen",
            "SSL://localhost:9092",
            "listener SSL has TLS, and neither ssl.keystore.location nor ssl.keystore.key is set",
        ),
        ("--listen", "a b://localhost:9092", "a listener name may only have letters"),
        ("--control", "99999", "--control '127.0.0.1:99999': expected a port from 0 to 65535, not 99999"),
        ("--control", "localhost", "--control localhost: the port is missing"),
        ("--control", ":9080", "--control :9080: the host is missing"),
        ("--advertise", "localhost:99999", "--advertise 'localhost:99999': expected a port from 0 to 65535"),
    ],
)
def test_invalid_address_is_explained(flag: str, argument: str, text: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as raised:
        parse_serve([flag, argument, "--data-dir", str(tmp_path)], {})
    assert text in str(raised.value) and "\n" not in str(raised.value)


@pytest.mark.parametrize("argument", ["9080", "127.0.0.1:9080", "http://127.0.0.1:9080/"])
def test_control_plane_address_is_parsed(argument: str, tmp_path: Path) -> None:
    options, *_ = parse_serve(["--control", argument, "--data-dir", str(tmp_path)], {})
    assert options.control is not None
    assert (options.control.listener.host, options.control.listener.port) == ("127.0.0.1", 9080)


@pytest.mark.process
def test_port_in_use_is_reported_with_advice(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        command = [sys.executable, "-m", "ottla.tools", "serve", "--listen", str(port), "--data-dir"]
        done = subprocess.run([*command, str(tmp_path / "d")], capture_output=True, text=True, timeout=60)
    out, err = done.stdout, done.stderr
    assert done.returncode == 2
    assert out == "" and err.count("\n") == 1 and f"cannot listen on 127.0.0.1:{port}: Address already in use" in err
    assert "choose another one, or port 0" in err and not (tmp_path / "d").exists()


def test_every_command_with_a_bootstrap_address_is_covered() -> None:
    names = set(main.names())
    others = {
        "clients",
        "completion",
        "ctl",
        "diff",
        "dump",
        "formats",
        "import-dir",
        "pipeline",
        "releases",
        "repair",
        "serve",
    }
    assert names == set(WITH_BOOTSTRAP) | others | {"top", "verify"}


@pytest.mark.parametrize("command", WITH_BOOTSTRAP)
@each(
    ("flag", "address"),
    itertools.product(
        ["--bootstrap-server", "--bootstrap"],
        ["127.0.0.1:99999", "PLAINTEXT://127.0.0.1:9092", "9092", ":9092"],
    ),
    strided=True,
)
def test_invalid_bootstrap_address_is_one_line(
    command: str,
    flag: str,
    address: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    try:
        code = main.main([command, *WITH_BOOTSTRAP[command], flag, address])
    except SystemExit as stopped:
        code = stopped.code
    out, err = capsys.readouterr()
    assert code in (1, 2) and out == "" and err.count("\n") == 1, err
    assert err.startswith(f"ottla {command}: ") and address in err and "Traceback" not in err
