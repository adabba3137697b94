"""The verdicts about share groups, from the whole history. The kinds are described in `checker`."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from itertools import combinations

from ottla_testing.history.facts import (
    ACKED_TWICE,
    BEYOND_LIMIT,
    GLIMPSED,
    HELD_TWICE,
    HIGH_COUNT,
    LOW_COUNT,
    NEVER,
    READ,
    REDELIVERED,
    STOLEN,
    UNSHARED,
    WRONGLY_REFUSED,
)
from ottla_testing.history.follower import Follower
from ottla_testing.history.shares import OK, REFUSED, RELEASE, RENEW, TERMINAL, UNKNOWN, Ack, Delivery, ShareGroup

SLACK_S = 0.05  # clocks of processes are read at different times


def judge_shares(follower: Follower) -> None:
    """Adds violations of share groups to the follower's report."""
    for name, group in follower.shares.groups.items():
        for (place, offset), deliveries in group.deliveries.items():
            of = _Record(follower, name, group, place, offset, deliveries)
            of.counts()
            of.acknowledged()
            of.held()
        for topic, line in group.drained.items():
            _whole(follower, name, group, topic, line)
    for together in follower.shares.acks:
        if together and together[0].outcome == REFUSED and all(map(follower.shares.is_certain, together)):
            ack = together[0]
            evidence = f"{ack.delivery.owner} held the records, and could not acknowledge them"
            follower.violate(WRONGLY_REFUSED, evidence, lines=(ack.delivery.line, ack.invoked, ack.line))


class _Record:
    """One record of a share group."""

    def __init__(
        self,
        follower: Follower,
        name: str,
        group: ShareGroup,
        place: int,
        offset: int,
        deliveries: list[Delivery],
    ) -> None:
        self._follower, self._shares = follower, follower.shares
        self._name, self._group = name, group
        self._place, self._offset = place, offset
        self._deliveries = deliveries

    def _violate(self, kind: str, evidence: str, *lines: int) -> None:
        self._follower.violate(kind, f"{self._name}: {evidence}", self._place, [self._offset], sorted(set(lines)))

    def _acks(self, *kinds: int) -> Iterator[Ack]:
        return (ack for one in self._deliveries for ack in one.acks if ack.kind in kinds)

    def counts(self) -> None:
        """Checks the delivery counts."""
        for number, one in enumerate(self._deliveries):
            if one.count > self._group.limit:
                evidence = f"delivered {one.count} times, the limit is {self._group.limit}"
                self._violate(BEYOND_LIMIT, evidence, one.line)
            before = [other for other in self._deliveries if other is not one and other.line < one.invoked]
            for other in before:
                is_stored = any(
                    ack.kind == RELEASE and ack.outcome == OK and ack.line < one.invoked for ack in other.acks
                )
                is_kept = is_stored or not self._shares.has_lost_state(self._group, other, one)
                if is_kept and one.count <= other.count:
                    evidence = f"delivery count {one.count} after {other.count}"
                    self._violate(LOW_COUNT, evidence, other.line, one.line)
                    break
            if one.count > 1 + number and one.is_certain:  # other clients fetch unseen
                earlier = sum(other is not one and other.invoked < one.line for other in self._deliveries)
                most = 1 + earlier + sum(line < one.line for line, _ in self._group.unknown)
                if one.count > most:
                    self._violate(HIGH_COUNT, f"delivery count {one.count}, at most {most} deliveries", one.line)

    def acknowledged(self) -> None:
        """Checks what happens after an acknowledgement, and who may acknowledge."""
        for ack in self._acks(*TERMINAL):
            for one in self._deliveries if ack.outcome == OK else ():
                if one.invoked > ack.line:
                    evidence = f"{one.owner} got it after {ack.delivery.owner} had acknowledged it"
                    self._violate(REDELIVERED, evidence, ack.invoked, ack.line, one.line)
        sure = [ack for ack in self._acks(*TERMINAL) if ack.outcome == OK and self._shares.is_certain(ack)]
        for ack, other in combinations(sure, 2):
            evidence = f"by {ack.delivery.owner} and by {other.delivery.owner}"
            self._violate(ACKED_TWICE, evidence, ack.invoked, ack.line, other.invoked, other.line)
        for ack in self._acks(*TERMINAL, RELEASE, RENEW):
            for one in self._deliveries if ack.outcome == OK else ():
                if one is ack.delivery or one.owner == ack.delivery.owner:
                    continue
                line, second = self._shares.held_until(one)
                if one.line < ack.invoked and ack.line < line and ack.at <= second - SLACK_S:
                    evidence = f"{one.owner} held it when {ack.delivery.owner} acknowledged it"
                    self._violate(STOLEN, evidence, one.line, ack.invoked, ack.line)

    def held(self) -> None:
        """Checks that not two members held it at the same time."""
        for one, other in combinations(self._deliveries, 2):
            ends = self._shares.held_until(one), self._shares.held_until(other)
            if self._are_at_once(one, other, ends):
                self._violate(HELD_TWICE, f"by {one.owner} and by {other.owner}", one.line, other.line)

    @staticmethod
    def _are_at_once(one: Delivery, other: Delivery, ends: tuple[tuple[int, float], tuple[int, float]]) -> bool:
        for (held, got), (line, second) in zip(((one, other), (other, one)), ends, strict=True):
            if held.line < got.invoked and got.line < line and got.at <= second - SLACK_S:
                return True  # delivered while it was held
        line, second = min(ends[0][0], ends[1][0]), min(ends[0][1], ends[1][1])
        return max(one.line, other.line) < line and max(one.at, other.at) <= second - SLACK_S


def _whole(follower: Follower, name: str, group: ShareGroup, topic: str, line: int) -> None:
    """Checks that each record of a topic was processed by a group, or may have reached the delivery limit."""
    flag = READ if group.committed_only else READ | GLIMPSED
    for place, partition in enumerate(follower.partitions):
        if partition.rpartition("-")[0] != topic:
            continue
        for offset, number in follower.logs[place].items():
            if not follower.values.flags[number] & flag:
                continue
            deliveries = group.deliveries.get((place, offset), [])
            ends = [ack for one in deliveries for ack in one.acks if ack.kind in TERMINAL]
            if any(ack.outcome in (OK, UNKNOWN) for ack in ends):
                continue
            sent, highest = follower.values.sent[number], max((one.count for one in deliveries), default=0)
            after = max((one.invoked for one in deliveries), default=sent)
            if highest + _unseen(group, place, offset, after) >= group.limit:
                follower.report.counts["records that may have reached the limit"] += 1
                continue
            wording = f"delivered {highest} times and not acknowledged" if deliveries else "never delivered"
            lines = [sent, *(one.line for one in deliveries[-3:]), line]
            follower.violate(UNSHARED, f"{name}: {wording}", place, [offset], lines)


def _unseen(group: ShareGroup, place: int, offset: int, after: int) -> int:
    """Returns how many fetches of unknown outcome may have acquired a record after a line: until an offset was
    delivered that cannot be in flight together with it.
    """
    heights = group.heights.get(place, [])
    at = bisect_left(heights, offset + 2 * group.locks, key=_offset)
    until = heights[at][0] if at < len(heights) else NEVER
    return _count(group.unknown, after, until)


def _count(unknown: Iterable[tuple[int, int]], after: int, until: int) -> int:
    return sum(end > after and line < until for line, end in unknown)


def _offset(height: tuple[int, int]) -> int:
    return height[1]
