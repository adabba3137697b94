"""A data directory that is removed under a running broker: the responses of Apache Kafka and ours about its logs.

The same requests go to both. Not compared: leader epochs (Kafka's controller increments one when a partition loses its
leader), and texts.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from apache_kafka import RELEASES, Kafka

from ottla.broker.groups.records import partition_for
from ottla.protocol.messages.cluster.describe_log_dirs import DescribeLogDirsRequest
from ottla.protocol.messages.groups.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.groups.heartbeat import HeartbeatRequest
from ottla.protocol.messages.groups.offset_commit import OffsetCommitRequest
from ottla.protocol.messages.records.delete_records import DeleteRecordsRequest
from ottla.protocol.messages.records.list_offsets import ListOffsetsRequest
from ottla.protocol.messages.records.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from ottla.protocol.messages.topics.delete_topics import DeleteTopicsRequest
from ottla.protocol.messages.topics.describe_topic_partitions import DescribeTopicPartitionsRequest
from ottla.protocol.messages.topics.metadata import MetadataRequest
from ottla.protocol.messages.transactions.describe_producers import DescribeProducersRequest
from ottla_testing.broker.harness import Client, create_topics, fetch, only, produce, records
from ottla_testing.interop.checks import Check, Failed

PARTITIONS, GROUP_PARTITIONS = 6, 6
PATIENCE_S = 60
Responses = dict[str, Any]


async def until(what: str, look: Callable[[], Awaitable[bool]]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not await look():
        if time.monotonic() > end:
            raise Failed(f"waited in vain: {what}")
        await asyncio.sleep(0.2)


async def connected(port: int) -> Client:
    end = time.monotonic() + PATIENCE_S
    while True:
        try:
            return await Client.connect(port)
        except OSError:
            if time.monotonic() > end:
                raise
            await asyncio.sleep(0.1)


async def observe(port: int, kept: Path, lost: Path) -> Responses:
    """Writes to a broker, removes a directory, and sends requests about all its logs."""
    client = await connected(port)

    async def response(request: Any, version: int) -> Any:
        return await client.call(request, version)

    async def written() -> bool:
        replies = [only(await response(produce(records(b"v"), "t", index), 9)) for index in range(PARTITIONS)]
        return not any(one.error_code for one in replies)

    async def coordinated() -> bool:
        found = await response(FindCoordinatorRequest(coordinator_keys=["g"], key_type=0), 4)
        if found.coordinators[0].error_code:
            return False
        listed = await response(commit("g"), 2)
        return only(listed).error_code == 0

    async def is_known() -> bool:
        await response(create_topics(f"more{time.monotonic_ns()}", partitions=4), 5)  # who looks at the disk, sees it
        return any(found.error_code for found in (await response(DescribeLogDirsRequest(topics=None), 4)).results)

    await until("topic t", lambda: created(client))
    await until("records", written)
    await until("a coordinator", coordinated)
    index = int(sorted(lost.glob("t-?"))[0].name[-1])
    numbers = [int(path.name[-1]) for path in lost.glob("__consumer_offsets-?")]
    group = next(name for name in map(str, range(1000)) if partition_for(name, GROUP_PARTITIONS) in numbers)
    lost.rename(lost.with_name("taken-away"))
    await until("the error of the directory", is_known)
    await asyncio.sleep(2)  # Kafka's controller learns of it a little later
    try:
        return await about(response, index, group, lost)
    finally:
        client.close()


async def created(client: Client) -> bool:
    (made,) = (await client.call(create_topics("t", partitions=PARTITIONS), 5)).topics
    return made.error_code in (0, 36)


def commit(group: str) -> OffsetCommitRequest:
    of = OffsetCommitRequest.OffsetCommitRequestTopic
    partition = of.OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="")
    return OffsetCommitRequest(group_id=group, topics=[of(name="t", partitions=[partition])])


async def about(request_all: Callable[[Any, int], Awaitable[Any]], index: int, group: str, lost: Path) -> Responses:
    found: Responses = {}
    dirs = (await request_all(DescribeLogDirsRequest(topics=None), 4)).results
    found["DescribeLogDirs"] = [
        (one.error_code, len(one.topics), one.total_bytes, one.usable_bytes) for one in dirs if one.log_dir == str(lost)
    ]
    for version in (1, 5, 9, 12):
        named = [MetadataRequest.MetadataRequestTopic(name="t")]
        (topic,) = (await request_all(MetadataRequest(topics=named), version)).topics
        found[f"Metadata v{version}"] = (
            topic.error_code,
            [
                (one.error_code, one.leader_id, one.replica_nodes, one.isr_nodes, one.offline_replicas)
                for one in topic.partitions
                if one.partition_index == index
            ],
        )
    requested = [DescribeTopicPartitionsRequest.TopicRequest(name="t")]
    described = await request_all(DescribeTopicPartitionsRequest(topics=requested, response_partition_limit=100), 0)
    found["DescribeTopicPartitions"] = [
        (one.error_code, one.leader_id, one.isr_nodes, one.eligible_leader_replicas, one.last_known_elr)
        for one in described.topics[0].partitions
        if one.partition_index == index
    ]
    one = only(await request_all(produce(records(b"x"), "t", index), 9))
    found["Produce v9"] = one.error_code, one.base_offset, one.log_start_offset, one.error_message
    for version in (5, 11):
        one = only(await request_all(fetch(("t", index, 0)), version))
        found[f"Fetch v{version}"] = one.error_code, one.high_watermark, one.log_start_offset, one.last_stable_offset
    of = ListOffsetsRequest.ListOffsetsTopic
    for timestamp in (-1, -2, -3, 5):
        wanted = of(name="t", partitions=[of.ListOffsetsPartition(partition_index=index, timestamp=timestamp)])
        one = only(await request_all(ListOffsetsRequest(replica_id=-1, topics=[wanted]), 7))
        found[f"ListOffsets {timestamp}"] = one.error_code, one.offset, one.timestamp, one.leader_epoch
    deleted = DeleteRecordsRequest.DeleteRecordsTopic
    wanted = deleted(name="t", partitions=[deleted.DeleteRecordsPartition(partition_index=index, offset=1)])
    one = only(await request_all(DeleteRecordsRequest(timeout_ms=1000, topics=[wanted]), 1))
    found["DeleteRecords"] = one.error_code, one.low_watermark
    ended = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
    part = ended.OffsetForLeaderPartition(partition=index, current_leader_epoch=-1, leader_epoch=0)
    request = OffsetForLeaderEpochRequest(replica_id=-1, topics=[ended(topic="t", partitions=[part])])
    one = only(await request_all(request, 3))
    found["OffsetForLeaderEpoch"] = one.error_code, one.end_offset, one.leader_epoch
    producers = [DescribeProducersRequest.TopicRequest(name="t", partition_indexes=[index])]
    one = only(await request_all(DescribeProducersRequest(topics=producers), 0))
    found["DescribeProducers"] = one.error_code, one.error_message
    (one,) = (await request_all(FindCoordinatorRequest(coordinator_keys=[group], key_type=0), 4)).coordinators
    found["FindCoordinator v4"] = one.error_code, one.node_id, one.host, one.port
    one = await request_all(FindCoordinatorRequest(key=group, key_type=0), 1)
    found["FindCoordinator v1"] = one.error_code, one.node_id, one.host, one.port, one.error_message
    one = await request_all(HeartbeatRequest(group_id=group, generation_id=1, member_id="m"), 3)
    found["Heartbeat"] = one.error_code
    found["OffsetCommit"] = only(await request_all(commit(group), 2)).error_code
    one = (await request_all(DeleteTopicsRequest(topic_names=["t"], timeout_ms=5000), 4)).responses[0]
    found["DeleteTopics"] = one.error_code
    return found


def of_kafka(release: str) -> Responses:
    running = Kafka(release, None, 2, **{"offsets.topic.num.partitions": str(GROUP_PARTITIONS)})
    try:
        return asyncio.run(observe(running.port, *running.log_dirs))
    finally:
        running.stop()


def of_ours(release: str) -> Responses:
    with tempfile.TemporaryDirectory() as folder:
        kept, lost = Path(folder, "logs"), Path(folder, "logs1")
        command = [sys.executable, "-m", "ottla.tools", "serve", "--listen", "127.0.0.1:0", "--release", release]
        command += ["--data-dir", str(kept), "--data-dir", str(lost), "--override", "node.id=1"]
        command += ["--override", f"offsets.topic.num.partitions={GROUP_PARTITIONS}"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        assert process.stdout is not None
        try:
            port = int(process.stdout.readline().rpartition(":")[2])
            return asyncio.run(observe(port, kept, lost))
        finally:
            process.kill()
            process.wait()
            process.stdout.close()


def lost_directory(release: str) -> str:
    theirs, ours = of_kafka(release), of_ours(release)
    differences = [f"{name}: {theirs[name]} and not {ours[name]}" for name in theirs if theirs[name] != ours[name]]
    if differences:
        raise Failed("; ".join(differences))
    return f"{len(theirs)} responses about logs in a directory that was removed"


CHECKS = [
    Check(f"a lost directory, compared with Kafka {release}", lambda release=release: lost_directory(release))
    for release in RELEASES
]
