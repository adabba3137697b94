"""What clients were seen doing: which software, on which listener, in which versions and record formats they called.

Owns that memory, its bounds, and the file `ottla-clients.json` in the first data directory, which outlives restarts and
from which `ottla clients` tells what another release would refuse. Knows neither sockets nor what releases serve.

What a request costs is one look into a set, `Origin.seen`: what is in it was noted since the last tick and needs no
more. A tick empties the sets, so that `last_seen_ms` is right to TICK_MS, and writes the file if it has to. What is new
(a client, a call, a format) is written SOON_MS after it came, and then not again for NEWS_EVERY_MS.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ...protocol.api_key import ApiKey
from ...protocol.narrowing import is_dict, is_list
from ...protocol.records.layout import CODEC_AT, LEGACY_ATTRIBUTES_AT, MAGIC_AT, MIN_BYTES
from ...protocol.schema import Versions
from ...storage.io.files import Files, write_atomically
from ..clock import Clock, Timer
from ..logs import get_logger

_API_VERSIONS = int(ApiKey.API_VERSIONS)
FILE_NAME = "ottla-clients.json"
DAMAGED_SUFFIX = ".damaged"
FILE_VERSION = 1
FILE_BYTES_MAX = 64 << 20  # far above what the bounds below allow

TICK_MS = 10_000
SOON_MS = 100
NEWS_EVERY_MS = 1_000  # while the file is small; a larger one waits for the tick
SMALL_ENTRIES = 1_000
LAST_SEEN_WRITE_MS = 600_000  # when nothing but times moved, the file is written that often, and at stop

# A client that invents names must not grow memory or file: what is beyond these is noted under no name.
CLIENTS_MAX = 1_000
ENTRIES_MAX = 10_000  # calls and formats of all named clients; so many are written in 20 ms
CLIENT_CALLS_MAX = 300  # of one client; all versions of all APIs are fewer
CLIENT_FORMATS_MAX = 100
SEEN_MAX = 10_000  # remembered until the next tick, of one origin
TEXT_MAX = 200  # characters of a client id or a software's name; what is longer is cut

_HEAD_BYTES = 23


class DamagedFile(ValueError):
    """The file is not one that was written here; the text says why."""


@dataclass(slots=True)
class Use:
    """One thing that a client did, and when. Times are of the broker's clock."""

    first_seen_ms: int
    last_seen_ms: int


@dataclass(slots=True)
class CallUse(Use):
    """A version of an API that a client called."""

    refused_ms: int | None = None
    """When its connection was last closed for this call; None if it never was."""
    was_newest: bool = False
    """The broker offered no newer version whenever it was called: the client may know a newer one."""


Call = tuple[int, int]  # API key, version
Format = tuple[int, int, int]  # Produce version, magic, codec


@dataclass(slots=True)
class SeenClient:
    """All connections of one listener that named the same client id and the same software.

    `client_id` is None for the clients beyond the bounds, taken together. `software_name` and `software_version` are
    None for clients that do not tell (ApiVersions below v3). `asks_versions`: it asked which versions are served, and
    so takes the newest that both sides know.
    """

    client_id: str | None
    listener: str
    software_name: str | None
    software_version: str | None
    asks_versions: bool = False
    calls: dict[Call, CallUse] = field(default_factory=dict[Call, CallUse])
    produced: dict[Format, Use] = field(default_factory=dict[Format, Use])

    @property
    def last_seen_ms(self) -> int:
        """When it last did anything that is known here."""
        return max((use.last_seen_ms for use in (*self.calls.values(), *self.produced.values())), default=0)

    @property
    def first_seen_ms(self) -> int:
        """When it first did."""
        return min((use.first_seen_ms for use in (*self.calls.values(), *self.produced.values())), default=0)


class Origin:
    """What connections have in common: the listener and the software. `seen` is what was noted since the last tick.

    `asks_formats`: one of them asked for KIP-192's tagged fields of Metadata.
    """

    __slots__ = ("asks_formats", "asks_versions", "listener", "seen", "software_name", "software_version")

    def __init__(
        self, listener: str, software_name: str | None, software_version: str | None, asks_versions: bool
    ) -> None:
        self.listener = listener
        self.software_name = software_name
        self.software_version = software_version
        self.asks_versions = asks_versions
        self.asks_formats = False
        self.seen: set[tuple[Any, ...]] = set()


_Key = tuple[str, str | None, str | None, str | None, bool]


def _key(client: SeenClient) -> _Key:
    """What tells clients apart. Those beyond the bounds are two of each listener: that ask for versions or do not."""
    together = client.client_id is None and client.asks_versions
    return client.listener, client.software_name, client.software_version, client.client_id, together


