"""partition.metadata, which binds a folder to its topic id: whole or absent after a power loss."""

from __future__ import annotations

import random

import pytest

from ottla.storage.format.partition_metadata import decode_id, encode_id, read_topic_id, write_topic_id
from ottla_testing.storage.simulated_files import SimulatedFiles, Step

TOPIC_ID = bytes(range(200, 216))
FOLDER = "/data/t-0"


def test_power_loss_leaves_no_topic_id_or_the_right_one():
    """A wrong id would set the folder aside at the next start."""
    files, seen = SimulatedFiles(), set()
    files.make_directory(FOLDER)
    files.sync_directory("/data")

    def lost(step: Step | None) -> None:
        for number in range(40):
            chance = random.Random(number)
            size = len(step.change.data or b"") if step is not None and step.change is not None else 0
            left = files.fork(step, chance.randint(0, size))
            left.crash(chance)
            seen.add(read_topic_id(left, FOLDER))

    files.on_step = lost
    write_topic_id(files, FOLDER, TOPIC_ID)
    lost(None)
    assert seen == {bytes(16), TOPIC_ID}


@pytest.mark.parametrize("last", "BCDEFGHIJ")
def test_topic_id_with_extra_bits_is_refused(last: str):
    text = encode_id(bytes(16))
    assert text.endswith("A") and decode_id(text) == bytes(16)
    with pytest.raises(ValueError, match="not an id"):
        decode_id(text[:-1] + last)
