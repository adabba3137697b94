"""A range of a log sent into topics again, as fast as it goes, at a rate, or at the pace at which it was written.

Owns the pace (`pacing`), what a task sends (`playing`), and the rounds in which the driver hands that out (`rounds`).
Needs the extra `pipeline`, but no Spark; `job.py` puts it to work there. Clock and pauses come in as arguments.
"""

from __future__ import annotations
