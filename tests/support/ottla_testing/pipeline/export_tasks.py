"""Tasks for the tests of exports: what workers import."""

from __future__ import annotations

import os
from typing import Any

from ottla.pipeline.jobs.export.tasks import write


def writes_or_dies(work: Any) -> Any:
    """As a task does it, but for one piece, whose worker dies when its files are there."""
    written = write(work)
    if (work.topic, work.start) == ("v1-gzip", 0):
        os._exit(3)
    return written
