"""An authorizer that allows nothing but what it is told to: for tests of what each API asks for."""

from __future__ import annotations

from ottla.protocol.acls import AclOperation, ResourceType


class OnlyAllowed:
    """Allows these operations, on the cluster. `asked` are all that were asked for."""

    def __init__(self, *operations: AclOperation) -> None:
        self.operations = operations
        self.asked: set[tuple[AclOperation, ResourceType]] = set()

    def allows(
        self, principal: str, host: str, operation: AclOperation, resource_type: ResourceType, name: str
    ) -> bool:
        self.asked.add((operation, resource_type))
        return operation in self.operations and resource_type is ResourceType.CLUSTER

    def allows_any(self, principal: str, host: str, operation: AclOperation, resource_type: ResourceType) -> bool:
        return False
