"""Runs calls of the admin client with a simulated network, whose brokers respond in turn."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from ottla.client.admin.admin import Admin
from ottla_testing.client.scripted import ScriptedNetwork

TWO = {1: ("one", 9092), 2: ("two", 9092)}


def run(network: ScriptedNetwork, call: Callable[[Admin], Any], **options: Any) -> tuple[Any, float]:
    """Returns a call's result or exception, and how many seconds it took."""

    async def main() -> tuple[Any, float]:
        async with Admin("one", random=random.Random(1), **options) as admin:
            since = network.loop.time()
            try:
                respond = await call(admin)
            except Exception as error:
                respond = error
            return respond, network.loop.time() - since

    return network.run(main())


def in_turn(*responses: Any) -> Callable[..., Any]:
    """Returns each response once, the last one again and again; functions are called with the request."""
    left = list(responses)

    def respond(request: Any, version: int, link: Any) -> Any:
        found = left.pop(0) if len(left) > 1 else left[0]
        return found(request) if callable(found) else found

    return respond
