"""ListGroups: the filters, and the fields of each listed group."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from ...protocol.named import NamedTuple
from .common_state import GroupState
from .registry import AnyGroup


class ListedGroup(NamedTuple):
    """A group in the response to ListGroups."""

    group_id: str
    protocol_type: str
    state: str
    group_type: str = "classic"


def _filtered_by(group: AnyGroup) -> str:
    """Returns the name of a group's state in filters, which for NotReady is not that of the response."""
    return "not_ready" if group.state is GroupState.NOT_READY else group.state.value.lower()


def listed(groups: Iterable[AnyGroup], states: Collection[str], types: Collection[str]) -> list[ListedGroup]:
    """Returns the groups in one of `states` and of one of `types`. Filters ignore case; an empty filter accepts all
    groups.
    """
    wanted_states = {state.strip().lower() for state in states}
    wanted_types = {wanted.lower() for wanted in types}
    return [
        ListedGroup(group.group_id, group.protocol_type or "", group.state.value, group.kind)
        for group in groups
        if (not wanted_states or _filtered_by(group) in wanted_states)
        and (not wanted_types or group.kind in wanted_types)
    ]
