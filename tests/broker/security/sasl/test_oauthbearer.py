"""OAUTHBEARER: the exchange and unsecured tokens, by tables of Kafka's rules."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.broker.config.security.oauthbearer import UnsecuredSettings
from ottla.broker.security.sasl.mechanisms import SaslError
from ottla.broker.security.sasl.oauthbearer import (
    MESSAGE_BYTES_MAX,
    OAuthBearerExchange,
    TokenRefused,
    UnsecuredValidator,
)
from ottla.protocol.security.oauthbearer import (
    client_first,
    encoded,
    error_response,
    parse_client_first,
    unsecured_token,
)
from ottla_testing.each import each

NOW_MS = 1_700_000_000_000
NOW_S = NOW_MS // 1000
CLAIMS: dict[str, Any] = {"sub": "ann", "iat": NOW_S - 10, "exp": NOW_S + 60}
INVALID = '{"status":"invalid_token"}'


def validator(**settings: Any) -> UnsecuredValidator:
    return UnsecuredValidator(UnsecuredSettings(**settings))


def exchange(**settings: Any) -> OAuthBearerExchange:
    return OAuthBearerExchange(validator(**settings))


def first(token: str, head: str = "n,,", pairs: str = "") -> bytes:
    return f"{head}\x01auth=Bearer {token}\x01{pairs}\x01".encode()


# The exchange


@each(
    ("head", "pairs"),
    [("n,,", ""), ("n,a=ann,", ""), ("n,,", "one=1\x01Two=a b\t=\x01"), ("n,,", "one=1\x01one=2\x01")],
)
def test_token_proves_a_name(head: str, pairs: str) -> None:
    made = exchange()
    assert made.respond(first(unsecured_token(CLAIMS), head, pairs), NOW_MS) == b""
    assert (made.is_complete, made.user, made.expires_ms) == (True, "ann", (NOW_S + 60) * 1000)


@each(
    "message",
    [
        b"",
        b"\x01",
        b"n,,\x01\x01",
        b"n,,\x01auth=Bearer x\x01",
        b"y,,\x01auth=Bearer x\x01\x01",
        b"n,,\x01auth=Basic x\x01\x01",
        b"n,,\x01auth=Bearer\x01\x01",
        b"n,,\x01auth=Bearer x y\x01\x01",
        b"n,,\x01auth=Bearer \xff\x01\x01",
        b"n,a=x=y,\x01auth=Bearer x\x01\x01",
        b"n,,\x01one1=1\x01auth=Bearer x\x01\x01",
        b"n,,\x01one=\x01auth=Bearer x\x01\x01",
        b"n,,\x01auth=Bearer x\x01\x01\x01",
        first("x" * MESSAGE_BYTES_MAX),
    ],
)
def test_malformed_message_is_refused_without_a_text(message: bytes) -> None:
    with pytest.raises(SaslError, match=r"^$") as raised:
        exchange().respond(message, NOW_MS)
    assert raised.value.reason and "Bearer x" not in raised.value.reason


def test_scheme_has_no_case_and_several_spaces_may_follow() -> None:
    made = exchange()
    made.respond(f"n,,\x01auth=bEARER   {unsecured_token(CLAIMS)}\x01\x01".encode(), NOW_MS)
    assert made.user == "ann"


def test_refused_token_gets_an_error_that_the_client_confirms() -> None:
    made = exchange()
    assert made.respond(first("x.y.z"), NOW_MS) == INVALID.encode() and not made.is_complete
    with pytest.raises(SaslError) as raised:
        made.respond(b"\x01", NOW_MS)
    assert str(raised.value) == INVALID and raised.value.reason


def test_another_token_may_follow_a_refused_one() -> None:
    made = exchange()
    made.respond(first("x.y.z"), NOW_MS)
    assert made.respond(first(unsecured_token(CLAIMS)), NOW_MS) == b"" and made.user == "ann"
    with pytest.raises(SaslError, match=r"^$"):
        made.respond(b"\x01", NOW_MS)


def test_other_authorization_id_is_refused() -> None:
    with pytest.raises(SaslError) as raised:
        exchange().respond(first(unsecured_token(CLAIMS), "n,a=bob,"), NOW_MS)
    assert str(raised.value) == (
        "Authentication failed: Client requested an authorization id (bob) that is different from the token's "
        "principal name (ann)"
    )


def test_missing_scope_is_named_as_in_kafka() -> None:
    made = exchange(required_scope=("a", "b"))
    response = made.respond(first(unsecured_token({**CLAIMS, "scope": ["a"]})), NOW_MS)
    assert response == b'{"status":"insufficient_scope", "scope":"[a, b]"}'
    assert json.loads(response) == {"status": "insufficient_scope", "scope": "[a, b]"}


# Unsecured tokens


@each(
    ("claims", "settings"),
    [
        ({}, {}),
        ({"iat": None}, None),
        ({"iat": NOW_S}, {}),
        ({"iat": NOW_S + 1}, None),
        ({"iat": NOW_S + 1}, {"clock_skew_ms": 1000}),
        ({"iat": NOW_S + 1.001}, None),
        ({"iat": NOW_S + 1.001}, {"clock_skew_ms": 1001}),
        ({"iat": "1"}, None),
        ({"exp": NOW_S}, None),
        ({"exp": NOW_S + 0.001}, {}),
        ({"exp": NOW_S}, {"clock_skew_ms": 1}),
        ({"exp": NOW_S - 1}, {"clock_skew_ms": 1001}),
        ({"exp": NOW_S - 1.001}, None),
        ({"exp": 1e300}, {}),
        ({"exp": 10**400}, {}),
        ({"exp": -(10**400)}, None),
        ({"exp": True}, None),
        ({"exp": None}, None),
        ({"exp": str(NOW_S + 60)}, None),
        ({"exp": NOW_S + 5, "iat": NOW_S + 5}, None),
        ({"sub": ""}, None),
        ({"sub": " \t"}, None),
        ({"sub": 5}, None),
        ({"sub": ["ann"]}, None),
        ({"sub": {"a": 1}}, None),
        ({"sub": "\ud800"}, None),
        ({"sub": "ünïcode 名"}, {}),
        ({"scope": 5}, None),
        ({"scope": ["a", 1, None]}, {"required_scope": ("a", "1")}),
        ({"scope": " a "}, {"required_scope": ("a",)}),
        ({"scope": "a b"}, None),
        ({"other": "eve"}, {"principal_claim": "other"}),
        ({"roles": ["a"]}, {"required_scope": ("a",), "scope_claim": "roles"}),
    ],
)
def test_claims_of_unsecured_tokens(claims: dict[str, Any], settings: dict[str, Any] | None) -> None:
    token = unsecured_token({**CLAIMS, **claims})
    if settings is None:
        with pytest.raises(TokenRefused) as raised:
            validator(required_scope=("a",) if claims.get("scope") == "a b" else ()).validate(token, NOW_MS)
        scope = "[a]" if claims.get("scope") == "a b" else None
        assert raised.value.missing_scope == scope
    else:
        valid = validator(**settings).validate(token, NOW_MS)
        assert valid.principal == {**CLAIMS, **claims}[settings.get("principal_claim", "sub")]


@each(("expires_s", "expires_ms"), [(NOW_S + 1.0005, NOW_MS + 1001), (1e300, 2**63 - 1), (10**400, 2**63 - 1)])
def test_end_of_a_token_is_rounded_and_bounded(expires_s: float, expires_ms: int) -> None:
    assert validator().validate(unsecured_token({**CLAIMS, "exp": expires_s}), NOW_MS).expires_ms == expires_ms


@each("name", ["sub", "exp"])
def test_claim_that_is_missing_is_refused(name: str) -> None:
    with pytest.raises(TokenRefused):
        validator().validate(unsecured_token({key: value for key, value in CLAIMS.items() if key != name}), NOW_MS)


def test_time_of_issue_may_be_missing() -> None:
    assert validator().validate(unsecured_token({"sub": "a", "exp": NOW_S + 1}), NOW_MS).principal == "a"


def raw(header: str, claims: str = json.dumps(CLAIMS), signature: str = "") -> str:
    return f"{encoded(header.encode())}.{encoded(claims.encode())}.{signature}"


@each(
    "token",
    [
        raw('{"alg":"none"}', signature="eA"),
        raw('{"alg":"None"}'),
        raw('{"alg":"HS256"}'),
        raw('{"typ":"JWT"}'),
        raw('["none"]'),
        raw("null"),
        raw("{"),
        raw('{"alg":"none"}', "[]"),
        raw('{"alg":"none"}', "NaN"),
        raw('{"alg":"none"}', '{"sub":"a","exp":NaN}'),
        raw('{"alg":"none"}', '{"sub":"a","exp":Infinity}'),
        raw('{"alg":"none"}', '{"exp":' + "[" * 50_000),
        "a.b",
        "..",
        "x..",
        raw('{"alg":"none"}') + ".",
        raw('{"alg":"none"}').replace(".", "==.", 1),
        "e.e.",
    ],
)
def test_token_that_is_not_unsecured_is_refused(token: str) -> None:
    with pytest.raises(TokenRefused) as raised:
        validator().validate(token, NOW_MS)
    assert raised.value.response == INVALID


def test_text_after_the_claims_is_ignored() -> None:
    assert (
        validator().validate(raw('{"alg":"none"} x', json.dumps(CLAIMS) + ' {"sub":"eve"}'), NOW_MS).principal == "ann"
    )


def test_padding_is_accepted() -> None:
    header, claims, _ = unsecured_token(CLAIMS).split(".")
    padded = [part + "=" * (-len(part) % 4) for part in (header, claims)]
    assert validator().validate(".".join([*padded, ""]), NOW_MS).principal == "ann"


# Damage


@given(st.data())
def test_damaged_message_raises_nothing_else(data: st.DataObject) -> None:
    whole = bytearray(first(unsecured_token({**CLAIMS, "scope": ["a", "b"]}), pairs="x=y\x01"))
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(whole) - 1))
        change = data.draw(st.sampled_from(["set", "cut", "add"]))
        if change == "set":
            whole[place] = data.draw(st.integers(0, 255))
        elif change == "cut":
            del whole[place : place + data.draw(st.integers(1, 20))]
            whole = whole or bytearray(b"n")
        else:
            whole[place:place] = data.draw(st.binary(max_size=8))
    made = exchange()
    try:
        reply = made.respond(bytes(whole), NOW_MS)
    except SaslError:
        return
    assert (reply == b"") == made.is_complete
    assert reply in (b"", INVALID.encode())


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)


@given(st.dictionaries(st.sampled_from(["sub", "exp", "iat", "scope", "nbf", "alg"]), json_values))
def test_any_claims_are_accepted_or_refused(claims: dict[str, Any]) -> None:
    payload = json.dumps(claims).replace("Infinity", "1e999")
    try:
        valid = validator().validate(raw('{"alg":"none"}', payload), NOW_MS)
    except TokenRefused:
        return
    assert valid.principal.strip() and NOW_MS < valid.expires_ms < 2**63


# Both sides


@given(
    token=st.from_regex(r"[-_~+/.a-zA-Z0-9]+=*", fullmatch=True),
    extensions=st.dictionaries(
        st.from_regex(r"[A-Za-z]+", fullmatch=True).filter(lambda name: name != "auth"),
        st.text(alphabet=[*map(chr, range(0x21, 0x7F)), " ", "\t", "\r", "\n"], min_size=1),
        max_size=3,
    ),
)
def test_message_of_a_client_is_read_as_it_was_made(token: str, extensions: dict[str, str]) -> None:
    assert parse_client_first(client_first(token, extensions)) == (token, "", extensions)


@each(
    ("token", "extensions"),
    [
        ("", {}),
        ("a b", {}),
        ("a\x01", {}),
        ("a", {"auth": "x"}),
        ("a", {"x1": "y"}),
        ("a", {"x": ""}),
        ("a", {"": "y"}),
    ],
)
def test_message_that_cannot_be_made(token: str, extensions: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=r"token|extension"):
        client_first(token, extensions)


def test_error_response() -> None:
    assert error_response("invalid_token") == INVALID
