"""Interfaces of a broker's and a topic's configuration, for modules that interpret configs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from ..releases.profiles import Profile
    from .definitions import Fact


class Configured(Protocol):
    """Values by Kafka's config names, and the definition of each name."""

    profile: Profile

    def __getitem__(self, name: str) -> Any:
        """Returns the effective value. Raises KeyError if the release does not have the config."""
        ...

    def get(self, name: str, default: Any = None) -> Any:
        """Returns the effective value, or `default` if the release does not have the config."""
        ...

    def fact(self, name: str) -> Fact | None:
        """Returns the definition of a config, or None."""
        ...

    def is_set(self, name: str) -> bool:
        """Returns whether any source sets the config, so that the value is not its default."""
        ...

    def names_set(self, prefix: str) -> set[str]:
        """Returns the names that begin with `prefix` of the configs that any source sets."""
        ...


class TopicConfigured(Protocol):
    """A topic's configuration: its own configs as text, and effective values."""

    @property
    def overrides(self) -> Mapping[str, str]: ...

    def get(self, name: str, default: Any = None) -> Any:
        """Returns the effective value, or `default` if the release does not have the config."""
        ...
