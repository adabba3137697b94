"""The access control entries (KIP-140, KIP-290): DescribeAcls v0-v3, CreateAcls v0-v3 (KIP-373, KIP-939) and DeleteAcls
v0-v3.

Describing requires DESCRIBE on the cluster, the others ALTER. In v0 all patterns are literal. Kafka reads every unknown
number as UNKNOWN, and closes the connection for 0, UNKNOWN itself, which no client sends. Two rules of releases with
ZooKeeper are left out: the number of entries in a CreateAcls request is unlimited there, and there are no prefixed
patterns with an `inter.broker.protocol.version` before 2.0.
"""

from __future__ import annotations

from itertools import chain

from ....protocol.acls import AclOperation, ResourceType
from ....protocol.errors import ErrorCode, ProtocolViolation
from ....protocol.messages.security.create_acls import CreateAclsRequest, CreateAclsResponse
from ....protocol.messages.security.delete_acls import DeleteAclsRequest, DeleteAclsResponse
from ....protocol.messages.security.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from ...context import RequestContext, handles
from ...errors import Refused, code_of, message_of
from ...releases.profiles import Behaviour
from ...security.acls import Acl, AclFilter
from ...security.entries import is_filter, numbers_of, refusals, unknown_part

Resource = DescribeAclsResponse.DescribeAclsResource
Created = CreateAclsResponse.AclCreationResult
Deleted = DeleteAclsResponse.DeleteAclsFilterResult
CHECKED_AT_ONCE = 500
MATCHES_MAX = 1_000_000
"""Entries in one response, counted once for each filter that matches them: filters may repeat each other."""


def _checked_filter(requested: DescribeAclsRequest | DeleteAclsRequest.DeleteAclsFilter) -> AclFilter:
    """The requested filter. Raises ProtocolViolation for one with an UNKNOWN part."""
    wanted = AclFilter(
        requested.resource_type_filter,
        requested.resource_name_filter,
        requested.pattern_type_filter,
        requested.principal_filter,
        requested.host_filter,
        requested.operation,
        requested.permission_type,
    )
    _check_numbers(wanted)
    return wanted


def _check_numbers(acl: Acl | AclFilter) -> None:
    """Raises ProtocolViolation if one of the numbers is UNKNOWN."""
    if 0 in numbers_of(acl):
        raise ProtocolViolation("an access control entry with an UNKNOWN part")


def _check_altering(context: RequestContext) -> None:
    """Raises Refused if the principal may not change the entries, or there is no authorizer."""
    context.check_allowed(AclOperation.ALTER, ResourceType.CLUSTER)
    if context.broker.authorizer is None:
        place = "" if context.broker.profile.behaviour.acls_as_kraft else " on the broker"
        raise Refused(ErrorCode.SECURITY_DISABLED, f"No Authorizer is configured{place}.")


