"""The leaders of groups on both sides: the SyncGroup of the leader has the assignments of all members.

Owns the assignments of a recording, which another member sends if the right broker chose another leader.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ...protocol.errors import ErrorCode
from ...protocol.messages.groups.sync_group import SyncGroupRequest


class Roles:
    """The leaders of all group generations; generations are numbered as on the left."""

    def __init__(self, requests: Iterable[Any]) -> None:
        """`requests` are the recorded requests, of any API."""
        self._assignments: dict[tuple[str, int], list[Any]] = {}
        for one in requests:
            if isinstance(one, SyncGroupRequest) and one.assignments:
                self._assignments[one.group_id, one.generation_id] = one.assignments
        self._leaders: dict[tuple[str, int], tuple[str, str]] = {}  # (left's, right's) member ids
        self.moved: set[str] = set()
        """The groups whose leader differs on the right."""

    def joined(self, group: str, left: Any, right: Any) -> None:
        """Learns the leaders from both responses to a JoinGroup."""
        if left.error_code == right.error_code == ErrorCode.NONE and left.leader and right.leader:
            self._leaders[group, left.generation_id] = left.leader, right.leader

    def sent(self, request: Any, right_member: str, right_leader_of_left: str) -> Any:
        """Returns a SyncGroup of the left with assignments if its member leads on the right, otherwise without.

        `right_member` is the id of its member on the right, `right_leader_of_left` that of the left's leader.
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
        """Returns the left's leader in the generation of a SyncGroup."""
        return self._leaders.get((request.group_id, request.generation_id), ("", ""))[0]
