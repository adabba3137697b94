"""Kafka's authorizers: decisions by access control entries.

Implements the rules of StandardAuthorizer (KIP-801); SimpleAclAuthorizer and AclAuthorizer, which stored entries in
ZooKeeper, decide alike (KIP-11, KIP-290). A super user may do everything. Otherwise a matching DENY entry, however
general, overrides all ALLOW entries. A config decides for resources without any entry. ALLOW of an operation implies
ALLOW of DESCRIBE; DENY implies nothing.

One difference: StandardAuthorizer ignores entries for all resources (the literal `*`), even DENY, for resource names
that begin with `*`. Here they apply to every name, as in the two older authorizers.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING

from ...protocol.acls import AclOperation, PatternType, PermissionType, ResourceType
from .acls import WILDCARD, Acl, Acls, prefixes_of
from .hosts import is_in_block

if TYPE_CHECKING:
    from ..config.java_classes import AuthorizerSettings

EVERYBODY = "User:*"
DECISIONS_MAX = 10_000
"""Bound of the decision cache, since clients choose the names in it."""
NAME_MAX = 255
"""Decisions for longer names are not cached: no topic has one."""
_SOME_NAME = "hardcode"
"""The name that Kafka checks before searching for any allowed resource: finds super users and entries for all."""

# Operations whose ALLOW implies this one. Each operation also allows itself, and ALL allows all.
_IMPLIED_BY = {
    AclOperation.DESCRIBE: (AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER),
    AclOperation.DESCRIBE_CONFIGS: (AclOperation.ALTER_CONFIGS,),
}
_ALLOWING = {one: frozenset((one, AclOperation.ALL, *_IMPLIED_BY.get(one, ()))) for one in AclOperation}


class StandardAuthorizer:
    """Decides by the entries of `acls`, and caches decisions until they change."""

    def __init__(self, acls: Acls, settings: AuthorizerSettings, *, cidr_hosts: bool = True) -> None:
        """With `cidr_hosts` the host of an entry may be a block of addresses."""
        self._acls = acls
        self._cidr_hosts = cidr_hosts
        self._settings = settings
        self._decided: dict[Hashable, bool] = {}
        self._revision = acls.revision

    def allows(
        self, principal: str, host: str, operation: AclOperation, resource_type: ResourceType, name: str
    ) -> bool:
        """Returns whether the operation on the resource with this exact name is allowed; `host` is an
        address as text.
        """
        if principal in self._settings.super_users:
            return True
        question = principal, host, operation, resource_type, name
        if (known := self._known(question)) is None:
            known = self._decide(*question)
            if len(name) <= NAME_MAX:
                self._decided[question] = known
        return known

    def allows_any(self, principal: str, host: str, operation: AclOperation, resource_type: ResourceType) -> bool:
        """Returns whether the operation is allowed on any resource of the type."""
        if self.allows(principal, host, operation, resource_type, _SOME_NAME):
            return True
        question = principal, host, operation, resource_type
        if (known := self._known(question)) is None:
            known = self._decided[question] = self._decide_any(*question)
        return known

    def _known(self, question: Hashable) -> bool | None:
        if self._revision != self._acls.revision or len(self._decided) >= DECISIONS_MAX:
            self._decided.clear()
            self._revision = self._acls.revision
        return self._decided.get(question)

    def _decide(
        self, principal: str, host: str, operation: AclOperation, resource_type: ResourceType, name: str
    ) -> bool:
        is_any_found = is_allowed = False
        for acl in self._acls.of_resource(resource_type, name):
            is_any_found = True
            if not self._is_about(acl, principal, host):
                continue
            if acl.permission_type == PermissionType.ALLOW:
                is_allowed = is_allowed or acl.operation in _ALLOWING[operation]
            elif acl.operation in (operation, AclOperation.ALL):
                return False
        return is_allowed if is_any_found else self._settings.allow_everyone_if_no_acl_found

    def _decide_any(self, principal: str, host: str, operation: AclOperation, resource_type: ResourceType) -> bool:
        """Decides whether the operation is allowed on any resource of the type.

        A DENY entry for all resources wins. Otherwise one allowed pattern that is not inside a denied one is enough.
        Implied operations do not count.
        """
        allowed: set[tuple[int, str]] = set()
        denied: set[tuple[int, str]] = set()
        for acl in self._acls.of_type(resource_type):
            if self._is_about(acl, principal, host) and acl.operation in (operation, AclOperation.ALL):
                patterns = allowed if acl.permission_type == PermissionType.ALLOW else denied
                patterns.add((acl.pattern_type, acl.resource_name))
        everything = PatternType.LITERAL, WILDCARD
        if everything in denied:
            return False
        prefixes = sorted(name for kind, name in denied if kind == PatternType.PREFIXED)
        return everything in allowed or any(
            pattern not in denied and next(prefixes_of(pattern[1], prefixes), None) is None for pattern in allowed
        )

    def _is_about(self, acl: Acl, principal: str, host: str) -> bool:
        if acl.principal not in (principal, EVERYBODY):
            return False
        return acl.host in (host, WILDCARD) or (self._cidr_hosts and is_in_block(host, acl.host))
