"""Every API with an authorizer: the permissions it requires, and its response without one of them.

The test's authorizer denies exactly what it is configured to. The cases of `authorization_cases.py` are compared with
the router: an API without cases fails, and so does one that requires a permission not in its cases.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import cast

import pytest

from ottla_testing.broker.authorization_admin_cases import EVERY_ADMIN
from ottla_testing.broker.authorization_cases import Case, Right, World, shown, world_of
from ottla_testing.broker.authorization_group_cases import EVERY_GROUP
from ottla_testing.broker.authorization_share_cases import EVERY_SHARE
from ottla_testing.broker.authorization_streams_cases import EVERY_STREAMS
from ottla_testing.broker.authorization_topic_cases import EVERY_TOPIC
from ottla_testing.broker.denying_authorizer import Denying
from ottla_testing.broker.harness import running
from ottla_testing.broker.routes import ROUTES
from ottla_testing.each import each

CONFIGS = {
    "ottla.client.telemetry": "true",
    "unstable.api.versions.enable": "true",
    "transaction.two.phase.commit.enable": "true",
}
EVERY = (EVERY_TOPIC, EVERY_GROUP, EVERY_ADMIN, EVERY_SHARE, EVERY_STREAMS)
TABLE = {request_class: cases for part in EVERY for request_class, cases in part.items()}


def test_every_api_has_authorization_cases() -> None:
    assert {route.request_class for route in ROUTES.values()} == set(TABLE)
    assert len(TABLE) == sum(map(len, EVERY))


async def response_to(case: Case, world: World, denied: Collection[Right]) -> tuple[object, set[Right]]:
    authorizer = Denying(denied)
    world.broker.state.authorizer = authorizer
    try:
        response = await world.client.call(case.request(world), case.version)
    finally:
        world.broker.state.authorizer = None
    found = case.show(response) if case.show else shown(response, case.version)
    return found, authorizer.checked


@each(
    ("request_class", "number"),
    [
        pytest.param(request_class, number, id=f"{request_class.__name__.removesuffix('Request')}-{number}")
        for request_class, rows in TABLE.items()
        for number in range(len(rows))
    ],
    strided=True,
)
async def test_missing_authorization_returns_its_error_code(request_class: type, number: int, tmp_path: Path) -> None:
    """Regardless of other errors in a request; with all permissions the response is the same as without an
    authorizer.
    """
    case = TABLE[request_class][number]
    cases = [(_several(denied), expected) for denied, expected in case.denied.items()]
    rights = {right for several, _ in cases for right in several}
    everything = [*cases, ((), case.allowed)]
    worlds = [[one] for one in everything] if case.alone else [everything]
    for place, together in enumerate(worlds):
        async with running(tmp_path / str(place), overrides=CONFIGS) as broker:
            world = await world_of(broker)
            for denied, expected in together:
                found, sought = await response_to(case, world, denied)
                assert found == expected, denied
                internal = {right for right in sought if right[2].startswith("__")}
                assert case.reports_operations or sought - internal <= rights


def _several(denied: Right | tuple[Right, ...]) -> tuple[Right, ...]:
    return cast("tuple[Right, ...]", denied if isinstance(denied[0], tuple) else (denied,))
