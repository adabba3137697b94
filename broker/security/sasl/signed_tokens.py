"""The validator of signed tokens: the signature, then the claims (KIP-768).

The order and the meaning of the checks are those of Kafka's BrokerJwtValidator with jose4j. The time is an argument:
PyJWT verifies the signature alone. A key fixes its algorithms, so that `none` and the algorithms of another kind of key
are refused, whatever the token names.
"""

from __future__ import annotations

from typing import Any, cast

from ....protocol.security.oauthbearer import JAVA_BLANK, decoded, json_object, sections
from ...config.security.oauthbearer import SignedSettings
from .key_sets import KeySource
from .oauthbearer import TokenRefused, ValidToken, encodable


class SignedValidator:
    """Accepts tokens of the keys of a listener."""

    def __init__(self, settings: SignedSettings, keys: KeySource) -> None:
        self._settings = settings
        self._keys = keys

    def validate(self, token: str, now_ms: int) -> ValidToken:
        """Raises TokenRefused."""
        try:
            header_text, payload, signature = sections(token)
            header = json_object(header_text, strict=True)
            self._check_signature(header, f"{header_text}.{payload}".encode(), decoded(signature))
            claims = json_object(payload, strict=True)
        except ValueError as error:
            raise TokenRefused(str(error)) from None
        expires_s = self._check_times(claims, now_ms // 1000)
        self._check_names(claims)
        _check_scope(claims.get(self._settings.scope_claim))
        principal = claims.get(self._settings.sub_claim)
        if not isinstance(principal, str) or not (stripped := principal.strip(JAVA_BLANK)):
            raise TokenRefused(f"the claim {self._settings.sub_claim} is missing, or no text")
        return ValidToken(encodable(stripped), expires_s * 1000)

    def _check_signature(self, header: dict[str, Any], signed: bytes, signature: bytes) -> None:
        """Raises TokenRefused, and ValueError for a key that is no key."""
        algorithm, key_id = header.get("alg"), header.get("kid")
        if not isinstance(algorithm, str) or not isinstance(key_id, str | None):
            raise TokenRefused("the header of the token has no algorithm, or a key id that is no text")
        if "crit" in header:
            raise TokenRefused("the header of the token has critical extensions, which are not known")
        key = self._keys.find(key_id, algorithm)
        if key is None:
            raise TokenRefused("there is no key for the key id and the algorithm of the token")
        if not key.verifies(algorithm, signed, signature):
            raise TokenRefused("the signature of the token is wrong")

    def _check_times(self, claims: dict[str, Any], now_s: int) -> int:
        """Returns the end of the token in seconds since 1970."""
        expires, issued, begins = (_seconds(claims, name) for name in ("exp", "iat", "nbf"))
        if expires is None or issued is None:
            raise TokenRefused(f"the claim {'exp' if expires is None else 'iat'} is missing")
        if expires < 0 or issued < 0:
            raise TokenRefused("a time of the token is negative")
        skew = self._settings.clock_skew_s
        if now_s - skew >= expires:
            raise TokenRefused("the token has expired")
        if expires < issued or (begins is not None and expires < begins):
            raise TokenRefused("the token expires before it is valid")
        if begins is not None and now_s + skew < begins:
            raise TokenRefused("the token is not valid yet")
        return expires

    def _check_names(self, claims: dict[str, Any]) -> None:
        """Checks audience and issuer. A token with an audience is not for a broker that expects none."""
        settings = self._settings
        audience = claims.get("aud")
        names: Any = [audience] if isinstance(audience, str) else audience or []
        if not isinstance(audience, str | list | None) or not all(isinstance(name, str) for name in names):
            raise TokenRefused("the claim aud is neither a text nor a list of texts")
        is_free = settings.any_audience and not settings.audiences
        if not is_free and (settings.audiences or audience is not None) and not set(names) & set(settings.audiences):
            raise TokenRefused("the audience of the token is none of sasl.oauthbearer.expected.audience")
        issuer = claims.get("iss")
        if settings.issuer is not None and issuer != settings.issuer:
            raise TokenRefused("the issuer of the token is not sasl.oauthbearer.expected.issuer")
        for name in ("iss", "sub", "jti"):
            if not isinstance(claims.get(name), str | None):
                raise TokenRefused(f"the claim {name} is no text")


def _seconds(claims: dict[str, Any], name: str) -> int | None:
    """Returns a time in whole seconds, as a Java long; None without the claim."""
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TokenRefused(f"the claim {name} is no number")
    try:
        found = int(value)
    except OverflowError:
        found = 1 << 62
    if not -(1 << 50) < found < 1 << 50:  # in ms it would exceed a long
        raise TokenRefused(f"the claim {name} is out of range")
    return found


def _check_scope(claim: Any) -> None:
    """Checks the scopes: texts that are not blank and differ."""
    elements = [claim] if isinstance(claim, str) else cast("list[Any]", claim if isinstance(claim, list) else [])
    stripped = [text.strip(JAVA_BLANK) if isinstance(text, str) else "" for text in elements]
    if "" in stripped or len(set(stripped)) != len(stripped):
        raise TokenRefused("the claim of the scope has a blank text, or one twice")
