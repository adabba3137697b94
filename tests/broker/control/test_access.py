"""The token of the control plane: who needs it, how programs and browsers give it, and where it is never seen."""

from __future__ import annotations

import http.server
import json
import random
import re
import signal
import ssl
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import trustme
from hypothesis import example, given
from hypothesis import strategies as st

from ottla.broker import Embedded
from ottla.broker.config.control_access import checked_token, given_token, server_context
from ottla.broker.config.serve_options import ControlOptions
from ottla.broker.control.access import MAX_SESSIONS, Access
from ottla.broker.control.openapi import document
from ottla.broker.control.route import BASE
from ottla.broker.control.routes import ROUTES
from ottla.broker.control.web.site import VIEWS
from ottla.broker.errors import ConfigError
from ottla.tools.ctl.command import ctl
from ottla.tools.explain.command import explain
from ottla.tools.serve import parse_serve, serve_parser
from ottla.tools.top.command import top
from ottla_testing.broker.page_streams import Tail
from ottla_testing.broker.paged import Seen, Visitor, faults_of
from ottla_testing.broker.serving import refused, serving
from ottla_testing.patience import PATIENCE_S

TOKEN = "sesame-0123456789+/=="
FLAGS = ("--listen", "127.0.0.1:0", "--data-dir", "data")
PROGRAM: dict[str, str | None] = {"User_Agent": "curl/8", "Accept": "*/*", "Origin": None}


@pytest.fixture(scope="module")
def broker() -> Iterator[Embedded]:
    with Embedded(control="127.0.0.1:0", control_token=TOKEN) as started:
        started.create_topic("orders")
        started.send("orders", "one")
        yield started


@pytest.fixture
def visitor(broker: Embedded) -> Visitor:
    assert broker.control_url
    return Visitor(broker.control_url)


def check_refused(seen: Seen, text: str = "this control plane needs its token") -> None:
    assert (seen.status, seen.headers["Content-Type"]) == (401, "application/json")
    body = json.loads(seen.body)
    assert list(body) == ["error"] and body["error"].startswith(text) and TOKEN not in body["error"]
    assert seen.headers["WWW-Authenticate"].startswith('Bearer realm="ottla"')


def log_in(visitor: Visitor, token: str = TOKEN, wanted: str = "/", status: int = 303, **headers: str) -> Seen:
    from urllib.parse import urlencode

    seen = visitor.request("POST", "/login", urlencode({"token": token, "wanted": wanted}), **headers)
    assert seen.status == status, seen.text[-300:]
    return seen


def cookie_of(seen: Seen) -> str:
    return seen.headers["Set-Cookie"].partition(";")[0]


