"""Rows into topics, each exactly once: one transaction per micro-batch, begun and ended by the driver, filled by tasks.

The driver has a `SinkTransaction`, which fences whoever used its transactional id before, and gives a `Grant`. Each
target partition belongs to one task, which writes its rows with `send`: in batches that depend on the rows alone, with
sequences from 0 on, so that a task that is tried again writes what is there already, or goes on behind it. The id of
the micro-batch is committed with the transaction: one that comes again is known by it. Nothing here needs Spark.
"""

from .errors import SinkError, SinkFenced, SinkTimedOut
from .options import SinkOptions
from .task_writer import Sent, TaskSender, send
from .transaction import Grant, SinkTransaction, idempotent_grant

__all__ = [
    "Grant",
    "Sent",
    "SinkError",
    "SinkFenced",
    "SinkOptions",
    "SinkTimedOut",
    "SinkTransaction",
    "TaskSender",
    "idempotent_grant",
    "send",
]
