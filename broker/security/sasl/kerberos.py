"""GSSAPI on the side of the broker: the exchange of tickets, and the name of a client (RFC 4752).

The tickets are checked by the keys of a keytab, without a request to the KDC: a token takes the event loop's time for
reading that file and the replay cache. Kafka's broker ignores the authorization id, and so does this one: clients send
the name of the service there. The session does not end with the ticket, as in Kafka. Kafka's code would close the
connection without a response after a replay and for a ticket that is not yet valid; on Java 17, which Kafka 4 needs, it
cannot read Kerberos's error code and refuses these, too.
"""

from __future__ import annotations

from ....protocol.security.kerberos import CHOICE_BYTES, NO_LAYER, OFFER, Context, GssFailure, Library
from ...config.security.kerberos import KerberosSettings, LocalNames, NoName
from ...errors import ConfigError
from .mechanisms import Dropped, Exchange, SaslError, Unnamed

REPLAY_CACHE = "dfl:"
"""The library's default one, a file. Without it the exchange of a client that does not require the broker's proof, as
those of Java, could be sent again from a recording of the network."""


class KeytabAcceptor:
    """The broker's credentials of a listener."""

    def __init__(self, settings: KerberosSettings) -> None:
        """Raises ConfigError without the library, and for a keytab that lacks the principal."""
        store = {"rcache": REPLAY_CACHE} | ({"keytab": settings.keytab} if settings.keytab else {})
        try:
            self._library = Library()
            self._credentials = self._library.credentials("accept", settings.principal, store)
        except GssFailure as error:
            raise ConfigError(f"the Kerberos principal {settings.principal}: {error}") from None
        self._names = LocalNames(settings.rules, self._library.default_realm())

    def exchange(self) -> GssapiExchange:
        return GssapiExchange(self._library.acceptor(self._credentials), self._names)


class GssapiExchange(Exchange):
    """GSSAPI: the client's ticket, then its choice of a protection, which must be none, in a message of the ticket's
    session key."""

    def __init__(self, context: Context, names: LocalNames) -> None:
        self._context = context
        self._names = names
        self._has_offered = False

    def respond(self, token: bytes, _now_ms: int = 0, /) -> bytes | None:
        try:
            if not self._context.is_complete:
                response = self._context.step(token)
                return response if response or not self._context.is_complete else self._offer()
            if not self._has_offered:
                if token:
                    raise SaslError(reason="Kerberos: a token after the end of the library's")
                return self._offer()
            self._finish(self._context.unwrap(token))
        except GssFailure as error:
            raise SaslError(reason=f"Kerberos: {error}") from None
        return None

    def _offer(self) -> bytes:
        self._has_offered = True
        return self._context.wrap(OFFER)

    def _finish(self, choice: bytes) -> None:
        if len(choice) < CHOICE_BYTES:  # Kafka's broker fails unexpectedly
            raise Dropped(f"Kerberos: the client's choice has {len(choice)} bytes, not {CHOICE_BYTES}")
        if not choice[0] & NO_LAYER:
            raise SaslError(reason=f"Kerberos: the client chose the unsupported protection {choice[0]}")
        try:
            self.user = self._names.user(self._context.client)
        except NoName as error:
            raise Unnamed(str(error)) from None
        self.is_complete = True
