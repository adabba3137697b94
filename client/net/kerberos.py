"""GSSAPI on the side of the client: tickets of a keytab or a ticket cache, and the exchange of a login (RFC 4752).

The library gets and renews tickets, in a thread, since the KDC may be slow. Source of the options: Java's
Krb5LoginModule.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

from ...protocol.errors import ErrorCode
from ...protocol.security.kerberos import (
    CHOICE,
    CHOICE_BYTES,
    MECHANISM,
    NO_LAYER,
    NOT_YET_VALID,
    Context,
    GssFailure,
    Library,
    is_true,
    service_name,
)
from .errors import ConfigError, ConnectionLost, KafkaError
from .sasl import LoginMethod, Tokens
from .threads import in_thread


@dataclass(frozen=True, slots=True)
class KerberosLogin(LoginMethod):
    """A login with tickets for the brokers' `service`.

    They are those of `principal` from a keytab, or from a ticket cache; without both files from the places that the
    environment names (`KRB5CCNAME`, `KRB5_CLIENT_KTNAME`).
    """

    mechanism = MECHANISM

    service: str
    principal: str | None = None
    keytab: str | None = None
    ticket_cache: str | None = None

    async def begin(self, host: str = "") -> Tokens:
        """Gets a ticket for the broker at `host`. Raises KafkaError, and ConnectionLost for an error that may pass."""
        try:
            context, first = await in_thread(lambda: self._begun(host), "ottla-kerberos")
        except GssFailure as failure:
            text = f"no Kerberos ticket for {self.service}@{host}: {failure}"
            if failure.code in NOT_YET_VALID:
                raise ConnectionLost(text) from None
            raise KafkaError(ErrorCode.SASL_AUTHENTICATION_FAILED, text) from None
        return exchange(context, first)

    def _begun(self, host: str) -> tuple[Context, bytes]:
        library = Library()
        context = library.initiator(library.credentials("initiate", self.principal, self._store()), self.service, host)
        return context, context.step(None) or b""

    def _store(self) -> dict[str, str]:
        if self.keytab is None:
            return {} if self.ticket_cache is None else {"ccache": self.ticket_cache}
        # All connections of this process share the tickets of a keytab.
        name = hashlib.sha256(f"{self.keytab}\0{self.principal}".encode(errors="surrogatepass")).hexdigest()[:32]
        return {"client_keytab": self.keytab, "ccache": f"MEMORY:ottla-{name}"}


def exchange(context: Context, first: bytes) -> Tokens:
    """Yields the client's tokens, after the library's `first`; each broker's token is sent into the generator. Raises
    ValueError for a token that a broker which has the service's key would not have sent."""
    response = yield first
    while not context.is_complete:
        response = yield context.step(response) or b""
    offer = context.unwrap(response)
    if len(offer) != CHOICE_BYTES or not offer[0] & NO_LAYER:
        raise ValueError("the broker's offer of GSSAPI is malformed, or requires a security layer")
    if (yield context.wrap(CHOICE + context.client.encode())):
        raise ValueError("the broker sent a token after the end of GSSAPI")


def kerberos_login(
    options: Mapping[str, str], service: str | None, principal: str | None, keytab: str | None
) -> KerberosLogin:
    """Returns the login by the options of the login module, or by those of librdkafka. Raises ConfigError."""
    try:
        service = service_name(options, service)
        Library()
    except ValueError as error:
        raise ConfigError(str(error)) from None
    principal = options.get("principal", principal)
    if is_true(options, "useKeyTab"):
        keytab = options.get("keyTab", keytab)
    return KerberosLogin(
        service, principal, keytab, options.get("ticketCache") if is_true(options, "useTicketCache") else None
    )
