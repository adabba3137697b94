"""The keys that sign tokens: a JSON web key set (JWKS), from a file or a URL, and the choice of a key for a token.

A file is read again when it has changed. A URL is fetched by a thread of its own, at the start, every `refresh_ms`, and
for a key id that the set lacks; until a fetch succeeds the earlier keys stay. Sources: RFC 7517 and 7518, KIP-768,
Kafka's RefreshingHttpsJwks and JwksFileVerificationKeyResolver.
"""

from __future__ import annotations

import asyncio
import json
import os
import stat
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Future
from functools import partial
from types import MappingProxyType
from typing import Any, TypeAlias, cast

from ....protocol.named import NamedTuple
from ....protocol.security.oauthbearer import https_context
from ...clock import Clock, Timer
from ...config.security.oauthbearer import SignedSettings
from ...logs import get_logger

SET_BYTES_MAX = 1 << 20
KEYS_MAX = 1000
FETCH_SECONDS = 10.0
LEAST_BETWEEN_MS = 1000
"""Between two fetches for unknown key ids: their number is the client's choice."""
UNKNOWN_IDS_MAX = 16
UNKNOWN_ID_MS = 60_000
"""For so long no other fetch is made for the same key id."""
UNKNOWN_ID_CHARS = 1000
_RSA = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
_EC = {"P-256": "ES256", "P-384": "ES384", "P-521": "ES512"}
_OCT = {"HS256": 32, "HS384": 48, "HS512": 64}
RSA_BITS_MIN = 2048
_PUBLIC = {"RSA": ("n", "e"), "EC": ("crv", "x", "y"), "OKP": ("crv", "x"), "oct": ("k",)}


class Key(NamedTuple):
    """A key of a set, without private parts. `algorithms` are those that it can verify."""

    key_id: str | None
    algorithms: tuple[str, ...]
    fields: dict[str, str]

    def verifies(self, algorithm: str, signed: bytes, signature: bytes) -> bool:
        """Returns whether the signature is that of this key. Raises ValueError for a key that is no key."""
        from jwt.algorithms import get_default_algorithms

        found = get_default_algorithms()[algorithm]
        try:
            key: Any = found.from_jwk(self.fields)  # pyright: ignore[reportUnknownMemberType]
        except Exception as error:  # PyJWT's errors, and those of cryptography for a point off the curve
            raise ValueError("the key of the token is malformed") from error
        if self.fields["kty"] == "RSA" and key.key_size < RSA_BITS_MIN:
            raise ValueError(f"the key of the token has {key.key_size} bits, less than {RSA_BITS_MIN}")
        if self.fields["kty"] == "oct" and len(key) < _OCT[algorithm]:
            raise ValueError(f"the key of the token has {len(key)} bytes, less than {_OCT[algorithm]}")
        return found.verify(signed, key, signature)


class KeySet:
    """The usable keys of a set."""

    def __init__(self, data: bytes) -> None:
        """Raises ValueError, with one line, unless the data are a set; a key of another kind is left out."""
        try:
            value: Any = json.loads(data)
        except (ValueError, RecursionError):
            raise ValueError("the key set is not JSON") from None
        keys: Any = cast("dict[str, Any]", value).get("keys") if isinstance(value, dict) else None
        if not isinstance(keys, list):
            raise ValueError("the key set has no list of keys")
        entries = cast("list[Any]", keys)
        if len(entries) > KEYS_MAX:
            raise ValueError(f"the key set has {len(entries)} keys, more than {KEYS_MAX}")
        self.keys = [key for entry in entries if (key := _key(entry)) is not None]

    def find(self, key_id: str | None, algorithm: str) -> Key | None:
        """Returns the first key that fits, without a key id of all keys."""
        for key in self.keys:
            if algorithm in key.algorithms and key_id in (None, key.key_id):
                return key
        return None


