"""The security options of all clients: names, contradictions, and that no secret is shown; and files with them."""

from __future__ import annotations

import dataclasses
import pickle
import ssl
from pathlib import Path
from typing import Any

import pytest

from ottla.client.admin.admin import Admin
from ottla.client.consumer.options import ConsumerOptions
from ottla.client.net.errors import ConfigError
from ottla.client.net.options import ClientOptions, read_options, read_settings, security_values
from ottla.client.net.sasl import Login
from ottla.client.net.security import SecurityOptions, Settings, is_secret, is_security
from ottla.client.producer.options import ProducerOptions
from ottla_testing.certificates import STORE_PASSWORD, Authority
from ottla_testing.each import each

SSL = {"security.protocol": "SSL"}
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
LOGIN = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}
SECRETS = [field.name for field in dataclasses.fields(SecurityOptions) if not field.repr]


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


def test_certificates_are_trusted_by_the_names_of_each_library(authority: Authority) -> None:
    own, trusted = authority.issue("client"), authority.trusted
    key = own.read_text()
    one_line = trusted.read_text().replace("\n", " ")
    named: list[dict[str, str]] = [
        {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(trusted)},
        {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": one_line},
        {"ssl.truststore.location": str(authority.trusted_pkcs12()), "ssl.truststore.password": STORE_PASSWORD},
        {"ssl.ca.location": str(trusted), "ssl.certificate.location": str(own), "ssl.key.location": str(own)},
        {"ssl.ca.pem": one_line, "ssl.certificate.pem": key, "ssl.key.pem": key},
        {"ssl_cafile": str(trusted), "ssl_certfile": str(own)},
        {
            "ssl.ca.location": str(trusted),
            "ssl.keystore.location": str(authority.issue_pkcs12("stored")),
            "ssl.keystore.password": STORE_PASSWORD,
        },
    ]
    expected = ssl.create_default_context(cafile=str(trusted)).get_ca_certs()
    for names in named:
        context = read_options(ClientOptions, SSL | names).tls()
        assert context is not None and context.get_ca_certs() == expected, names
        assert context.check_hostname and context.verify_mode == ssl.CERT_REQUIRED


@each(
    ("names", "checks_host", "verifies"),
    [
        ({}, True, True),
        ({"ssl.endpoint.identification.algorithm": "HTTPS"}, True, True),
        ({"ssl.endpoint.identification.algorithm": ""}, False, True),
        ({"ssl.endpoint.identification.algorithm": "none"}, False, True),
        ({"ssl_check_hostname": "false"}, False, True),
        ({"enable.ssl.certificate.verification": "false"}, False, False),
    ],
)
def test_checks_are_switched_off_by_name(names: dict[str, str], checks_host: bool, verifies: bool) -> None:
    context = read_options(ClientOptions, SSL | names).tls()
    assert context is not None and context.check_hostname == checks_host
    assert (context.verify_mode == ssl.CERT_REQUIRED) == verifies


@each(
    ("names", "versions", "suites"),
    [
        ({}, (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3), None),
        ({"ssl.enabled.protocols": "TLSv1.3"}, (ssl.TLSVersion.TLSv1_3, ssl.TLSVersion.TLSv1_3), None),
        (
            {"ssl.enabled.protocols": "TLSv1.2", "ssl.cipher.suites": "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"},
            (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_2),
            "ECDHE-RSA-AES128-GCM-SHA256",
        ),
        (
            {"ssl.enabled.protocols": "TLSv1.2", "ssl_ciphers": "ECDHE-RSA-AES128-GCM-SHA256"},
            (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_2),
            "ECDHE-RSA-AES128-GCM-SHA256",
        ),
    ],
)
def test_versions_and_suites(names: dict[str, str], versions: tuple[Any, Any], suites: str | None) -> None:
    context = read_options(ClientOptions, SSL | names).tls()
    assert context is not None and (context.minimum_version, context.maximum_version) == versions
    if suites is not None:
        old = [one["name"] for one in context.get_ciphers() if one["protocol"] != "TLSv1.3"]
        assert old == [suites]


@each(
    ("config", "text"),
    [
        (
            {"security.protocol": "TLS"},
            "security.protocol must be one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL",
        ),
        (SSL | {"ssl.endpoint.identification.algorithm": "LDAPS"}, "algorithm must be https or empty, not 'LDAPS'"),
        (SSL | {"ssl.protocol": "TLSv2"}, "ssl.protocol must be one of .*TLSv1.3.*, not 'TLSv2'"),
        (SSL | {"ssl.truststore.type": "BKS"}, "ssl.truststore.type BKS is not one of PEM, PKCS12, JKS"),
        (SSL | {"ssl.truststore.password": "p"}, "ssl.truststore.password is set, and ssl.truststore.location is not"),
        (SSL | {"ssl.keystore.location": "f"}, "ssl.keystore.location is set, and ssl.keystore.password is not"),
        (SSL | {"ssl.keystore.key": "k"}, "ssl.keystore.key is set, and ssl.keystore.certificate.chain is not"),
        (SSL | {"ssl.key.location": "f"}, "ssl.key.location is set, and ssl.certificate.location is not"),
        (SSL | {"ssl.ca.location": "f", "ssl.truststore.location": "g"}, "ssl.ca.location cannot be combined with"),
        (SSL | {"ssl.certificate.location": "f", "ssl.keystore.location": "g"}, "cannot be combined with"),
        (SSL | {"ssl.ca.location": "f", "ssl_cafile": "g"}, "option ssl_cafile is given twice"),
        (
            SSL | {"ssl.truststore.loaction": "f"},
            "unknown option ssl.truststore.loaction; did you mean ssl.trusts",
        ),
        (SSL | {"enable.ssl.certificate.verification": "maybe"}, "verification: invalid value 'maybe'"),
        ({"security.protocol": "SASL_SSL"}, "sasl.mechanism must be one of PLAIN"),
    ],
)
def test_contradictions_are_refused_before_a_file_is_read(config: dict[str, str], text: str) -> None:
    with pytest.raises(ConfigError, match=text) as refused:
        read_options(ClientOptions, config)
    assert "\n" not in str(refused.value)


@each(
    ("names", "text"),
    [
        ({"ssl.truststore.location": "{folder}/none.p12"}, "none.p12: No such file"),
        ({"ssl.ca.location": "{folder}/none.pem"}, "none.pem: No such file"),
        (
            {"ssl.certificate.location": "{folder}/ca.pem", "ssl.key.location": "{folder}/no.key"},
            "no.key: No such",
        ),
        (
            {"ssl.truststore.location": "{folder}/java.jks"},
            "java.jks: .* JKS, is not read; convert it: keytool",
        ),
        ({"ssl.ca.location": "{folder}/empty.pem"}, "empty.pem: no certificate was found"),
        (
            {"ssl.keystore.location": "{folder}/own.p12", "ssl.keystore.password": "guess"},
            "own.p12: .*[Pp]assword",
        ),
        ({"ssl.certificate.location": "{folder}/ca.pem"}, "ca.pem: expected one private key in PEM, found 0"),
    ],
)
def test_unusable_stores_are_refused_when_a_client_is_made(
    names: dict[str, str], text: str, authority: Authority
) -> None:
    folder = authority.folder
    (folder / "java.jks").write_bytes(b"\xfe\xed\xfe\xed\0\0\0\2")
    (folder / "empty.pem").write_text("none here")
    authority.issue_pkcs12("own")
    options = {name: value.format(folder=folder) for name, value in names.items()}
    with pytest.raises(ConfigError, match=text) as refused:
        Admin.from_config(SSL | options)
    assert "\n" not in str(refused.value) and "guess" not in str(refused.value)


# Secrets


def test_no_repr_has_a_secret() -> None:
    values: dict[str, Any] = {name: f"hidden-{name}" for name in SECRETS}
    shown = {"ssl_truststore_location": "/shown", "sasl_username": "ann"}
    for kind in (ClientOptions, ConsumerOptions, ProducerOptions):
        options = kind(**shown, **values)
        assert "hidden" not in repr(options) and "/shown" in repr(options)
        assert all(getattr(options, name) == value for name, value in (shown | values).items())
    names = {name.replace("_", "."): value for name, value in (values | shown).items()}
    names |= {"ssl_password": "hidden-1", "sasl_plain_password": "hidden-2", "sasl.some.later.secret": "hidden-3"}
    settings = Settings(names)
    for text in (repr(settings), str(settings), f"{settings}"):
        assert "hidden-" not in text and "'/shown'" in text and "'ann'" in text
    copied = pickle.loads(pickle.dumps(settings))
    assert copied == names and "hidden-" not in repr(copied)
    assert {"password", "key"} & set(" ".join(SECRETS).replace("_", " ").split()) == {"password", "key"}


def test_all_passwords_and_keys_are_secrets() -> None:
    names = [field.name for field in dataclasses.fields(SecurityOptions)]
    assert {name for name in names if "password" in name or name.endswith("jaas_config")} <= set(SECRETS)
    assert is_secret("ssl.keystore.key") and is_secret("sasl.oauthbearer.anything")
    assert not is_secret("ssl.keystore.location") and not is_secret("client.id")
    assert is_security("sasl.plain.password") and is_security("ssl_cafile") and not is_security("client.id")


# Files


def test_file_has_the_security_options_of_kafkas_tools(tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    jaas = f'{MODULE} required \\\n  username="ann" \\\n  password="one";'
    path.write_text(f"# ours\nsecurity.protocol=SASL_SSL\nsasl.mechanism=PLAIN\nsasl.jaas.config={jaas}\n")
    with path.open("a") as file:
        file.write("ssl.truststore.location=/ca.p12\nenable.ssl.certificate.verification: false\nclient.id=me\n")
        file.write("sasl.login.class=org.example.Login\nsasl.kerberos.service.name=kafka\nssl.provider=x\n")
    options = ClientOptions(**security_values(path))
    assert options.login == Login("PLAIN", "ann", "one") and options.client_id == "ottla"
    assert options.ssl_truststore_location == "/ca.p12" and options.enable_ssl_certificate_verification is False
    settings = read_settings(path)
    assert "one" not in repr(settings) and settings["enable.ssl.certificate.verification"] == "false"
    assert security_values(None) == {}


@each(
    ("text", "words"),
    [
        ("security.protocol=SASL\n", "security.protocol must be one of"),
        (
            "security.protocol=SSL\nssl.trustore.location=f\n",
            "unknown option ssl.trustore.location; did you mean",
        ),
        ("sasl.pasword=secret\n", "unknown option sasl.pasword; did you mean sasl.password"),
        ("sasl.password=secret\\u00g1\n", "malformed .uxxxx escape in the value of sasl.password"),
        ("\n".join(f"{name}={value}" for name, value in LOGIN.items()), "SASL needs sasl.username and sasl.password"),
    ],
)
def test_wrong_file_is_one_line_with_its_name_and_no_secret(text: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_text(text)
    with pytest.raises(ConfigError, match=words) as refused:
        read_settings(path)
    assert str(refused.value).startswith(str(path)) and "\n" not in str(refused.value)
    assert "secret" not in str(refused.value)


def test_file_that_cannot_be_read(tmp_path: Path) -> None:
    large = tmp_path / "large"
    large.write_bytes(b"#" * ((1 << 20) + 1))
    for path, words in ((tmp_path / "none", "No such file"), (tmp_path, "Is a directory"), (large, "larger than")):
        with pytest.raises(ConfigError, match=f"cannot read {path}: {words}"):
            read_settings(path)
