"""TLS between a socket and a client connection: the handshake, encryption, and the principal that a certificate proves.

The event loop's own TLS is not used: it drops the alert with which a handshake fails, from which a client learns that
its certificate is refused, and reports a connection only after its handshake, so that limits of connections would not
count it.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from typing import TYPE_CHECKING, Any, Protocol

from ..logs import get_logger
from ..security.tls import NoName

if TYPE_CHECKING:
    from ..broker_state import BrokerState
    from ..clock import Clock, Timer
    from ..connection_info import ConnectionInfo
    from ..security.tls import TlsListener

HANDSHAKE_MS = 60_000
READ_BYTES = 256 * 1024
_ENDED = (ssl.SSLZeroReturnError, ssl.SSLEOFError)
_received = memoryview(bytearray(READ_BYTES))  # each read is decrypted before the next one begins


class Encrypted(Protocol):
    """A connection that gets its bytes decrypted."""

    listener: str
    node_id: int
    info: ConnectionInfo

    def connection_made(self, transport: Any) -> None: ...
    def get_buffer(self, sizehint: int) -> memoryview: ...
    def buffer_updated(self, nbytes: int) -> None: ...
    def eof_received(self) -> bool: ...
    def pause_writing(self) -> None: ...
    def resume_writing(self) -> None: ...
    def connection_lost(self, exc: Exception | None) -> None: ...
    def identify(self, principal: str) -> None: ...
    def secured(self) -> None: ...
    def insecure(self, why: str) -> None: ...
    def explain(self, why: str) -> None: ...


class Encryption(asyncio.BufferedProtocol):
    """The protocol of a socket, and the transport of the connection that it encrypts.

    Until the handshake is over the connection gets no bytes. A handshake has HANDSHAKE_MS.
    """

    def __init__(self, connection: Encrypted, broker: BrokerState, listener: TlsListener) -> None:
        self._connection = connection
        self._listener = listener
        self._loop = broker.loop
        self._clock: Clock = broker.waits
        self._timer: Timer | None = None
        self._transport: Any = None
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        context = _faulted(broker, listener, connection) or listener.context()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._is_secured = False
        self._is_paused = False
        self.pause_writing, self.resume_writing = connection.pause_writing, connection.resume_writing
        self.eof_received = connection.eof_received

    # Callbacks of the socket's transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begins the handshake."""
        self._transport = transport
        self.is_closing, self.abort = self._transport.is_closing, self._transport.abort
        self.get_extra_info = transport.get_extra_info
        self._start_timer()
        self._connection.connection_made(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        """The buffer for encrypted bytes."""
        return _received

    def buffer_updated(self, nbytes: int) -> None:
        """Decrypts what was received."""
        self._incoming.write(_received[:nbytes])
        self._advance()

    def _advance(self) -> None:
        """Continues with what was received, unless the connection has paused."""
        if not self._is_paused and not self._is_secured and not self._transport.is_closing():
            self._shake_hands()
        if self._is_secured:
            self._deliver()

    def connection_lost(self, exc: Exception | None) -> None:
        """Ends the connection."""
        self._stop_timer()
        self._connection.connection_lost(exc)

    # The handshake

    def _shake_hands(self) -> None:
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._flush()
            return
        except (ssl.SSLError, ValueError) as error:
            self._refuse(_reason(error))
            return
        self._flush()
        self._stop_timer()
        certificate = self._tls.getpeercert(binary_form=True)
        if certificate:
            try:
                self._connection.identify(self._listener.principal(certificate))
            except (NoName, ValueError) as error:
                self._refuse(str(error))
                return
        self._is_secured = True
        self._connection.secured()

    def _refuse(self, reason: str) -> None:
        """Closes after a handshake that failed; the peer receives the alert."""
        get_logger().info("TLS handshake failed", reason=reason, **self._connection.info.log_fields())
        self._connection.insecure(f"the TLS handshake failed: {reason}")
        self._flush()
        self._transport.close()

    def _start_timer(self) -> None:
        self._timer = self._clock.call_at(self._clock.now_ms() + HANDSHAKE_MS, self._expire)

    def _expire(self) -> None:
        self._timer = None
        self._refuse(f"it was not complete after {HANDSHAKE_MS // 1000} s")

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # Bytes

    def _deliver(self) -> None:
        """Gives the connection what can be decrypted, until it pauses."""
        connection, read = self._connection, self._tls.read
        try:
            while not self._is_paused and not self._transport.is_closing():
                buffer = connection.get_buffer(-1)
                count = read(len(buffer), buffer)  # pyright: ignore[reportArgumentType]  # typeshed has bytearray only
                if not count:
                    raise ssl.SSLZeroReturnError
                connection.buffer_updated(int(count))
        except ssl.SSLWantReadError:
            pass
        except _ENDED:
            self.close()
        except ssl.SSLError as error:
            reason = f"damaged TLS: {_reason(error)}"
            get_logger().info("connection closed", reason=reason, **connection.info.log_fields())
            connection.explain(reason)
            self._flush()
            self._transport.close()
            return
        if self._outgoing.pending:  # such as a change of keys
            self._flush()

    def _flush(self) -> None:
        if self._outgoing.pending and not self._transport.is_closing():
            self._transport.write(self._outgoing.read())

    # The transport of the connection

    def write(self, data: Any) -> None:
        """Encrypts bytes and sends them."""
        if len(data):
            self._tls.write(data)
            self._flush()

    def writelines(self, parts: list[Any]) -> None:
        """Encrypts pieces and sends them together."""
        for part in parts:
            if len(part):
                self._tls.write(part)
        self._flush()

    def pause_reading(self) -> None:
        self._is_paused = True
        self._stop_timer()  # held by a limit of connections: the client waits for the broker
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        self._is_paused = False
        if not self._is_secured and self._timer is None:
            self._start_timer()
        self._transport.resume_reading()
        if self._incoming.pending or (self._is_secured and self._tls.pending()):
            self._loop.call_soon(self._advance)

    def close(self) -> None:
        """Sends what was written and the end of TLS, and closes. The peer's confirmation is not waited for, as in
        Kafka.
        """
        if self._is_secured and not self._transport.is_closing():
            with contextlib.suppress(ssl.SSLError, ValueError):  # it would wait for the confirmation
                self._tls.unwrap()
            self._flush()
        self._transport.close()


def _faulted(broker: BrokerState, listener: TlsListener, connection: Encrypted) -> ssl.SSLContext | None:
    """Returns the context of the first rule that fires for a new connection; None without one."""
    made = broker.options.bad_certificate
    for standing in () if broker.faults is None or made is None else broker.faults.handshakes:
        if standing.matches_connection(connection.listener, connection.node_id) and standing.take():
            assert standing.rule.action.certificate is not None and made is not None
            return listener.context_with(standing.rule.action.certificate, made)
    return None


def _reason(error: Exception) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the client's certificate is not valid: {error.verify_message}"
    if isinstance(error, ssl.SSLError) and error.reason:
        return error.reason.lower().replace("_", " ")
    return str(error) or type(error).__name__
