"""Lets the tests of this folder import what lies beside them, and the broker process of tests/clients."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "clients"))
