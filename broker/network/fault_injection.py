"""Rules of fault injection for requests: which rules fire, and a runner that applies their actions.

Owns the order of the actions: delay or disconnect, run the handler for the parts that are not refused, spoil the
response, delay, throttle or disconnect, and then damage the bytes. `connections.py` sends the bytes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from ...protocol.api_key import ApiKey
from ...protocol.compiler import builder
from ...protocol.errors import ErrorCode, ProtocolViolation
from ...protocol.records import formats
from .. import message_parts
from ..faults.rules import StandingRule
from ..futures import wake
from ..message_parts import Place
from .request_runner import HandlerRunner, Mutes, Recipient, error_response

if TYPE_CHECKING:
    from ..context import RequestContext
    from .route import Route

LOOK_SECONDS = 0.25  # interval of checks whether the peer of a delayed request is still connected
GARBLED_BYTES = 16  # one flipped bit in so many bytes of a response
_V2_RECORD_END = 1  # a record of v2 ends with the count of its headers; the value is before that


class _Chosen:
    """Decides whether a rule fires for a place. A request counts as one match, at the first place found.

    If responses of an API name no topics, the request itself was matched by its places, and the rule fires for all
    entries.
    """

    def __init__(
        self, standing: StandingRule, hits: list[StandingRule], path: message_parts.Path | None = None
    ) -> None:
        self._standing = standing
        self._hits = hits
        self._by_place = path is None or message_parts.is_of_topics(path)
        self._fires: bool | None = None

    def __call__(self, place: Place) -> bool:
        if self._by_place and not self._standing.rule.matches_place(place):
            return False
        if self._fires is None:
            self._fires = self._standing.take()
            if self._fires:
                self._hits.append(self._standing)
        return self._fires


class Planned:
    """The rules that apply to one request. `rest` is None if nothing is left for the handler; `hits` are the rules that
    fired so far.
    """

    __slots__ = ("fired", "hits", "overwritten", "refused", "rest", "spoiling")

    def __init__(self, request: Any) -> None:
        self.rest = request
        self.refused: Any = None
        self.overwritten: list[tuple[StandingRule, message_parts.Path]] = []
        self.fired: list[StandingRule] = []
        self.hits: list[StandingRule] = []
        self.spoiling: list[StandingRule] = []

    @property
    def is_plain(self) -> bool:
        """Whether no rule applies."""
        return not (self.refused is not None or self.overwritten or self.fired or self.spoiling)


def faulted(route: Route, request: Any, header: bytes, context: RequestContext) -> FaultedRunner | None:
    """Returns the runner of a request for which rules fire, or None."""
    broker, connection_info = context.broker, context.connection_info
    assert broker.faults is not None
    key, listener = route.api_key, connection_info.listener
    rules = [
        one
        for one in broker.faults.requests
        if one.matches_request(key, context.client_id, listener, connection_info.node_id)
    ]
    if not rules:
        return None
    shape = message_parts.shape_of(route.request_class, context.api_version)
    places: list[Place] | None = None
    planned = Planned(request)
    for standing in rules:
        if standing.rule.is_narrow:
            if places is None:
                places = _places(request, shape, context)
            if not standing.matches_places(places):
                continue
        name = standing.rule.action.name
        if name == "error":
            _plan_error(planned, standing, request, shape, context)
        elif name == "wrong_crc":
            planned.spoiling.append(standing)
        elif standing.take():
            planned.fired.append(standing)
            planned.hits.append(standing)
    if planned.is_plain and context.faulted is None:
        return None
    return FaultedRunner(planned, request, shape, route, header, context)


def _places(request: Any, shape: message_parts.Shape, context: RequestContext) -> list[Place]:
    if shape.api_key == ApiKey.FETCH:
        return [place for _, place in _fetched(request, context)]
    return message_parts.places(request, shape, context.broker.topics)


def _fetched(request: Any, context: RequestContext) -> list[tuple[Any, Place]]:
    """The partitions that a Fetch reads, by session key; most of them may be in the session and not in the request."""
    topics, keys = context.broker.topics, context.broker.fetch_sessions.keys(request)
    return [(key, Place(key.topic or topics.topic_name(key.topic_id), key.partition)) for key in keys]


def _plan_error(
    planned: Planned,
    standing: StandingRule,
    request: Any,
    shape: message_parts.Shape,
    context: RequestContext,
) -> None:
    """Moves the part of a request that a rule refuses from `rest` to `refused`."""
    rule = standing.rule
    code = rule.action.code or 0
    path = message_parts.place_of_error(shape, code, topic=rule.topic is not None, partition=rule.partition is not None)
    if planned.rest is None or path is None:
        return
    if not path:
        if standing.take():
            refused = message_parts.whole_error(request, shape, code)
            planned.rest, planned.refused = None, refused
            planned.hits.append(standing)
        return
    chosen = _Chosen(standing, planned.hits, path)
    if shape.api_key == ApiKey.FETCH:
        # The handler returns these errors itself: they must not take part in the wait, the bounds and the session's
        # order.
        faults = context.faulted if context.faulted is not None else {}
        for key, place in _fetched(request, context):
            if key not in faults and chosen(place):
                faults[key] = cast(ErrorCode, code)  # may be a number that is no error code
        context.faulted = faults or None
    elif message_parts.is_known(planned.rest, shape, path):
        divided = message_parts.divide(planned.rest, shape, path, code, chosen, context.broker.topics)
        planned.rest = divided.rest
        if planned.refused is None:
            planned.refused = divided.refused
        elif divided.refused is not None:
            message_parts.merge(planned.refused, divided.refused, shape.levels)
    else:
        planned.overwritten.append((standing, path))


class Cut(ProtocolViolation):
    """A rule closes the connection."""


class FaultedRunner(HandlerRunner):
    """Runs a request for which rules fire: delays, refuses and damages it as they require.

    `last_bytes` are sent before the connection is closed for a `Cut`. `is_held` is True while the request waits for
    nothing but a delay or a rule.
    """

    __slots__ = ("_planned", "_recipient", "_shape", "is_held", "last_bytes", "mutes")

    def __init__(
        self,
        planned: Planned,
        request: Any,
        shape: message_parts.Shape,
        route: Route,
        header: bytes,
        context: RequestContext,
    ) -> None:
        super().__init__(self._run(), route, header, context, request)
        self._planned = planned
        self._shape = shape
        self.is_held = False
        self.last_bytes = b""
        self.mutes: Mutes = ()

    def start(self, recipient: Recipient) -> asyncio.Future[Any] | None:
        self._recipient = recipient
        return super().start(recipient)

    @property
    def is_large(self) -> bool:
        """False: the response is built in one step, since rules may damage its bytes."""
        return False

    @property
    def fault(self) -> str:
        """The rules that fired so far, for users; the list is complete when the response is built."""
        return ", ".join(f"fault {one.id}: {one.rule.action.name}" for one in self._planned.hits)

    def _actions(self, name: str) -> list[StandingRule]:
        return [standing for standing in self._planned.fired if standing.rule.action.name == name]

    async def _run(self) -> Any:
        """Returns the response, or None if there is none. Raises what the handler raises, and Cut."""
        loop = self.context.broker.loop
        turn = loop.create_future()
        loop.call_soon(wake, turn)
        await turn  # a connection sends `last_bytes` only for a request that waits
        for standing in self._planned.fired:
            action = standing.rule.action
            if action.name == "stall":
                await self._stalled(standing)
            elif action.when == "before":
                if action.name == "delay":
                    await self._delayed(action.ms or 0)
                else:
                    raise Cut(f"fault {standing.id}: disconnected before the request was handled")
        response = await self._handled()
        mute_ms = max((standing.rule.action.ms or 0 for standing in self._actions("throttle")), default=0)
        if mute_ms:
            self.mutes = (partial(loop.call_later, mute_ms / 1000),)
            # The field may be missing in this version; a request with acks=0 has no response.
            if response is not None and any(name == "throttle_time_ms" for name, _ in self._shape.layout.plan):
                response.throttle_time_ms = mute_ms
        for standing in self._planned.fired:
            action = standing.rule.action
            if action.when == "after":
                if action.name == "delay":
                    await self._delayed(action.ms or 0)
                else:
                    raise Cut(f"fault {standing.id}: disconnected after the request was handled")
        return response

    async def _handled(self) -> Any:
        """Runs the handler for the parts that no rule refused, and merges in the errors of the refused parts."""
        planned, shape = self._planned, self._shape
        refused = planned.refused
        if shape.api_key == ApiKey.PRODUCE and refused is not None:
            self._note_refused()
        if planned.rest is None:
            response = refused
        else:
            try:
                response = await self.route.handler(planned.rest, self.context)
            except Exception as error:
                response = error_response(self, error)  # other rules delay and damage it as any response
            if response is not None and refused is not None:
                message_parts.merge(response, refused, shape.levels)
        if shape.api_key == ApiKey.PRODUCE and self.request.acks == 0:
            if refused is not None:  # as for records that are refused with an error
                raise Cut("a fault refused records of a request with acks=0")
            return None
        for standing, path in planned.overwritten:
            chosen = _Chosen(standing, planned.hits, path)
            message_parts.overwrite(response, path, standing.rule.action.code or 0, chosen, self.context.broker.topics)
        for standing in planned.spoiling:
            spoil_records(response, standing, self.context.broker.topics, planned.hits)
        return response

    def _note_refused(self) -> None:
        """Records the batches that a rule refused, as for batches that the broker refused."""
        rest, topics = self._planned.rest, self.context.broker.topics
        kept: set[int] = set()
        if rest is not None:
            kept.update(id(data) for topic in rest.topic_data for data in topic.partition_data)
        for topic in self.request.topic_data:
            name = topic.name or topics.topic_name(topic.topic_id)
            for data in topic.partition_data:
                if id(data) not in kept and topics.has_partition(name or "", data.index):
                    topics.partition(name or "", data.index).refused_batches.note_records(data.records)

    # Waits, in real time

    async def _delayed(self, ms: int) -> None:
        over = self.context.broker.loop.create_future()
        timer = self.context.broker.loop.call_later(ms / 1000, wake, over)
        try:
            await self._held(over)
        finally:
            timer.cancel()

    async def _stalled(self, standing: StandingRule) -> None:
        if standing.is_removed:
            return
        over = self.context.broker.loop.create_future()

        def end_early() -> None:
            wake(over)

        standing.on_removed.append(end_early)
        try:
            await self._held(over)
        finally:
            if end_early in standing.on_removed:
                standing.on_removed.remove(end_early)

    async def _held(self, over: asyncio.Future[None]) -> None:
        """Waits, as long as the peer is connected and the broker is not stopping."""
        loop = self.context.broker.loop
        look: asyncio.TimerHandle | None = None

        def look_again() -> None:
            nonlocal look
            if self._recipient.is_wanted():
                look = loop.call_later(LOOK_SECONDS, look_again)
            else:
                self._recipient.abort()

        self.is_held = True
        try:
            look_again()
            await over
        finally:
            self.is_held = False
            if look is not None:
                look.cancel()

    # Bytes

    def parts(self) -> list[Any]:
        """The bytes of the response, in pieces, damaged as rules require. Raises Cut for a truncated response."""
        response = self.response
        if response is None:
            return []
        if self.route.api_key == ApiKey.API_VERSIONS and response.error_code == ErrorCode.UNSUPPORTED_VERSION:
            parts: list[Any] = [self.header]
            builder(response.__class__, 0)(response, parts.append)  # the layout that every client can read (KIP-511)
        else:
            parts = super().parts()
        for standing in self._actions("garble"):
            parts = [garbled(b"".join(parts), len(self.header), standing.random.randrange)]
        cuts = self._actions("truncate")
        if cuts:
            data = b"".join(parts)
            sent = min(standing.rule.action.bytes or 0 for standing in cuts)
            self.last_bytes = len(data).to_bytes(4, "big") + data[:sent]
            raise Cut(f"fault {cuts[0].id}: {sent} of {len(data)} bytes of the response were sent")
        return parts


def garbled(data: bytes, start: int, below: Callable[[int], int]) -> bytes:
    """Returns a copy with flipped bits from `start` on; `below(n)` draws a number from 0 to n - 1."""
    copied = bytearray(data)
    size = len(data) - start
    for _ in range(1 + size // GARBLED_BYTES if size else 0):
        copied[start + below(size)] ^= 1 << below(8)
    return bytes(copied)


def spoil_records(
    response: Any, standing: StandingRule, topics: message_parts.Topics, hits: list[StandingRule]
) -> None:
    """Flips a bit in the records of a Fetch response, in each partition that the rule names. The records are copied
    first.
    """
    chosen = _Chosen(standing, hits)
    for topic in response.responses:
        name = topic.topic or topics.topic_name(topic.topic_id)
        for partition in topic.partitions:
            first = next(formats.headers(partition.records), None) if partition.records else None
            if first is not None and chosen(Place(name, partition.partition_index)):
                partition.records = _with_wrong_crc(partition.records, *first)


def _with_wrong_crc(records: Any, position: int, header: Any) -> bytes:
    """Changes the last byte of the first entry's last value, so that a client that skips the CRC check can parse the
    records.
    """
    copied = bytearray(records)
    end = position + header.size_bytes - (_V2_RECORD_END if header.magic == 2 else 0)
    copied[end - 1] ^= 1
    return bytes(copied)
