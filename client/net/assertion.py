"""The assertion by which a client gets tokens of an endpoint instead of by a secret: a JSON web token of its own.

With `JwtBearerJwtRetriever` it is the grant itself (RFC 7523, 2.1; KIP-1139); otherwise it takes the place of the
secret of client credentials (RFC 7523, 2.2). Its claims are those of the options, of the template file and the times; a
later one of these replaces an earlier one, as in Kafka.
"""

from __future__ import annotations

import importlib.util
import json
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from ...protocol.security.oauthbearer import JAVA_BLANK, json_object, sections

PREFIX = "sasl.oauthbearer.assertion."
GRANT = "urn:ietf:params:oauth:grant-type:jwt-bearer"
CLIENT_ASSERTION = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
ALGORITHMS = ("ES256", "RS256")
BYTES_MAX = 1 << 20
LONGEST_S = {"exp": 86_400, "nbf": 3600}


@dataclass(frozen=True, slots=True, kw_only=True)
class Assertion:
    """How assertions are made: read from `file`, or signed by the key in PEM of `private_key_file`. Files are read each
    time. The fields are the options that begin with PREFIX.

    `claim_exp_seconds` is the time to the claim `exp`, `claim_nbf_seconds` that since `nbf`. Raises ValueError for
    options that make none.
    """

    file: str | None = None
    algorithm: str = "RS256"
    private_key_file: str | None = None
    private_key_passphrase: str | None = field(default=None, repr=False)
    template_file: str | None = None
    claim_aud: str | None = None
    claim_iss: str | None = None
    claim_sub: str | None = None
    claim_exp_seconds: int = 300
    claim_nbf_seconds: int = 60
    claim_jti_include: bool = False

    def __post_init__(self) -> None:
        if self.algorithm.upper() not in ALGORITHMS:
            raise ValueError(f"{PREFIX}algorithm must be one of {', '.join(ALGORITHMS)}, not {self.algorithm!r:.100}")
        for claim, seconds in (("exp", self.claim_exp_seconds), ("nbf", self.claim_nbf_seconds)):
            if isinstance(seconds, bool) or not 0 <= seconds <= LONGEST_S[claim]:
                raise ValueError(f"{PREFIX}claim.{claim}.seconds must be from 0 to {LONGEST_S[claim]}, not {seconds!r}")
        if self.file is None and self.private_key_file is None:
            raise ValueError(f"OAUTHBEARER needs {PREFIX}private.key.file or {PREFIX}file for its assertion")
        if self.file is None and not all(map(importlib.util.find_spec, ("jwt", "cryptography"))):
            raise ValueError("signed assertions need pyjwt and cryptography: pip install 'ottla[security]'")

    def text(self, now_ms: int) -> str:
        """Returns an assertion. Raises ValueError with one line without secrets."""
        return self._signed(*self._claims(now_ms)) if self.file is None else token_in(self.file, "assertion")

    def _claims(self, now_ms: int) -> tuple[dict[str, Any], dict[str, Any]]:
        given = {"aud": self.claim_aud, "iss": self.claim_iss, "sub": self.claim_sub}
        payload: dict[str, Any] = {name: text.strip(JAVA_BLANK) for name, text in given.items() if text is not None}
        header: dict[str, Any] = {}
        if self.template_file is not None:
            try:
                template: Any = json.loads(_read(self.template_file))
                header |= template.get("header") or {}
                payload |= template.get("payload") or {}
            except (ValueError, TypeError, AttributeError, RecursionError):
                wanted = "a JSON object with header and payload"
                raise ValueError(f"{self.template_file} is no template of an assertion: expected {wanted}") from None
        now_s = now_ms // 1000
        payload |= {"iat": now_s, "exp": now_s + self.claim_exp_seconds, "nbf": now_s - self.claim_nbf_seconds}
        if self.claim_jti_include:
            payload["jti"] = str(uuid.uuid4())
        return header | {"alg": self.algorithm.upper(), "typ": "JWT"}, payload

    def _signed(self, header: dict[str, Any], payload: dict[str, Any]) -> str:
        import jwt  # these two are an extra, and few clients have assertions
        from cryptography.hazmat.primitives import serialization

        assert self.private_key_file is not None
        pem = _read(self.private_key_file)
        passphrase = None if self.private_key_passphrase is None else self.private_key_passphrase.encode()
        try:
            key = serialization.load_pem_private_key(pem, passphrase)
            return jwt.encode(payload, cast(Any, key), self.algorithm.upper(), header)
        except (ValueError, TypeError, jwt.PyJWTError) as error:
            text = str(error).splitlines()[0][:200] if str(error) else type(error).__name__
            raise ValueError(f"{self.private_key_file}: no assertion can be signed: {text}") from None


def token_in(path: str | Path, what: str) -> str:
    """Returns the JSON web token in a file. Raises ValueError with one line without secrets."""
    data = _read(path)
    try:
        found = data.decode().strip(JAVA_BLANK)
        for part in sections(found)[:2]:
            json_object(part)
    except ValueError:
        raise ValueError(f"{path} has no {what}: expected a JSON web token") from None
    return found


def _read(path: str | Path) -> bytes:
    try:
        with Path(path).open("rb") as file:
            return file.read(BYTES_MAX)
    except (OSError, ValueError) as error:  # ValueError for a NUL in the path
        raise ValueError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from None
