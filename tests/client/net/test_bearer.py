"""Tokens of the client: their sources, their times, renewals, refusals; and with our broker over sockets."""

from __future__ import annotations

import asyncio
import base64
import json
import random
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization as pem
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from ottla.broker.clock import wall_ms
from ottla.client import Consumer, Producer
from ottla.client.net import bearer, clock
from ottla.client.net.bearer import BearerLogin, Token, provider_source
from ottla.client.net.cluster import Cluster
from ottla.client.net.errors import ConfigError, KafkaError
from ottla.client.net.options import ClientOptions, read_options, read_settings, security_values
from ottla.client.net.security import RETRIEVERS
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.cluster.api_versions import ApiVersionsRequest
from ottla.protocol.messages.security.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from ottla.protocol.messages.security.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from ottla.protocol.messages.topics.metadata import MetadataRequest
from ottla.protocol.security.oauthbearer import LOGIN_MODULE, json_object, parse_client_first, sections, unsecured_token
from ottla_testing.broker import harness
from ottla_testing.certificates import Authority
from ottla_testing.client.scripted import ScriptedBroker, ScriptedNetwork, metadata
from ottla_testing.each import each
from ottla_testing.protocol.tokens import Pages, Served, json_page

BEARER = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER"}
MODERN: dict[type, str] = {MetadataRequest: "0-13", SaslHandshakeRequest: "0-1", SaslAuthenticateRequest: "0-2"}
NOW_MS = 1_700_000_000_000


class Wall:
    """The wall clock of the client, which stands still."""

    def __init__(self) -> None:
        self.ms = NOW_MS

    def __call__(self) -> int:
        return self.ms


@pytest.fixture
def wall(monkeypatch: pytest.MonkeyPatch) -> Iterator[Wall]:
    made = Wall()
    monkeypatch.setattr(clock, "now_ms", made)
    yield made


def jaas(options: str) -> dict[str, str]:
    return {**BEARER, "sasl.jaas.config": f"{LOGIN_MODULE} required {options};"}


def login_of(config: dict[str, Any]) -> BearerLogin:
    login = read_options(ClientOptions, config).login
    assert isinstance(login, BearerLogin)
    return login


async def first_of(login: BearerLogin) -> Any:
    return parse_client_first(next(await login.begin()))


async def claims_of(login: BearerLogin) -> dict[str, Any]:
    return json_object(sections((await first_of(login)).token)[1])


# Providers


async def simple() -> str:
    return "abc"


class Provider:
    """As kafka-python and aiokafka have them."""

    def token(self) -> str:
        return "abc"

    def extensions(self) -> dict[str, str]:
        return {"one": "1"}


class AsyncProvider:
    async def token(self) -> str:
        return "abc"


@each("provider", [simple, lambda: "abc", lambda: ("abc", 1.0), Provider(), AsyncProvider()])
async def test_provider_of_a_token(provider: Any) -> None:
    found = await first_of(login_of({**BEARER, "sasl_oauth_token_provider": provider}))
    assert (found.token, found.extensions) == ("abc", {"one": "1"} if isinstance(provider, Provider) else {})


def failing() -> str:
    raise RuntimeError("secret")


@each(
    ("provider", "text"),
    [
        (failing, "the token provider raised RuntimeError"),
        (lambda: None, "must return a token as text"),
        (lambda: ("abc",), "must return a token as text"),
        (lambda: ("abc", "soon"), "must return a token as text"),
        (lambda: "", "the token is empty"),
        (lambda: "a b", "the token is empty, or has characters"),
    ],
)
async def test_provider_without_a_token_is_a_refused_login(provider: Any, text: str) -> None:
    with pytest.raises(KafkaError, match=text) as raised:
        await login_of({**BEARER, "sasl_oauth_token_provider": provider}).begin()
    assert raised.value.code == ErrorCode.SASL_AUTHENTICATION_FAILED and "secret" not in str(raised.value)


# Times


class Tokens:
    """Gives numbered tokens of one lifetime, and counts."""

    def __init__(self, lifetime_s: float = 100) -> None:
        self.count = 0
        self.lifetime_s = lifetime_s
        self.fails = 0

    async def __call__(self) -> tuple[str, float]:
        await asyncio.sleep(0)
        if self.fails:
            self.fails -= 1
            raise bearer.TokenError("no", is_final=False)
        self.count += 1
        return f"t{self.count}", clock.now_ms() / 1000 + self.lifetime_s


