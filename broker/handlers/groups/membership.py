"""What the APIs of the members of groups, of all kinds, have in common."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Protocol, TypeVar

from ....protocol.acls import AclOperation, ResourceType
from ....protocol.errors import ErrorCode
from ...context import RequestContext
from ...errors import Refused
from ...groups.common_events import HeartbeatReply


class _Reply(Protocol):
    @property
    def error(self) -> ErrorCode: ...


R = TypeVar("R", bound=_Reply)
R2 = TypeVar("R2")


async def durable(reply: R, failed: Callable[[ErrorCode], R], group_id: str, context: RequestContext) -> R:
    """Returns a coordinator's reply once the records of the group are durable, or what `failed` makes of their error.
    A reply with an error does not wait."""
    error = reply.error or await context.broker.group_records_durable(group_id)
    return reply if error is reply.error else failed(error)


async def member_heartbeat(
    kind: str,
    request: Any,
    context: RequestContext,
    *,
    read: Callable[[Any, RequestContext], Awaitable[Any]],
    is_enabled: bool,
    reply_class: Callable[..., Any] = HeartbeatReply,
) -> Any:
    """Handles a heartbeat of a consumer, share or streams group. `read` checks the request beyond the group, in Kafka's
    order, and returns its event. Raises Refused.
    """
    if not is_enabled:
        raise Refused(ErrorCode.UNSUPPORTED_VERSION)
    if not context.allowed(AclOperation.READ, ResourceType.GROUP, request.group_id):
        raise Refused(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    event = await read(request, context)
    reply = context.groups.member_heartbeat(kind, request.group_id, event)
    return await durable(reply, reply_class, request.group_id, context)


def heartbeat_response(reply: HeartbeatReply, response: type[R2], partitions: Callable[..., Any]) -> R2:
    """Returns the response of a class; `partitions` makes the partitions of one topic."""
    made: Any = response
    assignment = None
    if reply.assignment is not None:
        listed = [partitions(topic_id=id, partitions=sorted(indexes)) for id, indexes in reply.assignment.items()]
        assignment = made.Assignment(topic_partitions=listed)
    return made(
        error_code=reply.error,
        error_message=reply.message,
        member_id=reply.member_id,
        member_epoch=reply.epoch,
        heartbeat_interval_ms=reply.heartbeat_interval_ms,
        assignment=assignment,
    )


async def check_described(topics: Iterable[str], context: RequestContext) -> None:
    """Raises Refused unless the principal may describe all of these topics."""
    for topic in topics:
        await context.step()
        if not context.allowed(AclOperation.DESCRIBE, ResourceType.TOPIC, topic):
            raise Refused(ErrorCode.TOPIC_AUTHORIZATION_FAILED)


def check_texts(*named: tuple[str, str | None]) -> None:
    """Checks fields of a heartbeat, pairs of name and text, in order: none may be blank, null is accepted. Raises
    Refused.
    """
    for name, text in named:
        if text is not None and not text.strip():
            raise Refused(ErrorCode.INVALID_REQUEST, f"{name} can't be empty.")
