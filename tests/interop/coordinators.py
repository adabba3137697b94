"""Requests to coordinators before `__consumer_offsets` and `__transaction_state` exist: Apache Kafka beside Ottla.

Each request is sent to both; then FindCoordinator, whose first response creates the topic. Compared are whole
responses, of FindCoordinator without the port. OffsetFetch v1 is left out: beside an error of the group Kafka 3.9 lists
no partitions in it, so that the error is lost.
"""

from __future__ import annotations

import time
from typing import Any

from side_by_side import PATIENCE_SECONDS, RELEASES, Pair, Side, both

from ottla.protocol.messages.groups.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.groups.list_groups import ListGroupsRequest
from ottla.protocol.messages.topics.metadata import MetadataRequest
from ottla_testing.broker.coordinator_requests import GROUP, REQUESTS, TRANSACTION
from ottla_testing.interop.checks import Check, Failed

OFFSET_FETCH_V1 = ("OffsetFetchRequest", 1)
FIRST_CODE = 15


def find(side: Side, key_type: int) -> list[Any]:
    """Returns the different responses to FindCoordinator up to the first without an error. Raises Failed if there is
    none."""
    found: list[Any] = []
    end = time.monotonic() + PATIENCE_SECONDS
    while not found or found[-1].error_code:
        result = side.client.call(FindCoordinatorRequest(key_type=key_type, key="g"), 1)
        result.port = min(result.port, 0)  # -1 without a node
        if not found or result != found[-1]:
            found.append(result)
        if time.monotonic() > end:
            raise Failed(f"{side.name} has no coordinator: {found}")
        time.sleep(0.01)
    return found


def topics(side: Side) -> list[str]:
    """Returns the names of all topics."""
    return sorted(topic.name for topic in side.client.call(MetadataRequest(topics=None), 1).topics)


def compare(pair: Pair) -> int:
    """Returns how many responses were compared. Raises Failed for the first that differs."""
    requested = [(request, version) for request, version, _ in REQUESTS]
    requested = [one for one in requested if (type(one[0]).__name__, one[1]) != OFFSET_FETCH_V1]
    requested.append((ListGroupsRequest(), 2))
    for request, version in requested:
        ours, theirs = (side.client.call(request, version) for side in (pair.ours, pair.theirs))
        if ours != theirs:
            raise Failed(f"{pair.release}: {type(request).__name__} v{version}: Kafka {theirs}, Ottla {ours}")
    if topics(pair.ours) != [] or topics(pair.theirs) != []:
        raise Failed(f"{pair.release}: topics were created by {topics(pair.theirs)}, {topics(pair.ours)}")
    for key_type in (GROUP, TRANSACTION):
        ours, theirs = find(pair.ours, key_type), find(pair.theirs, key_type)
        if ours != theirs or ours[0].error_code != FIRST_CODE:
            raise Failed(f"{pair.release}: FindCoordinator {key_type}: Kafka {theirs}, Ottla {ours}")
    if topics(pair.ours) != topics(pair.theirs):
        raise Failed(f"{pair.release}: topics are {topics(pair.theirs)}, ours {topics(pair.ours)}")
    return len(requested) + 2


def check(release: str) -> str:
    """Returns one line about the comparison."""
    with both(release, authorizer=False) as pair:
        return f"{compare(pair)} responses are the same"


CHECKS = [
    Check(f"coordinators before their topics as {release}", lambda release=release: check(release))
    for release in RELEASES
]
