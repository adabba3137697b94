"""The value of each behaviour of `releases/behaviour.py` by release, collected from the releases themselves."""

from __future__ import annotations

from typing import Any

# For each behaviour the releases of each value, every release once, oldest first; then Ottla's own profile.
BEFORE_1 = "0.8.2 0.9 0.10.0 0.10.1 0.10.2 0.11"
FROM_1 = "1.0.1 1.0 1.1 2.0.0 2.0 2.1 2.2 2.3 2.4 2.5 2.6 2.7 2.8"
FROM_3_TO_3_5 = "3.0 3.1 3.2 3.3 3.4 3.5"
FROM_3_6 = "3.6 3.7 3.8 3.9"
FROM_4 = "4.0.0 4.0 4.1 4.2 4.3 4.4"
COLUMNS: dict[str, list[tuple[str, Any]]] = {
    "unknown_producer": [
        (BEFORE_1, "out_of_order"),
        ("1.0.1 1.0 1.1 2.0.0 2.0 2.1 2.2 2.3 2.4", "unknown"),
        (f"2.5 2.6 2.7 2.8 {FROM_3_TO_3_5} {FROM_3_6} {FROM_4}", "accept"),
        ("ottla", "unknown"),
    ],
    "marker_only": [
        (f"{BEFORE_1} 1.0.1 1.0 1.1 2.0.0", "out_of_order"),
        ("2.0 2.1 2.2 2.3 2.4", "unknown"),
        (f"2.5 2.6 2.7 2.8 {FROM_3_TO_3_5} {FROM_3_6} {FROM_4}", "out_of_order"),
        ("ottla", "out_of_order"),
    ],
    "below_cache": [
        (BEFORE_1, "out_of_order"),
        ("1.0.1", "duplicate_sequence"),
        (f"1.0 1.1 2.0.0 2.0 2.1 2.2 2.3 2.4 2.5 2.6 2.7 2.8 {FROM_3_TO_3_5} {FROM_3_6} {FROM_4}", "out_of_order"),
        ("ottla", "duplicate_sequence"),
    ],
    "inside_cache": [
        (
            f"{BEFORE_1} 1.0.1 1.0 1.1 2.0.0 2.0 2.1 2.2 2.3 2.4 2.5 2.6 2.7 2.8 {FROM_3_TO_3_5} {FROM_3_6} {FROM_4}",
            "out_of_order",
        ),
        ("ottla", "out_of_order"),
    ],
    "cached_batches": [
        (BEFORE_1, 1),
        (f"1.0.1 1.0 1.1 2.0.0 2.0 2.1 2.2 2.3 2.4 2.5 2.6 2.7 2.8 {FROM_3_TO_3_5} {FROM_3_6} {FROM_4}", 5),
        ("ottla", 5),
    ],
    "drop_below_log_start": [
        (f"{BEFORE_1} 1.0.1 1.0 1.1 2.0.0 2.0 2.1 2.2 2.3", True),
        (f"2.4 2.5 2.6 2.7 2.8 {FROM_3_TO_3_5} {FROM_3_6} {FROM_4}", False),
        ("ottla", False),
    ],
    "unknown_below_log_start": [
        (f"{BEFORE_1} {FROM_1} {FROM_3_TO_3_5} {FROM_3_6} {FROM_4}", False),
        ("ottla", True),
    ],
    "invalid_record_code": [
        (f"{BEFORE_1} 1.0.1 1.0 1.1 2.0.0 2.0 2.1 2.2 2.3", 2),
        (f"2.4 2.5 2.6 2.7 2.8 {FROM_3_TO_3_5} {FROM_3_6} {FROM_4}", 87),
        ("ottla", 87),
    ],
    "wrong_batches": [
        (f"{BEFORE_1} 1.0.1 1.0 1.1 2.0.0 2.0", "close"),
        ("2.1 2.2 2.3", "corrupt"),
        (f"2.4 2.5 2.6 2.7 2.8 {FROM_3_TO_3_5} {FROM_3_6} {FROM_4}", "invalid"),
        ("ottla", "invalid"),
    ],
    "unreadable_batches": [
        (f"{BEFORE_1} 1.0.1 1.0 1.1 2.0.0 2.0", "partition"),
        ("2.1 2.2 2.3 2.4 2.5 2.6 2.7", "close"),
        (f"2.8 {FROM_3_TO_3_5} 3.6 3.7", "first"),
        (f"3.8 3.9 {FROM_4}", "any"),
        ("ottla", "first"),
    ],
    "record_errors": [
        (f"{BEFORE_1} 1.0.1 1.0 1.1 2.0.0 2.0 2.1 2.2 2.3", "none"),
        ("2.4", "first"),
        (f"2.5 2.6 2.7 2.8 {FROM_3_TO_3_5} {FROM_3_6} {FROM_4}", "all"),
        ("ottla", "all"),
    ],
    "counted_record_errors": [
        (f"{BEFORE_1} {FROM_1} 3.0 3.1", False),
        (f"3.2 3.3 3.4 3.5 {FROM_3_6} {FROM_4}", True),
        ("ottla", True),
    ],
    "refuse_unnumbered": [
        (f"{BEFORE_1} 1.0.1 1.0 1.1 2.0.0 2.0 2.1 2.2 2.3", False),
        ("2.4", True),
        (f"2.5 2.6 2.7 2.8 {FROM_3_TO_3_5} {FROM_3_6} {FROM_4}", False),
        ("ottla", False),
    ],
    "unnumbered_fail": [
        (f"{BEFORE_1} 1.0.1 1.0 1.1 2.0.0 2.0 2.1 2.2 2.3 2.4 2.5", False),
        (f"2.6 2.7 2.8 {FROM_3_TO_3_5} {FROM_3_6} {FROM_4}", True),
        ("ottla", True),
    ],
    "one_magic": [
        (f"{BEFORE_1} 1.0.1 1.0 1.1 2.0.0 2.0 2.1 2.2 2.3", False),
        (f"2.4 2.5 2.6 2.7 2.8 {FROM_3_TO_3_5} {FROM_3_6} {FROM_4}", True),
        ("ottla", True),
    ],
    "append_time_bit_allowed": [
        (f"{BEFORE_1} 1.0.1 1.0 1.1 2.0.0 2.0 2.1 2.2 2.3 2.4 2.5 2.6 2.7 2.8 {FROM_3_TO_3_5}", False),
        (f"{FROM_3_6} {FROM_4}", True),
        ("ottla", True),
    ],
    "timestamp_range": [
        (f"{BEFORE_1} 1.0.1 1.0 1.1 2.0.0 2.0 2.1 2.2 2.3 2.4 2.5 2.6 2.7 2.8 {FROM_3_TO_3_5}", "difference"),
        (FROM_3_6, "both"),
        (FROM_4, "before_after"),
        ("ottla", "both"),
    ],
    "old_formats": [
        (f"{BEFORE_1} 1.0.1 1.0 1.1 2.0.0 2.0 2.1 2.2 2.3 2.4 2.5 2.6 2.7 2.8 {FROM_3_TO_3_5} {FROM_3_6}", True),
        (FROM_4, False),
        ("ottla", True),
    ],
    "newest_magic": [
        ("0.8.2 0.9", 0),
        ("0.10.0 0.10.1 0.10.2", 1),
        (f"0.11 1.0.1 1.0 1.1 2.0.0 2.0 2.1 2.2 2.3 2.4 2.5 2.6 2.7 2.8 {FROM_3_TO_3_5} {FROM_3_6} {FROM_4}", 2),
        ("ottla", 2),
    ],
    "down_conversion": [
        (f"{BEFORE_1} 1.0.1 1.0 1.1 2.0.0 2.0 2.1 2.2 2.3 2.4 2.5 2.6 2.7 2.8", "scan"),
        (f"{FROM_3_TO_3_5} {FROM_3_6}", "always"),
        (FROM_4, "none"),
        ("ottla", "always"),
    ],
    "nothing_left": [
        (f"{BEFORE_1} 1.0.1 1.0 1.1", "original"),
        (f"2.0.0 2.0 2.1 2.2 2.3 2.4 2.5 2.6 2.7 2.8 {FROM_3_TO_3_5} {FROM_3_6} {FROM_4}", "overflow"),
        ("ottla", "overflow"),
    ],
    "sends_cut": [
        (f"{BEFORE_1} 1.0.1 1.0 1.1 2.0.0 2.0 2.1 2.2 2.3 2.4 2.5 2.6 2.7 2.8", True),
        (f"{FROM_3_TO_3_5} {FROM_3_6} {FROM_4}", False),
        ("ottla", True),
    ],
    "zstd_topic_needs_fetch_10": [
        (f"{BEFORE_1} 1.0.1 1.0 1.1 2.0.0 2.0", False),
        (f"2.1 2.2 2.3 2.4 2.5 2.6 2.7 2.8 {FROM_3_TO_3_5} {FROM_3_6}", True),
        (FROM_4, False),
        ("ottla", False),
    ],
    "v2_from_ibp_3": [
        (f"{BEFORE_1} 1.0.1 1.0 1.1 2.0.0 2.0 2.1 2.2 2.3 2.4 2.5 2.6 2.7 2.8", False),
        (f"{FROM_3_TO_3_5} {FROM_3_6} {FROM_4}", True),
        ("ottla", True),
    ],
    "cleaner_keeps_old_formats": [
        (f"{BEFORE_1} 1.0.1 1.0 1.1 2.0.0 2.0 2.1 2.2 2.3 2.4 2.5 2.6 2.7 2.8 {FROM_3_TO_3_5} {FROM_3_6}", True),
        (FROM_4, False),
        ("ottla", False),
    ],
    "delete_horizon": [
        (f"{BEFORE_1} 1.0.1 1.0 1.1 2.0.0 2.0 2.1 2.2 2.3 2.4 2.5 2.6 2.7 2.8 3.0", False),
        (f"{FROM_3_TO_3_5.removeprefix('3.0 ')} {FROM_3_6} {FROM_4}", True),
        ("ottla", True),
    ],
    "cleaner_keeps_last_batch": [
        (f"{BEFORE_1} 1.0.1 1.0 1.1 2.0.0 2.0 2.1 2.2 2.3 2.4 2.5 2.6 2.7 2.8 {FROM_3_TO_3_5} {FROM_3_6}", "none"),
        (FROM_4.removesuffix(" 4.4"), "cleaned"),
        ("4.4", "high_watermark"),
        ("ottla", "high_watermark"),
    ],
    "eligible_leaders": [
        (
            f"{BEFORE_1} 1.0.1 1.0 1.1 2.0.0 2.0 2.1 2.2 2.3 2.4 2.5 2.6 2.7 2.8 {FROM_3_TO_3_5} {FROM_3_6} 4.0.0 4.0",
            False,
        ),
        (FROM_4.removeprefix("4.0.0 4.0 "), True),
        ("ottla", False),
    ],
    "transaction_version": [
        (
            f"{BEFORE_1} 1.0.1 1.0 1.1 2.0.0 2.0 2.1 2.2 2.3 2.4 2.5 2.6 2.7 2.8 {FROM_3_TO_3_5} {FROM_3_6}",
            0,
        ),
        (FROM_4, 2),
        ("ottla", 2),
    ],
    "shrinks_deliveries": [
        (
            f"{BEFORE_1} 1.0.1 1.0 1.1 2.0.0 2.0 2.1 2.2 2.3 2.4 2.5 2.6 2.7 2.8 {FROM_3_TO_3_5} {FROM_3_6} 4.0.0 4.0 "
            "4.1",
            False,
        ),
        (FROM_4.removeprefix("4.0.0 4.0 4.1 "), True),
        ("ottla", True),
    ],
    "verifies_transactions": [
        (f"{BEFORE_1} 1.0.1 1.0 1.1 2.0.0 2.0 2.1 2.2 2.3 2.4 2.5 2.6 2.7 2.8 {FROM_3_TO_3_5}", False),
        (f"{FROM_3_6} {FROM_4}", True),
        ("ottla", True),
    ],
    "own_epoch_begins_at_0": [
        (
            f"{BEFORE_1} 1.0.1 1.0 1.1 2.0.0 2.0 2.1 2.2 2.3 2.4 2.5 2.6 2.7 2.8 {FROM_3_TO_3_5} {FROM_3_6} 4.0.0 4.0",
            False,
        ),
        (FROM_4.removeprefix("4.0.0 4.0 "), True),
        ("ottla", True),
    ],
    "verifies_offsets": [
        (
            f"{BEFORE_1} 1.0.1 1.0 1.1 2.0.0 2.0 2.1 2.2 2.3 2.4 2.5 2.6 2.7 2.8 {FROM_3_TO_3_5} 3.6",
            False,
        ),
        (f"{FROM_3_6.removeprefix('3.6 ')} {FROM_4}", True),
        ("ottla", True),
    ],
    "absent_group_code": [
        (
            f"{BEFORE_1} 1.0.1 1.0 1.1 2.0.0 2.0 2.1 2.2 2.3 2.4 2.5 2.6 2.7 2.8 {FROM_3_TO_3_5} {FROM_3_6}",
            25,
        ),
        (FROM_4, 22),
        ("ottla", 22),
    ],
    "hides_topics": [
        ("0.8.2 0.9 0.10.0", False),
        ("0.10.1 0.10.2 0.11", True),
        (f"{FROM_1} {FROM_3_TO_3_5} {FROM_3_6} {FROM_4}", False),
        ("ottla", False),
    ],
    "offset_fetch_reads_group": [
        (BEFORE_1, True),
        (f"{FROM_1} {FROM_3_TO_3_5} {FROM_3_6} {FROM_4}", False),
        ("ottla", False),
    ],
    "creates_by_topic": [
        (f"{BEFORE_1} 1.0.1 1.0 1.1", False),
        (f"2.0.0 2.0 2.1 2.2 2.3 2.4 2.5 2.6 2.7 2.8 {FROM_3_TO_3_5} {FROM_3_6} {FROM_4}", True),
        ("ottla", True),
    ],
    "describe_suffices": [
        (f"{BEFORE_1} 1.0.1 1.0 1.1 2.0.0 2.0", False),
        (f"2.1 2.2 2.3 2.4 2.5 2.6 2.7 2.8 {FROM_3_TO_3_5} {FROM_3_6} {FROM_4}", True),
        ("ottla", True),
    ],
    "idempotence_of_cluster": [
        (f"{BEFORE_1} 1.0.1 1.0 1.1 2.0.0 2.0 2.1 2.2 2.3 2.4 2.5 2.6 2.7", True),
        (f"2.8 {FROM_3_TO_3_5} {FROM_3_6} {FROM_4}", False),
        ("ottla", False),
    ],
    "kraft_configs": [
        (f"{BEFORE_1} {FROM_1} 3.0 3.1 3.2", False),
        (f"3.3 3.4 3.5 {FROM_3_6} {FROM_4}", True),
        ("ottla", True),
    ],
    "sets_as_scala": [
        (f"{BEFORE_1} {FROM_1} {FROM_3_TO_3_5} {FROM_3_6} 4.0.0 4.0 4.1", True),
        ("4.2 4.3 4.4", False),
        ("ottla", False),
    ],
    "logger_configs": [
        (f"{BEFORE_1} 1.0.1 1.0 1.1 2.0.0 2.0 2.1 2.2 2.3", False),
        (f"2.4 2.5 2.6 2.7 2.8 {FROM_3_TO_3_5} {FROM_3_6} {FROM_4}", True),
        ("ottla", True),
    ],
    "logger_operations": [
        (f"{BEFORE_1} {FROM_1} {FROM_3_TO_3_5} {FROM_3_6} 4.0.0 4.0 4.1 4.2 4.3", False),
        ("4.4", True),
        ("ottla", True),
    ],
    "listener_threads": [
        (f"{BEFORE_1} {FROM_1} 3.0 3.1", False),
        (f"3.2 3.3 3.4 3.5 {FROM_3_6} {FROM_4}", True),
        ("ottla", True),
    ],
    "client_metrics_configs": [
        (f"{BEFORE_1} {FROM_1} {FROM_3_TO_3_5} 3.6", "none"),
        (f"{FROM_3_6.removeprefix('3.6 ')} 4.0.0 4.0", "set"),
        (FROM_4.removeprefix("4.0.0 4.0 "), "all"),
        ("ottla", "all"),
    ],
    "group_synonyms": [
        (f"{BEFORE_1} {FROM_1} {FROM_3_TO_3_5} {FROM_3_6} 4.0.0 4.0 4.1", False),
        ("4.2 4.3 4.4", True),
        ("ottla", True),
    ],
    "group_configs": [
        (f"{BEFORE_1} {FROM_1} {FROM_3_TO_3_5} {FROM_3_6}", False),
        (FROM_4, True),
        ("ottla", True),
    ],
    "refusal_texts": [
        (f"{BEFORE_1} 1.0.1 1.0 1.1 2.0.0 2.0 2.1 2.2", "none"),
        ("2.3 2.4 2.5 2.6 2.7", "create"),
        ("2.8 3.0 3.1 3.2", "describe"),
        (f"3.3 3.4 3.5 {FROM_3_6} {FROM_4}", "alter"),
        ("ottla", "alter"),
    ],
    "log_dirs_of_requested_topics": [
        (f"{BEFORE_1} {FROM_1} {FROM_3_TO_3_5} 3.6", False),
        (f"3.7 3.8 3.9 {FROM_4}", True),
        ("ottla", True),
    ],
    "controls_as_kraft": [
        (f"{BEFORE_1} 1.0.1 1.0 1.1 2.0.0 2.0 2.1 2.2 2.3 2.4 2.5 2.6 2.7 2.8 3.0 3.1 3.2", False),
        (f"3.3 3.4 3.5 {FROM_3_6} {FROM_4}", True),
        ("ottla", True),
    ],
    "reassignment_awaits": [
        (f"{BEFORE_1} {FROM_1} 3.0 3.1 3.2", "target"),
        ("3.3 3.4 3.5 3.6 3.7", "adding"),
        ("3.8 3.9 4.0.0 4.0 4.1 4.2", "target"),
        ("4.3 4.4", "adding_if_not_fewer"),
        ("ottla", "adding_if_not_fewer"),
    ],
    "topics_as_kraft": [
        (f"{BEFORE_1} {FROM_1} 3.0 3.1 3.2", False),
        (f"3.3 3.4 3.5 {FROM_3_6} {FROM_4}", True),
        ("ottla", True),
    ],
    "first_offsets": [
        (f"{BEFORE_1} {FROM_1} 3.0 3.1 3.2", True),
        (f"3.3 3.4 3.5 {FROM_3_6} {FROM_4}", False),
        ("ottla", True),
    ],
    "special_timestamps": [
        (f"{BEFORE_1} {FROM_1}", False),
        (f"3.0 3.1 3.2 3.3 3.4 3.5 {FROM_3_6} {FROM_4}", True),
        ("ottla", True),
    ],
    "cordoned_log_dirs": [
        (f"{BEFORE_1} {FROM_1} 3.0 3.1 3.2 3.3 3.4 3.5 {FROM_3_6} 4.0.0 4.0 4.1 4.2", False),
        ("4.3 4.4", True),
        ("ottla", True),
    ],
    "deletes_without_policy": [
        (f"{BEFORE_1} {FROM_1} 3.0 3.1 3.2 3.3 3.4 3.5 {FROM_3_6} 4.0.0 4.0 4.1", False),
        ("4.2 4.3 4.4", True),
        ("ottla", True),
    ],
    "in_sync_at_most_replicas": [
        (f"{BEFORE_1} {FROM_1} 3.0 3.1 3.2 3.3 3.4 3.5 3.6", False),
        (f"3.7 3.8 3.9 {FROM_4}", True),
        ("ottla", True),
    ],
    # Observed with 2.3.1, 2.4.1, 2.5.1, 2.6.3, 2.7.2, 2.8.2, 3.9.1 and 4.3.1.
    "coordinator_awaits_topic": [
        (f"{BEFORE_1} {FROM_1} {FROM_3_TO_3_5} {FROM_3_6} {FROM_4}", True),
        ("ottla", False),
    ],
    # 3.9.1 and 4.3.1 were observed.
    "created_topic": [
        (f"{BEFORE_1} 1.0.1 1.0 1.1 2.0.0 2.0 2.1 2.2 2.3 2.4 2.5 2.6 2.7 2.8 3.0 3.1 3.2", "LEADER_NOT_AVAILABLE"),
        (f"3.3 3.4 3.5 {FROM_3_6} {FROM_4}", "UNKNOWN_TOPIC_OR_PARTITION"),
        ("ottla", "ready"),
    ],
    "removes_unsynced": [
        (f"{BEFORE_1} 1.0.1 1.0 1.1 2.0.0 2.0 2.1 2.2 2.3 2.4 2.5 2.6 2.7", False),
        (f"2.8 {FROM_3_TO_3_5} {FROM_3_6} {FROM_4}", True),
        ("ottla", True),
    ],
    "member_checks": [
        (f"{BEFORE_1} 1.0.1 1.0 1.1 2.0.0 2.0 2.1 2.2 2.3", "rebalance_first"),
        ("2.4 2.5 2.6 2.7 2.8", "given"),
        ("3.0 3.1 3.2", "all"),
        (f"3.3 3.4 3.5 {FROM_3_6} {FROM_4}", "unless_empty"),
        ("ottla", "unless_empty"),
    ],
    "heartbeats_before_sync": [
        (f"{BEFORE_1} 1.0.1 1.0 1.1 2.0.0 2.0 2.1 2.2 2.3 2.4 2.5", False),
        (f"2.6 2.7 2.8 {FROM_3_TO_3_5} {FROM_3_6} {FROM_4}", True),
        ("ottla", True),
    ],
    "first_session_at_join": [
        (f"{BEFORE_1} 1.0.1 1.0 1.1 2.0.0 2.0 2.1", True),
        ("2.2 2.3 2.4", False),
        (f"2.5 2.6 2.7 2.8 {FROM_3_TO_3_5} {FROM_3_6} {FROM_4}", True),
        ("ottla", True),
    ],
    "described_text": [
        (f"{BEFORE_1} 1.0.1 1.0 1.1 2.0.0 2.0 2.1 2.2 2.3 2.4 2.5 2.6", False),
        (f"2.7 2.8 {FROM_3_TO_3_5} {FROM_3_6} {FROM_4}", True),
        ("ottla", True),
    ],
    "acl_text": [
        (f"{BEFORE_1} 1.0.1 1.0 1.1 2.0.0 2.0 2.1 2.2 2.3 2.4", False),
        (f"2.5 2.6 2.7 2.8 {FROM_3_TO_3_5} {FROM_3_6} {FROM_4}", True),
        ("ottla", True),
    ],
    "sasl_text": [
        (f"{BEFORE_1} 1.0.1 1.0 1.1 2.0.0 2.0 2.1 2.2", False),
        (f"2.3 2.4 2.5 2.6 2.7 2.8 {FROM_3_TO_3_5} {FROM_3_6} {FROM_4}", True),
        ("ottla", True),
    ],
    "first_token": [
        ("0.8.2", False),
        (f"0.9 0.10.0 0.10.1 0.10.2 0.11 {FROM_1} {FROM_3_TO_3_5} {FROM_3_6}", True),
        (FROM_4, False),
        ("ottla", True),
    ],
    "old_group_coordinator": [
        (f"{BEFORE_1} {FROM_1} 3.0 3.1 3.2 3.3 3.4 3.5 {FROM_3_6}", True),
        (f"{FROM_4}", False),
        ("ottla", False),
    ],
    "consumer_groups": [
        (f"{BEFORE_1} {FROM_1} {FROM_3_TO_3_5} 3.6", "none"),
        ("3.7 3.8 3.9", "config"),
        (FROM_4, "feature"),
        ("ottla", "feature"),
    ],
    "hashes_topics": [
        (f"{BEFORE_1} {FROM_1} {FROM_3_TO_3_5} {FROM_3_6} 4.0.0 4.0", False),
        ("4.1 4.2 4.3 4.4", True),
        ("ottla", True),
    ],
    "rejoins_at_zero": [
        (f"{BEFORE_1} {FROM_1} {FROM_3_TO_3_5} {FROM_3_6} 4.0.0 4.0 4.1", False),
        ("4.2 4.3 4.4", True),
        ("ottla", True),
    ],
    "spaces_assignments": [
        (f"{BEFORE_1} {FROM_1} {FROM_3_TO_3_5} {FROM_3_6} 4.0.0 4.0 4.1 4.2", False),
        ("4.3 4.4", True),
        ("ottla", True),
    ],
    "static_streams_members": [
        (f"{BEFORE_1} {FROM_1} {FROM_3_TO_3_5} {FROM_3_6} 4.0.0 4.0 4.1 4.2 4.3", False),
        ("4.4", True),
        ("ottla", True),
    ],
    "commits_by_assignment": [
        (f"{BEFORE_1} {FROM_1} {FROM_3_TO_3_5} {FROM_3_6} 4.0.0 4.0 4.1 4.2", False),
        ("4.3 4.4", True),
        ("ottla", True),
    ],
    "caps_group_configs": [
        (f"{BEFORE_1} {FROM_1} {FROM_3_TO_3_5} {FROM_3_6} 4.0.0 4.0 4.1 4.2", False),
        ("4.3 4.4", True),
        ("ottla", True),
    ],
    "group_states_in_any_case": [
        (f"{BEFORE_1} {FROM_1} 3.0 3.1 3.2 3.3 3.4 3.5 3.6 3.7", False),
        (f"3.8 3.9 {FROM_4}", True),
        ("ottla", True),
    ],
    "producers_in_words": [
        (f"{BEFORE_1} {FROM_1}", False),
        (f"3.0 3.1 3.2 3.3 3.4 3.5 {FROM_3_6} {FROM_4}", True),
        ("ottla", True),
    ],
    "scram_once_a_user": [
        (f"{BEFORE_1} {FROM_1} 3.0 3.1 3.2", False),
        (f"3.3 3.4 3.5 {FROM_3_6} {FROM_4}", True),
        ("ottla", True),
    ],
    "credentials_end_sessions": [
        (f"{BEFORE_1} {FROM_1} 3.0 3.1 3.2", False),
        (f"3.3 3.4 3.5 {FROM_3_6} {FROM_4}", True),
        ("ottla", True),
    ],
    "token_rules": [
        (f"{BEFORE_1} {FROM_1} 3.0 3.1 3.2", "zookeeper"),
        ("3.3 3.4 3.5 3.6", "expired_first"),
        (f"3.7 3.8 3.9 {FROM_4}", "removable"),
        ("ottla", "removable"),
    ],
    "feature_results": [
        (f"{BEFORE_1} {FROM_1} 3.0 3.1 3.2", "zookeeper"),
        (f"3.3 3.4 3.5 {FROM_3_6}", "each"),
        (FROM_4, "whole"),
        ("ottla", "whole"),
    ],
    "downgrade_text": [
        (f"{BEFORE_1} {FROM_1} {FROM_3_TO_3_5} 3.6", "retry"),
        ("3.7 3.8 3.9 4.0.0 4.0 4.1", "plain"),
        ("4.2 4.3 4.4", "levels"),
        ("ottla", "levels"),
    ],
    "cidr_hosts": [
        (f"{BEFORE_1} {FROM_1} {FROM_3_TO_3_5} {FROM_3_6} {FROM_4.removesuffix(' 4.4')}", False),
        ("4.4", True),
        ("ottla", True),
    ],
    "limits_added_partitions": [
        (f"{BEFORE_1} {FROM_1} {FROM_3_TO_3_5} {FROM_3_6} {FROM_4.removesuffix(' 4.4')}", False),
        ("4.4", True),
        ("ottla", True),
    ],
    "group_ranges": [
        (f"{BEFORE_1} {FROM_1} {FROM_3_TO_3_5} {FROM_3_6} {FROM_4.removesuffix(' 4.4')}", False),
        ("4.4", True),
        ("ottla", True),
    ],
    "reports_unregistered": [
        (f"{BEFORE_1} {FROM_1} {FROM_3_TO_3_5} {FROM_3_6} 4.0.0 4.0", False),
        (FROM_4.removeprefix("4.0.0 4.0 "), True),
        ("ottla", True),
    ],
    "mutes_throttled": [
        (f"{BEFORE_1} 1.0.1 1.0 1.1", False),
        (f"2.0.0 2.0 2.1 2.2 2.3 2.4 2.5 2.6 2.7 2.8 {FROM_3_TO_3_5} {FROM_3_6} {FROM_4}", True),
        ("ottla", True),
    ],
    "quota_checks": [
        (f"{BEFORE_1} {FROM_1} 3.0 3.1 3.2", "zookeeper"),
        (f"3.3 3.4 3.5 {FROM_3_6} {FROM_4.removesuffix(' 4.4')}", "kraft"),
        ("4.4", "finite"),
        ("ottla", "finite"),
    ],
    "validation_is_charged": [
        (f"{BEFORE_1} {FROM_1} 3.0 3.1 3.2", False),
        (f"3.3 3.4 3.5 {FROM_3_6} {FROM_4}", True),
        ("ottla", True),
    ],
    "newest_acl_operation": [
        (f"{BEFORE_1} {FROM_1} 3.0 3.1 3.2", 12),
        (f"3.3 3.4 3.5 {FROM_3_6} 4.0.0 4.0", 14),
        ("4.1 4.2 4.3 4.4", 15),
        ("ottla", 15),
    ],
    "acls_as_kraft": [
        (f"{BEFORE_1} {FROM_1} 3.0 3.1 3.2", False),
        (f"3.3 3.4 3.5 {FROM_3_6} {FROM_4}", True),
        ("ottla", True),
    ],
    "unknown_version_lists_range": [
        (f"{BEFORE_1} 1.0.1 1.0 1.1 2.0.0 2.0 2.1 2.2 2.3", False),
        (f"2.4 2.5 2.6 2.7 2.8 {FROM_3_TO_3_5} {FROM_3_6} {FROM_4}", True),
        ("ottla", True),
    ],
}
