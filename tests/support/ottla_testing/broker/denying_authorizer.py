"""An authorizer that refuses one right."""

from __future__ import annotations

from collections.abc import Collection

from ottla.protocol.acls import AclOperation, ResourceType
from ottla_testing.broker.authorization_cases import Right


class Denying:
    """Allows all but some permissions; "any resource of a type" is checked with the name ""."""

    def __init__(self, denied: Collection[Right] = ()) -> None:
        self.denied = set(denied)
        self.checked: set[Right] = set()

    def allows(
        self, principal: str, host: str, operation: AclOperation, resource_type: ResourceType, name: str
    ) -> bool:
        assert (principal, host) == ("User:ANONYMOUS", "127.0.0.1")
        self.checked.add((operation, resource_type, name))
        return (operation, resource_type, name) not in self.denied

    def allows_any(self, principal: str, host: str, operation: AclOperation, resource_type: ResourceType) -> bool:
        return self.allows(principal, host, operation, resource_type, "")
