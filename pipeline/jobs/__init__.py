"""The jobs on Spark: read, rewrite, export, import and replay logs at scale.

Spark moves paths, keys and facts; the bytes of records stay in the Python tasks. The work of a task is in the packages
without Spark (the folder of each job, and `in_place`); a `job.py` distributes the tasks and merges their results.
`pipeline/cli/` has the same jobs as commands.
"""
