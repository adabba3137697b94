"""Kerberos by the GSS-API, for SASL: the library, which is an optional extra, and the messages that follow its own
tokens.

Owns what broker and client share. The library is MIT Kerberos by the package `gssapi`; it reads `krb5.conf` and the
variables of the environment, such as `KRB5_CONFIG`. Sources: RFC 4752 (the mechanism GSSAPI), RFC 4120 (error codes),
Java's GssKrb5Server and Krb5LoginModule.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

MECHANISM = "GSSAPI"
LOGIN_MODULE = "com.sun.security.auth.module.Krb5LoginModule"
NO_LAYER = 1
"""The protection of a connection by authentication alone, the only one that Kafka has."""
CHOICE_BYTES = 4
"""The protections as a bit mask, and the largest message in three bytes."""
OFFER = bytes((NO_LAYER, 1, 0, 0))
"""The broker's protections; the size is Java's, which has no meaning without a security layer."""
CHOICE = bytes((NO_LAYER, 0, 0, 0))
NOT_YET_VALID = frozenset({21, 33})
"""Kerberos's error codes for a client and for a ticket that is not yet valid, after which a client tries again."""
_CODES_BEGIN = 2_529_638_912
"""The minor code of MIT Kerberos for Kerberos's error code 0."""
_TEXT_MAX = 200


class GssFailure(ValueError):
    """The library refuses. The text is one line; `code` is Kerberos's error code, None for another reason."""

    def __init__(self, text: str, code: int | None = None) -> None:
        super().__init__(text)
        self.code = code


class Context:
    """A security context between a client and a broker, under way or established. Methods raise GssFailure."""

    def __init__(self, library: Library, made: Any) -> None:
        self._library = library
        self._made = made
        self.is_complete = False

    def step(self, token: bytes | None) -> bytes | None:
        """Takes the other side's token, None at the client's start. Returns the next one, if there is one."""
        found: bytes | None = self._library.call(self._made.step, token)
        # An error token, which Java's broker does not send either, comes with an error that the library defers.
        self.is_complete = bool(self._library.call(lambda: self._made.complete))
        return found

    def wrap(self, message: bytes) -> bytes:
        """Returns a message with a checksum, in the clear."""
        return bytes(self._library.call(self._made.wrap, message, False).message)

    def unwrap(self, token: bytes) -> bytes:
        """Returns the message of a token whose checksum is right."""
        return bytes(self._library.call(self._made.unwrap, token).message)

    @property
    def client(self) -> str:
        """The client's principal, such as `ann/host@REALM`."""
        return bytes(self._library.call(lambda: self._made.initiator_name)).decode(errors="replace")


class Library:
    """The package `gssapi`. Raises GssFailure, with the line for the user, where it cannot be loaded."""

    def __init__(self) -> None:
        try:
            self._gss: Any = importlib.import_module("gssapi")
        except ModuleNotFoundError:
            raise GssFailure("GSSAPI needs gssapi: pip install 'ottla[kerberos]'") from None
        except (ImportError, OSError) as error:
            raise GssFailure(_line(f"gssapi cannot be loaded: {error}")) from None

    def call(self, function: Any, *arguments: Any) -> Any:
        """Calls a function of the library. Raises GssFailure."""
        try:
            return function(*arguments)
        except self._gss.exceptions.GSSError as error:
            minor: int = error.min_code
            code = minor - _CODES_BEGIN if _CODES_BEGIN <= minor < _CODES_BEGIN + 256 else None
            raise GssFailure(_line(_problem(error)), code) from None

    def _principal(self, name: str) -> Any:
        return self.call(self._gss.Name, name, self._gss.NameType.kerberos_principal)

    def default_realm(self) -> str:
        """Returns the realm of names without one, as Kafka does: empty where none is configured."""
        try:
            canonical = self.call(self._principal("tmp").canonicalize, self._gss.MechType.kerberos)
        except GssFailure:
            return ""
        return bytes(canonical).decode(errors="replace").partition("@")[2]

    def credentials(self, usage: str, principal: str | None, store: Mapping[str, str]) -> Any:
        """Returns credentials to "accept" or to "initiate", from the keytab or the ticket cache of `store`."""
        name = None if principal is None else self._principal(principal)

        def acquire() -> Any:
            return self._gss.Credentials(
                usage=usage, name=name, mechs=[self._gss.MechType.kerberos], store=dict(store) or None
            )

        return self.call(acquire)

    def acceptor(self, credentials: Any) -> Context:
        """Returns the broker's side of a new context."""
        return Context(self, self.call(lambda: self._gss.SecurityContext(creds=credentials, usage="accept")))

    def initiator(self, credentials: Any, service: str, host: str) -> Context:
        """Returns the client's side of a new context with a service, with proof that the service has its key."""
        flags = self._gss.RequirementFlag

        def make() -> Any:
            return self._gss.SecurityContext(
                name=self._gss.Name(f"{service}@{host}", self._gss.NameType.hostbased_service),
                creds=credentials,
                usage="initiate",
                mech=self._gss.MechType.kerberos,
                flags=flags.mutual_authentication | flags.integrity | flags.out_of_sequence_detection,
            )

        return Context(self, self.call(make))


def is_true(options: Mapping[str, str], name: str) -> bool:
    """Returns whether an option of the login module is set to true, as Java reads it."""
    return options.get(name, "").lower() == "true"


def service_name(options: Mapping[str, str], configured: str | None) -> str:
    """Returns the broker's service name, of the login module or of the config. Raises ValueError, with Kafka's text."""
    of_module = options.get("serviceName")
    if of_module is not None and configured is not None and of_module != configured:
        raise ValueError(
            f"Conflicting serviceName values found in JAAS and Kafka configs value in JAAS file {of_module}, "
            f"value in Kafka config {configured}"
        )
    found = configured if of_module is None else of_module
    if found is None:
        text = "No serviceName defined in either JAAS or Kafka config"
        raise ValueError(f"{text}: set sasl.kerberos.service.name, such as kafka")
    return found


def _problem(error: Any) -> str:
    """Returns the texts of the mechanism, where there are any: those of the GSS-API are less exact."""
    texts: list[str] = error.get_all_statuses(*((error.min_code, False) if error.min_code else (error.maj_code, True)))
    return "; ".join(texts)


def _line(text: str) -> str:
    """Returns the text on one line; parts of it may be names that a client has chosen."""
    return "".join(char if char.isprintable() else "?" for char in text)[:_TEXT_MAX]
