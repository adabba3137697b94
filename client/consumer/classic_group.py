"""Membership of a consumer group by the classic protocol (KIP-62): join, assignment as leader, heartbeats, leave.

Owns the cycle of one member: join, sync, heartbeats until a rebalance, join again. All partitions are revoked before
each join (the eager protocol).
"""

from __future__ import annotations

import asyncio
import logging

from ...protocol.consumer_protocol import (
    ConsumerProtocolSubscription,
    assignment_bytes,
    read_assignment,
    read_subscription,
    subscription_bytes,
)
from ...protocol.errors import ErrorCode, MalformedMessage
from ...protocol.messages.groups.heartbeat import HeartbeatRequest
from ...protocol.messages.groups.join_group import JoinGroupRequest, JoinGroupResponse
from ...protocol.messages.groups.leave_group import LeaveGroupRequest
from ...protocol.messages.groups.sync_group import SyncGroupRequest
from ..net.cluster import Cluster
from ..net.connection import Connection
from ..net.errors import ClientClosed, ClientError, ConnectionLost, KafkaError, UnsupportedVersion
from ..net.metadata import by_topic
from .assignors import ASSIGNORS, Member
from .group import Group, Progress
from .group_offsets import MOVED
from .list_offsets import TopicPartition
from .options import ConsumerOptions

PROTOCOL_TYPE = "consumer"
NO_GENERATION = -1
STATIC_JOIN, STATIC_SYNC, STATIC_HEARTBEAT, SEVERAL_LEAVE = 5, 3, 3, 3
# JoinGroup v0 has no rebalance timeout, and brokers with v0 only allow sessions of at most 30 s.
V0_SESSION_MS = 30_000
JOIN_SLACK_MS = 5_000  # the response to a join may take the whole rebalance timeout
OLD_BROKER_TRIES = 3
GONE = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION)
_log = logging.getLogger("ottla.client")


