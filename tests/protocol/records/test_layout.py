"""The positions in `layout`, compared with the described schemas of the three formats."""

from __future__ import annotations

from itertools import accumulate

import pytest

from ottla.protocol.records import layout
from ottla.protocol.records.batch import BatchHeader
from ottla.protocol.records.schemas import BATCH_HEADER, MESSAGE_V0, MESSAGE_V1, fields
from ottla.protocol.structs import Struct


def starts(schema: Struct) -> dict[str, int]:
    """Returns the first byte of each field, up to the first field of variable size."""
    sizes = [getattr(codec, "size", 0) for _, codec in fields(schema)]
    return dict(zip([name for name, _ in fields(schema)], accumulate(sizes, initial=0), strict=False))


def test_layout_of_v2_has_the_positions_of_the_schema() -> None:
    found = starts(BATCH_HEADER)
    named = {
        "base_offset": layout.OFFSET_AT,
        "batch_length": layout.LENGTH_AT,
        "partition_leader_epoch": layout.LEADER_EPOCH_AT,
        "magic": layout.MAGIC_AT,
        "crc": layout.CRC_AT,
        "attributes": layout.ATTRIBUTES_AT,
        "last_offset_delta": layout.LAST_OFFSET_DELTA_AT,
        "base_timestamp": layout.BASE_TIMESTAMP_AT,
        "max_timestamp": layout.MAX_TIMESTAMP_AT,
        "producer_id": layout.PRODUCER_ID_AT,
        "producer_epoch": layout.PRODUCER_EPOCH_AT,
    }
    assert named == {name: found[name] for name in named}
    assert found["attributes"] == layout.CRC_FROM == layout.CODEC_AT - 1
    assert found["partition_leader_epoch"] == layout.PREFIX_BYTES
    assert len(layout.HEADER.unpack(bytes(layout.HEADER_BYTES))) == len(BatchHeader._fields)
    assert found["record_count"] + 4 == layout.HEADER_BYTES == layout.MIN_BYTES[2]


@pytest.mark.parametrize(("magic", "schema"), [(0, MESSAGE_V0), (1, MESSAGE_V1)])
def test_layout_of_legacy_messages_has_the_positions_of_the_schema(magic: int, schema: Struct) -> None:
    found = starts(schema)
    assert (found["offset"], found["size"]) == (layout.OFFSET_AT, layout.LENGTH_AT)
    assert found["crc"] == layout.LEGACY_CRC_AT == layout.PREFIX_BYTES
    assert found["magic"] == layout.MAGIC_AT == layout.LEGACY_CRC_FROM
    assert found["attributes"] == layout.LEGACY_ATTRIBUTES_AT
    assert found.get("timestamp", layout.LEGACY_TIMESTAMP_AT) == layout.LEGACY_TIMESTAMP_AT
    assert found["key"] == layout.LEGACY_KEY_AT[magic] == layout.MIN_BYTES[magic] - 8
