"""Brokers for tests: in the test's process, as fixtures, with a clock that tests move and injected faults."""
