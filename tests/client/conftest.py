"""Lets the tests of the client find each other's helpers, and those of the tests of storage and of the broker.

Binds the broker's log to a stream that outlives every test.
"""

from __future__ import annotations

import sys
from pathlib import Path

from ottla.broker.logs import get_logger

HERE = Path(__file__).parent
for folder in (HERE, HERE.parent / "storage", HERE.parent / "broker"):
    sys.path.insert(0, str(folder))

get_logger()  # else the first broker within a test that captures its output would log to what that test closes
