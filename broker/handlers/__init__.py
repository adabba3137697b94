"""One module for each API: check, handle the partitions, respond. `HANDLERS` lists all served APIs.

The router, the check of versions and the table of ApiVersions follow from this list; its order has no meaning.
CONTRIBUTING.md has the steps for a new API.
"""

from __future__ import annotations

from .cluster.add_raft_voter import add_raft_voter
from .cluster.alter_partition_reassignments import alter_partition_reassignments
from .cluster.alter_replica_log_dirs import alter_replica_log_dirs
from .cluster.api_versions import api_versions
from .cluster.describe_cluster import describe_cluster
from .cluster.describe_log_dirs import describe_log_dirs
from .cluster.describe_quorum import describe_quorum
from .cluster.elect_leaders import elect_leaders
from .cluster.get_telemetry_subscriptions import get_telemetry_subscriptions
from .cluster.list_partition_reassignments import list_partition_reassignments
from .cluster.push_telemetry import push_telemetry
from .cluster.remove_raft_voter import remove_raft_voter
from .cluster.unregister_broker import unregister_broker
from .cluster.unregister_controller import unregister_controller
from .cluster.update_features import update_features
from .configs.alter_client_quotas import alter_client_quotas
from .configs.alter_configs import alter_configs
from .configs.describe_client_quotas import describe_client_quotas
from .configs.describe_configs import describe_configs
from .configs.incremental_alter_configs import incremental_alter_configs
from .configs.list_config_resources import list_config_resources
from .groups.consumer_group_describe import consumer_group_describe
from .groups.consumer_group_heartbeat import consumer_group_heartbeat
from .groups.delete_groups import delete_groups
from .groups.describe_groups import describe_groups
from .groups.find_coordinator import find_coordinator
from .groups.heartbeat import heartbeat
from .groups.join_group import join_group
from .groups.leave_group import leave_group
from .groups.list_groups import list_groups
from .groups.offset_commit import offset_commit
from .groups.offset_delete import offset_delete
from .groups.offset_fetch import offset_fetch
from .groups.sync_group import sync_group
from .records.delete_records import delete_records
from .records.fetch import fetch
from .records.list_offsets import list_offsets
from .records.offset_for_leader_epoch import offset_for_leader_epoch
from .records.produce import produce
from .security.alter_user_scram_credentials import alter_user_scram_credentials
from .security.create_acls import create_acls
from .security.create_delegation_token import create_delegation_token
from .security.delete_acls import delete_acls
from .security.describe_acls import describe_acls
from .security.describe_delegation_token import describe_delegation_token
from .security.describe_user_scram_credentials import describe_user_scram_credentials
from .security.expire_delegation_token import expire_delegation_token
from .security.renew_delegation_token import renew_delegation_token
from .security.sasl_authenticate import sasl_authenticate
from .security.sasl_handshake import sasl_handshake
from .share.offsets import alter_share_group_offsets, delete_share_group_offsets, describe_share_group_offsets
from .share.share_acknowledge import share_acknowledge
from .share.share_fetch import share_fetch
from .share.share_group_describe import share_group_describe
from .share.share_group_heartbeat import share_group_heartbeat
from .share.state import (
    delete_share_group_state,
    initialize_share_group_state,
    read_share_group_state,
    read_share_group_state_summary,
    write_share_group_state,
)
from .streams.streams_group_describe import streams_group_describe
from .streams.streams_group_heartbeat import streams_group_heartbeat
from .streams.streams_group_topology_description_update import streams_group_topology_description_update
from .topics.create_partitions import create_partitions
from .topics.create_topics import create_topics
from .topics.delete_topics import delete_topics
from .topics.describe_topic_partitions import describe_topic_partitions
from .topics.metadata import metadata
from .transactions.add_offsets_to_txn import add_offsets_to_txn
from .transactions.add_partitions_to_txn import add_partitions_to_txn
from .transactions.describe_producers import describe_producers
from .transactions.describe_transactions import describe_transactions
from .transactions.end_txn import end_txn
from .transactions.init_producer_id import init_producer_id
from .transactions.list_transactions import list_transactions
from .transactions.txn_offset_commit import txn_offset_commit
from .transactions.write_txn_markers import write_txn_markers

HANDLERS = (
    produce,
    fetch,
    list_offsets,
    metadata,
    offset_commit,
    offset_fetch,
    find_coordinator,
    join_group,
    heartbeat,
    leave_group,
    sync_group,
    consumer_group_heartbeat,
    consumer_group_describe,
    describe_groups,
    list_groups,
    list_config_resources,
    api_versions,
    create_topics,
    delete_topics,
    delete_records,
    init_producer_id,
    offset_for_leader_epoch,
    describe_acls,
    create_acls,
    delete_acls,
    describe_configs,
    alter_configs,
    describe_log_dirs,
    create_partitions,
    delete_groups,
    incremental_alter_configs,
    describe_client_quotas,
    alter_client_quotas,
    offset_delete,
    describe_cluster,
    describe_producers,
    describe_topic_partitions,
    add_partitions_to_txn,
    add_offsets_to_txn,
    end_txn,
    write_txn_markers,
    txn_offset_commit,
    describe_transactions,
    list_transactions,
    alter_replica_log_dirs,
    elect_leaders,
    alter_partition_reassignments,
    list_partition_reassignments,
    describe_user_scram_credentials,
    alter_user_scram_credentials,
    update_features,
    create_delegation_token,
    renew_delegation_token,
    expire_delegation_token,
    describe_delegation_token,
    sasl_handshake,
    sasl_authenticate,
    describe_quorum,
    unregister_broker,
    unregister_controller,
    add_raft_voter,
    remove_raft_voter,
    get_telemetry_subscriptions,
    push_telemetry,
    share_group_heartbeat,
    streams_group_describe,
    streams_group_heartbeat,
    streams_group_topology_description_update,
    share_group_describe,
    share_fetch,
    share_acknowledge,
    initialize_share_group_state,
    read_share_group_state,
    write_share_group_state,
    delete_share_group_state,
    read_share_group_state_summary,
    describe_share_group_offsets,
    alter_share_group_offsets,
    delete_share_group_offsets,
)
