"""Asks a control plane over HTTP, with the standard library alone.

Owns the addresses and the errors of `ottla ctl`: `Wrong` for what was asked wrongly, `Unreachable` for a control plane
that is not there or does not answer as one.
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

VARIABLE = "OTTLA_CONTROL"  # of the environment: the address where no flag gives one
MAX_ANSWER_BYTES = 1 << 30


class Wrong(Exception):
    """What was asked cannot be asked, or not now; one line."""


class Unreachable(Exception):
    """No control plane answers there, or it failed; one line."""


class Client:
    """A control plane at a URL such as `http://127.0.0.1:9644`; `HOST:PORT` alone will do, and the port of one on this
    machine. Raises Wrong for others."""

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
            raise Wrong(f"{address!r} is no address of a control plane, such as http://127.0.0.1:9644")
        # What the environment says of proxies is meant for the internet, not for a broker on this machine.
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def ask(
        self,
        method: str,
        *path: str | int,
        body: Any = None,
        query: Mapping[str, Any] | None = None,
    ) -> Any:
        """The JSON that answers `method` of the path with these parts. Raises Wrong or Unreachable."""
        url = self.url.rstrip("/") + BASE + "".join("/" + _quoted(part) for part in path)
        asked = {name: value for name, value in (query or {}).items() if value is not None}
        if asked:
            url += "?" + urlencode(asked)
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(url, data, {"Content-Type": "application/json"}, method=method)
        try:
            with self._opener.open(request, timeout=self._timeout_seconds) as answer:
                raw = answer.read(MAX_ANSWER_BYTES)
                if answer.length:  # it ended too early, or has no end
                    raise Unreachable(self.strange())
                return self._read(raw)
        except urllib.error.HTTPError as error:
            with error:
                message = _message(error)
            raise (Wrong if 400 <= error.code < 500 else Unreachable)(message) from error
        except TimeoutError as error:
            raise Unreachable(f"{self.url} did not answer within {self._timeout_seconds:g} s") from error
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", error)
            if isinstance(reason, TimeoutError):
                raise Unreachable(f"{self.url} did not answer within {self._timeout_seconds:g} s") from error
            told = getattr(reason, "strerror", None) or str(reason) or type(reason).__name__
            raise Unreachable(f"no control plane answers at {self.url}: {told}") from error

    def _read(self, raw: bytes) -> Any:
        try:
            return json.loads(raw)
        except (ValueError, RecursionError) as error:
            raise Unreachable(self.strange()) from error

    def strange(self) -> str:
        """What to say of an answer that is none of a control plane."""
        return f"{self.url} does not answer as a control plane does"


def _quoted(part: str | int) -> str:
    """One part of a path; of a text that is no UTF-8 (an argument of the command line) the bytes that it stands for."""
    return quote(str(part).encode("utf-8", "surrogateescape"), safe="")


def _message(error: urllib.error.HTTPError) -> str:
    try:
        told = json.loads(error.read(1 << 16))["error"]
    except (OSError, ValueError, KeyError, TypeError, http.client.HTTPException):
        told = None
    return told if isinstance(told, str) else f"it answered {error.code}"
