"""Delegation tokens (KIP-48), which this broker does not issue: the error codes of its refusals."""

from __future__ import annotations

from ...protocol.errors import ErrorCode

REFUSAL = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
"""Kafka's response on a connection without authentication, as all connections here are, checked before anything else.
Only an authenticated client gets DELEGATION_TOKEN_AUTH_DISABLED from a broker without `delegation.token.secret.key`.
"""
NO_TIME = -1
