"""CreateAcls v0-v3: adds access control entries (KIP-140, KIP-290, KIP-373, KIP-939).

Each entry is judged on its own. One that is there already is taken again, and changes nothing. Of releases with
ZooKeeper two things are left out: the entries of a request are not bounded there, and with an
`inter.broker.protocol.version` before 2.0 there are no prefixed patterns.
"""

from __future__ import annotations

from ...protocol.acls import CLUSTER_NAME, AclOperation, PatternType, PermissionType, ResourceType
from ...protocol.errors import ErrorCode
from ...protocol.messages.create_acls import CreateAclsRequest, CreateAclsResponse
from ..context import RequestContext, handles
from ..errors import Refused, code_of, message_of
from ..releases import Behaviour
from ..security.acls import Acl
from ..security.requests import check_altering, check_numbers, unknown_part

Result = CreateAclsResponse.AclCreationResult


@handles(CreateAclsRequest)
async def create_acls(request: CreateAclsRequest, context: RequestContext) -> CreateAclsResponse:
    """The results stand in the order of the request. In v0 all patterns are literal."""
    acls = [_entry(asked) for asked in request.creations]
    try:
        check_altering(context)
        if any(map(_is_filter, acls)):
            raise Refused(ErrorCode.UNKNOWN_SERVER_ERROR)  # as in Kafka, which has no value for such an entry
    except Refused as error:
        return CreateAclsResponse(results=[_failed(error) for _ in acls])
    results = _checked(acls, context.broker.profile.behaviour)
    valid = [acl for acl, result in zip(acls, results, strict=True) if result is None]
    added = Result(error_code=0, error_message="")
    try:
        context.broker.acls.add(valid, context.now_ms())
    except Exception as error:
        added = _failed(error)
    return CreateAclsResponse(results=[result or added for result in results])


def _entry(asked: CreateAclsRequest.AclCreation) -> Acl:
    """The entry that is asked for. Raises ProtocolViolation for one that says UNKNOWN."""
    check_numbers((asked.resource_type, asked.resource_pattern_type, asked.operation, asked.permission_type))
    return Acl(
        asked.resource_type,
        asked.resource_name,
        asked.resource_pattern_type,
        asked.principal,
        asked.host,
        asked.operation,
        asked.permission_type,
    )


def _failed(error: Exception) -> Result:
    code = code_of(error)
    text = None if code is ErrorCode.UNKNOWN_SERVER_ERROR else message_of(error)
    return Result(error_code=code, error_message=text)


def _is_filter(acl: Acl) -> bool:
    """Whether an entry says what only a filter may."""
    return (
        acl.resource_type == ResourceType.ANY
        or acl.pattern_type in (PatternType.ANY, PatternType.MATCH)
        or acl.operation == AclOperation.ANY
        or acl.permission_type == PermissionType.ANY
    )


def _checked(acls: list[Acl], behaviour: Behaviour) -> list[Result | None]:
    """What is wrong with each entry; None where nothing is."""
    found: list[Result | None] = []
    for acl in acls:
        try:
            _check(acl, behaviour)
        except Refused as error:
            found.append(_failed(error))
        else:
            found.append(None)
    if behaviour.acls_as_kraft:
        return found
    # All entries of a pattern were one node of ZooKeeper's, which was written as a whole or not at all.
    unwritten = {acl[:3] for acl, result in zip(acls, found, strict=True) if result is None and not _has_node(acl)}
    failed = _failed(Refused(ErrorCode.UNKNOWN_SERVER_ERROR))
    return [failed if r is None and acl[:3] in unwritten else r for acl, r in zip(acls, found, strict=True)]


def _has_node(acl: Acl) -> bool:
    """Whether ZooKeeper had a place for an entry, and the authorizer a way to write it."""
    name = acl.resource_name
    return ":" in acl.principal and "/" not in name and name not in (".", "..")


def _check(acl: Acl, behaviour: Behaviour) -> None:
    """Raises Refused for an entry that cannot be one."""
    code = ErrorCode.INVALID_REQUEST
    if acl.resource_type == ResourceType.CLUSTER and acl.resource_name != CLUSTER_NAME:
        raise Refused(code, f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}")
    if not acl.resource_name:
        raise Refused(code, "Invalid empty resource name")
    unknown = unknown_part((acl.resource_type, acl.pattern_type, acl.operation, acl.permission_type), behaviour)
    if not behaviour.acls_as_kraft:
        if unknown is not None:
            raise Refused(code, "Failed to create ACL")
    elif unknown is not None:
        raise Refused(code, f"Invalid {unknown} UNKNOWN")
    elif ":" not in acl.principal:
        reason = "no colon is present separating the principal type from the principal name"
        raise Refused(code, f"Could not parse principal from `{acl.principal}` ({reason})")
