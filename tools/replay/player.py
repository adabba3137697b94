"""The playback of a recording: the time at which each request is sent, and the timeout of its response.

Owns the order. Exchanges that had ended before a request began have ended before it is sent; concurrent exchanges are
concurrent again and begin in the recorded order. Each recorded connection becomes one connection. All waits are
bounded.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from time import perf_counter_ns

from ...broker.recording.decoding import response_value
from ...broker.recording.exchange import Ending, Exchange
from ...protocol.api_key import ApiKey
from ...protocol.errors import ErrorCode
from .name_mapping import OF_COORDINATORS, OF_TOPICS, error_codes
from .requests import NotSent, Outgoing, Sending, played_exchange
from .subjects import READING
from .target import NONE, Address, Closed, Connection, Security, Target, Unreachable, discover, topic_ids

PATIENCE_SECONDS = 30.0
LATE_MAX = 5  # missing responses, after which the timeout is IMPATIENCE_SECONDS
IMPATIENCE_SECONDS = 1.0
STEP_SECONDS = 0.003  # pause between requests on two connections without another ordering
LEAST_SECONDS = 0.001  # shortest pause if one of the two changes something
AGAIN_SECONDS = 0.05
_MILLISECOND = 1_000_000  # in nanoseconds
INCOMPLETE_SECONDS = 0.2  # limit of retries if a request was not sent that this one may depend on
# Transient errors, and the time for which the request is retried.
PASSING_SECONDS = {
    **dict.fromkeys(OF_TOPICS | {ErrorCode.UNKNOWN_LEADER_EPOCH}, 2.0),
    **dict.fromkeys(OF_COORDINATORS | {ErrorCode.CONCURRENT_TRANSACTIONS}, 20.0),
}
_WAITS = frozenset({ApiKey.FETCH, ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP})
_WAITED_NS = 5 * _MILLISECOND  # a slower response of these APIs waited for another request
_NEVER_AGAIN = frozenset({ApiKey.FETCH})  # each Fetch changes the state of its session


@dataclass(frozen=True)
class PlayOptions:
    """The options of a playback."""

    patience_s: float = PATIENCE_SECONDS
    keep_timing: bool = False
    """Whether requests are sent at their recorded times relative to the first; otherwise as fast as possible."""
    translate: bool = False
    """Whether a request in a version that is not served is sent in the nearest served version with the same fields."""
    security: Security = NONE
    """The login of all connections, in place of the recorded ones, and TLS."""


@dataclass
class Step:
    """An exchange of a recording and its playback.

    `played` is None if it was not sent; `expected` is then True if the broker advertises that it does not serve it.
    """

    exchange: Exchange
    played: Exchange | None = None
    not_sent: str = ""
    expected: bool = False
    translatable: bool = False
    tries: int = 0
    future: asyncio.Future[bytes] | None = field(default=None, repr=False)


async def play(exchanges: Sequence[Exchange], bootstrap: Address, options: PlayOptions = PlayOptions()) -> Player:
    """Plays a recording in its order. Raises Unreachable."""
    target = await discover(bootstrap, options.patience_s, options.security)
    player = Player(exchanges, target, options)
    try:
        await player.run()
    finally:
        await player.close()
    return player


def node_map(recorded: Sequence[int], there: Sequence[int]) -> dict[int, int]:
    """Maps recorded nodes to nodes of the target: to the same id, otherwise to the remaining nodes in order."""
    left = [node for node in sorted(there) if node not in recorded]
    found: dict[int, int] = {}
    for node in sorted(set(recorded)):
        if node in there:
            found[node] = node
        elif there:
            found[node] = left.pop(0) if left else sorted(there)[0]
    return found


def _end_ns(one: Exchange, *, is_coarse: bool) -> int:
    """Returns the time at which the exchange ended, for the order of playback.

    With times in whole milliseconds (`is_coarse`) the end of most exchanges is moved one millisecond back: a request
    that began in the same millisecond counts as later. A response that waited for such a request is moved forward:
    waiting for it before that request is sent would be a deadlock.
    """
    if not is_coarse:
        return one.begun_ns + one.duration_ns
    if one.api_key in _WAITS and one.duration_ns >= _WAITED_NS:
        return one.begun_ns + one.duration_ns + _MILLISECOND
    return one.begun_ns + max(one.duration_ns - _MILLISECOND, 0)


class Player:
    """A playback: the `steps` of the recording, the `target`, and `nodes` of the recording -> nodes of the target."""

    def __init__(self, exchanges: Sequence[Exchange], target: Target, options: PlayOptions) -> None:
        self._options = options
        self.target = target
        ordered = sorted(exchanges, key=lambda one: (one.begun_ns, one.number))
        self.steps = [Step(one) for one in ordered]
        self.nodes = node_map([one.peer.node_id for one in exchanges], list(target.nodes))
        self._sending = Sending(ordered, target, self.nodes, translate=options.translate)
        self._connections: dict[int, Connection] = {}
        self._last: dict[int, Step] = {}  # the newest request of each connection
        self._left: dict[int, int] = {}  # requests not played yet on each connection
        for one in ordered:
            self._left[one.peer.number] = self._left.get(one.peer.number, 0) + 1
        self._late = 0
        self._given_up: set[tuple[int, int]] = set()  # (API, code) of errors that did not pass
        self._before: Step | None = None
        self._is_whole = True  # no request was left out so far: a missing topic or group may still be created
        self._requested: set[str] = set()  # topics whose ids were requested
        self._begun_s = 0.0

    async def run(self) -> None:
        """Plays all steps in their order."""
        events: list[tuple[int, int, int, Callable[[], object]]] = []
        # With times in milliseconds, an exchange counts as ended before a request of the same millisecond.
        is_coarse = not any(step.exchange.begun_ns % _MILLISECOND for step in self.steps)
        for number, step in enumerate(self.steps):
            one = step.exchange
            events.append((one.begun_ns, number, 0, lambda step=step: self._begin(step)))
            if one.duration_ns >= 0:
                end = _end_ns(one, is_coarse=is_coarse)
                events.append((end, number, 1, lambda step=step: self._end(step)))
        events.sort(key=lambda event: event[:3])
        self._begun_s = asyncio.get_running_loop().time()
        for at, _, _, act in events:
            if self._options.keep_timing:
                due = self._begun_s + (at - events[0][0]) / 1e9 - asyncio.get_running_loop().time()
                await asyncio.sleep(max(0.0, due))
            await act()  # type: ignore[misc]
        for step in self.steps:  # without an end in the recording
            if step.exchange.duration_ns < 0:
                await self._end(step)

    async def close(self) -> None:
        for connection in self._connections.values():
            await connection.close()

    # Requests

    async def _begin(self, step: Step) -> None:
        one = step.exchange
        number = one.peer.number
        self._left[number] -= 1
        try:
            if self._sending.unknown_members(one):
                await self._wait_for_members()
            if names := self._sending.unknown_topics(one) - self._requested:
                self._requested |= names
                for name, topic_id in (await topic_ids(self.target, sorted(names), self._patience())).items():
                    self._sending.learn_topic_id(name, topic_id)
            outgoing = self._sending.outgoing(one)
        except NotSent as reason:
            step.not_sent, step.expected, step.translatable = str(reason), reason.expected, reason.translatable
            self._is_whole = self._is_whole and not reason.expected
            return
        await self._keep_order(one)
        await self._send(step, outgoing)
        self._before = step

    async def _keep_order(self, one: Exchange) -> None:
        """Pauses between requests on different connections, which a broker may process in any order."""
        before = self._before
        if before is None or before.exchange.peer.number == one.peer.number:
            return
        if before.future is not None and not before.future.done():
            both_read = one.api_key in READING and before.exchange.api_key in READING
            gap_s = (one.begun_ns - before.exchange.begun_ns) / 1e9
            await asyncio.sleep(min(max(gap_s, 0.0 if both_read else LEAST_SECONDS), STEP_SECONDS))

    async def _wait_for_members(self) -> None:
        """Waits for JoinGroups in flight: their responses have the member ids for the next assignments."""
        for step in list(self._last.values()):
            if step.exchange.api_key == ApiKey.JOIN_GROUP and step.future is not None:
                await self._end(step)

    async def _send(self, step: Step, outgoing: Outgoing) -> None:
        one = step.exchange
        step.tries += 1
        step.played = played_exchange(one, outgoing)
        step.played.begun_ns = perf_counter_ns()
        try:
            connection = await self._connection(one)
        except Unreachable as error:
            step.played.ending, step.played.reason = Ending.CLOSED, str(error)
            return
        step.future = await connection.send(outgoing.frame, silent=outgoing.silent)
        step.future.add_done_callback(lambda future: _take(step, future, outgoing.silent))
        self._last[one.peer.number] = step

    async def _connection(self, one: Exchange) -> Connection:
        """Returns the connection for a recorded one, opened again if it was closed. Raises Unreachable."""
        number = one.peer.number
        found = self._connections.get(number)
        if found is None or found.is_closed:
            node_id = self.nodes.get(one.peer.node_id, one.peer.node_id)
            target = self.target
            found = self._connections[number] = await Connection.open(target.address(node_id), target.security)
        return found

    # Responses

    async def _end(self, step: Step) -> None:
        """Waits for the response of a step, if one is due, and learns from it."""
        future, played = step.future, step.played
        if future is None or played is None:
            await self._close_if_done(step)
            return
        is_over = step.exchange.ending in (Ending.RESPONDED, Ending.SILENT)
        if not future.done():
            # The recorded client closed the connection without waiting for the response.
            patience_s = self._patience() if is_over or step.exchange.reason else STEP_SECONDS
            with contextlib.suppress(TimeoutError, Closed):
                await asyncio.wait_for(asyncio.shield(future), patience_s)
            if not future.done() and is_over:
                self._late += 1
                played.reason = f"no response within {patience_s:g} s"
        if played.ending is Ending.PENDING and future.done():
            await asyncio.sleep(0)  # its callback is next
        if step.played is played and played.ending is Ending.RESPONDED:
            await self._retry(step)
            assert step.played is not None
            self._sending.concluded(step.exchange, step.played)
        step.future = None
        await self._close_if_done(step)

    def _patience(self) -> float:
        return self._options.patience_s if self._late < LATE_MAX else min(self._options.patience_s, IMPATIENCE_SECONDS)

    async def _retry(self, step: Step) -> None:
        """Sends the request again while the response has a transient error, as clients do."""
        one = step.exchange
        loop = asyncio.get_running_loop()
        begun_s = loop.time()
        recorded = set(error_codes(response_value(one))) if one.response is not None else set[int]()
        while one.api_key not in _NEVER_AGAIN and step.played is not None:
            if one.api_key not in READING and self._last.get(one.peer.number) is not step:
                return  # a later request of the connection would overtake the retry
            codes = set(error_codes(response_value(step.played)))
            passing = {code for code in codes - recorded if code in PASSING_SECONDS}
            if lacks_topics(one, step.played):
                passing = {int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)}
            if (
                not passing
                or codes - passing - {ErrorCode.NONE}
                or (one.api_key != ApiKey.METADATA and ErrorCode.NONE in codes - recorded)
            ):
                return
            passes_s = min(max(PASSING_SECONDS[ErrorCode(code)] for code in passing), self._patience())
            left_s = begun_s + (passes_s if self._is_whole else INCOMPLETE_SECONDS) - loop.time()
            if left_s <= 0 or any((one.api_key, code) in self._given_up for code in passing):
                self._given_up |= {(one.api_key, code) for code in passing}
                return
            await asyncio.sleep(AGAIN_SECONDS)
            await self._send(step, self._sending.outgoing(one))
            if step.future is None:
                return
            with contextlib.suppress(TimeoutError, Closed):
                await asyncio.wait_for(asyncio.shield(step.future), self._patience())
            await asyncio.sleep(0)

    async def _close_if_done(self, step: Step) -> None:
        number = step.exchange.peer.number
        connection = self._connections.get(number)
        if connection is not None and not self._left[number] and not connection.in_flight:
            del self._connections[number]
            await connection.close()

    def notes(self) -> list[str]:
        """Returns notes on the playback, one line each."""
        found = [
            f"requests to node {left} were sent to node {right}"
            for left, right in sorted(self.nodes.items())
            if left != right
        ]
        for (topic, partition), shift in sorted(self._sending.ids.shifts.items()):
            if shift:
                more = "higher" if shift > 0 else "lower"
                found.append(
                    f"offsets of {topic}-{partition} are {abs(shift)} {more}: the partition had other records before"
                )
        found += [f"group {name} had another leader" for name in sorted(self._sending.roles.moved)]
        again = sum(step.tries > 1 for step in self.steps)
        if again:
            word = "request was" if again == 1 else "requests were"
            found.append(f"{again} {word} retried after transient errors")
        return found


def lacks_topics(recorded: Exchange, played: Exchange) -> bool:
    """Returns whether a Metadata response has fewer partitions than recorded: a new topic is not on all brokers yet."""
    if recorded.api_key != ApiKey.METADATA or recorded.response is None:
        return False
    left, right = response_value(recorded), response_value(played)
    if left is None or right is None:
        return False
    there = {one.name or bytes(one.topic_id): len(one.partitions) for one in right.topics}
    return any(
        len(one.partitions) > there.get(one.name or bytes(one.topic_id), len(one.partitions)) for one in left.topics
    )


def _take(step: Step, future: asyncio.Future[bytes], silent: bool) -> None:
    """Stores the outcome of a request in its step."""
    played = step.played
    if played is None or future.cancelled():
        return
    played.duration_ns = perf_counter_ns() - played.begun_ns
    error = future.exception()
    if error is not None and played.reason:
        return  # timed out before
    if error is not None:
        played.ending, played.reason = Ending.CLOSED, str(error)
    elif silent:
        played.ending = Ending.SILENT
    else:
        played.response = future.result()
        played.response_bytes = len(played.response)
        played.ending, played.reason = Ending.RESPONDED, ""
