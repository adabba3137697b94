"""Events of a group of the consumer protocol, settings, responses and effects. All are values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Literal, TypeAlias

from ....protocol.errors import ErrorCode
from ....protocol.frozen import frozen
from ....protocol.limits import INT32_MAX
from ....protocol.named import NamedTuple
from ..classic.state import Group as ClassicGroup
from ..classic.state import Heartbeat as ClassicHeartbeat
from ..classic.state import Join as ClassicJoin
from ..classic.state import Leave as ClassicLeave
from ..classic.state import Response as ClassicResponse
from ..classic.state import Sync as ClassicSync
from .assignors import ASSIGNORS
from .reconciliation import Owned
from .state import Change, Partitions, Resolved

MigrationPolicy: TypeAlias = Literal["bidirectional", "upgrade", "downgrade", "disabled"]


@frozen
class Settings:
    """Settings of a group, with Kafka's defaults. Times in milliseconds, sizes in members.

    `first_epoch` and the switches are behaviours of the release; `by_hash` compares the metadata of topics by their
    hash, `resets_epochs` lets a static member that leaves lose the epochs of its assignment.
    """

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    max_size: int = INT32_MAX
    assignors: tuple[str, ...] = tuple(ASSIGNORS)
    assignment_interval_ms: int = 1_000
    regex_refresh_interval_ms: int = 600_000
    migration: MigrationPolicy = "bidirectional"
    classic_max_size: int = INT32_MAX
    first_epoch: int = 1
    by_hash: bool = True
    rejoins_at_zero: bool = True
    resets_epochs: bool = True
    commits_by_assignment: bool = True

    @property
    def upgrades(self) -> bool:
        """Whether a classic group may become one of the consumer protocol."""
        return self.migration in ("bidirectional", "upgrade")

    @property
    def downgrades(self) -> bool:
        """Whether a group of the consumer protocol may become a classic one."""
        return self.migration in ("bidirectional", "downgrade")


class Caller(NamedTuple):
    """Whose permissions decide which topics a regular expression matches."""

    principal: str
    client_host: str


# --- events ----------------------------------------------------------------------------------------------------------


@frozen
class HeartbeatRequest:
    """ConsumerGroupHeartbeat of a member that stays or joins. None, or a time of -1, means unchanged."""

    member_id: str
    epoch: int
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    topics: frozenset[str] | None = None
    regex: str | None = None
    assignor: str | None = None
    owned: Owned | None = None
    client_id: str = ""
    client_host: str = ""
    caller: Caller | None = None

    @property
    def is_full(self) -> bool:
        """Whether the request has all fields: the member joins, or may have lost a response."""
        has_subscription = self.topics is not None or self.regex is not None
        return self.rebalance_timeout_ms != -1 and has_subscription and self.owned is not None


@frozen
class MemberHeartbeat:
    """A heartbeat whose response is identified by `token`; `new_member_id` is the id of a member without one."""

    token: int
    new_member_id: str
    request: HeartbeatRequest


@frozen
class MemberLeave:
    """A heartbeat with the epoch LEAVE or STATIC_LEAVE."""

    token: int
    member_id: str
    instance_id: str | None
    epoch: int


@frozen
class Delete:
    """DeleteGroups; without a token, the removal of a group that is not used any more."""

    token: int | None


@frozen
class Loaded:
    """The group was restored from the log: the sessions of its members start now."""


@frozen
class RegexesResolved:
    """The topics that match regular expressions."""

    found: Mapping[str, Resolved]


@frozen
class SessionExpired:
    """The session timeout of the member passed without a heartbeat."""

    member_id: str
    name: str = "session"


@frozen
class RevocationOverdue:
    """The rebalance timeout passed, and the member has not confirmed that it revoked partitions."""

    member_id: str
    name: str = "revocation"


@frozen
class JoinOverdue:
    """The rebalance timeout passed, and a classic member that has to join again has not."""

    member_id: str
    name: str = "join"


@frozen
class SyncOverdue:
    """The rebalance timeout passed, and a classic member that joined has not synced."""

    member_id: str
    name: str = "sync"


Timer: TypeAlias = SessionExpired | RevocationOverdue | JoinOverdue | SyncOverdue
"""A timer is identified by the event that it produces."""
TIMERS: tuple[type[SessionExpired], type[RevocationOverdue], type[JoinOverdue], type[SyncOverdue]] = (
    SessionExpired,
    RevocationOverdue,
    JoinOverdue,
    SyncOverdue,
)

Event: TypeAlias = (
    MemberHeartbeat
    | MemberLeave
    | ClassicJoin
    | ClassicSync
    | ClassicHeartbeat
    | ClassicLeave
    | Delete
    | Loaded
    | RegexesResolved
    | Timer
)

# --- responses -------------------------------------------------------------------------------------------------------


class HeartbeatReply(NamedTuple):
    """Response to ConsumerGroupHeartbeat; an assignment of None means that it is unchanged."""

    error: ErrorCode
    message: str | None = None
    member_id: str | None = None
    epoch: int = 0
    heartbeat_interval_ms: int = 0
    assignment: Partitions | None = None


class DeleteReply(NamedTuple):
    error: ErrorCode


Response: TypeAlias = HeartbeatReply | DeleteReply | ClassicResponse

# --- effects ---------------------------------------------------------------------------------------------------------


class Reply(NamedTuple):
    """Effect: respond to the request identified by `token`."""

    token: int
    response: Response


class StartTimer(NamedTuple):
    """Effect: feed `timer` after the delay; replaces a running timer of the same name unless `if_absent`."""

    timer: Timer
    delay_ms: int
    if_absent: bool = False


class CancelTimer(NamedTuple):
    """Effect: stop the timer if it is running."""

    timer: Timer


class Resolve(NamedTuple):
    """Effect: find the topics that match these regular expressions, unless the group waits for such a search already;
    then feed RegexesResolved. Not part of the request: it may take long.
    """

    regexes: tuple[str, ...]
    caller: Caller


class Forget(NamedTuple):
    """Effect: remove the group; it receives no more events."""

    group_id: str


class BecomeClassic(NamedTuple):
    """Effect: replace the group by a classic one, in the same write as the changes; then start its sessions, and a
    rebalance if `rebalances`.
    """

    group: ClassicGroup
    rebalances: bool


Effect: TypeAlias = Reply | StartTimer | CancelTimer | Resolve | Forget | BecomeClassic


@frozen
class Decision:
    """What an event leads to: changes, written together before they apply, and then effects. If the write fails nothing
    happens but an error response to the request.
    """

    changes: tuple[Change, ...] = ()
    effects: tuple[Effect, ...] = field(default_factory=tuple[Effect, ...])
