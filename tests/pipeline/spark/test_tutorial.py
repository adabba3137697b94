"""The tutorial about Spark, run from the start as its reader runs it."""

from __future__ import annotations

from pathlib import Path

from ottla_testing.sessions import TUTORIALS, tutorial_session


def test_console_session_prints_what_the_tutorial_shows(tmp_path: Path) -> None:
    tutorial_session(tmp_path, "spark").run((TUTORIALS / "spark" / "session.console").read_text())
