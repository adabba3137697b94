"""Signed tokens: each algorithm, confusion of algorithms, keys that do not fit, and the claims by a table."""

from __future__ import annotations

import base64
import contextlib
import json
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given
from hypothesis import strategies as st
from jwt.algorithms import RSAAlgorithm

from ottla.broker.config.security.oauthbearer import SignedSettings
from ottla.broker.security.sasl.key_sets import Key, KeyFile, KeySet
from ottla.broker.security.sasl.oauthbearer import TokenRefused
from ottla.broker.security.sasl.signed_tokens import SignedValidator
from ottla.protocol.security.oauthbearer import decoded, encoded
from ottla_testing.each import each
from ottla_testing.protocol.tokens import Signer, key_set, public, signer

NOW_MS = 1_700_000_000_500
NOW_S = NOW_MS // 1000
CLAIMS: dict[str, Any] = {"sub": "ann", "iat": NOW_S - 10, "exp": NOW_S + 60}
ALGORITHMS = (
    "RS256",
    "RS384",
    "RS512",
    "PS256",
    "PS384",
    "PS512",
    "ES256",
    "ES384",
    "ES512",
    "EdDSA",
    "HS256",
    "HS512",
)
RSA = "RS256"


class Fixed(KeyFile):
    """Keys that do not change."""

    def __init__(self, data: bytes) -> None:
        super().__init__("")
        self.set = KeySet(data)

    def find(self, key_id: str | None, algorithm: str) -> Key | None:
        return self.set.find(key_id, algorithm)


def settings(**changed: Any) -> SignedSettings:
    values: dict[str, Any] = {
        "keys_url": "file:/x",
        "refresh_ms": 1000,
        "retry_backoff_ms": 10,
        "retry_backoff_max_ms": 100,
        "clock_skew_s": 0,
        "audiences": (),
        "issuer": None,
        "scope_claim": "scope",
        "sub_claim": "sub",
    }
    return SignedSettings(**values | changed)


def validator(*keys: dict[str, Any], **changed: Any) -> SignedValidator:
    return SignedValidator(settings(**changed), Fixed(key_set(*(keys or (public(signer(RSA)),)))))


def refused(made: SignedValidator, token: str) -> str:
    with pytest.raises(TokenRefused) as raised:
        made.validate(token, NOW_MS)
    assert raised.value.response == '{"status":"invalid_token"}'
    return str(raised.value)


# Signatures


@each("algorithm", ALGORITHMS)
def test_signature_of_each_algorithm(algorithm: str) -> None:
    mine, other = signer(algorithm), signer(algorithm, 2)
    made = validator(public(mine))
    valid = made.validate(mine.token(CLAIMS), NOW_MS)
    assert valid == ("ann", (NOW_S + 60) * 1000)
    assert refused(made, other.token(CLAIMS)) == "the signature of the token is wrong"


@each("algorithm", ["RS256", "ES256", "EdDSA"])
def test_none_and_hmac_by_a_public_key_are_refused(algorithm: str) -> None:
    """CVE-2015-9235 and its kind: the token chooses an algorithm for which the key is no secret."""
    mine = signer(algorithm)
    made = validator(public(mine))
    payload = encoded(json.dumps(CLAIMS).encode())
    numbers = mine.key.public_key()
    pem = numbers.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    for name in ("none", "None", "NONE", "", "HS256", "HS384", "HS512"):
        for key_id in ({"kid": "one"}, {}):
            head = encoded(json.dumps({"alg": name, **key_id}).encode())
            for secret in (pem, pem.strip(), json.dumps(mine.public).encode()):
                signature = ""
                if name.startswith("HS"):
                    made_by = jwt.get_algorithm_by_name(name)
                    signature = encoded(made_by.sign(f"{head}.{payload}".encode(), secret))
                assert "no key" in refused(made, f"{head}.{payload}.{signature}") or not signature


def test_key_is_used_for_its_own_algorithms_alone() -> None:
    mine = signer(RSA)
    token = Signer(mine.key, "RS512", mine.public).token(CLAIMS)
    assert validator(public(mine)).validate(token, NOW_MS).principal == "ann"
    assert "no key" in refused(validator(public(mine, alg="RS256")), token)
    assert "no key" in refused(validator(public(signer("ES384"))), signer("ES256").token(CLAIMS))


@each("more", [{"use": "enc"}, {"key_ops": ["encrypt"]}, {"kty": "RSA2"}, {"n": None}, {"kid": 7}, {"n": 5}])
def test_key_that_is_not_for_signatures_is_not_used(more: dict[str, Any]) -> None:
    mine = signer(RSA)
    assert "no key" in refused(validator({**public(mine), **more}), mine.token(CLAIMS))
    assert validator({**public(mine), **more}, public(mine)).validate(mine.token(CLAIMS), NOW_MS)


