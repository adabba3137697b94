"""DeleteAcls v0-v3: removes the access control entries that filters match (KIP-140, KIP-290)."""

from __future__ import annotations

from itertools import chain

from ....protocol.errors import ErrorCode
from ....protocol.messages.security.delete_acls import DeleteAclsRequest, DeleteAclsResponse
from ...context import RequestContext, handles
from ...errors import Refused, code_of, message_of
from ...releases.profiles import Behaviour
from ...security.acls import Acl, AclFilter
from ...security.entries import unknown_part
from .requests import check_altering, filter_of

Result = DeleteAclsResponse.DeleteAclsFilterResult
MATCHES_MAX = 1_000_000
"""Entries in one response, counted once for each filter that matches them: filters may repeat each other."""


@handles(DeleteAclsRequest)
async def delete_acls(request: DeleteAclsRequest, context: RequestContext) -> DeleteAclsResponse:
    """Returns one result for each filter, in their order; those that succeed take effect together. In v0 filters have
    literal patterns.
    """
    filters = await context.mapped(filter_of, request.filters)
    try:
        check_altering(context)
        results = await _remove(filters, context)
    except Exception as error:
        results = [_failed(error)] * len(filters)
    return DeleteAclsResponse(filter_results=results)


async def _remove(filters: list[AclFilter], context: RequestContext) -> list[Result]:
    """Removes the entries. Raises Refused, StorageError; then none is removed.

    An entry that several filters match is in the result of each; with ZooKeeper, only in the first one's.
    """
    broker = context.broker
    behaviour = broker.profile.behaviour
    found: dict[AclFilter, list[Acl]] = {}
    listed: set[Acl] = set()
    results: list[Result] = []
    matches = 0
    for wanted in filters:
        if context.is_due():
            await context.next_step()
        if behaviour.acls_as_kraft and (problem := _problem(wanted, behaviour)) is not None:
            results.append(_failed(Refused(ErrorCode.INVALID_REQUEST, problem)))
            continue
        if wanted not in found:
            found[wanted] = broker.acls.find(wanted)
        matching = found[wanted]
        if not behaviour.acls_as_kraft:
            matching = [acl for acl in matching if acl not in listed]
            listed.update(matching)
        matches += len(matching)
        if matches > MATCHES_MAX:
            raise Refused(ErrorCode.INVALID_REQUEST, f"The filters match more than {MATCHES_MAX} acls.")
        removed = await context.mapped(_removed, matching)
        results.append(Result(error_code=0, error_message=None, matching_acls=removed))
    await broker.scheduler.run(broker.acls.removing(chain.from_iterable(found.values()), context.now_ms()))
    return results


def _problem(wanted: AclFilter, behaviour: Behaviour) -> str | None:
    numbers = wanted.resource_type, wanted.pattern_type, wanted.operation, wanted.permission_type
    part = unknown_part(numbers, behaviour)
    if part is None:
        return None
    return "Unknown patternFilter." if part in ("resourceType", "patternType") else "Unknown entryFilter."


def _failed(error: Exception) -> Result:
    return Result(error_code=code_of(error), error_message=message_of(error), matching_acls=[])


def _removed(acl: Acl) -> Result.DeleteAclsMatchingAcl:
    return Result.DeleteAclsMatchingAcl(error_code=0, error_message=None, **acl._asdict())
