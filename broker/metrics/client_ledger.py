"""Remembers which clients used which API versions and record formats, by client library and listener.

Owns that memory, its limits, and the file `ottla-clients.json` in the first data directory, which persists it and from
which `ottla clients` reports what another release would refuse. Depends neither on sockets nor on releases.

A request costs one look-up in a set, `ClientLibrary.seen`: an entry in it was recorded since the last tick and needs
nothing more. A tick empties the sets, so `last_seen_ms` is accurate to TICK_MS, and writes the file if needed. News (a
client, a call, a format) is written after SOON_MS, and then not again for NEWS_EVERY_MS.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import field
from typing import Any

from ...protocol.api_key import ApiKey
from ...protocol.frozen import slotted
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
FILE_BYTES_MAX = 64 << 20  # far above what the limits below allow

TICK_MS = 10_000
SOON_MS = 100
NEWS_EVERY_MS = 1_000  # for a small file; a larger one is written by the tick
SMALL_ENTRIES = 1_000
LAST_SEEN_WRITE_MS = 600_000  # interval of writes in which only times changed; the file is also written at shutdown

# Limits, so that a client which invents names cannot fill memory or disk: anything beyond them is recorded without a
# client id.
CLIENTS_MAX = 1_000
ENTRIES_MAX = 10_000  # calls and formats of all named clients; this many take 20 ms to write
CLIENT_CALLS_MAX = 300  # per client; more than the versions of all APIs
CLIENT_FORMATS_MAX = 100
CLIENT_PRINCIPALS_MAX = 100
SEEN_MAX = 10_000  # entries remembered until the next tick, per client library
TEXT_MAX = 200  # characters of a client id or library name; longer ones are truncated

_HEAD_BYTES = 23


class DamagedFile(ValueError):
    """A file that this module did not write; the message has the reason."""


@slotted
class Use:
    """First and last use of a call or a format, by the broker's clock."""

    first_seen_ms: int
    last_seen_ms: int


@slotted
class CallUse(Use):
    """An API version that a client called."""

    refused_ms: int | None = None
    """Time at which a connection was last closed because of this call; None if never."""
    was_newest: bool = False
    """Whether the broker never offered a newer version at such a call: the client may support a newer one."""


Call = tuple[int, int]  # API key, version
Format = tuple[int, int, int]  # Produce version, magic, codec


@slotted
class SeenClient:
    """All connections to one listener with the same client id and the same client library.

    `client_id` is None for all clients beyond the limits together. `software_name` and `software_version` are None for
    clients that do not send them (ApiVersions below v3). `negotiates_versions`: the client sent ApiVersions, so it uses
    the newest version that both sides support. `principals` are those it was authenticated as, "Type:name".
    """

    client_id: str | None
    listener: str
    software_name: str | None
    software_version: str | None
    negotiates_versions: bool = False
    calls: dict[Call, CallUse] = field(default_factory=dict[Call, CallUse])
    produced: dict[Format, Use] = field(default_factory=dict[Format, Use])
    principals: set[str] = field(default_factory=set[str])

    @property
    def last_seen_ms(self) -> int:
        """Time of the latest recorded call or format; 0 if there is none."""
        return max((use.last_seen_ms for use in (*self.calls.values(), *self.produced.values())), default=0)

    @property
    def first_seen_ms(self) -> int:
        """Time of the earliest recorded call or format; 0 if there is none."""
        return min((use.first_seen_ms for use in (*self.calls.values(), *self.produced.values())), default=0)


class ClientLibrary:
    """The listener and the client library of connections, with the fields of KIP-511.

    `seen` has the entries recorded since the last tick. `requests_formats`: a connection requested KIP-192's tagged
    fields of Metadata.
    """

    __slots__ = ("listener", "negotiates_versions", "requests_formats", "seen", "software_name", "software_version")

    def __init__(
        self, listener: str, software_name: str | None, software_version: str | None, negotiates_versions: bool
    ) -> None:
        self.listener = listener
        self.software_name = software_name
        self.software_version = software_version
        self.negotiates_versions = negotiates_versions
        self.requests_formats = False
        self.seen: set[tuple[Any, ...]] = set()


_Key = tuple[str, str | None, str | None, str | None, bool]


def _key(client: SeenClient) -> _Key:
    """Returns the key that distinguishes clients. Clients beyond the limits are grouped by listener, with and without
    ApiVersions.
    """
    together = client.client_id is None and client.negotiates_versions
    return client.listener, client.software_name, client.software_version, client.client_id, together


@slotted
class Seen:
    """Content of the file. `complete` is False once a client was beyond the limits."""

    clients: dict[_Key, SeenClient] = field(default_factory=dict[_Key, SeenClient])
    complete: bool = True
    written_ms: int = 0

    def add(self, client: SeenClient) -> SeenClient:
        self.clients[_key(client)] = client
        return client


