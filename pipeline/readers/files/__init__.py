"""Logs in files: data directories of Ottla and of Apache Kafka, read in place, in use by a broker or not.

    with FileBackend(["/var/lib/ottla"]) as logs:
        keys = logs.partitions(Selection(topics=("orders",)))

Takes no lock and writes nothing. A broker may roll, delete, compact and append meanwhile.
"""

from __future__ import annotations

from .pieces import BatchBackend, FileBackend, FilePiece

__all__ = ["BatchBackend", "FileBackend", "FilePiece"]
