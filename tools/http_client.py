"""An HTTP client of the control plane, with the standard library alone.

Owns the address format and the errors of `ottla ctl`: `Wrong` for a request that the control plane refuses,
`Unreachable` for an address without a control plane.
"""

from __future__ import annotations

import http.client
import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from ..broker.control.route import BASE

VARIABLE = "OTTLA_CONTROL"  # environment variable: the address unless --control gives one
MAX_RESPONSE_BYTES = 1 << 30


class Wrong(Exception):
    """The request is invalid, or not possible in the broker's state (HTTP 4xx); the text is one line."""


class Unreachable(Exception):
    """No control plane responds at the address, or it failed (HTTP 5xx); the text is one line."""


class Client:
    """A connection to the control plane at `http://HOST:PORT`, `HOST:PORT`, or `PORT` of 127.0.0.1.

    Raises Wrong for an address in another form.
    """

    def __init__(self, address: str, timeout_seconds: float) -> None:
        if address.isascii() and address.removeprefix(":").isdigit():
            address = f"127.0.0.1:{address.removeprefix(':')}"
        self.url = address if "//" in address else f"http://{address}"
        self._timeout_seconds = timeout_seconds
        try:
            parts = urlsplit(self.url)
            sound = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
        except ValueError:
            sound = False
        if not sound or not self.url.isprintable() or " " in self.url:
            raise Wrong(f"{address!r} is no control plane's address: expected a URL such as http://127.0.0.1:9644")
        # No proxy: HTTP_PROXY and the like are for the internet, and a proxy cannot reach a broker on this machine.
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def request(
        self,
        method: str,
        *path: str | int,
        body: Any = None,
        query: Mapping[str, Any] | None = None,
    ) -> Any:
        """Sends `method` to the path made of these parts and returns the JSON of the response.

        Raises Wrong or Unreachable.
        """
        url = self.url.rstrip("/") + BASE + "".join("/" + _quoted(part) for part in path)
        parameters = {name: value for name, value in (query or {}).items() if value is not None}
        if parameters:
            url += "?" + urlencode(parameters)
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(url, data, {"Content-Type": "application/json"}, method=method)
        try:
            with self._opener.open(request, timeout=self._timeout_seconds) as response:
                raw = response.read(MAX_RESPONSE_BYTES)
                if response.length:  # the connection closed early, or the body exceeds the limit
                    raise Unreachable(self.strange())
                return self._read(raw)
        except urllib.error.HTTPError as error:
            with error:
                message = _message(error)
            raise (Wrong if 400 <= error.code < 500 else Unreachable)(message) from error
        except TimeoutError as error:
            raise Unreachable(f"{self.url} sent no response within {self._timeout_seconds:g} s") from error
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", error)
            if isinstance(reason, TimeoutError):
                raise Unreachable(f"{self.url} sent no response within {self._timeout_seconds:g} s") from error
            detail = getattr(reason, "strerror", None) or str(reason) or type(reason).__name__
            raise Unreachable(f"no control plane at {self.url}: {detail}") from error

    def _read(self, raw: bytes) -> Any:
        try:
            return json.loads(raw)
        except (ValueError, RecursionError) as error:
            raise Unreachable(self.strange()) from error

    def strange(self) -> str:
        """Returns the error text for a response that no control plane sends."""
        return f"unexpected response from {self.url}: not a control plane of this version"


def _quoted(part: str | int) -> str:
    """Percent-encodes a path segment; a command-line argument that is not UTF-8 keeps its bytes."""
    return quote(str(part).encode("utf-8", "surrogateescape"), safe="")


def _message(error: urllib.error.HTTPError) -> str:
    try:
        text = json.loads(error.read(1 << 16))["error"]
    except (OSError, ValueError, KeyError, TypeError, http.client.HTTPException):
        text = None
    return text if isinstance(text, str) else f"HTTP status {error.code} from the control plane"
