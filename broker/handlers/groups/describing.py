"""What DescribeGroups, ConsumerGroupDescribe, ShareGroupDescribe and StreamsGroupDescribe have in common."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from ....protocol.acls import AclOperation, ResourceType
from ....protocol.errors import ErrorCode
from ...context import RequestContext
from ...errors import Refused
from ...java_hash import timeline_place

GROUP_ENTRIES = 2  # entries of a cooperative step for each group
HIDDEN_TOPICS = "The group has described topic(s) that the client is not authorized to describe."
G = TypeVar("G", bound=Any)
K = TypeVar("K")
M = TypeVar("M")


async def describe_each(
    names: Sequence[str],
    context: RequestContext,
    *,
    is_enabled: bool,
    failed: Callable[..., G],
    described: Callable[[str], G],
) -> list[G]:
    """Describes groups; each needs DESCRIBE. As in Kafka, groups without permission come first. `described` may raise
    Refused; `failed` makes the result of such a group from the code, the message and the group id. Where the protocol
    is not enabled each group gets UNSUPPORTED_VERSION.
    """

    def refused(name: str, code: ErrorCode, message: str | None = None) -> G:
        return failed(error_code=code, error_message=message, group_id=name)

    def one(name: str) -> G:
        try:
            return described(name)
        except Refused as error:
            return refused(name, error.code, error.message or None)

    if not is_enabled:
        return await context.mapped(lambda name: refused(name, ErrorCode.UNSUPPORTED_VERSION), names)
    if context.broker.authorizer is None:
        return await context.mapped(one, names, GROUP_ENTRIES)
    allowed = {name: context.allowed(AclOperation.DESCRIBE, ResourceType.GROUP, name) for name in names}
    denied = [refused(name, ErrorCode.GROUP_AUTHORIZATION_FAILED) for name in names if not allowed[name]]
    return denied + await context.mapped(one, [name for name in names if allowed[name]], GROUP_ENTRIES)


async def describe_assigned(
    request: Any,
    context: RequestContext,
    *,
    group_class: type[K],
    failed: Callable[..., G],
    fields: Callable[[K, RequestContext], dict[str, Any]],
    is_enabled: bool,
) -> list[G]:
    """Describes the consumer, share or streams groups of a request. `failed` makes a result, by default one without
    content. `fields` returns what not all kinds of groups have; it may raise Refused.
    """

    def described(name: str) -> G:
        group: Any = _found(name, group_class, context)
        made = failed(
            error_code=ErrorCode.NONE,
            group_id=name,
            group_state=group.state.value,
            group_epoch=group.epoch,
            assignment_epoch=group.assignment_epoch,
            **fields(group, context),
        )
        if request.include_authorized_operations:
            made.authorized_operations = context.authorized_operations(ResourceType.GROUP, name)
        return made

    return await describe_each(request.group_ids, context, is_enabled=is_enabled, failed=failed, described=described)


def _found(group_id: str, kind: type[K], context: RequestContext) -> K:
    """Returns a group of one kind. Raises Refused."""
    if not group_id:
        raise Refused(ErrorCode.INVALID_GROUP_ID)
    error, group = context.groups.describe(group_id)
    if error is not ErrorCode.NONE:
        raise Refused(error)
    if isinstance(group, kind):
        return group
    text = f"is not a {getattr(kind, 'kind', '')} group" if group is not None else "not found"
    raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} {text}.")


def in_order(members: Mapping[str, M]) -> list[M]:
    """Returns the members of a group by id in the order of Kafka's tables, which its clients see."""
    return [members[member_id] for member_id in sorted(members, key=timeline_place)]


def check_visible(topics: set[str], context: RequestContext, text: str) -> None:
    """Raises Refused with `text` unless the principal may describe all topics of a group."""
    if context.broker.authorizer is None:
        return
    if not all(context.allowed(AclOperation.DESCRIBE, ResourceType.TOPIC, topic) for topic in topics):
        raise Refused(ErrorCode.TOPIC_AUTHORIZATION_FAILED, text)
