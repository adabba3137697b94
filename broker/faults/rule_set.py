"""The set of rules that are in force in one broker.

Owns their ids and order, the telling of who waits for a rule to go, and that listeners refuse for as long as a rule
says so. Methods are called on the broker's event loop; only the disk reads its rules in other threads. It outlives a
`BrokerState`: what is restored or reset finds the same faults.
"""

from __future__ import annotations

import contextlib
from typing import Protocol

from .actions import DISK, REQUEST, SOCKET
from .rules import Rule, StandingRule


class Sockets(Protocol):
    """What can refuse connections, and knows its nodes and listeners: `server.Running`."""

    def check_named(self, node_id: int | None, listener: str | None) -> None: ...

    def refuse(self, node_id: int | None = None, listener: str | None = None) -> None: ...

    def accept(self, node_id: int | None = None, listener: str | None = None) -> None: ...


class UnknownFault(LookupError):
    """No rule with that id is in force."""


class Faults:
    """The rules, oldest first; of two that answer the same partition the older one does."""

    def __init__(self) -> None:
        self._rules: dict[int, StandingRule] = {}
        self._next_id = 1
        self._sockets: Sockets | None = None
        self.requests: tuple[StandingRule, ...] = ()
        """Those that are matched against requests."""
        self.disk: tuple[StandingRule, ...] = ()
        """Those that are matched against operations of the disk."""

    def attach(self, sockets: Sockets | None) -> None:
        """Who refuses connections from now on; None when nobody can."""
        self._sockets = sockets
        self._refuse()

    def add(self, rule: Rule) -> int:
        """Puts a rule in force; its id. Raises OSError where a listener cannot refuse, and ValueError where the broker
        has no such node or listener: nothing would ever come of it."""
        if self._sockets is not None:
            self._sockets.check_named(rule.node, rule.listener)
        id, self._next_id = self._next_id, self._next_id + 1
        self._rules[id] = StandingRule(id, rule)
        self._changed()
        if rule.action.scope == SOCKET:
            try:
                self._refuse()
            except OSError:
                del self._rules[id]
                raise
        return id

    def get(self, id: int) -> StandingRule:
        """A rule in force. Raises UnknownFault."""
        try:
            return self._rules[id]
        except KeyError:
            raise UnknownFault(f"no fault {id}") from None

    def remove(self, id: int) -> None:
        """Takes a rule out of force; what it held up goes on. Raises UnknownFault."""
        standing = self.get(id)
        del self._rules[id]
        self._changed()
        self._gone(standing)

    def clear(self) -> None:
        """Takes all rules out of force."""
        gone, self._rules = list(self._rules.values()), {}
        self._changed()
        for standing in gone:
            self._gone(standing)

    def list(self) -> list[StandingRule]:
        """All rules in force, oldest first."""
        return list(self._rules.values())

    def _changed(self) -> None:
        rules = self._rules.values()
        self.requests = tuple(one for one in rules if one.rule.action.scope == REQUEST)
        self.disk = tuple(one for one in rules if one.rule.action.scope == DISK)

    def _gone(self, standing: StandingRule) -> None:
        standing.removed()
        if standing.rule.action.scope == SOCKET and self._sockets is not None:
            with contextlib.suppress(OSError):  # nothing that the caller could do about it
                self._sockets.accept(standing.rule.node, standing.rule.listener)
            self._refuse()  # what other rules refuse as well

    def _refuse(self) -> None:
        if self._sockets is not None:
            for standing in self._rules.values():
                if standing.rule.action.scope == SOCKET:
                    self._sockets.refuse(standing.rule.node, standing.rule.listener)
