"""The rules in force in one broker.

Owns their ids and their order, ends the waits of stalled requests when a rule is removed, and has listeners refuse
connections. Methods are called on the broker's event loop; only the disk reads its rules in other threads. The rules
outlive a `BrokerState`: they still apply after a restore or a reset.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection
from typing import Protocol

from .actions import DISK, HANDSHAKE, REQUEST, SOCKET
from .rules import Rule, StandingRule


class Sockets(Protocol):
    """The sockets that can refuse connections, with their nodes and listeners: `server.Running`."""

    def check_named(self, node_id: int | None, listener: str | None) -> None: ...

    def check_certificates(self) -> None: ...

    def refuse(self, places: Collection[tuple[int | None, str | None]]) -> None: ...


class UnknownFault(LookupError):
    """No rule with that id is in force."""


class Faults:
    """The rules, oldest first. Where two rules match the same partition, the older one applies."""

    def __init__(self) -> None:
        self._rules: dict[int, StandingRule] = {}
        self._next_id = 1
        self._sockets: Sockets | None = None
        self.requests: tuple[StandingRule, ...] = ()
        """The rules for requests."""
        self.disk: tuple[StandingRule, ...] = ()
        """The rules for operations of the disk."""
        self.handshakes: tuple[StandingRule, ...] = ()
        """The rules for TLS handshakes."""

    def attach(self, sockets: Sockets | None) -> None:
        """Sets the sockets that refuse connections from now on; None for no sockets."""
        self._sockets = sockets
        self._refuse()

    def add(self, rule: Rule) -> int:
        """Puts a rule in force and returns its id.

        Raises OSError if a listener cannot refuse connections, and ValueError if the broker has no such node or
        listener, or no listener with certificates: the rule would never fire.
        """
        if self._sockets is not None:
            self._sockets.check_named(rule.node, rule.listener)
            if rule.action.scope == HANDSHAKE:
                self._sockets.check_certificates()
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
        """Returns a rule in force. Raises UnknownFault."""
        try:
            return self._rules[id]
        except KeyError:
            raise UnknownFault(f"no fault with id {id} is in force") from None

    def remove(self, id: int) -> None:
        """Removes a rule; requests that it stalls resume. Raises UnknownFault."""
        standing = self.get(id)
        del self._rules[id]
        self._changed()
        self._gone(standing)

    def clear(self) -> int:
        """Removes all rules, and returns their number."""
        gone, self._rules = list(self._rules.values()), {}
        self._changed()
        for standing in gone:
            self._gone(standing)
        return len(gone)

    def list(self) -> list[StandingRule]:
        """Returns the rules in force, oldest first."""
        return list(self._rules.values())

    def _changed(self) -> None:
        rules = self._rules.values()
        self.requests = tuple(one for one in rules if one.rule.action.scope == REQUEST)
        self.disk = tuple(one for one in rules if one.rule.action.scope == DISK)
        self.handshakes = tuple(one for one in rules if one.rule.action.scope == HANDSHAKE)

    def _gone(self, standing: StandingRule) -> None:
        standing.removed()
        if standing.rule.action.scope == SOCKET:
            with contextlib.suppress(OSError):  # the caller could do nothing about it
                self._refuse()

    def _refuse(self) -> None:
        if self._sockets is not None:
            rules = [one.rule for one in self._rules.values() if one.rule.action.scope == SOCKET]
            self._sockets.refuse([(rule.node, rule.listener) for rule in rules])
