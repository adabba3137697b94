"""A member of a share group on the wire itself, with the interface of `ports`: it shows its sessions and its errors."""

from __future__ import annotations

import itertools
import socket
import struct
import time
import uuid
from typing import Any

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.configs.incremental_alter_configs import IncrementalAlterConfigsRequest
from ottla.protocol.messages.share.parts import AcknowledgementBatch
from ottla.protocol.messages.share.share_acknowledge import ShareAcknowledgeRequest
from ottla.protocol.messages.share.share_fetch import ShareFetchRequest
from ottla.protocol.messages.share.share_group_heartbeat import ShareGroupHeartbeatRequest
from ottla.protocol.messages.topics.metadata import MetadataRequest
from ottla_testing.broker.harness import frame, read_response
from ottla_testing.broker.sharing import delivery_of
from ottla_testing.history.ports import Acks, Joining, Lost, Results, SharedRecords
from ottla_testing.history.shares import GAP, RENEW

TIMEOUT_S = 5.0
HEARTBEAT_S = 0.3
PAUSE_S = 0.05
MOST_RECORDS, MOST_BYTES = 40, 1 << 20
REJOIN = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.GROUP_ID_NOT_FOUND)
GAP_S = 1.0  # less than a lock
GROUP_CONFIGS = 32  # the type of a config resource
Place = tuple[bytes, int]


