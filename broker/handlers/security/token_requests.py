"""Checks that the requests about delegation tokens have in common (KIP-48)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....protocol.errors import ErrorCode
from ...errors import Refused
from ...security.authorizer import ANONYMOUS

if TYPE_CHECKING:
    from ...context import RequestContext


def check_connection(context: RequestContext) -> None:
    """Raises Refused for a client that is not authenticated, or is by a delegation token: one token must not lead to
    another."""
    info = context.connection_info
    if info.token_authenticated or (info.sasl is None and info.principal == ANONYMOUS):
        raise Refused(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)


def check_served(context: RequestContext) -> None:
    """Raises Refused if tokens are disabled, or `metadata.version` has no records of them."""
    if not context.broker.tokens.is_enabled:
        raise Refused(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
    if not context.broker.features.stores_tokens:
        raise Refused(ErrorCode.UNSUPPORTED_VERSION)
