"""Memory of a compaction: that of the keys, and little else, for a log of any size."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ottla_testing import SUPPORT

SCRIPT = SUPPORT / "storage" / "compaction_memory.py"
SLOT_BYTES = 24


@pytest.mark.slow
def test_pass_uses_memory_of_its_keys_and_buffers_only(tmp_path: Path, scaled: Callable[[int], int]) -> None:
    """At a scale of 20 this is the requirement: 1 GB, a million keys, 64 MiB above idle."""
    if not Path("/proc/self/clear_refs").exists():  # only Linux can measure the peak memory of a part of a run
        return
    megabytes, keys = scaled(52), scaled(50_000)
    command = [sys.executable, str(SCRIPT), str(tmp_path), str(megabytes), str(keys)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    print(found)
    assert found["bytes"] >= megabytes << 20 and found["keys"] == found["left_records"] == keys
    # A table may be half as large again as necessary while it grows; 16 MiB for reading and writing.
    assert found["above_idle_bytes"] < 1.5 * keys * SLOT_BYTES / 0.9 + (16 << 20) < 64 << 20
