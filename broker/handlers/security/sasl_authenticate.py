"""SaslAuthenticate v0-2: a token of the client and that of the broker (KIP-152). Requires nothing.

Checks: an exchange is under way, else ILLEGAL_SASL_STATE; the mechanism accepts the token, else
SASL_AUTHENTICATION_FAILED after the delay of failures, and the connection is closed. From v1 on the lifetime of the
session is in the response (KIP-368); it ends with that of a delegation token or of a token of OAUTHBEARER.
"""

from __future__ import annotations

from ....protocol.errors import ErrorCode, ProtocolViolation
from ....protocol.messages.security.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from ...context import RequestContext, handles
from ...security.sasl.mechanisms import Dropped, SaslError

NOT_NOW = "SaslAuthenticate request received after successful authentication"


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
