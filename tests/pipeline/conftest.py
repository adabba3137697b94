"""The directory of `read_samples`, and a broker on it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.broker import Embedded


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As `read_samples` writes it."""
    from ottla_testing.pipeline.read_samples import write_directory

    found = tmp_path_factory.mktemp("read") / "data"
    write_directory(found)
    return found


@pytest.fixture(scope="module")
def broker(directory: Path) -> Iterator[Embedded]:
    """A broker that has that directory in use, as it is."""
    with Embedded(release="ottla", data_dir=directory) as broker:
        yield broker
