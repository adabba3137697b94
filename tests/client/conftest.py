"""Lets the tests of the client find each other's helpers, and the simulated disk of the tests of storage."""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).parent
for folder in (HERE, HERE.parent / "storage"):
    sys.path.insert(0, str(folder))
