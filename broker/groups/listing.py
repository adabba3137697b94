"""ListGroups: the filters, and the fields of each listed group."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from ...protocol.named import NamedTuple
from .consumer.state import Group as ConsumerGroup
from .registry import AnyGroup
from .share.state import Group as ShareGroup
from .streams.state import Group as StreamsGroup
from .streams.state import GroupState as StreamsState


class ListedGroup(NamedTuple):
    """A group in the response to ListGroups."""

    group_id: str
    protocol_type: str
    state: str
    group_type: str = "classic"


def group_type(group: AnyGroup) -> str:
    """Returns Kafka's name of the kind of a group."""
    if isinstance(group, ShareGroup | StreamsGroup):
        return group.kind
    return "consumer" if isinstance(group, ConsumerGroup) else "classic"


def _filtered_by(group: AnyGroup) -> str:
    """Returns the name of a group's state in filters, which for NotReady is not that of the response."""
    return "not_ready" if group.state is StreamsState.NOT_READY else group.state.value.lower()


def listed(groups: Iterable[AnyGroup], states: Collection[str], types: Collection[str]) -> list[ListedGroup]:
    """Returns the groups in one of `states` and of one of `types`. Filters ignore case; an empty filter accepts all
    groups.
    """
    wanted_states = {state.strip().lower() for state in states}
    wanted_types = {wanted.lower() for wanted in types}
    return [
        ListedGroup(group.group_id, group.protocol_type or "", group.state.value, group_type(group))
        for group in groups
        if (not wanted_states or _filtered_by(group) in wanted_states)
        and (not wanted_types or group_type(group) in wanted_types)
    ]
