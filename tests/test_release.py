"""The release script: the two files that it edits, what it refuses, and that it changes nothing when it refuses."""

from __future__ import annotations

import datetime
import importlib.util
import subprocess
from pathlib import Path
from types import ModuleType

import pytest

from ottla_testing import ROOT

DAY = datetime.date(2026, 11, 24)


@pytest.fixture(scope="module")
def release() -> ModuleType:
    spec = importlib.util.spec_from_file_location("release", ROOT / "docker" / "release.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_version_of_the_project_is_replaced_and_nothing_else(release: ModuleType) -> None:
    project = (ROOT / "pyproject.toml").read_text()
    changed = release.with_version(project, "7.8.9rc1")
    lines = [(old, new) for old, new in zip(project.splitlines(), changed.splitlines(), strict=True) if old != new]
    assert [new for _, new in lines] == ['version = "7.8.9rc1"']
    with pytest.raises(release.Refused, match="no line"):
        release.with_version("[project]\n", "1.0.0")


def test_unreleased_changes_get_the_version_and_the_day(release: ModuleType) -> None:
    changed = release.with_section((ROOT / "CHANGELOG.md").read_text(), "7.8.9", DAY)
    assert "## [Unreleased]\n\n## [7.8.9] - 2026-11-24\n" in changed
    with pytest.raises(release.Refused, match="has a section for"):
        release.with_section(changed, "7.8.9", DAY)
    with pytest.raises(release.Refused, match="lists no changes"):
        release.with_section(changed, "7.9.0", DAY)
    with pytest.raises(release.Refused, match="no section"):
        release.with_section("# Changes\n", "7.9.0", DAY)


@pytest.fixture
def checkout(tmp_path: Path, release: ModuleType, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository of one commit, tagged v1.0.0, in the place of this one."""
    (tmp_path / "pyproject.toml").write_text('[project]\nversion = "1.0.0"\n')
    identity = ("-c", "user.name=test", "-c", "user.email=test@localhost")
    for command in (
        ("init", "--quiet"),
        ("add", "."),
        ("commit", "--quiet", "--message", "x"),
        ("tag", "--annotate", "v1.0.0", "--message", "x"),
    ):
        subprocess.run(["git", *identity, *command], cwd=tmp_path, check=True)
    monkeypatch.setattr(release, "ROOT", tmp_path)
    monkeypatch.setattr(release.run, "__defaults__", None)
    monkeypatch.setattr(release.run, "__kwdefaults__", {"cwd": tmp_path})
    return tmp_path


@pytest.mark.parametrize(
    ("version", "reason"),
    [("1.0", "is not a version"), ("v1.0.1", "is not a version"), ("1.0.0", "the tag v1.0.0 exists")],
)
def test_bad_version_is_refused_in_one_line(
    version: str, reason: str, release: ModuleType, checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert release.main([version, "--no-containers"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("release: ") and reason in line


def test_checkout_with_changes_is_refused_and_left(
    release: ModuleType, checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (checkout / "pyproject.toml").write_text("mine")
    assert release.main(["1.0.1", "--no-containers"]) == 1
    assert "not committed" in capsys.readouterr().err
    assert (checkout / "pyproject.toml").read_text() == "mine"
    assert not (checkout / "out").exists()