class Known(Visitor):
    """A browser with a session."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.cookie = ""
        self.cookie = cookie_of(log_in(self))

    def request(self, method: str, path: str, body: str | None = None, **headers: str | None) -> Seen:
        return super().request(method, path, body, **{"Cookie": self.cookie or None, **headers})


# Programs


def paths() -> list[str]:
    """The paths of all routes and pages, and some that do not exist."""
    some = [BASE + route.path for route in ROUTES] + [view.path for view in VIEWS]
    filled = [re.sub(r"\{[^}]*\}", "0", path) for path in some]
    return [*filled, "/metrics", "/health", "/ready", "/none", "/static", "/static/../v1/topics", "/logout"]


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS"])
def test_every_route_needs_the_token(visitor: Visitor, method: str) -> None:
    for path in random.sample(paths(), 12):
        seen = visitor.request(method, path, **PROGRAM)
        assert seen.status == 401, path
        if method != "HEAD":
            check_refused(seen)
            for fact in (b"orders", b"cluster", b"127.0.0.1"):
                assert fact not in seen.body


@pytest.mark.parametrize(
    ("given", "text", "challenge"),
    [
        (f"Bearer {TOKEN}x", "the token is not that", 'Bearer realm="ottla", error="invalid_token"'),
        (f"Bearer {TOKEN[:-1]}", "the token is not that", 'Bearer realm="ottla", error="invalid_token"'),
        ("Bearer ", "the token is not that", 'Bearer realm="ottla", error="invalid_token"'),
        ("Bearer \xff", "the token is not that", 'Bearer realm="ottla", error="invalid_token"'),
        (TOKEN, "this control plane needs", 'Bearer realm="ottla", error="invalid_token"'),
        (f"Basic {TOKEN}", "this control plane needs", 'Bearer realm="ottla", error="invalid_token"'),
        (None, "this control plane needs", 'Bearer realm="ottla"'),
    ],
)
def test_wrong_token_is_refused(visitor: Visitor, given: str | None, text: str, challenge: str) -> None:
    seen = visitor.request("GET", "/v1/topics", Authorization=given, **PROGRAM)
    check_refused(seen, text)
    assert seen.headers["WWW-Authenticate"] == challenge


def test_right_token_is_accepted(visitor: Visitor) -> None:
    for text in (f"Bearer {TOKEN}", f"bearer  {TOKEN} ", f"BEARER {TOKEN}"):
        seen = visitor.request("GET", "/v1/topics", Authorization=text, **PROGRAM)
        assert json.loads(seen.body)["topics"][0]["name"] == "orders"
    assert visitor.request("GET", f"/v1/topics?token={TOKEN}", **PROGRAM).status == 401
    assert visitor.request("GET", "/metrics", Authorization=f"Bearer {TOKEN}", **PROGRAM).status == 200


def test_rules_about_sites_come_before_the_token(visitor: Visitor) -> None:
    bearing = {"Authorization": f"Bearer {TOKEN}"}
    assert visitor.request("GET", "/v1/topics", Host="rebind.example.org", **bearing).status == 403
    assert visitor.request("GET", "/v1/topics", Origin="http://evil.example", **bearing).status == 403
    assert visitor.request("POST", "/v1/topics", "{}", **bearing).status == 403  # browsers may only read


HEADERS = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=40)


@given(HEADERS, HEADERS)
@example(f"Bearer {TOKEN[1:]}", "ottla-session-0=")
@example("", 'ottla-session-0="\\303"; =; ;;')
def test_no_other_header_is_accepted(broker: Embedded, given: str, cookie: str) -> None:
    assert broker.control_url
    seen = Visitor(broker.control_url).request("GET", "/v1/topics", Authorization=given, Cookie=cookie, **PROGRAM)
    check_refused(seen, "th")
    check_refused(Visitor(broker.control_url).request("GET", "/v1/topics", Cookie=cookie, **PROGRAM))


def test_loopback_address_needs_no_token() -> None:
    with Embedded(control="127.0.0.1:0") as open_broker:
        assert open_broker.control_url and open_broker.control_token is None
        seen = Visitor(open_broker.control_url)
        assert "read only" in seen.page("/").one("footer").text
        assert seen.request("GET", "/login").headers["Location"] == "/"
        assert seen.request("GET", "/v1/topics", Authorization="Bearer any", **PROGRAM).status == 200


def test_any_other_address_gets_a_token() -> None:
    tokens = set[str]()
    for _ in range(2):
        with Embedded(control="0.0.0.0:0") as started:
            assert started.control_url and started.control_token
            tokens.add(checked_token(started.control_token, "generated"))
            visitor = Visitor(started.control_url)
            check_refused(visitor.request("GET", "/v1/health", **PROGRAM))
            bearing = {"Authorization": f"Bearer {started.control_token}"}
            assert visitor.request("GET", "/v1/health", **bearing, **PROGRAM).status == 200
            assert (
                ctl(["health"], {"OTTLA_CONTROL": started.control_url, "OTTLA_CONTROL_TOKEN": started.control_token})
                == 0
            )
    assert len(tokens) == 2 and min(map(len, tokens)) >= 43


def test_routes_of_monitoring_are_open_by_a_flag() -> None:
    closed, opened = Access(ControlOptions(token=TOKEN)), Access(ControlOptions(token=TOKEN, opens_metrics=True))
    for route in ("/metrics", "/health", "/ready"):
        assert closed.refusal(route, {}, {}) and opened.refusal(route, {}, {}) is None
    for route in ("/v1/health", "/v1/topics", "/", None):
        assert opened.refusal(route, {}, {})


# Browsers


def test_browser_without_a_session_gets_the_form_without_facts(visitor: Visitor) -> None:
    page = visitor.page("/messages/orders?offset=0", 401)
    assert page.one("h1").text == "Log in"
    (form,) = page.all("form")
    assert (form.attributes["method"], form.attributes["action"]) == ("post", "/login")
    fields = {one.attributes["name"]: one.attributes for one in form.all("input")}
    assert fields["wanted"]["value"] == "/messages/orders?offset=0" and fields["token"]["type"] == "password"
    text = visitor.request("GET", "/messages/orders").text
    assert not re.search("cluster|Release", text)
    for path in ("/static/page.css", "/static/icon.svg", "/favicon.ico", "/login"):
        assert visitor.request("GET", path).status in (200, 301)


def test_session_of_a_browser_reaches_all_pages(broker: Embedded) -> None:
    assert broker.control_url
    known = Known(broker.control_url)
    pages = known.crawl()
    assert {"/", "/topics", "/messages/orders"} <= pages.keys() and len(pages) > 15
    posting = [one.attributes for one in pages["/"].all("form") if one.attributes.get("method") == "post"]
    assert posting == [{"method": "post", "action": "/logout"}]
    assert known.request("GET", "/v1/topics", **PROGRAM).status == 200
    cookie = {"Cookie": known.cookie, "User-Agent": "Mozilla/5.0"}
    with closing(Tail(known, "/messages/orders/tail/events?after=0:0", **cookie)) as stream:
        assert stream.event()[2]["count"] == 1
    with closing(Tail(known, "/messages/orders/tail/events?after=0:0")) as stream:
        assert stream.response.status == 401


def test_cookie_is_no_token_and_stays_with_this_site(visitor: Visitor) -> None:
    seen = log_in(visitor, wanted="/topics?q=%C3%A9")
    assert seen.headers["Location"] == "/topics?q=%C3%A9"
    name, _, rest = seen.headers["Set-Cookie"].partition("=")
    assert name == f"ottla-session-{visitor.address.rpartition(':')[2]}"
    assert {"HttpOnly", "Path=/", "SameSite=Strict"} == set(rest.split("; ")[1:])
    assert TOKEN not in str(seen.headers)
    assert cookie_of(log_in(visitor)) != cookie_of(seen)


def test_logout_ends_one_session(broker: Embedded) -> None:
    assert broker.control_url
    one, other = Known(broker.control_url), Known(broker.control_url)
    seen = one.request("POST", "/logout", "")
    assert (seen.status, seen.headers["Location"]) == (303, "/login")
    assert one.request("GET", "/").status == 401 and other.request("GET", "/").status == 200


def test_wrong_token_in_the_form_is_refused(visitor: Visitor) -> None:
    seen = log_in(visitor, "guess" * 5, wanted="/topics", status=401)
    assert faults_of(seen.document) == [] and "not that of this broker" in seen.document.one("main").text
    assert "Set-Cookie" not in seen.headers and "guess" not in seen.text
    assert 'value="/topics"' in seen.text


def test_login_reads_a_small_form_only(visitor: Visitor) -> None:
    log_in(visitor, "x" * 20_000, status=413)
    log_in(visitor, TOKEN, wanted="/" + "x" * 15_000)


def test_form_of_another_site_is_refused(visitor: Visitor) -> None:
    log_in(visitor, status=403, Origin="http://evil.example")
    log_in(visitor, status=403, Sec_Fetch_Site="cross-site")
    log_in(visitor, status=403, Host="rebind.example.org")


@pytest.mark.parametrize(
    "wanted",
    ["//evil.example", "/\\evil.example", "http://evil.example/", "evil", "", "/a\r\nSet-Cookie: a=b", "/é", "/login"],
)
def test_login_leads_to_no_other_site(visitor: Visitor, wanted: str) -> None:
    seen = log_in(visitor, wanted=wanted)
    assert seen.headers["Location"] == "/" and seen.headers.get_all("Set-Cookie") == [seen.headers["Set-Cookie"]]


def test_sessions_are_bounded() -> None:
    access = Access(ControlOptions(token=TOKEN), port=1)
    cookies = [{access.cookie: access.begin(TOKEN) or ""} for _ in range(MAX_SESSIONS + 2)]
    assert [access.has_session(one) for one in cookies[:3]] == [False, False, True]
    assert access.has_session(cookies[-1]) and not access.has_session({access.cookie: TOKEN})


# Where a token comes from


def test_token_comes_from_a_file_or_the_environment(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    other = "other-0123456789"
    environ = {"OTTLA_CONTROL_TOKEN": other, "OTTLA_CONTROL_TOKEN_FILE": str(file)}
    assert given_token(str(file), environ) == TOKEN
    assert given_token(None, environ) == other
    assert given_token(None, {**environ, "OTTLA_CONTROL_TOKEN": ""}) == TOKEN
    assert given_token(None, {}) is None
    flags = [*FLAGS, "--control", "127.0.0.1:0"]
    for more, variables in (([], {"OTTLA_CONTROL_TOKEN": TOKEN}), (["--control-token-file", str(file)], environ)):
        options = parse_serve([*flags, *more], variables)[0]
        assert options.control is not None and options.control.token == TOKEN
        assert TOKEN not in repr(options)


@pytest.mark.parametrize("text", ["", "short", "x" * 513, "with blanks in the middle", "umlaut-äöüäöüäöü", "a=b" * 9])
def test_unfit_token_is_refused_without_showing_it(text: str, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(text)
    with pytest.raises(ConfigError, match="a token has 16 to 512 characters") as refusal:
        given_token(str(file), {})
    assert not text or text not in str(refusal.value)
    with pytest.raises(ConfigError, match="a token has 16 to 512 characters"):
        Embedded(control="127.0.0.1:0", control_token=text)


@pytest.mark.parametrize(
    ("flags", "line"),
    [
        (
            ["--control-token", TOKEN],
            "unknown flag --control-token; did you mean --control-token-file FILE, or the var",
        ),
        (["--control-token-file", "none"], "--control-token-file none: No such file or directory"),
        (["--control-tls-cert", "none"], "--control-tls-cert and --control-tls-key belong together"),
        (["--control-tls-cert", "none", "--control-tls-key", "none"], "--control-tls-cert none: No such file"),
    ],
)
def test_unfit_flags_are_one_line(flags: list[str], line: str, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        with pytest.raises(ConfigError) as refusal:
            parse_serve([*FLAGS, "--control", "127.0.0.1:0", *flags], {})
        error = str(refusal.value)
    except SystemExit:
        error = capsys.readouterr().err
    assert line in error and TOKEN not in error


def test_flags_of_access_need_a_control_plane() -> None:
    for flags in (["--control-open-metrics"], ["--control-token-file", "t"], ["--control-tls-cert", "c"]):
        with pytest.raises(ConfigError, match=f"{flags[0]} needs --control HOST:PORT"):
            parse_serve([*FLAGS, *flags], {})
    with pytest.raises(ValueError, match="control_token needs control"):
        Embedded(control_token=TOKEN)


def test_commands_take_the_token(broker: Embedded, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "token"
    file.write_text(TOKEN)
    address = {"OTTLA_CONTROL": str(broker.control_url)}
    assert ctl(["topics"], address | {"OTTLA_CONTROL_TOKEN": TOKEN}) == 0
    assert ctl(["--control-token-file", str(file), "topics"], address) == 0
    assert capsys.readouterr().out.count("orders") == 2
    assert ctl(["topics"], address) == 2
    assert ctl(["topics"], address | {"OTTLA_CONTROL_TOKEN": "x" * 16}) == 2
    assert ctl(["topics"], address | {"OTTLA_CONTROL_TOKEN": "x"}) == 2
    first, second, third = capsys.readouterr().err.splitlines()
    assert first.startswith("ottla ctl: this control plane needs its token; ") and "--control-token-file" in first
    assert second.startswith("ottla ctl: the token is not that of this control plane; ")
    assert third.startswith("ottla ctl: OTTLA_CONTROL_TOKEN: a token has 16 to 512 characters")
    once = ["--once", "--interval", "0.1"]
    assert top(once, address | {"OTTLA_CONTROL_TOKEN": TOKEN}) == 0
    assert top(once, address) == 2
    assert "needs its token" in capsys.readouterr().err
    record = ["--group", "g", "--topic", "orders", "--partition", "0", "--offset", "0"]
    record += ["--control", str(broker.control_url)]
    assert explain([*record, "--control-token-file", str(file)]) == 2
    assert "there is no share group g" in capsys.readouterr().err
    assert explain(record) == 2
    assert "needs its token" in capsys.readouterr().err


def test_redirect_does_not_get_the_token(capsys: pytest.CaptureFixture[str]) -> None:
    seen: list[str | None] = []

    class Elsewhere(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append(self.headers["Authorization"])
            self.send_response(302 if len(seen) == 1 else 404)
            self.send_header("Location", f"http://127.0.0.1:{server.server_port}/elsewhere")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None: ...

    with http.server.HTTPServer(("127.0.0.1", 0), Elsewhere) as server:
        threading.Thread(target=server.serve_forever).start()
        environ = {"OTTLA_CONTROL": str(server.server_port), "OTTLA_CONTROL_TOKEN": TOKEN}
        assert ctl(["health"], environ) == 2
        server.shutdown()
    assert seen == [f"Bearer {TOKEN}", None]


# TLS


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("certificates")
    authority = trustme.CA()
    one = authority.issue_cert("127.0.0.1")
    authority.cert_pem.write_to_path(folder / "ca.pem")
    one.private_key_pem.write_to_path(folder / "key.pem")
    for number, part in enumerate(one.cert_chain_pems):
        part.write_to_path(folder / "cert.pem", append=number > 0)
    return {path.stem: str(path) for path in folder.iterdir()}


@pytest.mark.process
def test_serve_with_tls_and_a_token(
    certificates: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "token").write_text(TOKEN)
    flags = ["--control", "127.0.0.1:0", "--control-token-file", "token", "--control-open-metrics"]
    flags += ["--control-tls-cert", certificates["cert"], "--control-tls-key", certificates["key"]]
    with serving(tmp_path, *FLAGS, *flags, listeners=2) as (process, lines):
        url = lines[1].removeprefix("ottla control on ")
        assert url.startswith("https://127.0.0.1:")
        environ = {"OTTLA_CONTROL": url, "OTTLA_CONTROL_TOKEN": TOKEN, "OTTLA_CONTROL_CA": certificates["ca"]}
        assert ctl(["topics", "create", "t"], environ) == 0
        assert ctl(["health"], {**environ, "OTTLA_CONTROL_CA": ""}) == 1
        assert "is not trusted: " in capsys.readouterr().err
        assert ctl(["--control-ca", certificates["key"], "health"], environ) == 2
        assert "no certificates in PEM" in capsys.readouterr().err
        assert ctl(["health"], {**environ, "OTTLA_CONTROL": url.replace("https", "http")}) == 1
        context = ssl.create_default_context(cafile=certificates["ca"])
        with urllib.request.urlopen(f"{url}/metrics", timeout=PATIENCE_S, context=context) as response:
            assert response.status == 200
        form = urllib.request.Request(f"{url}/login", f"token={TOKEN.replace('+', '%2B')}".encode())
        form.add_header("User-Agent", "Mozilla/5.0")
        form.add_header("Origin", url)
        opener = urllib.request.build_opener(Stay(), urllib.request.HTTPSHandler(context=context))
        with pytest.raises(urllib.error.HTTPError) as moved, opener.open(form, timeout=PATIENCE_S):
            pass
        with moved.value as response:
            assert response.status == 303 and "; Secure" in response.headers["Set-Cookie"]
        process.send_signal(signal.SIGTERM)
        out, error = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, out) == (0, ""), error
    assert TOKEN not in error and "Traceback" not in error


class Stay(urllib.request.HTTPRedirectHandler):
    """Follows no redirect."""

    def redirect_request(self, *arguments: Any, **more: Any) -> None:
        return None


@pytest.mark.process
def test_serve_prints_the_token_that_it_generates(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with serving(tmp_path, *FLAGS, "--control", "0.0.0.0:0", listeners=3) as (process, lines):
        url = lines[1].removeprefix("ottla control on ")
        token = lines[2].removeprefix("ottla control token ")
        assert ctl(["health"], {"OTTLA_CONTROL": url, "OTTLA_CONTROL_TOKEN": token}) == 0
        assert ctl(["health"], {"OTTLA_CONTROL": url}) == 2
        process.terminate()
        out, error = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, out) == (0, "") and token not in error


def test_unfit_certificates_are_refused(certificates: dict[str, str], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"--control-tls-cert .*ca.pem, --control-tls-key .*key.pem: key values mism"):
        server_context(certificates["ca"], certificates["key"])
    (tmp_path / "empty").write_text("")
    with pytest.raises(ConfigError, match=r"no certificate and key in PEM|no start line|pem lib"):
        server_context(str(tmp_path / "empty"), certificates["key"])


@pytest.mark.process
def test_encrypted_key_is_refused_without_a_question(certificates: dict[str, str], tmp_path: Path) -> None:
    from cryptography.hazmat.primitives import serialization as pem

    key: Any = pem.load_pem_private_key(Path(certificates["key"]).read_bytes(), None)
    secret = pem.BestAvailableEncryption(b"secret")
    encrypted = key.private_bytes(pem.Encoding.PEM, pem.PrivateFormat.PKCS8, secret)
    (tmp_path / "key.pem").write_bytes(encrypted)
    flags = ["--control-tls-cert", certificates["cert"], "--control-tls-key", "key.pem"]
    assert "the key is encrypted" in refused(tmp_path, *FLAGS, "--control", "127.0.0.1:0", *flags)
    assert [path.name for path in tmp_path.iterdir()] == ["key.pem"]


def test_document_has_the_scheme_and_the_status() -> None:
    found = document(ROUTES)
    ((name, scheme),) = found["components"]["securitySchemes"].items()
    assert (scheme["type"], scheme["scheme"]) == ("http", "bearer") and {name: []} in found["security"]
    assert all("401" in one["responses"] for methods in found["paths"].values() for one in methods.values())


def test_token_is_not_on_a_command_line() -> None:
    """Other users of a machine can read command lines."""
    flags = {flag for action in serve_parser()._actions for flag in action.option_strings}
    assert "--control-token-file" in flags and not any(flag.endswith("-token") for flag in flags)
