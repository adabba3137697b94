"""Faults on command: a broker that answers errors, is slow, loses answers, or has a bad disk, by rules.

`rules.py` says what a rule matches and `actions.py` what it does; `rule_set.py` is the set in force, which a broker has
as `BrokerState.faults`, None unless it was switched on. Requests meet them in `injection.py`, the disk's operations in
`disk.py`. A test uses `view.py`.
"""

from __future__ import annotations

from .actions import ACTIONS, PARAMETERS, Action
from .rule_set import Faults, UnknownFault
from .rules import Place, Rule, StandingRule
from .view import AsyncFaultHandle, AsyncFaultsView, FaultHandle, FaultsView

__all__ = [
    "ACTIONS",
    "PARAMETERS",
    "Action",
    "AsyncFaultHandle",
    "AsyncFaultsView",
    "FaultHandle",
    "Faults",
    "FaultsView",
    "Place",
    "Rule",
    "StandingRule",
    "UnknownFault",
]
