"""The settings of OAUTHBEARER of a listener: which validator the names of Kafka's classes select, and its rules."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest

from ottla.broker.config.security.oauthbearer import SignedSettings, UnsecuredSettings
from ottla.broker.config.security.sasl import sasl_settings
from ottla.broker.config.values import Config
from ottla.broker.errors import ConfigError
from ottla.broker.releases.profiles import profile
from ottla.protocol.security.oauthbearer import LOGIN_MODULE
from ottla_testing.each import each

PACKAGE = "org.apache.kafka.common.security.oauthbearer"
HANDLER = "listener.name.a.oauthbearer.sasl.server.callback.handler.class"
SIGNED = {
    HANDLER: f"{PACKAGE}.OAuthBearerValidatorCallbackHandler",
    "sasl.oauthbearer.jwks.endpoint.url": "file:/keys.json",
}
UNVERIFIED = {
    "sasl.oauthbearer.allow.unverified.audience": "true",
    "sasl.oauthbearer.allow.unverified.issuer": "true",
}


def settings(configs: dict[str, str], release: str = "ottla") -> Any:
    whole = {"sasl.enabled.mechanisms": "OAUTHBEARER", **configs}
    return sasl_settings(Config.load(overrides=whole, profile=profile(release)), "A").oauthbearer


def jaas(options: str) -> dict[str, str]:
    return {"listener.name.a.oauthbearer.sasl.jaas.config": f"{LOGIN_MODULE} required {options};"}


@each(
    ("configs", "expected"),
    [
        ({}, UnsecuredSettings()),
        (jaas(""), UnsecuredSettings()),
        (
            jaas(
                'unsecuredValidatorPrincipalClaimName=" user " unsecuredValidatorScopeClaimName="roles" '
                'unsecuredValidatorRequiredScope=" a  b " unsecuredValidatorAllowableClockSkewMs="3000" '
                'unsecuredLoginStringClaim_sub="x"'
            ),
            UnsecuredSettings("user", "roles", ("a", "b"), 3000),
        ),
        (
            {HANDLER: f"{PACKAGE}.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"},
            UnsecuredSettings(),
        ),
        ({"sasl.server.callback.handler.class": SIGNED[HANDLER]}, UnsecuredSettings()),
    ],
)
def test_unsecured_tokens_are_the_default(configs: dict[str, str], expected: UnsecuredSettings) -> None:
    """A class without the prefix of listener and mechanism has no effect, as in Kafka."""
    assert settings(configs) == expected


@each("package", ["", ".secured"])
@each("validator", ["", "Default", "Broker"])
def test_classes_of_signed_tokens(package: str, validator: str) -> None:
    configs = SIGNED | UNVERIFIED | {HANDLER: f"{PACKAGE}{package}.OAuthBearerValidatorCallbackHandler"}
    if validator:
        configs["sasl.oauthbearer.jwt.validator.class"] = f"{PACKAGE}.{validator}JwtValidator"
    found = settings(configs)
    assert isinstance(found, SignedSettings) and found.keys_url == "file:/keys.json"
    assert (found.refresh_ms, found.retry_backoff_ms, found.retry_backoff_max_ms) == (3_600_000, 100, 10_000)
    assert (found.clock_skew_s, found.audiences, found.issuer) == (30, (), None)
    assert (found.scope_claim, found.sub_claim) == ("scope", "sub")


def test_trust_store_is_that_of_the_login_module() -> None:
    options = 'ssl.truststore.location="/ca.p12" ssl.truststore.type="PKCS12" ssl.truststore.password="secret" x="y"'
    found = settings(SIGNED | UNVERIFIED | jaas(options))
    assert dict(found.trust) == {
        "ssl.truststore.location": "/ca.p12",
        "ssl.truststore.type": "PKCS12",
        "ssl.truststore.password": "secret",
    }
    assert "secret" not in repr(found)


def test_mechanism_goes_before_listener_and_broker() -> None:
    found = settings(
        SIGNED
        | {
            "sasl.oauthbearer.expected.audience": "all",
            "listener.name.a.sasl.oauthbearer.expected.audience": "one, two",
            "sasl.oauthbearer.expected.issuer": "all",
            "listener.name.a.sasl.oauthbearer.expected.issuer": "listener",
            "listener.name.a.oauthbearer.sasl.oauthbearer.expected.issuer": "mechanism",
            "listener.name.a.sasl.oauthbearer.sub.claim.name": "client_id",
            "sasl.oauthbearer.clock.skew.seconds": "5",
            "listener.name.b.sasl.oauthbearer.clock.skew.seconds": "6",
        }
    )
    assert (found.audiences, found.issuer, found.sub_claim) == (("one", "two"), "mechanism", "client_id")
    assert found.clock_skew_s == 5


@each(
    ("configs", "problem"),
    [
        (
            jaas('unsecuredValidatorAllowableClockSkewMs="-1"'),
            "unsecuredValidatorAllowableClockSkewMs must be a number",
        ),
        (jaas('unsecuredValidatorAllowableClockSkewMs="x"'), "unsecuredValidatorAllowableClockSkewMs must be a number"),
        (jaas("unsecuredValidatorRequiredScope='a\"b'"), "unsecuredValidatorRequiredScope: a scope has"),
        (
            {"listener.name.a.oauthbearer.sasl.jaas.config": "x.PlainLoginModule required;"},
            f"the login module of SASL/OAUTHBEARER is {LOGIN_MODULE}",
        ),
        ({HANDLER: "com.example.Mine"}, "the class 'com.example.Mine' is not known"),
        (SIGNED | {"sasl.oauthbearer.jwt.validator.class": "com.example.Mine"}, "'com.example.Mine' is not known"),
        (
            SIGNED | {"sasl.oauthbearer.jwt.validator.class": f"{PACKAGE}.ClientJwtValidator"},
            "ClientJwtValidator' is not known",
        ),
        ({HANDLER: SIGNED[HANDLER]}, "sasl.oauthbearer.jwks.endpoint.url is not set"),
        *(
            (SIGNED | {"sasl.oauthbearer.jwks.endpoint.url": url}, "expected a URL with http, https or file")
            for url in (
                "/keys",
                "ftp://host/keys",
                "file:keys",
                "file://host/keys",
                "http://",
                "http://[x",
                "http://h:0/",
            )
        ),
        (
            SIGNED
            | {
                "sasl.oauthbearer.jwks.endpoint.url": "http://h/",
                "sasl.oauthbearer.jwks.endpoint.refresh.ms": "0",
            },
            "refresh.ms must be positive",
        ),
        (SIGNED | {"sasl.oauthbearer.jwks.endpoint.retry.backoff.ms": "20000"}, "retry.backoff.ms must be from 0"),
    ],
)
def test_settings_that_cannot_be_served_are_refused(configs: dict[str, str], problem: str) -> None:
    with pytest.raises(ConfigError) as raised:
        settings(UNVERIFIED | configs)
    assert problem in str(raised.value) and "\n" not in str(raised.value)


@each("what", ["audience", "issuer"])
def test_4_4_and_later_need_audience_and_issuer(what: str) -> None:
    configs = SIGNED | UNVERIFIED | {f"sasl.oauthbearer.allow.unverified.{what}": "false"}
    with pytest.raises(ConfigError, match=rf"expected\.{what} is not set: .*allow\.unverified\.{what}=true"):
        settings(configs)
    assert settings(configs | {f"sasl.oauthbearer.expected.{what}": "x"})
    assert settings(SIGNED, "4.3").any_audience is False and settings(SIGNED | UNVERIFIED).any_audience is True


def test_signed_tokens_need_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"need PyJWT: pip install 'ottla\[security\]'"):
        settings(SIGNED | UNVERIFIED)
    assert settings({}) == UnsecuredSettings()


@each("release", ["2.0", "2.8", "3.0", "3.1", "3.9", "4.0", "4.3", "4.4"])
def test_settings_of_every_release(release: str) -> None:
    assert settings({}, release) == UnsecuredSettings()
