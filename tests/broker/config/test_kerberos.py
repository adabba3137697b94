"""The settings of GSSAPI of a listener, and the rules that make users of Kerberos principals (KerberosShortNamer)."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from ottla.broker.config.security.kerberos import DEFAULT, KerberosSettings, LocalNames, NoName
from ottla.broker.config.security.sasl import sasl_settings
from ottla.broker.config.values import Config
from ottla.broker.errors import ConfigError
from ottla.protocol.security.kerberos import LOGIN_MODULE
from ottla_testing.each import each
from ottla_testing.fake_gssapi import Kerberos

OPTIONS = 'useKeyTab=true storeKey=true keyTab="/keytab" principal="kafka/localhost"'
SERVICE = {"sasl.kerberos.service.name": "kafka"}


def settings(options: str = OPTIONS, module: str = LOGIN_MODULE, **configs: Any) -> KerberosSettings | None:
    jaas = {"listener.name.a.gssapi.sasl.jaas.config": f"{module} required {options};"}
    return sasl_settings(Config.load(overrides=jaas | configs), "A").kerberos


@pytest.fixture
def kerberos(monkeypatch: pytest.MonkeyPatch) -> Kerberos:
    world = Kerberos()
    monkeypatch.setitem(sys.modules, "gssapi", world.module)
    return world


@pytest.mark.usefixtures("kerberos")
def test_settings_are_those_of_the_login_module_and_the_listener() -> None:
    assert settings(**SERVICE) == KerberosSettings("kafka/localhost", "/keytab", (DEFAULT,))
    rules = {"listener.name.a.sasl.kerberos.principal.to.local.rules": "RULE:[1:$1]/L, DEFAULT"}
    of_listener = {"listener.name.a.sasl.kerberos.service.name": "kafka"}
    found = settings(OPTIONS.replace('keyTab="/keytab"', "serviceName=kafka"), **rules, **of_listener)
    assert found == KerberosSettings("kafka/localhost", None, ("RULE:[1:$1]/L", DEFAULT))


@pytest.mark.usefixtures("kerberos")
@each(
    ("options", "configs", "problem"),
    [
        (OPTIONS, {}, "No serviceName defined in either JAAS or Kafka config"),
        (
            f"{OPTIONS} serviceName=other",
            SERVICE,
            "Conflicting serviceName values found in JAAS and Kafka configs value in JAAS file other, value in Kafka",
        ),
        (OPTIONS.replace("useKeyTab=true", ""), SERVICE, "the login module needs useKeyTab=true"),
        (OPTIONS.replace("storeKey=true", "storeKey=yes"), SERVICE, "the login module needs storeKey=true"),
        (OPTIONS.partition(" principal")[0], SERVICE, "the login module needs the broker's principal"),
        (OPTIONS, {**SERVICE, "sasl.kerberos.principal.to.local.rules": "RULE"}, "Invalid rule: RULE"),
    ],
)
def test_settings_that_cannot_be_served_are_refused(options: str, configs: dict[str, str], problem: str) -> None:
    with pytest.raises(ConfigError) as raised:
        settings(options, **configs)
    assert problem in str(raised.value) and "\n" not in str(raised.value)


def test_another_login_module_is_refused() -> None:
    with pytest.raises(ConfigError, match=f"the login module of SASL/GSSAPI is {LOGIN_MODULE}"):
        settings(module="com.ibm.security.auth.module.Krb5LoginModule", **SERVICE)


def test_broker_without_the_library_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gssapi", None)
    with pytest.raises(ConfigError) as raised:
        settings(**SERVICE)
    assert str(raised.value).endswith("GSSAPI needs gssapi: pip install 'ottla[kerberos]'")


# Rules


@each(
    ("rules", "principal", "user"),
    [
        ("DEFAULT", "App.service-name/example.com@REALM", "App.service-name"),
        ("DEFAULT", "App.service-name@REALM", "App.service-name"),
        ("DEFAULT", "ann", "ann"),
        ("DEFAULT", "ann@OTHER", None),
        ("DEFAULT", "a/b/c@REALM", None),
        ("DEFAULT", "a@b@REALM", None),
        ("RULE:[1:$1](App\\..*)s/App\\.(.*)/$1/g", "App.service-name@OTHER", "service-name"),
        ("RULE:[2:$1](App\\..*)s/App\\.(.*)/$1/g", "App.service-name/host@OTHER", "service-name"),
        ("RULE:[2:$1](App\\..*)s/App\\.(.*)/$1/g, DEFAULT", "App.service-name@REALM", "App.service-name"),
        ("RULE:[1:$1](App)s/p/q/", "xApp@REALM", None),  # the whole text must match
        ("RULE:[1:$1]s/p/q/", "apple-pie@X", "aqple-pie"),
        ("RULE:[1:$1]s/p/q/g", "apple-pie@X", "aqqle-qie"),
        ("RULE:[1:$1]s/(a)(b)?/$2-$1$3/", "ac@X", "-a$3c"),
        ("RULE:[1:$1]/L", "AnN@X", "ann"),
        ("RULE:[1:$1]/U", "ann@X", "ANN"),
        ("RULE:[1:$1]s/n/m/g/U", "ann@X", "AMM"),
        ("RULE:[2:$1;$2]", "kafka/host1@X", "kafka;host1"),
        ("RULE:[1:$1-$0]", "ann@X", "ann-X"),
        ("RULE:[1:$1@$0](.*@X)s/@.*//", "ann@X", "ann"),
        ("RULE:[1:$1@$0]", "ann@X", None),  # not simple
        ("RULE:[1:$2], DEFAULT", "ann@REALM", None),  # no such part: no other rule is tried
        ("RULE:[1:$], DEFAULT", "ann@REALM", None),
        ("RULE:[1:fixed]", "ann@X", "fixed"),
        ("RULE:[1:$1]s/^//", "ännä@X", "ännä"),
        ("RULE:[1:$1]s/x*/-/g", "äx@X", "-ä--"),
        ("RULE:[2:$1]", "ann@REALM", None),
    ],
)
def test_user_of_a_principal(rules: str, principal: str, user: str | None) -> None:
    names = LocalNames([rule.strip() for rule in rules.split(",")], "REALM")
    if user is None:
        with pytest.raises(NoName):
            names.user(principal)
    else:
        assert names.user(principal) == user


@each(
    ("rule", "problem"),
    [
        ("", "Invalid rule: "),
        ("default", "Invalid rule: default"),
        ("DEFAULT/L", "Invalid rule: `DEFAULT/L`, unmatched substring: `/L`"),
        ("RULE:[1:$1](x", "Invalid rule: `RULE:[1:$1](x`, unmatched substring: `(x`"),
        ("RULE:[1:$1]/l", "unmatched substring: `l`"),
        ("RULE:[1:$1]s/a/b", "unmatched substring"),
        ("RULE:[:$1]", "it needs a number of components"),
        ("RULE:[99999999999:$1]", "it needs a number of components"),
        ("RULE:[1:$1](*)", "Invalid rule: `RULE:[1:$1](*)`, "),
        ("RULE:[1:$1]s/[/b/", "Invalid rule: "),
    ],
)
def test_malformed_rule_is_refused(rule: str, problem: str) -> None:
    with pytest.raises(ConfigError) as raised:
        LocalNames([rule], "")
    assert problem in str(raised.value) and "\n" not in str(raised.value)


def test_long_name_has_no_user_and_is_cut_in_the_log() -> None:
    with pytest.raises(NoName) as raised:
        LocalNames([DEFAULT], "R").user("a" * 100_000 + "@R")
    assert len(str(raised.value)) < 5000
