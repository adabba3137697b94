"""Brokers in the test's event loop or in a process, the requests that tests send, and expected responses."""
