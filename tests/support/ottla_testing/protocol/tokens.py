"""Signed tokens and key sets for tests, and a small HTTP server of both."""

from __future__ import annotations

import functools
import json
import ssl
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple, Self, TypeAlias

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, HMACAlgorithm, OKPAlgorithm, RSAAlgorithm

SECRET = b"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"


class Signer(NamedTuple):
    """A private key with its public part as a JSON web key."""

    key: Any
    algorithm: str
    public: dict[str, Any]

    def token(self, claims: dict[str, Any], key_id: str | None = "one", **header: Any) -> str:
        """Returns a token. Header fields that are None are left out."""
        named = {"kid": key_id, **header}
        headers = {name: value for name, value in named.items() if value is not None}
        # Not jwt.encode, which refuses claims of wrong types.
        return jwt.PyJWS().encode(json.dumps(claims).encode(), self.key, self.algorithm, headers=headers)


@functools.cache
def signer(algorithm: str, number: int = 1) -> Signer:
    """Returns a key of an algorithm; another one for each number."""
    if algorithm.startswith(("RS", "PS")):
        key: Any = rsa.generate_private_key(65_537, 2048)
        return Signer(key, algorithm, RSAAlgorithm.to_jwk(key.public_key(), as_dict=True))
    if algorithm.startswith("ES"):
        curve = {"ES256": ec.SECP256R1, "ES384": ec.SECP384R1, "ES512": ec.SECP521R1}[algorithm]
        key = ec.generate_private_key(curve())
        return Signer(key, algorithm, ECAlgorithm.to_jwk(key.public_key(), as_dict=True))
    if algorithm == "EdDSA":
        key = ed25519.Ed25519PrivateKey.generate()
        return Signer(key, algorithm, OKPAlgorithm.to_jwk(key.public_key(), as_dict=True))
    key = SECRET + bytes([number])
    return Signer(key, algorithm, HMACAlgorithm.to_jwk(key, as_dict=True))


def public(made: Signer, key_id: str | None = "one", **more: Any) -> dict[str, Any]:
    """Returns the public key with a key id; fields that are None are left out."""
    fields = {name: value for name, value in made.public.items() if name not in ("key_ops", "alg", "use")}
    return {name: value for name, value in {**fields, "kid": key_id, **more}.items() if value is not None}


def key_set(*keys: dict[str, Any]) -> bytes:
    return json.dumps({"keys": keys}).encode()


class Served(NamedTuple):
    """A request that was received."""

    method: str
    path: str
    headers: dict[str, str]
    body: str


Page: TypeAlias = Callable[[Served], tuple[int, dict[str, str], bytes]]


class Pages:
    """An HTTP server on 127.0.0.1. `page` returns status, headers and body of the response."""

    def __init__(self, page: Page, identity: Path | None = None) -> None:
        """`identity` is a PEM file with a key and its certificate, of a server with TLS."""
        self.page = page
        self.requests: list[Served] = []
        pages = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
                served = Served(self.command, self.path, dict(self.headers), body)
                pages.requests.append(served)
                status, headers, data = pages.page(served)
                self.send_response(status)
                for name, value in {"Content-Length": str(len(data)), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(data)

            do_POST = do_GET

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        if identity is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(identity)
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self.url = f"http{'s' if identity else ''}://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def json_page(value: Any) -> tuple[int, dict[str, str], bytes]:
    return 200, {"Content-Type": "application/json"}, json.dumps(value).encode()
