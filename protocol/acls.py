"""The codes of access control lists: kinds of resources and patterns, operations, permissions.

Owns the numbers that requests and stored records carry, shared by the broker and the client's admin (KIP-11, KIP-140,
KIP-290). What they decide is the broker's `security` package's.
"""

from __future__ import annotations

from enum import IntEnum


class ResourceType(IntEnum):
    """What an access control list is about."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(IntEnum):
    """How the name of a resource is matched; ANY and MATCH in filters only."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class AclOperation(IntEnum):
    """What somebody does with a resource."""

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


CLUSTER_NAME = "kafka-cluster"
"""The name of the one resource of type CLUSTER."""


def words(of: type[IntEnum], *, in_filter: bool = False) -> list[str]:
    """Kafka's words for a part of an entry; a filter may have ANY and MATCH as well."""
    left_out = ("UNKNOWN",) if in_filter else ("UNKNOWN", "ANY", "MATCH")
    return [one.name for one in of if one.name not in left_out]
