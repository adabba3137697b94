"""An HTTP client of the control plane, with the standard library alone.

Owns the address format and the errors of the commands that call it: `Wrong` for a request that the control plane
refuses, `Unreachable` for an address without a control plane. A redirect to another address does not get the token.
"""

from __future__ import annotations

import argparse
import http.client
import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from ..broker.config.control_access import CA_VARIABLE, given_token
from ..broker.control.route import BASE
from ..broker.errors import ConfigError
from .control_flags import VARIABLE

MAX_RESPONSE_BYTES = 1 << 30


class Wrong(Exception):
    """The request is invalid, or not possible in the broker's state (HTTP 4xx); the text is one line."""


class Unreachable(Exception):
    """No control plane responds at the address, or it failed (HTTP 5xx); the text is one line."""


def control_client(given: argparse.Namespace, environ: Mapping[str, str], timeout_seconds: float) -> Client:
    """Returns the client for these flags and variables. Raises Wrong, also without an address."""
    address = given.control or environ.get(VARIABLE)
    if not address:
        raise Wrong(f"no address of a control plane: give --control http://HOST:PORT, or set {VARIABLE}")
    try:
        token = given_token(given.control_token_file, environ)
    except ConfigError as error:
        raise Wrong(error) from error
    return Client(address, timeout_seconds, token, given.control_ca or environ.get(CA_VARIABLE) or None)


class Client:
    """A connection to the control plane at `http://HOST:PORT`, `HOST:PORT`, or `PORT` of 127.0.0.1, with its token if
    it needs one. `authorities` is a PEM file with the certificates that an https address is checked with.

    Raises Wrong for an address in another form, and for a file that cannot be used.
    """

    def __init__(
        self, address: str, timeout_seconds: float, token: str | None = None, authorities: str | None = None
    ) -> None:
        if address.isascii() and address.removeprefix(":").isdigit():
            address = f"127.0.0.1:{address.removeprefix(':')}"
        self.url = address if "//" in address else f"http://{address}"
        self._timeout_seconds = timeout_seconds
        self._token = token
        try:
            parts = urlsplit(self.url)
            sound = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
        except ValueError:
            sound = False
        if not sound or not self.url.isprintable() or " " in self.url:
            raise Wrong(f"{address!r} is no control plane's address: expected a URL such as http://127.0.0.1:9644")
        # No proxy: HTTP_PROXY and the like are for the internet, and a proxy cannot reach a broker on this machine.
        handlers: list[urllib.request.BaseHandler] = [urllib.request.ProxyHandler({})]
        if self.url.lower().startswith("https:"):
            handlers.append(urllib.request.HTTPSHandler(context=_trusting(authorities)))
        self._opener = urllib.request.build_opener(*handlers)

    def request(self, method: str, *path: str | int, body: Any = None, query: Mapping[str, Any] | None = None) -> Any:
        """Sends `method` to the path made of these parts and returns the JSON of the response.

        Raises Wrong or Unreachable.
        """
        # A command-line argument that is not UTF-8 keeps its bytes.
        parts = (quote(str(part).encode("utf-8", "surrogateescape"), safe="") for part in path)
        url = "/".join((self.url.rstrip("/") + BASE, *parts))
        parameters = {name: value for name, value in (query or {}).items() if value is not None}
        if parameters:
            url += "?" + urlencode(parameters)
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(url, data, {"Content-Type": "application/json"}, method=method)
        if self._token is not None:
            request.add_unredirected_header("Authorization", f"Bearer {self._token}")
        try:
            with self._opener.open(request, timeout=self._timeout_seconds) as response:
                raw = response.read(MAX_RESPONSE_BYTES)
                if response.length:  # the connection closed early, or the body exceeds the limit
                    raise Unreachable(self.strange())
            return json.loads(raw)
        except urllib.error.HTTPError as error:
            with error:
                message = _message(error)
            raise (Wrong if 400 <= error.code < 500 else Unreachable)(message) from error
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", error)
            if isinstance(reason, TimeoutError):
                raise Unreachable(f"{self.url} sent no response within {self._timeout_seconds:g} s") from error
            if isinstance(reason, ssl.SSLCertVerificationError):
                why = f"the certificate of {self.url} is not trusted: {reason.verify_message}"
                raise Unreachable(f"{why}; give its authority with --control-ca FILE") from error
            detail = getattr(reason, "strerror", None) or str(reason) or type(reason).__name__
            raise Unreachable(f"no control plane at {self.url}: {detail}") from error
        except (ValueError, RecursionError) as error:
            raise Unreachable(self.strange()) from error

    def strange(self) -> str:
        """Returns the error text for a response that no control plane sends."""
        return f"unexpected response from {self.url}: not a control plane of this version"


def _trusting(authorities: str | None) -> ssl.SSLContext:
    """Returns a TLS context that trusts the certificates of a PEM file, or those of the system. Raises Wrong."""
    try:
        return ssl.create_default_context(cafile=authorities)
    except OSError as error:  # an SSLError is one
        reason = "no certificates in PEM" if isinstance(error, ssl.SSLError) else error.strerror
        raise Wrong(f"--control-ca {authorities}: {reason}") from error


def _message(error: urllib.error.HTTPError) -> str:
    try:
        text = json.loads(error.read(1 << 16))["error"]
    except (OSError, ValueError, KeyError, TypeError, http.client.HTTPException):
        text = None
    return text if isinstance(text, str) else f"HTTP status {error.code} from the control plane"
