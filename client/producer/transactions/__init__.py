"""Transactions of the producer: the state machine, and its requests."""
