"""The tombstones of a group of the consumer protocol."""

from __future__ import annotations

from collections.abc import Mapping

from .state import AssignmentEpochSet, Change, CurrentSet, EpochSet, Group, InfoSet, RegexSet, TargetSet, TopicsSet


def tombstones(group: Group, renamed: Mapping[str, str] | None = None) -> list[Change]:
    """Returns the changes that remove a group, in the order in which Kafka writes them. `renamed` has the new ids of
    members that were replaced in the same write.
    """
    names = [(renamed or {}).get(name, name) for name in group.members]
    return [
        *(CurrentSet(name, None) for name in names),
        *(TargetSet(name, None) for name in names),
        AssignmentEpochSet(None),
        *(InfoSet(name, None) for name in names),
        *(RegexSet(regex, None) for regex in group.resolved),
        TopicsSet(None),
        EpochSet(None),
    ]
