"""Tokens of OAUTHBEARER, valid and not, sent to Apache Kafka and to our broker: both must respond alike."""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from apache_kafka import Kafka, free_port

from ottla.broker.clock import wall_ms
from ottla.protocol.messages.security.sasl_authenticate import SaslAuthenticateRequest
from ottla.protocol.messages.security.sasl_handshake import SaslHandshakeRequest
from ottla.protocol.security.oauthbearer import LOGIN_MODULE, encoded, unsecured_token
from ottla_testing.broker.harness import Client, Closed, running
from ottla_testing.interop.checks import Check, Failed
from ottla_testing.protocol.tokens import key_set, public, signer

RELEASES = ("4.3", "4.4")
HANDLER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"
ALLOWED = "-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls"
LISTENERS = ("UNSECURED", "SCOPED", "SIGNED")
JAAS = {
    "UNSECURED": 'unsecuredLoginStringClaim_sub="admin"',
    "SCOPED": (
        'unsecuredLoginStringClaim_user="admin" unsecuredLoginPrincipalClaimName="user" '
        'unsecuredValidatorPrincipalClaimName="user" unsecuredValidatorScopeClaimName="roles" '
        'unsecuredValidatorRequiredScope="a b" unsecuredValidatorAllowableClockSkewMs="30000"'
    ),
    "SIGNED": "",
}
KEYS = {"rsa": signer("RS256"), "ec": signer("ES256"), "other": signer("RS256", 2), "hmac": signer("HS256")}
# Kafka closes the connection: other exceptions than those of malformed tokens.
CLOSED_BY_KAFKA = {f"UNSECURED {name}" for name in ("algorithm missing", "scheme Basic", "header null", "exp large")}


def configs(keys: Path) -> dict[str, str]:
    found = {"sasl.enabled.mechanisms": "OAUTHBEARER", "connection.failed.authentication.delay.ms": "0"}
    for listener in LISTENERS:
        prefix = f"listener.name.{listener.lower()}.oauthbearer.sasl."
        found[f"{prefix}jaas.config"] = f"{LOGIN_MODULE} required {JAAS[listener]};"
    return found | {
        f"{prefix}server.callback.handler.class": HANDLER,
        f"{prefix}oauthbearer.jwks.endpoint.url": f"file:{keys}",
        f"{prefix}oauthbearer.expected.audience": "kafka,other",
        f"{prefix}oauthbearer.expected.issuer": "test",
        f"{prefix}oauthbearer.clock.skew.seconds": "30",
    }


def raw(header: str, claims: str, signature: str = "") -> str:
    return f"{encoded(header.encode())}.{encoded(claims.encode())}.{signature}"


def message(token: str, head: str = "n,,", pairs: str = "") -> bytes:
    return f"{head}\x01auth=Bearer {token}\x01{pairs}\x01".encode()


