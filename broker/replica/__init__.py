"""Partitions as a broker serves them: appends, fetches, flushes, cleaning, and moves between log directories."""