@dataclass(slots=True)
class Seen:
    """All that the file holds. `complete` is False once something was beyond the bounds."""

    clients: dict[_Key, SeenClient] = field(default_factory=dict[_Key, SeenClient])
    complete: bool = True
    written_ms: int = 0

    def add(self, client: SeenClient) -> SeenClient:
        """Adds a client and returns it."""
        self.clients[_key(client)] = client
        return client


class ClientLedger:
    """The memory of a running broker. Made by `open`, ended by `close`; neither ever raises."""

    def __init__(
        self,
        files: Files,
        path: str,
        offered: Mapping[int, Versions],
        clock: Clock,
        seen: Seen,
        waits: Clock | None = None,
    ) -> None:
        self.seen = seen
        self._files = files
        self._path = path
        self._newest = {key: versions.last for key, versions in offered.items()}
        self._clock = clock
        self._origins: dict[tuple[str, str | None, str | None, bool], Origin] = {}
        self._entries = sum(len(c.calls) + len(c.produced) for c in seen.clients.values() if c.client_id is not None)
        self._waits = waits or clock
        self._soon: Timer | None = None
        self._news_written_ms = -NEWS_EVERY_MS  # by `waits`, whose time may begin at 0
        self._has_news = not files.exists(path)  # something that the file does not have
        self._moved = False  # nothing but times
        self._failing = False
        self._timer = clock.call_every(TICK_MS, self._tick, self._due_ms)

    @classmethod
    def open(
        cls, files: Files, folder: str, offered: Mapping[int, Versions], clock: Clock, waits: Clock | None = None
    ) -> ClientLedger:
        """Goes on with what the folder's file holds. A file that cannot be read is put aside, with a warning.

        `offered` is what ApiVersions lists. `waits` is the clock by which news are written, also while `clock` stands.
        """
        path = os.path.join(folder, FILE_NAME)
        try:
            seen = read(files, path)
        except FileNotFoundError:
            seen = Seen()
        except (DamagedFile, OSError) as error:
            seen = Seen()
            reason = str(error)
            try:
                files.replace(path, path + DAMAGED_SUFFIX)
            except OSError as failure:
                reason += f"; it cannot be put aside: {failure}"
            get_logger().warning("what clients did before is not known, its file was put aside", reason=reason)
        return cls(files, path, offered, clock, seen, waits)

    # What requests tell

    def origin(
        self,
        listener: str,
        software_name: str | None = None,
        software_version: str | None = None,
        asks_versions: bool = False,
    ) -> Origin:
        """Where a connection's calls are noted; connections with the same have the same. Software may be cut off."""
        key = listener, _cut(software_name), _cut(software_version), asks_versions
        found = self._origins.get(key)
        if found is None:
            if len(self._origins) >= CLIENTS_MAX and key[1] is not None:
                return self.origin(listener, asks_versions=asks_versions)
            found = self._origins[key] = Origin(*key)
        return found

    def note(self, origin: Origin, client_id: str, api_key: int, api_version: int) -> None:
        """A request that is served, other than ApiVersions. Needed only if `origin.seen` has not these three."""
        if api_key != _API_VERSIONS:  # that is noted when the software is known
            self._note(origin, client_id, api_key, api_version, False)

    def note_asked(
        self, origin: Origin, client_id: str, api_version: int, software_name: str, software_version: str
    ) -> Origin:
        """A valid ApiVersions request. Returns the origin of the connection from here on: that of the client library,
        whose name and version are "" if the request did not name them."""
        found = self.origin(origin.listener, software_name or None, software_version or None, True)
        if (client_id, _API_VERSIONS, api_version) not in found.seen:
            self._note(found, client_id, _API_VERSIONS, api_version, False)
        return found

    def note_refused(self, origin: Origin, client_id: str, api_key: int, api_version: int) -> None:
        """A request for which the connection is closed, since its API or its version is not served."""
        self._note(origin, client_id, api_key, api_version, True)

    def note_records(
        self, origin: Origin, client_id: str, api_version: int, records: bytes | bytearray | memoryview
    ) -> None:
        """One partition's records of a Produce request, whether they are accepted or not. Looks at the first entry."""
        if len(records) < _HEAD_BYTES:
            return
        magic = records[MAGIC_AT]
        codec = records[CODEC_AT if magic == 2 else LEGACY_ATTRIBUTES_AT] & 7
        key = (client_id, api_version, magic, codec)
        if key not in origin.seen and magic < len(MIN_BYTES):
            self._note_format(origin, *key)

    # Noting

    def _note(self, origin: Origin, client_id: str, api_key: int, api_version: int, refused: bool) -> None:
        now_ms = self._clock.now_ms()
        client = self._client(origin, client_id, (api_key, api_version), "calls")
        use = client.calls.get((api_key, api_version))
        if use is None:
            if len(client.calls) >= CLIENT_CALLS_MAX:
                self._incomplete()
                return
            use = client.calls[api_key, api_version] = CallUse(now_ms, now_ms, None, True)
            self._added(client)
        self._touch(use, now_ms)
        if refused:
            self._news |= use.refused_ms is None
            use.refused_ms = now_ms
        newest = use.was_newest and self._newest.get(api_key) == api_version
        self._news |= newest != use.was_newest
        use.was_newest = newest
        asks_versions = client.asks_versions or api_key == _API_VERSIONS
        self._news |= asks_versions != client.asks_versions
        client.asks_versions = asks_versions
        if not refused:
            self._remember(origin, client_id, (client_id, api_key, api_version))

    def _note_format(self, origin: Origin, client_id: str, api_version: int, magic: int, codec: int) -> None:
        now_ms = self._clock.now_ms()
        format = api_version, magic, codec
        client = self._client(origin, client_id, format, "produced")
        use = client.produced.get(format)
        if use is None:
            if len(client.produced) >= CLIENT_FORMATS_MAX:
                self._incomplete()
                return
            use = client.produced[format] = Use(now_ms, now_ms)
            self._added(client)
        self._touch(use, now_ms)
        self._remember(origin, client_id, (client_id, *format))

    def _client(self, origin: Origin, client_id: str, wanted: tuple[int, ...], kind: str) -> SeenClient:
        """The client that `wanted` is noted with: its own entry, or, beyond the bounds, the one for all others."""
        clients = self.seen.clients
        own = (origin.listener, origin.software_name, origin.software_version, _cut(client_id), False)
        found = clients.get(own)
        if found is not None and (self._entries < ENTRIES_MAX or wanted in getattr(found, kind)):
            return found
        if found is None and len(clients) < CLIENTS_MAX and self._entries < ENTRIES_MAX:
            return self.seen.add(SeenClient(own[3], *own[:3]))
        self._incomplete()
        together = (origin.listener, None, None, None, origin.asks_versions)
        return clients.get(together) or self.seen.add(
            SeenClient(None, origin.listener, None, None, origin.asks_versions)
        )

    def _added(self, client: SeenClient) -> None:
        self._news = True
        if client.client_id is not None:
            self._entries += 1

    def _touch(self, use: Use, now_ms: int) -> None:
        if now_ms > use.last_seen_ms:
            use.last_seen_ms = now_ms
            self._moved = True

    def _incomplete(self) -> None:
        if self.seen.complete:
            self.seen.complete = False
            self._news = True
            get_logger().warning("too many different clients to keep them apart", file=self._path)

    def _remember(self, origin: Origin, client_id: str, key: tuple[Any, ...]) -> None:
        # What is not remembered is noted again at each request: slower, and right.
        if len(origin.seen) < SEEN_MAX and len(client_id) <= TEXT_MAX:
            origin.seen.add(key)

    # The file

    @property
    def _news(self) -> bool:
        return self._has_news

    @_news.setter
    def _news(self, has_news: bool) -> None:
        if has_news and self._soon is None and self._entries <= SMALL_ENTRIES:
            now_ms = self._waits.now_ms()
            at_ms = max(now_ms + SOON_MS, self._news_written_ms + NEWS_EVERY_MS)
            self._soon = self._waits.call_at(at_ms, self._write_news)
        self._has_news = has_news

    def _write_news(self) -> None:
        self._soon = None
        if self._has_news:
            self._news_written_ms = self._waits.now_ms()
            self._write(self._clock.now_ms())

    def _tick(self) -> None:
        now_ms = self._clock.now_ms()
        if self._news or (self._moved and now_ms - self.seen.written_ms >= LAST_SEEN_WRITE_MS):
            self._write(now_ms)
        for origin in self._origins.values():
            origin.seen.clear()

    def _due_ms(self) -> int | None:
        """From when on a tick has something to do, as things are."""
        if self._news or any(origin.seen for origin in self._origins.values()):
            return 0
        return self.seen.written_ms + LAST_SEEN_WRITE_MS if self._moved else None

    def save(self) -> None:
        """Writes what is not written yet."""
        if self._news or self._moved:
            self._write(self._clock.now_ms())

    def close(self) -> None:
        """The same, and notes no more times."""
        self._timer.cancel()
        if self._soon is not None:
            self._soon.cancel()
        self.save()

    def _write(self, now_ms: int) -> None:
        before_ms, self.seen.written_ms = self.seen.written_ms, now_ms
        try:
            write_atomically(self._files, self._path, to_bytes(self.seen))
        except OSError as error:  # the next may do; a broker whose disk is full has larger worries
            self.seen.written_ms = before_ms
            if not self._failing:
                get_logger().warning("what clients do cannot be written", reason=str(error))
            self._failing = True
            return
        self._news = self._moved = self._failing = False


