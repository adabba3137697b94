"""Which requests of browsers the control plane serves: those of its own page, and of nobody else's.

Owns the judgement; pure. The control plane asks nobody who they are, so a page of another site that is open in a
browser on this machine must not reach it. It could try in two ways: by asking across origins, which a browser tells in
`Origin` and `Sec-Fetch-Site`; or under a name of its own that it has resolve to this machine (DNS rebinding), where
`Host` is that name. Programs that are no browsers (curl, Java, Node.js, `ottla ctl`) are let through: they could say
anything.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from urllib.parse import urlsplit

READING = ("GET", "HEAD")
LOCAL_SUFFIXES = (".local", ".internal", ".localhost", ".test")  # of no public name: nobody can have them resolve
_DEFAULT_PORTS = {"http": 80, "https": 443}


def is_browser(headers: Mapping[str, str]) -> bool:
    """Whether a page's script or a person with a browser may have sent these headers.

    A script may choose its User-Agent in some browsers, but cannot take Accept-Language away, nor add the Sec-Fetch
    headers; Node.js sends the first and one of the others, never Sec-Fetch-Site.
    """
    if headers.get("User-Agent", "").startswith("Mozilla/"):
        return True
    if any(name in headers for name in ("Origin", "Referer", "Sec-Fetch-Site")):
        return True
    return "Accept-Language" in headers and "Sec-Fetch-Mode" not in headers


def refusal(method: str, headers: Mapping[str, str], bound_host: str, *, may_write: bool) -> str | None:
    """Why a request is not served; None if it is. `bound_host` is where the control plane listens; `may_write` whether
    browsers may change something."""
    origin = headers.get("Origin")
    host = headers.get("Host", "")
    if origin is not None and not _is_own(origin, host):
        return "pages of other sites are not served"
    if not is_browser(headers):
        return None
    if not is_known_host(host, bound_host):
        return f"{host} is no name that this control plane is known by; ask for its address"
    if method in READING:
        return None
    if headers.get("Sec-Fetch-Site", "same-origin") not in ("same-origin", "none"):
        return "pages of other sites are not served"
    if not may_write:
        return "browsers may only read here: `--control-write` lets the page change something"
    if origin is None:
        return "a browser that changes something has to say whose page it shows (Origin)"
    return None


def _is_own(origin: str, host: str) -> bool:
    """Whether an Origin is that of the page which this Host serves, also behind a proxy that speaks TLS."""
    try:
        parts = urlsplit(origin)
        default = _DEFAULT_PORTS[parts.scheme]
        theirs = (parts.hostname, parts.port or default)
        own = urlsplit(f"//{host}")
        return bool(own.hostname) and theirs == (own.hostname, own.port or default)
    except (ValueError, KeyError):  # "null", or no URL at all
        return False


def is_known_host(host: str, bound_host: str) -> bool:
    """Whether a Host is an address, or a name that no stranger can have resolve to this machine."""
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
