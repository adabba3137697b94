"""Every response with a throttle time field has the throttle time."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

from ottla.protocol.messages.records.produce import ProduceRequest
from ottla.protocol.messages.security.describe_acls import DescribeAclsRequest
from ottla.protocol.schema import empty_value
from ottla_testing.broker.harness import response_class, running
from ottla_testing.broker.quota_cases import set_quotas
from ottla_testing.broker.routes import ROUTES

# APIs whose responses have no such field.
WITHOUT = {"DescribeQuorum", "SaslHandshake", "SaslAuthenticate", "WriteTxnMarkers"}
WITHOUT |= {"DeleteShareGroupState", "InitializeShareGroupState", "ReadShareGroupState", "ReadShareGroupStateSummary"}
WITHOUT |= {"WriteShareGroupState"}


async def test_every_response_version_has_the_throttle_time(tmp_path: Path) -> None:
    """Requests without content: most are refused, which takes time as well."""
    reported: dict[str, set[int]] = {}
    async with running(tmp_path) as broker:
        await set_quotas(await broker.client(), {"client-id": "held"}, request_percentage=0.001)
        throttle = broker.state.quotas.throttle
        assert throttle is not None
        throttle.timer = itertools.count(1, 1_000_000_000).__next__
        for key, versions in broker.state.apis.served.items():
            route: Any = ROUTES[key]
            field = response_class(route.request_class)._fields.get("throttle_time_ms")  # type: ignore[attr-defined]
            client = await broker.client()
            for version in versions.range():
                request = empty_value(route.request_class)
                if isinstance(request, ProduceRequest):
                    request.acks = 1  # otherwise there is no response
                if isinstance(request, DescribeAclsRequest):  # zeros are not a valid filter, and close the connection
                    request.resource_type_filter = request.operation = request.permission_type = 1
                    request.pattern_type_filter = 1 if version else request.pattern_type_filter
                response = await client.call(request, version, "held")
                if field is not None and version in field.versions:
                    reported.setdefault(route.name, set()).add(response.throttle_time_ms)
                broker.clock.advance(1000)
            client.close()
        assert reported == {
            ROUTES[key].name: {1000} for key in broker.state.apis.served if ROUTES[key].name not in WITHOUT
        }
