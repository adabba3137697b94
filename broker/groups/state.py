"""The values of a classic group: its state, the events that move it, and the effects it asks for.

Owns no behaviour: `machine` moves a group, `coordinator` performs the effects. All values are immutable; a mapping
inside one is never changed once the value is made, so a group can be kept, compared and written without a copy.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Literal, NamedTuple, TypeAlias, get_args

from ...protocol.errors import ErrorCode
from ...protocol.limits import INT32_MAX

NEW_MEMBER_JOIN_TIMEOUT_MS = 300_000
"""How long a member that never had an answer may stay parked: it has no id to heartbeat with. Kafka's own constant."""

CONSUMER_PROTOCOL_TYPE = "consumer"

MemberChecks: TypeAlias = Literal["rebalance_first", "given", "all", "unless_empty"]


class GroupState(Enum):
    """The five states; the values are Kafka's names as ListGroups and DescribeGroups spell them."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """What the machine needs to know of the configuration. Times in milliseconds, size in members.

    The switches are behaviours of the release, by the same names.
    """

    initial_rebalance_delay_ms: int = 3000
    max_size: int = INT32_MAX
    new_member_join_timeout_ms: int = NEW_MEMBER_JOIN_TIMEOUT_MS
    removes_unsynced: bool = True
    heartbeats_before_sync: bool = True
    first_session_at_join: bool = True
    member_checks: MemberChecks = "unless_empty"

    @property
    def ignores_absent_instances(self) -> bool:
        """Whether a member may name an instance id that the group does not have, before 3.0."""
        return self.member_checks in ("rebalance_first", "given")


@dataclass(frozen=True, slots=True)
class Member:
    """One member. `protocols` are (name, metadata), the member's favourite first.

    `join_token` and `sync_token` name the parked request that waits for an answer, None when there is none. A member is
    new until its first successful join answer.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]
    assignment: bytes = b""
    is_new: bool = False
    join_token: int | None = None
    sync_token: int | None = None

    def metadata(self, protocol_name: str | None) -> bytes:
        """What the member said under this protocol; empty when it does not know it."""
        for name, metadata in self.protocols:
            if name == protocol_name:
                return metadata
        return b""


@dataclass(frozen=True, slots=True)
class Group:
    """One classic group. `members` keeps the order of arrival. `pending` holds ids given out under KIP-394 that have
    not joined, `pending_sync` the members that have not synced in this generation. `state_changed_ms` is -1 if unknown.

    `initial_remaining_ms` is how far the first rebalance may still be put off, None in any other rebalance.
    """

    group_id: str
    state: GroupState = GroupState.EMPTY
    generation_id: int = 0
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str | None = None
    members: Mapping[str, Member] = field(default_factory=dict[str, Member])
    pending: frozenset[str] = frozenset()
    pending_sync: frozenset[str] = frozenset()
    state_changed_ms: int = -1
    initial_delay_ms: int = 0
    initial_remaining_ms: int | None = None
    new_member_added: bool = False

    def member_of_instance(self, instance_id: str) -> str | None:
        """The member id that a static instance holds now."""
        for member in self.members.values():
            if member.instance_id == instance_id:
                return member.member_id
        return None

    @property
    def rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    @property
    def joined(self) -> int:
        """How many members wait for the answer to a join."""
        return sum(member.join_token is not None for member in self.members.values())

    @property
    def parked_tokens(self) -> tuple[int, ...]:
        tokens = [member.join_token for member in self.members.values()]
        tokens += [member.sync_token for member in self.members.values()]
        return tuple(token for token in tokens if token is not None)


# --- answers ---------------------------------------------------------------------------------------------------------


class JoinedMember(NamedTuple):
    member_id: str
    instance_id: str | None
    metadata: bytes


class JoinReply(NamedTuple):
    """The answer to JoinGroup; only a leader gets `members`."""

    error: ErrorCode
    member_id: str
    generation_id: int = -1
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = ""
    skip_assignment: bool = False
    members: tuple[JoinedMember, ...] = ()


class SyncReply(NamedTuple):
    error: ErrorCode
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


class LeftMember(NamedTuple):
    member_id: str
    instance_id: str | None
    error: ErrorCode


