"""Sends a range of a log to topics again: as fast as possible, at a rate, or at the original pace.

Owns the pace (`schedule`), the work of a task (`tasks`), and the rounds of the driver (`rounds`). Needs the extra
`pipeline`, but no Spark apart from `job.py`. Clock and sleep are arguments.
"""
