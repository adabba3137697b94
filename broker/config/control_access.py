"""Access to the control plane: its token, where the token comes from, and its certificate for TLS.

A token is given by a file or by a variable of the environment, never on a command line, which other users of the
machine can read. The broker and the commands that call its control plane read the same variables.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ..errors import ConfigError

if TYPE_CHECKING:
    import ssl

TOKEN_VARIABLE = "OTTLA_CONTROL_TOKEN"
TOKEN_FILE_VARIABLE = "OTTLA_CONTROL_TOKEN_FILE"
CA_VARIABLE = "OTTLA_CONTROL_CA"
TOKEN_FILE_FLAG = "--control-token-file"
TOKEN_MIN, TOKEN_MAX = 16, 512
_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")  # RFC 6750, 2.1


def checked_token(text: str, source: str) -> str:
    """Returns a token without the blanks around it. Raises ConfigError, which names the source and not the token."""
    token = text.strip()
    if not TOKEN_MIN <= len(token) <= TOKEN_MAX or not _TOKEN.fullmatch(token):
        raise ConfigError(
            f"{source}: a token has {TOKEN_MIN} to {TOKEN_MAX} characters of A-Z a-z 0-9 . _ ~ + / - and = at its end"
        )
    return token


def given_token(file: str | None, environ: Mapping[str, str]) -> str | None:
    """Returns the token of a file or, without one, of the environment; None if none is given. Raises ConfigError."""
    if file is not None:
        return _read(file, TOKEN_FILE_FLAG)
    if text := environ.get(TOKEN_VARIABLE):
        return checked_token(text, TOKEN_VARIABLE)
    if path := environ.get(TOKEN_FILE_VARIABLE):
        return _read(path, TOKEN_FILE_VARIABLE)
    return None


def _read(path: str, source: str) -> str:
    try:
        with open(path, "rb") as file:
            data = file.read(4 * TOKEN_MAX)
    except OSError as error:
        raise ConfigError(f"{source} {path}: {error.strerror}") from error
    return checked_token(data.decode("ascii", "replace"), f"{source} {path}")


def is_same(one: str, other: str) -> bool:
    """Returns whether two secrets are equal, in a time that does not depend on where they differ."""
    digests = [hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest() for text in (one, other)]
    return hmac.compare_digest(*digests)


def server_context(certificate: str, key: str) -> ssl.SSLContext:
    """Returns the TLS context of a server, TLS 1.2 or newer, with the certificate chain and the private key of two PEM
    files. Raises ConfigError."""
    import ssl

    def encrypted() -> str:  # without this OpenSSL reads a password from the terminal
        raise ConfigError(f"--control-tls-key {key}: the key is encrypted; expected a PEM file without a password")

    for flag, path in (("--control-tls-cert", certificate), ("--control-tls-key", key)):
        try:
            os.stat(path)
            with open(path, "rb"):
                pass
        except OSError as error:
            raise ConfigError(f"{flag} {path}: {error.strerror}") from error
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(certificate, key, encrypted)
    except OSError as error:  # an SSLError is one
        reason = getattr(error, "reason", None)
        text = "no certificate and key in PEM" if reason is None else str(reason).lower().replace("_", " ")
        raise ConfigError(f"--control-tls-cert {certificate}, --control-tls-key {key}: {text}") from error
    return context
