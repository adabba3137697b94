"""Merges the small files of exports into larger ones: the job `optimize`, which needs no Spark."""
