"""ListGroups: which groups a client asked for, and what it is told of each."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

from .state import Group


class ListedGroup(NamedTuple):
    """One group of the answer."""

    group_id: str
    protocol_type: str
    state: str
    group_type: str = "classic"


def listed(groups: Iterable[Group], states: Collection[str], types: Collection[str]) -> list[ListedGroup]:
    """Those in one of the states, and of one of the types; the filters are compared without regard to case, and an
    empty one lets all through. All groups here are of the type "classic"."""
    wanted_states = {state.lower() for state in states}
    wanted_types = {group_type.lower() for group_type in types}
    if wanted_types and "classic" not in wanted_types:
        return []
    return [
        ListedGroup(group.group_id, group.protocol_type or "", group.state.value)
        for group in groups
        if not wanted_states or group.state.value.lower() in wanted_states
    ]
