"""One module for each API, or for a few of one subject: check, handle the partitions, respond.

`APIS` lists all served APIs by module; the router and the table of ApiVersions follow from it. A handler is imported,
with its messages, for the first request of its API: a start needs hardly any. CONTRIBUTING.md has the steps for a new
API.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from ...protocol.api_key import ApiKey

if TYPE_CHECKING:
    from ..context import Handler

APIS: dict[str, tuple[ApiKey, ...]] = {
    "records.produce": (ApiKey.PRODUCE,),
    "records.fetch": (ApiKey.FETCH,),
    "records.list_offsets": (ApiKey.LIST_OFFSETS,),
    "topics.metadata": (ApiKey.METADATA,),
    "groups.offset_commit": (ApiKey.OFFSET_COMMIT,),
    "groups.offset_fetch": (ApiKey.OFFSET_FETCH,),
    "groups.find_coordinator": (ApiKey.FIND_COORDINATOR,),
    "groups.classic_members": (ApiKey.JOIN_GROUP, ApiKey.HEARTBEAT, ApiKey.LEAVE_GROUP, ApiKey.SYNC_GROUP),
    "groups.administration": (
        ApiKey.DESCRIBE_GROUPS,
        ApiKey.LIST_GROUPS,
        ApiKey.DELETE_GROUPS,
        ApiKey.OFFSET_DELETE,
    ),
    "security.sasl": (ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE),
    "cluster.api_versions": (ApiKey.API_VERSIONS,),
    "topics.create_topics": (ApiKey.CREATE_TOPICS,),
    "topics.delete_topics": (ApiKey.DELETE_TOPICS,),
    "records.delete_records": (ApiKey.DELETE_RECORDS,),
    "transactions.init_producer_id": (ApiKey.INIT_PRODUCER_ID,),
    "records.offset_for_leader_epoch": (ApiKey.OFFSET_FOR_LEADER_EPOCH,),
    "transactions.add_partitions_to_txn": (ApiKey.ADD_PARTITIONS_TO_TXN,),
    "transactions.current_transaction": (ApiKey.ADD_OFFSETS_TO_TXN, ApiKey.END_TXN),
    "transactions.write_txn_markers": (ApiKey.WRITE_TXN_MARKERS,),
    "transactions.txn_offset_commit": (ApiKey.TXN_OFFSET_COMMIT,),
    "security.acls": (ApiKey.DESCRIBE_ACLS, ApiKey.CREATE_ACLS, ApiKey.DELETE_ACLS),
    "configs.describe_configs": (ApiKey.DESCRIBE_CONFIGS, ApiKey.LIST_CONFIG_RESOURCES),
    "configs.alter_configs": (ApiKey.ALTER_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS),
    "cluster.log_dirs": (ApiKey.ALTER_REPLICA_LOG_DIRS, ApiKey.DESCRIBE_LOG_DIRS),
    "topics.create_partitions": (ApiKey.CREATE_PARTITIONS,),
    "security.delegation_tokens": (
        ApiKey.CREATE_DELEGATION_TOKEN,
        ApiKey.RENEW_DELEGATION_TOKEN,
        ApiKey.EXPIRE_DELEGATION_TOKEN,
        ApiKey.DESCRIBE_DELEGATION_TOKEN,
    ),
    "cluster.replicas": (
        ApiKey.ELECT_LEADERS,
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
    ),
    "configs.client_quotas": (ApiKey.DESCRIBE_CLIENT_QUOTAS, ApiKey.ALTER_CLIENT_QUOTAS),
    "security.scram_credentials": (ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, ApiKey.ALTER_USER_SCRAM_CREDENTIALS),
    "cluster.quorum": (ApiKey.DESCRIBE_QUORUM, ApiKey.ADD_RAFT_VOTER, ApiKey.REMOVE_RAFT_VOTER),
    "cluster.update_features": (ApiKey.UPDATE_FEATURES,),
    "transactions.describe_producers": (ApiKey.DESCRIBE_PRODUCERS,),
    "cluster.nodes": (ApiKey.DESCRIBE_CLUSTER, ApiKey.UNREGISTER_BROKER, ApiKey.UNREGISTER_CONTROLLER),
    "transactions.transaction_states": (ApiKey.DESCRIBE_TRANSACTIONS, ApiKey.LIST_TRANSACTIONS),
    "groups.consumer_group_heartbeat": (ApiKey.CONSUMER_GROUP_HEARTBEAT,),
    "groups.consumer_group_describe": (ApiKey.CONSUMER_GROUP_DESCRIBE,),
    "cluster.telemetry": (ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY),
    "topics.describe_topic_partitions": (ApiKey.DESCRIBE_TOPIC_PARTITIONS,),
    "share.share_group_heartbeat": (ApiKey.SHARE_GROUP_HEARTBEAT,),
    "share.share_group_describe": (ApiKey.SHARE_GROUP_DESCRIBE,),
    "share.share_fetch": (ApiKey.SHARE_FETCH,),
    "share.share_acknowledge": (ApiKey.SHARE_ACKNOWLEDGE,),
    "share.state": (
        ApiKey.INITIALIZE_SHARE_GROUP_STATE,
        ApiKey.READ_SHARE_GROUP_STATE,
        ApiKey.WRITE_SHARE_GROUP_STATE,
        ApiKey.DELETE_SHARE_GROUP_STATE,
        ApiKey.READ_SHARE_GROUP_STATE_SUMMARY,
    ),
    "streams.streams_group_heartbeat": (ApiKey.STREAMS_GROUP_HEARTBEAT,),
    "streams.streams_group_describe": (
        ApiKey.STREAMS_GROUP_DESCRIBE,
        ApiKey.STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE,
    ),
    "share.offsets": (
        ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS,
        ApiKey.ALTER_SHARE_GROUP_OFFSETS,
        ApiKey.DELETE_SHARE_GROUP_OFFSETS,
    ),
}
HANDLERS: dict[int, str] = dict(sorted((key, module) for module, keys in APIS.items() for key in keys))
"""The module of each handler, in the order of the keys. The function has the name of its API in lower case."""


def handler_of(api_key: int) -> Handler:
    """Imports the handler of an API. Raises KeyError for an API that is not served."""
    module = importlib.import_module(f".{HANDLERS[api_key]}", __name__)
    return getattr(module, ApiKey(api_key).name.lower())
