"""What a data engineer runs into: folders that may not be read, thousands of tiny segments, links, reports."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from logs_samples import written

from ottla.pipeline.audit.auditing import Audit
from ottla.pipeline.backend import ReadError, Selection
from ottla.pipeline.census import plan
from ottla.pipeline.logs import FileBackend
from ottla.storage import inspect
from ottla.storage.errors import StorageError


@pytest.fixture
def barred(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data directory of two partitions, of which this user may not list the second one."""
    for name in ("orders-0", "orders-1"):
        written(tmp_path / name, [(2, 0, 3)])
    listed = os.listdir

    def listing(path: Any = ".") -> Any:
        if str(path).endswith("orders-1"):
            raise PermissionError(13, "Permission denied", str(path))
        return listed(path)

    monkeypatch.setattr(os, "listdir", listing)
    return tmp_path


def test_a_partition_that_may_not_be_read_is_not_left_out(barred: Path) -> None:
    """It was passed over without a word: a count of the directory was too low."""
    says = f"^cannot read {barred}/orders-1: Permission denied$"
    with pytest.raises(StorageError, match=says):
        inspect.partitions(barred)
    for path in (barred, barred / "orders-1"):
        for look in (
            lambda path: FileBackend([path]).partitions(Selection()),
            lambda path: plan([path]),
            lambda path: Audit([path]).report(now_ms=0),
        ):
            with pytest.raises(ReadError, match=says):
                look(str(path))
    assert [str(key) for key in FileBackend([str(barred / "orders-0")]).partitions(Selection())] == ["orders-0"]
