"""All measures of the benchmark with their names and aims."""

from __future__ import annotations

from ottla_testing.bench import (
    assignment,
    embedded,
    growth,
    limits,
    measures,
    observing,
    pipeline_jobs,
    pipeline_measures,
    storage_measures,
    volume,
)

NAMES = (
    *measures.NAMES,
    *storage_measures.NAMES,
    *embedded.NAMES,
    *observing.NAMES,
    *pipeline_measures.NAMES,
    *assignment.NAMES,
    *limits.NAMES,
    *growth.NAMES,
    *volume.NAMES,
)
MEASURES = (
    *measures.MEASURES,
    *storage_measures.MEASURES,
    *embedded.MEASURES,
    *observing.MEASURES,
    *pipeline_measures.MEASURES,
    *pipeline_jobs.MEASURES,
    *assignment.MEASURES,
)
AIMS = (
    *measures.AIMS,
    *storage_measures.AIMS,
    *embedded.AIMS,
    *observing.AIMS,
    *pipeline_measures.AIMS,
    *pipeline_jobs.AIMS,
    *assignment.AIMS,
)
