"""One module for each API, or for a few of one subject: check, handle the partitions, respond.

`HANDLERS` lists all served APIs; the router and the table of ApiVersions follow from it. A handler is imported, with
its messages, for the first request of its API: a start needs hardly any. CONTRIBUTING.md has the steps for a new API.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from ...protocol.api_key import ApiKey

if TYPE_CHECKING:
    from ..context import Handler

HANDLERS: dict[int, str] = {
    ApiKey.PRODUCE: "records.produce",
    ApiKey.FETCH: "records.fetch",
    ApiKey.LIST_OFFSETS: "records.list_offsets",
    ApiKey.METADATA: "topics.metadata",
    ApiKey.OFFSET_COMMIT: "groups.offset_commit",
    ApiKey.OFFSET_FETCH: "groups.offset_fetch",
    ApiKey.FIND_COORDINATOR: "groups.find_coordinator",
    ApiKey.JOIN_GROUP: "groups.classic_members",
    ApiKey.HEARTBEAT: "groups.classic_members",
    ApiKey.LEAVE_GROUP: "groups.classic_members",
    ApiKey.SYNC_GROUP: "groups.classic_members",
    ApiKey.DESCRIBE_GROUPS: "groups.describe_groups",
    ApiKey.LIST_GROUPS: "groups.list_groups",
    ApiKey.SASL_HANDSHAKE: "security.sasl",
    ApiKey.API_VERSIONS: "cluster.api_versions",
    ApiKey.CREATE_TOPICS: "topics.create_topics",
    ApiKey.DELETE_TOPICS: "topics.delete_topics",
    ApiKey.DELETE_RECORDS: "records.delete_records",
    ApiKey.INIT_PRODUCER_ID: "transactions.init_producer_id",
    ApiKey.OFFSET_FOR_LEADER_EPOCH: "records.offset_for_leader_epoch",
    ApiKey.ADD_PARTITIONS_TO_TXN: "transactions.add_partitions_to_txn",
    ApiKey.ADD_OFFSETS_TO_TXN: "transactions.current_transaction",
    ApiKey.END_TXN: "transactions.current_transaction",
    ApiKey.WRITE_TXN_MARKERS: "transactions.write_txn_markers",
    ApiKey.TXN_OFFSET_COMMIT: "transactions.txn_offset_commit",
    ApiKey.DESCRIBE_ACLS: "security.acls",
    ApiKey.CREATE_ACLS: "security.acls",
    ApiKey.DELETE_ACLS: "security.acls",
    ApiKey.DESCRIBE_CONFIGS: "configs.describe_configs",
    ApiKey.ALTER_CONFIGS: "configs.alter_configs",
    ApiKey.ALTER_REPLICA_LOG_DIRS: "cluster.log_dirs",
    ApiKey.DESCRIBE_LOG_DIRS: "cluster.log_dirs",
    ApiKey.SASL_AUTHENTICATE: "security.sasl",
    ApiKey.CREATE_PARTITIONS: "topics.create_partitions",
    ApiKey.CREATE_DELEGATION_TOKEN: "security.delegation_tokens",
    ApiKey.RENEW_DELEGATION_TOKEN: "security.delegation_tokens",
    ApiKey.EXPIRE_DELEGATION_TOKEN: "security.delegation_tokens",
    ApiKey.DESCRIBE_DELEGATION_TOKEN: "security.delegation_tokens",
    ApiKey.DELETE_GROUPS: "groups.delete_groups",
    ApiKey.ELECT_LEADERS: "cluster.elect_leaders",
    ApiKey.INCREMENTAL_ALTER_CONFIGS: "configs.alter_configs",
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: "cluster.partition_reassignments",
    ApiKey.LIST_PARTITION_REASSIGNMENTS: "cluster.partition_reassignments",
    ApiKey.OFFSET_DELETE: "groups.offset_delete",
    ApiKey.DESCRIBE_CLIENT_QUOTAS: "configs.client_quotas",
    ApiKey.ALTER_CLIENT_QUOTAS: "configs.client_quotas",
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: "security.scram_credentials",
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: "security.scram_credentials",
    ApiKey.DESCRIBE_QUORUM: "cluster.quorum",
    ApiKey.UPDATE_FEATURES: "cluster.update_features",
    ApiKey.DESCRIBE_CLUSTER: "cluster.describe_cluster",
    ApiKey.DESCRIBE_PRODUCERS: "transactions.describe_producers",
    ApiKey.UNREGISTER_BROKER: "cluster.unregister",
    ApiKey.DESCRIBE_TRANSACTIONS: "transactions.transaction_states",
    ApiKey.LIST_TRANSACTIONS: "transactions.transaction_states",
    ApiKey.CONSUMER_GROUP_HEARTBEAT: "groups.consumer_group_heartbeat",
    ApiKey.CONSUMER_GROUP_DESCRIBE: "groups.consumer_group_describe",
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: "cluster.telemetry",
    ApiKey.PUSH_TELEMETRY: "cluster.telemetry",
    ApiKey.LIST_CONFIG_RESOURCES: "configs.list_config_resources",
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: "topics.describe_topic_partitions",
    ApiKey.SHARE_GROUP_HEARTBEAT: "share.share_group_heartbeat",
    ApiKey.SHARE_GROUP_DESCRIBE: "share.share_group_describe",
    ApiKey.SHARE_FETCH: "share.share_fetch",
    ApiKey.SHARE_ACKNOWLEDGE: "share.share_acknowledge",
    ApiKey.ADD_RAFT_VOTER: "cluster.quorum",
    ApiKey.REMOVE_RAFT_VOTER: "cluster.quorum",
    ApiKey.INITIALIZE_SHARE_GROUP_STATE: "share.state",
    ApiKey.READ_SHARE_GROUP_STATE: "share.state",
    ApiKey.WRITE_SHARE_GROUP_STATE: "share.state",
    ApiKey.DELETE_SHARE_GROUP_STATE: "share.state",
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: "share.state",
    ApiKey.STREAMS_GROUP_HEARTBEAT: "streams.streams_group_heartbeat",
    ApiKey.STREAMS_GROUP_DESCRIBE: "streams.streams_group_describe",
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: "share.offsets",
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: "share.offsets",
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: "share.offsets",
    ApiKey.STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE: "streams.streams_group_topology_description_update",
    ApiKey.UNREGISTER_CONTROLLER: "cluster.unregister",
}
"""The module of each handler, in this package. The function has the name of its API in lower case."""


def handler_of(api_key: int) -> Handler:
    """Imports the handler of an API. Raises KeyError for an API that is not served."""
    module = importlib.import_module(f".{HANDLERS[api_key]}", __name__)
    return getattr(module, ApiKey(api_key).name.lower())
