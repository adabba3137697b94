"""Key stores and trust stores: PEM in files and texts, PKCS12, what is refused, protocols and cipher suites."""

from __future__ import annotations

import contextlib
import datetime
import ssl
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from hypothesis import given
from hypothesis import strategies as st

from ottla.protocol.security.certificates import distinguished_name, names
from ottla.protocol.security.key_stores import (
    KeyStore,
    StoreError,
    TrustStore,
    openssl_name,
    set_cipher_suites,
    set_protocols,
)
from ottla_testing.certificates import STORE_PASSWORD, Authority
from ottla_testing.each import each


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


def server() -> ssl.SSLContext:
    return ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)


def shaken_hands(key_store: KeyStore, trust_store: TrustStore, host: str = "localhost") -> str | None:
    """Returns the version of TLS that a client and a server with these stores agree on, in memory."""
    accepting, calling = server(), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    key_store.identity().load_into(accepting, key_store.where)
    trust_store.load_into(calling)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = calling.wrap_bio(to_client, to_server, server_hostname=host)
    broker = accepting.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(4):
        for side in (client, broker):
            with contextlib.suppress(ssl.SSLWantReadError):
                side.do_handshake()
    return client.version()


def one_line(pem: str) -> str:
    return " ".join(pem.split("\n"))


def test_stores_of_all_kinds_shake_hands(authority: Authority) -> None:
    pem = authority.issue("server").read_text()
    at = pem.index("-----BEGIN CERTIFICATE")
    key_stores = [
        KeyStore("PEM", location=str(authority.folder / "server.pem")),
        KeyStore("pem", key=pem[:at], chain=pem[at:]),
        KeyStore("PEM", key=one_line(pem[:at]), chain=one_line(pem[at:])),
        KeyStore("PKCS12", location=str(authority.issue_pkcs12("p12")), password=STORE_PASSWORD),
        KeyStore("JKS", location=str(authority.folder / "p12.p12"), password=STORE_PASSWORD),  # as Java reads it
    ]
    trust_stores = [
        TrustStore("PEM", location=str(authority.trusted)),
        TrustStore("PEM", certificates=authority.trusted.read_text()),
        TrustStore("PEM", certificates=one_line(authority.trusted.read_text())),
        TrustStore("PKCS12", location=str(authority.trusted_pkcs12()), password=STORE_PASSWORD),
    ]
    for key_store in key_stores:
        for trust_store in trust_stores:
            assert shaken_hands(key_store, trust_store) == "TLSv1.3", (key_store, trust_store)
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        shaken_hands(key_stores[0], trust_stores[0], "elsewhere")


def test_keys_with_passwords_need_them(authority: Authority) -> None:
    pem = authority.issue("locked").read_bytes()
    key = serialization.load_pem_private_key(pem, None)
    locked = serialization.BestAvailableEncryption(b"key-secret")
    for form in (serialization.PrivateFormat.PKCS8, serialization.PrivateFormat.TraditionalOpenSSL):
        text = key.private_bytes(serialization.Encoding.PEM, form, locked).decode()
        chain = pem[pem.index(b"-----BEGIN CERTIFICATE") :].decode()
        store = KeyStore("PEM", key=text, chain=chain, key_password="key-secret")
        store.identity().load_into(server(), store.where)
        for password in (None, "wrong"):
            store = KeyStore("PEM", key=text, chain=chain, key_password=password)
            with pytest.raises(StoreError, match=r"^ssl.keystore.key: "):
                store.identity().load_into(server(), store.where)


@each(
    "settings, problem",
    [
        ({"type": "BKS"}, "ssl.keystore.type BKS is not one of PEM, PKCS12, JKS"),
        ({"key": "k"}, "ssl.keystore.key needs ssl.keystore.type=PEM, not JKS"),
        ({"type": "PEM", "key": "k"}, "ssl.keystore.key is set, and ssl.keystore.certificate.chain is not"),
        ({"type": "PEM", "chain": "c"}, "ssl.keystore.certificate.chain is set, and ssl.keystore.key is not"),
        (
            {"type": "PEM", "key": "k", "chain": "c", "location": "f"},
            "ssl.keystore.location and ssl.keystore.key are both set",
        ),
        (
            {"type": "PEM", "location": "f", "password": "p"},
            "ssl.keystore.password is not for PEM: the password of the key is ssl.key.password",
        ),
        ({"location": "f"}, "ssl.keystore.location is set, and ssl.keystore.password is not"),
        ({"password": "p"}, "ssl.keystore.password is set, and ssl.keystore.location is not"),
    ],
)
def test_key_store_settings_that_do_not_go_together(settings: dict[str, str], problem: str) -> None:
    with pytest.raises(StoreError) as raised:
        KeyStore(**settings)
    assert str(raised.value) == problem


