"""The README, for tests that run its programs."""

from __future__ import annotations

from ottla_testing import ROOT

README = (ROOT / "README.md").read_text()
ADDRESS = "127.0.0.1:9092"  # what the README says; each test puts its own broker's in its place
