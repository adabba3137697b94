"""CreateAcls v0-v3: adds access control entries (KIP-140, KIP-290, KIP-373, KIP-939).

Each entry is judged on its own. An entry that exists already is accepted, without effect. Two rules of releases with
ZooKeeper are left out: the number of entries in a request is unlimited there, and there are no prefixed patterns with
an `inter.broker.protocol.version` before 2.0.
"""

from __future__ import annotations

from ....protocol.errors import ErrorCode
from ....protocol.messages.security.create_acls import CreateAclsRequest, CreateAclsResponse
from ...context import RequestContext, handles
from ...errors import Refused, code_of, message_of
from ...security.acls import Acl
from ...security.entries import is_filter, refusals
from .requests import check_altering, check_numbers

Result = CreateAclsResponse.AclCreationResult
CHECKED_AT_ONCE = 500


@handles(CreateAclsRequest)
async def create_acls(request: CreateAclsRequest, context: RequestContext) -> CreateAclsResponse:
    """Adds entries. The results have the order of the request. In v0 all patterns are literal."""
    acls = await context.mapped(_entry, request.creations)
    try:
        check_altering(context)
        if any(map(is_filter, acls)):
            raise Refused(ErrorCode.UNKNOWN_SERVER_ERROR)  # as in Kafka, which cannot represent such an entry
    except Refused as error:
        return CreateAclsResponse(results=[_failed(error)] * len(acls))
    behaviour = context.broker.profile.behaviour
    results: list[Result | None] = []
    # With ZooKeeper the entries of a pattern are judged together.
    size = CHECKED_AT_ONCE if behaviour.acls_as_kraft else max(1, len(acls))
    for first in range(0, len(acls), size):
        if context.is_due(size):
            await context.next_step()
        some = refusals(acls[first : first + size], behaviour, cidr_hosts=context.broker.features.cidr_hosts)
        results += [None if refusal is None else _failed(refusal) for refusal in some]
    valid = [acl for acl, result in zip(acls, results, strict=True) if result is None]
    added = Result(error_code=0, error_message="" if context.broker.profile.behaviour.acl_text else None)
    try:
        await context.broker.scheduler.run(context.broker.acls.adding(valid, context.now_ms()))
    except Exception as error:
        added = _failed(error)
    return CreateAclsResponse(results=[result or added for result in results])


def _entry(requested: CreateAclsRequest.AclCreation) -> Acl:
    """The requested entry. Raises ProtocolViolation for one with an UNKNOWN part."""
    check_numbers(
        (requested.resource_type, requested.resource_pattern_type, requested.operation, requested.permission_type)
    )
    return Acl(
        requested.resource_type,
        requested.resource_name,
        requested.resource_pattern_type,
        requested.principal,
        requested.host,
        requested.operation,
        requested.permission_type,
    )


def _failed(error: Exception) -> Result:
    code = code_of(error)
    text = None if code is ErrorCode.UNKNOWN_SERVER_ERROR else message_of(error)
    return Result(error_code=code, error_message=text)