@each(
    "settings, problem",
    [
        ({"certificates": "c"}, "ssl.truststore.certificates needs ssl.truststore.type=PEM, not JKS"),
        (
            {"type": "PEM", "certificates": "c", "location": "f"},
            "ssl.truststore.location and ssl.truststore.certificates are both set",
        ),
        ({"type": "PEM", "location": "f", "password": "p"}, "ssl.truststore.password is not for PEM"),
        ({"password": "p"}, "ssl.truststore.password is set, and ssl.truststore.location is not"),
    ],
)
def test_trust_store_settings_that_do_not_go_together(settings: dict[str, str], problem: str) -> None:
    with pytest.raises(StoreError) as raised:
        TrustStore(**settings)
    assert str(raised.value) == problem


def test_store_files_that_cannot_be_read(authority: Authority, tmp_path: Path) -> None:
    jks, empty, text = tmp_path / "s.jks", tmp_path / "empty", tmp_path / "text.pem"
    jks.write_bytes(b"\xfe\xed\xfe\xed" + bytes(100))
    empty.write_bytes(b"")
    text.write_text("no certificate")
    p12 = authority.issue_pkcs12("right")
    for store, problem in (
        (
            KeyStore("JKS", str(jks), "p"),
            f"{jks}: a store in Java's own format, JKS, is not read; convert it: keytool ",
        ),
        (KeyStore("PKCS12", str(empty), "p"), f"{empty}: "),
        (KeyStore("PKCS12", str(p12), "wrong"), f"{p12}: "),
        (KeyStore("PKCS12", str(tmp_path / "none"), "p"), f"{tmp_path / 'none'}: No such file"),
        (KeyStore("PEM", str(text)), f"{text}: no certificate in PEM was found"),
        (
            KeyStore("JKS", str(authority.trusted), "p"),
            f"{authority.trusted}: the store is in PEM, and its type is not: set it to PEM",
        ),
        (KeyStore("PEM", str(authority.trusted)), f"{authority.trusted}: expected one private key in PEM, found 0"),
    ):
        with pytest.raises(StoreError) as raised:
            store.identity()
        assert str(raised.value).startswith(problem) and "\n" not in str(raised.value)
    for trust, problem in (
        (TrustStore("PEM", str(text)), f"{text}: no certificate was found"),
        (TrustStore("PKCS12", str(p12), "wrong"), f"{p12}: "),
    ):
        with pytest.raises(StoreError) as raised:
            trust.load_into(server())
        assert str(raised.value).startswith(problem)


@given(data=st.data())
def test_damaged_stores_are_store_errors(authority: Authority, tmp_path_factory: Any, data: st.DataObject) -> None:
    p12, pem = authority.folder / "damaged.p12", authority.folder / "damaged.pem"
    if not p12.exists():
        authority.issue_pkcs12("damaged")
    path, kind = data.draw(st.sampled_from([(p12, "PKCS12"), (pem, "PEM")]))
    damaged = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    cut = damaged[: data.draw(st.integers(0, len(damaged)))] if data.draw(st.booleans()) else damaged
    file = tmp_path_factory.getbasetemp() / "damaged"
    file.write_bytes(cut)
    store = KeyStore(kind, str(file), STORE_PASSWORD if kind == "PKCS12" else None)
    try:
        store.identity().load_into(server(), store.where)
    except StoreError as error:
        assert "\n" not in str(error) and STORE_PASSWORD not in str(error)


def test_no_repr_shows_a_password(authority: Authority) -> None:
    shown = repr(KeyStore("PKCS12", "f", "secret-1", "secret-2")) + repr(TrustStore("PKCS12", "f", "secret-3"))
    shown += repr(KeyStore("PEM", key="secret-4", chain="secret-5", key_password="secret-6"))
    assert "secret" not in shown


