"""The config `group.consumer.assignors`: the assignors of the broker by name or by Kafka's class."""

from __future__ import annotations

from collections.abc import Iterable

from ..errors import ConfigError

NAME = "group.consumer.assignors"
_PACKAGE = "org.apache.kafka.coordinator.group.assignor."
_CLASSES = {f"{_PACKAGE}UniformAssignor": "uniform", f"{_PACKAGE}RangeAssignor": "range"}


def assignor_name(text: str) -> str:
    """Returns the name of an assignor. Raises ConfigError for any other class."""
    name = _CLASSES.get(text, text)
    if name not in _CLASSES.values():
        raise ConfigError(
            f"Invalid value {text} for configuration {NAME}: the assignors are uniform and range; classes of Java are "
            "not run"
        )
    return name


def check_assignors(texts: Iterable[str]) -> None:
    """Raises ConfigError unless all are assignors of the broker."""
    for text in texts:
        assignor_name(text)
