"""One module per API: check, map the partitions, answer. `HANDLERS` is the one list of what is served.

The router, the version gate and the table of ApiVersions come from it; its order means nothing.
"""

from __future__ import annotations

from .add_offsets_to_txn import add_offsets_to_txn
from .add_partitions_to_txn import add_partitions_to_txn
from .add_raft_voter import add_raft_voter
from .alter_client_quotas import alter_client_quotas
from .alter_configs import alter_configs
from .alter_partition_reassignments import alter_partition_reassignments
from .alter_replica_log_dirs import alter_replica_log_dirs
from .alter_user_scram_credentials import alter_user_scram_credentials
from .api_versions import api_versions
from .create_acls import create_acls
from .create_delegation_token import create_delegation_token
from .create_partitions import create_partitions
from .create_topics import create_topics
from .delete_acls import delete_acls
from .delete_groups import delete_groups
from .delete_records import delete_records
from .delete_topics import delete_topics
from .describe_acls import describe_acls
from .describe_client_quotas import describe_client_quotas
from .describe_cluster import describe_cluster
from .describe_configs import describe_configs
from .describe_delegation_token import describe_delegation_token
from .describe_groups import describe_groups
from .describe_log_dirs import describe_log_dirs
from .describe_producers import describe_producers
from .describe_quorum import describe_quorum
from .describe_topic_partitions import describe_topic_partitions
from .describe_transactions import describe_transactions
from .describe_user_scram_credentials import describe_user_scram_credentials
from .elect_leaders import elect_leaders
from .end_txn import end_txn
from .expire_delegation_token import expire_delegation_token
from .fetch import fetch
from .find_coordinator import find_coordinator
from .get_telemetry_subscriptions import get_telemetry_subscriptions
from .heartbeat import heartbeat
from .incremental_alter_configs import incremental_alter_configs
from .init_producer_id import init_producer_id
from .join_group import join_group
from .leave_group import leave_group
from .list_config_resources import list_config_resources
from .list_groups import list_groups
from .list_offsets import list_offsets
from .list_partition_reassignments import list_partition_reassignments
from .list_transactions import list_transactions
from .metadata import metadata
from .offset_commit import offset_commit
from .offset_delete import offset_delete
from .offset_fetch import offset_fetch
from .offset_for_leader_epoch import offset_for_leader_epoch
from .produce import produce
from .push_telemetry import push_telemetry
from .remove_raft_voter import remove_raft_voter
from .renew_delegation_token import renew_delegation_token
from .sync_group import sync_group
from .txn_offset_commit import txn_offset_commit
from .unregister_broker import unregister_broker
from .update_features import update_features
from .write_txn_markers import write_txn_markers

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
    describe_quorum,
    unregister_broker,
    add_raft_voter,
    remove_raft_voter,
    get_telemetry_subscriptions,
    push_telemetry,
)
