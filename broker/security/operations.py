"""Authorized operations on a topic, a group or the cluster, as reported to clients (KIP-430).

Owns the table of operations and the bit field, whose bit n is the operation with code n.
"""

from __future__ import annotations

from collections.abc import Iterable

from ...protocol.acls import AclOperation as Op
from ...protocol.acls import ResourceType
from ..releases.profiles import Behaviour

_OPERATIONS: dict[ResourceType, tuple[Op, ...]] = {
    ResourceType.TOPIC: (
        Op.READ,
        Op.WRITE,
        Op.CREATE,
        Op.DELETE,
        Op.ALTER,
        Op.DESCRIBE,
        Op.DESCRIBE_CONFIGS,
        Op.ALTER_CONFIGS,
    ),
    ResourceType.GROUP: (Op.READ, Op.DELETE, Op.DESCRIBE, Op.DESCRIBE_CONFIGS, Op.ALTER_CONFIGS),
    ResourceType.CLUSTER: (
        Op.CREATE,
        Op.ALTER,
        Op.DESCRIBE,
        Op.CLUSTER_ACTION,
        Op.DESCRIBE_CONFIGS,
        Op.ALTER_CONFIGS,
        Op.IDEMPOTENT_WRITE,
    ),
}
_OF_GROUP_CONFIGS = (Op.DESCRIBE_CONFIGS, Op.ALTER_CONFIGS)


def operations_of(resource_type: ResourceType, behaviour: Behaviour) -> tuple[Op, ...]:
    """Returns all operations on topics, groups or the cluster in a release."""
    found = _OPERATIONS[resource_type]
    if resource_type is ResourceType.GROUP and not behaviour.group_configs:
        return tuple(operation for operation in found if operation not in _OF_GROUP_CONFIGS)
    return found


def bit_field(operations: Iterable[Op]) -> int:
    """Returns the operations as the bit field of responses."""
    return sum(1 << operation for operation in operations)
