"""Which operations clients are told they may do with a topic, a group or the cluster (KIP-430).

Owns the table and the bit field of authorized operations, whose bit n is the operation of code n.
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
    """All that there are for topics, groups or the cluster, as a release knows them."""
    found = _OPERATIONS[resource_type]
    if resource_type is ResourceType.GROUP and not behaviour.group_configs:
        return tuple(operation for operation in found if operation not in _OF_GROUP_CONFIGS)
    return found


def bit_field(operations: Iterable[Op]) -> int:
    """The operations as answers tell them."""
    return sum(1 << operation for operation in operations)
