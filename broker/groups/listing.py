"""ListGroups: the filters, and the fields of each listed group."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

from .classic.state import Group


class ListedGroup(NamedTuple):
    """A group in the response to ListGroups."""

    group_id: str
    protocol_type: str
    state: str
    group_type: str = "classic"


def listed(groups: Iterable[Group], states: Collection[str], types: Collection[str]) -> list[ListedGroup]:
    """Returns the groups in one of `states` and of one of `types`. Filters ignore case; an empty filter accepts all
    groups. The type of all groups is "classic".
    """
    wanted_states = {state.lower() for state in states}
    wanted_types = {group_type.lower() for group_type in types}
    if wanted_types and "classic" not in wanted_types:
        return []
    return [
        ListedGroup(group.group_id, group.protocol_type or "", group.state.value)
        for group in groups
        if not wanted_states or group.state.value.lower() in wanted_states
    ]