@handles(DescribeAclsRequest)
async def describe_acls(request: DescribeAclsRequest, context: RequestContext) -> DescribeAclsResponse:
    """Returns the entries that match, grouped by pattern."""
    wanted = _checked_filter(request)
    context.check_allowed(AclOperation.DESCRIBE, ResourceType.CLUSTER)
    if context.broker.authorizer is None:
        raise Refused(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured on the broker")
    found: dict[tuple[int, str, int], Resource] = {}
    for acl in context.broker.acls.find(wanted):
        resource = found.get(acl[:3])
        if resource is None:
            kind, name, pattern_type = acl[:3]
            resource = Resource(resource_type=kind, resource_name=name, pattern_type=pattern_type, acls=[])
            found[acl[:3]] = resource
        entry = Resource.AclDescription(
            principal=acl.principal, host=acl.host, operation=acl.operation, permission_type=acl.permission_type
        )
        resource.acls.append(entry)
    # From 2.5 on the message is empty here, but null in DeleteAcls.
    text = "" if context.broker.profile.behaviour.acl_text else None
    return DescribeAclsResponse(error_code=0, error_message=text, resources=list(found.values()))


@handles(CreateAclsRequest)
async def create_acls(request: CreateAclsRequest, context: RequestContext) -> CreateAclsResponse:
    """Adds entries. The results have the order of the request."""
    acls = await context.mapped(_entry, request.creations)
    try:
        _check_altering(context)
        if any(map(is_filter, acls)):
            raise Refused(ErrorCode.UNKNOWN_SERVER_ERROR)  # as in Kafka, which cannot represent such an entry
    except Refused as error:
        return CreateAclsResponse(results=[_not_created(error)] * len(acls))
    behaviour = context.broker.profile.behaviour
    results: list[Created | None] = []
    # With ZooKeeper the entries of a pattern are judged together.
    size = CHECKED_AT_ONCE if behaviour.acls_as_kraft else max(1, len(acls))
    for first in range(0, len(acls), size):
        await context.step(size)
        some = refusals(acls[first : first + size], behaviour, cidr_hosts=context.broker.features.cidr_hosts)
        results += [None if refusal is None else _not_created(refusal) for refusal in some]
    valid = [acl for acl, result in zip(acls, results, strict=True) if result is None]
    added = Created(error_code=0, error_message="" if context.broker.profile.behaviour.acl_text else None)
    try:
        await context.broker.scheduler.run(context.broker.acls.adding(valid, context.now_ms()))
    except Exception as error:
        added = _not_created(error)
    return CreateAclsResponse(results=[result or added for result in results])


def _entry(requested: CreateAclsRequest.AclCreation) -> Acl:
    """The requested entry. Raises ProtocolViolation for one with an UNKNOWN part."""
    acl = Acl(
        requested.resource_type,
        requested.resource_name,
        requested.resource_pattern_type,
        requested.principal,
        requested.host,
        requested.operation,
        requested.permission_type,
    )
    _check_numbers(acl)
    return acl


def _not_created(error: Exception) -> Created:
    code = code_of(error)
    text = None if code is ErrorCode.UNKNOWN_SERVER_ERROR else message_of(error)
    return Created(error_code=code, error_message=text)


@handles(DeleteAclsRequest)
async def delete_acls(request: DeleteAclsRequest, context: RequestContext) -> DeleteAclsResponse:
    """Returns one result for each filter, in their order; those that succeed take effect together."""
    filters = await context.mapped(_checked_filter, request.filters)
    try:
        _check_altering(context)
        results = await _remove(filters, context)
    except Exception as error:
        results = [_not_deleted(error)] * len(filters)
    return DeleteAclsResponse(filter_results=results)


async def _remove(filters: list[AclFilter], context: RequestContext) -> list[Deleted]:
    """Removes the entries. Raises Refused, StorageError; then none is removed.

    An entry that several filters match is in the result of each; with ZooKeeper, only in the first one's.
    """
    broker = context.broker
    behaviour = broker.profile.behaviour
    found: dict[AclFilter, list[Acl]] = {}
    listed: set[Acl] = set()
    results: list[Deleted] = []
    matches = 0
    for wanted in filters:
        await context.step()
        if behaviour.acls_as_kraft and (problem := _problem(wanted, behaviour)) is not None:
            results.append(_not_deleted(Refused(ErrorCode.INVALID_REQUEST, problem)))
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
        results.append(Deleted(error_code=0, error_message=None, matching_acls=removed))
    await broker.scheduler.run(broker.acls.removing(chain.from_iterable(found.values()), context.now_ms()))
    return results


def _problem(wanted: AclFilter, behaviour: Behaviour) -> str | None:
    part = unknown_part(wanted, behaviour)
    if part is None:
        return None
    return "Unknown patternFilter." if part in ("resourceType", "patternType") else "Unknown entryFilter."


def _not_deleted(error: Exception) -> Deleted:
    return Deleted(error_code=code_of(error), error_message=message_of(error), matching_acls=[])


def _removed(acl: Acl) -> Deleted.DeleteAclsMatchingAcl:
    return Deleted.DeleteAclsMatchingAcl(error_code=0, error_message=None, **acl._asdict())
