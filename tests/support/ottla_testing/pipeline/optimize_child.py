"""A process that merges the files of an export until it is killed: `optimize_child.py FOLDER`."""

from __future__ import annotations

import sys

from ottla.pipeline.jobs.optimize.job import optimize

print("begun", flush=True)
optimize(sys.argv[1])
