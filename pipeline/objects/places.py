"""The URLs of objects, and the settings of a store: `Place`.

Credentials are read from the environment of each process, by the rules of the store's library, so they are in no plan,
task or report: settings with secrets are refused.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from ...storage.io.files import Files, SharedFiles
from ..backend import ReadError
from ..extras import needed

if TYPE_CHECKING:
    from .files import ObjectFiles

WRITABLE = ("s3", "s3a", "gs", "az", "azure", "abfs", "abfss")
READABLE = (*WRITABLE, "http", "https")
TIERED = "tiered:"
"""What the path of a log with remote segments begins with, see `tiered`."""

_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_SECRET = re.compile(r"secret|token|password|access_key|account_key|service_account_key|sas|credential", re.IGNORECASE)
_CLIENT = frozenset(
    "allow_http allow_invalid_certificates connect_timeout read_timeout root_certificate timeout user_agent".split()
)
_FLAGS = frozenset({"allow_http", "allow_invalid_certificates"})
_RETRY = frozenset({"max_retries", "retry_timeout"})
_DEFAULTS = {"timeout": "60s", "connect_timeout": "10s"}
MAX_RETRIES = 5
RETRY_TIMEOUT_S = 60

Conf = tuple[tuple[str, str], ...]
"""Settings of a store as pairs, ascending."""


class StoreError(ReadError):
    """A URL or a setting of an object store is not valid. The message is one sentence."""


def is_url(path: str) -> bool:
    """Returns whether a path is the URL of objects, or of a log with remote segments, and not a folder of this
    machine."""
    if path.startswith(TIERED):
        return True
    match = _URL.match(path)
    return match is not None and match[1].lower() in READABLE


def local_path(path: str) -> str | None:
    """Returns the local path of a path or a file: URL; None for the URL of another file system."""
    if not re.match(r"[A-Za-z][A-Za-z0-9+.-]+:", path):
        return path
    url = urlsplit(path)
    return unquote(url.path) if url.scheme.lower() == "file" and url.netloc in ("", "localhost") else None


@dataclass(frozen=True, slots=True)
class Place:
    """A prefix in a store, and the settings of the store; picklable, without credentials."""

    url: str
    conf: Conf = ()

    @classmethod
    def of(cls, url: str, conf: Mapping[str, str] | Iterable[tuple[str, str]] = (), *, writes: bool = False) -> Place:
        """Checks a URL and settings. `writes`: the store must be one that can be written. Raises StoreError,
        MissingExtra."""
        settings = dict(conf)
        for name in settings:
            if _SECRET.search(name):
                raise StoreError(f"{name} is not a setting: credentials come from the environment of the processes")
        if root := settings.get("root_certificate"):
            settings["root_certificate"] = _certificates(root)
        pairs = tuple(sorted(settings.items()))
        if url.startswith(TIERED):
            raise StoreError(f"{url}: logs with tiered storage can only be read, as logs")
        found = urlsplit(url)
        if found.password or found.query or found.fragment:
            raise StoreError(f"{found.scheme}://{found.hostname} with a password or a query is not supported")
        if not found.netloc:
            raise StoreError(f"{url} names no bucket: it must be like s3://bucket/prefix")
        if writes and found.scheme.lower() not in WRITABLE:
            raise StoreError(f"{url} can only be read: objects are written to {', '.join(WRITABLE)}")
        made = cls(url.rstrip("/"), pairs)
        _store(made)
        return made

    def files(self) -> ObjectFiles:
        """Returns the objects here, without a lock; all callers of a process share one client. Raises StoreError,
        MissingExtra."""
        store = _store(self)
        from .files import ObjectFiles

        return ObjectFiles(self.url, store)

    def options(self) -> dict[str, str]:
        """Returns the settings for libraries that take one map of them, such as deltalake."""
        options = {name: value for name, value in self.conf if name not in _RETRY}
        if options.pop("anonymous", "").lower() == "true":
            options["skip_signature"] = "true"
        if any(name.endswith("endpoint") and value.startswith("http://") for name, value in self.conf):  # without TLS
            options.setdefault("allow_http", "true")
        return options


def files_of(place: Place | None) -> Files:
    """Returns the objects of a place, or the files of folders."""
    return SharedFiles() if place is None else place.files()


def _certificates(given: str) -> str:
    """Returns the certificates of a file, or those that are given as text: workers may not have the file."""
    if "-----BEGIN" in given:
        return given
    try:
        text = Path(given).read_text(errors="replace")
    except OSError as error:
        raise StoreError(f"root_certificate {given}: {error.strerror or error}") from None
    if "-----BEGIN" not in text:
        raise StoreError(f"root_certificate {given} has no certificate in PEM format")
    return text


@functools.lru_cache(maxsize=64)
def _store(place: Place) -> Any:
    with needed():
        from obstore import store as stores
        from obstore.exceptions import BaseError
    options = place.options()
    client: dict[str, Any] = {**_DEFAULTS, **{name: options.pop(name) for name in _CLIENT & options.keys()}}
    if place.url.lower().startswith("http://"):
        client.setdefault("allow_http", "true")
    for name in _FLAGS & client.keys():
        client[name] = str(client[name]).lower() == "true"
    try:
        given = dict(place.conf)
        retry: Any = {
            "max_retries": int(given.get("max_retries", MAX_RETRIES)),
            "retry_timeout": timedelta(seconds=float(given.get("retry_timeout", RETRY_TIMEOUT_S))),
        }
        more: Any = {"config": options} if options else {}
        return stores.from_url(place.url, client_options=client, retry_config=retry, **more)  # type: ignore[arg-type]
    except (BaseError, ValueError, TypeError) as error:
        text = str(error).partition("\n")[0]
        raise StoreError(f"{place.url} cannot be used with these settings: {text}") from None