async def test_token_is_used_for_four_fifths_of_its_lifetime(wall: Wall) -> None:
    source = Tokens()
    login = BearerLogin(provider_source(source), {})
    found = await asyncio.gather(*(first_of(login) for _ in range(5)))
    assert {one.token for one in found} == {"t1"} and source.count == 1
    wall.ms += 79_999
    assert (await first_of(login)).token == "t1"
    wall.ms += 1
    assert (await first_of(login)).token == "t2"


async def test_refused_token_is_not_used_again(wall: Wall) -> None:
    """By the client's clock it is fresh. A newer token is kept, though: a late refusal is not its own."""
    given: list[str] = []

    def provide() -> str:
        given.append(unsecured_token({"sub": str(len(given)), "iat": NOW_MS / 1000, "exp": NOW_MS / 1000 + 60}))
        return given[-1]

    login = BearerLogin(provider_source(provide), {})
    first, late = await login.begin(), await login.begin()
    assert next(first) == next(late) and len(given) == 1
    assert first.send(b'{"status":"invalid_token"}') == b"\x01"
    assert (await first_of(login)).token == given[1]
    assert late.send(b'{"status":"invalid_token"}') == b"\x01"
    assert (await first_of(login)).token == given[1] and len(given) == 2


async def test_token_serves_until_its_end_while_there_is_no_new_one(wall: Wall) -> None:
    source = Tokens()
    login = BearerLogin(provider_source(source), {}, 0, 0)
    await first_of(login)
    source.fails = 1000
    wall.ms += 99_999
    assert (await first_of(login)).token == "t1"
    wall.ms += 1
    with pytest.raises(KafkaError, match="no"):
        await login.begin()


def test_failed_attempts_are_repeated_with_growing_pauses() -> None:
    network = ScriptedNetwork()
    source = Tokens()
    source.fails = 4
    times: list[float] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()

        async def get() -> Any:
            times.append(loop.time())
            return await source()

        await first_of(BearerLogin(provider_source(get), {}))
        source.fails = 1000
        late = BearerLogin(provider_source(get), {}, 100, 1000)
        begun = loop.time()
        with pytest.raises(KafkaError):
            await late.begin()
        assert loop.time() - begun == pytest.approx(1.0)

    network.run(main())
    assert [round(time - times[0], 3) for time in times[:5]] == [0, 0.1, 0.3, 0.7, 1.5]


@each(
    ("provided", "times"),
    [
        ("opaque", (None, None)),
        (("opaque", 5.0), (NOW_MS, 5000)),
        (unsecured_token({"exp": 7}), (NOW_MS, 7000)),
        (unsecured_token({"exp": 7, "iat": 2.5}), (2500, 7000)),
        (unsecured_token({"exp": "7"}), (None, None)),
        (unsecured_token({"iat": 2}), (None, None)),
        ("a.b.c", (None, None)),
    ],
)
def test_times_of_a_token(provided: Any, times: tuple[int | None, int | None]) -> None:
    found = bearer._token(provided, NOW_MS)  # pyright: ignore[reportPrivateUsage]
    assert (found.begins_ms, found.ends_ms) == times
    assert Token("x").is_fresh(NOW_MS) is False


# Unsecured tokens


async def test_options_of_the_login_module_make_a_token(wall: Wall) -> None:
    options = (
        'unsecuredLoginStringClaim_sub="ann" unsecuredLoginNumberClaim_level="5" '
        'unsecuredLoginListClaim_scope="|a|b" unsecuredLoginLifetimeSeconds="60" unsecuredLoginExtension_trace="x y"'
    )
    login = login_of(jaas(options))
    found = await first_of(login)
    header, payload, signature = sections(found.token)
    assert json_object(header) == {"alg": "none"} and signature == "" and found.extensions == {"trace": "x y"}
    assert json_object(payload) == {
        "exp": NOW_MS / 1000 + 60,
        "iat": NOW_MS / 1000,
        "sub": "ann",
        "level": 5,
        "scope": ["a", "b"],
    }
    wall.ms += 50_000
    assert (await claims_of(login))["iat"] == wall.ms / 1000


