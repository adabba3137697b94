"""Decides which requests have the right to use the control plane: those with its token, or with a browser's session.

A program sends `Authorization: Bearer TOKEN` (RFC 6750). A browser sends the token once, with the form of `/login`,
and gets a cookie that scripts cannot read and other sites cannot send; so neither URLs nor the history have the token.
Other servers on the same host also get that cookie from a browser, whatever their port, which is why its value is not
the token, and ends with the broker.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping

from ..config.control_access import is_same
from ..config.serve_options import ControlOptions

LOGIN, LOGOUT = "/login", "/logout"
METRICS, HEALTH, READY = "/metrics", "/health", "/ready"
OPEN = frozenset((LOGIN, "/static/{name}", "/favicon.ico"))
MONITORING = frozenset((METRICS, HEALTH, READY))
MAX_SESSIONS = 1000
TOKEN_BYTES = 32
MISSING, WRONG = "this control plane needs its token", "the token is not that of this control plane"
HOW = "send it as `Authorization: Bearer TOKEN`; commands read it from OTTLA_CONTROL_TOKEN or --control-token-file FILE"


class Access:
    """The token of a control plane, and the sessions of browsers that have given it. Without a token every request is
    admitted."""

    def __init__(self, given: ControlOptions, *, is_local: bool = True, port: int = 0) -> None:
        """`is_local`: the control plane listens on a loopback address alone; `port` is its own."""
        self.is_generated = given.token is None and not is_local
        self.token = secrets.token_urlsafe(TOKEN_BYTES) if self.is_generated else given.token
        self.is_secure = given.tls is not None
        self.cookie = f"ottla-session-{port}"
        self._open = OPEN | MONITORING if given.opens_metrics else OPEN
        self._sessions: dict[bytes, None] = {}  # hashes, the oldest first

    def refusal(self, route: str | None, headers: Mapping[str, str], cookies: Mapping[str, str]) -> str | None:
        """Returns why a request is refused; None if it is admitted. `route` is the canonical path of its route."""
        if self.token is None or route in self._open:
            return None
        given = headers.get("Authorization")
        if given is None:
            return None if self.has_session(cookies) else f"{MISSING}; {HOW}"
        scheme, _, token = given.partition(" ")
        if scheme.lower() == "bearer" and is_same(token.strip(), self.token):
            return None
        return f"{WRONG if scheme.lower() == 'bearer' else MISSING}; {HOW}"

    def has_session(self, cookies: Mapping[str, str]) -> bool:
        """Returns whether the cookies have a session that was begun and not ended."""
        value = cookies.get(self.cookie)
        return value is not None and _hash(value) in self._sessions

    def begin(self, token: str) -> str | None:
        """Begins the session of a browser, and returns the value of its cookie; None for a wrong token. Of more than
        MAX_SESSIONS the oldest ends."""
        if self.token is None or not is_same(token.strip(), self.token):
            return None
        value = secrets.token_urlsafe(TOKEN_BYTES)
        self._sessions[_hash(value)] = None
        if len(self._sessions) > MAX_SESSIONS:
            del self._sessions[next(iter(self._sessions))]
        return value

    def end(self, cookies: Mapping[str, str]) -> None:
        """Ends the session of these cookies, if they have one."""
        self._sessions.pop(_hash(cookies.get(self.cookie, "")), None)


def challenge(headers: Mapping[str, str]) -> dict[str, str]:
    """Returns the headers of a 401 response (RFC 6750, 3)."""
    was_given = "Authorization" in headers
    return {"WWW-Authenticate": 'Bearer realm="ottla"' + (', error="invalid_token"' if was_given else "")}


def _hash(value: str) -> bytes:
    return hashlib.sha256(value.encode("utf-8", "surrogatepass")).digest()