def _cut(text: str | None) -> str | None:
    return text if text is None or len(text) <= TEXT_MAX else text[: TEXT_MAX - 1] + "…"


# The file's form: JSON, a client on each line


def to_bytes(seen: Seen) -> bytes:
    """The file with this in it."""
    lines = [json.dumps(_client_value(client), separators=(",", ":")) for client in seen.clients.values()]
    head = json.dumps({"version": FILE_VERSION, "written_ms": seen.written_ms, "complete": seen.complete})
    body = ",\n".join(lines)
    return f'{head[:-1]}, "clients": [\n{body}\n]}}\n'.encode()


def _client_value(client: SeenClient) -> dict[str, Any]:
    # Spelt out: looking each field up by its name would take twice as long.
    return {
        "client_id": client.client_id,
        "listener": client.listener,
        "software_name": client.software_name,
        "software_version": client.software_version,
        "asks_versions": client.asks_versions,
        "calls": [
            {
                "api_key": key,
                "version": version,
                "first_seen_ms": use.first_seen_ms,
                "last_seen_ms": use.last_seen_ms,
                "refused_ms": use.refused_ms,
                "was_newest": use.was_newest,
            }
            for (key, version), use in client.calls.items()
        ],
        "produced": [
            {
                "version": version,
                "magic": magic,
                "codec": codec,
                "first_seen_ms": use.first_seen_ms,
                "last_seen_ms": use.last_seen_ms,
            }
            for (version, magic, codec), use in client.produced.items()
        ],
    }