@each(
    ("options", "text"),
    [
        (
            "",
            "needs sasl.oauth.token.provider, sasl.oauthbearer.token.endpoint.url, or the option unsecuredLoginString",
        ),
        ('unsecuredLoginStringClaim_sub=" "', "the option unsecuredLoginStringClaim_sub"),
        ('unsecuredLoginPrincipalClaimName="user" unsecuredLoginStringClaim_sub="a"', "unsecuredLoginStringClaim_user"),
        ('unsecuredLoginNumberClaim_sub="1"', "unsecuredLoginStringClaim_sub"),
        (
            'unsecuredLoginStringClaim_sub="a" unsecuredLoginNumberClaim_x="y"',
            "a number of unsecuredLogin is malformed",
        ),
        ('unsecuredLoginStringClaim_sub="a" unsecuredLoginNumberClaim_x="nan"', "a number of unsecuredLogin"),
        ('unsecuredLoginStringClaim_sub="a" unsecuredLoginLifetimeSeconds="y"', "a number of unsecuredLogin"),
        ('unsecuredLoginStringClaim_sub="a" unsecuredLoginNumberClaim_exp="1"', "the claim exp is set by the client"),
        ('unsecuredLoginStringClaim_sub="a" unsecuredLoginExtension_auth="1"', "the name of the extension 'auth'"),
        ('unsecuredLoginStringClaim_sub="a" unsecuredLoginExtension_x=""', "the value of the extension x"),
    ],
)
def test_options_without_a_token_are_refused(options: str, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        read_options(ClientOptions, jaas(options))


# Files and endpoints


async def test_token_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "a token"
    token = unsecured_token({"sub": "ann", "exp": 1})
    path.write_text(f" {token}\n")
    login = login_of({**BEARER, "sasl.oauthbearer.token.endpoint.url": f"file:{tmp_path}/a%20token"})
    assert (await first_of(login)).token == token
    for text in ("", "x", "a.b.c"):
        path.write_text(text)
        with pytest.raises(KafkaError, match="has no token: expected a JSON web token"):
            await login.begin()
    path.unlink()
    with pytest.raises(KafkaError, match=r"cannot read .*: No such file"):
        await login.begin()


def endpoint(url: str, **more: str) -> dict[str, Any]:
    names = {"sasl.login.retry.backoff.ms": "1", "sasl.login.retry.backoff.max.ms": "20"}
    return {**BEARER, **names, "sasl.oauthbearer.token.endpoint.url": url, **more}


CREDENTIALS = {
    "sasl.oauthbearer.client.credentials.client.id": "me",
    "sasl.oauthbearer.client.credentials.client.secret": "se:cret",
}


@each(
    "names",
    [
        {**CREDENTIALS, "sasl.oauthbearer.scope": "a b"},
        {
            "sasl.oauthbearer.client.id": "me",
            "sasl.oauthbearer.client.secret": "se:cret",
            "sasl.oauthbearer.scope": "a b",
        },
        {"sasl.jaas.config": f'{LOGIN_MODULE} required clientId="me" clientSecret="se:cret" scope="a b";'},
    ],
)
async def test_credentials_get_a_token_of_an_endpoint(names: dict[str, str]) -> None:
    """KIP-768, KIP-1139, and librdkafka's names."""
    with Pages(lambda served: json_page({"access_token": "abc", "expires_in": 5})) as pages:
        config = endpoint(f"{pages.url}/token", **names)
        login = login_of(config)
        assert (await first_of(login)).token == "abc"
        assert "se:cret" not in repr(read_options(ClientOptions, config)) + repr(login)
    (request,) = pages.requests
    assert (request.method, request.path, request.body) == (
        *("POST", "/token"),
        "grant_type=client_credentials&scope=a+b",
    )
    assert request.headers["Authorization"] == "Basic " + base64.b64encode(b"me:se:cret").decode()
    assert request.headers["Content-Type"] == "application/x-www-form-urlencoded"


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Private keys in PEM by name."""
    folder = tmp_path_factory.mktemp("keys")
    made: dict[str, tuple[Any, bytes | None]] = {
        "RS256": (rsa.generate_private_key(65537, 2048), None),
        "ES256": (ec.generate_private_key(ec.SECP256R1()), None),
        "locked": (rsa.generate_private_key(65537, 2048), b"pass phrase"),
    }
    for name, (key, phrase) in made.items():
        lock = pem.NoEncryption() if phrase is None else pem.BestAvailableEncryption(phrase)
        (folder / name).write_bytes(key.private_bytes(pem.Encoding.PEM, pem.PrivateFormat.PKCS8, lock))
        public = key.public_key().public_bytes(pem.Encoding.PEM, pem.PublicFormat.SubjectPublicKeyInfo)
        (folder / f"{name}.pub").write_bytes(public)
    return {name: folder / name for name in made}


RETRIEVER = {"sasl.oauthbearer.jwt.retriever.class": f"{RETRIEVERS}JwtBearerJwtRetriever"}
ASSERTION = "sasl.oauthbearer.assertion."


async def form_of(config: dict[str, Any]) -> dict[str, str]:
    """Returns the form that is sent to the endpoint for a token."""
    with Pages(lambda served: json_page({"access_token": "abc"})) as pages:
        assert (await first_of(login_of(endpoint(f"{pages.url}/token", **config)))).token == "abc"
    (request,) = pages.requests
    assert "Authorization" not in request.headers
    return dict(urllib.parse.parse_qsl(request.body, strict_parsing=True))


async def test_assertion_is_the_grant(keys: dict[str, Path], wall: Wall, tmp_path: Path) -> None:
    """KIP-1139: the times replace claims of the template, and the template those of the options."""
    template = tmp_path / "template.json"
    claims = {"aud": ["a", "b"], "iss": "template", "exp": 1, "team": 7}
    template.write_text(json.dumps({"header": {"kid": "k1", "alg": "none"}, "payload": claims}))
    names = {
        f"{ASSERTION}private.key.file": str(keys["RS256"]),
        f"{ASSERTION}claim.aud": "x",
        f"{ASSERTION}claim.iss": "me",
        f"{ASSERTION}claim.sub": "ann",
        f"{ASSERTION}template.file": str(template),
        f"{ASSERTION}claim.jti.include": "true",
        "sasl.oauthbearer.scope": "a b",
    }
    form = await form_of(RETRIEVER | names)
    assert (form.pop("grant_type"), form.pop("scope")) == ("urn:ietf:params:oauth:grant-type:jwt-bearer", "a b")
    sent = form.pop("assertion")
    assert not form
    assert jwt.get_unverified_header(sent) == {"alg": "RS256", "kid": "k1", "typ": "JWT"}
    found = jwt.decode(sent, keys["RS256"].with_suffix(".pub").read_text(), ["RS256"], options=WITHOUT_CLAIMS)
    now_s = wall.ms // 1000
    assert len(found.pop("jti")) == 36
    times = {"iat": now_s, "exp": now_s + 300, "nbf": now_s - 60}
    assert found == {"aud": ["a", "b"], "iss": "template", "sub": "ann", "team": 7, **times}


WITHOUT_CLAIMS: Any = {"verify_aud": False, "verify_exp": False, "verify_iat": False, "verify_nbf": False}


@each(
    "key, more",
    [
        ("ES256", {f"{ASSERTION}algorithm": "es256", f"{ASSERTION}claim.exp.seconds": "10"}),
        ("locked", {f"{ASSERTION}private.key.passphrase": "pass phrase", f"{ASSERTION}claim.nbf.seconds": "0"}),
    ],
)
async def test_assertion_takes_the_place_of_the_secret(key: str, more: dict[str, str], keys: dict[str, Path]) -> None:
    names = {
        "sasl.oauthbearer.client.credentials.client.id": "me",
        f"{ASSERTION}private.key.file": str(keys[key]),
        f"{ASSERTION}claim.iss": "me",
        **more,
    }
    form = await form_of(names)
    assert form.pop("client_assertion_type") == "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
    public = keys[key].with_suffix(".pub").read_text()
    found = jwt.decode(form.pop("client_assertion"), public, ["ES256", "RS256"], options=WITHOUT_CLAIMS)
    assert form == {"grant_type": "client_credentials", "client_id": "me"}
    assert found["exp"] - found["nbf"] == (70 if key == "ES256" else 300)
    assert "pass phrase" not in repr(read_options(ClientOptions, endpoint("http://127.0.0.1:1/", **names)))


async def test_assertion_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "assertion"
    path.write_text(f" {unsecured_token({'iss': 'me'})}\n")
    form = await form_of(RETRIEVER | {f"{ASSERTION}file": str(path)})
    assert form["assertion"] == path.read_text().strip()
    for text, problem in (("x", "has no assertion: expected a JSON web token"), (None, "cannot read .*No such file")):
        path.unlink() if text is None else path.write_text(text)
        with pytest.raises(KafkaError, match=problem):
            await login_of(endpoint("http://127.0.0.1:1/", **RETRIEVER, **{f"{ASSERTION}file": str(path)})).begin()


async def test_assertion_that_cannot_be_signed_is_a_refused_login(keys: dict[str, Path], tmp_path: Path) -> None:
    wrong = tmp_path / "wrong"
    wrong.write_text("[]")
    for names, problem in (
        ({f"{ASSERTION}private.key.file": str(keys["locked"])}, "no assertion can be signed: Password was not given"),
        ({f"{ASSERTION}private.key.file": str(keys["ES256"])}, "no assertion can be signed: "),
        ({f"{ASSERTION}private.key.file": str(wrong)}, "no assertion can be signed: "),
        ({f"{ASSERTION}private.key.file": str(tmp_path / "none")}, "cannot read .*none: No such file"),
        (
            {f"{ASSERTION}private.key.file": str(keys["RS256"]), f"{ASSERTION}template.file": str(wrong)},
            "is no template of an assertion",
        ),
    ):
        with pytest.raises(KafkaError, match=problem) as raised:
            await login_of(endpoint("http://127.0.0.1:1/", **RETRIEVER, **names)).begin()
        assert "\n" not in str(raised.value)


async def test_secret_is_sent_with_the_characters_of_urls() -> None:
    """`sasl.oauthbearer.header.urlencode` (RFC 6749, 2.3.1)."""
    with Pages(lambda served: json_page({"access_token": "abc"})) as pages:
        config = endpoint(pages.url, **CREDENTIALS, **{"sasl.oauthbearer.header.urlencode": "true"})
        await login_of(config).begin()
    assert pages.requests[0].headers["Authorization"] == "Basic " + base64.b64encode(b"me:se%3Acret").decode()


@each(
    ("page", "text", "count"),
    [
        ((401, {}, b"secret"), "HTTP status 401", 1),
        ((302, {"Location": "/elsewhere"}, b""), "HTTP status 302", None),
        ((503, {}, b"secret"), "HTTP status 503", None),
        ((200, {}, b"{"), "sent no access_token", 1),
        ((200, {}, b"[]"), "sent no access_token", 1),
        ((200, {}, b'{"access_token": " "}'), "sent no access_token", 1),
    ],
)
async def test_endpoint_without_a_token(page: Any, text: str, count: int | None) -> None:
    with Pages(lambda served: page) as pages, pytest.raises(KafkaError, match=text) as raised:
        await login_of(endpoint(pages.url, **CREDENTIALS)).begin()
    assert "secret" not in str(raised.value) and "se:cret" not in str(raised.value)
    assert not count or len(pages.requests) == count


async def test_certificate_of_an_https_endpoint_must_be_trusted(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    options = f'ssl.truststore.type="PEM" ssl.truststore.location="{authority.trusted}"'
    with Pages(lambda served: json_page({"access_token": "abc"}), authority.issue("server")) as pages:
        config = endpoint(pages.url, **CREDENTIALS)
        login = login_of({**config, "sasl.jaas.config": f"{LOGIN_MODULE} required {options};"})
        assert (await first_of(login)).token == "abc"
        with pytest.raises(KafkaError, match=r"cannot reach the token endpoint at .*certificate verify failed"):
            await login_of(config).begin()
    assert len(pages.requests) == 1


async def test_endpoint_that_comes_back_gives_a_token() -> None:
    def page(served: Served) -> Any:
        return (500, {}, b"") if len(pages.requests) < 3 else json_page({"id_token": "abc"})

    with Pages(page) as pages:
        config = endpoint(pages.url, **CREDENTIALS) | {"sasl.login.retry.backoff.max.ms": "10000"}
        assert (await first_of(login_of(config))).token == "abc"


@each(
    ("config", "text"),
    [
        ({}, "OAUTHBEARER needs sasl.oauthbearer.client.credentials.client.id and .client.secret"),
        ({"sasl.oauthbearer.client.id": "x"}, "OAUTHBEARER needs sasl.oauthbearer.client.credentials.client.id and"),
        ({"sasl.oauthbearer.token.endpoint.url": "ftp://x/y"}, "must be a URL with http, https or file"),
        ({"sasl.oauthbearer.token.endpoint.url": "http://[x"}, "is not a URL"),
        ({"sasl.oauthbearer.token.endpoint.url": "file://host/x"}, "must be a URL with http, https or file"),
        ({"sasl.oauthbearer.token.endpoint.url": "http:///x"}, "must be a URL with http, https or file"),
        (RETRIEVER, "needs sasl.oauthbearer.assertion.private.key.file or sasl.oauthbearer.assertion.file"),
        ({f"{ASSERTION}claim.iss": "me"}, "needs sasl.oauthbearer.assertion.private.key.file or"),
        ({f"{ASSERTION}file": "/x", f"{ASSERTION}algorithm": "HS256"}, "algorithm must be one of ES256, RS256"),
        ({f"{ASSERTION}file": "/x", f"{ASSERTION}claim.exp.seconds": "-1"}, "exp.seconds must be from 0 to 86400"),
        ({f"{ASSERTION}file": "/x", f"{ASSERTION}claim.nbf.seconds": "3601"}, "nbf.seconds must be from 0 to 3600"),
        ({"sasl.oauthbearer.jwt.retriever.class": "com.example.Own"}, "retriever.class must be one of org.apache"),
        ({**RETRIEVER, "sasl.oauthbearer.token.endpoint.url": "file:/x"}, "is not one of JwtBearerJwtRetriever"),
        ({"sasl_oauth_token_provider": 5}, "must be a function, or an object with a method token"),
    ],
)
def test_wrong_options_are_refused(config: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        read_options(ClientOptions, {**endpoint("http://127.0.0.1:1/"), **config})


def test_backoff_is_checked() -> None:
    config = endpoint("http://127.0.0.1:1/", **CREDENTIALS) | {"sasl.login.retry.backoff.ms": "-1"}
    with pytest.raises(ConfigError, match=r"sasl\.login\.retry\.backoff\.ms must be an integer from 0"):
        read_options(ClientOptions, config)


def test_file_of_kafkas_own_tools_is_read(tmp_path: Path) -> None:
    """Names about classes of Java have no effect."""
    handler = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"
    names = endpoint("https://login.example/token", **CREDENTIALS)
    names["sasl.login.callback.handler.class"] = handler
    names["sasl.jaas.config"] = f'{LOGIN_MODULE} required extension_trace="one";'
    names["sasl.oauthbearer.clock.skew.seconds"] = "5"
    (tmp_path / "client.properties").write_text("".join(f"{name}={value}\n" for name, value in names.items()))
    settings = read_settings(tmp_path / "client.properties")
    assert "se:cret" not in repr(settings)
    login = ClientOptions(**security_values(tmp_path / "client.properties")).login
    assert isinstance(login, BearerLogin)
    (tmp_path / "client.properties").write_text(
        "sasl.oauthbearer.token.endpoint.url=ftp://x\nsasl.mechanism=OAUTHBEARER\n"
    )
    assert read_settings(tmp_path / "client.properties"), "security.protocol is PLAINTEXT"


# The order of requests


def secured(network: ScriptedNetwork, lifetime_ms: int) -> ScriptedBroker:
    broker = network.broker(versions=MODERN)
    broker.does[SaslHandshakeRequest] = lambda request, version, link: SaslHandshakeResponse(
        error_code=0, mechanisms=["OAUTHBEARER"]
    )
    broker.does[SaslAuthenticateRequest] = lambda request, version, link: SaslAuthenticateResponse(
        error_code=0, error_message=None, auth_bytes=b"", session_lifetime_ms=lifetime_ms
    )
    broker.does[MetadataRequest] = lambda request, version, link: metadata({1: ("one", 9092)}, {"t": {0: 1}})
    return broker


def cluster_of(provider: Any) -> Cluster:
    names = {**BEARER, "bootstrap.servers": "one", "sasl_oauth_token_provider": provider}
    return Cluster(read_options(ClientOptions, names), rng=random.Random(1))


def versions() -> ApiVersionsRequest:
    return ApiVersionsRequest(client_software_name="n", client_software_version="1")


def test_requests_do_not_wait_for_the_token_of_a_renewal() -> None:
    network = ScriptedNetwork()
    broker = secured(network, lifetime_ms=10_000)
    count = 0
    waited: list[float] = []

    async def provider() -> str:
        nonlocal count
        count += 1
        await asyncio.sleep(0 if count < 3 else 5)
        return f"t{count}"

    async def main() -> None:
        loop = asyncio.get_running_loop()
        cluster = cluster_of(provider)
        await cluster.start()
        connection = await cluster.connection(1)
        for _ in range(60):
            begun = loop.time()
            assert (await connection.request(versions())).error_code == 0
            waited.append(loop.time() - begun)
            await asyncio.sleep(0.5)
        await cluster.close()

    network.run(main())
    sent = [parse_client_first(one.request.auth_bytes).token for one in broker.requests_of(SaslAuthenticateRequest)]
    assert sent[:2] == ["t1", "t2"] and {"t3", "t4"} <= {*sent}
    assert max(waited) < 1


def test_error_of_the_broker_is_confirmed_and_raised() -> None:
    network = ScriptedNetwork()
    broker = secured(network, 0)
    error = b'{"status":"invalid_token"}'

    def refuse(request: Any, version: int, link: Any) -> SaslAuthenticateResponse:
        if request.auth_bytes == b"\x01":
            return SaslAuthenticateResponse(error_code=58, error_message=error.decode(), auth_bytes=b"")
        return SaslAuthenticateResponse(error_code=0, error_message=None, auth_bytes=error)

    broker.does[SaslAuthenticateRequest] = refuse

    async def main() -> None:
        cluster = cluster_of(lambda: "abc")
        with pytest.raises(KafkaError, match="invalid_token"):
            await cluster.start()
        broker.does[SaslAuthenticateRequest] = lambda request, version, link: SaslAuthenticateResponse(
            error_code=0, error_message=None, auth_bytes=error
        )
        with pytest.raises(KafkaError, match="the broker refused the token"):
            await cluster.start()
        await cluster.close()

    network.run(main())
    assert len(broker.requests_of(SaslAuthenticateRequest)) == 4


def test_refused_renewal_ends_the_connection() -> None:
    network = ScriptedNetwork()
    secured(network, lifetime_ms=10_000)
    given = ["t1", "t2"]

    async def main() -> None:
        cluster = cluster_of(lambda: given.pop(0))
        await cluster.start()
        connection = await cluster.connection(1)
        await asyncio.sleep(10)
        assert connection.is_closed
        await cluster.close()

    network.run(main())


# Over real sockets


CONFIGS = {
    "listeners": "SECURED://127.0.0.1:0",
    "listener.security.protocol.map": "SECURED:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "OAUTHBEARER",
    "connection.failed.authentication.delay.ms": "0",
    "log.message.timestamp.after.max.ms": "9223372036854775807",  # the clock of the broker stands still
}


async def test_clients_log_in_with_tokens(tmp_path: Path) -> None:
    async with harness.running(tmp_path, overrides=CONFIGS) as broker:
        broker.clock.leap(wall_ms() - broker.clock.now_ms() + 60_000)
        address = f"127.0.0.1:{broker.ports[0]}"
        ann: dict[str, Any] = {
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": "OAUTHBEARER",
            "sasl_jaas_config": f'{LOGIN_MODULE} required unsecuredLoginStringClaim_sub="ann";',
        }
        async with Producer(address, **ann) as producer:
            assert (await producer.send_and_wait("t", b"x")).offset == 0
        options: dict[str, Any] = {**ann, "auto_offset_reset": "earliest"}
        async with Consumer(address, assign=[("t", 0)], **options) as consumer:
            assert (await consumer.getone()).value == b"x"
        old = unsecured_token({"sub": "ann", "exp": 1})
        wrong: dict[str, Any] = {**ann, "sasl_oauth_token_provider": lambda: old}
        with pytest.raises(KafkaError) as raised:
            async with Producer(address, **wrong):
                pass
        assert raised.value.code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert json.loads(raised.value.message or "") == {"status": "invalid_token"}
