"""Logs in files: data directories of Ottla and of Apache Kafka, read where they lie, in use or not.

    with FileBackend(["/var/lib/ottla"]) as logs:
        keys = logs.partitions(Selection(topics=("orders",)))

Owns no lock and writes nothing. The broker that uses a directory may roll, delete, compact and append meanwhile.
"""

from __future__ import annotations

from .batches import BatchPiece
from .pieces import FileBackend, FilePiece

__all__ = ["BatchPiece", "FileBackend", "FilePiece"]
