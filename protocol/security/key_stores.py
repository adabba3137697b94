"""Key stores and trust stores for TLS, as Kafka's configs name them, loaded into an `ssl.SSLContext`.

PEM is a file, or a text in a config that may stand on one line (KIP-651); PKCS12 is read by `cryptography`, which the
extra `ottla[security]` installs. Java's own format, JKS, is refused. Sources: KIP-651, SslConfigs and
DefaultSslEngineFactory of Kafka for which settings go together.
"""

from __future__ import annotations

import contextlib
import os
import re
import ssl
import tempfile
import warnings
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..named import NamedTuple

PEM, PKCS12, JKS = "PEM", "PKCS12", "JKS"
TYPES = (PEM, PKCS12, JKS)
STORE_BYTES_MAX = 16 << 20
_JKS_MAGIC = (b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce")
_PROTOCOLS = {
    "TLSv1": ssl.TLSVersion.TLSv1,
    "TLSv1.1": ssl.TLSVersion.TLSv1_1,
    "TLSv1.2": ssl.TLSVersion.TLSv1_2,
    "TLSv1.3": ssl.TLSVersion.TLSv1_3,
}
_OLD_PROTOCOLS = {"TLSv1", "TLSv1.1"}


class StoreError(ValueError):
    """A store that cannot be used; one line, without passwords."""


class Identity(NamedTuple):
    """A certificate chain with its private key: one PEM text, and the password of the key."""

    pem: str
    password: str | None

    def load_into(self, context: ssl.SSLContext, where: str) -> None:
        """Makes a context show this certificate. Raises StoreError, which names `where` the store is."""
        # Without a text OpenSSL would read a password from the terminal.
        password = self.password or ""
        try:
            with _as_file(self.pem) as path:
                context.load_cert_chain(path, password=lambda: password)
        except (ssl.SSLError, OSError, ValueError) as error:
            raise StoreError(f"{where}: {_reason(error)}") from None


@dataclass(frozen=True, slots=True)
class KeyStore:
    """Where a certificate and its key come from: a file of a type, or two PEM texts. Passwords are in no repr.

    `__post_init__` raises StoreError for settings that do not go together.
    """

    type: str = JKS
    location: str | None = None
    password: str | None = field(default=None, repr=False)
    key_password: str | None = field(default=None, repr=False)
    chain: str | None = field(default=None, repr=False)
    key: str | None = field(default=None, repr=False)

    @classmethod
    def of(cls, value: Callable[[str], str | None]) -> KeyStore:
        """Returns the store that configs name, by a function that returns the value of `ssl.keystore.location` and the
        like. The type is by default PEM for a key in a config, else JKS. Raises StoreError."""
        return cls(
            value("ssl.keystore.type") or (JKS if value("ssl.keystore.key") is None else PEM),
            value("ssl.keystore.location"),
            value("ssl.keystore.password"),
            value("ssl.key.password"),
            value("ssl.keystore.certificate.chain"),
            value("ssl.keystore.key"),
        )

    def __post_init__(self) -> None:
        kind = _checked_type("ssl.keystore.type", self.type)
        if self.key is not None:
            if kind != PEM:
                raise StoreError(f"ssl.keystore.key needs ssl.keystore.type=PEM, not {kind}")
            if self.chain is None:
                raise StoreError("ssl.keystore.key is set, and ssl.keystore.certificate.chain is not")
            if self.location is not None:
                raise StoreError("ssl.keystore.location and ssl.keystore.key are both set")
        elif self.chain is not None:
            raise StoreError("ssl.keystore.certificate.chain is set, and ssl.keystore.key is not")
        elif self.location is None and self.password is not None:
            raise StoreError("ssl.keystore.password is set, and ssl.keystore.location is not")
        elif self.location is not None and self.password is None and kind != PEM:
            raise StoreError("ssl.keystore.location is set, and ssl.keystore.password is not")
        if kind == PEM and self.password is not None:
            raise StoreError("ssl.keystore.password is not for PEM: the password of the key is ssl.key.password")

    def __bool__(self) -> bool:
        return self.location is not None or self.key is not None

    @property
    def where(self) -> str:
        """The file or the config, for messages."""
        return "ssl.keystore.key" if self.location is None else self.location

    def identity(self) -> Identity:
        """Reads the store. Raises StoreError."""
        if self.location is None:
            chain, key = _blocks(self.chain or "", "CERTIFICATE"), _blocks(self.key or "", "PRIVATE KEY")
            return self._of_pem(chain, key)
        data = _read(self.location)
        if self.type.upper() == PEM:
            text = data.decode(errors="replace")
            return self._of_pem(_blocks(text, "CERTIFICATE"), _blocks(text, "PRIVATE KEY"))
        key, certificate, more = _load_pkcs12(self.location, data, self.password)
        if key is None or certificate is None:
            raise StoreError(f"{self.location}: the store has no private key with a certificate")
        return _of_pkcs12(key, (certificate, *more))

    def _of_pem(self, chain: list[str], keys: list[str]) -> Identity:
        if not chain:
            raise StoreError(f"{self.where}: no certificate in PEM was found")
        if len(keys) != 1:
            raise StoreError(f"{self.where}: expected one private key in PEM, found {len(keys)}")
        return Identity("".join((*keys, *chain)), self.key_password)


@dataclass(frozen=True, slots=True)
class TrustStore:
    """Where the trusted certificates come from: a file of a type, or a PEM text. Passwords are in no repr.

    `__post_init__` raises StoreError for settings that do not go together.
    """

    type: str = JKS
    location: str | None = None
    password: str | None = field(default=None, repr=False)
    certificates: str | None = field(default=None, repr=False)

    @classmethod
    def of(cls, value: Callable[[str], str | None]) -> TrustStore:
        """Returns the store that configs name, as `KeyStore.of`. Raises StoreError."""
        certificates = value("ssl.truststore.certificates")
        kind = value("ssl.truststore.type") or (JKS if certificates is None else PEM)
        return cls(kind, value("ssl.truststore.location"), value("ssl.truststore.password"), certificates)

    def __post_init__(self) -> None:
        kind = _checked_type("ssl.truststore.type", self.type)
        if self.certificates is not None and kind != PEM:
            raise StoreError(f"ssl.truststore.certificates needs ssl.truststore.type=PEM, not {kind}")
        if self.certificates is not None and self.location is not None:
            raise StoreError("ssl.truststore.location and ssl.truststore.certificates are both set")
        if self.password is not None and kind == PEM:
            raise StoreError("ssl.truststore.password is not for PEM")
        if self.location is None and self.password is not None:
            raise StoreError("ssl.truststore.password is set, and ssl.truststore.location is not")

    def __bool__(self) -> bool:
        return self.location is not None or self.certificates is not None

    @property
    def where(self) -> str:
        """The file or the config, for messages."""
        return "ssl.truststore.certificates" if self.location is None else self.location

    def certificate_texts(self) -> list[str]:
        """Reads the trusted certificates as PEM texts. Raises StoreError."""
        if self.location is None:
            found = _blocks(self.certificates or "", "CERTIFICATE")
        else:
            data = _read(self.location)
            if self.type.upper() == PEM:
                found = _blocks(data.decode(errors="replace"), "CERTIFICATE")
            else:
                _, certificate, more = _load_pkcs12(self.location, data, self.password)
                found = [_certificate_pem(one) for one in (certificate, *more) if one is not None]
        if not found:
            raise StoreError(f"{self.where}: no certificate was found")
        return found

    def load_into(self, context: ssl.SSLContext) -> None:
        """Makes a context trust these certificates. Raises StoreError."""
        texts = self.certificate_texts()
        try:
            context.load_verify_locations(cadata="".join(texts))
        except (ssl.SSLError, ValueError) as error:
            raise StoreError(f"{self.where}: {_reason(error)}") from None


def set_protocols(context: ssl.SSLContext, names: list[str]) -> None:
    """Lets a context speak these versions only, by Java's names (`ssl.enabled.protocols`). Raises StoreError."""
    for name in names:
        if name not in _PROTOCOLS:
            raise StoreError(f"ssl.enabled.protocols: {name} is not one of {', '.join(_PROTOCOLS)}")
    if not names:
        return
    if _OLD_PROTOCOLS.intersection(names):
        context.set_ciphers("DEFAULT@SECLEVEL=0")  # OpenSSL 3 refuses their signatures on any other level
    versions = [version for name, version in _PROTOCOLS.items() if name in names]
    if len(versions) != versions[-1] - versions[0] + 1:
        raise StoreError(f"ssl.enabled.protocols: {','.join(names)} leaves out a version in between")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of versions below 1.2, which old clients need
        context.minimum_version, context.maximum_version = versions[0], versions[-1]


def set_cipher_suites(context: ssl.SSLContext, names: list[str]) -> None:
    """Lets a context use these cipher suites only, by Java's names (`ssl.cipher.suites`). Raises StoreError.

    Those of TLS 1.3 are OpenSSL's own: without any of them in the list TLS 1.3 is switched off, with one all are used.
    """
    if not names:
        return
    old = [openssl_name(name) for name in names if "_WITH_" in name]
    new = [name for name in names if "_WITH_" not in name]
    known = {cipher["name"] for cipher in context.get_ciphers() if cipher["protocol"] == "TLSv1.3"}
    if unknown := [name for name in new if name not in known]:
        raise StoreError(f"ssl.cipher.suites: {', '.join(unknown)} is not a cipher suite")
    if old:
        level = "@SECLEVEL=0" if context.minimum_version < ssl.TLSVersion.TLSv1_2 else ""
        try:
            context.set_ciphers(":".join(old) + level)
        except ssl.SSLError:
            raise StoreError(f"ssl.cipher.suites: OpenSSL has none of {', '.join(names)}") from None
    if not new:
        context.maximum_version = min(ssl.TLSVersion.TLSv1_2, _highest(context))
    if not old:
        context.minimum_version = ssl.TLSVersion.TLSv1_3
    if context.minimum_version > _highest(context):
        raise StoreError(f"ssl.cipher.suites: none of {', '.join(names)} is of a version in ssl.enabled.protocols")


def _highest(context: ssl.SSLContext) -> ssl.TLSVersion:
    highest = context.maximum_version
    return ssl.TLSVersion.TLSv1_3 if highest is ssl.TLSVersion.MAXIMUM_SUPPORTED else highest


def openssl_name(java_name: str) -> str:
    """Returns OpenSSL's name of a cipher suite of TLS 1.2: TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256 is
    ECDHE-RSA-AES128-GCM-SHA256.
    """
    exchange, _, cipher = java_name.removeprefix("TLS_").partition("_WITH_")
    if cipher.startswith("CHACHA20_POLY1305"):
        cipher = "CHACHA20_POLY1305"
    cipher = re.sub(r"\b(AES|CAMELLIA|ARIA)_([0-9]+)", r"\1\2", cipher).replace("_CBC", "")
    parts = cipher if exchange == "RSA" else f"{exchange}_{cipher}"
    return parts.replace("_", "-")


def _checked_type(name: str, text: str) -> str:
    kind = text.upper()
    if kind not in TYPES:
        raise StoreError(f"{name} {text} is not one of {', '.join(TYPES)}")
    return kind


def _read(path: str) -> bytes:
    try:
        with Path(path).open("rb") as file:
            data = file.read(STORE_BYTES_MAX + 1)
    except (OSError, ValueError) as error:
        raise StoreError(f"{path}: {_reason(error)}") from None
    if len(data) > STORE_BYTES_MAX:
        raise StoreError(f"{path}: the file is larger than {STORE_BYTES_MAX >> 20} MiB")
    return data


def _blocks(text: str, name: str) -> list[str]:
    """Returns the PEM blocks of a kind with lines of 64 characters; in a config they may be on one line."""
    found: list[str] = []
    pattern = rf"-----BEGIN ((?:[A-Z0-9]+ )*{name})-----(.*?)-----END \1-----"
    for block in re.finditer(pattern, text, re.DOTALL):
        label, body = block[1], block[2]
        headers = re.match(r"(?:\s*[A-Za-z-]+: [^\r\n]*\r?\n)+", body)  # Proc-Type and DEK-Info of old encrypted keys
        packed = "".join(body[headers.end() if headers else 0 :].split())
        lines = [packed[at : at + 64] for at in range(0, len(packed), 64)]
        head = f"{headers[0].strip()}\n\n" if headers else ""
        found.append(f"-----BEGIN {label}-----\n{head}" + "\n".join(lines) + f"\n-----END {label}-----\n")
    return found


def _load_pkcs12(path: str, data: bytes, password: str | None) -> tuple[Any, Any, list[Any]]:
    """Returns the private key, its certificate and the other certificates of a file."""
    if data.startswith(_JKS_MAGIC):
        raise StoreError(
            f"{path}: a store in Java's own format, JKS, is not read; convert it: keytool -importkeystore -srckeystore "
            f"{path} -destkeystore {path}.p12 -deststoretype PKCS12"
        )
    if b"-----BEGIN " in data:
        raise StoreError(f"{path}: the store is in PEM, and its type is not: set it to PEM")
    try:
        from cryptography.hazmat.primitives.serialization import pkcs12
    except ImportError:
        raise StoreError(f"{path}: PKCS12 needs cryptography: pip install 'ottla[security]'") from None
    try:
        key, certificate, more = pkcs12.load_key_and_certificates(data, None if password is None else password.encode())
    except Exception as error:  # damaged bytes raise errors of many classes
        raise StoreError(f"{path}: {_reason(error)}") from None
    return key, certificate, list(more)


def _of_pkcs12(key: Any, certificates: tuple[Any, ...]) -> Identity:
    from cryptography.hazmat.primitives import serialization

    password = os.urandom(16).hex()
    pem = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(password.encode()),
    ).decode()
    return Identity(pem + "".join(map(_certificate_pem, certificates)), password)


def _certificate_pem(certificate: Any) -> str:
    from cryptography.hazmat.primitives import serialization

    return certificate.public_bytes(serialization.Encoding.PEM).decode()


@contextlib.contextmanager
def _as_file(text: str) -> Generator[str]:
    """The text as a file that only this user can read: OpenSSL loads keys from files alone."""
    if hasattr(os, "memfd_create"):
        number = os.memfd_create("key")
        try:
            os.write(number, text.encode())
            yield f"/proc/self/fd/{number}"
        finally:
            os.close(number)
    else:
        with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:
            file.write(text)
            file.flush()
            yield file.name


def _reason(error: BaseException) -> str:
    """The reason of an error in one line."""
    if isinstance(error, ssl.SSLError) and error.reason:
        return error.reason.lower().replace("_", " ")
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error).splitlines()[0] if str(error) else type(error).__name__
