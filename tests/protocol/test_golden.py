"""Bytes of the most used messages, written by hand from the protocol guide: building and parsing must agree with
them."""

from __future__ import annotations

import re
from typing import Any

from ottla.protocol.compiler import build, parse
from ottla.protocol.internal_records import transaction_records
from ottla.protocol.messages.cluster import api_versions, unregister_controller
from ottla.protocol.messages.groups import delete_groups, join_group, offset_commit
from ottla.protocol.messages.records import fetch, list_offsets, produce
from ottla.protocol.messages.records.leaders import LeaderIdAndEpoch, NodeEndpoint
from ottla.protocol.messages.topics import metadata
from ottla.protocol.messages.transactions import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    describe_transactions,
    end_txn,
    list_transactions,
    txn_offset_commit,
)
from ottla.protocol.primitives import ZERO_UUID
from ottla_testing.each import each

TOPIC_ID = bytes(range(16))


def hexadecimal(text: str) -> bytes:
    return bytes.fromhex(re.sub(r"#.*", "", text))


def produce_request(**topic: Any) -> Any:
    kind: Any = produce.ProduceRequest.TopicProduceData  # type: ignore[attr-defined]
    partition = kind.PartitionProduceData(index=1, records=b"\xaa\xbb\xcc")
    data = kind(partition_data=[partition], **topic)
    return produce.ProduceRequest(acks=-1, timeout_ms=1500, topic_data=[data])


def fetch_request(forgotten: list[Any], topic: dict[str, Any], partition: dict[str, Any], **top: Any) -> Any:
    kind: Any = fetch.FetchRequest.FetchTopic  # type: ignore[attr-defined]
    one = kind.FetchPartition(partition=0, fetch_offset=7, partition_max_bytes=1048576, **partition)
    topics = [kind(partitions=[one], **topic)]
    return fetch.FetchRequest(
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=2,
        isolation_level=1,
        topics=topics,
        forgotten_topics_data=forgotten,
        **top,
    )


def metadata_response(broker: dict[str, Any], topic: dict[str, Any], partition: dict[str, Any], **top: Any) -> Any:
    kind: Any = metadata.MetadataResponse
    one = kind.MetadataResponseTopic.MetadataResponsePartition(
        error_code=0, partition_index=0, leader_id=1, replica_nodes=[1], isr_nodes=[1], **partition
    )
    return kind(
        brokers=[kind.MetadataResponseBroker(node_id=1, host="h", port=9092, **broker)],
        controller_id=1,
        topics=[kind.MetadataResponseTopic(error_code=0, name="t", partitions=[one], **topic)],
        **top,
    )


def join(**fields: Any) -> Any:
    kind: Any = join_group.JoinGroupRequest
    protocols = [kind.JoinGroupRequestProtocol(name="range", metadata=b"\x01\x02")]
    return kind(
        group_id="g", session_timeout_ms=30000, member_id="m", protocol_type="consumer", protocols=protocols, **fields
    )


def commit(topic: dict[str, Any], **fields: Any) -> Any:
    kind: Any = offset_commit.OffsetCommitRequest.OffsetCommitRequestTopic  # type: ignore[attr-defined]
    partition = kind.OffsetCommitRequestPartition(partition_index=2, committed_offset=9, committed_metadata=None)
    return offset_commit.OffsetCommitRequest(
        group_id="g",
        generation_id_or_member_epoch=3,
        member_id="m",
        topics=[kind(partitions=[partition], **topic)],
        **fields,
    )


def offsets(timestamp: int, **fields: Any) -> Any:
    kind: Any = list_offsets.ListOffsetsRequest.ListOffsetsTopic  # type: ignore[attr-defined]
    partition = kind.ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    return list_offsets.ListOffsetsRequest(replica_id=-1, topics=[kind(name="t", partitions=[partition])], **fields)


def txn_commit(partition: dict[str, Any], name: str = "t", *, topic_id: bytes = ZERO_UUID, **fields: Any) -> Any:
    kind: Any = txn_offset_commit.TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic  # type: ignore[attr-defined]
    one = kind.TxnOffsetCommitRequestPartition(partition_index=2, committed_offset=9, **partition)
    return txn_offset_commit.TxnOffsetCommitRequest(
        transactional_id="x",
        group_id="g",
        producer_id=5,
        producer_epoch=1,
        topics=[kind(name=name, topic_id=topic_id, partitions=[one])],
        **fields,
    )


def added(**fields: Any) -> Any:
    return add_partitions_to_txn.AddPartitionsToTxnRequest(**fields)


