"""`ottla serve` as a process: its output, its stop, and that an error leaves the disk unchanged."""

from __future__ import annotations

import json
import signal
import socket
from pathlib import Path

import pytest

from ottla_testing.broker.serving import port_of, refused, serving
from ottla_testing.patience import PATIENCE_S


def snapshot(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Returns names, times and bytes of all files below a folder; equal snapshots mean that nothing changed."""
    paths = sorted(folder.rglob("*"))
    return {str(path): (path.stat().st_mtime_ns, path.read_bytes() if path.is_file() else b"") for path in paths}


SIGNALS = [
    pytest.param(signal.SIGTERM, marks=pytest.mark.smoke),
    pytest.param(signal.SIGINT, marks=pytest.mark.process),
]


@pytest.mark.parametrize("number", SIGNALS)
def test_serve_prints_its_listeners_and_stops_on_a_signal(number: signal.Signals, tmp_path: Path) -> None:
    with serving(tmp_path, "--listen", "127.0.0.1:0", "--data-dir", "data") as (process, [line]):
        with socket.create_connection(("127.0.0.1", port_of(line)), timeout=PATIENCE_S):
            pass
        process.send_signal(number)
        out, error = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, out) == (0, ""), error
    assert "Traceback" not in error


@pytest.mark.process
def test_each_listener_has_a_line_with_ipv6_in_brackets(tmp_path: Path) -> None:
    flags = ["--listen", "127.0.0.1:0", "--listen", "six=[::1]:0", "--data-dir", "a", "--data-dir", "b"]
    with serving(tmp_path, *flags, listeners=2) as (process, lines):
        assert lines[0].startswith("ottla ready on 127.0.0.1:") and lines[1].startswith("ottla ready on [::1]:")
        with socket.create_connection(("::1", port_of(lines[1])), timeout=PATIENCE_S):
            pass
        process.terminate()
        process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0
    assert (tmp_path / "a").is_dir() and (tmp_path / "b").is_dir()


@pytest.mark.process
def test_used_port_is_reported_before_the_data_changes(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        assert address in refused(tmp_path, "--listen", "127.0.0.1:0", "--listen", f"b={address}", "--data-dir", "data")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.process
def test_locked_data_directory_is_unchanged(tmp_path: Path) -> None:
    with serving(tmp_path, "--listen", "127.0.0.1:0", "--data-dir", "data") as (process, [line]):
        port_of(line)
        process.send_signal(signal.SIGSTOP)  # it holds its lock, and writes no checkpoints meanwhile
        before = snapshot(tmp_path)
        assert "data" in refused(tmp_path, "--listen", "127.0.0.1:0", "--data-dir", "free", "--data-dir", "data")
        assert snapshot(tmp_path) == before and before
        process.send_signal(signal.SIGCONT)
        process.terminate()
        process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0


@pytest.mark.process
def test_invalid_override_leaves_existing_data_unchanged(tmp_path: Path) -> None:
    with serving(tmp_path, "--listen", "127.0.0.1:0", "--data-dir", "data") as (process, _):
        process.terminate()
        process.communicate(timeout=PATIENCE_S)
    before = snapshot(tmp_path)
    for override in ("num.partition=1", "num.partitions=0", "node.id=x"):
        refused(tmp_path, "--data-dir", "data", "--override", override)
    assert snapshot(tmp_path) == before and before


@pytest.mark.process
def test_ignored_configs_are_logged_as_json_on_stderr(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("listeners=PLAINTEXT://127.0.0.1:0\nlog.dirs=data\nmy.plugin=1\nnum.io.threads=8\n")
    with serving(tmp_path, "--config", str(file), "--log-format", "json") as (process, [line]):
        port_of(line)
        process.terminate()
        _, error = process.communicate(timeout=PATIENCE_S)
    events = [json.loads(text) for text in error.splitlines()]
    warnings = [event for event in events if event["level"] == "warning"]
    assert [event["reason"] for event in warnings] == [f"unknown config my.plugin in {file}"]
    (ignored,) = (event for event in events if event["event"] == "configs accepted but not acted on")
    assert ignored["names"] == ["num.io.threads"]


@pytest.mark.process
@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], {"profile": "ottla"}),
        (
            ["--release", "2.4", "--override", "ottla.behaviour.record_errors=all", "--override", "num.io.threads=8"],
            {"profile": "2.4", "record_errors": "all"},
        ),
    ],
)
def test_log_names_the_profile(arguments: list[str], expected: dict[str, str], tmp_path: Path) -> None:
    flags = ["--listen", "127.0.0.1:0", "--data-dir", "data", "--log-format", "json", *arguments]
    with serving(tmp_path, *flags) as (process, [line]):
        port_of(line)
        assert process.stderr
        events = (json.loads(line) for line in process.stderr)
        found = next(event for event in events if event["event"] == "serving")
        process.terminate()
        process.communicate(timeout=PATIENCE_S)
    others = {key: value for key, value in found.items() if key not in ("level", "timestamp", "event", "cluster_id")}
    assert others == {"topics": 0, **expected}
