"""An authorizer that allows only given operations: for tests of the permissions of each API."""

from __future__ import annotations

from ottla.protocol.acls import AclOperation, ResourceType


class OnlyAllowed:
    """Allows these operations on the cluster. `checked` has all that were checked."""

    def __init__(self, *operations: AclOperation) -> None:
        self.operations = operations
        self.checked: set[tuple[AclOperation, ResourceType]] = set()

    def allows(
        self, principal: str, host: str, operation: AclOperation, resource_type: ResourceType, name: str
    ) -> bool:
        self.checked.add((operation, resource_type))
        return operation in self.operations and resource_type is ResourceType.CLUSTER

    def allows_any(self, principal: str, host: str, operation: AclOperation, resource_type: ResourceType) -> bool:
        return False
