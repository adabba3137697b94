"""A topic deleted and created again with the same name inherits no offsets from checkpoints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ottla.protocol.messages.topics.create_partitions import CreatePartitionsRequest
from ottla.protocol.messages.topics.delete_topics import DeleteTopicsRequest
from ottla.storage.format import checkpoint
from ottla.storage.io.files import DiskFiles
from ottla_testing.broker.harness import Broker, only, produce, records, running

CHECKPOINTS = (
    checkpoint.RECOVERY_POINT,
    checkpoint.LOG_START_OFFSET,
    checkpoint.REPLICATION_OFFSET,
    checkpoint.CLEANER_OFFSET,
)


def noted(folder: Path, topic: str = "t") -> dict[str, dict[int, int]]:
    """Returns the offsets of a topic in the checkpoint files, by file name and partition."""
    found: dict[str, dict[int, int]] = {}
    for name in CHECKPOINTS:
        offsets = checkpoint.read_offsets(DiskFiles(), str(folder / name))
        found[name] = {index: offset for (of, index), offset in offsets.items() if of == topic}
    return found


async def write_and_delete(broker: Broker, partitions: int = 2) -> None:
    """Writes the topic's partitions to all four checkpoints, and deletes the topic."""
    await broker.topic("t", partitions)
    client = await broker.client()
    data = broker.state.logs.directories[0]
    for index in range(partitions):
        for _ in range(5):
            assert only(await client.call(produce(records(b"a"), "t", index), 9)).error_code == 0
        broker.log("t", index).delete_records_before(3)
        data.write_cleaner_offset("t", index, 4)
    data.write_checkpoints(checkpoint.REPLICATION_OFFSET)
    if partitions == 2:  # otherwise the checkpoint of high watermarks may be written first
        data.write_checkpoints()
    request = DeleteTopicsRequest(topic_names=["t"], timeout_ms=1)
    assert (await client.call(request, 4)).responses[0].error_code == 0


@pytest.mark.parametrize("partitions", [1, 2])
async def test_recreated_topic_inherits_no_checkpoint(tmp_path: Path, partitions: int) -> None:
    async with running(tmp_path) as broker:
        await write_and_delete(broker, partitions)
        assert noted(tmp_path)[checkpoint.REPLICATION_OFFSET]
        await broker.topic("t", 2)
        assert not any(noted(tmp_path).values())
        broker.state.logs.directories[0].write_checkpoints()
        assert noted(tmp_path)[checkpoint.REPLICATION_OFFSET] == {0: 0, 1: 0}


async def test_topic_recreated_after_a_kill_inherits_no_checkpoint(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        await write_and_delete(broker)
        broker.state.logs.release()  # the state after a kill
        before = noted(tmp_path)
    assert before[checkpoint.REPLICATION_OFFSET] == {0: 5, 1: 5}
    async with running(tmp_path) as broker:
        topics = broker.state.topics
        seen: list[dict[str, dict[int, int]]] = []
        append_steps = broker.state.metadata_log.append_steps

        def noting(records: Any, now_ms: int) -> Any:
            seen.append(noted(tmp_path))
            return append_steps(records, now_ms)

        broker.state.metadata_log.append_steps = noting
        await broker.topic("t", 1)
        assert topics.get("t") is not None
        # Before the metadata has the new topic: after a kill right then it must not inherit the old offsets.
        assert seen and not any(offsets.get(0) for offsets in seen[0].values())
        assert broker.log("t", 0).log_end_offset == broker.log("t", 0).log_start_offset == 0


async def test_partitions_added_again_after_deletion_inherit_no_checkpoint(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        await write_and_delete(broker)
        await broker.topic("t", 1)
        noted_here = broker.state.logs.directories[0]._noted
        noted_here.offsets[checkpoint.REPLICATION_OFFSET]["t", 1] = 77  # like a file that was read
        grow = CreatePartitionsRequest.CreatePartitionsTopic(name="t", count=2, assignments=None)
        request = CreatePartitionsRequest(topics=[grow], timeout_ms=1, validate_only=False)
        assert (await (await broker.client()).call(request, 1)).results[0].error_code == 0
        assert noted(tmp_path)[checkpoint.REPLICATION_OFFSET] == {0: 0}
