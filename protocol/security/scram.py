"""The formulas of SCRAM that both sides use (RFC 5802, section 3): keys of a password, signatures and proofs.

A `hash_name` is that of a mechanism in HASHES.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping

HASHES: Mapping[str, str] = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}


def salted_password(hash_name: str, password: str, salt: bytes, iterations: int) -> bytes:
    """Returns SaltedPassword. It takes milliseconds: that is its purpose."""
    return hashlib.pbkdf2_hmac(hash_name, password.encode(), salt, iterations)


def client_key(hash_name: str, salted: bytes) -> bytes:
    """Returns ClientKey of a SaltedPassword."""
    return hmac.digest(salted, b"Client Key", hash_name)


def stored_key(hash_name: str, key: bytes) -> bytes:
    """Returns StoredKey of a ClientKey: what a broker stores."""
    return hashlib.new(hash_name, key).digest()


def server_key(hash_name: str, salted: bytes) -> bytes:
    """Returns ServerKey of a SaltedPassword."""
    return hmac.digest(salted, b"Server Key", hash_name)


def signature(hash_name: str, key: bytes, auth_message: bytes) -> bytes:
    """Returns ClientSignature for a StoredKey, ServerSignature for a ServerKey."""
    return hmac.digest(key, auth_message, hash_name)


def combined(one: bytes, other: bytes) -> bytes:
    """Returns the bitwise exclusive or: of ClientKey and ClientSignature it is the proof, of the proof and
    ClientSignature ClientKey. The lengths must be equal."""
    return bytes(a ^ b for a, b in zip(one, other, strict=True))
