"""Codes of access control lists: resource types, pattern types, operations, permissions.

The numbers in requests and stored records, shared by the broker and the admin client (KIP-11, KIP-140, KIP-290). The
broker's `security` package evaluates them.
"""

from __future__ import annotations

from enum import IntEnum


class ResourceType(IntEnum):
    """The type of the resource that an access control entry applies to."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(IntEnum):
    """How the resource name of an entry is matched. ANY and MATCH occur only in filters."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class AclOperation(IntEnum):
    """The operation that an entry allows or denies."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class PermissionType(IntEnum):
    """Whether an entry allows or denies."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


_OPERATIONS = {
    ResourceType.TOPIC: "READ WRITE CREATE DELETE ALTER DESCRIBE DESCRIBE_CONFIGS ALTER_CONFIGS",
    ResourceType.GROUP: "READ DELETE DESCRIBE DESCRIBE_CONFIGS ALTER_CONFIGS",
    ResourceType.CLUSTER: "CREATE ALTER DESCRIBE CLUSTER_ACTION DESCRIBE_CONFIGS ALTER_CONFIGS IDEMPOTENT_WRITE",
    ResourceType.TRANSACTIONAL_ID: "WRITE DESCRIBE TWO_PHASE_COMMIT",
    ResourceType.DELEGATION_TOKEN: "DESCRIBE",
    ResourceType.USER: "CREATE_TOKENS DESCRIBE_TOKENS",
}
OPERATIONS = {kind: frozenset(AclOperation[name] for name in names.split()) for kind, names in _OPERATIONS.items()}
"""The operations on the resources of a type, besides ALL."""
CODES: dict[str, type[IntEnum]] = {
    "resource_type": ResourceType,
    "pattern_type": PatternType,
    "operation": AclOperation,
    "permission": PermissionType,
}
"""The parts of an entry that are codes, by their names; the others are texts."""
CLUSTER_NAME = "kafka-cluster"
"""The name of the only resource of type CLUSTER."""


def words(of: type[IntEnum], *, in_filter: bool = False) -> list[str]:
    """Returns the names of the values that an entry may have; with `in_filter` also ANY and MATCH."""
    left_out = ("UNKNOWN",) if in_filter else ("UNKNOWN", "ANY", "MATCH")
    return [one.name for one in of if one.name not in left_out]
