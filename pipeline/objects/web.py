"""The names in a folder that a web server shows: `names`.

The server's page of the folder has a link for each file and folder in it: `autoindex` of nginx, `mod_autoindex` of
Apache httpd, `http.server` of Python. The objects themselves are read by `files`.
"""

from __future__ import annotations

import errno
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from html.parser import HTMLParser
from http.client import HTTPException
from typing import Any
from urllib.parse import unquote, urljoin, urlsplit

PAGE_BYTES_MAX = 64 << 20
TIMEOUT_S = 60.0
PAUSES_S = (0.1, 0.5, 2.0)
"""Before the repetitions of a request that found no server, or an error of the server."""

SCHEMES = ("http://", "https://")


def names(url: str, settings: Mapping[str, Any], *, pause: Callable[[float], object] = time.sleep) -> list[str]:
    """Returns the names in a folder, those of folders with a "/" at their end. Of `settings`, those of the objects'
    client, only `root_certificate` and `allow_invalid_certificates` apply. Raises FileNotFoundError if there is no
    such folder or no list of it, OSError."""
    context = _context(settings) if url.lower().startswith("https:") else None
    for again in (*PAUSES_S, None):
        try:
            with urllib.request.urlopen(f"{url}/", timeout=TIMEOUT_S, context=context) as response:
                page, base = response.read(PAGE_BYTES_MAX + 1), response.geturl()
            break
        except urllib.error.HTTPError as error:
            with error:
                if error.code in (404, 410):
                    raise FileNotFoundError(errno.ENOENT, "there is no object", url) from None
                if error.code in (401, 403):
                    raise PermissionError(errno.EACCES, "the web server refuses the list of files", url) from None
                problem = f"the web server failed: status {error.code}"
                if error.code < 500 and error.code != 429:
                    raise OSError(errno.EIO, problem, url) from None
        except (OSError, HTTPException) as error:
            problem = str(getattr(error, "reason", error)) or type(error).__name__
        if again is None:
            raise OSError(errno.EIO, problem, url)
        pause(again)
    if len(page) > PAGE_BYTES_MAX:
        raise OSError(errno.EFBIG, f"the list of files has more than {PAGE_BYTES_MAX} bytes", url)
    found = linked(page.decode(errors="replace"), base)
    if not found:
        raise FileNotFoundError(errno.ENOENT, "the web server shows no list of files", url)
    return found


def linked(page: str, base: str) -> list[str]:
    """Returns the names directly below a URL that its page has links to, each once. Links to elsewhere, such as those
    to the folder above and to another order of the list, are no names."""
    links = _Links()
    links.feed(page)
    root = urlsplit(base)
    found: dict[str, None] = {}
    for link in links.found:
        try:
            url = urlsplit(urljoin(base, link))
        except ValueError:
            continue
        if url[:2] != root[:2] or url.query or not url.path.startswith(root.path):
            continue
        name, slash, rest = url.path[len(root.path) :].partition("/")
        name = unquote(name)
        if name not in ("", ".", "..") and "/" not in name and not rest:
            found[name + slash] = None
    return list(found)


def _context(settings: Mapping[str, Any]) -> ssl.SSLContext:
    context = ssl.create_default_context()
    if root := settings.get("root_certificate"):
        context.load_verify_locations(cadata=bytes(root).decode("ascii", "ignore"))  # bytes would be DER
    if str(settings.get("allow_invalid_certificates")).lower() == "true":
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


class _Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "a":
            self.found.extend(value for name, value in attrs if name == "href" and value)
