"""The directory that repair tests damage."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from ottla_testing.storage.repairing import make_sound


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a closed directory with every kind of content. Tests must not change it."""
    root = tmp_path_factory.mktemp("sound") / "data"
    make_sound(root)
    return root


@pytest.fixture
def copied(sound: Path, tmp_path: Path) -> Path:
    """Returns a copy of `sound`, for a test to damage."""
    return Path(shutil.copytree(sound, tmp_path / "data"))


@pytest.fixture(scope="module")
def again(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path], Path]:
    """Copies a directory again, to the same place each time."""
    above = tmp_path_factory.mktemp("again")

    def copy(source: Path) -> Path:
        shutil.rmtree(above)
        return Path(shutil.copytree(source, above / "data"))

    return copy
