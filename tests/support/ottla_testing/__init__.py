"""Helpers that the tests share: brokers, clients, logs, disks, random data, and the facts that Apache Kafka left.

`pythonpath` of pytest and a .pth file in the environment (`make install`) make the package importable, also for
processes that tests start. Sub-packages are named after what they help to test.
"""

from __future__ import annotations

from pathlib import Path

SUPPORT = Path(__file__).resolve().parent
TESTS = SUPPORT.parents[1]
ROOT = TESTS.parent
GOLDEN = TESTS / "oracle" / "golden"
"""Data and responses of releases of Apache Kafka."""
