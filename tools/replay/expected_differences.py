"""The differences between responses that are expected because the releases of both brokers differ.

Owns the mapping from each behaviour of `releases/behaviour.py` to the fields of responses that it changes, and the
comparison of advertised versions and configs. A behaviour that is equal in both releases explains nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

from ...broker.config.definitions import facts
from ...broker.network.router import apis_of
from ...broker.releases.profiles import PROFILE_NAMES, Profile, api_names, profile
from ...protocol.api_key import ApiKey
from ...protocol.errors import ErrorCode
from ...protocol.limits import INT16_MAX
from ...protocol.named import NamedTuple
from ...protocol.schema import Versions
from ..release_table import behaviour_of
from .name_mapping import OF_COORDINATORS, OF_TOPICS
from .value_comparison import ABSENT, Difference

UNSUPPORTED = ErrorCode.UNSUPPORTED_VERSION
# Errors that depend on the state of a topic, leader or coordinator: no release returns them by a rule of its own.
OF_STATE = OF_TOPICS | OF_COORDINATORS
_CODE = re.compile(r"error_code$")
Holds = Callable[[Any, Any], bool]


class Sign(NamedTuple):
    """A pattern of differences that a behaviour causes.

    It matches differences in responses of `apis` (empty for all) up to version `newest`, if the path matches and
    `holds(left, right)` is true. Without `holds` it matches all values except the errors of OF_STATE.
    """

    apis: frozenset[int]
    path: str
    holds: Holds | None = None
    newest: int = INT16_MAX

    def shows(self, api_key: int, version: int, difference: Difference) -> bool:
        if (self.apis and api_key not in self.apis) or version > self.newest:
            return False
        if not re.search(self.path, difference.path):
            return False
        if self.holds is not None:
            return self.holds(difference.left, difference.right)
        return not (_CODE.search(difference.path) and {difference.left, difference.right} & OF_STATE)


def _codes(*codes: int) -> Holds:
    return lambda left, right: left in codes and right in codes


def _either(*codes: int) -> Holds:
    return lambda left, right: left in codes or right in codes


def _signs(apis: str = "", *, path: str = "", holds: Holds | None = None, newest: int = INT16_MAX) -> tuple[Sign, ...]:
    return (Sign(frozenset(ApiKey[name] for name in apis.split()), path, holds, newest),)


_SEQUENCES = _signs("PRODUCE", path=r"error_code$|^$", holds=_codes(0, 45, 46, 47, 59))
_WRITTEN = _signs("FETCH", path=r"\.records\[") + _signs(
    "PRODUCE", path=r"error_code$", holds=_codes(0, 2, 32, 35, 43, 76, 87)
)
_TRANSACTIONS = _signs(
    """PRODUCE INIT_PRODUCER_ID ADD_PARTITIONS_TO_TXN ADD_OFFSETS_TO_TXN END_TXN TXN_OFFSET_COMMIT
    DESCRIBE_TRANSACTIONS LIST_TRANSACTIONS DESCRIBE_PRODUCERS""",
    path="error_code$|producer_(id|epoch)$|state$",
)
# APIs that coordinators serve.
_COORDINATED = """OFFSET_COMMIT OFFSET_FETCH FIND_COORDINATOR JOIN_GROUP HEARTBEAT LEAVE_GROUP SYNC_GROUP
    DESCRIBE_GROUPS LIST_GROUPS INIT_PRODUCER_ID ADD_PARTITIONS_TO_TXN ADD_OFFSETS_TO_TXN END_TXN TXN_OFFSET_COMMIT
    DELETE_GROUPS OFFSET_DELETE DESCRIBE_TRANSACTIONS LIST_TRANSACTIONS"""
_ACLS = _signs("DESCRIBE_ACLS CREATE_ACLS DELETE_ACLS") + _signs(path=r"authorized_operations$")

_NEW_GROUPS = _signs(
    """STREAMS_GROUP_HEARTBEAT STREAMS_GROUP_DESCRIBE CONSUMER_GROUP_HEARTBEAT CONSUMER_GROUP_DESCRIBE OFFSET_COMMIT
    OFFSET_FETCH TXN_OFFSET_COMMIT LIST_GROUPS"""
)

SIGNS: Mapping[str, tuple[Sign, ...]] = {
    **dict.fromkeys(
        """unknown_producer marker_only below_cache inside_cache cached_batches drop_below_log_start
        unknown_below_log_start own_epoch_begins_at_0""".split(),
        _SEQUENCES,
    ),
    "invalid_record_code": _signs("PRODUCE", path=r"error_code$", holds=_codes(2, 87)),
    "wrong_batches": _signs("PRODUCE", path=r"error_code$|^$", holds=_codes(0, 2, 87)) + _signs("PRODUCE", path="^$"),
    "unreadable_batches": _signs("PRODUCE", path=r"error_code$|^$", holds=_either(-1, 2))
    + _signs("PRODUCE", path="^$"),
    "record_errors": _signs("PRODUCE", path=r"record_errors|error_message$"),
    "counted_record_errors": _signs("PRODUCE", path=r"error_message$"),
    **dict.fromkeys(
        "refuse_unnumbered unnumbered_fail one_magic append_time_bit_allowed timestamp_range".split(),
        _signs("PRODUCE", path=r"error_code$|^$"),
    ),
    **dict.fromkeys("old_formats newest_magic v2_from_ibp_3".split(), _WRITTEN),
    **dict.fromkeys("down_conversion nothing_left sends_cut".split(), _signs("FETCH", newest=3)),
    "zstd_topic_needs_fetch_10": _signs("FETCH", path=r"error_code$", holds=_codes(0, 76)),
    **dict.fromkeys("cleaner_keeps_old_formats delete_horizon cleaner_keeps_last_batch".split(), _signs("FETCH")),
    "eligible_leaders": _signs("DESCRIBE_TOPIC_PARTITIONS", path=r"eligible_leader_replicas|last_known_elr")
    + _signs("API_VERSIONS", path=r"features.*eligible")
    + _signs("CREATE_TOPICS DESCRIBE_CONFIGS", path=r"min\.insync\.replicas"),
    "transaction_version": _TRANSACTIONS + _signs("API_VERSIONS", path=r"features.*transaction\.version"),
    **dict.fromkeys(
        "verifies_transactions verifies_offsets absent_group_code".split(),
        _signs("PRODUCE TXN_OFFSET_COMMIT ADD_OFFSETS_TO_TXN ADD_PARTITIONS_TO_TXN"),
    ),
    "hides_topics": _signs(path=r"error_code$", holds=_codes(3, 29)),
    "offset_fetch_reads_group": _signs("OFFSET_FETCH", path=r"error_code$", holds=_codes(0, 30)),
    "creates_by_topic": _signs("CREATE_TOPICS METADATA", path=r"error_code$", holds=_codes(0, 29, 31)),
    "describe_suffices": _signs("LIST_GROUPS OFFSET_FOR_LEADER_EPOCH"),
    "idempotence_of_cluster": _signs("PRODUCE INIT_PRODUCER_ID", path=r"error_code$", holds=_codes(0, 31)),
    "group_configs": _signs(path=r"authorized_operations$") + _signs("DESCRIBE_CONFIGS INCREMENTAL_ALTER_CONFIGS"),
    "refusal_texts": _signs(path=r"error_message$"),
    "log_dirs_of_requested_topics": _signs("DESCRIBE_LOG_DIRS"),
    "controls_as_kraft": _signs("ELECT_LEADERS ALTER_PARTITION_REASSIGNMENTS LIST_PARTITION_REASSIGNMENTS"),
    "reassignment_awaits": _signs("LIST_PARTITION_REASSIGNMENTS")
    + _signs("ALTER_PARTITION_REASSIGNMENTS", path=r"error_code$", holds=_codes(0, 85))
    + _signs("METADATA DESCRIBE_TOPIC_PARTITIONS", path=r"leader|replica_nodes|isr_nodes"),
    "topics_as_kraft": _signs("CREATE_TOPICS DELETE_TOPICS CREATE_PARTITIONS"),
    "limits_added_partitions": _signs("CREATE_PARTITIONS", path=r"error_(code|message)$"),
    "first_offsets": _signs("OFFSET_COMMIT OFFSET_FETCH", newest=0),
    "special_timestamps": _signs("LIST_OFFSETS", path=r"error_code$|\.(timestamp|offset)$"),
    "cordoned_log_dirs": _signs(
        "CREATE_TOPICS CREATE_PARTITIONS DESCRIBE_LOG_DIRS", path=r"error_message$|is_cordoned$"
    ),
    "deletes_without_policy": _signs("DELETE_RECORDS", path=r"error_code$"),
    "in_sync_at_most_replicas": _signs("PRODUCE", path=r"error_code$", holds=_codes(0, 19, 20)),
    "coordinator_awaits_topic": _signs(_COORDINATED, path=r"error_code$|^$", holds=_either(15, 16)),
    "created_topic": _signs("METADATA", path=r"error_code$", holds=_codes(0, 3, 5))
    + _signs("METADATA", path=r"\.(partitions|topic_id)"),
    **dict.fromkeys(
        "removes_unsynced first_session_at_join".split(), _signs("JOIN_GROUP HEARTBEAT SYNC_GROUP DESCRIBE_GROUPS")
    ),
    "member_checks": _signs(
        "OFFSET_COMMIT HEARTBEAT LEAVE_GROUP SYNC_GROUP TXN_OFFSET_COMMIT",
        path=r"error_code$",
        holds=_codes(0, 22, 25, 27),
    ),
    "heartbeats_before_sync": _signs("HEARTBEAT", path=r"error_code$", holds=_codes(0, 25, 27)),
    "described_text": _signs("DESCRIBE_CONFIGS", path=r"error_message$"),
    "acl_text": _signs("DESCRIBE_ACLS CREATE_ACLS", path=r"error_message$"),
    "sasl_text": _signs("SASL_AUTHENTICATE", path=r"error_message$"),
    "first_token": _signs("SASL_AUTHENTICATE"),
    "old_group_coordinator": _signs(
        "OFFSET_COMMIT OFFSET_FETCH DESCRIBE_GROUPS LIST_GROUPS TXN_OFFSET_COMMIT DELETE_GROUPS OFFSET_DELETE"
    ),
    **dict.fromkeys(
        "consumer_groups hashes_topics rejoins_at_zero spaces_assignments commits_by_assignment".split(), _NEW_GROUPS
    ),
    "static_streams_members": _signs("STREAMS_GROUP_HEARTBEAT STREAMS_GROUP_DESCRIBE"),
    "shrinks_deliveries": _signs("SHARE_FETCH"),
    "caps_group_configs": _signs(
        "CONSUMER_GROUP_HEARTBEAT SHARE_GROUP_HEARTBEAT STREAMS_GROUP_HEARTBEAT SHARE_FETCH SHARE_ACKNOWLEDGE"
    ),
    "group_states_in_any_case": _signs("LIST_GROUPS"),
    "producers_in_words": _signs("DESCRIBE_PRODUCERS", path=r"error_(code|message)$"),
    "scram_once_a_user": _signs("ALTER_USER_SCRAM_CREDENTIALS"),
    "credentials_end_sessions": _signs("SASL_AUTHENTICATE", path=r"session_lifetime_ms$") + _signs(path=r"^$"),
    "token_rules": _signs(
        "CREATE_DELEGATION_TOKEN RENEW_DELEGATION_TOKEN EXPIRE_DELEGATION_TOKEN", path=r"error_code$|timestamp_ms$"
    ),
    "feature_results": _signs("UPDATE_FEATURES"),
    "cidr_hosts": _ACLS + _signs(path=r"error_code$", holds=_either(29, 30, 31, 53)),
    "newest_acl_operation": _ACLS,
    "acls_as_kraft": _ACLS,
    "mutes_throttled": (),
    "quota_checks": _signs("DESCRIBE_CLIENT_QUOTAS ALTER_CLIENT_QUOTAS"),
    "validation_is_charged": _signs("CREATE_TOPICS CREATE_PARTITIONS", path=r"error_code$"),
    "kraft_configs": _signs(
        "CREATE_TOPICS ALTER_CONFIGS INCREMENTAL_ALTER_CONFIGS", path=r"error_(code|message)$|\.configs"
    ),
    "sets_as_scala": _signs("ALTER_CONFIGS INCREMENTAL_ALTER_CONFIGS", path=r"error_message$"),
    "logger_operations": _signs("INCREMENTAL_ALTER_CONFIGS", path=r"error_(code|message)$"),
    "logger_configs": _signs("DESCRIBE_CONFIGS ALTER_CONFIGS INCREMENTAL_ALTER_CONFIGS"),
    "listener_threads": _signs("ALTER_CONFIGS INCREMENTAL_ALTER_CONFIGS"),
    "client_metrics_configs": _signs("DESCRIBE_CONFIGS ALTER_CONFIGS INCREMENTAL_ALTER_CONFIGS LIST_CONFIG_RESOURCES"),
    "downgrade_text": _signs("UPDATE_FEATURES", path=r"error_message$"),
    "group_synonyms": _signs("DESCRIBE_CONFIGS"),
    "group_ranges": _signs("INCREMENTAL_ALTER_CONFIGS ALTER_CONFIGS", path=r"error_(code|message)$"),
    "reports_unregistered": _signs("UNREGISTER_BROKER", path=r"error_message$"),
    "unknown_version_lists_range": _signs("API_VERSIONS"),
}
_CONFIG = re.compile(r"\.configs\[([^\]]+)\]")
_API = re.compile(r"\.api_keys\[(\d+)\]")


class ExpectedDifferences:
    """The differences between the release profiles of two brokers."""

    def __init__(self, left: Profile, right: Profile) -> None:
        self.left = left
        self.right = right

    def __str__(self) -> str:
        return f"{self.left.name} and {self.right.name}"

    @cached_property
    def moved(self) -> list[str]:
        """The names of the behaviours that differ."""
        one, other = behaviour_of(self.left), behaviour_of(self.right)
        return [name for name in one if one[name] != other[name]]

    def why(self, api_key: int, version: int, difference: Difference) -> str | None:
        """Returns the certain reason of a difference, or None: versions, a config, or a behaviour with these values."""
        if api_key == ApiKey.API_VERSIONS:
            if api := _API.match(difference.path):
                return self._versions(int(api[1]), difference)
            if difference.right == UNSUPPORTED and self.unserved(api_key, version):
                return f"versions of {api_names()[api_key]}"
            if "features" in difference.path and self.left.name != self.right.name:
                return f"features of {self}"
        config = _CONFIG.search(difference.path) if api_key in (ApiKey.DESCRIBE_CONFIGS, ApiKey.CREATE_TOPICS) else None
        if config is not None and config[1] in self._configs:
            return f"config {config[1]}"
        return self.perhaps(api_key, version, difference, for_certain=True)

    def perhaps(self, api_key: int, version: int, difference: Difference, *, for_certain: bool = False) -> str | None:
        """Returns a behaviour that may be the reason of a difference without a better explanation, or None.

        With `for_certain` a behaviour with these values.
        """
        for name in self.moved:
            for sign in SIGNS.get(name, ()):
                if (sign.holds is not None) == for_certain and sign.shows(api_key, version, difference):
                    return name
        return None

    def unserved(self, api_key: int, version: int) -> bool:
        """Returns whether the left release serves a version and the right one does not."""
        return version not in self.right.served.get(api_key, ()) and version in self.left.served.get(api_key, ())

    def _versions(self, api_key: int, difference: Difference) -> str | None:
        """Returns "versions of ..." if both sides advertise the versions of their releases for an API, else None."""
        name = api_names().get(api_key, str(api_key))
        last = difference.path.rpartition(".")[2]
        for value, tables in ((difference.left, self._tables[0]), (difference.right, self._tables[1])):
            if not any(_advertises(value, last, table.get(api_key)) for table in tables):
                return None
        return f"versions of {name}"

    @cached_property
    def _tables(self) -> tuple[list[Mapping[int, Versions]], ...]:
        """For each release the versions that a broker may advertise: by Ottla's profile, and by Apache Kafka."""
        both = self.left, self.right
        return tuple([apis_of(one).advertised, *([] if one.is_own else [one.apis_of_kafka])] for one in both)

    @cached_property
    def _configs(self) -> frozenset[str]:
        """The configs that only one release has, or whose facts differ."""
        found: set[str] = set()
        for scope in ("broker", "topic"):
            one, other = facts(scope, self.left.name), facts(scope, self.right.name)
            found.update(name for name in {**one, **other} if one.get(name) != other.get(name))
        return frozenset(found)


def _advertises(value: Any, last: str, ends: Versions | None) -> bool:
    if value == ABSENT or ends is None:
        return value == ABSENT and ends is None
    if last == "min_version":
        return value == ends.first
    if last == "max_version":
        return value == ends.last
    return (value.min_version, value.max_version) == tuple(ends)


def guessed_release(versions: Mapping[int, Versions]) -> Profile | None:
    """Returns the newest release whose advertised versions, in Kafka or in Ottla's profile, are exactly these."""
    for name in reversed(PROFILE_NAMES):
        played = profile(name)
        if versions == apis_of(played).advertised or (not played.is_own and _same(versions, played.apis_of_kafka)):
            return played
    return None


def _same(versions: Mapping[int, Versions], table: Mapping[int, Versions]) -> bool:
    clients = {key: ends for key, ends in versions.items() if key in table}
    return (
        len(clients) == len(versions) and all(table[key] == ends for key, ends in clients.items()) and len(clients) > 10
    )