@each("key", [{"n": "AAAA"}, {"e": "AA"}, {"n": "!"}, {"crv": "P-256", "kty": "EC", "x": "AAAA", "y": "AAAA"}])
def test_damaged_key_refuses_the_token(key: dict[str, Any]) -> None:
    mine = signer("ES256" if "crv" in key else RSA)
    refused(validator({**public(mine), **key}), mine.token(CLAIMS))


def test_weak_keys_are_refused() -> None:
    key = rsa.generate_private_key(65_537, 1024)
    weak = Signer(key, RSA, RSAAlgorithm.to_jwk(key.public_key(), as_dict=True))
    with pytest.warns(match="1024 bits"):
        token = weak.token(CLAIMS)
    assert "1024 bits" in refused(validator(public(weak)), token)
    short = base64.urlsafe_b64encode(b"0123456789").rstrip(b"=").decode()
    assert "10 bytes" in refused(validator({"kty": "oct", "k": short, "kid": "one"}), signer("HS256").token(CLAIMS))


def test_private_key_in_the_set_verifies() -> None:
    mine = signer(RSA)
    private = RSAAlgorithm.to_jwk(mine.key, as_dict=True) | {"kid": "one"}
    private.pop("key_ops")
    assert validator(private).validate(mine.token(CLAIMS), NOW_MS).principal == "ann"


def test_choice_of_the_key() -> None:
    one, two = signer(RSA), signer(RSA, 2)
    made = validator(public(one, "one"), public(two, "two"), public(signer("ES256"), "three"))
    assert made.validate(two.token(CLAIMS, "two"), NOW_MS)
    assert "wrong" in refused(made, two.token(CLAIMS, "one"))
    assert "no key" in refused(made, two.token(CLAIMS, "three"))
    assert made.validate(one.token(CLAIMS, None), NOW_MS), "the first that fits"
    assert made.validate(signer("ES256").token(CLAIMS, None), NOW_MS)
    assert "wrong" in refused(made, two.token(CLAIMS, None))


@each("header", [{"crit": ["exp"]}, {"crit": []}, {"kid": 5}])
def test_headers_that_are_not_understood_are_refused(header: dict[str, Any]) -> None:
    mine = signer(RSA)
    head = encoded(json.dumps({"alg": RSA, "kid": "one", **header}).encode())
    payload = encoded(json.dumps(CLAIMS).encode())
    signature = encoded(jwt.get_algorithm_by_name(RSA).sign(f"{head}.{payload}".encode(), mine.key))
    assert "header" in refused(validator(), f"{head}.{payload}.{signature}")


@each("payload", [json.dumps(CLAIMS).replace("{", '{"sub": "eve", ', 1), json.dumps(CLAIMS) + " {}", "[]", "5"])
def test_claims_that_two_readers_may_read_differently_are_refused(payload: str) -> None:
    mine = signer(RSA)
    head = encoded(json.dumps({"alg": RSA, "kid": "one"}).encode())
    payload = encoded(payload.encode())
    signature = encoded(jwt.get_algorithm_by_name(RSA).sign(f"{head}.{payload}".encode(), mine.key))
    refused(validator(), f"{head}.{payload}.{signature}")


@each("token", ["", "a.b", "a.b.c.d.e", "..", "a..c", "e30.e30.", "\ud800.b.c"])
def test_malformed_token_is_refused(token: str) -> None:
    refused(validator(), token)


# Claims


