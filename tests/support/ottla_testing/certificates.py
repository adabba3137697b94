"""Certificates for tests: a throw-away authority, and stores signed by it."""

from __future__ import annotations

import datetime
from pathlib import Path

import trustme
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.serialization import pkcs12

STORE_PASSWORD = "changeit"


class Authority:
    """A certificate authority whose files are in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._ca = trustme.CA()
        self.trusted = folder / "ca.pem"
        """The certificate that clients and brokers trust."""
        folder.mkdir(parents=True, exist_ok=True)
        self.trusted.write_bytes(self._ca.cert_pem.bytes())

    def issue(
        self, name: str, *hosts: str, common_name: str | None = None, not_after: datetime.datetime | None = None
    ) -> Path:
        """Writes NAME.pem, a private key with its certificate chain, and returns its path. Without `hosts` the
        certificate is one for localhost."""
        issued = self._ca.issue_cert(
            *(hosts or ("localhost", "127.0.0.1", "::1")), common_name=common_name, not_after=not_after
        )
        key = serialization.load_pem_private_key(issued.private_key_pem.bytes(), None)
        kinds = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8  # Java reads no other kind
        chain = b"".join(one.bytes() for one in issued.cert_chain_pems)
        path = self.folder / f"{name}.pem"
        path.write_bytes(key.private_bytes(*kinds, serialization.NoEncryption()) + chain)
        return path

    def issue_pkcs12(self, name: str, *hosts: str, common_name: str | None = None) -> Path:
        """Writes NAME.p12 with STORE_PASSWORD, and returns its path."""
        pem = self.issue(name, *hosts, common_name=common_name).read_bytes()
        key = serialization.load_pem_private_key(pem, None)
        chain = x509.load_pem_x509_certificates(pem[pem.index(b"-----BEGIN CERTIFICATE") :])
        path = self.folder / f"{name}.p12"
        locked = serialization.BestAvailableEncryption(STORE_PASSWORD.encode())
        # The key is one of a kind that PKCS12 knows: trustme makes elliptic ones.
        path.write_bytes(pkcs12.serialize_key_and_certificates(b"kafka", key, chain[0], chain[1:], locked))  # type: ignore[arg-type]
        return path

    def trusted_pkcs12(self) -> Path:
        """Writes a trust store in PKCS12 with STORE_PASSWORD, and returns its path."""
        certificate = x509.load_pem_x509_certificate(self.trusted.read_bytes())
        path = self.folder / "ca.p12"
        locked = serialization.BestAvailableEncryption(STORE_PASSWORD.encode())
        path.write_bytes(pkcs12.serialize_key_and_certificates(b"ca", None, None, [certificate], locked))
        return path


def pem_configs(key_store: Path, trusted: Path | None = None) -> dict[str, str]:
    """Returns the configs of a broker for stores in PEM."""
    found = {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(key_store)}
    return found if trusted is None else found | {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(trusted)}
