"""Events of a group of the consumer protocol, settings, responses and effects. All are values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias

from ....protocol.frozen import frozen
from ....protocol.limits import INT32_MAX
from ....protocol.named import NamedTuple
from ..classic.state import Group as ClassicGroup
from ..classic.state import Heartbeat as ClassicHeartbeat
from ..classic.state import Join as ClassicJoin
from ..classic.state import Leave as ClassicLeave
from ..classic.state import Sync as ClassicSync
from ..common_events import (
    AssignedSettings,
    CancelTimer,
    Delete,
    Forget,
    Loaded,
    MemberLeave,
    Reply,
    RevocationOverdue,
    SessionExpired,
    StartTimer,
    Timer,
)
from .assignors import ASSIGNORS
from .reconciliation import Owned
from .state import Resolved

MigrationPolicy: TypeAlias = Literal["bidirectional", "upgrade", "downgrade", "disabled"]


@frozen
class Settings(AssignedSettings):
    """The switches are behaviours of the release; `by_hash` compares the metadata of topics by their hash,
    `resets_epochs` lets a static member that leaves lose the epochs of its assignment.
    """

    assignors: tuple[str, ...] = tuple(ASSIGNORS)
    regex_refresh_interval_ms: int = 600_000
    migration: MigrationPolicy = "bidirectional"
    classic_max_size: int = INT32_MAX
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
class MemberHeartbeat:
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
class RegexesResolved:
    """The topics that match regular expressions."""

    found: Mapping[str, Resolved]


@frozen
class JoinOverdue(Timer):
    """The rebalance timeout passed, and a classic member that has to join again has not."""

    member_id: str


@frozen
class SyncOverdue(Timer):
    """The rebalance timeout passed, and a classic member that joined has not synced."""

    member_id: str


TIMERS = (SessionExpired, RevocationOverdue, JoinOverdue, SyncOverdue)
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

# --- effects ---------------------------------------------------------------------------------------------------------


class Resolve(NamedTuple):
    """Effect: find the topics that match these regular expressions, unless the group waits for such a search already;
    then feed RegexesResolved. Not part of the request: it may take long.
    """

    regexes: tuple[str, ...]
    caller: Caller


class BecomeClassic(NamedTuple):
    """Effect: replace the group by a classic one, in the same write as the changes; then start its sessions, and a
    rebalance if `rebalances`.
    """

    group: ClassicGroup
    rebalances: bool


Effect: TypeAlias = Reply | StartTimer | CancelTimer | Resolve | Forget | BecomeClassic
