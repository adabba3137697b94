"""Adoption uses the metadata log of a KRaft broker if it can be read completely, and is refused in one line
otherwise.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from ottla.broker.metadata.kraft_records import NoOpRecord
from ottla.broker.security.acls import Acl, AclFilter
from ottla.protocol.internal_records.metadata_records import (
    AccessControlEntryRecord,
    PartitionChangeRecord,
    RemoveAccessControlEntryRecord,
    RemoveTopicRecord,
)
from ottla_testing.broker.adopting import (
    CHANGES,
    GOLDEN,
    ID,
    OTHER_ID,
    kraft,
    metadata_batch,
    names,
    next_id,
    refusal,
    topic_facts,
    values_of,
)
from ottla_testing.broker.harness import produce, records, running


async def test_metadata_log_of_kraft_is_used(tmp_path: Path) -> None:
    folder = kraft(tmp_path / "data", *CHANGES)
    shutil.copytree(GOLDEN / "v1-gzip-0", folder / "unlisted-0")
    found = []
    for _ in range(2):
        async with running(folder) as broker:
            assert (broker.state.node_id, broker.state.cluster_id) == (7, "c")
            found.append(topic_facts(broker.state))
            assert broker.state.config["log.cleaner.threads"] == 3
            assert broker.state.named_configs.of(16) == {"m": {"interval.ms": "500"}}
            assert broker.state.named_configs.of(32) == {"g": {"consumer.session.timeout.ms": "46000"}}
    ((topic_id, configs, partitions),) = found[0].values()
    assert found[0] == found[1] and (topic_id, configs) == (ID, {"retention.ms": "1000"})
    assert [epoch for _, _, epoch in partitions] == [4, 5] and all(end for _, end, _ in partitions)
    aside = [name for name in names(folder) if name.endswith("-stray")]
    assert [name.partition(".")[0] for name in aside] == ["__cluster_metadata-0", "unlisted-0"]
    assert await next_id(folder) == 5000


async def test_ottla_directory_used_by_a_kraft_broker(tmp_path: Path) -> None:
    """The directory is adopted again, with the changes of the KRaft broker."""
    async with running(tmp_path) as broker:
        await broker.topic("kept", 2, {"retention.ms": "777"})
        await broker.topic("deleted")
        await (await broker.client()).call(produce(records(b"x"), "kept"), 9)
        wanted = topic_facts(broker.state)
        end = broker.state.metadata_log._log.log_end_offset
    metadata = tmp_path / "__cluster_metadata-0"
    (metadata / "quorum-state").write_text('{"leaderEpoch":1}')
    with max(metadata.glob("*.log")).open("ab") as file:
        file.write(metadata_batch(end, b"", control=True))
        file.write(metadata_batch(end + 1, *values_of(RemoveTopicRecord(topic_id=wanted["deleted"][0]))))
        changed = PartitionChangeRecord(partition_id=0, topic_id=wanted["kept"][0], leader=1)
        file.write(metadata_batch(end + 2, *values_of(changed)))
    shutil.rmtree(tmp_path / "deleted-0")
    async with running(tmp_path) as broker:
        found = topic_facts(broker.state)
        topic_id, configs, ends = wanted["kept"]
        assert found == {"kept": (topic_id, configs, [(*ends[0][:2], 1), ends[1]])}


async def test_two_metadata_logs_are_refused(tmp_path: Path) -> None:
    for name in ("a", "b"):
        async with running(tmp_path / name):
            pass
    shutil.copy(tmp_path / "a" / "meta.properties", tmp_path / "b")
    assert "move the wrong one away" in await refusal(tmp_path / "a", tmp_path / "b")


async def test_a_kraft_log_without_a_snapshot(tmp_path: Path) -> None:
    acl, gone = (
        AccessControlEntryRecord(
            id=id, resource_type=2, resource_name="t", pattern_type=3, principal=principal, host="*", operation=2,
            permission_type=3,
        )
        for id, principal in ((ID, "User:x"), (OTHER_ID, "User:y"))
    )  # fmt: skip
    removal = RemoveAccessControlEntryRecord(id=OTHER_ID)
    folder = kraft(tmp_path / "data", metadata_batch(40, *values_of(acl, gone, removal)), snapshot=False)
    (folder / ".kafka_cleanshutdown").unlink()
    with (folder / "__cluster_metadata-0" / f"{0:020}.log").open("ab") as file:
        file.write(metadata_batch(43, *values_of(RemoveTopicRecord(topic_id=ID)))[:-3])  # torn by the crash
    for _ in range(2):
        async with running(folder) as broker:
            assert sorted(topic_facts(broker.state)) == ["old", "t"]
            assert broker.state.acls.find(AclFilter()) == [Acl(2, "t", 3, "User:x", "*", 2, 3)]


async def test_partitions_of_other_brokers_start_empty(tmp_path: Path) -> None:
    folder = kraft(tmp_path / "data", *CHANGES)
    shutil.rmtree(folder / "t-0")
    async with running(folder) as broker:
        assert [(end > 0, epoch) for _, end, epoch in topic_facts(broker.state)["t"][2]] == [(False, 4), (True, 5)]


def unknown_type() -> bytes:
    return metadata_batch(100, b"\x01\x63\x00\x00")


def gap_after(folder: Path) -> None:
    (folder / "__cluster_metadata-0" / f"{0:020}.log").rename(folder / "__cluster_metadata-0" / f"{200:020}.log")


def damage(folder: Path) -> None:
    path = folder / "__cluster_metadata-0" / f"{100:020}-{3:010}.checkpoint"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("tail", "change", "reason"),
    [
        (unknown_type(), None, "type 99, version 0, is from a newer Kafka"),
        (metadata_batch(100, *values_of(RemoveTopicRecord(topic_id=bytes(16)))), None, "unknown topic"),
        (metadata_batch(100, *values_of(PartitionChangeRecord(partition_id=9, topic_id=ID))), None, "partition 9"),
        (metadata_batch(100, b"\x01"), None, "cut short"),
        (metadata_batch(100, b"\x01\x02\x00\xff"), None, "TopicRecord"),
        (metadata_batch(100, b"")[:-1], None, "at byte 0"),
        (metadata_batch(100, *values_of(NoOpRecord())), gap_after, "begins at offset 200"),
        (metadata_batch(100, *values_of(NoOpRecord())), damage, "the CRC is wrong"),
    ],
)
async def test_unreadable_kraft_log_is_refused(
    tmp_path: Path, tail: bytes, change: Callable[[Path], None] | None, reason: str
) -> None:
    folder = kraft(tmp_path / "data", tail)
    if change:
        change(folder)
    before = names(folder)
    line = await refusal(folder)
    assert reason in line and "ottla import-dir" in line
    assert set(before) - set(names(folder)) <= {".kafka_cleanshutdown"}
