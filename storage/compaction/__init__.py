"""Compaction of logs: which records stay, and segments without the others."""
