"""Detects consumers that look up their group coordinator but never use it: they expect a group protocol that is not
served.

In profiles without KIP-1071 a client with `group.protocol=streams`, and without KIP-848 one with
`group.protocol=consumer`, learns from ApiVersions that this broker does not serve its heartbeat API. The Java client
then fails; librdkafka repeats FindCoordinator and reports nothing. Neither sends a request that the broker could
refuse. Owns the detection, its limits and the log line.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ...protocol.named import NamedTuple
from ..logs import get_logger

if TYPE_CHECKING:
    from ..clock import Clock
    from ..connection_info import ConnectionInfo

WAIT_MS = 20_000  # more than the longest interval between the heartbeats of a member that owns no partitions
MAX_CLIENTS = 1_000  # bounds the memory
# Client libraries with these protocols, by their names under KIP-511.
WITHOUT_NEW_GROUPS = (
    "ConsumerGroupHeartbeat (KIP-848), ShareGroupHeartbeat and StreamsGroupHeartbeat are not served: if the client has "
    "group.protocol=consumer or streams, set group.protocol=classic"
)
WITH_CONSUMER_GROUPS = (
    "ShareGroupHeartbeat and StreamsGroupHeartbeat are not served: if the client has group.protocol=streams, set "
    "group.protocol=classic"
)
JAVA, JAVA_SINCE = "apache-kafka-java", (3, 7)
LIBRDKAFKA = "rdkafka"  # in the name, or in the version as in `2.16.1-rdkafka-2.16.0`


class _Client(NamedTuple):
    """Identity of a consumer across its connections."""

    host: str
    client_id: str
    library: str | None


class Lookups:
    """Clients that looked up a coordinator and have since sent neither a group request nor a Fetch."""

    def __init__(self, waits: Clock, *, unserved: Callable[[], str | None]) -> None:
        """`unserved` returns the reason to log, one of those above; None if all protocols are served."""
        self._waits = waits
        self._unserved = unserved
        self.waiting: dict[_Client, str] = {}
        """The group that each client looked up."""
        self._logged: set[tuple[_Client, str]] = set()

    def looked_up(self, connection_info: ConnectionInfo, client_id: str, group: str) -> None:
        """Records a successful FindCoordinator for a group."""
        if len(self.waiting) >= MAX_CLIENTS or not _knows_new_protocols(connection_info) or self._unserved() is None:
            return
        client = _client(connection_info, client_id)
        if client not in self.waiting and (client, group) not in self._logged:
            self.waiting[client] = group
            self._waits.call_at(self._waits.now_ms() + WAIT_MS, lambda: self._unused(client, connection_info))

    def used(self, connection_info: ConnectionInfo, client_id: str) -> None:
        """Records a group request or a Fetch. Only called while `waiting` is not empty."""
        self.waiting.pop(_client(connection_info, client_id), None)

    def _unused(self, client: _Client, connection_info: ConnectionInfo) -> None:
        group = self.waiting.pop(client, None)
        if group is None:
            return
        if len(self._logged) >= MAX_CLIENTS:
            self._logged.clear()
        self._logged.add((client, group))
        get_logger().warning(
            "coordinator looked up and not used",
            group=group,
            reason=self._unserved(),
            **connection_info.log_fields(),
        )


def _client(connection_info: ConnectionInfo, client_id: str) -> _Client:
    return _Client(connection_info.client_host, client_id, connection_info.library.software_name)


def _knows_new_protocols(connection_info: ConnectionInfo) -> bool:
    name, version = connection_info.library.software_name or "", connection_info.library.software_version or ""
    if name == JAVA:
        numbers = version.split(".")[:2]
        return all(part.isdigit() for part in numbers) and tuple(map(int, numbers)) >= JAVA_SINCE
    return LIBRDKAFKA in name or LIBRDKAFKA in version
