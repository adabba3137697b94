"""Compares an export, or the table that it is, with the logs that it was made from, without writing.

`listing` has the files that readers of the export read, `plan` divides the offsets of its partitions, `compare` is the
work of a task, `report` the result.
"""