@each(
    "java, openssl",
    [
        ("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "ECDHE-RSA-AES128-GCM-SHA256"),
        ("TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA384", "ECDHE-ECDSA-AES256-SHA384"),
        ("TLS_RSA_WITH_AES_128_CBC_SHA", "AES128-SHA"),
        ("TLS_DHE_RSA_WITH_CHACHA20_POLY1305_SHA256", "DHE-RSA-CHACHA20-POLY1305"),
        ("TLS_ECDHE_ECDSA_WITH_ARIA_256_GCM_SHA384", "ECDHE-ECDSA-ARIA256-GCM-SHA384"),
    ],
)
def test_cipher_suites_have_openssl_names(java: str, openssl: str) -> None:
    assert openssl_name(java) == openssl


def test_cipher_suites_are_the_only_ones() -> None:
    context = server()
    set_cipher_suites(context, ["TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"])
    assert [one["name"] for one in context.get_ciphers() if one["protocol"] == "TLSv1.2"] == [
        "ECDHE-RSA-AES128-GCM-SHA256"
    ]
    assert context.maximum_version == ssl.TLSVersion.TLSv1_2
    context = server()
    set_cipher_suites(context, ["TLS_AES_128_GCM_SHA256"])
    assert context.minimum_version == ssl.TLSVersion.TLSv1_3
    context = server()
    set_protocols(context, ["TLSv1.2"])
    with pytest.raises(StoreError, match=r"none of TLS_AES_128_GCM_SHA256 is of a version in ssl.enabled.protocols"):
        set_cipher_suites(context, ["TLS_AES_128_GCM_SHA256"])
    for unknown in ("TLS_ECDHE_RSA_WITH_ROT13_SHA", "TLS_AES_128_ROT13"):
        with pytest.raises(StoreError, match=unknown):
            set_cipher_suites(server(), [unknown])


def test_protocols_are_the_only_ones() -> None:
    context = server()
    set_protocols(context, ["TLSv1.2"])
    assert (context.minimum_version, context.maximum_version) == (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_2)
    context = server()
    set_protocols(context, ["TLSv1.3", "TLSv1.1", "TLSv1.2"])
    assert (context.minimum_version, context.maximum_version) == (ssl.TLSVersion.TLSv1_1, ssl.TLSVersion.TLSv1_3)
    for protocols, problem in (
        (["SSLv3"], "SSLv3 is not one of TLSv1, TLSv1.1, TLSv1.2, TLSv1.3"),
        (["TLSv1.1", "TLSv1.3"], "TLSv1.1,TLSv1.3 leaves out a version in between"),
    ):
        with pytest.raises(StoreError) as raised:
            set_protocols(server(), protocols)
        assert str(raised.value) == f"ssl.enabled.protocols: {problem}"


def certificate(*attributes: tuple[str, str], alternatives: list[str] | None = None) -> x509.Certificate:
    name = x509.Name([x509.NameAttribute(x509.ObjectIdentifier(oid), value) for oid, value in attributes])
    key = ec.generate_private_key(ec.SECP256R1())
    day = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    made = x509.CertificateBuilder(name, name, key.public_key(), 1, day, day + datetime.timedelta(days=1))
    if alternatives is not None:
        made = made.add_extension(x509.SubjectAlternativeName([x509.DNSName(one) for one in alternatives]), False)
    return made.sign(key, hashes.SHA256())


CN, ORG, C, MAIL = "2.5.4.3", "2.5.4.10", "2.5.4.6", "1.2.840.113549.1.9.1"


@each(
    "attributes, name",
    [
        ([(C, "US"), (ORG, "Example"), (CN, "joe")], "CN=joe,O=Example,C=US"),
        ([(ORG, "Smith, Wesson + Sons"), (CN, 'a"b\\c<d>;')], 'CN=a\\"b\\\\c\\<d\\>\\;,O=Smith\\, Wesson \\+ Sons'),
        ([(CN, "  #joe  ")], "CN=\\ \\ \\#joe\\ \\ "),
        ([(CN, "a  b=c")], "CN=a  b\\=c"),
        ([(CN, "#joe")], "CN=\\#joe"),
        ([(MAIL, "a@b.c"), (CN, "Zoë")], "CN=Zoë,1.2.840.113549.1.9.1=#16056140622e63"),
    ],
)
def test_names_are_those_of_java(attributes: list[tuple[str, str]], name: str) -> None:
    """RFC 2253; the texts were printed by X500Principal.getName() of Java 17."""
    der = certificate(*attributes).public_bytes(serialization.Encoding.DER)
    assert distinguished_name(der) == name


def test_alternative_names_of_the_first_certificate() -> None:
    first, second = certificate((CN, "a"), alternatives=["x", "y"]), certificate((CN, "b"))
    pem = "".join(one.public_bytes(serialization.Encoding.PEM).decode() for one in (first, second))
    assert names("text before\n" + pem) == ("CN=a", {"x", "y"})
    assert names(pem[pem.rindex("-----BEGIN") :]) == ("CN=b", set())
