"""Decides which requests of browsers the control plane serves: those of its own pages only. Pure.

On a loopback address the control plane needs no token, so a page of another site, open in a browser on this machine,
must not reach it. Such a page has two ways. It can send a request across origins, which the browser reports in `Origin`
and `Sec-Fetch-Site`. Or it can let a name of its own resolve to this machine (DNS rebinding); then `Host` is that name.
Other programs (curl, Java, Node.js, `ottla ctl`) are served: they can send any header.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from urllib.parse import urlsplit

READING = ("GET", "HEAD")
LOCAL_SUFFIXES = (".local", ".internal", ".localhost", ".test")  # reserved: no public DNS server resolves them
_DEFAULT_PORTS = {"http": 80, "https": 443}


def is_browser(headers: Mapping[str, str]) -> bool:
    """Returns whether a page's script or a person with a browser may have sent these headers.

    In some browsers a script may set its User-Agent, but no script can remove Accept-Language or set the Sec-Fetch
    headers. Node.js sends Accept-Language and Sec-Fetch-Mode, never Sec-Fetch-Site.
    """
    if headers.get("User-Agent", "").startswith("Mozilla/"):
        return True
    if any(name in headers for name in ("Origin", "Referer", "Sec-Fetch-Site")):
        return True
    return "Accept-Language" in headers and "Sec-Fetch-Mode" not in headers


def refusal(method: str, headers: Mapping[str, str], bound_host: str, *, may_write: bool) -> str | None:
    """Returns why a request is refused; None if it is served. `bound_host` is the address of the control plane;
    `may_write` whether browsers may change the broker."""
    origin = headers.get("Origin")
    host = headers.get("Host", "")
    if origin is not None and not _is_own(origin, host):
        return "requests from pages of other sites are refused"
    if not is_browser(headers):
        return None
    if not is_known_host(host, bound_host):
        return f"{host} is not a name of this control plane; use its IP address"
    if method in READING:
        return None
    if headers.get("Sec-Fetch-Site", "same-origin") not in ("same-origin", "none"):
        return "requests from pages of other sites are refused"
    if not may_write:
        return "browsers may only read: start the broker with `--control-write` to allow changes"
    if origin is None:
        return "a change from a browser needs the header Origin"
    return None


def _is_own(origin: str, host: str) -> bool:
    """Returns whether an Origin is that of the page at this Host, also through a proxy that terminates TLS."""
    try:
        parts = urlsplit(origin)
        default = _DEFAULT_PORTS[parts.scheme]
        theirs = (parts.hostname, parts.port or default)
        own = urlsplit(f"//{host}")
        return bool(own.hostname) and theirs == (own.hostname, own.port or default)
    except (ValueError, KeyError):  # "null", or not a URL
        return False


def is_known_host(host: str, bound_host: str) -> bool:
    """Returns whether a Host is an address, or a name that no outsider can make resolve to this machine."""
    try:
        name = urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return False
    name = name.rstrip(".")
    if not name or name == bound_host.lower() or ("." not in name and ":" not in name):
        return bool(name)
    try:
        ipaddress.ip_address(name.partition("%")[0])
    except ValueError:
        return name.endswith(LOCAL_SUFFIXES)
    return True
