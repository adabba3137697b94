"""Which operations a resource of a type has: what access control lists may name, and what clients are told they may do.

Owns the table and the bit field of authorized operations (KIP-430), whose bit n is the operation of code n.
"""

from __future__ import annotations

from collections.abc import Iterable

from ...protocol.acls import AclOperation as Op
from ...protocol.acls import ResourceType
from ..releases import Behaviour

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
    ResourceType.TRANSACTIONAL_ID: (Op.WRITE, Op.DESCRIBE, Op.TWO_PHASE_COMMIT),
    ResourceType.DELEGATION_TOKEN: (Op.DESCRIBE,),
    ResourceType.USER: (Op.CREATE_TOKENS, Op.DESCRIBE_TOKENS),
}
_OF_GROUP_CONFIGS = (Op.DESCRIBE_CONFIGS, Op.ALTER_CONFIGS)


def operations_of(resource_type: ResourceType, behaviour: Behaviour) -> tuple[Op, ...]:
    """Those of a type that a single resource can have, as a release knows them, by their codes."""
    found = _OPERATIONS[resource_type]
    if resource_type is ResourceType.GROUP and not behaviour.group_configs:
        return tuple(operation for operation in found if operation not in _OF_GROUP_CONFIGS)
    return found


def bit_field(operations: Iterable[Op]) -> int:
    """The operations as answers tell them."""
    return sum(1 << operation for operation in operations)