def _key(entry: Any) -> Key | None:
    """Returns a key for signatures, or None for any other."""
    if not isinstance(entry, dict):
        return None
    found = cast("dict[str, Any]", entry)
    kind, use, operations = found.get("kty"), found.get("use", "sig"), found.get("key_ops", ["verify"])
    if not isinstance(operations, list) or "verify" not in operations:
        return None
    key_id, only = found.get("kid"), found.get("alg")
    if not isinstance(kind, str) or kind not in _PUBLIC or use != "sig":
        return None
    fields = {name: found.get(name) for name in _PUBLIC[kind]}
    if not all(isinstance(text, str) and text for text in fields.values()) or not isinstance(key_id, str | None):
        return None
    able = {"RSA": _RSA, "oct": tuple(_OCT), "OKP": ("EdDSA",) if fields.get("crv") == "Ed25519" else ()}.get(kind)
    if able is None:
        able = (_EC[fields["crv"]],) if fields["crv"] in _EC else ()
    able = tuple(name for name in able if only in (None, name))
    return Key(key_id, able, {"kty": kind, **cast("dict[str, str]", fields)}) if able else None


Fetch: TypeAlias = Callable[[str], Coroutine[Any, Any, bytes]]


class KeyFile:
    """A set in a file. Reading it takes the event loop's time, as the broker's other files do."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._stamp: tuple[int, int, int] | None = None
        self._set: KeySet | None = None

    async def load(self) -> None:
        """Reads the set for the first time. Raises ValueError, one line."""
        try:
            self._read()
        except OSError as error:
            raise ValueError(f"cannot read {self._path}: {error.strerror or error}") from None

    def attach(self, clock: Clock | None) -> None:
        """Does nothing: a file is looked at for each token."""

    def _read(self) -> None:
        found = os.stat(self._path)
        stamp = (found.st_mtime_ns, found.st_size, found.st_ino)
        if stamp == self._stamp:
            return
        if not stat.S_ISREG(found.st_mode):
            raise ValueError(f"{self._path} is not a file")
        with open(self._path, "rb") as file:
            data = file.read(SET_BYTES_MAX + 1)
        if len(data) > SET_BYTES_MAX:
            raise ValueError(f"{self._path} has more than {SET_BYTES_MAX} bytes")
        self._stamp = stamp  # a damaged file is read again when it has changed
        self._set = KeySet(data)

    def find(self, key_id: str | None, algorithm: str) -> Key | None:
        """Returns a key, or None, after another read of a file that has changed."""
        try:
            self._read()
        except (OSError, ValueError) as error:
            get_logger().warning("key set not read", file=self._path, error=str(error))
        return None if self._set is None else self._set.find(key_id, algorithm)


class KeyUrl:
    """A set of a URL with http or https."""

    def __init__(self, settings: SignedSettings, fetch: Fetch | None = None) -> None:
        """`fetch` returns the bytes of a URL, and raises ValueError."""
        self._settings = settings
        self._fetch = fetch or partial(fetched, trust=dict(settings.trust))
        self._set: KeySet | None = None
        self._clock: Clock | None = None
        self._timers: list[Timer] = []
        self._unknown: OrderedDict[str, int] = OrderedDict()  # key id -> time in ms from which on it may be fetched for
        self._not_before_ms = 0
        self._task: asyncio.Task[None] | None = None
        self._ends_ms = 0
        self._failures = 0
        self._is_refreshing = False

    async def load(self) -> None:
        """Fetches the set for the first time. Raises ValueError, one line."""
        self._set = KeySet(await self._fetch(self._settings.keys_url))

    def attach(self, clock: Clock | None) -> None:
        """Refreshes by this clock from now on; with None, no longer."""
        for timer in self._timers:
            timer.cancel()
        if self._task is not None:
            self._task.cancel()
        self._clock, self._timers, self._is_refreshing = clock, [], False
        if clock is not None:
            self._unknown.clear()
            self._not_before_ms = 0
            self._timers.append(clock.call_every(self._settings.refresh_ms, self._refresh))

    def find(self, key_id: str | None, algorithm: str) -> Key | None:
        """Returns a key, or None; a fetch of what may bring an unknown one is begun."""
        found = None if self._set is None else self._set.find(key_id, algorithm)
        if found is None and key_id is not None and self._clock is not None:
            self._look_for(key_id, self._clock.now_ms())
        return found

    def _look_for(self, key_id: str, now_ms: int) -> None:
        if len(key_id) > UNKNOWN_ID_CHARS or self._unknown.get(key_id, now_ms) > now_ms or now_ms < self._not_before_ms:
            return
        self._unknown[key_id] = now_ms + UNKNOWN_ID_MS
        self._unknown.move_to_end(key_id)
        while len(self._unknown) > UNKNOWN_IDS_MAX:
            self._unknown.popitem(last=False)
        self._not_before_ms = now_ms + LEAST_BETWEEN_MS
        self._refresh()

    def _refresh(self) -> None:
        """Begins a refresh unless one is under way: attempts with a growing pause, for `retry_backoff_max_ms`."""
        if self._is_refreshing or self._clock is None:
            return
        self._is_refreshing, self._failures = True, 0
        self._ends_ms = self._clock.now_ms() + self._settings.retry_backoff_max_ms
        self._attempt()

    def _attempt(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._attempted())

    async def _attempted(self) -> None:
        clock = self._clock
        if clock is None:
            return
        try:
            self._set = KeySet(await self._fetch(self._settings.keys_url))
        except ValueError as error:
            get_logger().warning("key set not fetched", url=shown(self._settings.keys_url), error=str(error))
            self._failures += 1
            now_ms = clock.now_ms()
            wait_ms = min(self._settings.retry_backoff_ms << min(self._failures - 1, 30), self._ends_ms - now_ms)
            if wait_ms > 0:
                self._timers[1:] = [clock.call_at(now_ms + wait_ms, self._attempt)]
                return
        else:
            for key in self._set.keys:
                self._unknown.pop(key.key_id or "", None)
        self._is_refreshing = False


KeySource: TypeAlias = KeyFile | KeyUrl


def shown(url: str) -> str:
    """Returns a URL without a name, a password and a query."""
    parts = urllib.parse.urlsplit(url)
    return f"{parts.scheme}://{parts.hostname}{'' if parts.port is None else f':{parts.port}'}{parts.path}"


def source_of(settings: SignedSettings) -> KeySource:
    """Returns the keys of `keys_url`, not yet read."""
    parts = urllib.parse.urlsplit(settings.keys_url)
    return KeyFile(urllib.parse.unquote(parts.path)) if parts.scheme == "file" else KeyUrl(settings)


async def fetched(url: str, trust: Mapping[str, str] = MappingProxyType({})) -> bytes:
    """Fetches a URL by a thread of its own, within FETCH_SECONDS. `trust` has the options of an HTTPS URL.

    Raises ValueError, one line.
    """
    future: Future[bytes] = Future()
    future.set_running_or_notify_cancel()  # the thread sets a result also after the caller was cancelled

    def work() -> None:
        try:
            future.set_result(_get(url, time.monotonic() + FETCH_SECONDS, trust))
        except Exception as error:
            future.set_exception(ValueError(f"cannot fetch the key set: {_cause(error)}"))

    # Not a thread of the loop's executor: asyncio waits for these at the end, also for a server that sends nothing.
    threading.Thread(target=work, name="ottla-keys", daemon=True).start()
    try:
        async with asyncio.timeout(FETCH_SECONDS):
            return await asyncio.wrap_future(future)
    except TimeoutError:
        raise ValueError(f"cannot fetch the key set: no whole response within {FETCH_SECONDS:g} s") from None


def _cause(error: Exception) -> str:
    if isinstance(error, urllib.error.HTTPError):
        error.close()
        return f"HTTP status {error.code}"
    reason = getattr(error, "reason", error)
    return str(getattr(reason, "strerror", None) or reason or type(reason).__name__).replace("\n", " ")[:200]


def _get(url: str, deadline: float, trust: Mapping[str, str]) -> bytes:
    """Reads at most SET_BYTES_MAX bytes, until `deadline`, a time of `time.monotonic`."""
    opener = urllib.request.OpenerDirector()
    is_https = url.lower().startswith("https:")
    transport = urllib.request.HTTPSHandler(context=https_context(trust)) if is_https else urllib.request.HTTPHandler()
    # No proxies, no redirects and no other schemes.
    for handler in (transport, urllib.request.HTTPDefaultErrorHandler(), urllib.request.HTTPErrorProcessor()):
        opener.add_handler(handler)
    request = urllib.request.Request(url, headers={"Accept": "application/json"})
    found = bytearray()
    with opener.open(request, timeout=FETCH_SECONDS / 2) as response:
        while chunk := response.read1(65_536):
            found += chunk
            if len(found) > SET_BYTES_MAX:
                raise ValueError(f"more than {SET_BYTES_MAX} bytes")
            if time.monotonic() > deadline:
                raise TimeoutError("it takes too long")
        if response.length:
            raise ValueError("the response is cut off")
    return bytes(found)
