"""Upgrades data directories to message format v2 with Spark."""
