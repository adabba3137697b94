"""The decision by access control entries, as Kafka's own authorizers make it.

Owns the rules of StandardAuthorizer (KIP-801); SimpleAclAuthorizer and AclAuthorizer, which kept their entries in
ZooKeeper, decide the same (KIP-11, KIP-290). A super user may do everything, and no entry is looked at. Else an entry
that denies wins over all that allow, however general it is; where nothing is said of a resource at all, a config
decides. To allow implies to allow to describe; to deny does not imply to deny that.

One thing is not as in StandardAuthorizer, which does not see entries for all resources (the literal `*`) when the name
of a resource begins with `*`, not even those that deny. Here they hold for every name, as in the older two.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING

from ...protocol.acls import AclOperation, PatternType, PermissionType, ResourceType
from .acls import WILDCARD, Acl, Acls, prefixes_of

if TYPE_CHECKING:
    from ..config.authorizer import AuthorizerSettings

EVERYBODY = "User:*"
DECISIONS_MAX = 10_000
"""Remembered at most; what is asked is named by clients."""
NAME_MAX = 255
"""Longer names are looked up each time: no topic has one."""
_SOME_NAME = "hardcode"
"""Of which Kafka asks first, when it asks of any resource: super users are known by that, and entries for all."""

# Which operations, when they are allowed, allow this one. Each also allows itself, and ALL all.
_IMPLIED_BY = {
    AclOperation.DESCRIBE: (AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER),
    AclOperation.DESCRIBE_CONFIGS: (AclOperation.ALTER_CONFIGS,),
}
_ALLOWING = {one: frozenset((one, AclOperation.ALL, *_IMPLIED_BY.get(one, ()))) for one in AclOperation}


class StandardAuthorizer:
    """Decides by the entries of a store; decisions hold until these change."""

    def __init__(self, acls: Acls, settings: AuthorizerSettings) -> None:
        self._acls = acls
        self._settings = settings
        self._decided: dict[Hashable, bool] = {}
        self._revision = acls.revision

    def allows(
        self, principal: str, host: str, operation: AclOperation, resource_type: ResourceType, name: str
    ) -> bool:
        """Whether the operation on the resource of that very name is allowed; `host` is an address as text."""
        if principal in self._settings.super_users:
            return True
        asked = principal, host, operation, resource_type, name
        if (known := self._known(asked)) is None:
            known = self._decide(*asked)
            if len(name) <= NAME_MAX:
                self._decided[asked] = known
        return known

    def allows_any(self, principal: str, host: str, operation: AclOperation, resource_type: ResourceType) -> bool:
        """Whether the operation is allowed on any resource of a type."""
        if self.allows(principal, host, operation, resource_type, _SOME_NAME):
            return True
        asked = principal, host, operation, resource_type
        if (known := self._known(asked)) is None:
            known = self._decided[asked] = self._decide_any(*asked)
        return known

    def _known(self, asked: Hashable) -> bool | None:
        if self._revision != self._acls.revision or len(self._decided) >= DECISIONS_MAX:
            self._decided.clear()
            self._revision = self._acls.revision
        return self._decided.get(asked)

    def _decide(
        self, principal: str, host: str, operation: AclOperation, resource_type: ResourceType, name: str
    ) -> bool:
        is_any_found = is_allowed = False
        for acl in self._acls.of_resource(resource_type, name):
            is_any_found = True
            if not _is_about(acl, principal, host):
                continue
            if acl.permission_type == PermissionType.ALLOW:
                is_allowed = is_allowed or acl.operation in _ALLOWING[operation]
            elif acl.operation in (operation, AclOperation.ALL):
                return False
        return is_allowed if is_any_found else self._settings.allow_everyone_if_no_acl_found

    def _decide_any(self, principal: str, host: str, operation: AclOperation, resource_type: ResourceType) -> bool:
        """An entry that denies everything wins; else one pattern that is allowed, and does not lie within one that is
        denied, is enough. Implied operations do not count."""
        allowed: set[tuple[int, str]] = set()
        denied: set[tuple[int, str]] = set()
        for acl in self._acls.of_type(resource_type):
            if _is_about(acl, principal, host) and acl.operation in (operation, AclOperation.ALL):
                patterns = allowed if acl.permission_type == PermissionType.ALLOW else denied
                patterns.add((acl.pattern_type, acl.resource_name))
        everything = PatternType.LITERAL, WILDCARD
        if everything in denied:
            return False
        prefixes = sorted(name for kind, name in denied if kind == PatternType.PREFIXED)
        return everything in allowed or any(
            pattern not in denied and next(prefixes_of(pattern[1], prefixes), None) is None for pattern in allowed
        )


def _is_about(acl: Acl, principal: str, host: str) -> bool:
    return acl.principal in (principal, EVERYBODY) and acl.host in (host, WILDCARD)
