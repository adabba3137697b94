"""`ottla serve --control`: when it listens, what it prints, and the errors if it cannot listen."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from ottla.tools.ctl.command import ctl
from ottla_testing.broker.serving import COMMAND, port_of, refused, serving
from ottla_testing.patience import PATIENCE_S

FLAGS = ("--listen", "127.0.0.1:0", "--data-dir", "data")


@pytest.mark.process
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_serve_prints_the_control_url_and_stops_it(
    number: signal.Signals, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(tmp_path, *FLAGS, "--control", "127.0.0.1:0", listeners=2) as (process, lines):
        assert lines[0].startswith("ottla ready on 127.0.0.1:")
        match = re.fullmatch(r"ottla control on (http://127\.0\.0\.1:[0-9]+)", lines[1])
        assert match, lines[1]
        assert ctl(["--control", match[1], "health"]) == 0
        assert lines[0].removeprefix("ottla ready on ") in capsys.readouterr().out
        assert ctl(["clock", "advance", "7d"], {"OTTLA_CONTROL": match[1]}) == 0
        assert re.search(r"(7d 00:00|6d 23:59):.* ahead of the machine.s clock\n", capsys.readouterr().out)
        process.send_signal(number)
        out, error = process.communicate(timeout=PATIENCE_S)
        assert (process.returncode, out) == (0, ""), error
        assert "Traceback" not in error
        assert ctl(["--control", match[1], "health"]) == 1
    assert capsys.readouterr().err == f"ottla ctl: no control plane at {match[1]}: Connection refused\n"


@pytest.mark.process
def test_control_plane_survives_a_disk_fault(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with serving(tmp_path, *FLAGS, "--control", "127.0.0.1:0", listeners=2) as (process, lines):
        environ = {"OTTLA_CONTROL": lines[1].removeprefix("ottla control on ")}

        def run(*arguments: str) -> str:
            assert ctl(arguments, environ) == 0, capsys.readouterr()
            return " ".join(capsys.readouterr().out.split())

        run("topics", "create", "t")
        run("faults", "add", "disk-error", "write")
        assert ctl(["records", "send", "t", "a"], environ) == 2
        assert "KAFKA_STORAGE_ERROR" in capsys.readouterr().err
        assert run("health").startswith("status failed reason ")
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port_of(lines[0])))
        assert ctl(["snapshots", "take"], environ) == 2
        assert run("state", "reset") == "reset"
        assert run("health").startswith("status serving reason - ")
        socket.create_connection(("127.0.0.1", port_of(lines[0]))).close()
        assert (run("topics"), run("faults")) == ("no topics", "no faults")
        process.terminate()
        _, error = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0 and "fatal disk failure, broker waits for a reset or restore" in error


LATE = """
    aiohttp bz2 construct cramjam crc32c encodings.idna importlib.metadata lzma msgspec pdb pickle platform re2 rich
    shutil structlog tempfile uuid
    ottla.broker.background.cleaner ottla.broker.config.security.sasl ottla.broker.config.security.tls
    ottla.broker.control ottla.broker.groups.coordinator ottla.broker.handlers.records.produce
    ottla.broker.metadata.adopted_data ottla.broker.metadata.kraft_image ottla.broker.metrics.client_telemetry
    ottla.broker.patterns ottla.broker.recording.recorder ottla.broker.replica.forced_upgrade
    ottla.broker.security.hosts ottla.broker.share.state_coordinator ottla.broker.transactions.coordinator
    ottla.protocol.layouts ottla.protocol.records.convert ottla.protocol.records.validate_legacy ottla.protocol.structs
    ottla.storage.inspect ottla.storage.restore
""".split()
"""What a start of a new broker imports only where it is used: each takes time of every start, some of them 10 ms."""


@pytest.mark.process
def test_serve_imports_nothing_that_it_may_not_need(tmp_path: Path) -> None:
    program = (
        "import sys\nfrom ottla.tools import serve\n"
        f"late = {set(LATE)}\n"
        "def ready(running): print(sorted(late & set(sys.modules)), flush=True)\n"
        f"serve.serve({list(FLAGS)}, ready)"
    )
    with subprocess.Popen([sys.executable, "-c", program], cwd=tmp_path, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        lines = [process.stdout.readline().partition(" on ")[0] for _ in range(2)]
        process.terminate()
        process.communicate(timeout=PATIENCE_S)
    assert lines == ["ottla ready", "[]\n"]


@pytest.mark.process
def test_serve_imports_what_explains_errors_after_its_start(tmp_path: Path) -> None:
    """Once no more files can be opened, an import fails."""
    program = (
        "import sys\nfrom ottla.broker import main\nfrom ottla.tools import serve\n"
        "def shown(): print(sorted({'ottla.protocol.layouts', 'structlog'} & set(sys.modules)), flush=True)\n"
        "def ready(running): running.state.loop.call_later(main.COMPLETED_AFTER_S + 0.1, shown)\n"
        f"serve.serve({list(FLAGS)}, ready)"
    )
    with subprocess.Popen([sys.executable, "-c", program], cwd=tmp_path, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        lines = [process.stdout.readline() for _ in range(2)]
        process.terminate()
        process.communicate(timeout=PATIENCE_S)
    assert lines[1] == "['ottla.protocol.layouts', 'structlog']\n"


@pytest.mark.process
def test_used_control_port_is_refused_before_data_is_opened(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        line = refused(tmp_path, *FLAGS, "--control", address)
        assert line.startswith(f"ottla serve: cannot listen on {address}: Address already in use: another program")
        assert line.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.process
@pytest.mark.parametrize(
    ("value", "line"),
    [
        ("127.0.0.1", "the port is missing (0 lets the system choose)"),
        (":9644", "the host is missing (use 127.0.0.1 for this machine only)"),
        ("http://127.0.0.1:1/page", "is not HOST:PORT"),
        ("127.0.0.1:70000", "expected a port from 0 to 65535, not 70000"),
    ],
)
def test_invalid_control_address_is_refused(value: str, line: str, tmp_path: Path) -> None:
    assert line in refused(tmp_path, *FLAGS, "--control", value)
    assert list(tmp_path.iterdir()) == []


def test_missing_extra_names_the_package_to_install(tmp_path: Path) -> None:
    program = "import sys; sys.modules['aiohttp'] = None; from ottla.tools.main import main; sys.exit(main())"
    command = [sys.executable, "-c", program, *COMMAND[3:], *FLAGS]
    outcome = subprocess.run(
        [*command, "--control", "127.0.0.1:0"], cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert (outcome.returncode, outcome.stdout) == (2, "")
    assert outcome.stderr == "ottla serve: a control plane needs aiohttp: pip install 'ottla[http]'\n"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.process
def test_help_names_the_addresses_that_need_a_token(tmp_path: Path) -> None:
    outcome = subprocess.run([*COMMAND, "--help"], capture_output=True, text=True, timeout=PATIENCE_S)
    assert "it needs a token unless HOST is a loopback address" in " ".join(outcome.stdout.split())
