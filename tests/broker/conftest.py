"""Lets the tests of the broker share `harness.py`, and binds the log to a stream that outlives every test."""

from __future__ import annotations

import sys
from pathlib import Path

from ottla.broker.logs import get_logger

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "protocol"))

get_logger()  # else the first broker within a test that captures its output would log to what that test closes
