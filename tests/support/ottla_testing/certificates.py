"""Certificates for tests: a throw-away authority, and stores signed by it."""

from __future__ import annotations

import datetime
from pathlib import Path

import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import pkcs12

STORE_PASSWORD = "changeit"


class Authority:
    """A certificate authority whose files are in a folder."""

    def __init__(self, folder: Path, ca: trustme.CA | None = None) -> None:
        self.folder = folder
        self._ca = ca or trustme.CA()
        self.trusted = folder / "ca.pem"
        """The certificate that clients and brokers trust."""
        folder.mkdir(parents=True, exist_ok=True)
        self.trusted.write_bytes(self._ca.cert_pem.bytes())

    def child(self, folder: Path) -> Authority:
        """Returns an authority whose certificate this one has signed."""
        return Authority(folder, self._ca.create_child_ca())

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


def self_signed(path: Path, common_name: str) -> Path:
    """Writes a private key with a certificate that no authority has signed, and returns the path."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, common_name)])
    now = datetime.datetime.now(datetime.UTC)
    day = datetime.timedelta(days=1)
    made = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number(), now - day, now + day)
    kinds = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    certificate = made.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    path.write_bytes(key.private_bytes(*kinds) + certificate)
    return path


def certificates_of(path: Path) -> list[str]:
    """Returns the certificates in a file in PEM."""
    chain = x509.load_pem_x509_certificates(path.read_bytes())
    return [one.public_bytes(serialization.Encoding.PEM).decode() for one in chain]


def pem_configs(key_store: Path, trusted: Path | None = None) -> dict[str, str]:
    """Returns the configs of a broker for stores in PEM."""
    found = {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(key_store)}
    return found if trusted is None else found | {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(trusted)}
