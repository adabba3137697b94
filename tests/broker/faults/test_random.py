"""Random requests of every API under random rules: the division of requests, and a broker that stays consistent.

Each run uses another seed and prints it on failure; OTTLA_FUZZ_SEED repeats one.
"""

from __future__ import annotations

import copy
import os
import random
import struct
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import structlog

from ottla.broker import message_parts
from ottla.broker.faults import actions
from ottla.broker.faults.rule_set import Faults
from ottla.broker.faults.rules import Rule
from ottla.broker.logs import get_logger
from ottla.broker.message_parts import Place
from ottla.broker.network.router import apis_of
from ottla.broker.releases.profiles import own_profile
from ottla.protocol.compiler import build, parse
from ottla.protocol.schema import Value, group_of
from ottla_testing.broker.harness import (
    Closed,
    fetch,
    frame,
    only,
    ping,
    produce,
    read_response,
    records,
    running,
    values,
)
from ottla_testing.broker.routes import ROUTES
from ottla_testing.protocol.values import random_value

SERVED = apis_of(own_profile()).served
CASES = [(ROUTES[key], version) for key, versions in SERVED.items() for version in versions.range()]
CODES = [1, 3, 5, 6, 7, 16, 25, 56, 70, 1234]
IDS = {b"t" * 16: "t", b"u" * 16: "u"}
COUNTS = {"t": 2, "u": 1}


class Known:
    """Topics t and u."""

    def topic_name(self, id: bytes) -> str | None:
        return IDS.get(id)

    def topic_names(self) -> list[str]:
        return list(COUNTS)

    def partition_count(self, topic: str) -> int:
        return COUNTS.get(topic, 0)


def named(value: Any, chooser: random.Random, ids: list[bytes], name: str = "") -> Any:
    """A random value whose topics and partitions mostly exist."""
    if isinstance(value, Value):
        for field in value._fields:
            found = getattr(value, field)
            if isinstance(found, Value | list | str | bytes | int):
                setattr(value, field, named(found, chooser, ids, field))
        return value
    if isinstance(value, list):
        return [named(item, chooser, ids, name) for item in value]
    if name in ("name", "topic", "topic_names", "resource_name"):
        return chooser.choice(["t", "t", "u", "new"])
    if name == "topic_id" and value != bytes(16):
        return chooser.choice(ids)
    if name in ("partition", "partition_index", "partition_indexes", "index", "partitions", "resource_type"):
        return chooser.choice([0, 1, 2])
    if name in ("max_wait_ms", "session_timeout_ms", "rebalance_timeout_ms"):
        return 0
    if name in ("session_id", "session_epoch"):
        return chooser.choice([0, -1, 1])
    return chooser.choice([-1, 0, 1]) if name == "acks" else value


def leaves(value: Any, fields: list[str], about: tuple[Any, ...] = ()) -> Counter[tuple[Any, ...]]:
    """Counts the entries at the end of a path of lists, by their names and those above them."""
    found: Counter[tuple[Any, ...]] = Counter()
    for entry in getattr(value, fields[0]) or ():
        here = (*about, *names(entry))
        if len(fields) == 1:
            found[here] += 1
        else:
            found += leaves(entry, fields[1:], here)
    return found


def names(entry: Any) -> tuple[Any, ...]:
    if not isinstance(entry, Value):
        return (entry or "",)
    kinds = ("name", "topic", "topic_id", "partition_index", "index", "partition", "group_id", "key", "member_id")
    kinds += ("group_instance_id", "transactional_id", "resource_type", "resource_name")
    return tuple(getattr(entry, kind) or "" for kind in kinds if kind in entry._fields)


@pytest.fixture
def chooser() -> random.Random:
    seed = int(os.environ.get("OTTLA_FUZZ_SEED", random.randrange(1 << 32)))
    print(f"OTTLA_FUZZ_SEED={seed}")
    return random.Random(seed)


