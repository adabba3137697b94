"""Compaction of data directories with Spark."""
