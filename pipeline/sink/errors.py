"""The errors of the sink; each message is one sentence with the cause and the place."""

from __future__ import annotations


class SinkError(Exception):
    """Rows cannot be written."""


class SinkFenced(SinkError):
    """Another query has taken over the transactional id: this one must stop, and must not begin a transaction again."""


class SinkTimedOut(SinkError):
    """The brokers have aborted the transaction after its timeout: none of its records count, and another may begin."""
