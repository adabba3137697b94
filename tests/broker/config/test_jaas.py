"""Login modules as in `sasl.jaas.config`, and the SASL settings of a listener."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.broker.config.security.sasl import sasl_settings
from ottla.broker.config.values import Config
from ottla.broker.errors import ConfigError
from ottla.broker.releases.profiles import profile
from ottla.protocol.security.jaas import LoginModule, format_jaas, parse_jaas, parse_jaas_file
from ottla_testing.each import each

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


@each(
    ("text", "options"),
    [
        (f"{PLAIN} required;", {}),
        (f'{PLAIN} required username="a" password="b";', {"username": "a", "password": "b"}),
        (f"{PLAIN} Required user_x='it''s';", None),
        (f"{PLAIN} required a=b c = 'd e';", {"a": "b", "c": "d e"}),
        (
            f'{PLAIN}\n  optional // all users\n  user_a="1;2" /* and \n more */ user_b="=";',
            {"user_a": "1;2", "user_b": "="},
        ),
        (rf'{PLAIN} required p="a \"x\" \\ \t";', {"p": 'a "x" \\ \t'}),
    ],
)
def test_login_module(text: str, options: dict[str, str] | None) -> None:
    if options is None:
        with pytest.raises(ValueError, match="JAAS"):
            parse_jaas(text)
    else:
        assert parse_jaas(text) == (PLAIN, options)


@each(
    ("text", "problem"),
    [
        ("", "Login module not specified in JAAS config"),
        ("x", "Login module control flag not specified in JAAS config"),
        ("x;", "Login module control flag not specified in JAAS config"),
        ("x never;", "Invalid login module control flag 'never' in JAAS config"),
        ("x required a;", "Value not specified for key 'a' in JAAS config"),
        ("x required a=;", "Value not specified for key 'a' in JAAS config"),
        ("x required a=b", "JAAS config entry not terminated by semi-colon"),
        ("x required; y required;", "JAAS config property contains more than one login module, should be 1 module"),
        ('x required p="secret', "the JAAS config has an unexpected character at position 13"),
    ],
)
def test_malformed_login_module_is_named_without_its_values(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match="JAAS") as raised:
        parse_jaas(text)
    assert str(raised.value) == problem


FILE = f"""
// logins of the broker
KafkaServer {{
  {PLAIN} required username="admin" user_admin="a;}} \\"1\\"";
  org.apache.kafka.common.security.scram.ScramLoginModule optional;
}};
"sasl.KafkaServer" {{ }}; KafkaClient {{ x required a=b; }};
"""


def test_file_of_login_modules() -> None:
    found = parse_jaas_file(FILE)
    assert list(found) == ["KafkaServer", "sasl.KafkaServer", "KafkaClient"]
    plain, scram = found["KafkaServer"]
    assert plain == (PLAIN, {"username": "admin", "user_admin": 'a;} "1"'}) and scram.options == {}
    assert found["sasl.KafkaServer"] == [] and found["KafkaClient"] == [("x", {"a": "b"})]
    assert parse_jaas_file("") == {}


@given(st.dictionaries(st.text(min_size=1), st.text()))
def test_written_login_module_is_read_back(options: dict[str, str]) -> None:
    assert parse_jaas(format_jaas(LoginModule("x.Y", options))) == ("x.Y", options)


@each(
    ("text", "problem"),
    [
        ("{ x required; };", "does not begin with its name"),
        ("A x required;", "does not begin with its name"),
        ("A { x required a=b; }", "the section 'A' of the JAAS file does not end with };"),
        ("A { x required a=b;", "the section 'A' of the JAAS file does not end with };"),
        ("A { x required a=}; };", "Value not specified for key 'a' in JAAS config"),
        ("A { x required a=secret", "not terminated by semi-colon"),
        ("A {", "does not end with };"),
        ('A { x required a="secret', "the JAAS file has an unexpected character at position 17"),
    ],
)
def test_malformed_file_of_login_modules_is_refused(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match="JAAS") as raised:
        parse_jaas_file(text)
    assert problem in str(raised.value) and "secret" not in str(raised.value)


def loaded(release: str = "ottla", **configs: str) -> Config:
    return Config.load(
        overrides={name.replace("_", "."): text for name, text in configs.items()}, profile=profile(release)
    )


JAAS = {"listener_name_a_plain_sasl_jaas_config": f'{PLAIN} required username="x" password="y" user_u="p" user_v="q";'}


def test_settings_of_a_listener_go_before_those_of_all() -> None:
    config = loaded(
        **JAAS,
        sasl_enabled_mechanisms="SCRAM-SHA-512",
        listener_name_a_sasl_enabled_mechanisms="PLAIN,SCRAM-SHA-256",
        connections_max_reauth_ms="5",
        listener_name_a_connections_max_reauth_ms="6",
        **{"listener_name_a_scram-sha-256_connections_max_reauth_ms": "7"},
        listener_name_a_sasl_server_max_receive_size="1000",
        connection_failed_authentication_delay_ms="9",
    )
    found = sasl_settings(config, "A")
    assert found.mechanisms == ("PLAIN", "SCRAM-SHA-256") and found.passwords == {"u": "p", "v": "q"}
    assert found.lifetimes_ms == {"PLAIN": 6, "SCRAM-SHA-256": 7}
    assert (found.failure_delay_ms, found.receive_bytes_max) == (9, 1000)
    assert "p" not in repr(found).replace("passwords", "").replace("repr", "").split("mechanisms")[0]
    other = sasl_settings(config, "B")
    assert (other.mechanisms, dict(other.passwords)) == (("SCRAM-SHA-512",), {})
    assert other.lifetimes_ms == {"SCRAM-SHA-512": 5} and other.receive_bytes_max == 524_288


@each(
    ("configs", "problem"),
    [
        (
            {},
            "listener.name.a.gssapi.sasl.jaas.config is not set: GSSAPI, which sasl.enabled.mechanisms has",
        ),
        ({"sasl_enabled_mechanisms": "GSS"}, "the SASL mechanism GSS is not served, but GSSAPI, PLAIN, SCRAM-SHA-256"),
        ({"sasl_enabled_mechanisms": ""}, "sasl.enabled.mechanisms"),
        ({"sasl_enabled_mechanisms": "PLAIN"}, "listener.name.a.plain.sasl.jaas.config is not set"),
        (
            {"sasl_enabled_mechanisms": "PLAIN", "listener_name_a_plain_sasl_jaas_config": "x required;"},
            f"the login module of SASL/PLAIN is {PLAIN}",
        ),
    ],
)
def test_settings_that_cannot_be_served_are_refused(configs: dict[str, str], problem: str) -> None:
    with pytest.raises(ConfigError) as raised:
        sasl_settings(loaded(**configs), "A")
    assert problem in str(raised.value) and "\n" not in str(raised.value)


HANDLER = "org.apache.kafka.common.security.plain.internals.PlainServerCallbackHandler"


@each("mechanism", ["PLAIN", "SCRAM-SHA-512", "GSSAPI"])
def test_callback_handler_in_java_is_refused(mechanism: str) -> None:
    """Those of a mechanism that is not enabled, and without a prefix, have no effect."""
    configs = JAAS | {"sasl_server_callback_handler_class": "com.x.Ldap"}
    configs |= {"sasl_enabled_mechanisms": f"PLAIN,{mechanism}"}
    name = f"listener_name_a_{mechanism.lower()}_sasl_server_callback_handler_class"
    with pytest.raises(ConfigError, match=r"handler\.class: the class 'com\.x\.Ldap' is not known"):
        sasl_settings(loaded(**configs, **{name: "com.x.Ldap"}), "A")
    other = {"listener_name_a_scram-sha-256_sasl_server_callback_handler_class": "com.x.Ldap"}
    own = {"listener_name_a_plain_sasl_server_callback_handler_class": HANDLER}
    plain = configs | {"sasl_enabled_mechanisms": "PLAIN"}
    assert sasl_settings(loaded(**plain, **other, **own), "A").passwords == {"u": "p", "v": "q"}


def test_release_before_0_9_has_no_login() -> None:
    with pytest.raises(ConfigError, match=r"listener A: a release before 0\.9 has no SASL"):
        sasl_settings(loaded("0.8.2"), "A")


@each("release", ["0.10.0", "2.0", "2.1", "3.9", "4.4"])
def test_failures_are_delayed_since_2_1(release: str) -> None:
    found = sasl_settings(loaded(release, **JAAS, sasl_enabled_mechanisms="PLAIN"), "A")
    assert found.failure_delay_ms == (0 if release in ("0.10.0", "2.0") else 100)
    assert found.receive_bytes_max == 524_288
