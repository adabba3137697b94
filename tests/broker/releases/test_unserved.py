"""The log line about a request that is not served: by API key, version and release."""

from __future__ import annotations

import pytest

from ottla.broker.network.router import apis_of
from ottla.broker.network.unserved import unserved_text
from ottla.broker.releases.profiles import OWN, profile


@pytest.mark.parametrize(
    ("release", "key", "version", "text"),
    [
        (OWN, 999, 1, "API key 999 is not served: no release of Kafka has it"),
        (OWN, 3, 99, "Metadata v99 is not served, but v0 to v13"),
        ("0.8.2", 3, 1, "Metadata v1 is not served, but v0"),
        ("4.0", 1, 2, "Fetch v2 is not served, but v4 to v17"),
        ("2.0", 60, 0, "DescribeCluster (API key 60) is not served: release 2.0 does not have it, but 2.8 to 4.4"),
        (OWN, 72, 0, "PushTelemetry (API key 72) is not served: it needs the config ottla.client.telemetry=true"),
        ("2.0", 72, 0, "PushTelemetry (API key 72) is not served: release 2.0 does not have it, but 3.7 to 4.4"),
        (
            "4.3",
            68,
            2,
            "ConsumerGroupHeartbeat v2 is not served, but v0 to v1",
        ),
        ("4.3", 88, 1, "StreamsGroupHeartbeat v1 is not served, but v0"),
        (OWN, 4, 1, "LeaderAndIsr (API key 4) is not served: between brokers and controllers; clients do not need it"),
    ],
)
def test_unserved_request_is_logged_with_advice(release: str, key: int, version: int, text: str) -> None:
    played = profile(release)
    assert unserved_text(key, version, apis_of(played).served, played) == text