class LeaveReply(NamedTuple):
    error: ErrorCode
    members: tuple[LeftMember, ...] = ()


class ErrorReply(NamedTuple):
    """The answer to Heartbeat, to the check of a commit and to a deletion."""

    error: ErrorCode


Answer: TypeAlias = JoinReply | SyncReply | LeaveReply | ErrorReply

# --- events ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class JoinRequest:
    """JoinGroup. `requires_member_id` is KIP-394 (v4 and up), `may_skip_assignment` is KIP-814 (v9 and up)."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[tuple[str, bytes], ...]
    requires_member_id: bool = False
    may_skip_assignment: bool = False


@dataclass(frozen=True, slots=True)
class Join:
    """A JoinGroup whose response has a token; `new_member_id` is the id to give if one is needed."""

    token: int
    new_member_id: str
    request: JoinRequest


@dataclass(frozen=True, slots=True)
class Sync:
    """SyncGroup. A None protocol type or name is not compared (before v5 there is none)."""

    token: int
    member_id: str
    instance_id: str | None
    generation_id: int
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignments: tuple[tuple[str, bytes], ...] = ()


@dataclass(frozen=True, slots=True)
class Heartbeat:
    token: int
    member_id: str
    instance_id: str | None
    generation_id: int


@dataclass(frozen=True, slots=True)
class Leave:
    """LeaveGroup: (member id, instance id) of each one that goes."""

    token: int
    members: tuple[tuple[str, str | None], ...]


@dataclass(frozen=True, slots=True)
class Commit:
    """May this member commit offsets now? The offsets themselves are none of the machine's business."""

    token: int
    member_id: str
    instance_id: str | None
    generation_id: int
    transactional: bool = False


@dataclass(frozen=True, slots=True)
class Delete:
    """DeleteGroups, or (with `only_if_unused`) the sweep that found the group without offsets."""

    token: int | None
    only_if_unused: bool = False


@dataclass(frozen=True, slots=True)
class Loaded:
    """The group was read from the log: its members are alive again from now on."""


class SessionExpired(NamedTuple):
    """No sign of life from the member for its session time-out."""

    member_id: str


class PendingExpired(NamedTuple):
    """An id given out under KIP-394 never came back."""

    member_id: str


class RebalanceDue(NamedTuple):
    """The time to join is over."""

    name: str = "rebalance"


class SyncDue(NamedTuple):
    """The time to sync is over (KAFKA-12890)."""

    name: str = "sync"


Timer: TypeAlias = SessionExpired | PendingExpired | RebalanceDue | SyncDue
"""A timer is named by the event that it will be."""


class Purpose(Enum):
    """Why a group is written."""

    ASSIGNMENT = "assignment"
    STATIC_RETURN = "static return"
    EMPTIED = "emptied"
    DELETION = "deletion"


@dataclass(frozen=True, slots=True)
class Persist:
    """Write `group` as its last known state (for a DELETION: its tombstone), then feed Persisted or PersistFailed.

    The outcome is fed before any other event of the group, so what the write was decided on still holds.
    """

    purpose: Purpose
    group: Group
    token: int | None = None
    accepted: JoinReply | None = None


@dataclass(frozen=True, slots=True)
class Persisted:
    write: Persist


@dataclass(frozen=True, slots=True)
class PersistFailed:
    write: Persist
    error: ErrorCode


Event: TypeAlias = (
    Join
    | Sync
    | Heartbeat
    | Leave
    | Commit
    | Delete
    | Loaded
    | SessionExpired
    | PendingExpired
    | RebalanceDue
    | SyncDue
    | Persisted
    | PersistFailed
)

EVENTS: tuple[type, ...] = get_args(Event)

# --- effects ---------------------------------------------------------------------------------------------------------


class Reply(NamedTuple):
    """Answer the request that the token names."""

    token: int
    answer: Answer


class StartTimer(NamedTuple):
    """Feed `timer` after the delay; it takes the place of a running timer of the same name."""

    timer: Timer
    delay_ms: int


class CancelTimer(NamedTuple):
    """Stop the timer if it runs."""

    timer: Timer


class Forget(NamedTuple):
    """The group is dead: no event will be fed to it any more."""

    group_id: str


Effect: TypeAlias = Reply | StartTimer | CancelTimer | Persist | Forget
