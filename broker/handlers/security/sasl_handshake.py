"""SaslHandshake v0-1: chooses the mechanism of an authentication (KIP-43); on an authenticated connection it begins
another one (KIP-368). Requires nothing.

Checks: the connection is on a listener with SASL and waits for it, else ILLEGAL_SASL_STATE; the mechanism is enabled,
else UNSUPPORTED_SASL_MECHANISM with those that are, after the delay of failures, and the connection is closed.
"""

from __future__ import annotations

from ....protocol.errors import ErrorCode
from ....protocol.messages.security.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from ...context import RequestContext, handles


@handles(SaslHandshakeRequest)
async def sasl_handshake(request: SaslHandshakeRequest, context: RequestContext) -> SaslHandshakeResponse:
    """Returns the enabled mechanisms."""
    session = context.connection_info.sasl
    if session is None:
        return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, mechanisms=[])
    code = session.handshake(request.mechanism, context.api_version, context.broker.clock.now_ms())
    if code is ErrorCode.ILLEGAL_SASL_STATE:
        return SaslHandshakeResponse(error_code=code, mechanisms=[])
    if code is not ErrorCode.NONE:
        await session.fail(context.broker.waits, f"the mechanism {request.mechanism!r:.50} is not enabled")
    return SaslHandshakeResponse(error_code=code, mechanisms=list(session.settings.mechanisms))