def unsecured(now_s: int) -> Iterator[tuple[str, bytes]]:
    """Yields (name, message) for the listener with the default rules."""
    good: dict[str, Any] = {"sub": "ann", "iat": now_s - 10, "exp": now_s + 600}
    token, none = unsecured_token(good), '{"alg":"none"}'
    yield "valid", message(token)
    yield "authorization id", message(token, "n,a=ann,")
    yield "other authorization id", message(token, "n,a=bob,")
    yield "extensions", message(token, pairs="one=1\x01Two=a b\t\x01")
    yield "extension twice", message(token, pairs="one=1\x01one=2\x01")
    yield "extension with a digit", message(token, pairs="one1=1\x01")
    yield "extension without a value", message(token, pairs="one=\x01")
    yield "auth twice", message(token, pairs="auth=Bearer x\x01")
    yield "channel binding", message(token, "y,,")
    yield "scheme Basic", message(token).replace(b"Bearer", b"Basic")
    yield "scheme bearer", message(token).replace(b"Bearer", b"bEARER")
    yield "no token", b"n,,\x01auth=Bearer\x01\x01"
    yield "no auth", b"n,,\x01x=y\x01\x01"
    yield "empty", b""
    yield "confirmation alone", b"\x01"
    yield "not UTF-8", b"n,,\x01auth=Bearer \xff\x01\x01"
    changed: dict[str, Any] = {
        "sub 5": {"sub": 5},
        "sub blank": {"sub": " "},
        "sub null": {"sub": None},
        "sub true": {"sub": True},
        "sub list": {"sub": ["ann"]},
        "sub with spaces": {"sub": " ann "},
        "exp past": {"exp": now_s - 1},
        "exp text": {"exp": str(now_s + 600)},
        "exp true": {"exp": True},
        "exp large": {"exp": 1e300},
        "exp before iat": {"exp": now_s + 5, "iat": now_s + 5},
        "exp fraction": {"exp": now_s + 600.5},
        "iat future": {"iat": now_s + 60},
        "iat text": {"iat": "1"},
        "scope 5": {"scope": 5},
        "scope list": {"scope": ["a", 1, None, {}]},
        "nbf future": {"nbf": now_s + 60},
    }
    for name, claims in changed.items():
        yield name, message(unsecured_token({**good, **claims}))
    for name in good:
        yield f"without {name}", message(unsecured_token({key: one for key, one in good.items() if key != name}))
    text = json.dumps(good)
    yield "signature", message(raw(none, text, "eA"))
    yield "algorithm HS256", message(raw('{"alg":"HS256"}', text))
    yield "algorithm NONE", message(raw('{"alg":"NONE"}', text))
    yield "algorithm missing", message(raw("{}", text))
    yield "header null", message(raw("null", text))
    yield "header no JSON", message(raw("{", text))
    yield "claims list", message(raw(none, "[]"))
    yield "claims NaN", message(raw(none, text.replace(str(now_s + 600), "NaN")))
    yield "claims twice", message(raw(none, text.replace("{", '{"sub":"eve",', 1)))
    yield "claims and more", message(raw(none, text + " x"))
    yield "two sections", message("a.b")
    yield "four sections", message(token + ".")
    yield "padding", message(raw(none, text).replace(".", "=.", 1))
    yield "too much padding", message(raw(none, text).replace(".", "==.", 1))
    yield "signed", message(KEYS["rsa"].token(good))


def scoped(now_s: int) -> Iterator[tuple[str, bytes]]:
    """Yields (name, message) for the listener with other claims, required scopes and a skew."""
    good: dict[str, Any] = {"user": "ann", "iat": now_s - 10, "exp": now_s + 600, "roles": ["b", "a", "c"]}
    changed: dict[str, Any] = {
        "valid": {},
        "one scope": {"roles": ["a"]},
        "scopes in a text": {"roles": "a b"},
        "scopes with spaces": {"roles": [" a ", "b\t"]},
        "no scope": {"roles": []},
        "scope and exp past": {"roles": [], "exp": now_s - 60},
        "exp past within the skew": {"exp": now_s - 5},
    }
    for name, claims in changed.items():
        yield name, message(unsecured_token({**good, **claims}))


def signed(now_s: int) -> Iterator[tuple[str, bytes]]:
    """Yields (name, message) for the listener with keys."""
    good: dict[str, Any] = {"sub": "ann", "iat": now_s - 10, "exp": now_s + 600, "aud": "kafka", "iss": "test"}
    rsa, ec = KEYS["rsa"], KEYS["ec"]
    yield "valid", message(rsa.token(good, "rsa"))
    yield "valid EC", message(ec.token(good, "ec"))
    yield "valid HMAC", message(KEYS["hmac"].token(good, "hmac"))
    yield "without a key id", message(rsa.token(good, None))
    yield "unknown key id", message(rsa.token(good, "unknown"))
    yield "key id of another key", message(rsa.token(good, "ec"))
    yield "wrong key", message(KEYS["other"].token(good, "rsa"))
    yield "RS512", message(rsa._replace(algorithm="RS512").token(good, "rsa"))
    yield "PS256", message(rsa._replace(algorithm="PS256").token(good, "rsa"))
    yield "unsecured", message(unsecured_token(good))
    yield "HMAC with a public key", message(KEYS["hmac"].token(good, "rsa"))
    yield "critical header", message(rsa.token(good, "rsa", crit=["x"], x=1))
    changed: dict[str, Any] = {
        "aud other": {"aud": ["x", "other"]},
        "aud wrong": {"aud": "x"},
        "aud empty": {"aud": []},
        "aud number": {"aud": [1]},
        "iss wrong": {"iss": "x"},
        "iss number": {"iss": 5},
        "exp past within the skew": {"exp": now_s - 10},
        "exp past": {"exp": now_s - 40},
        "exp fraction": {"exp": now_s + 600.9},
        "exp text": {"exp": "1"},
        "exp large": {"exp": 10**30},
        "exp before iat": {"exp": now_s + 5, "iat": now_s + 6},
        "iat future": {"iat": now_s + 300},
        "iat negative": {"iat": -1},
        "nbf future": {"nbf": now_s + 60},
        "nbf future within the skew": {"nbf": now_s + 10},
        "nbf after exp": {"nbf": now_s + 601},
        "sub number": {"sub": 5},
        "sub blank": {"sub": " "},
        "sub with spaces": {"sub": " ann "},
        "jti number": {"jti": 5},
        "scope": {"scope": "a b"},
        "scope twice": {"scope": ["a", " a"]},
        "scope blank": {"scope": ["a", ""]},
        "scope empty": {"scope": ""},
        "scope number": {"scope": 5},
    }
    for name, claims in changed.items():
        yield name, message(rsa.token({**good, **claims}, "rsa"))
    for name in good:
        yield f"without {name}", message(rsa.token({key: one for key, one in good.items() if key != name}, "rsa"))


