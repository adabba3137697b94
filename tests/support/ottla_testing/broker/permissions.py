"""Random changes of permissions, for brokers with an authorizer."""

from __future__ import annotations

import random
from collections.abc import Sequence

from ottla.protocol.acls import AclOperation, ResourceType
from ottla.protocol.messages.security.create_acls import CreateAclsRequest
from ottla.protocol.messages.security.delete_acls import DeleteAclsRequest

AUTHORIZED = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}
"""Configs of a broker that allows what no entry decides."""


def permission(draw: random.Random, topics: Sequence[str]) -> CreateAclsRequest | DeleteAclsRequest:
    """Returns a request that takes a permission on one of the topics from a user, or gives all of them back."""
    name, principal = draw.choice(topics), draw.choice(("User:ANONYMOUS", "User:ann"))
    if draw.random() < 0.5:
        kept = DeleteAclsRequest.DeleteAclsFilter(
            resource_type_filter=ResourceType.TOPIC,
            resource_name_filter=name,
            pattern_type_filter=3,
            principal_filter=None,
            host_filter=None,
            operation=AclOperation.ANY,
            permission_type=1,
        )
        return DeleteAclsRequest(filters=[kept])
    made = CreateAclsRequest.AclCreation(
        resource_type=ResourceType.TOPIC,
        resource_name=name,
        resource_pattern_type=3,
        principal=principal,
        host="*",
        operation=draw.choice((AclOperation.WRITE, AclOperation.DESCRIBE)),
        permission_type=2,
    )
    return CreateAclsRequest(creations=[made])
