"""The assignor `sticky` of streams groups: tasks stay where they are as far as the load is balanced (KIP-1071).

A pure function and deterministic: of equals, the first in the order of ids is chosen. The load of a process is the
number of its tasks for each of its members. Like Kafka's up to 4.4 it reads neither racks nor client tags, and makes no
warm-up tasks. Rules: Kafka 4.3's and 4.4's `StickyTaskAssignor`.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Set
from dataclasses import field
from functools import partial
from typing import TypeAlias

from ....protocol.frozen import frozen
from ....protocol.named import NamedTuple
from .values import NO_TASKS, NOTHING, TaskOffsets, Tasks, TasksTuple

STICKY = "sticky"
Task: TypeAlias = tuple[str, int]
"""Subtopology id and partition."""


@frozen
class Assignee:
    """A member to assign. `previous` is what is sticky. `offsets` are the sums of changelog offsets of the tasks whose
    state the member has, read only if standbys are ranked.
    """

    process_id: str
    previous: TasksTuple = NOTHING
    offsets: TaskOffsets = field(default_factory=dict[str, Mapping[int, int]])


@frozen
class Configs:
    """The configs of a group's assignment. With `ranks_standbys`, as since Kafka 4.4, a task goes to a member that has
    its state even if it was not assigned there, of several to the one with the highest offsets.
    """

    standby_replicas: int = 0
    ranks_standbys: bool = True


def assign(
    members: Mapping[str, Assignee], tasks: Mapping[str, int], stateful: Set[str], configs: Configs
) -> dict[str, TasksTuple]:
    """Returns the tasks of each member. `tasks` has the number of tasks of each subtopology; those of `stateful` have
    standbys, as many as there are other processes for. Without members there is no assignment.
    """
    if not members:
        return {}
    run = _Run(members, tasks, stateful, configs)
    run.assign_active()
    if configs.standby_replicas > 0:
        run.assign_standby()
    return {name: TasksTuple(_grouped(run.active[name]), _grouped(run.standby[name])) for name in members}


def _grouped(tasks: Iterable[Task]) -> Tasks:
    found: dict[str, list[int]] = {}
    for id, partition in tasks:
        found.setdefault(id, []).append(partition)
    return {id: frozenset(partitions) for id, partitions in sorted(found.items())} if found else NO_TASKS


class _Quota:
    """The number of tasks up to which a member keeps what it has: all that are left by all members below it."""

    def __init__(self, total: int, members: int) -> None:
        self._total = total
        self._members = members
        self.limit = -(-total // members)

    def count(self, tasks_of_member: int) -> None:
        """Takes a member that has just reached the limit out of the division."""
        if tasks_of_member == self.limit:
            self._total -= tasks_of_member
            self._members -= 1
            self.limit = -(-self._total // self._members) if self._members else 0


class _Process:
    __slots__ = ("counts", "heap", "order", "tasks", "total")

    def __init__(self, order: int) -> None:
        self.order = order
        self.counts: dict[str, int] = {}
        self.tasks: set[Task] = set()
        self.total = 0
        self.heap: list[tuple[int, str]] | None = None

    @property
    def load(self) -> float:
        return self.total / len(self.counts)

    def least_loaded(self) -> str:
        """The member with the fewest tasks. It is given one."""
        if self.heap is None:
            self.heap = [(count, name) for name, count in self.counts.items()]
            heapq.heapify(self.heap)
        count, name = self.heap[0]
        heapq.heapreplace(self.heap, (count + 1, name))
        return name


class _Candidate(NamedTuple):
    """A member that had the task as a standby, or has its state."""

    member: str
    was_standby: bool
    offset: int


class _Run:
    def __init__(
        self, members: Mapping[str, Assignee], tasks: Mapping[str, int], stateful: Set[str], configs: Configs
    ) -> None:
        self._tasks = [(id, partition) for id in sorted(tasks) for partition in range(tasks[id])]
        self._stateful = stateful
        self._replicas = configs.standby_replicas
        self._skips_holders = configs.ranks_standbys
        with_standbys = sum(count * self._replicas for id, count in tasks.items() if id in stateful)
        self._active_quota = _Quota(len(self._tasks), len(members))
        self._total_quota = _Quota(len(self._tasks) + with_standbys, len(members))
        self.active: dict[str, list[Task]] = {name: [] for name in members}
        self.standby: dict[str, list[Task]] = {name: [] for name in members}
        processes = {
            id: _Process(order) for order, id in enumerate(sorted({one.process_id for one in members.values()}))
        }
        self._processes = list(processes.values())
        self._process_of: dict[str, _Process] = {}
        self._was_active: dict[Task, str] = {}
        candidates: dict[Task, list[_Candidate]] = {}
        for name, member in sorted(members.items()):
            self._process_of[name] = processes[member.process_id]
            self._process_of[name].counts[name] = 0
            for id, partitions in member.previous.active.items():
                self._was_active.update(((id, partition), name) for partition in partitions)
            for task, found in _candidates(name, member, ranked=configs.ranks_standbys):
                candidates.setdefault(task, []).append(found)
        if configs.ranks_standbys:
            for found in candidates.values():
                found.sort(key=lambda one: (not one.was_standby, -one.offset))
        self._candidates = {task: [one.member for one in found] for task, found in candidates.items()}

    def assign_active(self) -> None:
        """Gives each task to the member that had it, else to one that had it as a standby, else to the least loaded."""
        # By partition first, so that a member that has to give up some keeps the same partitions of each subtopology.
        unassigned = sorted(self._tasks, key=lambda task: (task[1], task[0]))
        for previous in (self._was_active.get, partial(self._previous_standby, is_standby=False)):
            left: list[Task] = []
            for task in unassigned:
                member = previous(task)
                if member is None or not self._keeps(member, self._active_quota):
                    left.append(task)
                else:
                    self._add_active(member, task)
            unassigned = left
        heap = self._by_load()
        for task in sorted(unassigned):
            process = self._processes[heap[0][1]]
            self._add_active(process.least_loaded(), task, keeps_heap=True)
            heapq.heapreplace(heap, (process.load, process.order))

    def assign_standby(self) -> None:
        """Gives each stateful task to members on other processes: to those that had it, else to the least loaded."""
        tasks = [task for task in self._tasks if task[0] in self._stateful]
        left: list[tuple[Task, int]] = []
        for task in sorted(tasks, key=lambda task: (task[1], task[0]), reverse=True):
            given = 0
            while given < self._replicas and (member := self._sticky_standby(task)) is not None:
                self._add_standby(member, task)
                given += 1
            if given < self._replicas:
                left.append((task, self._replicas - given))
        heap = self._by_load()
        for task, replicas in sorted(left, reverse=True):
            for _ in range(replicas):
                if not self._place_standby(task, heap):
                    break  # fewer processes than replicas

    def _by_load(self) -> list[tuple[float, int]]:
        heap = [(process.load, process.order) for process in self._processes]
        heapq.heapify(heap)
        return heap

    def _place_standby(self, task: Task, heap: list[tuple[float, int]]) -> bool:
        holders: list[tuple[float, int]] = []
        process = None
        while heap:
            found = self._processes[heap[0][1]]
            if task not in found.tasks:
                process = found
                break
            holders.append(heapq.heappop(heap))
        if process is not None:
            self._add_standby(process.least_loaded(), task, keeps_heap=True)
            heapq.heapreplace(heap, (process.load, process.order))
        for holder in holders:
            heapq.heappush(heap, holder)
        return process is not None

    def _sticky_standby(self, task: Task) -> str | None:
        member = self._was_active.get(task)
        if member is not None and task not in self._process_of[member].tasks and self._keeps(member, self._total_quota):
            return member
        member = self._previous_standby(task, is_standby=True)
        return member if member is not None and self._keeps(member, self._total_quota) else None

    def _previous_standby(self, task: Task, *, is_standby: bool) -> str | None:
        """The candidate with the least load; for a standby, one whose process does not have the task.

        Up to Kafka 4.3 there is none if the process of the first candidate has it: that may move standbys.
        """
        chosen = None
        load, count = 0.0, 0
        for member in self._candidates.get(task, ()):
            process = self._process_of[member]
            if is_standby and task in process.tasks:
                if chosen is None and not self._skips_holders:
                    return None
                continue
            if chosen is None or (process.load < load and process.counts[member] < count):
                chosen, load, count = member, process.load, process.counts[member]
        return chosen

    def _keeps(self, member: str, quota: _Quota) -> bool:
        return self._process_of[member].counts[member] < quota.limit

    def _add_active(self, member: str, task: Task, *, keeps_heap: bool = False) -> None:
        self.active[member].append(task)
        self._active_quota.count(self._add(member, task, keeps_heap=keeps_heap))

    def _add_standby(self, member: str, task: Task, *, keeps_heap: bool = False) -> None:
        self.standby[member].append(task)
        self._add(member, task, keeps_heap=keeps_heap)

    def _add(self, member: str, task: Task, *, keeps_heap: bool) -> int:
        process = self._process_of[member]
        process.tasks.add(task)
        process.total += 1
        process.counts[member] += 1
        if not keeps_heap:
            process.heap = None
        self._total_quota.count(process.counts[member])
        return process.counts[member]


def _candidates(name: str, member: Assignee, *, ranked: bool) -> Iterable[tuple[Task, _Candidate]]:
    standby = member.previous.standby
    for id, partitions in standby.items():
        for partition in partitions:
            offset = member.offsets.get(id, {}).get(partition, 0) if ranked else 0
            yield (id, partition), _Candidate(name, True, offset)
    if ranked:
        for id, offsets in member.offsets.items():
            for partition, offset in offsets.items():
                if partition not in standby.get(id, ()):
                    yield (id, partition), _Candidate(name, False, offset)
