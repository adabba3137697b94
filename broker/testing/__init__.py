"""Brokers for tests: in the process of a test, as fixtures, with a clock that tests move and faults that they
inject."""
