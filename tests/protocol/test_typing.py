"""Pyright reports a missing, unknown or mistyped field in the construction of a message."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from ottla_testing import ROOT

SOURCE = """\
from ottla.protocol.messages.groups.heartbeat import HeartbeatRequest
from ottla.protocol.messages.records.list_offsets import ListOffsetsResponse

HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
HeartbeatRequest(group_id="g", generation_id=1)
HeartbeatRequest(group_id="g", generation_id=1, member_id="m", epoch=3)
HeartbeatRequest(group_id=b"g", generation_id=1, member_id="m")
HeartbeatRequest("g", 1, "m")
kind = ListOffsetsResponse.ListOffsetsTopicResponse
kind(name="t", partitions=[])
kind(name="t", partitions=None)
"""


@pytest.mark.slow
def test_pyright_checks_the_construction_of_messages(tmp_path: Path) -> None:
    (tmp_path / "made.py").write_text(SOURCE)
    settings = {"venvPath": str(ROOT), "venv": ".venv", "extraPaths": [str(ROOT / ".venv" / "types")]}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings))
    command = [sys.executable, "-m", "pyright", "--outputjson", "--project", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    found = json.loads(done.stdout)["generalDiagnostics"]
    lines = {one["range"]["start"]["line"] + 1: one["rule"] for one in found if one["severity"] == "error"}
    assert lines == {
        5: "reportCallIssue",
        6: "reportCallIssue",
        7: "reportArgumentType",
        8: "reportCallIssue",
        11: "reportArgumentType",
    }
