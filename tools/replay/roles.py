"""Who leads a group on each side: the leader's SyncGroup tells what everybody is assigned.

Owns the assignments of a recording, and who sends them when the right broker chose another leader.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ...protocol.errors import ErrorCode
from ...protocol.messages.groups.sync_group import SyncGroupRequest


class Roles:
    """The leaders of the generations of all groups, by the left's numbers."""

    def __init__(self, requests: Iterable[Any]) -> None:
        """`requests` are the recorded requests, of any API."""
        self._assignments: dict[tuple[str, int], list[Any]] = {}
        for one in requests:
            if isinstance(one, SyncGroupRequest) and one.assignments:
                self._assignments[one.group_id, one.generation_id] = one.assignments
        self._leaders: dict[tuple[str, int], tuple[str, str]] = {}  # (left's, right's) member ids
        self.moved: set[str] = set()
        """The groups in which another member led."""

    def joined(self, group: str, left: Any, right: Any) -> None:
        """Takes in what both answered to a JoinGroup."""
        if left.error_code == right.error_code == ErrorCode.NONE and left.leader and right.leader:
            self._leaders[group, left.generation_id] = left.leader, right.leader

    def sent(self, request: Any, right_member: str, right_leader_of_left: str) -> Any:
        """A SyncGroup of the left, with assignments if its member (`right_member` there) leads on the right.

        `right_leader_of_left` is what the left's leader is called there.
        """
        place = request.group_id, request.generation_id
        found = self._leaders.get(place)
        if found is None or found[1] == right_leader_of_left:
            return request
        self.moved.add(request.group_id)
        assignments = self._assignments.get(place, []) if right_member == found[1] else []
        changed = {name: getattr(request, name) for name in request._fields} | {"assignments": assignments}
        return type(request)(**changed)

    def left_leader(self, request: Any) -> str:
        """The left's leader of the generation that a SyncGroup is about."""
        return self._leaders.get((request.group_id, request.generation_id), ("", ""))[0]
