"""What the sink raises: one sentence each, that names what and where."""

from __future__ import annotations


class SinkError(Exception):
    """Rows cannot be written as asked."""


class SinkFenced(SinkError):
    """Another query has taken over the transactional id: this one must not go on, and must not begin again."""


class SinkTimedOut(SinkError):
    """The brokers have aborted the transaction for its age: nothing of it counts, and another may be begun."""