CASES = {"UNSECURED": unsecured, "SCOPED": scoped, "SIGNED": signed}


async def outcome(port: int, data: bytes) -> tuple[Any, ...]:
    """Sends one message, and confirms an error. Returns each response, with the lifetime in whole ten seconds."""
    client = await Client.connect(port)
    found: list[Any] = []
    try:
        await client.call(SaslHandshakeRequest(mechanism="OAUTHBEARER"), 1)
        for token in (data, b"\x01"):
            response = await client.call(SaslAuthenticateRequest(auth_bytes=token), 2)
            lifetime = round(min(response.session_lifetime_ms, 10**12) / 10_000)
            found.append((response.error_code, bytes(response.auth_bytes), response.error_message, lifetime))
            if response.error_code or not response.auth_bytes:
                break
    except Closed:
        found.append("closed")
    client.close()
    return tuple(found)


async def outcomes(ports: Mapping[str, int]) -> dict[str, tuple[Any, ...]]:
    return {
        f"{listener} {name}": await outcome(ports[listener], data)
        for listener in LISTENERS
        for name, data in CASES[listener](int(time.time()))
    }


async def compared(release: str) -> str:
    with tempfile.TemporaryDirectory() as folder:
        keys = Path(folder) / "keys.json"
        keys.write_bytes(key_set(*(public(KEYS[name], name) for name in ("rsa", "ec", "hmac"))))
        theirs = {listener: free_port() for listener in LISTENERS}
        names = {f"{listener}:SASL_PLAINTEXT" for listener in LISTENERS}
        protocols = ",".join([*sorted(names), "PLAINTEXT:PLAINTEXT"])
        settings = configs(keys) | {
            "more.listeners": ",".join(f"{listener}://127.0.0.1:{port}" for listener, port in theirs.items()),
            "listener.security.protocol.map": f"{protocols},CONTROLLER:PLAINTEXT",
        }
        allowing = type("Allowing", (Kafka,), {"environ": {"JAVA_TOOL_OPTIONS": f"{ALLOWED}=file:{keys}"}})
        kafka = await asyncio.to_thread(allowing, release, None, 1, **settings)
        try:
            expected = await outcomes(theirs)
        finally:
            kafka.stop()
        listeners = ",".join(f"{listener}://127.0.0.1:0" for listener in LISTENERS)
        ours = configs(keys) | {"listeners": listeners, "listener.security.protocol.map": protocols}
        async with running(Path(folder) / "data", overrides=ours, release=release) as broker:
            broker.clock.leap(wall_ms() - broker.clock.now_ms())
            found = await outcomes(dict(zip(LISTENERS, broker.ports, strict=True)))
    different = {name: (one, found[name]) for name, one in expected.items() if one != found[name]}
    unexpected = {name: pair for name, pair in different.items() if name not in CLOSED_BY_KAFKA}
    if unexpected:
        lines = [f"{name}: Kafka {theirs}, ours {ours}" for name, (theirs, ours) in unexpected.items()]
        raise Failed("\n".join(lines))
    valid = sum(one[0] != "closed" and not one[0][0] and not one[0][1] for one in expected.values())
    return f"{len(expected)} messages, {valid} of them valid, {len(different)} known differences"


CHECKS = [Check(f"tokens: Kafka {one}", partial(lambda one: asyncio.run(compared(one)), one)) for one in RELEASES]
