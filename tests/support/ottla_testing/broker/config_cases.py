"""Cases of `test_apis.py` for resources with configs other than topics and brokers."""

from __future__ import annotations

from ottla.protocol.messages.configs.list_config_resources import ListConfigResourcesRequest
from ottla_testing.broker.api_cases import World, case

KEYS = frozenset({74})
CLIENT_METRICS, GROUP = 16, 32


@case(ListConfigResourcesRequest)
async def lists_what_has_configs(world: World, version: int) -> None:
    kept = world.broker.state.named_configs
    kept.set(CLIENT_METRICS, "m", {"interval.ms": "100"}, 0)
    kept.set(GROUP, "g", {"consumer.session.timeout.ms": "46000"}, 0)
    response = await world.client.call(ListConfigResourcesRequest(), version)
    found = [(one.resource_type, one.resource_name) for one in response.config_resources]
    everything = [(GROUP, "g"), (CLIENT_METRICS, "m"), (8, "1"), (4, "1"), (2, "t")]
    assert (response.error_code, found) == (0, everything if version else [(CLIENT_METRICS, "m")])
