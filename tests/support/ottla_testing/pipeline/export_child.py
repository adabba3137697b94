"""A process that exports until it is killed: `export_child.py SOURCE FOLDER FORMAT`."""

from __future__ import annotations

import sys
from pathlib import Path

from ottla.pipeline.jobs.export import commit
from ottla.pipeline.jobs.export.commit import Settings
from ottla.pipeline.jobs.export.tasks import Form, Format
from ottla_testing.pipeline.export_samples import exported

commit.GROUP_PIECES = 3
print("begun", flush=True)
source, to = sys.argv[1:3]
kind: Format = "iceberg" if sys.argv[3] == "iceberg" else "delta"
exported(Path(source), to, form=Form(file_bytes=400, format=kind), settings=Settings(kind), part_bytes=200)
