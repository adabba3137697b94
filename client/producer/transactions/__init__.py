"""Transactions of a producer: their state machine, and the requests that it sends."""
