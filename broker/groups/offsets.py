"""Committed offsets of one group and their expiry.

Owns the committed offsets, those of open transactions (KIP-98, KIP-447), and their expiry (KIP-211). Uses neither the
log nor a clock.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeAlias

from ...protocol.errors import ErrorCode
from ...protocol.named import NamedTuple

Partition: TypeAlias = tuple[str, int]
"""Topic name and partition index."""


class CommittedOffset(NamedTuple):
    """A committed offset. `leader_epoch` is -1 if unknown; `expire_timestamp_ms` is None unless the client set a
    retention.
    """

    offset: int
    leader_epoch: int = -1
    metadata: str = ""
    commit_timestamp_ms: int = -1
    expire_timestamp_ms: int | None = None


class Expiry(NamedTuple):
    """Which offsets of a group may expire (KIP-211): all but those of `kept_topics`. The retention starts at
    `since_ms`, or at the commit with None.
    """

    kept_topics: frozenset[str] = frozenset()
    since_ms: int | None = None


class FetchedOffset(NamedTuple):
    """The result of OffsetFetch for a partition; `committed` is None if there is no commit, or an unstable one."""

    partition: Partition
    committed: CommittedOffset | None
    error: ErrorCode


class OpenTransactions:
    """Groups with commits in open transactions, so that the end of a transaction does not search all groups. A deleted
    group may still be listed.
    """

    __slots__ = ("_groups",)

    def __init__(self) -> None:
        self._groups: dict[tuple[int, int], dict[str, None]] = {}

    def note(self, partition_index: int, producer_id: int, group_id: str) -> None:
        """Records that a producer wrote commits of the group to this partition of the log."""
        self._groups.setdefault((partition_index, producer_id), {})[group_id] = None

    def end(self, partition_index: int, producer_id: int) -> dict[str, None]:
        """Removes and returns the groups of the producer's transaction in this partition of the log."""
        return self._groups.pop((partition_index, producer_id), {})


class Offsets:
    """The offsets of one group.

    `order` numbers rise with each write, so that a transaction that commits late does not override a later plain
    commit.
    """

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
        """True without any commit, open transactions included."""
        return not self._committed and not self._pending

    def get(self, partition: Partition) -> CommittedOffset | None:
        found = self._committed.get(partition)
        return found[1] if found is not None else None

    def put(self, partition: Partition, committed: CommittedOffset, order: int) -> None:
        self._committed[partition] = (order, committed)

    def held(self) -> dict[Partition, None]:
        """Returns all partitions with commits, open transactions included, as an ordered set."""
        held = dict.fromkeys(self._committed)
        for commits in self._pending.values():
            held |= dict.fromkeys(commits)
        return held

    def remove(self, partition: Partition) -> None:
        """Removes the partition's committed offset and its commits in open transactions."""
        self._committed.pop(partition, None)
        for producer_id in list(self._pending):
            self._pending[producer_id].pop(partition, None)
            if not self._pending[producer_id]:
                del self._pending[producer_id]

    def as_mapping(self) -> Mapping[Partition, CommittedOffset]:
        return {partition: committed for partition, (_, committed) in self._committed.items()}

    # --- transactions --------------------------------------------------------------------------------------------

    def put_pending(self, producer_id: int, partition: Partition, committed: CommittedOffset, order: int) -> None:
        """Stores a commit that takes effect when the producer's transaction commits."""
        self._pending.setdefault(producer_id, {})[partition] = (order, committed)

    def is_unstable(self, partition: Partition) -> bool:
        """Returns whether an open transaction has a commit for the partition."""
        return any(partition in commits for commits in self._pending.values())

    def pending_producers(self) -> list[int]:
        """Returns the producers with commits in open transactions."""
        return list(self._pending)

    def pending_partitions(self) -> set[Partition]:
        return {partition for commits in self._pending.values() for partition in commits}

    def end_transaction(self, producer_id: int, *, committed: bool) -> None:
        """Applies the transaction's last commit for each partition, or drops them all."""
        for partition, (order, commit) in self._pending.pop(producer_id, {}).items():
            if committed and self._committed.get(partition, (-1,))[0] < order:
                self._committed[partition] = (order, commit)

    # --- expiry --------------------------------------------------------------------------------------------------

    def expired(self, expiry: Expiry | None, now_ms: int, retention_ms: int) -> list[Partition]:
        """Returns the partitions whose commit has expired.

        Offsets of open transactions do not expire. An explicit expiry replaces the time, not these conditions.
        """
        return [partition for partition, when_ms in self._expiries(expiry, retention_ms) if when_ms <= now_ms]

    def due_ms(self, expiry: Expiry | None, retention_ms: int) -> int | None:
        """Returns the time of the next expiry if nothing changes, None if nothing expires."""
        return min((when_ms for _, when_ms in self._expiries(expiry, retention_ms)), default=None)

    def _expiries(self, expiry: Expiry | None, retention_ms: int) -> Iterator[tuple[Partition, int]]:
        """Yields each partition whose commit will expire if nothing changes, with the time."""
        if expiry is None:
            return
        unstable = self.pending_partitions()
        for partition, (_, commit) in self._committed.items():
            if partition[0] in expiry.kept_topics or partition in unstable:
                continue
            if commit.expire_timestamp_ms is not None:
                yield partition, commit.expire_timestamp_ms
            else:
                yield (
                    partition,
                    retention_ms + (commit.commit_timestamp_ms if expiry.since_ms is None else expiry.since_ms),
                )