class Wire:
    """A connection with one request at a time. Raises Lost."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._ids = itertools.count(1)
        try:
            self._socket = socket.create_connection((host, int(port)), TIMEOUT_S)
        except OSError as error:
            raise Lost(error) from None

    def call(self, request: Any, version: int) -> Any:
        number = next(self._ids)
        try:
            self._socket.sendall(frame(request, version, number))
            (size,) = struct.unpack(">i", self._receive(4))
            correlation_id, response = read_response(self._receive(size), type(request), version)
        except OSError as error:
            raise Lost(error) from None
        assert correlation_id == number
        return response

    def _receive(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            part = self._socket.recv(size - len(data))
            if not part:
                raise ConnectionError("closed by the broker")
            data += part
        return bytes(data)

    def close(self) -> None:
        self._socket.close()


class Sharing:
    """A member with one session at a time. After Lost, `ready` begins another one."""

    def __init__(self, address: str, joining: Joining) -> None:
        self._address, self._joining = address, joining
        self._member = str(uuid.uuid4())
        self._wire: Wire | None = None
        self._sessions = 0
        self._epoch = 0
        self._member_epoch = 0
        self._is_full = True
        self._beat_at = self._fetched_at = 0.0
        self._assigned: list[Place] = []
        self._fetched: list[Place] = []
        self._names: dict[bytes, str] = {}
        self._gaps: dict[Place, dict[int, float]] = {}  # the second of the fetch by offset

    @property
    def session(self) -> str:
        return f"{self._member}/{self._sessions}"

    def ready(self) -> None:
        """Connects, joins and sends heartbeats, as far as that is due."""
        if self._wire is None:
            self._wire = Wire(self._address)
            self.reopen()
        if time.monotonic() - self._beat_at >= HEARTBEAT_S or not self._assigned:
            self._beat()

    def reopen(self) -> None:
        """Begins another session, also on the same connection."""
        self._sessions += 1
        self._epoch = 0
        self._fetched, self._gaps = [], {}

    def _call(self, request: Any, version: int) -> Any:
        if self._wire is None:
            raise Lost("not connected")
        try:
            return self._wire.call(request, version)
        except Lost:
            self._disconnect()
            raise

    def _disconnect(self) -> None:
        if self._wire is not None:
            self._wire.close()
            self._wire = None
            self._is_full = True

    def _beat(self) -> None:
        group, topics, _, _ = self._joining
        # A full request after a lost response, as clients send it: otherwise the assignment in it would be lost.
        names = topics if self._member_epoch == 0 or self._is_full else None
        request = ShareGroupHeartbeatRequest(
            group_id=group, member_id=self._member, member_epoch=self._member_epoch, subscribed_topic_names=names
        )
        response = self._call(request, 1)
        self._beat_at = time.monotonic()
        self._is_full = False
        if response.error_code in REJOIN:
            self._member_epoch, self._assigned = 0, []
        elif response.error_code == ErrorCode.NONE:
            self._member_epoch = response.member_epoch
            if response.assignment is not None:
                parts = response.assignment.topic_partitions
                self._assigned = [(topic.topic_id, index) for topic in parts for index in topic.partitions]
        if any(topic_id not in self._names for topic_id, _ in self._assigned):
            found = self._call(MetadataRequest(topics=None), 12)
            self._names = {topic.topic_id: topic.name for topic in found.topics}

    def fetch(self, seconds: float, acks: Acks | None = None) -> tuple[SharedRecords, Results]:
        """Acquires records, and acknowledges others with the same request."""
        made = ShareFetchRequest.FetchTopic
        given = acks or ({self._name(place): {} for place in self._gaps} if self._epoch else {})
        batches = self._batches(given, AcknowledgementBatch)
        added = [place for place in self._assigned if place not in self._fetched]
        gone = [place for place in self._fetched if place not in self._assigned]
        topics: dict[bytes, list[Any]] = {}
        for topic_id, index in dict.fromkeys((*added, *batches)):
            given = batches.get((topic_id, index), [])
            topics.setdefault(topic_id, []).append(
                made.FetchPartition(partition_index=index, acknowledgement_batches=given)
            )
        request = ShareFetchRequest(
            group_id=self._joining.group,
            member_id=self._member,
            share_session_epoch=self._epoch,
            max_wait_ms=int(seconds * 1000),
            min_bytes=1,
            max_bytes=MOST_BYTES,
            max_records=MOST_RECORDS,
            batch_size=MOST_RECORDS,
            topics=[made(topic_id=topic_id, partitions=parts) for topic_id, parts in topics.items()],
            forgotten_topics_data=[
                ShareFetchRequest.ForgottenTopic(topic_id=topic_id, partitions=[index]) for topic_id, index in gone
            ],
        )
        self._fetched_at = time.monotonic()
        response = self._advanced(self._call(request, 2))
        self._fetched = list(self._assigned)
        records: SharedRecords = {}
        results: Results = {}
        for topic in response.responses:
            for data in topic.partitions:
                place = topic.topic_id, data.partition_index
                if place in batches:
                    results[self._name(place)] = _error(data.acknowledge_error_code)
                if data.acquired_records:
                    records[self._name(place)] = self._taken(place, data)
                elif data.error_code:  # without a leader: clients send a metadata request
                    time.sleep(PAUSE_S)
        return records, results

    def _taken(self, place: Place, data: Any) -> list[tuple[int, bytes, int]]:
        """Returns the records of a partition; acquired offsets without one are acknowledged as gaps later."""
        ranges, values = delivery_of(data)
        counts = {offset: count for first, last, count in ranges for offset in range(first, last + 1)}
        gaps = self._gaps.setdefault(place, {})
        gaps |= {offset: self._fetched_at for offset in counts if offset not in values}
        return [(offset, value or b"", counts[offset]) for offset, value in values.items()]

    def acknowledge(self, acks: Acks) -> Results:
        """Acknowledges records."""
        made = ShareAcknowledgeRequest.AcknowledgeTopic
        topics: dict[bytes, list[Any]] = {}
        batches = self._batches(acks, AcknowledgementBatch)
        for (topic_id, index), given in batches.items():
            topics.setdefault(topic_id, []).append(
                made.AcknowledgePartition(partition_index=index, acknowledgement_batches=given)
            )
        renews = any(kind == RENEW for kinds in acks.values() for kind in kinds.values())
        request = ShareAcknowledgeRequest(
            group_id=self._joining.group,
            member_id=self._member,
            share_session_epoch=self._epoch,
            is_renew_ack=renews,
            topics=[made(topic_id=topic_id, partitions=parts) for topic_id, parts in topics.items()],
        )
        response = self._advanced(self._call(request, 2))
        return {
            self._name((topic.topic_id, data.partition_index)): _error(data.error_code)
            for topic in response.responses
            for data in topic.partitions
        }

    def _batches(self, acks: Acks, made: Any) -> dict[Place, list[Any]]:
        """Returns a batch for each offset; gaps go with other offsets of their partition, unless these are renewed, or
        left alone if their lock may be over.
        """
        ids = {name: topic_id for topic_id, name in self._names.items()}
        batches: dict[Place, list[Any]] = {}
        for partition, kinds in acks.items():
            topic, _, index = partition.rpartition("-")
            place = ids[topic], int(index)
            gaps = {} if RENEW in kinds.values() else self._gaps.pop(place, {})
            alive = [offset for offset, at in gaps.items() if time.monotonic() - at < GAP_S]
            given = sorted({**dict.fromkeys(alive, GAP), **kinds}.items())
            batches[place] = [made(first_offset=o, last_offset=o, acknowledge_types=[kind]) for o, kind in given]
        return batches

    def _advanced(self, response: Any) -> Any:
        if response.error_code != ErrorCode.NONE:
            self.reopen()
            raise Lost(ErrorCode(response.error_code).name)
        self._epoch += 1
        return response

    def _name(self, place: Place) -> str:
        return f"{self._names[place[0]]}-{place[1]}"

    def end(self) -> None:
        """Ends the session, which releases all records, and keeps the connection."""
        request = ShareAcknowledgeRequest(
            group_id=self._joining.group, member_id=self._member, share_session_epoch=-1, topics=[]
        )
        self._call(request, 2)
        self.reopen()

    def break_off(self) -> None:
        """Closes the connection without a word."""
        self._disconnect()

    def close(self) -> None:
        """Leaves the group and closes the connection."""
        try:
            if self._epoch:
                self.end()
            request = ShareGroupHeartbeatRequest(
                group_id=self._joining.group, member_id=self._member, member_epoch=-1, subscribed_topic_names=None
            )
            self._call(request, 1)
        except Lost:
            pass
        self._disconnect()


def configure_sharing(address: str, group: str, isolation: str) -> None:
    """Lets a share group begin at the first offset, and sets its isolation."""
    made = IncrementalAlterConfigsRequest.AlterConfigsResource
    values = {"share.auto.offset.reset": "earliest", "share.isolation.level": isolation}
    configs = [made.AlterableConfig(name=name, config_operation=0, value=value) for name, value in values.items()]
    wire = Wire(address)
    resource = made(resource_type=GROUP_CONFIGS, resource_name=group, configs=configs)
    (response,) = wire.call(IncrementalAlterConfigsRequest(resources=[resource], validate_only=False), 1).responses
    wire.close()
    assert response.error_code == ErrorCode.NONE, response


def _error(code: int) -> str | None:
    return None if code == ErrorCode.NONE else ErrorCode(code).name
