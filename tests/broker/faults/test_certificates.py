"""Certificates that clients have to refuse: what is wrong with them, for which connections, and for how long."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from typing import Any

import pytest

from ottla.broker import Embedded
from ottla_testing.each import each
from ottla_testing.patience import PATIENCE_S

WRONG = {
    "expired": "certificate has expired",
    "wrong_host": "IP address mismatch, certificate is not valid for '127.0.0.1'",
    "untrusted": "unable to get local issuer certificate",
}


@pytest.fixture(scope="module")
def brokers() -> Iterator[dict[str, Embedded]]:
    found = {word: Embedded(security=word, brokers=2).start() for word in ("ssl", "mtls", "sasl_ssl", "oauth_ssl")}
    yield found
    for broker in found.values():
        broker.stop()


def connect(broker: Embedded, node: int = 0) -> str:
    """Returns why a client refuses the broker's certificate; nothing if it accepts it."""
    context: Any = broker.client_settings("aiokafka")["ssl_context"]
    host, _, port = broker.bootstrap.split(",")[node].rpartition(":")
    with socket.create_connection((host, int(port)), PATIENCE_S) as raw:
        try:
            with context.wrap_socket(raw, server_hostname=host):
                return ""
        except ssl.SSLCertVerificationError as error:
            return error.verify_message


@each("word", ["ssl", "mtls", "sasl_ssl", "oauth_ssl"])
@each("certificate", list(WRONG))
def test_client_refuses_the_certificate(word: str, certificate: str, brokers: dict[str, Embedded]) -> None:
    broker = brokers[word]
    with broker.faults.bad_certificate(certificate) as fault:
        assert [WRONG[certificate] in connect(broker) for _ in range(2)] == [True, True]
        assert (fault.matched, fault.fired) == (2, 2)
    assert connect(broker) == ""


def test_rule_counts_connections_and_has_conditions(brokers: dict[str, Embedded]) -> None:
    broker = brokers["ssl"]
    with broker.faults.bad_certificate("expired", node=2, after=1, times=1) as fault:
        found = [bool(connect(broker, node)) for node in (0, 1, 0, 1, 1)]
        assert found == [False, False, False, True, False]
        assert (fault.matched, fault.fired) == (3, 1)
    with broker.faults.bad_certificate("untrusted", listener="SSL", nth=2):
        assert [bool(connect(broker)) for _ in range(3)] == [False, True, False]
    with broker.faults.bad_certificate("expired"), broker.faults.bad_certificate("untrusted") as second:
        assert "expired" in connect(broker) and second.matched == 0  # the older rule applies


def test_rule_stays_in_force_over_a_reset_of_the_data(brokers: dict[str, Embedded]) -> None:
    broker = brokers["ssl"]
    snapshot = broker.snapshot()
    with broker.faults.bad_certificate("wrong_host", times=1) as fault:
        broker.restore(snapshot)
        assert "mismatch" in connect(broker) and fault.fired == 1
        assert connect(broker) == ""


@each("word", ["plaintext", "sasl_plaintext"])
def test_broker_without_certificates_refuses_the_rule(word: str) -> None:
    with Embedded(security=word) as broker:
        with pytest.raises(
            ValueError, match="bad_certificate needs a broker with the security ssl, mtls, sasl_ssl or oauth_ssl"
        ):
            broker.faults.bad_certificate("expired")
        assert broker.faults.list() == []


def test_certificates_differ_in_the_fault_alone(brokers: dict[str, Embedded]) -> None:
    from cryptography import x509

    security = brokers["ssl"]._thread.security
    good = x509.load_pem_x509_certificate(security.issue(security.names).chain.encode())
    bad = {kind: x509.load_pem_x509_certificate(security.bad_certificate(kind)[0].encode()) for kind in WRONG}
    names = {
        kind: one.extensions.get_extension_for_class(x509.SubjectAlternativeName).value for kind, one in bad.items()
    }
    own = good.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert {kind: names[kind] == own for kind in WRONG} == {"expired": True, "wrong_host": False, "untrusted": True}
    assert {kind: bad[kind].not_valid_after_utc == good.not_valid_after_utc for kind in WRONG} == {
        "expired": False, "wrong_host": True, "untrusted": True
    }  # fmt: skip
    authority = x509.load_pem_x509_certificate(str(security.authority and security.authority.chain).encode())
    for kind in ("expired", "wrong_host"):
        bad[kind].verify_directly_issued_by(authority)