_CLIENT_FIELDS = {
    "client_id": (str, type(None)),
    "listener": (str,),
    "software_name": (str, type(None)),
    "software_version": (str, type(None)),
    "asks_versions": (bool,),
}
_USE_FIELDS = {"first_seen_ms": (int,), "last_seen_ms": (int,)}
_CALL_FIELDS = {**_USE_FIELDS, "refused_ms": (int, type(None)), "was_newest": (bool,)}
_TIME_MAX_MS = 253_402_300_800_000  # the end of the year 9999
_INT32 = 1 << 31
_CALL_KEY = {"api_key": (int,), "version": (int,)}
_FORMAT_KEY = {"version": (int,), "magic": (int,), "codec": (int,)}


def read(files: Files, path: str) -> Seen:
    """What a file holds. Raises DamagedFile, or OSError as the system gives it."""
    if files.size(path) > FILE_BYTES_MAX:
        raise DamagedFile(f"{path} is larger than {FILE_BYTES_MAX} bytes")
    try:
        return from_bytes(files.read_bytes(path))
    except DamagedFile as error:
        raise DamagedFile(f"{path}: {error}") from None


def from_bytes(data: bytes) -> Seen:
    """What such a file holds. Raises DamagedFile."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise DamagedFile(f"not JSON: {error}") from None
    version, written_ms, complete = _fields(
        value, {"version": (int,), "written_ms": (int,), "complete": (bool,)}, "the file"
    )
    if version != FILE_VERSION:
        raise DamagedFile(f"version {version}, not {FILE_VERSION}")
    seen = Seen({}, complete, written_ms)
    for entry in _list(value, "clients"):
        client = SeenClient(*_fields(entry, _CLIENT_FIELDS, "a client"))
        for call in _list(entry, "calls"):
            key = _fields(call, _CALL_KEY, "a call")
            client.calls[key[0], key[1]] = CallUse(*_fields(call, _CALL_FIELDS, "a call"))
        for format in _list(entry, "produced"):
            key = _fields(format, _FORMAT_KEY, "a format")
            client.produced[key[0], key[1], key[2]] = Use(*_fields(format, _USE_FIELDS, "a format"))
        seen.add(client)
    return seen


def _fields(value: Any, wanted: Mapping[str, tuple[type, ...]], what: str) -> list[Any]:
    """The values of these names, in order, each of exactly one of its types. Other names are of later versions."""
    if not is_dict(value):
        raise DamagedFile(f"{what} is not an object")
    for name, kinds in wanted.items():
        found = value.get(name, wanted)
        if type(found) not in kinds:
            raise DamagedFile(f"{what}: {name} is missing or of the wrong type")
        if isinstance(found, int) and not -_INT32 <= found < (_TIME_MAX_MS if name.endswith("_ms") else _INT32):
            raise DamagedFile(f"{what}: {name} is out of range")
    return [value[name] for name in wanted]


def _list(value: dict[str, Any], name: str) -> list[Any]:
    found = value.get(name)
    if not is_list(found):
        raise DamagedFile(f"{name} is not a list")
    return found