ADDED = add_partitions_to_txn.AddPartitionsToTxnTopic(name="t", partitions=[0, 1])
TRANSACTION: Any = add_partitions_to_txn.AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction  # type: ignore[attr-defined]
ADD_RESPONSE: Any = add_partitions_to_txn.AddPartitionsToTxnResponse
ADD_RESULT: Any = add_partitions_to_txn.AddPartitionsToTxnTopicResult
DESCRIBED: Any = describe_transactions.DescribeTransactionsResponse
LISTED: Any = list_transactions.ListTransactionsResponse
API: Any = api_versions.ApiVersionsResponse
DELETED_GROUPS: Any = delete_groups.DeleteGroupsResponse
FETCHED: Any = fetch.FetchResponse

GOLDEN: list[tuple[str, int, Any, str]] = [
    ("", 0, api_versions.ApiVersionsRequest(), ""),
    (
        "",
        3,
        api_versions.ApiVersionsRequest(client_software_name="abc", client_software_version="1.0"),
        "04 616263  04 312e30  00",
    ),
    (
        "",
        5,
        api_versions.ApiVersionsRequest(
            client_software_name="abc", client_software_version="1.0", cluster_id="c", node_id=1
        ),
        "04 616263  04 312e30  02 63  00000001  00",
    ),
    (
        "",
        0,
        API(error_code=0, api_keys=[API.ApiVersion(api_key=18, min_version=0, max_version=4)]),
        "0000  00000001  0012 0000 0004",
    ),
    (
        "its header is always v0, its body is flexible from v3",
        3,
        API(
            error_code=35,
            api_keys=[API.ApiVersion(api_key=18, min_version=0, max_version=4)],
            throttle_time_ms=5,
            finalized_features_epoch=6,
        ),
        "0023  02 0012 0000 0004 00  00000005  01 01 08 0000000000000006",
    ),
    (
        "",
        3,
        produce_request(name="t"),
        "ffff  ffff  000005dc  00000001 0001 74  00000001 00000001 00000003 aabbcc",
    ),
    ("", 9, produce_request(name="t"), "00  ffff  000005dc  02 02 74  02 00000001 04 aabbcc 00  00  00"),
    (
        "",
        13,
        produce_request(topic_id=TOPIC_ID),
        "00  ffff  000005dc  02 000102030405060708090a0b0c0d0e0f  02 00000001 04 aabbcc 00  00  00",
    ),
    (
        "",
        4,
        fetch_request([], {"topic": "t"}, {}),
        """ffffffff 000001f4 00000001 00000002 01  # replica, wait, least, most, read_committed
        00000001 0001 74  00000001 00000000 0000000000000007 00100000""",
    ),
    (
        "",
        12,
        fetch_request(
            [fetch.FetchRequest.ForgottenTopic(topic="u", partitions=[3])],  # type: ignore[attr-defined]
            {"topic": "t"},
            {"current_leader_epoch": 4, "last_fetched_epoch": 5, "log_start_offset": 6},
            session_id=8,
            session_epoch=9,
            rack_id="r",
            cluster_id="c",
        ),
        """ffffffff 000001f4 00000001 00000002 01 00000008 00000009
        02 02 74  02 00000000 00000004 0000000000000007 00000005 0000000000000006 00100000 00  00
        02 02 75  02 00000003  00
        02 72
        01 00 02 02 63  # one tagged field: 0, of two bytes, the cluster id""",
    ),
    (
        "the replica id has become a tagged field that a consumer leaves out",
        16,
        fetch_request([], {"topic_id": TOPIC_ID}, {}, session_id=0, session_epoch=0),
        """000001f4 00000001 00000002 01 00000000 00000000
        02 000102030405060708090a0b0c0d0e0f
        02 00000000 ffffffff 0000000000000007 ffffffff ffffffffffffffff 00100000 00  00
        01  01  00""",
    ),
    (
        "",
        16,
        FETCHED(
            session_id=1,
            responses=[
                FETCHED.FetchableTopicResponse(
                    topic_id=TOPIC_ID,
                    partitions=[
                        FETCHED.FetchableTopicResponse.PartitionData(
                            partition_index=0,
                            error_code=6,
                            high_watermark=5,
                            last_stable_offset=5,
                            log_start_offset=0,
                            current_leader=LeaderIdAndEpoch(leader_id=2, leader_epoch=3),
                            aborted_transactions=None,
                            records=b"",
                        )
                    ],
                )
            ],
            node_endpoints=[NodeEndpoint(node_id=2, host="h", port=9092)],
        ),
        """00000000 0000 00000001
        02 000102030405060708090a0b0c0d0e0f
        02 00000000 0006 0000000000000005 0000000000000005 0000000000000000 00 ffffffff 01
        01 01 09 00000002 00000003 00  # a struct in a tagged field ends with its own empty tags
        00
        01 00 0d 02 00000002 02 68 00002384 00 00""",
    ),
    (
        "null requests all topics",
        1,
        metadata.MetadataRequest(topics=None),
        "ffffffff",
    ),
    ("v0 requests all topics with an empty array", 0, metadata.MetadataRequest(topics=[]), "00000000"),
    (
        "",
        1,
        metadata_response({"rack": None}, {"is_internal": False}, {}),
        """00000001 00000001 0001 68 00002384 ffff  00000001
        00000001 0000 0001 74 00  00000001 0000 00000000 00000001 00000001 00000001 00000001 00000001""",
    ),
    (
        "",
        9,
        metadata_response({"rack": "r"}, {}, {"leader_epoch": 0}, cluster_id="c"),
        """00000000  02 00000001 02 68 00002384 02 72 00  02 63  00000001
        02 0000 02 74 00  02 0000 00000000 00000001 00000000 02 00000001 02 00000001 01 00  80000000 00
        80000000 00""",
    ),
    (
        "",
        12,
        metadata_response({}, {"topic_id": TOPIC_ID}, {"leader_epoch": 0, "offline_replicas": [7]}),
        """00000000  02 00000001 02 68 00002384 00 00  00  00000001
        02 0000 02 74 000102030405060708090a0b0c0d0e0f 00
        02 0000 00000000 00000001 00000000 02 00000001 02 00000001 02 00000007 00  80000000 00
        00""",
    ),
    (
        "",
        0,
        join(),
        "0001 67  00007530  0001 6d  0008 636f6e73756d6572  00000001 0005 72616e6765 00000002 0102",
    ),
    (
        "",
        5,
        join(rebalance_timeout_ms=60000, group_instance_id="i"),
        """0001 67  00007530 0000ea60  0001 6d  0001 69  0008 636f6e73756d6572
        00000001 0005 72616e6765 00000002 0102""",
    ),
    (
        "",
        9,
        join(rebalance_timeout_ms=60000, reason="r"),
        "02 67  00007530 0000ea60  02 6d  00  09 636f6e73756d6572  02 06 72616e6765 03 0102 00  02 72  00",
    ),
    (
        "v2 has a retention time, no leader epoch",
        2,
        commit({"name": "t"}),
        """0001 67  00000003  0001 6d  ffffffffffffffff
        00000001 0001 74  00000001 00000002 0000000000000009 ffff""",
    ),
    (
        "",
        8,
        commit({"name": "t"}),
        "02 67  00000003  02 6d  00  02 02 74  02 00000002 0000000000000009 ffffffff 00 00  00  00",
    ),
    ("", 1, offsets(-2), "ffffffff  00000001 0001 74  00000001 00000000 fffffffffffffffe"),
    (
        "",
        7,
        offsets(-3, isolation_level=1),
        "ffffffff 01  02 02 74  02 00000000 ffffffff fffffffffffffffd 00  00  00",
    ),
    (
        "of a client",
        0,
        added(
            v3_and_below_transactional_id="x",
            v3_and_below_producer_id=5,
            v3_and_below_producer_epoch=1,
            v3_and_below_topics=[ADDED],
        ),
        "0001 78  0000000000000005 0001  00000001 0001 74  00000002 00000000 00000001",
    ),
    (
        "of a broker",
        4,
        added(
            transactions=[
                TRANSACTION(transactional_id="x", producer_id=5, producer_epoch=1, verify_only=True, topics=[ADDED])
            ]
        ),
        "02  02 78  0000000000000005 0001 01  02 02 74  03 00000000 00000001 00  00  00",
    ),
    (
        "",
        3,
        ADD_RESPONSE(
            results_by_topic_v3_and_below=[
                ADD_RESULT(
                    name="t",
                    results_by_partition=[
                        ADD_RESULT.AddPartitionsToTxnPartitionResult(partition_index=1, partition_error_code=55)
                    ],
                )
            ]
        ),
        "00000000  02 02 74  02 00000001 0037 00  00  00",
    ),
    (
        "",
        5,
        ADD_RESPONSE(
            error_code=15,
            results_by_transaction=[ADD_RESPONSE.AddPartitionsToTxnResult(transactional_id="x", topic_results=[])],
        ),
        "00000000  000f  02 02 78  01 00  00",
    ),
    (
        "",
        2,
        add_offsets_to_txn.AddOffsetsToTxnRequest(transactional_id="x", producer_id=5, producer_epoch=1, group_id="g"),
        "0001 78  0000000000000005 0001  0001 67",
    ),
    ("", 4, add_offsets_to_txn.AddOffsetsToTxnResponse(error_code=120), "00000000  0078  00"),
    (
        "",
        3,
        end_txn.EndTxnRequest(transactional_id="x", producer_id=5, producer_epoch=1, committed=True),
        "02 78  0000000000000005 0001  01  00",
    ),
    ("", 4, end_txn.EndTxnResponse(error_code=48), "00000000  0030  00"),
    (
        "",
        5,
        end_txn.EndTxnResponse(error_code=0, producer_id=5, producer_epoch=2),
        "00000000  0000  0000000000000005 0002  00",
    ),
    (
        "",
        0,
        txn_commit({"committed_metadata": "m"}),
        """0001 78  0001 67  0000000000000005 0001
        00000001 0001 74  00000001 00000002 0000000000000009 0001 6d""",
    ),
    (
        "",
        2,
        txn_commit({"committed_metadata": None, "committed_leader_epoch": 4}),
        """0001 78  0001 67  0000000000000005 0001
        00000001 0001 74  00000001 00000002 0000000000000009 00000004 ffff""",
    ),
    (
        "",
        5,
        txn_commit({"committed_metadata": None}, generation_id_or_member_epoch=3, member_id="m"),
        """02 78  02 67  0000000000000005 0001  00000003 02 6d 00
        02 02 74  02 00000002 0000000000000009 ffffffff 00 00  00  00""",
    ),
    (
        "",
        6,
        txn_commit({"committed_metadata": None}, "", topic_id=TOPIC_ID),
        """02 78  02 67  0000000000000005 0001  ffffffff 01 00
        02 000102030405060708090a0b0c0d0e0f  02 00000002 0000000000000009 ffffffff 00 00  00  00""",
    ),
    (
        "",
        3,
        DELETED_GROUPS(results=[DELETED_GROUPS.DeletableGroupResult(group_id="g", error_code=134, error_message="m")]),
        "00000000  02 02 67 0086 02 6d 00  00",
    ),
    ("", 0, unregister_controller.UnregisterControllerRequest(controller_id=5), "00000005 00"),
    (
        "",
        0,
        unregister_controller.UnregisterControllerResponse(throttle_time_ms=1, error_code=136, error_message=None),
        "00000001 0088 00 00",
    ),
    (
        "",
        0,
        DESCRIBED(
            transaction_states=[
                DESCRIBED.TransactionState(
                    error_code=0,
                    transactional_id="x",
                    transaction_state="Ongoing",
                    transaction_timeout_ms=60000,
                    transaction_start_time_ms=7,
                    producer_id=5,
                    producer_epoch=1,
                    topics=[DESCRIBED.TransactionState.TopicData(topic="t", partitions=[3])],
                )
            ]
        ),
        """00000000  02 0000 02 78  08 4f6e676f696e67  0000ea60 0000000000000007  0000000000000005 0001
        02 02 74  02 00000003  00  00  00""",
    ),
    (
        "",
        2,
        list_transactions.ListTransactionsRequest(
            state_filters=["Empty"], producer_id_filters=[5], duration_filter=1000, transactional_id_pattern="x.*"
        ),
        "02 06 456d707479  02 0000000000000005  00000000000003e8  04 782e2a  00",
    ),
    (
        "",
        1,
        LISTED(
            error_code=0,
            unknown_state_filters=["No"],
            transaction_states=[
                LISTED.TransactionState(transactional_id="x", producer_id=5, transaction_state="Empty")
            ],
        ),
        "00000000  0000  02 03 4e6f  02 02 78  0000000000000005  06 456d707479 00  00",
    ),
    (
        "of a transactional id that was taken over",
        1,
        transaction_records.TransactionLogValue(
            producer_id=5,
            previous_producer_id=4,
            producer_epoch=1,
            transaction_timeout_ms=60000,
            transaction_status=1,
            transaction_partitions=[
                transaction_records.TransactionLogValue.PartitionsSchema(topic="t", partition_ids=[3])  # type: ignore[attr-defined]
            ],
            transaction_last_update_timestamp_ms=8,
            transaction_start_timestamp_ms=7,
            client_transaction_version=2,
        ),
        """0000000000000005 0001 0000ea60 01  02 02 74  02 00000003  00  0000000000000008 0000000000000007
        02  00 08 0000000000000004  02 02 0002""",
    ),
]


@each(
    ("version", "value", "text"),
    [case[1:] for case in GOLDEN],
)
def test_messages_equal_hand_written_bytes(version: int, value: Any, text: str) -> None:
    raw = hexadecimal(text)
    assert build(value, version).hex(" ") == raw.hex(" ")
    assert parse(type(value), version, raw) == value
