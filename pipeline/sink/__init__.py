"""Writes rows to topics exactly once: one transaction per micro-batch, begun and ended by the driver, filled by tasks.

The driver has a `SinkTransaction`, which fences the previous owner of its transactional id and returns a `Grant`. Each
target partition belongs to one task, which writes its rows with `send`, in batches that depend on the rows alone, with
sequences from 0 on. So a retried task repeats the batches that are in the log already, or continues after them. The id
of the micro-batch is committed with the transaction, so a repeated micro-batch is recognised. Nothing here needs Spark.
"""