class ClientLedger:
    """The client memory of a running broker, from `open` to `close`; both log I/O errors instead of raising them."""

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
        self._libraries: dict[tuple[str, str | None, str | None, bool], ClientLibrary] = {}
        self._entries = sum(len(c.calls) + len(c.produced) for c in seen.clients.values() if c.client_id is not None)
        self._waits = waits or clock
        self._soon: Timer | None = None
        self._news_written_ms = -NEWS_EVERY_MS  # by `waits`, whose time may begin at 0
        self._has_news = not files.exists(path)  # changes that are not in the file
        self._moved = False  # only times changed
        self._failing = False
        self._timer = clock.call_every(TICK_MS, self._tick, self._due_ms)

    @classmethod
    def open(
        cls, files: Files, folder: str, offered: Mapping[int, Versions], clock: Clock, waits: Clock | None = None
    ) -> ClientLedger:
        """Continues with the file in `folder`. An unreadable file is renamed, with a warning.

        `offered` are the versions in ApiVersions. `waits` is the clock for writing news, which runs even if `clock` is
        stopped.
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
                reason += f"; renaming failed: {failure}"
            get_logger().warning("damaged client ledger renamed, earlier clients unknown", reason=reason)
        return cls(files, path, offered, clock, seen, waits)

    # --- recording

    def library(
        self,
        listener: str,
        software_name: str | None = None,
        software_version: str | None = None,
        negotiates_versions: bool = False,
    ) -> ClientLibrary:
        """Returns the object in which a connection's calls are recorded, one for equal arguments. Library names are
        truncated, and dropped beyond the limits.
        """
        key = listener, shortened(software_name), shortened(software_version), negotiates_versions
        found = self._libraries.get(key)
        if found is None:
            if len(self._libraries) >= CLIENTS_MAX and key[1] is not None:
                return self.library(listener, negotiates_versions=negotiates_versions)
            found = self._libraries[key] = ClientLibrary(*key)
        return found

    def note(self, library: ClientLibrary, client_id: str, api_key: int, api_version: int) -> None:
        """Records a served request other than ApiVersions. Only needed if `library.seen` lacks (client id, API key,
        version).
        """
        if api_key != _API_VERSIONS:  # recorded when the library is known
            self._note(library, client_id, api_key, api_version, False)

    def note_api_versions(
        self, library: ClientLibrary, client_id: str, api_version: int, software_name: str, software_version: str
    ) -> ClientLibrary:
        """Records a valid ApiVersions request. Returns the client library of the connection from now on; name and
        version are "" if the request did not send them.
        """
        found = self.library(library.listener, software_name or None, software_version or None, True)
        if (client_id, _API_VERSIONS, api_version) not in found.seen:
            self._note(found, client_id, _API_VERSIONS, api_version, False)
        return found

    def note_refused(self, library: ClientLibrary, client_id: str, api_key: int, api_version: int) -> None:
        """Records a request whose connection is closed because its API or version is not served."""
        self._note(library, client_id, api_key, api_version, True)

    def note_principal(self, library: ClientLibrary, client_id: str, principal: str) -> None:
        """Records who a client is authenticated as, after a request of it was recorded."""
        clients = self.seen.clients
        own = (library.listener, library.software_name, library.software_version, shortened(client_id), False)
        client = clients.get(own) or clients.get((library.listener, None, None, None, library.negotiates_versions))
        name = shortened(principal)
        if client is None or name is None or name in client.principals:
            return
        if len(client.principals) >= CLIENT_PRINCIPALS_MAX:
            self._incomplete()
            return
        client.principals.add(name)
        self._news = True

    def note_records(
        self, library: ClientLibrary, client_id: str, api_version: int, records: bytes | bytearray | memoryview
    ) -> None:
        """Records the format of one partition's records in a Produce request, accepted or not. Looks at the first
        batch.
        """
        if len(records) < _HEAD_BYTES:
            return
        magic = records[MAGIC_AT]
        codec = records[CODEC_AT if magic == 2 else LEGACY_ATTRIBUTES_AT] & 7
        key = (client_id, api_version, magic, codec)
        if key not in library.seen and magic < len(MIN_BYTES):
            self._note_format(library, *key)

    # --- helpers

    def _note(self, library: ClientLibrary, client_id: str, api_key: int, api_version: int, refused: bool) -> None:
        now_ms = self._clock.now_ms()
        client = self._client(library, client_id, (api_key, api_version), "calls")
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
        negotiates_versions = client.negotiates_versions or api_key == _API_VERSIONS
        self._news |= negotiates_versions != client.negotiates_versions
        client.negotiates_versions = negotiates_versions
        if not refused:
            self._remember(library, client_id, (client_id, api_key, api_version))

    def _note_format(self, library: ClientLibrary, client_id: str, api_version: int, magic: int, codec: int) -> None:
        now_ms = self._clock.now_ms()
        format = api_version, magic, codec
        client = self._client(library, client_id, format, "produced")
        use = client.produced.get(format)
        if use is None:
            if len(client.produced) >= CLIENT_FORMATS_MAX:
                self._incomplete()
                return
            use = client.produced[format] = Use(now_ms, now_ms)
            self._added(client)
        self._touch(use, now_ms)
        self._remember(library, client_id, (client_id, *format))

    def _client(self, library: ClientLibrary, client_id: str, wanted: tuple[int, ...], kind: str) -> SeenClient:
        """Returns the client to record `wanted` for: its own entry or, beyond the limits, the shared one."""
        clients = self.seen.clients
        own = (library.listener, library.software_name, library.software_version, shortened(client_id), False)
        found = clients.get(own)
        if found is not None and (self._entries < ENTRIES_MAX or wanted in getattr(found, kind)):
            return found
        if found is None and len(clients) < CLIENTS_MAX and self._entries < ENTRIES_MAX:
            return self.seen.add(SeenClient(own[3], *own[:3]))
        self._incomplete()
        together = (library.listener, None, None, None, library.negotiates_versions)
        return clients.get(together) or self.seen.add(
            SeenClient(None, library.listener, None, None, library.negotiates_versions)
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
            get_logger().warning("client limit reached, further clients recorded together", file=self._path)

    def _remember(self, library: ClientLibrary, client_id: str, key: tuple[Any, ...]) -> None:
        # An entry that does not fit is recorded again at each request: slower, but correct.
        if len(library.seen) < SEEN_MAX and len(client_id) <= TEXT_MAX:
            library.seen.add(key)

    # --- writing the file

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
        for library in self._libraries.values():
            library.seen.clear()

    def _due_ms(self) -> int | None:
        """Returns the time at which a tick next has an effect if nothing changes, or None."""
        if self._news or any(library.seen for library in self._libraries.values()):
            return 0
        return self.seen.written_ms + LAST_SEEN_WRITE_MS if self._moved else None

    def save(self) -> None:
        if self._news or self._moved:
            self._write(self._clock.now_ms())

    def close(self) -> None:
        """Stops the timers and writes unsaved changes."""
        self._timer.cancel()
        if self._soon is not None:
            self._soon.cancel()
        self.save()

    def _write(self, now_ms: int) -> None:
        before_ms, self.seen.written_ms = self.seen.written_ms, now_ms
        try:
            write_atomically(self._files, self._path, to_bytes(self.seen))
        except OSError as error:  # retried later; a full disk stops more than this
            self.seen.written_ms = before_ms
            if not self._failing:
                get_logger().warning("client ledger not written", reason=str(error))
            self._failing = True
            return
        self._news = self._moved = self._failing = False


def shortened(text: str | None) -> str | None:
    """Returns a client id, or a name of a library, cut to TEXT_MAX characters."""
    return text if text is None or len(text) <= TEXT_MAX else text[: TEXT_MAX - 1] + "…"


# --- file format: JSON, with one client per line


def to_bytes(seen: Seen) -> bytes:
    """Returns the content of a file."""
    lines = [json.dumps(_client_value(client), separators=(",", ":")) for client in seen.clients.values()]
    head = json.dumps({"version": FILE_VERSION, "written_ms": seen.written_ms, "complete": seen.complete})
    body = ",\n".join(lines)
    return f'{head[:-1]}, "clients": [\n{body}\n]}}\n'.encode()


def _client_value(client: SeenClient) -> dict[str, Any]:
    # Spelled out: generic access by field name takes twice as long.
    return {
        "client_id": client.client_id,
        "listener": client.listener,
        "software_name": client.software_name,
        "software_version": client.software_version,
        "asks_versions": client.negotiates_versions,
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
        "principals": sorted(client.principals),
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
    """Reads a file. Raises DamagedFile or OSError."""
    if files.size(path) > FILE_BYTES_MAX:
        raise DamagedFile(f"{path} is larger than {FILE_BYTES_MAX} bytes")
    try:
        return from_bytes(files.read_bytes(path))
    except DamagedFile as error:
        raise DamagedFile(f"{path}: {error}") from None


def from_bytes(data: bytes) -> Seen:
    """Parses the content of a file. Raises DamagedFile."""
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
        for principal in _list(entry, "principals") if "principals" in entry else ():  # older files have none
            if not isinstance(principal, str):
                raise DamagedFile("a client: a principal is no text")
            client.principals.add(principal)
        seen.add(client)
    return seen


def _fields(value: Any, wanted: Mapping[str, tuple[type, ...]], what: str) -> list[Any]:
    """Returns the values of these names, in order, each of one of its types. Ignores other names, for later
    versions.
    """
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
