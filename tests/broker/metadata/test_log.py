"""Metadata records byte for byte as in Kafka (schemas of Apache Kafka 3.9), and blocks of producer ids."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ottla.broker.metadata.log import MetadataLog, read_all
from ottla.broker.metadata.producer_ids import BLOCK_IDS, ProducerIds
from ottla.protocol.errors import MalformedMessage
from ottla.protocol.internal_records import metadata_records as made
from ottla.protocol.internal_records.metadata_values import TOPIC, TOPIC_ID, WRITTEN_VERSIONS, decode, encode
from ottla.protocol.records import batch
from ottla.protocol.schema import spec
from ottla.storage.errors import StorageError
from ottla.storage.io.files import DiskFiles
from ottla.storage.log.recovery import LogCheckpoints
from ottla.storage.partition_log import LogConfig, PartitionLog, TopicIdPartition

FIRST = [made.FeatureLevelRecord(name="metadata.version", feature_level=21)]
ID = bytes(range(16))
DIRECTORY = bytes(range(16, 32))

# Frame: version 1, record type, record version; then the flexible encoding: lengths plus one, a count of tagged fields.
GOLDEN: list[tuple[Any, str]] = [
    (made.TopicRecord(name="orders", topic_id=ID), "010200" + "07" + b"orders".hex() + ID.hex() + "00"),
    (made.RemoveTopicRecord(topic_id=ID), "010900" + ID.hex() + "00"),
    (
        made.ConfigRecord(resource_type=2, resource_name="t", name="retention.ms", value="5"),
        "010400" + "02" + "0274" + "0d" + b"retention.ms".hex() + "0235" + "00",
    ),
    (
        made.ConfigRecord(resource_type=4, resource_name="", name="a", value=None),
        "010400" + "04" + "01" + "0261" + "00" + "00",
    ),
    (
        made.ProducerIdsRecord(broker_id=1, broker_epoch=-1, next_producer_id=1000),
        "010f00" + "00000001" + "ffffffffffffffff" + "00000000000003e8" + "00",
    ),
    (
        made.FeatureLevelRecord(name="metadata.version", feature_level=21),
        "010c00" + "11" + b"metadata.version".hex() + "0015" + "00",
    ),
    (
        made.ClientQuotaRecord(
            entity=[
                made.ClientQuotaRecord.EntityData(entity_type="user", entity_name="ann"),
                made.ClientQuotaRecord.EntityData(entity_type="client-id", entity_name=None),
            ],
            key="producer_byte_rate",
            value=1.5,
            remove=False,
        ),
        "010e00"
        + ("03" + "05" + b"user".hex() + "04" + b"ann".hex() + "00" + "0a" + b"client-id".hex() + "00" + "00")
        + ("13" + b"producer_byte_rate".hex() + "3ff8000000000000" + "00" + "00"),
    ),
    (
        made.PartitionChangeRecord(partition_id=3, topic_id=ID, isr=[2], leader=2, replicas=[2, 1]),
        "010501"
        + "00000003"
        + ID.hex()
        + "03"
        + ("00" + "05" + "02" + "00000002")
        + ("01" + "04" + "00000002")
        + ("02" + "09" + "03" + "00000002" + "00000001"),
    ),
    (
        made.PartitionChangeRecord(topic_id=ID, adding_replicas=[3], removing_replicas=[], directories=[DIRECTORY]),
        "010501"
        + "ffffffff"
        + ID.hex()
        + "03"
        + ("03" + "01" + "01")
        + ("04" + "05" + "02" + "00000003")
        + ("08" + "11" + "02" + DIRECTORY.hex()),
    ),
    (
        made.PartitionRecord(
            partition_id=3,
            topic_id=ID,
            replicas=[1],
            isr=[1],
            removing_replicas=[],
            adding_replicas=[],
            leader=1,
            leader_epoch=0,
            partition_epoch=0,
            directories=[DIRECTORY],
        ),
        "010301"
        + "00000003"
        + ID.hex()
        + "0200000001" * 2
        + "01" * 2
        + "00000001"
        + "00000000" * 2
        + "02"
        + DIRECTORY.hex()
        + "00",
    ),
    (
        made.AccessControlEntryRecord(
            id=ID, resource_type=2, resource_name="t", pattern_type=4, principal="User:a", host="*", operation=3,
            permission_type=2,
        ),
        "011200" + ID.hex() + "02" + "0274" + "04" + "07557365723a61" + "022a" + "03" + "02" + "00",
    ),
    (made.RemoveAccessControlEntryRecord(id=ID), "011300" + ID.hex() + "00"),
    (
        made.UserScramCredentialRecord(
            name="a", mechanism=1, salt=b"\x01", stored_key=b"\x02", server_key=b"\x03", iterations=4096
        ),
        "010b00" + "0261" + "01" + "0201" + "0202" + "0203" + "00001000" + "00",
    ),
    (made.RemoveUserScramCredentialRecord(name="a", mechanism=1), "011600" + "0261" + "01" + "00"),
    (
        made.DelegationTokenRecord(
            owner="User:a", requester="User:b", renewers=["User:c"], issue_timestamp=1, max_timestamp=3,
            expiration_timestamp=2, token_id="id",
        ),
        "010a00" + "07" + b"User:a".hex() + "07" + b"User:b".hex() + "02" + "07" + b"User:c".hex()
        + "0000000000000001" + "0000000000000003" + "0000000000000002" + "036964" + "00",
    ),
    (made.RemoveDelegationTokenRecord(token_id="id"), "011a00" + "036964" + "00"),
]  # fmt: skip


@pytest.mark.parametrize(("record", "golden"), GOLDEN, ids=[type(record).__name__ for record, _ in GOLDEN])
def test_records_byte_for_byte(record: Any, golden: str) -> None:
    assert encode(record).hex() == golden
    assert decode(bytes.fromhex(golden)) == record


def test_every_written_record_has_golden_bytes() -> None:
    assert {type(record) for record, _ in GOLDEN} == set(WRITTEN_VERSIONS)
    keys = {"TopicRecord": 2, "PartitionRecord": 3, "ConfigRecord": 4, "RemoveTopicRecord": 9, "FeatureLevelRecord": 12}
    for name, key in {**keys, "ProducerIdsRecord": 15, "ClientQuotaRecord": 14, "PartitionChangeRecord": 5}.items():
        assert spec(getattr(made, name)).api_key == key


def test_newer_versions_of_a_record_are_read() -> None:
    """v2 of PartitionRecord adds tagged fields (KIP-966); unknown tags are ignored."""
    record, golden = next(one for one in GOLDEN if isinstance(one[0], made.PartitionRecord))
    newer = bytes.fromhex("010302" + golden[6:-2] + "02" + "01" + "05" + "0200000001" + "09" + "01" + "ff")
    found = decode(newer)
    assert found is not None
    assert (found.partition_id, found.eligible_leader_replicas, found.last_known_elr) == (3, [1], None)
    assert found.directories == record.directories


def test_unused_record_types_are_ignored() -> None:
    assert decode(bytes.fromhex("011b00" + "deadbeef")) is None


@pytest.mark.parametrize(
    "value",
    ["", "01", "0102", "020200", "010201", "0102ff", "010200", "01020007", "ffffffffffff", "0109" + "00" + "00" * 18],
)
def test_malformed_values_raise(value: str) -> None:
    with pytest.raises(MalformedMessage):
        decode(bytes.fromhex(value))


def opened(folder: Path) -> MetadataLog:
    return MetadataLog(log_of(folder), FIRST)


def log_of(folder: Path) -> PartitionLog:
    return PartitionLog.open(
        DiskFiles(),
        folder,
        TopicIdPartition(TOPIC, 0, TOPIC_ID),
        config=LogConfig(),
        now_ms=0,
        checkpoints=LogCheckpoints(clean_shutdown=False),
    )


def test_log_begins_with_the_metadata_version_and_keeps_the_order(tmp_path: Path) -> None:
    log = opened(tmp_path)
    written = [record for record, _ in GOLDEN]
    log.append(written[:3], 5)
    log.append(written[3:], 6)
    assert log._log.recovery_point == log._log.log_end_offset == 1 + len(written)  # synced, not only written
    log._log.close()
    again = opened(tmp_path)
    assert list(again.replay()) == [*FIRST, *written]
    again._log.close()


def test_damage_is_a_storage_error(tmp_path: Path) -> None:
    log = opened(tmp_path)
    log.append([GOLDEN[0][0]], 5)
    log._log.append_records([batch.Record(0, 0, None, b"\x01\x02\x00")], now_ms=0)
    with pytest.raises(StorageError, match="__cluster_metadata-0"):
        list(log.replay())
    assert len(list(read_all(log._log))) == 3
    log._log.close()


def test_producer_ids_are_unique(tmp_path: Path) -> None:
    """A block is durable before its first id is used; after a crash the next block begins."""
    given: list[int] = []
    for life in range(4):
        log = opened(tmp_path)
        ids = ProducerIds(log, 1)
        for record in log.replay():
            if isinstance(record, made.ProducerIdsRecord):
                ids.replay(record)
        given += [ids.allocate(0) for _ in range([1, BLOCK_IDS, BLOCK_IDS + 1, 2][life])]
        log._log.abandon()  # the state after a kill
    assert len(set(given)) == len(given)
    assert given[0] == 0 and given[1] == BLOCK_IDS and max(given) < 6 * BLOCK_IDS


def test_block_with_a_failed_write_is_not_used() -> None:
    class Full:
        def append(self, records: Any, now_ms: int) -> None:
            raise StorageError("no space left")

    ids = ProducerIds(Full(), 1)  # type: ignore[arg-type]
    for _ in range(2):
        with pytest.raises(StorageError):
            ids.allocate(0)
