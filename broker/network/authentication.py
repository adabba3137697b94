"""Requests on a connection with SASL: which of them may run now, and tokens without a header (SaslHandshake v0)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...protocol.api_key import ApiKey
from ...protocol.errors import ErrorCode, ProtocolViolation
from ...protocol.headers import read_prefix
from ...protocol.messages.security.sasl_authenticate import SaslAuthenticateRequest
from ..context import RequestContext
from ..errors import Refused
from ..handlers import HANDLERS
from ..releases.profiles import api_names
from ..security.sasl.machine import Action
from .request_runner import HandlerRunner
from .route import route_of
from .router import call

if TYPE_CHECKING:
    from ..broker_state import BrokerState
    from ..connection_info import ConnectionInfo
    from ..security.sasl.session import SaslSession
    from .request_runner import RequestRunner


def call_on(session: SaslSession, frame: memoryview, broker: BrokerState, info: ConnectionInfo) -> RequestRunner:
    """Reads one request, as `router.call`. Raises ProtocolViolation also for a request that may not come now."""
    if session.takes_tokens or _is_first_token(session, frame, broker):
        route = route_of(ApiKey.SASL_AUTHENTICATE)
        context = RequestContext(broker, 0, 0, info.client_id or "", info)
        request = SaslAuthenticateRequest(auth_bytes=bytes(frame))
        return TokenRunner(route.handler(request, context), route, b"", context)
    api_key = read_prefix(frame).api_key
    action = session.admit(api_key, broker.clock.now_ms())
    if action is Action.CLOSE:
        name = api_names().get(api_key, f"API key {api_key}")
        why = "its session is over" if info.sasl is not None and info.sasl.principal else "it is not authenticated"
        raise ProtocolViolation(f"the client sent {name}, and {why}")
    runner = call(frame, broker, info)
    if action is Action.ILLEGAL:
        runner.close()
        return HandlerRunner(_illegal(session, runner.context), runner.route, runner.header, runner.context)
    return runner


def _is_first_token(session: SaslSession, frame: memoryview, broker: BrokerState) -> bool:
    """Begins an exchange if the frame is no request, and the client may send tokens without SaslHandshake."""
    is_request = read_prefix(frame).api_key in HANDLERS
    return not is_request and session.begin_without_handshake(broker.clock.now_ms())


async def _illegal(session: SaslSession, context: RequestContext) -> Any:
    await session.fail(context.broker.waits, "a request before the end of the authentication")
    raise Refused(ErrorCode.ILLEGAL_SASL_STATE)


class TokenRunner(HandlerRunner):
    """Runs SaslAuthenticate for a token without a header. The response is the broker's token alone, of no bytes where
    the mechanism has an empty one; after a failure, and at the end of GSSAPI, there is none."""

    __slots__ = ()

    def parts(self) -> list[Any]:
        session = self.context.connection_info.sasl
        is_sent = session is not None and session.sends_token and not self.response.error_code
        return [bytes(self.response.auth_bytes)] if is_sent else []
