"""The pages by which web servers list a folder, as nginx 1.22 and Apache httpd 2.4 show them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ottla.pipeline.objects import web
from ottla.pipeline.objects.places import Place, StoreError
from ottla_testing.certificates import Authority
from ottla_testing.pipeline.web_server import WebServer, web_server

NGINX = """<html>
<head><title>Index of /d/</title></head>
<body>
<h1>Index of /d/</h1><hr><pre><a href="../">../</a>
<a href="a%20b-0/">a b-0/</a>                                             28-Nov-2026 08:44                   -
<a href="t-0/">t-0/</a>                                               28-Nov-2026 08:44                   -
<a href="meta.properties">meta.properties</a>                                    28-Nov-2026 08:44                   2
<a href="we%2520ird.x">we%20ird.x</a>                                         28-Nov-2026 08:44                   4
</pre><hr></body>
</html>
"""
HTTPD = """<!DOCTYPE HTML PUBLIC "-//W3C//DTD HTML 4.01//EN" "http://www.w3.org/TR/html4/strict.dtd">
<html>
 <body>
<pre>      <a href="?C=N;O=D">Name</a>              <a href="?C=M;O=A">Last modified</a>
<a href="?C=S;O=A">Size</a><hr>      <a href="/">Parent Directory</a>                             -
      <a href="a%20b-0/">a b-0/</a>                  2026-11-28 08:44    -
      <a href="t-0/">t-0/</a>                    2026-11-28 08:44    -
      <a href="meta.properties">meta.properties</a>         2026-11-28 08:44    2
      <a href="we%2520ird.x">we%20ird.x</a>              2026-11-28 08:44    4
<hr></pre>
</body></html>
"""


@contextmanager
def shown(folder: Path) -> Iterator[WebServer]:
    """Serves two files and a folder with one."""
    (folder / "t-0").mkdir()
    for name in ("a b", "x%20y", "t-0/z"):
        (folder / name).write_bytes(name.encode())
    (folder / "empty").touch()
    with web_server(folder) as server:
        yield server


@pytest.mark.parametrize("page", [NGINX, HTTPD])
def test_names_on_a_page(page: str) -> None:
    assert web.linked(page, "http://h:1/d/") == ["a b-0/", "t-0/", "meta.properties", "we%20ird.x"]


@pytest.mark.parametrize(
    "link",
    [
        "../x",
        "/x",
        "/d/",
        ".",
        "a/b",
        "x?y",
        "//other/d/x",
        "https://h/d/x",
        "http://[",
        "%2e%2e/",
        "a%2Fb",
        "#top",
        "",
    ],
)
def test_links_to_elsewhere_are_no_names(link: str) -> None:
    page = f'<a href="{link}">x</a><a>y</a><a name="z"><a href="/d/kept">kept</a><a href="http://h/d/too/">too</a>'
    assert web.linked(page, "http://h/d/") == ["kept", "too/"]


def test_objects_of_a_server(tmp_path: Path) -> None:
    with shown(tmp_path) as server:
        files = Place.of(server.url).files()
        assert files.entries(server.url) == {"t-0": None, "a b": 3, "empty": 0, "x%20y": 5}
        assert [(one.path.removeprefix(server.url), one.size_bytes) for one in files.below(server.url)] == [
            ("/a b", 3),
            ("/empty", 0),
            ("/t-0/z", 5),
            ("/x%20y", 5),
        ]
        assert files.read_bytes(f"{server.url}/x%20y") == b"x%20y"


def test_objects_of_a_server_with_a_certificate_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web, "PAUSES_S", ())
    authority = Authority(tmp_path / "certificates")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a").write_bytes(b"text")
    with web_server(tmp_path / "data", authority.issue("server")) as server:
        trusted = authority.trusted
        for conf in (
            {"root_certificate": trusted.read_text()},
            {"root_certificate": str(trusted)},
            {"allow_invalid_certificates": "true"},
        ):
            files = Place.of(server.url, conf).files()
            assert files.entries(server.url) == {"a": 4} and files.read_bytes(f"{server.url}/a") == b"text"
        with pytest.raises(OSError, match="certificate verify failed"):
            Place.of(server.url).files().entries(server.url)


def test_certificates_that_cannot_be_used(tmp_path: Path) -> None:
    for path, problem in (
        (tmp_path / "none", "No such file or directory"),
        (tmp_path, "Is a directory"),
        (Path(__file__), "no certificate in PEM format"),
    ):
        with pytest.raises(StoreError, match=f"root_certificate {path}.*{problem}"):
            Place.of("https://host/logs", {"root_certificate": str(path)})


def test_folders_in_one_another_without_end(tmp_path: Path) -> None:
    (tmp_path / "up").symlink_to(tmp_path)
    with web_server(tmp_path) as server, pytest.raises(OSError, match="there are more than 16 folders in one another"):
        list(Place.of(server.url).files().below(server.url))


def test_errors_of_a_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    with shown(tmp_path) as server:
        server.failing = {"GET /t-0/"}
        assert web.names(f"{server.url}/t-0", {}, pause=pauses.append) == ["z"] and len(pauses) == 1
        with pytest.raises(FileNotFoundError, match="there is no object"):
            web.names(f"{server.url}/none", {})
        (tmp_path / "index.html").write_text("welcome")
        with pytest.raises(FileNotFoundError, match="the web server shows no list of files"):
            web.names(server.url, {})
        (tmp_path / "index.html").write_text("<a href='x'>" * 10)
        monkeypatch.setattr(web, "PAGE_BYTES_MAX", 100)
        with pytest.raises(OSError, match="the list of files has more than 100 bytes"):
            web.names(server.url, {})
        with pytest.raises(PermissionError, match="the web server refuses the list of files"):
            server.refusing = True
            web.names(server.url, {})
    with pytest.raises(OSError, match="refused"):
        web.names(server.url, {}, pause=pauses.append)
    assert pauses[1:] == list(web.PAUSES_S)
