"""A broker's configuration as the rules about single configs read it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from ..releases.profiles import Profile
    from .definitions import Fact


class Configured(Protocol):
    """Values by Kafka's names, and what is known of each name."""

    profile: Profile

    def __getitem__(self, name: str) -> Any:
        """The value in force. Raises KeyError for a name that the release does not have."""
        ...

    def get(self, name: str, default: Any = None) -> Any:
        """The value in force, or `default` for a name that the release does not have."""
        ...

    def fact(self, name: str) -> Fact | None:
        """What is known of a name, or None."""
        ...

    def is_set(self, name: str) -> bool:
        """Whether any source sets the name, so that the value is not its default."""
        ...


class TopicConfigured(Protocol):
    """A topic's configuration: its own configs as text, and the values in force."""

    @property
    def overrides(self) -> Mapping[str, str]: ...

    def get(self, name: str, default: Any = None) -> Any:
        """The value in force, or `default` for a name that the release does not have."""
        ...
