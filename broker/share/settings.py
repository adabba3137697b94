"""Configs of share groups: those of a group, with the broker's as defaults."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from ...protocol.named import NamedTuple
from ..config.definitions import parse_value
from ..config.group_limits import LIMITED, in_limits
from ..config.values import Config
from .share_partition import ShareRules

NO_OP_PERSISTERS = ("", "org.apache.kafka.server.share.persister.NoOpStatePersister")
"""Values of `group.share.persister.class.name` with which no state is stored."""

DEAD_LETTER_TOPIC = "errors.deadletterqueue.topic.name"
COPIES = "errors.deadletterqueue.copy.record.enable"

# Group configs, and the broker configs that are their defaults.
_DEFAULTS = {
    "share.partition.max.record.locks": "group.share.partition.max.record.locks",
    "share.delivery.count.limit": "group.share.delivery.count.limit",
    "share.record.lock.duration.ms": "group.share.record.lock.duration.ms",
}

_DURATION = re.compile(r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?", re.IGNORECASE)
BY_DURATION = "by_duration:"


class ShareConfigs(NamedTuple):
    """The configs of all share groups: those that are set, by group and name, and the broker's.

    `have_dead_letters` returns whether groups may have dead-letter queues, which the feature `share.version` decides.
    """

    groups: Mapping[str, Mapping[str, str]]
    broker: Config
    have_dead_letters: Callable[[], bool] = bool

    def value(self, group_id: str, name: str) -> Any:
        """Returns the value of a group config in effect; None if the release has no such config."""
        text = self.groups.get(group_id, {}).get(name)
        fact = self.broker.facts("group").get(name)
        if fact is not None and text is not None:
            found = parse_value(fact, text)
            caps = name in LIMITED and self.broker.profile.behaviour.caps_group_configs
            return in_limits(name, found, self.broker.get) if caps else found
        default = _DEFAULTS.get(name)
        if default is not None:
            return self.broker.get(default)
        return None if fact is None else parse_value(fact, fact.default or "")

    def rules(self, group_id: str) -> ShareRules:
        """Returns the configs of a group for its share partitions."""
        renews = self.value(group_id, "share.renew.acknowledge.enable")
        return ShareRules(
            max_in_flight=self.value(group_id, "share.partition.max.record.locks"),
            delivery_limit=self.value(group_id, "share.delivery.count.limit"),
            lock_ms=self.lock_ms(group_id),
            renews=True if renews is None else renews,
            shrinks=self.broker.profile.behaviour.shrinks_deliveries,
            has_dead_letters=bool(self.groups.get(group_id, {}).get(DEAD_LETTER_TOPIC)) and self.have_dead_letters(),
        )

    def lock_ms(self, group_id: str) -> int:
        """Returns for how long an acquired record is locked."""
        return self.value(group_id, "share.record.lock.duration.ms")

    def is_committed(self, group_id: str) -> bool:
        """Returns whether the group reads committed records only."""
        return self.value(group_id, "share.isolation.level") == "read_committed"

    def offset_reset(self, group_id: str) -> str:
        """Returns where a group without a start offset begins: `latest`, `earliest` or `by_duration:...`."""
        return self.value(group_id, "share.auto.offset.reset").lower()


def reset_duration_ms(reset: str) -> int:
    """Returns the duration of a reset `by_duration:PnDTnHnMn.nS`, which is valid."""
    found = _DURATION.fullmatch(reset.removeprefix(BY_DURATION))
    assert found is not None
    days, hours, minutes, seconds = (float(part or 0) for part in found.groups())
    return int(1000 * (86_400 * days + 3600 * hours + 60 * minutes + seconds))
