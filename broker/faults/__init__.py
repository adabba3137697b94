"""Fault injection: by rules, a broker returns errors, delays or loses responses, or has a bad disk.

`rules.py` has the conditions of a rule and `actions.py` its action. `rule_set.py` has the rules in force, which are
`BrokerState.faults`, or None unless fault injection is available. `broker/network/fault_injection.py` applies rules to
requests, `disk.py` to operations of the disk. Tests use `broker/testing/faults.py`.
"""