def test_divided_request_has_each_entry_once(chooser: random.Random, scaled: Callable[[int], int]) -> None:
    """Rules that divide a request lose no entry and repeat none, and both parts can be encoded."""
    divided_some = 0
    for _ in range(scaled(3000)):
        route, version = chooser.choice(CASES)
        shape = message_parts.shape_of(route.request_class, version)
        request = named(random_value(group_of(route.request_class, version), chooser), chooser, list(IDS))
        narrow = {"topic": chooser.random() < 0.7, "partition": chooser.random() < 0.3}
        code = chooser.choice(CODES)
        path = message_parts.place_of_error(shape, code, **narrow)
        assert path is not None
        rule = Rule(
            action=actions.error(code),
            topic=chooser.choice(["t", "u"]) if narrow["topic"] else None,
            partition=chooser.choice([0, 1]) if narrow["partition"] else None,
        )
        assert all(isinstance(place, Place) for place in message_parts.places(request, shape, Known()))
        if not message_parts.is_known(request, shape, path):
            continue
        before = copy.deepcopy(request)
        rest, refused = message_parts.divide(request, shape, path, code, rule.matches_place, Known())
        assert request == before, route.name
        for part in (rest, refused):
            if part is not None:
                assert build(part, version) == build(parse(type(part), version, build(part, version)), version)
        if not path:
            assert rest is None and refused.error_code == code
            continue
        requested = leaves(before, [level.request_list or "" for level in path])
        left = leaves(rest, [level.request_list or "" for level in path]) if rest is not None else Counter()
        responded = leaves(refused, [level.field for level in path]) if refused is not None else Counter()
        assert sum(requested.values()) == sum(left.values()) + sum(responded.values()), (route.name, version, before)
        assert not left - requested
        if not rule.is_narrow:
            assert not left
        if refused is not None and rest is not None:
            divided_some += 1
            other = copy.deepcopy(refused)
            message_parts.merge(other, refused, shape.levels)
            assert sum(leaves(other, [level.field for level in path]).values()) == 2 * sum(responded.values())
    assert divided_some


def random_rule(chooser: random.Random) -> Rule:
    action = chooser.choice(
        [
            actions.error(chooser.choice(CODES)),
            actions.error(chooser.choice(CODES)),
            actions.error(chooser.choice(CODES)),
            actions.delay(1, chooser.choice(["before", "after"])),
            actions.disconnect(chooser.choice(["before", "after"])),
            actions.truncate(chooser.randrange(40)),
            actions.wrong_crc(),
            actions.throttle(1),
        ]
    )
    api = None if action.name == "wrong_crc" or chooser.random() < 0.7 else chooser.choice(CASES)[0].name
    return Rule(
        action=action,
        api=api,
        topic=chooser.choice(["t", "u", "*", None]),
        partition=chooser.choice([0, 1, None, None]),
        client_id="test",
        probability=chooser.choice([1.0, 0.5]),
        times=chooser.choice([None, 3]),
        seed=chooser.randrange(100),
    )


@pytest.mark.soak
async def test_broker_with_random_rules_stays_consistent(
    tmp_path: Path, chooser: random.Random, scaled: Callable[[int], int]
) -> None:
    """Each response has the layout of its request's version, or the connection closes; entries without a matching rule
    are unaffected.
    """
    faults = Faults()
    responded = closed = 0
    get_logger()
    async with running(tmp_path / "data", faults=faults) as broker:
        ids = [await broker.topic("t", 2), await broker.topic("u"), b"?" * 16]
        await broker.topic("well")
        client, well = await broker.client(), await broker.client()
        with structlog.testing.capture_logs() as events:
            for number in range(scaled(1500)):
                if number % 10 == 0:
                    faults.clear()
                    for _ in range(chooser.randrange(1, 4)):
                        faults.add(random_rule(chooser))
                route, version = chooser.choice(CASES)
                if route.name in ("JoinGroup", "SyncGroup"):  # these may wait for other members
                    continue
                request = named(random_value(group_of(route.request_class, version), chooser), chooser, ids)
                sent = frame(request, version, number)
                read_class, read_version = route.request_class, version
                if route.name == "Produce" and request.acks == 0:
                    sent += struct.pack(">ihhih4s", 14, 18, 0, number, 4, b"ping")
                    read_class, read_version = ROUTES[18].request_class, 0
                try:
                    await client.send_bytes(sent)
                    response = await client.receive_bytes()
                except (Closed, ConnectionError):  # it may have been closed after a whole response
                    closed += 1
                    client.close()
                    client = await broker.client()
                else:
                    responded += 1
                    if not (route.name == "ApiVersions" and response[4:6] == b"\0\x23"):
                        assert read_response(response, read_class, read_version)[0] == number, (route.name, version)
                if number % 100 == 0:
                    before = broker.log("well").log_end_offset
                    appended = only(await well.call(produce(records(b"fine"), "well"), 9, "other"))
                    assert (appended.error_code, appended.base_offset) == (0, before)
                    fetched = only(await well.call(fetch(("well", 0, before)), 12, "other"))
                    assert values(fetched.records) == [b"fine"]
            faults.clear()
            assert (await well.call(ping(), 0)).error_code == 0
        errors = [event for event in events if event["log_level"] not in ("info", "debug", "warning")]
        assert not errors, errors
    assert responded > closed > 0
