"""Codes of DescribeConfigs, shared by the broker and the admin client: the sources and the types of values."""

from __future__ import annotations

from enum import IntEnum


class Code(IntEnum):
    """A code of the protocol; a client reads one that is newer than itself as UNKNOWN."""

    @classmethod
    def _missing_(cls, value: object) -> IntEnum:
        return cls(0)


class ConfigSource(Code):
    """The source of a config's value (KIP-226)."""

    UNKNOWN = 0
    DYNAMIC_TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_BROKER_LOGGER = 6
    DYNAMIC_CLIENT_METRICS = CLIENT_METRICS = 7
    DYNAMIC_GROUP = GROUP = 8

    @property
    def text(self) -> str:
        """Kafka's name of the source, such as DYNAMIC_TOPIC_CONFIG."""
        return f"{self.name}_CONFIG" if self else self.name


class ConfigType(Code):
    """The type of a config's value (KIP-569)."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9
