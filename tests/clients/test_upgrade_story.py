"""The upgrade of KIP-724 as `make demo-upgrade` runs it: every step, with fewer records."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ottla_testing.patience import PATIENCE_S

SCRIPT = Path(__file__).parents[1] / "demo_upgrade.py"


@pytest.mark.slow
@pytest.mark.soak
def test_data_directory_upgrades_from_2_8_to_4_x(scaled: Callable[[int], int]) -> None:
    command = [sys.executable, str(SCRIPT), str(scaled(20))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    steps = [line for line in done.stdout.splitlines() if line.startswith("== ")]
    assert [line[3:5] for line in steps] == ["1.", "2.", "3.", "4."]
    assert "the same through all four steps" in done.stdout
    assert done.stdout.count("refused:") == 4
