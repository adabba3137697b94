"""Access to the web pages: forms of their own origin are accepted, pages of other sites and foreign host names are
refused."""

from __future__ import annotations

import itertools
import json
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from ottla.broker import Embedded
from ottla.broker.control import browsers
from ottla.broker.errors import ConfigError
from ottla.tools.serve import parse_serve
from ottla_testing.broker.paged import HURTFUL, Seen, Visitor
from ottla_testing.each import each
from ottla_testing.patience import PATIENCE_S

CHROME = {"User-Agent": "Mozilla/5.0 (X11; Linux x86_64) Chrome/140", "Accept-Language": "en"}
# The headers that these programs send for http://HOST/.
PROGRAMS: dict[str, dict[str, str]] = {
    "curl": {"User-Agent": "curl/7.88.1", "Accept": "*/*"},
    "urllib": {"User-Agent": "Python-urllib/3.11", "Accept-Encoding": "identity"},
    "java": {"User-Agent": "Java-http-client/17.0.9", "Connection": "Upgrade, HTTP2-Settings"},
    "old java": {"User-Agent": "Java/17.0.9", "Accept": "text/html, image/gif, image/jpeg, */*; q=0.2"},
    "go": {"User-Agent": "Go-http-client/1.1", "Accept-Encoding": "gzip"},
    "node": {"User-Agent": "node", "Accept": "*/*", "Accept-Language": "*", "Sec-Fetch-Mode": "cors"},
    "none": {},
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_are_served_under_any_host(name: str) -> None:
    for host, may_write in itertools.product(("broker.example.com:9080", "127.0.0.1:9080"), (False, True)):
        for method in ("GET", "POST", "DELETE"):
            headers = PROGRAMS[name] | {"Host": host}
            assert browsers.refusal(method, headers, "0.0.0.0", may_write=may_write) is None


@each(
    ("host", "is_known"),
    [
        ("127.0.0.1:9080", True),
        ("[::1]:9080", True),
        ("[fe80::1%25eth0]:9080", True),
        ("192.168.1.7", True),
        ("localhost:9080", True),
        ("LOCALHOST.:9080", True),
        ("ottla:9080", True),
        ("box.local", True),
        ("host.docker.internal:9080", True),
        ("a.b.test", True),
        ("x.localhost", True),
        ("broker.example.com:9080", True),  # the address on which it listens
        ("rebind.example.org:9080", False),
        ("127.0.0.1.nip.io:9080", False),
        ("1.2.3", False),
        ("0x7f.1", False),
        ("local", True),
        ("evillocal.example", False),
        ("", False),
        (":9080", False),
        ("[::1", False),
        ("a b.c", False),
    ],
)
def test_browser_is_served_under_local_names_only(host: str, is_known: bool) -> None:
    headers = CHROME | {"Host": host}
    assert (browsers.refusal("GET", headers, "Broker.Example.com", may_write=False) is None) is is_known


@each(
    ("origin", "host", "is_own"),
    [
        ("http://127.0.0.1:9080", "127.0.0.1:9080", True),
        ("https://localhost:9080", "localhost:9080", True),  # through a proxy
        ("http://localhost", "localhost:80", True),
        ("https://localhost", "localhost:443", True),
        ("http://[::1]:9080", "[::1]:9080", True),
        ("http://localhost:9081", "localhost:9080", False),
        ("http://127.0.0.1:9080", "localhost:9080", False),
        ("http://localhost:9080.example.org", "localhost:9080", False),
        ("http://evil.example", "localhost:9080", False),
        ("null", "localhost:9080", False),
        ("file://", "localhost:9080", False),
        ("http://localhost:99999", "localhost:9080", False),
        ("", "", False),
    ],
)
@each("method", ["GET", "POST"])
@each("program", ["curl", "chrome"])
def test_foreign_origin_is_refused(origin: str, host: str, is_own: bool, method: str, program: str) -> None:
    headers = (CHROME if program == "chrome" else PROGRAMS["curl"]) | {"Host": host, "Origin": origin}
    assert (browsers.refusal(method, headers, "127.0.0.1", may_write=True) is None) is is_own


def test_headers_of_scripts_identify_a_browser() -> None:
    plain = {"User-Agent": "curl/8", "Host": "evil.example"}
    assert not browsers.is_browser(plain)
    for name in ("Accept-Language", "Referer", "Origin", "Sec-Fetch-Site"):
        assert browsers.is_browser(plain | {name: ""})
        assert browsers.refusal("GET", plain | {name: ""}, "127.0.0.1", may_write=True)


def test_browser_changes_need_the_own_origin_and_control_write() -> None:
    own = CHROME | {"Host": "localhost:1", "Origin": "http://localhost:1"}

    def refusal(headers: dict[str, str], may_write: bool = True) -> str | None:
        return browsers.refusal("POST", headers, "127.0.0.1", may_write=may_write)

    assert refusal(own) is None and refusal(own | {"Sec-Fetch-Site": "same-origin"}) is None
    assert "--control-write" in (refusal(own, may_write=False) or "")
    assert "needs the header Origin" in (refusal({name: own[name] for name in own if name != "Origin"}) or "")
    for site in ("cross-site", "same-site"):
        assert "other sites" in (refusal(own | {"Sec-Fetch-Site": site}) or "")


@pytest.fixture(scope="module")
def reading() -> Iterator[Visitor]:
    with Embedded(control="127.0.0.1:0") as broker:
        broker.create_topic("orders")
        broker.send("orders", "one")
        assert broker.control_url
        yield Visitor(broker.control_url)


def error(seen: Seen, status: int = 403) -> str:
    assert (seen.status, seen.headers["Content-Type"]) == (status, "application/json")
    return json.loads(seen.body)["error"]


def test_read_only_page_has_no_forms_and_refuses_posts(reading: Visitor) -> None:
    for path, page in reading.crawl().items():
        assert all(one.attributes["method"] != "post" for one in page.all("form")), path
    assert "read only" in reading.page("/").one("footer").text
    assert "--control-write" in error(reading.request("POST", "/topics", "name=x"))
    plain: dict[str, Any] = {"Origin": None, "User_Agent": "curl/8", "Accept": "*/*"}
    assert "--control-write" in error(reading.request("POST", "/topics", "name=x", **plain))
    assert [one for one in reading.page("/topics").links if "/x" in one] == []


def test_programs_may_post_and_browsers_may_only_read(reading: Visitor) -> None:
    def send_request(method: str, path: str, body: Any = None, **headers: str) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(reading.url + path, data, headers, method=method)
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as response:
            return json.loads(response.read())

    assert send_request("POST", "/v1/topics", {"name": "made"})["name"] == "made"
    assert send_request("DELETE", "/v1/topics/made") == {"removed": 1}
    assert json.loads(reading.request("GET", "/v1/topics").body)["topics"][0]["name"] == "orders"
    assert "--control-write" in error(reading.request("POST", "/v1/topics", "{}"))
    assert "--control-write" in error(reading.request("DELETE", "/v1/topics/orders", Origin=reading.url))
    assert send_request("GET", "/v1/topics")["topics"][0]["name"] == "orders"


def test_foreign_pages_get_an_error_without_facts(reading: Visitor) -> None:
    rebound = reading.request("GET", "/", Host="rebind.example.org:80")
    assert "rebind.example.org:80 is not a name" in error(rebound)
    assert (
        error(reading.request("GET", "/topics/orders", Origin="http://evil.example"))
        == "requests from pages of other sites are refused"
    )
    for name in ("orders", "cluster", "ottla"):
        assert name not in rebound.text
    assert "Access-Control-Allow-Origin" not in rebound.headers
    assert reading.request("OPTIONS", "/v1/topics", Origin="http://evil.example").status == 403
    long = reading.request("GET", "/", Host="a\xe9\x01" + "b" * 300 + ".example")
    assert long.status in (400, 403)


def test_errors_are_json_for_programs_and_escaped_pages_for_browsers(reading: Visitor) -> None:
    for path in (
        "/topics?page=x", "/topics?sort=zzz", "/topics?kind=none", "/requests?slower=soon", "/producers?id=-1",
        "/groups?page=99999999999999999999", f"/topics?q={'x' * 1001}",
    ):  # fmt: skip
        assert reading.page(path, 400).one("h1").text == "Not done"
    from urllib.parse import quote

    hurt = reading.page(f"/topics/{quote(HURTFUL, safe='')}", 404)
    assert "<script>alert(1)</script>" in hurt.one("main").text and "\\u202e" in hurt.one("main").text
    assert reading.request("GET", "/topics/none", Accept="*/*").headers["Content-Type"].startswith("application/json")
    assert reading.request("PUT", "/topics", "", Origin=None, User_Agent="curl/8").status == 405
    assert reading.page("/topics?page=999").all("table")  # the last there is


def test_control_write_flag_needs_the_control_flag() -> None:
    flags = ("--listen", "127.0.0.1:0", "--data-dir", "data")
    for more, may_write in (([], False), (["--control-write"], True)):
        control = parse_serve([*flags, "--control", "127.0.0.1:0", *more], {})[0].control
        assert control is not None and control.may_write is may_write
    with pytest.raises(ConfigError, match="needs --control HOST:PORT"):
        parse_serve([*flags, "--control-write"], {})
