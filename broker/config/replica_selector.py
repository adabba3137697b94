"""Configuration of the replica selector (KIP-392): Kafka has one, which prefers a replica in the rack of the client.

Interprets `replica.selector.class`. Kafka also loads classes of users, which need Java.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import ConfigError

if TYPE_CHECKING:
    from .configured import Configured

CLASS_NAME = "replica.selector.class"
RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


def selects_by_rack(config: Configured) -> bool:
    """Returns whether the leader names a preferred read replica. Raises ConfigError for another selector."""
    class_name: str | None = config.get(CLASS_NAME)
    if class_name in (None, RACK_AWARE):
        return class_name is not None
    raise ConfigError(
        f"Invalid value {class_name} for configuration {CLASS_NAME}: Class {class_name} could not be found; "
        f"expected {RACK_AWARE}, or no value"
    )