@each(
    ("claims", "changed", "problem"),
    [
        ({}, {}, ""),
        ({"exp": None}, {}, "exp is missing"),
        ({"exp": "1"}, {}, "exp is no number"),
        ({"exp": True}, {}, "exp is no number"),
        ({"exp": 1e300}, {}, "exp is out of range"),
        ({"exp": NOW_S}, {}, "expired"),
        ({"exp": NOW_S}, {"clock_skew_s": 1}, ""),
        ({"exp": NOW_S - 1}, {"clock_skew_s": 1}, "expired"),
        ({"exp": NOW_S + 1}, {}, ""),
        ({"exp": NOW_S + 0.9}, {}, "expired"),
        ({"iat": None}, {}, "iat is missing"),
        ({"iat": -1}, {}, "negative"),
        ({"iat": NOW_S + 30}, {}, ""),
        ({"iat": NOW_S + 61}, {}, "before it is valid"),
        ({"nbf": NOW_S}, {}, ""),
        ({"nbf": NOW_S + 1}, {}, "not valid yet"),
        ({"nbf": NOW_S + 1}, {"clock_skew_s": 1}, ""),
        ({"nbf": NOW_S + 61}, {"clock_skew_s": 100}, "before it is valid"),
        ({"nbf": "x"}, {}, "nbf is no number"),
        ({"aud": "a"}, {}, "audience"),
        ({"aud": []}, {}, "audience"),
        ({"aud": "a"}, {"audiences": ("b", "a")}, ""),
        ({"aud": ["c", "b"]}, {"audiences": ("b", "a")}, ""),
        ({"aud": ["c"]}, {"audiences": ("b", "a")}, "audience"),
        ({}, {"audiences": ("a",)}, "audience"),
        ({"aud": "a"}, {"any_audience": True}, ""),
        ({"aud": "a"}, {"any_audience": True, "audiences": ("b",)}, "audience"),
        ({"aud": [1]}, {"audiences": ("a",)}, "aud is neither"),
        ({"aud": {"a": 1}}, {"audiences": ("a",)}, "aud is neither"),
        ({"iss": "x"}, {}, ""),
        ({"iss": 5}, {}, "iss is no text"),
        ({"iss": "x"}, {"issuer": "x"}, ""),
        ({"iss": "y"}, {"issuer": "x"}, "issuer"),
        ({}, {"issuer": "x"}, "issuer"),
        ({"sub": None}, {}, "sub is missing"),
        ({"sub": " "}, {}, "sub is missing"),
        ({"sub": 5}, {}, "sub is no text"),
        ({"sub": " ann "}, {}, ""),
        ({"sub": "\ud800"}, {}, "no valid text"),
        ({"sub": "eve", "client": "ann"}, {"sub_claim": "client"}, ""),
        ({"jti": 5}, {}, "jti is no text"),
        ({"scope": "a"}, {}, ""),
        ({"scope": ["a", "b"]}, {}, ""),
        ({"scope": ["a", " a"]}, {}, "twice"),
        ({"scope": ["a", ""]}, {}, "blank"),
        ({"scope": [1]}, {}, "blank"),
        ({"scope": ""}, {}, "blank"),
        ({"scope": 5}, {}, ""),
        ({"roles": ["", "a"]}, {"scope_claim": "roles"}, "blank"),
    ],
)
def test_claims(claims: dict[str, Any], changed: dict[str, Any], problem: str) -> None:
    whole = {name: value for name, value in {**CLAIMS, **claims}.items() if value is not None}
    mine, made = signer(RSA), validator(**changed)
    payload = encoded(json.dumps(whole).encode())
    head = encoded(json.dumps({"alg": RSA, "kid": "one"}).encode())
    token = f"{head}.{payload}." + encoded(jwt.get_algorithm_by_name(RSA).sign(f"{head}.{payload}".encode(), mine.key))
    if problem:
        assert problem in refused(made, token)
    else:
        valid = made.validate(token, NOW_MS)
        assert valid == ("ann", int(whole["exp"]) * 1000)


# Damage


@given(st.data())
def test_damaged_token_is_refused(data: st.DataObject) -> None:
    token = signer("ES256").token(CLAIMS)
    place = data.draw(st.integers(0, len(token) - 1))
    changed = data.draw(st.characters(codec="utf-8") | st.sampled_from("=.-_aA0"))
    count = data.draw(st.integers(0, 3))
    damaged = token[:place] + changed + token[place + count :]
    signed, _, signature = damaged.rpartition(".")
    with contextlib.suppress(ValueError):
        if signed == token.rpartition(".")[0] and decoded(signature) == decoded(token.rpartition(".")[2]):
            return  # the same bytes in another form
    refused(validator(public(signer("ES256"))), damaged)


@each("data", [b"", b"[]", b"{}", b'{"keys":{}}', b'{"keys":5}', b"\xff", b"[" * 50_000, key_set(*[{}] * 1001)])
def test_data_that_are_no_key_set(data: bytes) -> None:
    with pytest.raises(ValueError, match="the key set"):
        KeySet(data)


names = st.sampled_from(["kty", "kid", "use", "key_ops", "alg", "n", "e", "crv", "x", "y", "k"])
texts = st.sampled_from(["RSA", "EC", "OKP", "oct", "sig", "verify", "P-256", "Ed25519", "RS256", "AQAB", "one", ""])
values = st.none() | st.booleans() | st.integers() | texts | st.lists(texts, max_size=2)


@given(st.lists(st.dictionaries(names, values, max_size=11), max_size=3), st.sampled_from(ALGORITHMS))
def test_any_key_set_verifies_or_refuses(keys: list[dict[str, Any]], algorithm: str) -> None:
    found = KeySet(key_set(*keys, {**public(signer(RSA)), **dict(list(keys[0].items())[:2] if keys else [])}))
    for key_id in (None, "one"):
        key = found.find(key_id, algorithm)
        if key is not None:
            with contextlib.suppress(ValueError):
                assert not key.verifies(algorithm, b"signed", b"x" * 64)


def test_set_without_usable_keys_has_none() -> None:
    assert KeySet(b'{"keys":[5, null, {}, {"kty":[]}, {"kty":"EC","crv":"x","x":"a","y":"b"}]}').keys == []


def test_keys_have_no_private_parts(tmp_path: Path) -> None:
    mine = signer(RSA)
    private = RSAAlgorithm.to_jwk(mine.key, as_dict=True) | {"kid": "one", "key_ops": ["verify"]}
    (key,) = KeySet(key_set(private)).keys
    assert set(key.fields) == {"kty", "n", "e"}
