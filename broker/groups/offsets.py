"""Committed offsets of one group, and when they are too old to keep.

Owns the table of committed offsets and those of open transactions (KIP-98, KIP-447), and the rule of expiry (KIP-211).
It must not know the log or the clock.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple, TypeAlias

from ...protocol.errors import ErrorCode
from .state import CONSUMER_PROTOCOL_TYPE, Group, GroupState
from .subscription import subscribed_topics

Partition: TypeAlias = tuple[str, int]
"""Topic name and partition index."""


class CommittedOffset(NamedTuple):
    """One commit. `leader_epoch` is -1 if unknown; `expire_timestamp_ms` is None unless the client set a retention."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""
    commit_timestamp_ms: int = -1
    expire_timestamp_ms: int | None = None


class FetchedOffset(NamedTuple):
    """One partition's answer to OffsetFetch; `committed` is None when there is none, or when it is unstable."""

    partition: Partition
    committed: CommittedOffset | None
    error: ErrorCode


class OpenTransactions:
    """Which groups have commits in a transaction, so that its end need not look at all groups. One that is gone may
    be named still."""

    __slots__ = ("_groups",)

    def __init__(self) -> None:
        self._groups: dict[tuple[int, int], dict[str, None]] = {}

    def note(self, partition_index: int, producer_id: int, group_id: str) -> None:
        """A producer has written commits of the group to this partition of the log."""
        self._groups.setdefault((partition_index, producer_id), {})[group_id] = None

    def end(self, partition_index: int, producer_id: int) -> dict[str, None]:
        """The groups of the producer's transaction, which is over there."""
        return self._groups.pop((partition_index, producer_id), {})


class Offsets:
    """The offsets of one group. `order` numbers rise with each write, so that a commit of a transaction that ends late
    does not hide a later plain commit."""

    __slots__ = ("_committed", "_pending")

    def __init__(self) -> None:
        self._committed: dict[Partition, tuple[int, CommittedOffset]] = {}
        self._pending: dict[int, dict[Partition, tuple[int, CommittedOffset]]] = {}

    def __len__(self) -> int:
        return len(self._committed)

    def __iter__(self) -> Iterator[Partition]:
        return iter(self._committed)

    @property
    def unused(self) -> bool:
        """Neither committed nor in an open transaction."""
        return not self._committed and not self._pending

    def get(self, partition: Partition) -> CommittedOffset | None:
        found = self._committed.get(partition)
        return found[1] if found is not None else None

    def put(self, partition: Partition, committed: CommittedOffset, order: int) -> None:
        self._committed[partition] = (order, committed)

    def held(self) -> dict[Partition, None]:
        """All partitions, those of open transactions too: a set that keeps the order."""
        held = dict.fromkeys(self._committed)
        for commits in self._pending.values():
            held |= dict.fromkeys(commits)
        return held

    def remove(self, partition: Partition) -> None:
        """Forgets what is committed for the partition, and what open transactions hold for it."""
        self._committed.pop(partition, None)
        for producer_id in list(self._pending):
            self._pending[producer_id].pop(partition, None)
            if not self._pending[producer_id]:
                del self._pending[producer_id]

    def as_mapping(self) -> Mapping[Partition, CommittedOffset]:
        return {partition: committed for partition, (_, committed) in self._committed.items()}

    # --- transactions --------------------------------------------------------------------------------------------

    def put_pending(self, producer_id: int, partition: Partition, committed: CommittedOffset, order: int) -> None:
        """A commit that counts once the producer's transaction commits."""
        self._pending.setdefault(producer_id, {})[partition] = (order, committed)

    def is_unstable(self, partition: Partition) -> bool:
        """Is there a commit of an open transaction for the partition?"""
        return any(partition in commits for commits in self._pending.values())

    def pending_producers(self) -> list[int]:
        """The producers that have commits in open transactions."""
        return list(self._pending)

    def pending_partitions(self) -> set[Partition]:
        return {partition for commits in self._pending.values() for partition in commits}

    def end_transaction(self, producer_id: int, *, committed: bool) -> None:
        """Take over what the transaction wrote last for each partition, or drop it all."""
        for partition, (order, commit) in self._pending.pop(producer_id, {}).items():
            if committed and self._committed.get(partition, (-1,))[0] < order:
                self._committed[partition] = (order, commit)

    # --- expiry --------------------------------------------------------------------------------------------------

    def expired(self, group: Group, now_ms: int, retention_ms: int) -> list[Partition]:
        """The partitions whose commit may be forgotten now.

        Without members time runs from when the group became empty; in a Stable consumer group and in one that only
        stores offsets, from the commit. Subscribed topics and open transactions are kept. An explicit expiry overrides
        the time, not the conditions.
        """
        return [partition for partition, when_ms in self._expiries(group, retention_ms) if when_ms <= now_ms]

    def due_ms(self, group: Group, retention_ms: int) -> int | None:
        """From when on a check for expiry has something to do, as things are: 0 if at once, None if never."""
        if group.state is GroupState.EMPTY and self.unused:  # the group itself may go
            return 0
        return min((when_ms for _, when_ms in self._expiries(group, retention_ms)), default=None)

    def _expiries(self, group: Group, retention_ms: int) -> Iterator[tuple[Partition, int]]:
        """The partitions whose commit may be forgotten one day if nothing changes, each with that time."""
        keep: frozenset[str] = frozenset()
        emptied_ms: int | None = None
        if group.protocol_type is None:
            pass
        elif group.state is GroupState.EMPTY:
            emptied_ms = group.state_changed_ms if group.state_changed_ms >= 0 else None
        elif group.protocol_type == CONSUMER_PROTOCOL_TYPE and group.state is GroupState.STABLE:
            topics = subscribed_topics(group)
            if topics is None:
                return
            keep = topics
        else:
            return
        unstable = self.pending_partitions()
        for partition, (_, commit) in self._committed.items():
            if partition[0] in keep or partition in unstable:
                continue
            if commit.expire_timestamp_ms is not None:
                yield partition, commit.expire_timestamp_ms
            else:
                yield partition, retention_ms + (commit.commit_timestamp_ms if emptied_ms is None else emptied_ms)
