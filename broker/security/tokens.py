"""Delegation tokens (KIP-48), of which there are none: who may ask for them, and what everybody else is told."""

from __future__ import annotations

from ...protocol.errors import ErrorCode

REFUSAL = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
"""What Kafka answers on a connection without authentication, as all of ours are, before it looks at anything else: a
broker without `delegation.token.secret.key` answers DELEGATION_TOKEN_AUTH_DISABLED to others alone."""
NO_TIME = -1
