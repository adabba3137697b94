"""The shop's upkeep: topics, their configs and partitions, and what groups have committed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from shop.wire import Wire

Until = Callable[..., None]


def names(broker: Any) -> set[str]:
    """Returns the names of the broker's topics."""
    return {topic.name for topic in broker.topics()}


def test_topic_is_created_with_partitions_and_configs(wire: Wire, ottla_broker: Any, ottla_topic: str) -> None:
    admin = wire.admin()
    admin.create(made := f"{ottla_topic}-made", 3, {"retention.ms": "60000"})
    assert made in names(ottla_broker)
    assert admin.partitions(made) == 3
    assert admin.config(made, "retention.ms") == "60000"


def test_a_topic_is_not_made_twice(wire: Wire, ottla_topic: str) -> None:
    admin = wire.admin()
    with pytest.raises(Exception, match=r"(?i)exists"):
        admin.create(ottla_topic)


def test_an_unknown_config_is_refused(wire: Wire, ottla_broker: Any, ottla_topic: str) -> None:
    admin = wire.admin()
    with pytest.raises(Exception, match=r"(?i)config"):
        admin.create(f"{ottla_topic}-made", 1, {"retention.of.ms": "1"})
    assert f"{ottla_topic}-made" not in names(ottla_broker)


def test_a_deleted_topic_is_gone(wire: Wire, ottla_broker: Any, ottla_topic: str) -> None:
    admin = wire.admin()
    assert ottla_topic in admin.topics()
    admin.delete(ottla_topic)
    assert ottla_topic not in admin.topics()
    assert ottla_topic not in names(ottla_broker)


def test_recreated_topic_is_empty(wire: Wire, ottla_broker: Any, ottla_topic: str) -> None:
    ottla_broker.send(ottla_topic, b"old")
    admin = wire.admin()
    admin.delete(ottla_topic)
    admin.create(ottla_topic)
    assert ottla_broker.records(ottla_topic) == []
    assert ottla_broker.send(ottla_topic, b"new") == 0


@pytest.mark.ottla(configs={"retention.ms": "1000", "cleanup.policy": "compact,delete"})
def test_the_configs_of_a_topic_are_those_of_its_marker(wire: Wire, ottla_topic: str) -> None:
    admin = wire.admin()
    assert admin.config(ottla_topic, "retention.ms") == "1000"
    assert admin.config(ottla_topic, "cleanup.policy") == "compact,delete"
    assert admin.config(ottla_topic, "compression.type") == "producer"


def test_configs_can_be_changed(wire: Wire, ottla_topic: str) -> None:
    admin = wire.admin()
    admin.set_config(ottla_topic, "max.message.bytes", "12345")
    assert admin.config(ottla_topic, "max.message.bytes") == "12345"


@pytest.mark.ottla(partitions=2)
def test_topics_grow_and_keep_what_they_have(wire: Wire, ottla_broker: Any, ottla_topic: str) -> None:
    ottla_broker.send(ottla_topic, b"v", partition=1)
    admin = wire.admin()
    admin.grow(ottla_topic, 5)
    assert admin.partitions(ottla_topic) == 5
    assert ottla_broker.send(ottla_topic, b"w", partition=4) == 0
    ottla_broker.assert_produced(ottla_topic, [b"v", b"w"])


def test_what_a_group_committed_can_be_looked_up(
    wire: Wire, ottla_broker: Any, ottla_topic: str, group: str, until: Until
) -> None:
    ottla_broker.send(ottla_topic, b"v")
    receiver = wire.receiver(ottla_topic, group=group)
    until(receiver.assigned, receiver.poll)
    receiver.commit({(ottla_topic, 0): 1})
    admin = wire.admin()
    assert group in admin.groups()
    assert admin.group_offsets(group) == {(ottla_topic, 0): 1}
