"""Faults on command: a broker that answers errors, is slow, loses answers, or has a bad disk, by rules.

`rules.py` says what a rule matches and `actions.py` what it does; `rule_set.py` is the set in force, which a broker has
as `BrokerState.faults`, None unless it was switched on. Requests meet them in `broker/network/fault_injection.py`, the
disk's operations in `disk.py`. A test uses `broker/testing/faults.py`.
"""

from __future__ import annotations

from .actions import ACTIONS, PARAMETERS, Action
from .rule_set import Faults, UnknownFault
from .rules import Rule, StandingRule

__all__ = [
    "ACTIONS",
    "PARAMETERS",
    "Action",
    "Faults",
    "Rule",
    "StandingRule",
    "UnknownFault",
]
