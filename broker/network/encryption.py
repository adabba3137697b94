"""The start of TLS on an accepted connection: the handshake, and the principal that a certificate proves.

asyncio encrypts. Until the handshake is over the connection counts as open for the limits of connections and of idle
time, and starts no request.
"""

from __future__ import annotations

import asyncio
import ssl
from typing import TYPE_CHECKING, Any, Protocol, cast

from ..logs import get_logger

if TYPE_CHECKING:
    from ..broker_state import BrokerState
    from ..security.tls import TlsListener

HANDSHAKE_SECONDS = 60.0
SHUTDOWN_SECONDS = 1.0  # a peer that does not confirm the end of TLS is not waited for, as in Kafka


class Encrypted(Protocol):
    """A connection that waits for its handshake."""

    def secured(self, transport: asyncio.Transport, principal: str | None) -> None: ...
    def insecure(self, error: Exception) -> None: ...
    def log_fields(self) -> dict[str, Any]: ...


class Encryption:
    """The handshake of one connection."""

    __slots__ = ("_connection", "_context", "_listener", "_starting")

    def __init__(self, connection: Encrypted, listener: TlsListener, context: ssl.SSLContext | None = None) -> None:
        """`context` is that of a fault."""
        self._connection = connection
        self._context = context
        self._listener = listener
        self._starting: Any = None

    def begin(self, loop: asyncio.AbstractEventLoop, transport: Any) -> None:
        """Starts the handshake; `secured` or `insecure` of the connection follows.

        The first step runs at once: a task would begin it later, when uvloop may have read the first bytes already.
        """
        self._starting = loop.start_tls(
            transport,
            cast("asyncio.BaseProtocol", self._connection),
            self._context or self._listener.context(),
            server_side=True,
            ssl_handshake_timeout=HANDSHAKE_SECONDS,
            ssl_shutdown_timeout=SHUTDOWN_SECONDS,
        )
        waiting = self._starting.send(None)
        waiting._asyncio_future_blocking = False  # as a task does when its coroutine yields a future
        waiting.add_done_callback(self._finish)

    def _finish(self, _waiting: asyncio.Future[Any]) -> None:
        connection = self._connection
        try:
            self._starting.send(None)
        except StopIteration as stop:
            transport = stop.value
        except Exception as error:
            connection.insecure(error)
            return
        try:
            if transport is None or transport.is_closing():
                raise ConnectionResetError("the client closed the connection")
            certificate = transport.get_extra_info("ssl_object").getpeercert(binary_form=True)
            principal = self._listener.principal(certificate) if certificate else None
        except Exception as error:
            connection.insecure(error)
        else:
            connection.secured(transport, principal)

    def explain(self, error: Exception | None) -> str:
        """Logs why the handshake has failed, unless the client has just gone, and returns it."""
        if error is None or isinstance(error, ConnectionResetError | BrokenPipeError):
            return "the client closed the connection during the TLS handshake"
        reason = _reason(error)
        get_logger().info("TLS handshake failed", reason=reason, **self._connection.log_fields())
        return f"the TLS handshake failed: {reason}"


def faulted(broker: BrokerState, listener: TlsListener, name: str, node_id: int) -> ssl.SSLContext | None:
    """Returns the context of the first rule that fires for a new connection; None without one."""
    made = broker.options.bad_certificate
    for standing in () if broker.faults is None or made is None else broker.faults.handshakes:
        if standing.matches_connection(name, node_id) and standing.take():
            assert standing.rule.action.certificate is not None and made is not None
            return listener.context_with(standing.rule.action.certificate, made)
    return None


def is_of_tls(error: Exception) -> bool:
    """Returns whether an error is one of TLS: the peer has sent bytes that are none, or damaged ones."""
    return isinstance(error, ssl.SSLError)


def _reason(error: Exception) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the client's certificate is not valid: {error.verify_message}"
    if isinstance(error, ssl.SSLError) and error.reason:
        return error.reason.lower().replace("_", " ")
    return str(error) or type(error).__name__
