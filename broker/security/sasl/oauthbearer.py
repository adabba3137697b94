"""OAUTHBEARER: the exchange, and the validator of unsecured tokens.

A refused token does not end the exchange: the client gets the error as JSON, and ends it with one byte of 0x01, or
sends another token. Sources: RFC 7628, KIP-255, Kafka's OAuthBearerSaslServer, OAuthBearerUnsecuredJws and
OAuthBearerUnsecuredValidatorCallbackHandler.
"""

from __future__ import annotations

import json
from typing import Any, Protocol, cast

from ....protocol.named import NamedTuple
from ....protocol.security.oauthbearer import (
    ERROR_SEEN,
    JAVA_BLANK,
    double,
    error_response,
    joined,
    json_object,
    millis,
    parse_client_first,
    sections,
)
from ...config.security.oauthbearer import UnsecuredSettings
from .mechanisms import Exchange, SaslError

MESSAGE_BYTES_MAX = 524_288
"""`sasl.server.max.receive.size` by default. A re-authentication is not bounded by that config."""


class ValidToken(NamedTuple):
    """The name of the principal of a valid token, and the end of the token in ms since 1970."""

    principal: str
    expires_ms: int


class TokenRefused(Exception):
    """The token is not valid. The text is the reason, for the log, without values of the token."""

    def __init__(self, reason: str, missing_scope: str | None = None) -> None:
        """`missing_scope` are the required scopes, where the token lacks one."""
        super().__init__(reason)
        self.missing_scope = missing_scope

    @property
    def response(self) -> str:
        """The error for the client."""
        if self.missing_scope is None:
            return error_response("invalid_token")
        return error_response("insufficient_scope", self.missing_scope)


class TokenValidator(Protocol):
    """Decides about tokens. `now_ms` is the wall time."""

    def validate(self, token: str, now_ms: int) -> ValidToken:
        """Raises TokenRefused."""
        ...


class OAuthBearerExchange(Exchange):
    def __init__(self, validator: TokenValidator) -> None:
        self._validator = validator
        self._error = ""
        self._reason = ""

    def respond(self, token: bytes, now_ms: int, /) -> bytes:
        if token == ERROR_SEEN and self._error:
            raise SaslError(self._error, self._reason)
        self._error = ""
        if len(token) > MESSAGE_BYTES_MAX:
            raise SaslError("", "the message is too large")
        try:
            first = parse_client_first(token)
        except ValueError as error:
            raise SaslError("", str(error)) from None
        try:
            valid = self._validator.validate(first.token, now_ms)
        except TokenRefused as refused:
            self._error, self._reason = refused.response, str(refused)
            return self._error.encode()
        if first.authzid and first.authzid != valid.principal:
            raise SaslError(
                f"Authentication failed: Client requested an authorization id ({first.authzid}) that is different from "
                f"the token's principal name ({valid.principal})",
                "the authorization id is not the principal of the token",
            )
        self.user, self.expires_ms, self.is_complete = valid.principal, valid.expires_ms, True
        return b""


class UnsecuredValidator:
    """Accepts tokens without a signature, `"alg":"none"`, whose claims are in order."""

    def __init__(self, settings: UnsecuredSettings) -> None:
        self._settings = settings

    def validate(self, token: str, now_ms: int) -> ValidToken:
        """Raises TokenRefused. The scope is checked last: the client sees whether another rule was broken."""
        settings = self._settings
        claims = _claims(token)
        expires, issued = claims.get("exp"), claims.get("iat")
        expires_s, issued_s = double(expires), double(issued)
        if expires_s is None:
            raise TokenRefused("the claim exp is missing, or no number")
        if issued is not None and issued_s is None:
            raise TokenRefused("the claim iat is no number")
        granted = _scope(claims.get(settings.scope_claim))
        principal = _text_of(claims.get(settings.principal_claim))
        if issued_s is not None and issued_s * 1000 > now_ms + settings.clock_skew_ms:
            raise TokenRefused("the token was issued in the future")
        if now_ms - settings.clock_skew_ms >= expires_s * 1000:
            raise TokenRefused("the token has expired")
        if issued_s is not None and expires_s <= issued_s:
            raise TokenRefused("the token expires before it was issued")
        if not granted.issuperset(settings.required_scope):
            raise TokenRefused("the token lacks a required scope", joined(settings.required_scope))
        return ValidToken(principal, millis(expires_s))


def _claims(token: str) -> dict[str, Any]:
    """Returns the claims of an unsecured token; an array has texts, and a value that is no number is one."""
    try:
        header, payload, signature = sections(token)
        algorithm = json_object(header).get("alg")
        claims = json_object(payload)
    except ValueError as error:
        raise TokenRefused(str(error)) from None
    if algorithm != "none" or signature:
        raise TokenRefused("an unsecured token has the algorithm none, and no signature")
    return {name: _converted(value) for name, value in claims.items()}


def _converted(value: Any) -> Any:
    """Converts a value as Kafka does: it has texts, numbers and lists of texts, and null is the text "null"."""
    if isinstance(value, list):
        return [_as_text(element) for element in value]  # pyright: ignore[reportUnknownVariableType]
    return value if isinstance(value, int | float) and not isinstance(value, bool) else _as_text(value)


def _as_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return "" if isinstance(value, dict | list) else json.dumps(value)


def _scope(claim: Any) -> frozenset[str]:
    if not isinstance(claim, str | list | None):
        raise TokenRefused("the claim of the scope is neither a text nor a list")
    elements = [claim] if isinstance(claim, str) else cast("list[str]", claim or [])
    return frozenset(stripped for text in elements if (stripped := text.strip(JAVA_BLANK)))


def _text_of(claim: Any) -> str:
    """Returns the name of a principal as it is, spaces included."""
    if not isinstance(claim, str) or not claim.strip(JAVA_BLANK):
        raise TokenRefused("the claim of the principal is missing, or no text")
    return encodable(claim)


def encodable(name: str) -> str:
    """Returns a name. Raises TokenRefused for one that no response can carry: JSON can have halves of characters."""
    try:
        name.encode()
    except UnicodeEncodeError:
        raise TokenRefused("the claim of the principal is no valid text") from None
    return name
