"""Values of a classic group: its state, the events that change it, and the effects that follow.

Contains no behaviour: `machine` computes the transitions, `coordinator` carries out the effects. All values are
immutable, and a mapping inside one never changes after construction, so groups can be kept, compared and written
without copying.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import Enum
from typing import ClassVar, Literal, TypeAlias, get_args

from ....protocol.errors import ErrorCode
from ....protocol.frozen import frozen
from ....protocol.limits import INT32_MAX
from ....protocol.named import NamedTuple
from ..common_events import CancelTimer, Forget, SessionExpired, StartTimer, Timer

NEW_MEMBER_JOIN_TIMEOUT_MS = 300_000
"""How long a new member without a response may stay in a delayed join: it has no id to send heartbeats with. Kafka's
constant.
"""

CONSUMER_PROTOCOL_TYPE = "consumer"

MemberChecks: TypeAlias = Literal["rebalance_first", "given", "all", "unless_empty"]


class GroupState(Enum):
    """The five states; values are Kafka's names in ListGroups and DescribeGroups."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


@frozen
class GroupSettings:
    """Settings of the group state machine. Times in milliseconds, `max_size` in members.

    The switches are behaviours of the release, with the same names.
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
        """Whether a request may name a group instance id that the group does not have, as before 3.0."""
        return self.member_checks in ("rebalance_first", "given")


@frozen
class Member:
    """A member of a group. `protocols` are pairs (name, metadata) in the member's order of preference.

    `join_token` and `sync_token` identify the delayed JoinGroup or SyncGroup request, None if there is none. A member
    is new until its first successful JoinGroup response.
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
        """Returns the member's metadata for this protocol; empty if the member does not support it."""
        for name, metadata in self.protocols:
            if name == protocol_name:
                return metadata
        return b""


@frozen
class Group:
    """A classic group. `members` is in order of joining. `pending` has the ids handed out under KIP-394 that have not
    joined yet, `pending_sync` the members that have not synced in this generation. `state_changed_ms` is -1 if unknown.

    `initial_remaining_ms` is how much longer the first rebalance may be delayed, None in any later rebalance.
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
    kind: ClassVar[str] = "classic"

    def member_of_instance(self, instance_id: str) -> str | None:
        """Returns the member id that currently uses a static instance id, or None."""
        for member in self.members.values():
            if member.instance_id == instance_id:
                return member.member_id
        return None

    @property
    def rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    @property
    def joined(self) -> int:
        """The number of members with a delayed JoinGroup request."""
        return sum(member.join_token is not None for member in self.members.values())

    @property
    def parked_tokens(self) -> tuple[int, ...]:
        tokens = [member.join_token for member in self.members.values()]
        tokens += [member.sync_token for member in self.members.values()]
        return tuple(token for token in tokens if token is not None)


# --- responses -------------------------------------------------------------------------------------------------------


class JoinedMember(NamedTuple):
    member_id: str
    instance_id: str | None
    metadata: bytes


class JoinReply(NamedTuple):
    """Response to JoinGroup; only the leader gets `members`."""

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
    """Response to Heartbeat, to the check of an offset commit, and to a deletion."""

    error: ErrorCode


Response: TypeAlias = JoinReply | SyncReply | LeaveReply | ErrorReply

# --- events ----------------------------------------------------------------------------------------------------------


@frozen
class JoinRequest:
    """JoinGroup. `requires_member_id` is KIP-394 (v4 and later), `may_skip_assignment` is KIP-814 (v9 and later)."""

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


@frozen
class Join:
    """A JoinGroup request whose response is identified by `token`; `new_member_id` is the id to assign if one is
    needed.
    """

    token: int
    new_member_id: str
    request: JoinRequest


@frozen
class Sync:
    """SyncGroup. A protocol type or name of None is not compared (v0 to v4 do not send them)."""

    token: int
    member_id: str
    instance_id: str | None
    generation_id: int
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignments: tuple[tuple[str, bytes], ...] = ()


@frozen
class Heartbeat:
    token: int
    member_id: str
    instance_id: str | None
    generation_id: int


@frozen
class Leave:
    """LeaveGroup: pairs (member id, instance id) of the leaving members."""

    token: int
    members: tuple[tuple[str, str | None], ...]


@frozen
class Commit:
    """The check of an offset commit: may this member commit now? The machine does not see the offsets themselves."""

    token: int
    member_id: str
    instance_id: str | None
    generation_id: int
    transactional: bool = False


@frozen
class Delete:
    """DeleteGroups; with `only_if_unused`, the cleanup of a group that has no offsets."""

    token: int | None
    only_if_unused: bool = False


@frozen
class Loaded:
    """The group was restored from the log, or was one of the consumer protocol until now: the sessions of its members
    start, and a rebalance if `rebalances`.
    """

    rebalances: bool = False


@frozen
class PendingExpired(Timer):
    """A member id handed out under KIP-394 was not used in time."""

    member_id: str


@frozen
class RebalanceDue(Timer):
    """The rebalance timeout for joining has passed."""


@frozen
class SyncDue(Timer):
    """The rebalance timeout for syncing has passed (KAFKA-12890)."""


class Purpose(Enum):
    """Why a group record is written."""

    ASSIGNMENT = "assignment"
    STATIC_RETURN = "static return"
    EMPTIED = "emptied"
    DELETION = "deletion"


@frozen
class Persist:
    """Effect: write `group` as its current record (a tombstone for DELETION), then feed Persisted or PersistFailed.

    The outcome is fed before any other event of the group, so the state that led to the write is still current.
    """

    purpose: Purpose
    group: Group
    token: int | None = None
    accepted: JoinReply | None = None


@frozen
class Persisted:
    write: Persist


@frozen
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
    """Effect: respond to the request identified by `token`."""

    token: int
    response: Response


Effect: TypeAlias = Reply | StartTimer | CancelTimer | Persist | Forget
