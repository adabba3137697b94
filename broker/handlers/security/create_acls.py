"""CreateAcls v0-v3: adds access control entries (KIP-140, KIP-290, KIP-373, KIP-939).

Each entry is judged on its own. One that is there already is taken again, and changes nothing. Of releases with
ZooKeeper two things are left out: the entries of a request are not bounded there, and with an
`inter.broker.protocol.version` before 2.0 there are no prefixed patterns.
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
    """The results stand in the order of the request. In v0 all patterns are literal."""
    acls = await context.mapped(_entry, request.creations)
    try:
        check_altering(context)
        if any(map(is_filter, acls)):
            raise Refused(ErrorCode.UNKNOWN_SERVER_ERROR)  # as in Kafka, which has no value for such an entry
    except Refused as error:
        return CreateAclsResponse(results=[_failed(error)] * len(acls))
    behaviour = context.broker.profile.behaviour
    results: list[Result | None] = []
    # With ZooKeeper the entries of a pattern are judged together.
    size = CHECKED_AT_ONCE if behaviour.acls_as_kraft else max(1, len(acls))
    for first in range(0, len(acls), size):
        if context.is_due(size):
            await context.next_step()
        some = refusals(acls[first : first + size], behaviour)
        results += [None if refusal is None else _failed(refusal) for refusal in some]
    valid = [acl for acl, result in zip(acls, results, strict=True) if result is None]
    added = Result(error_code=0, error_message="" if context.broker.profile.behaviour.acl_text else None)
    try:
        await context.broker.scheduler.run(context.broker.acls.adding(valid, context.now_ms()))
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
