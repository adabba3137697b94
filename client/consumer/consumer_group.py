"""Membership of a consumer group by the consumer protocol (KIP-848): the coordinator assigns, members reconcile.

Owns the cycle of one member: join with a heartbeat at epoch 0, then heartbeats with what has changed. An assignment is
taken over in steps: partitions that are not in it are revoked when the application has processed its records; then the
others are added, and the next heartbeat confirms what the member owns. The intervals are those of the coordinator.
"""

from __future__ import annotations

import asyncio
import base64
import logging
from uuid import uuid4

from ...protocol.errors import ErrorCode
from ...protocol.messages.groups.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from ..net.cluster import Cluster
from ..net.connection import Connection
from ..net.errors import ClientClosed, ClientError, ConnectionLost, KafkaError, UnsupportedVersion
from ..net.metadata import by_topic
from .group import Group, Progress
from .group_offsets import MOVED
from .list_offsets import TopicPartition
from .options import ConsumerOptions

JOIN, LEAVE, STATIC_LEAVE = 0, -1, -2
GONE = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH)
_log = logging.getLogger("ottla.client")


class ConsumerGroup(Group):
    """A member of the consumer protocol."""

    def __init__(self, cluster: Cluster, options: ConsumerOptions, topics: list[str], progress: Progress) -> None:
        super().__init__(cluster, options, topics, progress)
        member_id = base64.urlsafe_b64encode(uuid4().bytes).decode().rstrip("=")
        self.membership = self.membership._replace(generation=JOIN, member_id=member_id)
        self._owned: frozenset[TopicPartition] = frozenset()
        self._target: dict[bytes, frozenset[int]] | None = None  # None: the assignment is taken over
        self._is_whole = True  # the next heartbeat has all fields, since a response was lost or the member is new
        self._confirms = False  # the next heartbeat has the owned partitions, which have changed
        self._due_s = 0.0  # of the next heartbeat, in the time of the loop
        self._beating = asyncio.Lock()
        cluster.add_listener(self._nudged.set)

    def is_current(self, generation: int) -> bool:
        """Implements `Group.is_current`: an epoch may pass while the member keeps its partitions."""
        return not self.is_joining

    async def lost(self, code: int, generation: int) -> bool:
        """Implements `Group.lost`: sends again with the epoch of a heartbeat that was in flight."""
        if code in GONE:
            self._is_gone = True
            self._change("commit refused")
        if code != ErrorCode.STALE_MEMBER_EPOCH:
            return False
        async with self._beating:
            return not self.is_joining and self.membership.generation != generation

    # The cycle of a member

    async def _cycle(self) -> None:
        self._due_s = self._loop.time()
        while not self._is_gone:
            await self._reconcile()
            if not await self._until_due(self._due_s):
                continue
            if self._progress.is_absent():
                await self._stay_away()
                break
            delay_s = await self._beat()
            self._due_s = self._loop.time() + delay_s
        await self._progress.revoke(is_lost=True)
        self.is_joining = True
        self._forget()

    def _forget(self) -> None:
        self._is_gone = False
        self._owned = frozenset()
        self._target = None
        self._is_whole, self._confirms = True, False
        self.membership = self.membership._replace(generation=JOIN)

    async def _reconcile(self) -> None:
        """Takes over the assignment, as far as the topics of its ids are known and the application has processed the
        records of the partitions to revoke.
        """
        if self._target is None:
            return
        names = {topic.id: name for name, topic in self._cluster.topics.items()}
        found = frozenset(
            (names[id], index) for id, indexes in self._target.items() if id in names for index in indexes
        )
        if self._owned - found:
            self._change("partitions to revoke")
            if self._progress.held:
                return
            await self._progress.revoke(is_lost=False, kept=self._owned & found)
        if all(id in names for id in self._target):
            self._target = None
        else:
            for topic in self._topics:
                self._cluster.expire(topic)
        if found != self._owned or self.is_changing:
            if found != self._owned:
                self._confirms, self._due_s = True, self._loop.time()
            self._owned = found
            self._fetcher.assign(sorted(found))
            _log.debug("group %s: epoch %d, assigned %s", self.group, self.membership.generation, sorted(found))
        self._settle()

    # Heartbeats

    async def _beat(self) -> float:
        """Sends a heartbeat, and returns the time until the next in seconds. Raises a fatal error."""
        try:
            async with self._beating:
                connection = await self._cluster.coordinator(self.group)
                response = await self._sent(connection)
        except ClientClosed:
            raise
        except ClientError as error:
            if not error.retriable:
                raise
            if isinstance(error, ConnectionLost) or (isinstance(error, KafkaError) and error.code in MOVED):
                self._cluster.expire_coordinator(self.group)
            self._is_whole = True
            self._attempts += 1
            return self._cluster.retry_backoff_s(self._attempts)
        self._attempts = 0
        return response.heartbeat_interval_ms / 1000

    async def _sent(self, connection: Connection) -> ConsumerGroupHeartbeatResponse:
        try:
            version = connection.version_of(ConsumerGroupHeartbeatRequest)
        except UnsupportedVersion as error:
            raise UnsupportedVersion(
                "group_protocol=consumer: the broker (before Kafka 4.0, or with group.version=0) does not have it"
            ) from error
        options, whole, member = self._options, self._is_whole, self.membership
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group,
            member_id=member.member_id,
            member_epoch=member.generation,
            instance_id=member.instance_id if whole else None,
            rebalance_timeout_ms=options.max_poll_interval_ms if whole else -1,
            subscribed_topic_names=sorted(self._topics) if whole else None,
            server_assignor=options.group_remote_assignor if whole else None,
            topic_partitions=self._owned_ids() if whole or self._confirms else None,
        )
        self._is_whole = True  # until the response has come
        response: ConsumerGroupHeartbeatResponse = await connection.request(request, version)
        code = response.error_code
        if code in GONE:
            _log.info("group %s: member removed by the coordinator: %s", self.group, response.error_message)
            self._is_gone = True
            self._change("membership ended")
            return response
        if code:
            raise KafkaError(code, response.error_message or f"heartbeat of group {self.group!r}")
        self._is_whole = self._confirms = False
        self.membership = member._replace(generation=response.member_epoch)
        if response.assignment is not None:
            self._target = {
                topic.topic_id: frozenset(topic.partitions) for topic in response.assignment.topic_partitions
            }
        return response

    def _owned_ids(self) -> list[ConsumerGroupHeartbeatRequest.TopicPartitions]:
        return [
            ConsumerGroupHeartbeatRequest.TopicPartitions(topic_id=self._cluster.topics[topic].id, partitions=indexes)
            for topic, indexes in by_topic(sorted(self._owned)).items()
            if topic in self._cluster.topics
        ]

    async def _leave(self, reason: str) -> None:
        """Implements `Group._leave`: a static member announces that it will return."""
        member = self.membership
        if member.generation <= JOIN:
            return
        self.membership = member._replace(generation=JOIN)
        try:
            timeout_s = self._options.request_timeout_ms / 1000
            async with asyncio.timeout(timeout_s):
                connection = await self._cluster.coordinator(self.group, timeout_s=timeout_s)
                request = ConsumerGroupHeartbeatRequest(
                    group_id=self.group,
                    member_id=member.member_id,
                    member_epoch=LEAVE if member.instance_id is None else STATIC_LEAVE,
                    instance_id=member.instance_id,
                )
                await connection.request(request, connection.version_of(ConsumerGroupHeartbeatRequest))
        except (ClientError, TimeoutError) as error:
            _log.debug("group %s: leave failed (%s): %s", self.group, reason, error)
