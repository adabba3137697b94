"""SaslHandshake v0-v1 chooses the mechanism of an authentication (KIP-43), SaslAuthenticate v0-v2 passes a token of the
client and that of the broker (KIP-152). On an authenticated connection they begin another one (KIP-368). Both require
nothing.

SaslHandshake checks: the connection is on a listener with SASL and waits for it, else ILLEGAL_SASL_STATE; the mechanism
is enabled, else UNSUPPORTED_SASL_MECHANISM with those that are, after the delay of failures, and the connection is
closed. SaslAuthenticate checks: an exchange is under way, else ILLEGAL_SASL_STATE; the mechanism accepts the token,
else SASL_AUTHENTICATION_FAILED after the delay of failures, and the connection is closed. From v1 on the lifetime of
the session is in the response (KIP-368); it ends with that of a delegation token or of a token of OAUTHBEARER.
"""

from __future__ import annotations

from ....protocol.errors import ErrorCode, ProtocolViolation
from ....protocol.messages.security.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from ....protocol.messages.security.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from ...context import RequestContext, handles
from ...security.sasl.mechanisms import Dropped, SaslError

NOT_NOW = "SaslAuthenticate request received after successful authentication"


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


@handles(SaslAuthenticateRequest)
async def sasl_authenticate(request: SaslAuthenticateRequest, context: RequestContext) -> SaslAuthenticateResponse:
    """Returns the broker's token, or the error of the exchange."""
    session = context.connection_info.sasl
    if session is None or not session.is_under_way:
        code = ErrorCode.ILLEGAL_SASL_STATE
        return SaslAuthenticateResponse(error_code=code, error_message=NOT_NOW, auth_bytes=b"")
    try:
        reply = session.respond(bytes(request.auth_bytes), context.broker.clock.now_ms())
    except SaslError as error:
        text = session.text_of(error)
        await session.fail(context.broker.waits, error.reason or text)
        code = ErrorCode.SASL_AUTHENTICATION_FAILED
        return SaslAuthenticateResponse(error_code=code, error_message=text, auth_bytes=b"")
    except Dropped as dropped:
        raise ProtocolViolation(f"the authentication failed: {dropped}") from None
    if session.principal is not None:
        context.connection_info.principal = session.principal
        context.connection_info.token_authenticated = session.token_authenticated
        library = context.connection_info.library
        context.broker.clients.note_principal(library, context.client_id, session.principal)
    return SaslAuthenticateResponse(
        error_code=ErrorCode.NONE,
        error_message="" if context.broker.profile.behaviour.sasl_text else None,
        auth_bytes=reply.token or b"",
        session_lifetime_ms=reply.lifetime_ms,
    )
