"""A directory written by `read_samples`, and a broker on it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.broker import Embedded


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns the directory written by `read_samples`."""
    from ottla_testing.pipeline.read_samples import write_directory

    found = tmp_path_factory.mktemp("read") / "data"
    write_directory(found)
    return found


@pytest.fixture(scope="module")
def broker(directory: Path) -> Iterator[Embedded]:
    """Starts a broker on that directory."""
    with Embedded(release="ottla", data_dir=directory) as broker:
        yield broker
