"""Membership of a group (the classic protocol, KIP-62): joining, assigning as its leader, heartbeats, leaving.

Owns the life of one member: join, sync, heartbeats until a rebalance is called, join again. What is read and committed
is the consumer's affair, told through `Reader`. All partitions are given up before each join (the eager protocol).

A rebalance waits until the application has come back from the records that it holds, as in Java, where both are one
thread: so nothing is read twice by a rebalance alone. Heartbeats go on meanwhile; whoever does not come back within
`max_poll_interval_ms` leaves.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Protocol

from ...protocol.errors import ErrorCode
from ...protocol.messages.groups.heartbeat import HeartbeatRequest
from ...protocol.messages.groups.join_group import JoinGroupRequest, JoinGroupResponse
from ...protocol.messages.groups.leave_group import LeaveGroupRequest
from ...protocol.messages.groups.sync_group import SyncGroupRequest
from ..net.cluster import Cluster
from ..net.connection import Connection
from ..net.errors import ClientClosed, ClientError, ConnectionLost, KafkaError, UnsupportedVersion
from .assignors import ASSIGNORS, Member
from .group_offsets import MOVED, NOT_A_MEMBER
from .group_protocol import assignment_bytes, read_assignment, read_subscription, subscription_bytes
from .list_offsets import TopicPartition
from .options import ConsumerOptions

__all__ = ["Group", "Reader"]

PROTOCOL_TYPE = "consumer"
NO_GENERATION = -1
STATIC_JOIN, STATIC_SYNC, STATIC_HEARTBEAT, SEVERAL_LEAVE = 5, 3, 3, 3
# JoinGroup v0 has no rebalance time-out, and the brokers that know no other allow no session of more than 30 s.
V0_SESSION_MS = 30_000
JOIN_SLACK_MS = 5_000  # a join is answered at the end of the rebalance time-out, at the latest
OLD_BROKER_TRIES = 3
GONE = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION)
_log = logging.getLogger("ottla.client")


class Reader(Protocol):
    """What a group needs of its consumer."""

    def is_idle(self) -> bool:
        """Whether the application has come back from all records that it got."""
        ...

    def is_absent(self) -> bool:
        """Whether it has not come back for longer than `max_poll_interval_ms`."""
        ...

    async def revoke(self, is_lost: bool) -> None:
        """Commits, if that is to be and can be (not `is_lost`), and gives up all partitions."""
        ...

    def assign(self, partitions: list[TopicPartition]) -> None:
        """Begins to read these."""
        ...

    def follow(self, topics: frozenset[str]) -> None:
        """Keeps the metadata of these topics up to date."""
        ...


class Group:
    """One member. `is_changing`: it has no assignment at the moment, or is to give it up; `settled` waits."""

    def __init__(self, cluster: Cluster, options: ConsumerOptions, topics: list[str], reader: Reader) -> None:
        assert options.group is not None
        self.group = options.group
        self.is_changing = True
        self.is_joining = True  # it is no member of any generation just now
        self.membership = NOT_A_MEMBER._replace(instance_id=options.group_instance_id)
        self._cluster = cluster
        self._options = options
        self._topics = topics
        self._reader = reader
        self._loop = asyncio.get_running_loop()
        self._stable = asyncio.Event()
        self._nudged = asyncio.Event()  # the application came back, or something is to be looked at
        self._failure: ClientError | None = None
        self._owned: list[TopicPartition] = []
        self._last_generation: int = NO_GENERATION
        self._is_gone = False  # the coordinator does not know this member any more
        self._counts: dict[str, int] | None = None  # of the leader: what its assignment was computed from
        self._followed: frozenset[str] = frozenset(topics)
        self._attempts = 0
        self._closed_joins = 0
        self._joining_at: Connection | None = None
        self._task: asyncio.Task[None] | None = None
        cluster.add_listener(self._metadata_came)

    def start(self) -> None:
        """Begins to join."""
        self._reader.follow(frozenset(self._topics))
        self._task = self._loop.create_task(self._live())

    async def settled(self) -> None:
        """Waits, on behalf of the application, until there is an assignment. Raises what ended the membership."""
        self._nudged.set()
        await self._stable.wait()
        if self._failure is not None:
            raise self._failure

    def lost(self, code: int) -> None:
        """A commit was refused with that code: joins again if it means that there is no such member."""
        if code in GONE:
            self._is_gone = True
            self._change("a commit was refused")
        elif code == ErrorCode.REBALANCE_IN_PROGRESS:
            self._change("a commit met a rebalance")

    async def close(self, leave: bool) -> None:
        """Ends; `leave` tells the coordinator, but for a static member, whose partitions wait for its return."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        if self._joining_at is not None:
            self._joining_at.close()  # nothing is answered there before the join is
        self._failure = self._failure or ClientClosed("the consumer is closed")
        self._stable.set()
        if leave and self.membership.instance_id is None:
            await self._leave("the consumer is being closed")

    # The life of a member

    async def _live(self) -> None:
        try:
            while True:
                await self._give_up()
                await self._until_joined()
                await self._beat()
        except asyncio.CancelledError:
            raise
        except Exception as error:
            failure = error if isinstance(error, ClientError) else ClientError(f"the group member failed: {error!r}")
            if failure is not error:
                failure.__cause__ = error
            self._failure = failure
            self.is_changing = self.is_joining = True
            self._stable.set()
            self._reader.assign([])

    def _change(self, why: str) -> None:
        if not self.is_changing:
            _log.debug("group %s: joins again, %s", self.group, why)
            self.is_changing = True
            self._stable.clear()
        self._nudged.set()

    async def _give_up(self) -> None:
        """Ends what this member reads, before it joins."""
        await self._reader.revoke(self._is_gone)
        self.is_joining = True
        if self._is_gone:
            self._forget(keep_id=False)

    def _forget(self, *, keep_id: bool) -> None:
        self._is_gone = False
        self._last_generation: int = NO_GENERATION
        kept = self.membership.member_id if keep_id else ""
        self.membership = self.membership._replace(generation=NO_GENERATION, member_id=kept)

    async def _until_joined(self) -> None:
        """Joins, tries again as long as that may help."""
        while True:
            self._joining_at = None
            try:
                connection = await self._cluster.coordinator(self.group)
                self._check_version(connection)
                self._joining_at = connection
                assigned = await self._join(connection)
                break
            except ClientClosed:
                raise
            except ClientError as error:
                self._check_age(error)
                await self._met(error)
        self._joining_at = None
        self._attempts = self._closed_joins = 0
        self._owned = assigned
        self._reader.assign(assigned)
        self.is_changing = self.is_joining = False
        self._stable.set()
        _log.debug("group %s: generation %d reads %s", self.group, self.membership.generation, assigned)

    def _check_version(self, connection: Connection) -> None:
        if self.membership.instance_id is not None and connection.version_of(JoinGroupRequest) < STATIC_JOIN:
            raise UnsupportedVersion("group.instance.id: the broker knows no static members (before 2.3)")
        connection.version_of(SyncGroupRequest)

    def _check_age(self, error: ClientError) -> None:
        """A broker that tells no versions, and closes again and again, is older than groups of this kind."""
        if isinstance(error, ConnectionLost) and self._joining_at is not None and not self._joining_at.tells_versions:
            self._closed_joins += 1
            if self._closed_joins >= OLD_BROKER_TRIES:
                raise UnsupportedVersion(
                    "the broker closes when it is asked to let a member in: groups have members since 0.9;"
                    " give `assign` instead of `topics`, offsets can be committed"
                ) from error

    async def _met(self, error: ClientError) -> None:
        """What to do about a join that failed: raises it again if it always will, else waits for the next try."""
        code = error.code if isinstance(error, KafkaError) else None
        if code == ErrorCode.MEMBER_ID_REQUIRED:
            return
        if code in GONE:
            self._forget(keep_id=code == ErrorCode.ILLEGAL_GENERATION)
        elif code == ErrorCode.REBALANCE_IN_PROGRESS:
            pass
        elif not error.retriable:
            raise error
        if isinstance(error, ConnectionLost) or code in MOVED:
            self._cluster.expire_coordinator(self.group)
        self._attempts += 1
        await asyncio.sleep(self._cluster.retry_backoff_s(self._attempts))

    async def _join(self, connection: Connection) -> list[TopicPartition]:
        options = self._options
        version = connection.version_of(JoinGroupRequest)
        session_ms = options.session_timeout_ms if version else min(options.session_timeout_ms, V0_SESSION_MS)
        rebalance_ms = options.max_poll_interval_ms if version else session_ms
        metadata = subscription_bytes(self._topics, (), self._last_generation)
        request = JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=rebalance_ms,
            member_id=self.membership.member_id,
            group_instance_id=self.membership.instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=[
                JoinGroupRequest.JoinGroupRequestProtocol(name=name, metadata=metadata)
                for name in (options.assignor, *(other for other in ASSIGNORS if other != options.assignor))
            ],
        )
        timeout_s = max(options.request_timeout_ms, rebalance_ms + JOIN_SLACK_MS) / 1000
        response: JoinGroupResponse = await connection.request(request, version, timeout_s=timeout_s)
        if response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.membership = self.membership._replace(member_id=response.member_id)
        if response.error_code:
            raise KafkaError(response.error_code, f"joining group {self.group!r}")
        self.membership = self.membership._replace(generation=response.generation_id, member_id=response.member_id)
        self._last_generation = response.generation_id
        self._counts = None
        assignments: dict[str, bytes] = {}
        if response.leader == response.member_id:
            assignments = await self._assignments(response)
        else:
            self._reader.follow(frozenset(self._topics))
        return await self._sync(connection, response, assignments)

    async def _assignments(self, joined: JoinGroupResponse) -> dict[str, bytes]:
        """The leader's work: who reads what. Empty where the group keeps what it has (KIP-814)."""
        members = [
            Member(member.member_id, read_subscription(member.metadata).topics, member.group_instance_id)
            for member in joined.members
        ]
        self._followed = topics = frozenset[str]().union(self._topics, *(member.topics for member in members))
        self._reader.follow(topics)
        await self._cluster.refresh(topics)
        self._counts = self._counted(topics)
        if joined.skip_assignment:
            return {}
        assignor = ASSIGNORS.get(joined.protocol_name or "")
        if assignor is None:
            raise ClientError(f"the group chose {joined.protocol_name!r}, which this member did not offer")
        assigned = assignor(members, self._counts)
        return {member_id: assignment_bytes(partitions) for member_id, partitions in assigned.items()}

    def _counted(self, topics: frozenset[str]) -> dict[str, int]:
        known = self._cluster.topics
        return {name: len(known[name].partitions) for name in topics if name in known and known[name].partitions}

    async def _sync(
        self, connection: Connection, joined: JoinGroupResponse, assignments: dict[str, bytes]
    ) -> list[TopicPartition]:
        version = connection.version_of(SyncGroupRequest)
        request = SyncGroupRequest(
            group_id=self.group,
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            group_instance_id=self.membership.instance_id if version >= STATIC_SYNC else None,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=joined.protocol_name,
            assignments=[
                SyncGroupRequest.SyncGroupRequestAssignment(member_id=member_id, assignment=data)
                for member_id, data in assignments.items()
            ],
        )
        timeout_s = max(self._options.request_timeout_ms, self._options.session_timeout_ms + JOIN_SLACK_MS) / 1000
        response = await connection.request(request, version, timeout_s=timeout_s)
        if response.error_code:
            raise KafkaError(response.error_code, f"the assignment of group {self.group!r}")
        return read_assignment(response.assignment)

    # Heartbeats

    async def _beat(self) -> None:
        """Sends heartbeats until this member has to join again, and may."""
        interval_s = self._options.heartbeat_interval_ms / 1000
        due = self._loop.time() + interval_s
        while True:
            if self.is_changing and (self._is_gone or self._reader.is_idle()):
                return
            self._nudged.clear()
            try:
                async with asyncio.timeout_at(due):
                    await self._nudged.wait()
                continue
            except TimeoutError:
                pass
            if self._reader.is_absent():
                await self._stay_away()
                return
            await self._beat_once()
            due = self._loop.time() + interval_s

    async def _beat_once(self) -> None:
        """One heartbeat. What is wrong shows in the next join, unless the coordinator says it at once."""
        try:
            connection = await self._cluster.coordinator(self.group, timeout_s=self._options.session_timeout_ms / 1000)
            version = connection.version_of(HeartbeatRequest)
            response = await connection.request(
                HeartbeatRequest(
                    group_id=self.group,
                    generation_id=self.membership.generation,
                    member_id=self.membership.member_id,
                    group_instance_id=self.membership.instance_id if version >= STATIC_HEARTBEAT else None,
                ),
                version,
            )
        except ClientClosed:
            raise
        except ClientError as error:
            if not error.retriable:
                raise
            self._cluster.expire_coordinator(self.group)
            return
        code = response.error_code
        if code in GONE:
            _log.info("group %s: the coordinator does not know this member any more", self.group)
            self._is_gone = True
            self._change("its membership is over")
        elif code == ErrorCode.REBALANCE_IN_PROGRESS:
            self._change("others come or go")
        elif code in MOVED:
            self._cluster.expire_coordinator(self.group)
        elif code and not KafkaError(code).retriable:
            raise KafkaError(code, f"a heartbeat of group {self.group!r}")

    async def _stay_away(self) -> None:
        """The application does not come back: leaves, so that others may read, and joins again when it does."""
        _log.warning(
            "group %s: the application did not ask for records within max.poll.interval.ms (%d): this member leaves",
            self.group,
            self._options.max_poll_interval_ms,
        )
        self._is_gone = self.is_joining = True  # nothing can be committed from here on
        self._change("the application is away")
        if self.membership.instance_id is None:
            await self._leave("the application did not ask for records in time")
        while not self._reader.is_idle():
            self._nudged.clear()
            await self._nudged.wait()

    async def _leave(self, reason: str) -> None:
        """Tells the coordinator; if that fails, its session time-out tells it."""
        member_id = self.membership.member_id
        if not member_id:
            return
        self._forget(keep_id=False)
        try:
            timeout_s = self._options.request_timeout_ms / 1000
            async with asyncio.timeout(timeout_s):
                connection = await self._cluster.coordinator(self.group, timeout_s=timeout_s)
                version = connection.version_of(LeaveGroupRequest)
                if version >= SEVERAL_LEAVE:
                    leaving = LeaveGroupRequest.MemberIdentity(member_id=member_id, reason=reason)
                    request = LeaveGroupRequest(group_id=self.group, members=[leaving])
                else:
                    request = LeaveGroupRequest(group_id=self.group, member_id=member_id)
                await connection.request(request, version)
        except (ClientError, TimeoutError) as error:
            _log.debug("group %s: could not leave: %s", self.group, error)

    # Metadata

    def _metadata_came(self) -> None:
        """The leader has the group rebalance when a topic has more partitions than it assigned, or appears."""
        if self._counts is not None and not self.is_changing and self._counted(self._followed) != self._counts:
            self._change("topics have changed")
