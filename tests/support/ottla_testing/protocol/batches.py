"""Batches of format v2 with header fields as keywords."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ottla.protocol.records import batch

PLACE = ("base_offset", "leader_epoch", "codec", "compression_level")


def batch_of(records: Sequence[batch.Record], **values: Any) -> bytearray:
    """Builds a batch like `batch.build`, with the fields of `BatchFields` among the keywords."""
    place = {name: values.pop(name) for name in PLACE if name in values}
    return batch.build(records, batch.BatchFields(**values), **place)
