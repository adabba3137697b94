"""Interfaces of a broker's and a topic's configuration in `values.py`, for modules that interpret configs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from ..releases.profiles import Profile
    from .definitions import Fact


class Configured(Protocol):
    """Values by Kafka's config names, and the definition of each name: methods of `Config`."""

    profile: Profile

    def __getitem__(self, name: str) -> Any: ...
    def get(self, name: str, default: Any = None) -> Any: ...
    def fact(self, name: str) -> Fact | None: ...
    def is_set(self, name: str) -> bool: ...
    def names_set(self, prefix: str) -> set[str]: ...


class TopicConfigured(Protocol):
    """A topic's own configs as text, and effective values: methods of `TopicConfig`."""

    @property
    def overrides(self) -> Mapping[str, str]: ...
    def get(self, name: str, default: Any = None) -> Any: ...
