"""Consumers that look up their group's coordinator and then do not use it: a sign of a group protocol that is not
served.

A client with `group.protocol=consumer` (KIP-848) or `streams` (KIP-1071), and a share consumer (KIP-932), sees in the
response to ApiVersions that this broker does not serve its heartbeat. Java's client then fails, librdkafka looks the
coordinator up again and again and reports nothing; neither sends a request that the broker could refuse. Owns the
watch, its bounds and the log line.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ..logs import get_logger

if TYPE_CHECKING:
    from ..clock import Clock
    from ..connection_info import Arrival

WAIT_MS = 5_000  # a classic consumer joins within milliseconds
WATCHED_MAX = 1_000
# Client libraries that know these protocols, by the names of KIP-511.
JAVA, JAVA_SINCE = "apache-kafka-java", (3, 7)
LIBRDKAFKA = "rdkafka"  # part of the name, or as in `2.16.1-rdkafka-2.16.0` of the version


class _Client(NamedTuple):
    """What requests of one consumer have in common, on whichever connection they come."""

    host: str
    client_id: str
    library: str | None


class Lookups:
    """The clients that looked up a coordinator and have made no request of groups and no Fetch since."""

    def __init__(self, waits: Clock) -> None:
        self._waits = waits
        self.waiting: dict[_Client, str] = {}
        """Client -> the group that it asked for."""
        self._logged: set[tuple[_Client, str]] = set()

    def looked_up(self, arrival: Arrival, client_id: str, group: str) -> None:
        """A FindCoordinator for a group is answered with its coordinator."""
        if not _knows_new_protocols(arrival) or len(self.waiting) >= WATCHED_MAX:
            return
        client = _client(arrival, client_id)
        if client not in self.waiting and (client, group) not in self._logged:
            self.waiting[client] = group
            self._waits.call_at(self._waits.now_ms() + WAIT_MS, lambda: self._unused(client, arrival))

    def used(self, arrival: Arrival, client_id: str) -> None:
        """A request of groups or a Fetch is handled. Called only while any client is waited for."""
        self.waiting.pop(_client(arrival, client_id), None)

    def _unused(self, client: _Client, arrival: Arrival) -> None:
        group = self.waiting.pop(client, None)
        if group is None:
            return
        if len(self._logged) >= WATCHED_MAX:
            self._logged.clear()
        self._logged.add((client, group))
        get_logger().warning(
            "coordinator looked up and not used",
            group=group,
            reason="ConsumerGroupHeartbeat (KIP-848), ShareGroupHeartbeat and StreamsGroupHeartbeat are not served: "
            "if the client has group.protocol=consumer or streams, set group.protocol=classic",
            **arrival.log_fields(),
        )


def _client(arrival: Arrival, client_id: str) -> _Client:
    return _Client(arrival.client_host, client_id, arrival.origin.software_name)


def _knows_new_protocols(arrival: Arrival) -> bool:
    name, version = arrival.origin.software_name or "", arrival.origin.software_version or ""
    if name == JAVA:
        numbers = version.split(".")[:2]
        return all(part.isdigit() for part in numbers) and tuple(map(int, numbers)) >= JAVA_SINCE
    return LIBRDKAFKA in name or LIBRDKAFKA in version
