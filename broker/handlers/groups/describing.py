"""What ConsumerGroupDescribe, ShareGroupDescribe and StreamsGroupDescribe have in common."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from ....protocol.acls import AclOperation, ResourceType
from ....protocol.errors import ErrorCode
from ...context import RequestContext
from ...errors import Refused
from ...groups.registry import AnyGroup
from ...java_hash import timeline_place

GROUP_ENTRIES = 2  # entries of a cooperative step for each group
HIDDEN_TOPICS = "The group has described topic(s) that the client is not authorized to describe."
G = TypeVar("G")
K = TypeVar("K")
M = TypeVar("M")


async def describe_each(
    names: Sequence[str],
    context: RequestContext,
    *,
    is_enabled: bool,
    failed: Callable[[str, ErrorCode, str | None], G],
    described: Callable[[str], G],
) -> list[G]:
    """Describes groups; each needs DESCRIBE. As in Kafka, groups without permission come first. `described` may raise
    Refused. Where the protocol is not enabled each group gets UNSUPPORTED_VERSION.
    """

    def one(name: str) -> G:
        try:
            return described(name)
        except Refused as refused:
            return failed(name, refused.code, refused.message or None)

    if not is_enabled:
        return await context.mapped(lambda name: failed(name, ErrorCode.UNSUPPORTED_VERSION, None), names)
    allowed = {name: context.allowed(AclOperation.DESCRIBE, ResourceType.GROUP, name) for name in names}
    denied = [failed(name, ErrorCode.GROUP_AUTHORIZATION_FAILED, None) for name in names if not allowed[name]]
    return denied + await context.mapped(one, [name for name in names if allowed[name]], GROUP_ENTRIES)


def described_group(group_id: str, kind: type[K], context: RequestContext) -> K:
    """Returns a group of one kind. Raises Refused."""
    if not group_id:
        raise Refused(ErrorCode.INVALID_GROUP_ID)
    error, group = context.groups.describe(group_id)
    if error is not ErrorCode.NONE:
        raise Refused(error)
    if isinstance(group, kind):
        return group
    raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, _not_found(group_id, kind, group))


def in_order(members: Mapping[str, M]) -> list[M]:
    """Returns the members of a group by id in the order of Kafka's tables, which its clients see."""
    return [members[member_id] for member_id in sorted(members, key=timeline_place)]


def _not_found(group_id: str, kind: type, group: AnyGroup | None) -> str:
    if group is None:
        return f"Group {group_id} not found."
    return f"Group {group_id} is not a {getattr(kind, 'kind', '')} group."


def check_visible(topics: set[str], context: RequestContext, text: str) -> None:
    """Raises Refused with `text` unless the principal may describe all topics of a group."""
    if context.broker.authorizer is None:
        return
    if not all(context.allowed(AclOperation.DESCRIBE, ResourceType.TOPIC, topic) for topic in topics):
        raise Refused(ErrorCode.TOPIC_AUTHORIZATION_FAILED, text)