class ClassicGroup(Group):
    """A member of the classic protocol."""

    def __init__(self, cluster: Cluster, options: ConsumerOptions, topics: list[str], progress: Progress) -> None:
        super().__init__(cluster, options, topics, progress)
        self._last_generation: int = NO_GENERATION
        self._counts: dict[str, int] | None = None  # of partitions in the leader's assignment; None for other members
        self._followed: frozenset[str] = frozenset(topics)
        self._closed_joins = 0
        self._joining_at: Connection | None = None
        cluster.add_listener(self._metadata_came)

    def is_current(self, generation: int) -> bool:
        return not self.is_joining and self.membership.generation == generation

    async def lost(self, code: int, generation: int) -> bool:
        """Implements `Group.lost`: joins again if the membership has ended."""
        if code in GONE:
            self._is_gone = True
            self._change("commit refused")
        elif code == ErrorCode.REBALANCE_IN_PROGRESS:
            self._change("commit during a rebalance")
        return False

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
        if self._joining_at is not None:
            self._joining_at.close()  # the broker sends no other response before that of the join
        await super().close()

    # The cycle of a member

    async def _cycle(self) -> None:
        await self._progress.revoke(self._is_gone)
        self.is_joining = True
        if self._is_gone:
            self._forget(keep_id=False)
        await self._until_joined()
        await self._beat()

    def _forget(self, *, keep_id: bool) -> None:
        self._is_gone = False
        self._last_generation: int = NO_GENERATION
        kept = self.membership.member_id if keep_id else ""
        self.membership = self.membership._replace(generation=NO_GENERATION, member_id=kept)

    async def _until_joined(self) -> None:
        """Joins, and retries after retriable errors."""
        while True:
            self._joining_at = None
            try:
                connection = await self._cluster.coordinator(self.group)
                if self.membership.instance_id is not None and connection.version_of(JoinGroupRequest) < STATIC_JOIN:
                    raise UnsupportedVersion("group.instance.id: the broker (before Kafka 2.3) has no static members")
                connection.version_of(SyncGroupRequest)
                self._joining_at = connection
                assigned = await self._join(connection)
                break
            except ClientClosed:
                raise
            except MalformedMessage as error:  # of another member's subscription, or of the assignment
                raise ClientError(str(error)) from error
            except ClientError as error:
                self._check_age(error)
                await self._met(error)
        self._joining_at = None
        self._attempts = self._closed_joins = 0
        self._fetcher.assign(assigned)
        self._settle()
        _log.debug("group %s: generation %d, assigned %s", self.group, self.membership.generation, assigned)

    def _check_age(self, error: ClientError) -> None:
        """Detects a broker before Kafka 0.9: it has no ApiVersions and closes the connection at each join."""
        if isinstance(error, ConnectionLost) and self._joining_at is not None and not self._joining_at.has_negotiated:
            self._closed_joins += 1
            if self._closed_joins >= OLD_BROKER_TRIES:
                raise UnsupportedVersion(
                    "the broker (before Kafka 0.9) has no group membership: use `assign` instead of `topics`,"
                    " offsets can still be committed"
                ) from error

    async def _met(self, error: ClientError) -> None:
        """Handles a failed join: raises fatal errors, otherwise waits for the back-off."""
        code = error.code if isinstance(error, KafkaError) else None
        if code == ErrorCode.MEMBER_ID_REQUIRED:
            return
        if code in GONE:
            self._forget(keep_id=code == ErrorCode.ILLEGAL_GENERATION)
        elif code != ErrorCode.REBALANCE_IN_PROGRESS and not error.retriable:
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
        # Without user data and rack, as the Java client writes it; brokers do not parse it.
        subscription = ConsumerProtocolSubscription(topics=sorted(self._topics), generation_id=self._last_generation)
        metadata = subscription_bytes(subscription)
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
            raise KafkaError(response.error_code, f"join of group {self.group!r}")
        self.membership = self.membership._replace(generation=response.generation_id, member_id=response.member_id)
        self._last_generation = response.generation_id
        self._counts = None
        assignments: dict[str, bytes] = {}
        if response.leader == response.member_id:
            assignments = await self._assignments(response)
        else:
            self._fetcher.follow(frozenset(self._topics))
        return await self._sync(connection, response, assignments)

    async def _assignments(self, joined: JoinGroupResponse) -> dict[str, bytes]:
        """Computes the assignments as the leader. Empty if the group keeps its assignment (KIP-814)."""
        members = [
            Member(member.member_id, read_subscription(member.metadata).topics, member.group_instance_id)
            for member in joined.members
        ]
        self._followed = topics = frozenset[str]().union(self._topics, *(member.topics for member in members))
        self._fetcher.follow(topics)
        await self._cluster.refresh(topics)
        self._counts = self._counted(topics)
        if joined.skip_assignment:
            return {}
        assignor = ASSIGNORS.get(joined.protocol_name or "")
        if assignor is None:
            raise ClientError(f"the group chose the assignor {joined.protocol_name!r}, which this member does not have")
        assigned = assignor(members, self._counts)
        return {who: assignment_bytes(by_topic(sorted(partitions)).items()) for who, partitions in assigned.items()}

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
            raise KafkaError(response.error_code, f"assignment of group {self.group!r}")
        found = read_assignment(response.assignment).assigned_partitions
        return [(one.topic, index) for one in found for index in one.partitions]

    # Heartbeats

    async def _beat(self) -> None:
        """Sends heartbeats until this member must join again and its records are processed."""
        interval_s = self._options.heartbeat_interval_ms / 1000
        due = self._loop.time() + interval_s
        while True:
            if self.is_changing and (self._is_gone or not self._progress.held):
                return
            if not await self._until_due(due):
                continue
            if self._progress.is_absent():
                await self._stay_away()
                return
            await self._beat_once()
            due = self._loop.time() + interval_s

    async def _beat_once(self) -> None:
        """Sends a heartbeat. Raises a fatal error; others start a new join or are retried with the next heartbeat."""
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
            _log.info("group %s: member removed by the coordinator", self.group)
            self._is_gone = True
            self._change("membership ended")
        elif code == ErrorCode.REBALANCE_IN_PROGRESS:
            self._change("rebalance")
        elif code in MOVED:
            self._cluster.expire_coordinator(self.group)
        elif code and not KafkaError(code).retriable:
            raise KafkaError(code, f"heartbeat of group {self.group!r}")

    async def _leave(self, reason: str) -> None:
        member_id = self.membership.member_id
        if not member_id or self.membership.instance_id is not None:
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
            _log.debug("group %s: leave failed: %s", self.group, error)

    # Metadata

    def _metadata_came(self) -> None:
        """Starts a rebalance, as the leader, when a topic was created or has more partitions than assigned."""
        if self._counts is not None and not self.is_changing and self._counted(self._followed) != self._counts:
            self._change("topics changed")
