"""Log line about a consumer whose group protocol is not served: it looks up its coordinator and sends no
group request.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from ottla.broker.groups.lookups import WAIT_MS
from ottla.broker.logs import get_logger
from ottla.protocol.messages.cluster.api_versions import ApiVersionsRequest
from ottla.protocol.messages.groups.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.groups.heartbeat import HeartbeatRequest
from ottla.protocol.messages.groups.offset_fetch import OffsetFetchRequest
from ottla.protocol.messages.records.fetch import FetchRequest
from ottla_testing.broker.harness import running

JAVA = ("apache-kafka-java", "4.3.1")
RDKAFKA = ("confluent-kafka-python", "2.16.1-rdkafka-2.16.0")
EVENT = "coordinator looked up and not used"


def find(group: str) -> FindCoordinatorRequest:
    return FindCoordinatorRequest(key_type=0, key=group)


async def lines(folder: Path, library: tuple[str, str], *after: Any, release: str = "3.6") -> list[Any]:
    """Returns the lines after a lookup by a client and these requests; and after another lookup if there was a line."""
    get_logger()
    with capture_logs() as events:
        async with running(folder, release=release) as broker:
            client = await broker.client()
            hello = ApiVersionsRequest(client_software_name=library[0], client_software_version=library[1])
            await client.call(hello, 3, "app")
            await client.call(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 4, "app")
            await client.call(find("g"), 2, "app")
            for request, version, client_id in after:
                await client.call(request, version, client_id)
            broker.clock.advance(WAIT_MS - 1)
            assert not [one for one in events if one["event"] == EVENT]
            broker.clock.advance(1)
            if [one for one in events if one["event"] == EVENT]:
                await client.call(find("g"), 2, "app")
                broker.clock.advance(WAIT_MS)
    return [one for one in events if one["event"] == EVENT]


@pytest.mark.parametrize("library", [JAVA, RDKAFKA, ("librdkafka", "2.8.0")])
async def test_lookup_without_group_requests_is_logged_once(tmp_path: Path, library: tuple[str, str]) -> None:
    (line,) = await lines(tmp_path, library)
    assert (line["group"], line["client_id"], line["log_level"]) == ("g", "app", "warning")
    assert (line["library"], line["library_version"]) == library
    assert "ConsumerGroupHeartbeat (KIP-848)" in line["reason"] and "group.protocol=classic" in line["reason"]


async def test_reason_leaves_out_consumer_groups_where_they_are_served(tmp_path: Path) -> None:
    (line,) = await lines(tmp_path, JAVA, release="4.1")
    assert "ConsumerGroupHeartbeat" not in line["reason"] and "ShareGroupHeartbeat" in line["reason"]


@pytest.mark.parametrize("release", ["4.2", "ottla"])
async def test_lookup_is_not_logged_where_all_group_protocols_are_served(tmp_path: Path, release: str) -> None:
    assert await lines(tmp_path, JAVA, release=release) == []


HEARTBEAT = HeartbeatRequest(group_id="g", generation_id=1, member_id="m", group_instance_id=None)
COMMITTED = OffsetFetchRequest(group_id="g", topics=None)
FETCH = FetchRequest(max_wait_ms=0, min_bytes=0, topics=[])


@pytest.mark.parametrize(
    ("library", "after"),
    [
        (JAVA, [(HEARTBEAT, 3, "app")]),
        (RDKAFKA, [(COMMITTED, 5, "app")]),
        (RDKAFKA, [(FETCH, 11, "app")]),
        (("apache-kafka-java", "3.6.0"), []),
        (("apache-kafka-java", "unknown"), []),
        (("aiokafka", "0.14.0"), []),
    ],
)
async def test_used_lookup_and_unaffected_libraries_are_not_logged(
    tmp_path: Path, library: tuple[str, str], after: list[Any]
) -> None:
    assert await lines(tmp_path, library, *after) == []


async def test_request_of_another_client_keeps_the_lookup_pending(tmp_path: Path) -> None:
    assert len(await lines(tmp_path, JAVA, (HEARTBEAT, 3, "other"))) == 1
